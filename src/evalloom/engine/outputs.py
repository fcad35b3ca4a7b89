"""Write the results of a batch to files; the extension selects the format."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from evalloom.batchlog import manifest
from evalloom.engine.results import Results
from evalloom.files.write import atomic_writer
from evalloom.reports import by_suffix

if TYPE_CHECKING:
    from evalloom.reports import RunReporter

Outputs: TypeAlias = "list[tuple[Path, RunReporter]]"


def reporters_for(files: Iterable[str], reporters: tuple[RunReporter, ...]) -> Outputs:
    """Return the files to write, each with the reporter of its extension."""
    return [(Path(file), by_suffix(Path(file), reporters)) for file in files]


def write_outputs(results: Results, outputs: Outputs) -> None:
    """Write every file atomically."""
    if not outputs:
        return
    from evalloom.reports.run_report import RunReport

    report = RunReport(
        batch=msgspec.to_builtins(manifest(results.path)),
        summary=msgspec.to_builtins(results.summary),
        gates=[msgspec.to_builtins(gate) for gate in results.gates],
        rows=results,
        problem=results.problem.code if results.problem else "",
    )
    for path, reporter in outputs:
        with atomic_writer(path) as stream:
            reporter.render(report, stream)
