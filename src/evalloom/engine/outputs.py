"""The results of a batch as files: the format is taken from the extension."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from evalloom.batchlog import manifest
from evalloom.engine.results import Results
from evalloom.files.write import atomic_writer
from evalloom.reports import RunReporter, by_suffix
from evalloom.reports.run_report import RunReport

Outputs = list[tuple[Path, RunReporter]]


def reporters_for(files: Iterable[str], reporters: tuple[RunReporter, ...]) -> Outputs:
    """The files to write, each with the reporter that its extension asks for."""
    return [(Path(file), by_suffix(Path(file), reporters)) for file in files]


def write_outputs(results: Results, outputs: Outputs) -> None:
    """Writes every file, each whole or not at all."""
    if not outputs:
        return
    report = RunReport(
        batch=msgspec.to_builtins(manifest(results.path)),
        summary=msgspec.to_builtins(results.summary),
        gates=[msgspec.to_builtins(gate) for gate in results.gates],
        rows=results,
    )
    for path, reporter in outputs:
        with atomic_writer(path) as stream:
            reporter.render(report, stream)
