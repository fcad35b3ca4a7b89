"""The scorecard of one evaluation: figures by test point and category, bad cases by cause, and trust in the judge."""

from __future__ import annotations

from types import ModuleType
from typing import ClassVar

from msgspec import Struct

from evalloom.pages.page import Page, PageRequest, View
from evalloom.prompt_eval.analysis.agreement import Confusion, PointAgreement, PointNoise
from evalloom.prompt_eval.analysis.scorecard import Bucket, PointFigures, PointStatus, Scorecard, ScoreCounts
from evalloom.prompt_eval.pages.evaluations import chosen_folder, name_of, report_of
from evalloom.prompt_eval.reports import content, html
from evalloom.prompt_eval.reports.content import PromptEvalReport
from evalloom.prompt_eval.scores import PASSING, ScoredCase
from evalloom.prompt_eval.steps.review import read_reviews

_PAGE_SIZE = 50
_IN_GROUP = 10
"""Cases of a group of bad cases that are listed."""


class PointLine(Struct, frozen=True):
    """The figures of a test point."""

    id: str
    name: str
    is_core: bool
    status: PointStatus
    average: str
    tally: ScoreCounts
    """How many cases got 1, 2 and 3."""
    status_text: str
    missing: int
    anchors: dict[int, str]


class CategoryLine(Struct, frozen=True):
    """A category: its cases, and its average and number of scores on each test point."""

    category: str
    cases: int
    passed: int
    bad: int
    averages: list[tuple[str, int, int]]
    """Average, number of scores, and shade."""


class CaseLine(Struct, frozen=True):
    """A case in a list."""

    id: str
    category: str
    description: str
    scores: dict[str, int | None]
    score: str
    is_bad: bool | None
    is_failed: bool
    reason: str = ""
    is_reviewed: bool = False


class Cause(Struct, frozen=True):
    """Bad cases that fail on one test point and share a trait."""

    point: str
    name: str
    trait: str
    total: int
    cases: list[CaseLine]


class AgreementLine(Struct, frozen=True):
    """How well judge and people agree on a test point."""

    point: str
    cases: int
    exact: float | None
    exact_interval: tuple[float, float] | None
    kappa: float | None
    kappa_interval: tuple[float, float] | None
    bias: float | None
    confusion: Confusion
    texts: tuple[str, str, str]
    """Same score, kappa and bias as a report shows them."""


class NoiseLine(Struct, frozen=True):
    """How much the scores of the judge change when it scores again."""

    point: str
    cases: int
    same: str
    mean_range: float | None


class ScorecardPage(Struct, frozen=True, kw_only=True):
    """The page of one evaluation."""

    folder: str
    title: str
    headline: str
    facts: list[tuple[str, str]]
    remarks: list[str]
    cases: int
    passed: int
    rated: int
    pass_rate: float | None
    pass_interval: tuple[float, float] | None
    bad: int
    bad_but_passed: int
    failed: int
    incomplete: int
    average: str
    core_average: str
    safety: list[CaseLine]
    points: list[PointLine]
    categories: list[CategoryLine]
    causes: list[Cause]
    agreement: list[AgreementLine]
    noise: list[NoiseLine]
    reviewed: int
    next_steps: list[tuple[str, str]]
    listed: list[CaseLine]
    total: int
    page: int
    pages: int
    passing: int = PASSING
    html: ClassVar[ModuleType] = html
    content: ClassVar[ModuleType] = content
    buckets: list[Bucket]


def chosen_cases(request: PageRequest, report: PromptEvalReport, reviewed: set[str]) -> list[ScoredCase]:
    """Return the cases that the filters of a request choose."""
    show = request.choice("show", (*filter(None, html.FILTER_CHOICES), "unreviewed"))
    category, point = request.query.get("category", ""), request.query.get("point", "")
    search = request.query.get("q", "").strip().lower()
    return [
        case
        for case in report.cases
        if (show != "unreviewed" or (case.id not in reviewed and not case.is_failed))
        and (show in ("", "unreviewed") or show in html.filter_states(case).split())
        and (not category or case.category == category)
        and (not point or (point in case.marks and not case.is_failed and case.marks[point].score == 1))
        and (not search or search in _searched(case))
    ]


