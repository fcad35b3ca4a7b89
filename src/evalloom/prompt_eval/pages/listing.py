"""The evaluations of prompts in a project, each with its pass rate, and batches of the same cases."""

from __future__ import annotations

from shlex import join

from msgspec import Struct

from evalloom.core.errors import EvalloomError
from evalloom.pages.library import BatchSummary
from evalloom.pages.page import Page, PageRequest, View
from evalloom.prompt_eval.folder import Folder, InvalidArtifact
from evalloom.prompt_eval.pages.evaluations import find_evaluations, name_of, report_of
from evalloom.prompt_eval.reports import content

_SHOWN = 50
_BATCHES_SHOWN = 10


class Evaluation(Struct, frozen=True):
    """A results folder in the list; without scored cases it has a message instead of figures."""

    folder: str
    prompt: str = ""
    cases: int = 0
    passed: int = 0
    rated: int = 0
    pass_rate: float | None = None
    pass_interval: tuple[float, float] | None = None
    bad: int = 0
    safety_failures: int = 0
    average: str = ""
    judge: str = ""
    reviewed: int = 0
    """Test points that people have scored too."""
    problem: str = ""
    command: str = ""
    """What scores the cases, if that was not done yet."""


class Evaluations(Struct, frozen=True):
    """The evaluations of a project."""

    evaluations: list[Evaluation]
    total: int
    batches: list[BatchSummary]
    most_checked: int = 2_000
    """The logs of larger batches are checked on their own pages only."""


def _show(request: PageRequest) -> View:
    folders = find_evaluations(request.site.home)
    batches = [summary for summary in request.site.library.summaries() if summary.system == "prompt-eval"]
    rows = [_evaluation(request, folder) for folder in folders[:_SHOWN]]
    return View("prompts.html", Evaluations(rows, len(folders), batches[:_BATCHES_SHOWN]))


def _evaluation(request: PageRequest, folder: Folder) -> Evaluation:
    name = name_of(request, folder)
    if not folder.scored.is_file():
        return Evaluation(name, command=join(["evalloom", "prompt-eval", "run", name]))
    try:
        report = report_of(folder, request.t.code)
    except InvalidArtifact as error:
        first = next((finding.message for finding in error.findings if finding.severity == "error"), str(error))
        return Evaluation(name, problem=first)
    except EvalloomError as error:
        return Evaluation(name, problem=str(error).rpartition(" [")[0] or str(error))
    card = report.scorecard
    return Evaluation(
        name,
        report.prompt,
        card.cases,
        card.passed,
        card.rated,
        card.pass_rate,
        card.pass_interval,
        card.bad,
        len(card.safety),
        content.average(card.all_scores),
        report.facts.get("judge", ""),
        len(report.agreement),
    )


PAGES = (Page("/prompt-eval", _show),)
