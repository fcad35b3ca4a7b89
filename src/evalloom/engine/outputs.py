"""Write the results of a batch to files; the extension selects the format. Files of others are not replaced."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from evalloom.batchlog import FOLDER, batches, is_in_use
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Batch
from evalloom.files.write import atomic_writer, refuse_unwritable
from evalloom.reports import LazyReporter, by_suffix
from evalloom.ui.report_marks import is_report

if TYPE_CHECKING:
    from evalloom.engine.plan import Plan
    from evalloom.engine.results import Results
    from evalloom.engine.system import Catalog
    from evalloom.reports import RunReporter
    from evalloom.reports.run_report import RunReport

Outputs: TypeAlias = "list[tuple[Path, RunReporter]]"

_WRITES = "writes"
"""The option of a batch that lists the files it writes at its end."""


def reporters_for(files: Iterable[str], reporters: tuple[RunReporter, ...]) -> Outputs:
    """Return the files to write, each with the reporter of its extension."""
    return [(Path(file), by_suffix(Path(file), reporters)) for file in files]


def refuse_replacing(paths: Iterable[Path], force: bool = False) -> None:
    """Raise if a file exists and is not a report of evalloom."""
    for path in paths:
        if not force and os.path.isfile(path) and not is_report(path):
            raise would_overwrite(path, "exists, and is not a report of evalloom")


def refuse_replacing_results(outputs: Outputs, force: bool = False, batch: Batch | None = None) -> None:
    """The same for results, which must also be writable. A format may know more about whose file it is.

    `batch` is the one that is resumed.
    """
    for path, reporter in outputs:
        refuse_unwritable(path)
        module = reporter.load() if isinstance(reporter, LazyReporter) else reporter
        why_not = getattr(module, "why_not_replace", None)
        if why_not is None:
            refuse_replacing([path], force)
        elif not force and os.path.isfile(path) and (reason := why_not(path, batch)):
            raise would_overwrite(path, reason)


def refuse_claimed(paths: Iterable[Path], folder: Path = FOLDER) -> None:
    """Raise if a running batch of the folder writes one of the files."""
    files = {os.path.realpath(path): path for path in paths}
    for path, batch in batches(folder) if files else ():
        taken = next((files[file] for file in batch.options.get(_WRITES, ()) if file in files), None)
        if taken is not None and not batch.finished_at and is_in_use(path):
            raise would_overwrite(taken, f"the batch {path.name} is running, and writes it at its end")


def claim(plan: Plan, paths: Iterable[Path]) -> Plan:
    """Return the plan of a batch that lists the files which it writes at its end."""
    files = [os.path.realpath(path) for path in paths]
    if not files:
        return plan
    options = {**plan.metadata.options, _WRITES: files}
    return msgspec.structs.replace(plan, metadata=msgspec.structs.replace(plan.metadata, options=options))


def would_overwrite(path: Path, reason: str) -> EvalloomError:
    """Return the error about a file that only --force replaces."""
    hint = "Choose another name, or pass --force to replace it"
    return usage_error("would_overwrite", f"{path.as_posix()}: {reason}. {hint}")


def write_outputs(results: Results, outputs: Outputs, catalog: Catalog, language: str = "en") -> None:
    """Write the results of a batch to every file."""
    if outputs:
        from evalloom.engine.report import report_of

        write_reports(report_of(results, catalog, language), outputs)


def write_reports(report: RunReport, outputs: Outputs) -> None:
    """Write every file atomically."""
    for path, reporter in outputs:
        with atomic_writer(path) as stream:
            reporter.render(report, stream)


def refuse_without_comparison(outputs: Outputs) -> None:
    """Raise if the format of a file has no place for a comparison, which would be left out silently."""
    for path, reporter in outputs:
        module = reporter.load() if isinstance(reporter, LazyReporter) else reporter
        if not getattr(module, "shows_comparison", False):
            message = f"-o {path}: {reporter.suffix} shows the runs of one batch and no comparison"
            raise usage_error("unknown_format", f"{message}. Choose .html, .md or .json, or leave out --against")
