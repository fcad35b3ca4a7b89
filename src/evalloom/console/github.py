"""In GitHub Actions, the summary of a step gets the report as Markdown, and failing cases become annotations.

Nothing happens elsewhere, nor with `EVALLOOM_GITHUB=0`.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalloom.console.outcome import Hide, warn

if TYPE_CHECKING:
    from evalloom.core.model import Run
    from evalloom.engine.results import Results
    from evalloom.engine.system import Catalog
    from evalloom.reports.run_report import RunReport

_MOST = 10
"""GitHub shows ten errors of a step."""
_LONGEST_MESSAGE = 1_000


def tell_github(make_report: Callable[[], RunReport], as_json: bool, hide: Hide = str) -> None:
    """Append to the summary of the step, and print annotations unless stdout is for JSON. Never fails the command."""
    environment = os.environ
    if environment.get("EVALLOOM_GITHUB") == "0":
        return
    summary = environment.get("GITHUB_STEP_SUMMARY", "")
    is_annotated = environment.get("GITHUB_ACTIONS") == "true" and not as_json
    if not (summary or is_annotated):
        return
    report = make_report()
    if summary:
        _append(summary, report, hide)
    if is_annotated:
        for line in failure_annotations(report, environment.get("GITHUB_WORKSPACE", "")):
            click.echo(hide(line))


def tell_github_results(results: Results, catalog: Catalog, language: str, as_json: bool, hide: Hide = str) -> None:
    """Tell GitHub Actions about the results of a batch."""

    def make_report() -> RunReport:
        from evalloom.engine.report import report_of  # deferred: it imports the comparison and all that it needs

        return report_of(results, catalog, language)

    tell_github(make_report, as_json, hide)


def _append(file: str, report: RunReport, hide: Hide) -> None:
    from evalloom.reports import run_markdown

    page = io.BytesIO()
    run_markdown.render(report, page)
    try:
        with open(file, "a", encoding="utf-8") as stream:
            stream.write(hide(page.getvalue().decode()) + "\n")
    except OSError as error:
        warn(f"GITHUB_STEP_SUMMARY: {file} cannot be written: {error.strerror or error}")


def failure_annotations(report: RunReport, workspace: str = "") -> Iterator[str]:
    """Yield a workflow command for each of the first failing cases, and one with the number of the others.

    Of a comparison, only cases that were lost are annotated: as errors if it is a regression, else as warnings.
    """
    from evalloom.core.text import shorten
    from evalloom.reports.failing import failing_cases
    from evalloom.reports.overview import failure_of
    from evalloom.reports.workflow_commands import workflow_command

    compared = report.compared
    kind = "warning" if compared is not None and not compared.is_regression else "error"
    number = 0
    for number, (run, scored) in enumerate(failing_cases(report, report.rows, only_lost=compared is not None), 1):
        if number <= _MOST:
            failure = failure_of(run, scored)
            message = ": ".join(filter(None, (failure.check, failure.reason or scored.status)))
            title = " · ".join(filter(None, (run.case_id, run.profile)))
            place = {"file": _in_workspace(run, workspace), "line": run.origin.line or ""}
            yield workflow_command(kind, shorten(message, _LONGEST_MESSAGE), **place, title=shorten(title, 120))
    if number > _MOST:
        # Another kind, because an eleventh error would not be shown.
        more = f"{number - _MOST:,} more failing cases: the summary of the step and the batch have them"
        yield workflow_command("notice", more, title="evalloom")


def _in_workspace(run: Run, workspace: str) -> str:
    """Return the file of a case relative to the repository, as GitHub needs it, whatever the working directory."""
    file = run.origin.file
    if not (file and workspace):
        return file
    path = Path(os.path.realpath(file))
    root = Path(os.path.realpath(workspace))
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else file
