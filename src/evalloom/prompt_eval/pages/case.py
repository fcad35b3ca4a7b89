"""One case of an evaluation with its scores and reasons, and the form in which people score it too."""

from __future__ import annotations

import threading

from msgspec import Struct

from evalloom.pages.errors import RequestError
from evalloom.pages.page import Page, PageRequest, Redirect, View
from evalloom.prompt_eval.folder import Folder
from evalloom.prompt_eval.pages.evaluations import chosen_folder, name_of, report_of
from evalloom.prompt_eval.pages.scorecard import CaseLine, case_line, chosen_cases
from evalloom.prompt_eval.plan import TestPoint
from evalloom.prompt_eval.reports import content
from evalloom.prompt_eval.reports.content import PromptEvalReport
from evalloom.prompt_eval.scores import ScoredCase
from evalloom.prompt_eval.steps.review import Review, enter_review, read_reviews
from evalloom.prompt_eval.table import output_key

_LONGEST = 20_000
_LONGEST_OF_ALL = 1_000_000
_LONGEST_NAME = 100
_FILTERS = ("show", "category", "point", "q")
_storing = threading.Lock()
"""A review is added to the file of all of them, so two at once would lose one."""


class ScoredPoint(Struct, frozen=True):
    """A test point of a case: the mark of the judge, and that of a person."""

    id: str
    name: str
    is_core: bool
    score: int | None
    reason: str
    human: int | None
    anchors: dict[int, str]


class CasePage(Struct, frozen=True, kw_only=True):
    """The page of one case."""

    folder: str
    case: CaseLine
    subcategory: str
    comment: str
    inputs: list[tuple[str, str]]
    output: str
    output_cut: int
    """How many characters of the output are not shown."""
    output_key: str
    """What a review says it is about: the output as it is shown."""
    points: list[ScoredPoint]
    human_comment: str
    reviewer: str
    is_reviewed: bool
    is_outdated: bool
    """Whether there is a review of an earlier output, which a new one replaces."""
    is_blind: bool
    """Whether the scores of the judge are hidden, so that they do not influence a reviewer."""
    previous: str
    next: str
    position: int
    total: int


def _show(request: PageRequest) -> View:
    folder = chosen_folder(request)
    report = report_of(folder, request.t.code)
    case = _find(report, folder, request.query.get("id", ""))
    reviews = read_reviews(folder.path)
    review = reviews.get(case.id, Review())
    is_current = review.is_about(case.record.get("result_aftertest"))
    current = review if is_current else Review()
    limit = _LONGEST_OF_ALL if request.query.get("full") else _LONGEST
    output = content.result(case)
    chosen = chosen_cases(request, report, {id for id, review in reviews.items() if review.scores})
    position, before, after = _neighbours(chosen, report, case)
    points = {point.id: point for point in report.points}
    data = CasePage(
        folder=name_of(request, folder),
        case=case_line(case),
        subcategory=str(case.record.get("test_subcategory") or ""),
        comment=case.comment,
        inputs=[(name, value[:limit]) for name, value in content.inputs(case)],
        output=output[:limit],
        output_cut=max(0, len(output) - limit),
        output_key=output_key(case.record.get("result_aftertest")),
        points=[_scored_point(points.get(id, TestPoint(id, "")), case, current.scores.get(id)) for id in case.marks],
        human_comment=current.comment,
        reviewer=current.reviewer,
        is_reviewed=bool(current.scores or current.comment),
        is_outdated=not is_current,
        is_blind=request.query.get("blind") == "1" and not current.scores,
        previous=before,
        next=after,
        position=position,
        total=len(chosen),
    )
    return View("prompt_case.html", data)


def _scored_point(point: TestPoint, case: ScoredCase, human: int | None) -> ScoredPoint:
    mark = case.marks[point.id]
    return ScoredPoint(point.id, point.name, point.is_core, mark.score, mark.reason, human, point.anchors)


def _find(report: PromptEvalReport, folder: Folder, id: str) -> ScoredCase:
    case = next((case for case in report.cases if case.id == id), None)
    if case is None:
        raise RequestError("case_not_found", f"{folder.scored.as_posix()} has no case {id[:80]!r}")
    return case


def _neighbours(chosen: list[ScoredCase], report: PromptEvalReport, case: ScoredCase) -> tuple[int, str, str]:
    """Return the place of a case in the chosen list, and the cases before and after it.

    A case that left the list, as a reviewed one does, still leads to the next that is in it.
    """
    order = {other.id: at for at, other in enumerate(report.cases)}
    here = order[case.id]
    before = next((other.id for other in reversed(chosen) if order[other.id] < here), "")
    after = next((other.id for other in chosen if order[other.id] > here), "")
    position = next((at for at, other in enumerate(chosen, 1) if other.id == case.id), 0)
    return position, before, after


def _review(request: PageRequest) -> Redirect:
    """Store the scores of a person."""
    folder = chosen_folder(request, request.field("folder"))
    reviewer = request.field("reviewer").strip()
    if not reviewer or len(reviewer) > _LONGEST_NAME:
        message = f"reviewer: expected your name, of 1 to {_LONGEST_NAME} characters, got {reviewer[:80]!r}"
        raise RequestError("validation_failed", message)
    test_id = request.field("id")
    # The row of a table as `import-review` reads it, so that the same checks apply.
    cells = {name: values[0] for name, values in request.form.items() if name.startswith("human_") and values}
    with _storing:
        result = enter_review(folder.path, {**cells, "test_id": test_id}, reviewer)
    if not result.is_written:
        messages = [finding.message for finding in result.findings if finding.severity == "error"]
        raise RequestError(result.findings[0].code, "; ".join(messages))
    filters = {name: request.field(name) for name in (*_FILTERS, "blind")}
    shown = request.field("next") if request.field("then") == "next" and request.field("next") else test_id
    return Redirect(request.url("/prompt-eval/case", folder=request.field("folder"), id=shown, by=reviewer, **filters))


PAGES = (
    Page("/prompt-eval/case", _show),
    Page("/prompt-eval/review", _review, "POST"),
)
