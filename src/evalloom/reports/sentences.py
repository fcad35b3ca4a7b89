"""The sentences of a report, in its language: the conclusion, what is beside the pass rate, the comparison."""

from __future__ import annotations

from collections.abc import Iterator

from evalloom.analysis.compare import Comparison, Kind
from evalloom.analysis.compare_figures import Judgement
from evalloom.analysis.tally import Figures, Summary
from evalloom.core.model import Record, Status
from evalloom.reports.run_report import ComparedWith, RunReport
from evalloom.ui.language import Language, phrase

STATUS_NAMES: dict[Status, str] = {
    "passed": phrase("Passed"),
    "failed": phrase("Failed"),
    "error": phrase("Error"),
    "unscored": phrase("Unscored"),
    "skipped": phrase("Skipped"),
    "blocked": phrase("Blocked"),
}
CHANGE_NAMES: dict[Kind, str] = {
    "lost": phrase("Lost"),
    "gained": phrase("Gained"),
    "same": phrase("Same"),
    "new": phrase("New"),
    "gone": phrase("Gone"),
    "not comparable": phrase("Not comparable"),
}
_SHORT_JUDGEMENTS: dict[Judgement, str] = {
    "better": phrase("better"),
    "worse": phrase("worse"),
    "no difference shown": phrase("no difference shown"),
}
_JUDGEMENTS: dict[Judgement, str] = {
    "better": phrase("Better than {name}"),
    "worse": phrase("Worse than {name}"),
    "no difference shown": phrase("No difference to {name} shown"),
}


def conclusion(t: Language, summary: Summary) -> str:
    """Say in one sentence what came out."""
    counted = summary.passed + summary.failed + summary.error
    if not summary.total:
        return t("This batch has no runs.")
    if not counted:
        return t.count(
            summary.total, "The run has no result that counts.", "None of {n} runs has a result that counts."
        )
    if summary.pass_if is not None:
        figures = summary.profiles.values()
        cases, failing = sum(one.cases for one in figures), sum(one.failing for one in figures)
        rule = t.percent(summary.pass_if, 0)
        return t(
            "{passed} of {cases} cases passed in at least {rule} of their repeats.",
            passed=t.number(cases - failing),
            cases=t.number(cases),
            rule=rule,
        )
    if summary.passed == summary.total:
        return t.count(summary.total, "The one run passed.", "All {n} runs passed.")
    return t("{passed} of {counted} runs passed.", passed=t.number(summary.passed), counted=t.number(counted))


def beside(t: Language, figures: Figures) -> str:
    """Name what did not pass, and what the pass rate leaves out (WORK-1, WORK-5)."""
    parts = [
        t.count(figures.failed, "{n} failed", "{n} failed"),
        t.count(figures.error, "{n} ended in an error", "{n} ended in an error"),
    ]
    apart = {
        t.count(figures.unscored, "{n} could not be scored", "{n} could not be scored"): figures.unscored,
        t.count(figures.skipped, "{n} was skipped", "{n} were skipped"): figures.skipped,
        t.count(figures.blocked, "{n} was blocked", "{n} were blocked"): figures.blocked,
    }
    left_out = [text for text, number in apart.items() if number]
    text = t("{list}.", list=t(", ").join(parts))
    if left_out:
        text = t("{text} Not in the rate: {list}.", text=text, list=t(", ").join(left_out))
    return text


def remarks(t: Language, report: RunReport) -> Iterator[str]:
    """Say what a reader must know before trusting the figures."""
    if report.state == "running":
        yield t("The batch is still running: this report has the runs that were finished when it was written.")
    elif report.state == "stopped":
        why = f" ({report.stopped})" if report.stopped else ""
        yield t(
            "The batch stopped early{why}: cases are missing. Continue it with {command}.",
            why=why,
            command="evalloom run … --resume",
        )
    if report.damage:
        lines = t.count(len(report.damage), "{n} line of the log cannot be read", "{n} lines of the log cannot be read")
        yield t("{lines}, and what they held is missing here: {list}", lines=lines, list="; ".join(report.damage[:5]))
    if report.problem == "nothing_expected":
        yield t("Nothing is expected of any case, so nothing was checked.")


def gate_counts(t: Language, gates: list[Record]) -> str:
    broken = sum(not gate["holds"] for gate in gates)
    if not broken:
        return t.count(len(gates), "The gate holds.", "All {n} gates hold.")
    return t("{broken} of {gates} gates do not hold.", broken=t.number(broken), gates=t.number(len(gates)))


def compared_sentence(t: Language, comparison: Comparison, compared: ComparedWith) -> str:
    """Say in one sentence what a comparison concludes, with the interval."""
    figures = comparison.figures
    name = compared.name if comparison.profile == comparison.base_profile else comparison.base_profile
    if figures.difference is None:
        return t("Nothing can be compared with {name}: no case has a result on both sides.", name=name)
    return t(
        "{judgement}: {points} points (95 % CI {low} to {high}), {gained} gained and {lost} lost of {cases} cases.",
        judgement=t(_JUDGEMENTS[figures.judgement], name=name),
        points=t.points(figures.difference),
        low=t.points(figures.low),
        high=t.points(figures.high),
        gained=t.number(figures.gained),
        lost=t.number(figures.lost),
        cases=t.number(figures.cases),
    )


def compared_briefly(t: Language, compared: ComparedWith) -> str:
    """Say in one sentence what all comparisons conclude."""
    parts = []
    for comparison in compared.comparisons:
        judged = t(
            "{judgement} ({points} points)",
            judgement=t(_SHORT_JUDGEMENTS[comparison.figures.judgement]),
            points=t.points(comparison.figures.difference),
        )
        parts.append(f"{comparison.profile} {judged}" if len(compared.comparisons) > 1 else judged)
    return t("Against {name}: {list}.", name=compared.name, list=t(", ").join(parts))


def verdict_word(t: Language, comparison: Comparison) -> str:
    """Say whether it is a regression."""
    if comparison.is_regression:
        return t("Regression")
    return t("No regression") if comparison.is_comparable else t("Not comparable")


def compared_notes(t: Language, comparison: Comparison) -> Iterator[str]:
    """Say what limits a comparison."""
    if comparison.missing:
        yield t(
            "{missing} of {counted} cases that counted before have no result now.",
            missing=t.number(comparison.missing),
            counted=t.number(comparison.counted_before),
        )
    if comparison.edited:
        yield t.count(comparison.edited, "{n} case was edited in between.", "{n} cases were edited in between.")
    figures = comparison.figures
    if figures.more_cases and figures.judgement == "no difference shown":
        yield t("About {n} more cases would show a change of 5 points.", n=t.number(figures.more_cases))
