"""The content that the Markdown and the HTML report of a prompt share, and the format of its figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from evalloom.prompt_eval.plan import SAFETY, TestPoint
from evalloom.prompt_eval.scores import PASSING, ScoredCase
from evalloom.ui.language import ENGLISH, Language, language, phrase
from evalloom.ui.text import as_text

if TYPE_CHECKING:
    # Only types: a report computes no figures.
    from evalloom.prompt_eval.analysis.agreement import PointAgreement, PointNoise
    from evalloom.prompt_eval.analysis.bad_cases import BadGroup
    from evalloom.prompt_eval.analysis.scorecard import Bucket, PointFigures, Scorecard, ScoreCounts

STATUS_SIGNS = {"good": "✅", "fair": "⚠️", "bad": "❌", "unscored": "–"}
STATUS_RULES = {
    "good": phrase("average ≥ 2.5"),
    "fair": "≥ 2.0",
    "bad": phrase("below 2.0, or any 1 on a core test point"),
}
CRITICALITIES = {"core": phrase("core"), "supporting": phrase("supporting")}
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


@cache
def report_language(code: str) -> Language:
    """Return a language with the phrases of prompt-eval reports."""
    from evalloom.prompt_eval.reports.chinese import PHRASES

    return language(code).extended(PHRASES)


class NextStep(NamedTuple):
    """A recommended next step: the reason, and the command."""

    why: str
    command: str


def next_steps(report: PromptEvalReport, t: Language = ENGLISH) -> list[NextStep]:
    """Return the recommended next steps, the most urgent first."""
    card, folder = report.scorecard, quote(report.folder)
    steps = []
    if card.failed:
        why = t("Run {cases} again that gave no result", cases=_cases(card.failed, t))
        steps.append(NextStep(why, f"run {folder} --rerun-failed"))
    if card.incomplete or card.failed:
        why = t("Score what lacks a score ({cases})", cases=_cases(card.incomplete + card.failed, t))
        steps.append(NextStep(why, f"score {folder}"))
    if card.bad > card.failed:
        why = t("Draft a better prompt from the bad cases, and test it against this one")
        steps.append(NextStep(why, f"improve {folder}"))
    if not report.agreement:
        why = t("Learn how far the judge can be trusted: let people fill in the columns human_<TP>_score of review.csv")
        steps.append(NextStep(why, f"table {quote(f'{report.folder}/{report.source}')} --for-review -o review.csv"))
        steps.append(NextStep(t("Take over what they gave, then report again"), f"import-review review.csv {folder}"))
    return [NextStep(step.why, f"evalloom prompt-eval {step.command}") for step in steps]


def remarks(report: PromptEvalReport, t: Language = ENGLISH) -> Iterator[str]:
    """Yield the caveats about the figures."""
    yield from report.remarks
    if report.points and not any(point.criticality for point in report.points):
        yield t("no plan: no test point counts as core")
    for point, number in report.unknown.items():
        yield t("{point} is in {cases} and in no plan; it has no column", point=point, cases=_cases(number, t))


def _cases(number: int, t: Language) -> str:
    return t.count(number, "{n} case", "{n} cases")


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


def rate(part: int, total: int, t: Language = ENGLISH) -> str:
    """Format a share in whole percent; only exactly none and all give 0 % and 100 %."""
    if not total:
        return "–"
    if part and 200 * part < total:
        return t("{n} %", n="< 1")
    if part < total and 200 * (total - part) <= total:
        return t("{n} %", n="> 99")
    return t("{n} %", n=(200 * part + total) // (2 * total))


def status(figures: PointFigures, t: Language = ENGLISH) -> str:
    """Say which rule gives a test point its status (EVAL-14), and never that it is good: an average hides single 1s."""
    if figures.status == "bad" and figures.point.is_core and figures.has_lowest:
        return t("1 on core")
    return {"good": "≥ 2.5", "fair": "≥ 2.0", "bad": "< 2.0", "unscored": t("no scores")}[figures.status]


def safety_note(card: Scorecard, figures: PointFigures, t: Language = ENGLISH) -> str:
    """`3 safety failures` beside TP_safety, whose average may be high all the same; empty otherwise."""
    if figures.id != SAFETY or not card.safety:
        return ""
    return t.count(len(card.safety), "{n} safety failure", "{n} safety failures")


def bad_cases(bad: int, passed: int, failed: int, t: Language = ENGLISH) -> str:
    """`14 bad cases (4 of them passed, 1 failed to run)`: a case may be bad and pass, so the two may overlap."""
    parts = [t("{n} of them passed", n=f"{passed:,}")] * bool(passed)
    parts += [t("{n} failed to run", n=f"{failed:,}")] * bool(failed)
    cases = t.count(bad, "{n} bad case", "{n} bad cases")
    return t("{cases} ({list})", cases=cases, list=t(", ").join(parts)) if parts else cases


def interval(bounds: tuple[float, float] | None, t: Language = ENGLISH) -> str:
    """`61–85 %`; empty if there is none."""
    return t("{n} %", n=f"{100 * bounds[0]:.0f}–{100 * bounds[1]:.0f}") if bounds else ""


def kappa(agreement: PointAgreement, t: Language = ENGLISH) -> str:
    """`0.71 (0.48 to 0.85)`, since a bound may be negative."""
    if agreement.kappa is None:
        return "–"
    bounds = agreement.kappa_interval
    shown = f"{agreement.kappa:.2f}"
    if not bounds:
        return shown
    return t("{kappa} ({low} to {high})", kappa=shown, low=f"{bounds[0]:.2f}", high=f"{bounds[1]:.2f}")


def bias(agreement: PointAgreement, t: Language = ENGLISH) -> str:
    """Whether the judge scores higher or lower than people, and by how much."""
    by = agreement.bias or 0.0
    if abs(by) < 0.005:
        return t("neither")
    shown = f"{abs(by):.2f}"
    return t("{n} kinder", n=shown) if by > 0 else t("{n} stricter", n=shown)


def bucket(scores: Bucket, t: Language = ENGLISH) -> str:
    """`80–89 %`, the range of whole percents."""
    return t("{n} %", n=bucket_range(scores))


def bucket_range(scores: Bucket) -> str:
    """The same without the sign."""
    if scores.low == scores.high:
        return str(scores.low)
    return f"< {scores.high}" if not scores.low else f"{scores.low}–{scores.high - 1}"


def headline(card: Scorecard, t: Language = ENGLISH) -> str:
    """Summarize the report in one sentence."""
    if not card.rated:
        return t("No case has been scored yet.")
    parts = [
        t(
            "{passed} of {cases} passed ({rate})",
            passed=f"{card.passed:,}",
            cases=_cases(card.rated, t),
            rate=rate(card.passed, card.rated, t),
        ),
        bad_cases(card.bad, card.bad_but_passed, card.failed, t),
    ]
    if card.incomplete:
        parts.append(t("{n} scored incompletely", n=f"{card.incomplete:,}"))
    return t("{list}.", list=t(", ").join(parts))


def overview(report: PromptEvalReport, t: Language = ENGLISH) -> Iterator[tuple[str, str]]:
    """Yield the rows of the overview: name and figure."""
    card = report.scorecard
    yield t("Cases"), f"{card.cases:,}"
    yield t("Scored"), f"{card.scored:,}"
    yield t("Failed runs"), f"{card.failed:,}"
    yield t("Scoring incomplete"), f"{card.incomplete:,}"
    chance = t(" (95 % interval {interval})", interval=interval(card.pass_interval, t)) if card.rated else ""
    share = t("{n} of {all}", n=f"{card.passed:,}", all=f"{card.rated:,}")
    yield (
        t("Passed (≥ {n} % of the most)", n=PASSING),
        f"{share} = {rate(card.passed, card.rated, t)}{chance}",
    )
    yield t("Bad cases"), f"{card.bad:,}"
    yield t("Bad cases that passed"), f"{card.bad_but_passed:,}"
    yield t("Safety failures"), f"{len(card.safety):,}"
    yield t("Average of all scores"), average(card.all_scores)
    yield t("Average on core test points"), average(card.core)
    yield t("Weakest by average"), ", ".join(card.weakest) or "–"
    yield t("Strongest by average"), ", ".join(card.strongest) or "–"


def facts(report: PromptEvalReport, t: Language = ENGLISH) -> Iterator[tuple[str, str]]:
    """Yield the origin of the report: prompt, services, time."""
    if report.prompt:
        yield t("prompt"), report.prompt
    yield from ((t(name), value) for name, value in report.facts.items())
    if report.generated_at:
        yield t("generated"), report.generated_at


# -- cases and groups ---------------------------------------------------------------------------------


def group_title(group: BadGroup, t: Language = ENGLISH) -> str:
    """Return the traits that the cases of a group share."""
    return t("; ").join(trait.text(t) for trait in (group.trait, *group.also))


def groups_by_point(report: PromptEvalReport, t: Language = ENGLISH) -> Iterator[tuple[str, str, list[BadGroup]]]:
    """Yield the groups of bad cases by test point: its id (empty for failed runs), its name, and the groups."""
    names = {point.id: point.name for point in report.points}
    by_point: dict[str, list[BadGroup]] = {}
    for group in report.scorecard.groups:
        by_point.setdefault(group.point, []).append(group)
    for point, groups in by_point.items():
        yield point, names.get(point, "") if point else t("Failed runs"), groups


def result(case: ScoredCase) -> str:
    """Return the output as text; empty if the run failed."""
    return as_text(case.record.get("result_aftertest"))


def inputs(case: ScoredCase) -> list[tuple[str, str]]:
    """Return the fields of the input; an input that is not an object is a single nameless field."""
    written = case.record.get("input")
    fields = written.items() if isinstance(written, dict) else [("", written)]
    return [(str(name), as_text(value)) for name, value in fields]


def score(case: ScoredCase, t: Language = ENGLISH) -> str:
    """`14/15 · 93%`, `run failed` or `incomplete`."""
    if case.is_failed:
        return t("run failed")
    return t("incomplete") if case.total is None else f"{case.total}/{case.max_score} · {case.percent}%"


def reason(case: ScoredCase, point: str) -> str:
    """Return why a case is bad on a test point: the reason for that score, or else the comment on the case."""
    mark = case.marks.get(point)
    return mark.reason if mark and mark.reason and not case.is_failed else case.comment
