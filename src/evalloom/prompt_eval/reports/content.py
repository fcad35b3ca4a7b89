"""The content that the Markdown and the HTML report of a prompt share, and the format of its figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from evalloom.core.text import pluralize
from evalloom.prompt_eval.plan import SAFETY, TestPoint
from evalloom.prompt_eval.scores import PASSING, ScoredCase
from evalloom.ui.text import as_text

if TYPE_CHECKING:
    # Only types: a report computes no figures.
    from evalloom.prompt_eval.analysis.agreement import PointAgreement, PointNoise
    from evalloom.prompt_eval.analysis.bad_cases import BadGroup
    from evalloom.prompt_eval.analysis.scorecard import Bucket, PointFigures, Scorecard, ScoreCounts

STATUS_SIGNS = {"good": "✅", "fair": "⚠️", "bad": "❌", "unscored": "–"}
STATUS_RULES = {"good": "average ≥ 2.5", "fair": "≥ 2.0", "bad": "below 2.0, or any 1 on a core test point"}
_LIMITS = (200, 250)


class PromptEvalReport(Struct, frozen=True, kw_only=True):
    """The content of a report. Reports read no clock, so `generated_at` is passed in."""

    title: str
    prompt: str = ""
    """The file of prompt_a."""
    cases: Sequence[ScoredCase]
    points: tuple[TestPoint, ...]
    """The test points of the plan; without a plan those of the cases, with an empty criticality."""
    scorecard: Scorecard
    agreement: tuple[PointAgreement, ...] = ()
    noise: tuple[PointNoise, ...] = ()
    remarks: tuple[str, ...] = ()
    """Caveats about the figures, such as `3 reasons quote nothing of the output`."""
    unknown: dict[str, int] = {}
    """The number of cases with marks of test points that are not in the plan, by test point."""
    facts: dict[str, str] = {}
    """The services behind the figures: `{"judge": "evaluator", "profile": "offline"}`."""
    folder: str = "prompt-eval-results"
    source: str = "final_scored_results.json"
    """The file in that folder with all texts in full."""
    generated_at: str = ""


class NextStep(NamedTuple):
    """A recommended next step: the reason, and the command."""

    why: str
    command: str


def next_steps(report: PromptEvalReport) -> list[NextStep]:
    """Return the recommended next steps, the most urgent first."""
    card, folder = report.scorecard, quote(report.folder)
    steps = []
    if card.failed:
        steps.append(NextStep(f"Run {_cases(card.failed)} again that gave no result", f"run {folder} --rerun-failed"))
    if card.incomplete or card.failed:
        steps.append(NextStep(f"Score what lacks a score ({_cases(card.incomplete + card.failed)})", f"score {folder}"))
    if card.bad > card.failed:
        steps.append(
            NextStep("Draft a better prompt from the bad cases, and test it against this one", f"improve {folder}")
        )
    if not report.agreement:
        why = "Learn how far the judge can be trusted: let people fill in the columns human_<TP>_score of review.csv"
        steps.append(NextStep(why, f"table {quote(f'{report.folder}/{report.source}')} --for-review -o review.csv"))
        steps.append(NextStep("Take over what they gave, then report again", f"import-review review.csv {folder}"))
    return [NextStep(step.why, f"evalloom prompt-eval {step.command}") for step in steps]


def remarks(report: PromptEvalReport) -> Iterator[str]:
    """Yield the caveats about the figures."""
    yield from report.remarks
    if report.points and not any(point.criticality for point in report.points):
        yield "no plan: no test point counts as core"
    for point, number in report.unknown.items():
        yield f"{point} is in {_cases(number)} and in no plan; it has no column"


def _cases(number: int) -> str:
    return pluralize(number, "case")


# -- figures as text ----------------------------------------------------------------------------------


def average(tally: ScoreCounts) -> str:
    """Format an average with two decimals, halves up; with more if two would round it up to a limit above it."""
    if not tally.cases:
        return "–"
    for digits in (2, 3, 4, 5):
        scale = 10**digits
        shown = (2 * scale * tally.total + tally.cases) // (2 * tally.cases)
        if all((shown * 100 >= limit * scale) == (tally.total * 100 >= limit * tally.cases) for limit in _LIMITS):
            break
    return f"{shown // scale}.{shown % scale:0{digits}d}"


def rate(part: int, total: int) -> str:
    """Format a share in whole percent; only exactly none and all give 0 % and 100 %."""
    if not total:
        return "–"
    if part and 200 * part < total:
        return "< 1 %"
    if part < total and 200 * (total - part) <= total:
        return "> 99 %"
    return f"{(200 * part + total) // (2 * total)} %"


def status(figures: PointFigures) -> str:
    """Say which rule gives a test point its status (EVAL-14), and never that it is good: an average hides single 1s."""
    if figures.status == "bad" and figures.point.is_core and figures.has_lowest:
        return "1 on core"
    return {"good": "≥ 2.5", "fair": "≥ 2.0", "bad": "< 2.0", "unscored": "no scores"}[figures.status]


def safety_note(card: Scorecard, figures: PointFigures) -> str:
    """`3 safety failures` beside TP_safety, whose average may be high all the same; empty otherwise."""
    return pluralize(len(card.safety), "safety failure") if figures.id == SAFETY and card.safety else ""


def bad_cases(bad: int, passed: int, failed: int) -> str:
    """`14 bad cases (4 of them passed, 1 failed to run)`: a case may be bad and pass, so the two may overlap."""
    parts = [f"{passed:,} of them passed"] * bool(passed) + [f"{failed:,} failed to run"] * bool(failed)
    return pluralize(bad, "bad case") + (f" ({', '.join(parts)})" if parts else "")


def interval(bounds: tuple[float, float] | None) -> str:
    """`61–85 %`; empty if there is none."""
    return f"{100 * bounds[0]:.0f}–{100 * bounds[1]:.0f} %" if bounds else ""


def kappa(agreement: PointAgreement) -> str:
    """`0.71 (0.48 to 0.85)`, since a bound may be negative."""
    if agreement.kappa is None:
        return "–"
    bounds = agreement.kappa_interval
    return f"{agreement.kappa:.2f} ({bounds[0]:.2f} to {bounds[1]:.2f})" if bounds else f"{agreement.kappa:.2f}"


def bias(agreement: PointAgreement) -> str:
    """Whether the judge scores higher or lower than people, and by how much."""
    by = agreement.bias or 0.0
    if abs(by) < 0.005:
        return "neither"
    return f"{abs(by):.2f} {'kinder' if by > 0 else 'stricter'}"


def bucket(scores: Bucket) -> str:
    """`80–89 %`, the range of whole percents."""
    if scores.low == scores.high:
        return f"{scores.low} %"
    return f"< {scores.high} %" if not scores.low else f"{scores.low}–{scores.high - 1} %"


def headline(card: Scorecard) -> str:
    """Summarize the report in one sentence."""
    if not card.rated:
        return "No case has been scored yet."
    passed = f"{card.passed:,} of {_cases(card.rated)} passed ({rate(card.passed, card.rated)})"
    incomplete = f", {card.incomplete:,} scored incompletely" if card.incomplete else ""
    return f"{passed}, {bad_cases(card.bad, card.bad_but_passed, card.failed)}{incomplete}."


def overview(report: PromptEvalReport) -> Iterator[tuple[str, str]]:
    """Yield the rows of the overview: name and figure."""
    card = report.scorecard
    yield "Cases", f"{card.cases:,}"
    yield "Scored", f"{card.scored:,}"
    yield "Failed runs", f"{card.failed:,}"
    yield "Scoring incomplete", f"{card.incomplete:,}"
    chance = f" (95 % interval {interval(card.pass_interval)})" if card.rated else ""
    yield (
        f"Passed (≥ {PASSING} % of the most)",
        f"{card.passed:,} of {card.rated:,} = {rate(card.passed, card.rated)}{chance}",
    )
    yield "Bad cases", f"{card.bad:,}"
    yield "Bad cases that passed", f"{card.bad_but_passed:,}"
    yield "Safety failures", f"{len(card.safety):,}"
    yield "Average of all scores", average(card.all_scores)
    yield "Average on core test points", average(card.core)
    yield "Weakest by average", ", ".join(card.weakest) or "–"
    yield "Strongest by average", ", ".join(card.strongest) or "–"


def facts(report: PromptEvalReport) -> Iterator[tuple[str, str]]:
    """Yield the origin of the report: prompt, services, time."""
    if report.prompt:
        yield "prompt", report.prompt
    yield from report.facts.items()
    if report.generated_at:
        yield "generated", report.generated_at


# -- cases and groups ---------------------------------------------------------------------------------


def group_title(group: BadGroup) -> str:
    """Return the traits that the cases of a group share."""
    return "; ".join((group.trait, *group.also))


def groups_by_point(report: PromptEvalReport) -> Iterator[tuple[str, str, list[BadGroup]]]:
    """Yield the groups of bad cases by test point: its id (empty for failed runs), its name, and the groups."""
    names = {point.id: point.name for point in report.points}
    by_point: dict[str, list[BadGroup]] = {}
    for group in report.scorecard.groups:
        by_point.setdefault(group.point, []).append(group)
    for point, groups in by_point.items():
        yield point, names.get(point, "") if point else "Failed runs", groups


def result(case: ScoredCase) -> str:
    """Return the output as text; empty if the run failed."""
    return as_text(case.record.get("result_aftertest"))


def inputs(case: ScoredCase) -> list[tuple[str, str]]:
    """Return the fields of the input; an input that is not an object is a single nameless field."""
    written = case.record.get("input")
    fields = written.items() if isinstance(written, dict) else [("", written)]
    return [(str(name), as_text(value)) for name, value in fields]


def score(case: ScoredCase) -> str:
    """`14/15 · 93%`, `run failed` or `incomplete`."""
    if case.is_failed:
        return "run failed"
    return "incomplete" if case.total is None else f"{case.total}/{case.max_score} · {case.percent}%"


def reason(case: ScoredCase, point: str) -> str:
    """Return why a case is bad on a test point: the reason for that score, or else the comment on the case."""
    mark = case.marks.get(point)
    return mark.reason if mark and mark.reason and not case.is_failed else case.comment
