"""`evalloom export`: a stored batch in the result format of another tool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from evalloom.core.errors import usage_error
from evalloom.core.text import did_you_mean
from evalloom.engine.report import report_of, stored_results
from evalloom.reports import by_suffix
from evalloom.reports.run_report import ReportRow, RunReport

if TYPE_CHECKING:
    from evalloom.engine.system import Catalog
    from evalloom.reports.exporters import Exporter


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


class CountedRows(Struct):
    """Rows, and how many there are once all of them are read."""

    rows: Iterable[ReportRow]
    runs: int = 0
    without_record: int = 0
    """How many are of lines that could not be read."""

    def __iter__(self) -> Iterator[ReportRow]:
        runs = without_record = 0
        for run, scored in self.rows:
            yield run, scored
            runs += 1
            without_record += not run.raw
        self.runs, self.without_record = runs, without_record


def stored_report(path: Path, catalog: Catalog, warn: Callable[[str], None]) -> tuple[RunReport, CountedRows]:
    """Return a stored batch as exporters see it, and its rows, which count what was written."""
    report = report_of(stored_results(path, catalog, warn=warn), catalog)
    rows = CountedRows(report.rows)
    return structs.replace(report, rows=rows), rows
