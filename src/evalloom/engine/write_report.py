"""`evalloom report`: writes a stored batch to files, with what changed against another batch or a baseline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from evalloom.batchlog import find, manifest
from evalloom.core.errors import usage_error
from evalloom.engine.outputs import (
    refuse_claimed,
    refuse_replacing_results,
    refuse_without_comparison,
    reporters_for,
    write_reports,
)
from evalloom.engine.system import Catalog


class ReportRequest(Struct, frozen=True):
    """Which batch to write to which files, and what to compare it with."""

    batch: str
    output: tuple[str, ...]
    against: str = ""
    any_config: bool = False
    config: str = ""
    force: bool = False
    language: str = "en"


def write_report(request: ReportRequest, catalog: Catalog, warn: Callable[[str], None]) -> list[Path]:
    """Write all files, and return their paths."""
    # Deferred: it imports the comparison and all that it needs.
    from evalloom.engine.compare import ComparisonRequest, compare
    from evalloom.engine.report import compared_with, report_of, stored_results

    if not request.output:
        raise usage_error("bad_option", "report: expected a file to write, such as -o report.html")
    outputs = reporters_for(request.output, catalog.reporters)
    path = find(request.batch)
    refuse_replacing_results(outputs, request.force, manifest(path))
    if not request.force:
        refuse_claimed(file for file, _ in outputs)
    compared = None
    if request.against:
        refuse_without_comparison(outputs)
        comparison = ComparisonRequest(str(path), request.against, any_config=request.any_config)
        compared = compared_with(compare(comparison, warn, catalog), comparison)
    results = stored_results(path, catalog, request.config, warn)
    write_reports(report_of(results, catalog, request.language, compared), outputs)
    return [file for file, _ in outputs]
