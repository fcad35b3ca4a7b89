"""`evalloom.report`: a stored batch as files, in any format that results have."""

from __future__ import annotations

from pathlib import Path

from evalloom import catalog
from evalloom.api.options import AnyBatch, Files, batch_name, paths_in
from evalloom.core.verbs import Warn, verb, warn_caller
from evalloom.engine.write_report import ReportRequest, write_report
from evalloom.ui.language import known_language


@verb()
def report(
    batch: AnyBatch,
    *files: str | Path,
    output: Files = (),
    against: AnyBatch = "",
    any_config: bool = False,
    config: str | Path = "",
    force: bool = False,
    lang: str = "en",
    warn: Warn | None = None,
) -> list[Path]:
    """Write a batch to files, as `evalloom report` does, and return their paths. Nothing is run or scored.

    batch: results, a path, an id or a unique beginning of one, or "latest".
    files, or output: what to write; the extension is the format: .html, .csv, .json, .jsonl, .xml …
    against: show what changed against this baseline or batch, in .html and .json.
    config: the settings file with the gates. lang: "en" or "zh". force: replace files that are not our reports.

    >>> evalloom.report("latest", "report.html", against="good")
    """
    request = ReportRequest(
        batch_name(batch),
        tuple(map(str, [*files, *paths_in(output)])),
        batch_name(against),
        any_config,
        str(config),
        force,
        known_language(lang),
    )
    return write_report(request, catalog.load_for_python(), warn_caller(warn))
