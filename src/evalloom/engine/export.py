"""`evalloom export`: a stored batch in the result format of another tool."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from evalloom.batchlog import manifest
from evalloom.core.errors import usage_error
from evalloom.core.model import Batch, Case, Run
from evalloom.core.text import did_you_mean
from evalloom.engine.cases import with_checks
from evalloom.engine.plan import CHECK_LISTS
from evalloom.engine.results import stored_runs
from evalloom.engine.resume import DamagedRun, case_of
from evalloom.reports import by_suffix
from evalloom.reports.run_report import ReportRow, RunReport

if TYPE_CHECKING:
    from evalloom.engine.system import Catalog
    from evalloom.reports.exporters import Exporter

Warn = Callable[[str], None]


def exporter_of(format: str, output: str, exporters: tuple[Exporter, ...]) -> Exporter:
    """Return the exporter that `--as` names, or else the one of the output file's extension."""
    names = {exporter.name: exporter for exporter in exporters}
    if format in names:
        return names[format]
    if format:
        hint = did_you_mean(format, names)
        raise usage_error("unknown_format", f"--as: expected one of {', '.join(names)}, got {format!r}{hint}")
    if not output:
        raise usage_error("unknown_format", f"name a format: --as {', '.join(names)}; or a file with -o")
    return by_suffix(Path(output), exporters)


class StoredRows(Struct):
    """The runs of a batch in the order of the cases, read from its log each time; warns about damaged lines once."""

    path: Path
    warn: Warn = lambda message: None
    runs: int = 0
    without_record: int = 0
    """How many of the runs are of lines that could not be read; both are known once all runs are read."""
    is_known: bool = False

    def __iter__(self) -> Iterator[ReportRow]:
        runs = without_record = 0
        for run, scored in stored_runs(self.path, (lambda message: None) if self.is_known else self.warn):
            yield run, scored
            runs += 1
            without_record += not run.raw
        self.runs, self.without_record, self.is_known = runs, without_record, True


def report_of(rows: StoredRows, catalog: Catalog) -> RunReport:
    """Return a stored batch as exporters see it: with the case of each run, rebuilt from its record."""
    batch = manifest(rows.path)
    return RunReport(
        batch=msgspec.to_builtins(batch),
        summary=batch.summary,
        gates=[],
        rows=rows,
        tool="evalloom export",
        problem="",
        case_of=_case_reader(batch, catalog),
    )


def _case_reader(batch: Batch, catalog: Catalog) -> Callable[[Run], Case]:
    lists = batch.options.get(CHECK_LISTS, "plain")

    def read(run: Run) -> Case:
        try:
            return with_checks(case_of(run, catalog.formats, lists), (), batch.config, catalog)
        except DamagedRun:  # an unreadable line: its run says what is wrong with it
            return Case(run.case_id, {}, tags=run.tags, raw=run.raw, origin=run.origin)

    return read
