"""The sentences of a report, in its language: the conclusion, what is beside the pass rate, the comparison."""

from __future__ import annotations

from collections.abc import Iterator

from evalloom.analysis.compare import Comparison, Kind
from evalloom.analysis.compare_figures import Judgement
from evalloom.analysis.tally import Figures, ProfileFigures, Summary
from evalloom.core.model import Record, Status
from evalloom.core.text import shorten
from evalloom.reports.run_report import ComparedWith, RunReport
from evalloom.ui.language import Language, phrase

_DIFFERENCES = (
    phrase("the target differs: {what}"),
    phrase("the target changed: {what}"),
    phrase("the dataset changed: {what}"),
    phrase("profiles that are not compared, {what}"),
    phrase("the llm behind a profile changed: its address, or the file of a scripted one"),
    phrase("repeat: {what}"),
)
"""How the texts of differences begin."""
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
_CONCLUSIONS = {
    "at_least": phrase("the pass rate is at least {threshold}, or less than {margin} points below"),
    "below": phrase("the pass rate is below {threshold}"),
    "not_worse": phrase("the pass rate is not {margin} points below {base}"),
    "worse": phrase("the pass rate is below {base}"),
    "known": phrase("the pass rate is known to ±{margin} points"),
    "open": phrase("the cases do not decide it"),
}
"""What --until-sure can conclude, by the words of `--json`."""


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
    for message in report.missing if report.state == "finished" else ():
        yield t("Runs are missing: {message}", message=message)
    if report.problem == "nothing_expected":
        yield t("Nothing is expected of any case, so nothing was checked.")


def difference(t: Language, text: str) -> str:
    """Return a difference in configuration; the names and values in it stay as they are."""
    for known in _DIFFERENCES:
        start = known.removesuffix("{what}")
        if text.startswith(start):
            return t(known, what=text.removeprefix(start))
    return text


def gate_counts(t: Language, gates: list[Record]) -> str:
    broken = sum(not gate["holds"] for gate in gates)
    if not broken:
        return t.count(len(gates), "The gate holds.", "All {n} gates hold.")
    if len(gates) == 1:
        return t("The gate does not hold.")
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
    if not comparison.is_comparable:
        return t("Not comparable")
    is_open = comparison.figures.judgement == "no difference shown"
    return t("No regression shown") if is_open else t("No regression")


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


def until_sure(t: Language, report: RunReport) -> str:
    """Say what --until-sure decided, after how many cases, with the interval that holds all the same (WORK-16)."""
    answer = report.answer
    if not answer:
        return ""
    profiles = answer["profiles"]
    concluded = [_decided(t, answer["question"], profile, len(profiles) > 1) for profile in profiles]
    is_sure = all(profile["conclusion"] != "open" for profile in profiles)
    values = {
        "started": t.number(answer["started"]),
        "cases": t.number(answer["cases"]),
        "list": t("; ").join(concluded),
    }
    if is_sure:
        return t("Sure after {started} of {cases} cases in random order: {list}.", **values)
    return t("Not sure after {started} of {cases} cases in random order: {list}.", **values)


def _decided(t: Language, question: Record, profile: Record, is_named: bool) -> str:
    margin = f"{100 * question['margin']:.4g}"
    threshold = float(question["threshold"] or 0)
    low, high, base = profile["low"], profile["high"], question["baseline"]
    interval = t("{low} to {high} points", low=t.points(low), high=t.points(high)) if base else t.interval(low, high)
    text = t(
        "{conclusion} (always-valid 95 % CI {interval}, {cases})",
        conclusion=t(
            _CONCLUSIONS[profile["conclusion"]],
            margin=margin,
            base=base,
            threshold=t.percent(threshold, 0 if round(100 * threshold, 6).is_integer() else 1),
        ),
        interval=interval,
        cases=t.count(profile["cases"], "{n} case", "{n} cases"),
    )
    return f"{profile['profile']}: {text}" if is_named else text


def facts(t: Language, batch: Record) -> Iterator[tuple[str, str]]:
    """Yield what was run: title and text."""
    named = []
    for profile in batch.get("profiles", ()):
        llm = profile.get("run", "")
        model = batch.get("models", {}).get(llm) or llm
        named.append(f"{profile['name']} ({model})" if model not in ("", profile["name"]) else profile["name"])
    for title, text in (
        (t("Batch"), batch.get("id", "")),
        (t("Target"), batch.get("target", "")),
        (t("Dataset"), ", ".join(dataset["path"] for dataset in batch.get("datasets", ()))),
        (t("Profiles"), ", ".join(named)),
        (t("Judge"), batch.get("judge", "")),
        (t("Started"), t.time(batch.get("created_at", ""))),
    ):
        if text:
            yield title, shorten(text, 300)


def repeats(t: Language, name: str, figures: ProfileFigures) -> str:
    """Say how stable the results of a profile are whose cases were repeated."""
    k = max(figures.pass_at)
    return t(
        "{profile}: {flaky} of {cases} cases are flaky; pass@{k} {some}, pass^{k} {every}",
        profile=name,
        flaky=t.number(figures.flaky),
        cases=t.number(figures.cases),
        k=k,
        some=t.percent(figures.pass_at[k]),
        every=t.percent(figures.pass_hat[k]),
    )