def _searched(case: ScoredCase) -> str:
    reasons = (mark.reason for mark in case.marks.values())
    inputs = (value for _, value in content.inputs(case))
    return "\n".join((case.id, html.description(case), content.result(case), case.comment, *inputs, *reasons)).lower()


def _show(request: PageRequest) -> View:
    folder = chosen_folder(request)
    report = report_of(folder, request.t.code)
    t = content.report_language(request.t.code)
    card = report.scorecard
    reviewed = {id for id, review in read_reviews(folder.path).items() if review.scores}
    chosen = chosen_cases(request, report, reviewed)
    page, pages = request.number("page", 1), max(1, -(-len(chosen) // _PAGE_SIZE))
    data = ScorecardPage(
        folder=name_of(request, folder),
        title=report.title,
        headline=content.headline(card, t),
        facts=[fact for fact in content.facts(report, t) if fact[0] != t("generated")],
        remarks=list(content.remarks(report, t)),
        cases=card.cases,
        passed=card.passed,
        rated=card.rated,
        pass_rate=card.pass_rate,
        pass_interval=card.pass_interval,
        bad=card.bad,
        bad_but_passed=card.bad_but_passed,
        failed=card.failed,
        incomplete=card.incomplete,
        average=content.average(card.all_scores),
        core_average=content.average(card.core),
        safety=[
            case_line(
                failure.case,
                t("{what}. {reason}", what=failure.why.text(t), reason=content.reason(failure.case, failure.point)),
            )
            for failure in card.safety
        ],
        points=[_point_line(figures, content.status(figures, t)) for figures in card.points],
        categories=_category_lines(card),
        causes=[
            Cause(
                point,
                name,
                content.group_title(group, t),
                len(group.cases),
                [case_line(case, content.reason(case, point)) for case in group.cases[:_IN_GROUP]],
            )
            for point, name, groups in content.groups_by_point(report, t)
            for group in groups
        ],
        agreement=[_agreement_line(row, request) for row in report.agreement],
        noise=[_noise_line(row, request) for row in report.noise],
        reviewed=len(reviewed),
        next_steps=[(step.why, step.command) for step in content.next_steps(report, t)],
        listed=[
            case_line(case, "", case.id in reviewed) for case in chosen[(page - 1) * _PAGE_SIZE : page * _PAGE_SIZE]
        ],
        total=len(chosen),
        page=page,
        pages=pages,
        buckets=list(card.buckets),
    )
    return View("scorecard.html", data)


def case_line(case: ScoredCase, reason: str = "", is_reviewed: bool = False) -> CaseLine:
    """Return a case for a list."""
    return CaseLine(
        case.id,
        case.category,
        html.description(case),
        {} if case.is_failed else {point: mark.score for point, mark in case.marks.items()},
        content.score(case),
        case.is_bad,
        case.is_failed,
        reason,
        is_reviewed,
    )


def _point_line(figures: PointFigures, status: str) -> PointLine:
    point, tally = figures.point, figures.tally
    return PointLine(
        point.id,
        point.name,
        point.is_core,
        figures.status,
        content.average(tally),
        tally,
        status,
        figures.missing,
        point.anchors,
    )


def _category_lines(card: Scorecard) -> list[CategoryLine]:
    return [
        CategoryLine(
            row.category,
            row.cases,
            row.passed,
            row.bad,
            [(content.average(tally), tally.cases, html.heat(tally) if tally.cases else 0) for tally in row.tallies],
        )
        for row in card.categories
    ]


def _agreement_line(row: PointAgreement, request: PageRequest) -> AgreementLine:
    t = content.report_language(request.t.code)
    same = html.rate_with_interval(row.agreed, row.cases, row.exact_interval, t)
    return AgreementLine(
        row.point,
        row.cases,
        row.exact,
        row.exact_interval,
        row.kappa,
        row.kappa_interval,
        row.bias,
        row.confusion,
        (same, content.kappa(row, t), content.bias(row, t)),
    )


def _noise_line(row: PointNoise, request: PageRequest) -> NoiseLine:
    t = content.report_language(request.t.code)
    return NoiseLine(
        row.point, row.cases, html.rate_with_interval(row.stable, row.cases, row.interval, t), row.mean_range
    )


PAGES = (Page("/prompt-eval/results", _show),)
