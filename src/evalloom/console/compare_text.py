"""Formats the output of `evalloom compare` and `baseline show`: the conclusion, its figures and the next command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from shlex import quote as quote_word
from typing import Any

from evalloom.analysis.compare import COMPARED, FEWEST_REPEATS, By, Change, Comparison, Kind, OneSidedGroup
from evalloom.analysis.compare_figures import DETECTED, FEWEST_FLIPS, GRADES, RateComparison
from evalloom.analysis.compare_measures import Measured
from evalloom.batchlog import Baseline
from evalloom.console.layout import Line, command_lines, seconds, table_lines
from evalloom.console.run_text import batch_lines, case_name
from evalloom.core.text import one_line, percent, pluralize, printable
from evalloom.engine.compare import ComparisonResult
from evalloom.engine.compare_self import ProfileNoise, SelfComparison

_CHANGES_SHOWN = 20
_GROUPS_SHOWN = 50
_NAMES_SHOWN = 5
_DIFFERENCE_WIDTH = 400
_REASON_WIDTH = 160
_STYLES = {"": "", "minor": "yellow", "major": "red", "critical": "bold red"}
RATE_HEADER = ["cases", "base", "now", "change", "95 % CI", "p", "gained", "lost"]
_SPARE = ("gained", "lost", "p", "base")
"""The columns that a narrow terminal leaves out first; the conclusion is in the others."""


def compared_lines(compared: ComparisonResult, buckets: Sequence[str]) -> Iterator[Line]:
    """Yield the whole comparison; `buckets` are in the order in which they are shown."""
    comparisons = compared.comparisons
    for comparison in comparisons:
        yield conclusion_line(comparison, compared)
        yield from _explanations(comparison, compared)
    if compared.is_same_batch:
        yield (
            f"  Both sides are the batch {printable(compared.batch)}: only what was run or scored again can differ.",
            "",
        )
    yield "", ""
    if all(comparison.profile == comparison.base_profile for comparison in comparisons):
        rows = [[comparison.profile or "-", *rate_cells(comparison.figures)] for comparison in comparisons]
        yield from table_lines(["profile", *RATE_HEADER], rows, spare=_SPARE)
    else:
        rows = [[one.profile or "-", one.base_profile or "-", *rate_cells(one.figures)] for one in comparisons]
        yield from table_lines(["profile", "base profile", *RATE_HEADER], rows, spare=_SPARE)
    for comparison in comparisons:
        suffix = f" · {printable(comparison.profile)}" if len(comparisons) > 1 else ""
        yield from _group_lines("bucket", comparison.buckets, suffix)
        yield from _group_lines("tag", comparison.tags, suffix)
        yield from _measure_lines(comparison.measures, buckets, suffix)
        yield "", ""
        yield from _worse_lines(comparison, suffix)
        yield from _harmless_change_lines(comparison, suffix)
        yield from _cost_lines(comparison, suffix)
    compared_at_once = sum(1 + len(one.buckets) + len(one.tags) for one in comparisons)
    if compared_at_once > 1:
        yield f"p is corrected for {compared_at_once:,} comparisons at once (Holm).", "dim"
    if compared.differences:
        yield "Other differences:", "bold"
        for difference in compared.differences:
            yield f"  {one_line(difference.text, _DIFFERENCE_WIDTH)}", ""
    yield from command_lines(_next_command(compared), "Next: ")


def conclusion_line(comparison: Comparison, compared: ComparisonResult) -> Line:
    """State in one line what is concluded, how certain it is, and what the data could not show."""
    figures, name = comparison.figures, printable(comparison.profile or "the batch")
    base = compared.baseline if comparison.profile == comparison.base_profile else comparison.base_profile
    if figures.difference is None or figures.low is None or figures.high is None:
        return f"NOTHING TO COMPARE: no case of {name} has a result on both sides", "yellow"
    parts = [
        f"{figures.judgement}, {_signed(figures.difference)} points (95 % CI {_interval(figures)})",
        f"{figures.gained + figures.lost:,} of {pluralize(figures.cases, 'case')} {_flipped(comparison)}",
        f"a drop of up to {_points(-figures.low)} is not excluded" if figures.low < 0 else "a drop is excluded",
        _needed(figures.more_cases or 0),
    ]
    if comparison.missing:
        counted = pluralize(comparison.counted_before, "case")
        why = "were not selected" if comparison.is_selection else "cannot be compared"
        parts.insert(0, f"{comparison.missing:,} of {counted} {why}")
    if comparison.is_regression:
        word, style = f"REGRESSION ({comparison.severity})", "bold red"
    elif not comparison.is_comparable:
        word, style = "NOT COMPARABLE", "bold red"
    else:
        is_open = figures.judgement == "no difference shown"
        word, style = "NO REGRESSION SHOWN" if is_open else "NO REGRESSION", "bold green"
    return f"{word}: {name} against {printable(base)}: {'; '.join(parts)}", style


def _flipped(comparison: Comparison) -> str:
    """Return `flipped`, or `changed` where repeats may pass more or less often."""
    return "changed" if any(change.repeats[1] > 1 for change in comparison.changes) else "flipped"


def _has_unequal_repeats(comparison: Comparison) -> bool:
    counts = ((change.repeats_before[1], change.repeats[1]) for change in comparison.changes)
    return any(before and now and (before == 1) != (now == 1) for before, now in counts)


def _needed(cases: int) -> str:
    detected = f"a change of {_points(DETECTED)}"
    return f"about {cases:,} more cases would show {detected}" if cases else f"enough cases to show {detected}"


def _explanations(comparison: Comparison, compared: ComparisonResult) -> Iterator[Line]:
    """Explain why it is a regression or is not comparable, and what the rule promises."""
    if comparison.is_regression:
        yield f"  It is a regression because {', and '.join(_reasons(comparison, compared))}.", ""
    if not comparison.is_comparable and comparison.figures.cases:
        yield "  More than half of what passed has no result now.", ""
    if _has_unequal_repeats(comparison):
        yield "  The sides have different numbers of repeats. Rates can be compared; 1 of 1 → 4 of 5 is no loss.", ""
    if comparison.critical_lost and not comparison.is_critical_shown and not compared.is_strict:
        lost = f"{pluralize(comparison.critical_lost, 'critical case')} passed before, and not once now."
        few = f"It takes {FEWEST_REPEATS} repeats on both sides to show that"
        chance = "So many critical cases pass only sometimes that this may be chance: more repeats would show it"
        yield f"  {lost} {chance if comparison.critical_shown else few}; --strict decides at once.", "yellow"
    if 0 < comparison.figures.cases < FEWEST_FLIPS:
        cases = pluralize(comparison.figures.cases, "case")
        yield f"  {cases} can never show a difference: it takes {FEWEST_FLIPS} that change the same way.", ""
    if compared.is_strict:
        yield (
            "  Rule: any drop is a regression, and any case of critical severity (--strict). An unchanged system may "
            "drop by chance.",
            "",
        )
    elif compared.allowed_drop is not None or compared.allowed_drops:
        yield "  Rule: the drop itself decides (--allowed-drop). An unchanged system may drop further by chance.", ""
    elif comparison.figures.lost and not comparison.is_regression:
        yield "  For a system that always gives the same answers, any drop is real: --strict.", ""


def _reasons(comparison: Comparison, compared: ComparisonResult) -> Iterator[str]:
    """Yield the reasons of a regression: the whole, the groups that fell, the critical cases."""
    if comparison.figures.regression:
        allowed = compared.allowed_drop
        is_by_size = compared.is_strict or allowed is not None
        yield f"the allowed drop is {_points(allowed or 0.0)}" if is_by_size else "worse is shown"
    for by, groups in (("bucket", comparison.buckets), ("tag", comparison.tags)):
        fallen = []
        for group in groups:
            if group.regression:
                allowed = compared.allowed_drops.get(group.name)
                fallen.append(printable(group.name) + ("" if allowed is None else f" (allowed {_points(allowed)})"))
        if fallen:
            yield f"{pluralize(len(fallen), by)} fell: {', '.join(fallen[:_NAMES_SHOWN])}"
    critical = sum(change.severity == "critical" for change in comparison.changes)
    if comparison.is_critical_shown:
        shown = pluralize(comparison.critical_shown, "critical case")
        yield f"{shown} passed in all repeats before, and in none now"
    elif critical and compared.is_strict:
        yield f"{pluralize(critical, 'case')} {'is' if critical == 1 else 'are'} of critical severity"


def _interval(figures: RateComparison) -> str:
    if figures.low is None or figures.high is None:
        return "-"
    return f"{_signed(figures.low)} to {_signed(figures.high)}"


def rate_cells(figures: RateComparison) -> list[str]:
    """Return the cells of a comparison of rates below RATE_HEADER."""
    if figures.difference is None or figures.low is None or figures.high is None:
        return [f"{figures.cases:,}", "-", "-", "-", "-", "-", "0", "0"]
    return [
        f"{figures.cases:,}",
        "-" if figures.base_rate is None else percent(figures.base_rate),
        "-" if figures.rate is None else percent(figures.rate),
        _signed(figures.difference),
        _interval(figures),
        f"{figures.p_value:.2g}",
        f"{figures.gained:,}",
        f"{figures.lost:,}",
    ]


def _group_lines(by: By, groups: list[RateComparison], suffix: str) -> Iterator[Line]:
    if not groups:
        return
    yield "", ""
    # The largest drop comes first, because that is where there is something to do.
    groups = sorted(groups, key=lambda group: (group.difference or 0.0, group.name))
    rows = []
    for group in groups[:_GROUPS_SHOWN]:
        results: list[str] = [group.judgement] if group.judgement != "no difference shown" else []
        results += [group.regression] if group.regression else []
        rows.append([group.name, *rate_cells(group), ", ".join(results) or "-"])
    yield from table_lines([f"{by}{suffix}", *RATE_HEADER, "result"], rows, spare=_SPARE)
    if len(groups) > _GROUPS_SHOWN:
        yield f"… and {len(groups) - _GROUPS_SHOWN:,} more; --json lists all", "dim"


def _measure_lines(measures: list[Measured], buckets: Sequence[str], suffix: str) -> Iterator[Line]:
    """Yield the measures over all cases, with the difference in each bucket."""
    overall = [measure for measure in measures if not measure.bucket]
    if not overall:
        return
    measured = {measure.bucket for measure in measures}
    buckets = [bucket for bucket in buckets if bucket in measured]
    by_bucket = {(measure.bucket, measure.name): _thousandths(measure.difference) for measure in measures}
    rows = [
        [
            measure.name,
            str(measure.cases),
            f"{measure.base:.3f}",
            f"{measure.now:.3f}",
            _thousandths(measure.difference),
            f"{_thousandths(measure.low)} to {_thousandths(measure.high)}",
            *(by_bucket.get((bucket, measure.name), "-") for bucket in buckets),
        ]
        for measure in overall
    ]
    header = [f"measure{suffix}", "cases", "base", "now", "change", "95 % CI"]
    yield "", ""
    yield from table_lines([*header, *(f"in {bucket}" for bucket in buckets)], rows)
    yield "Measures do not affect the conclusion. Cases with an error on either side are left out of them.", "dim"


def _thousandths(value: float) -> str:
    """Format a difference of means; a difference other than zero is never shown as zero."""
    return f"{value:+.3f}" if not value or abs(value) >= 0.0005 else f"{value:+.1g}"


def _worse_lines(comparison: Comparison, suffix: str) -> Iterator[Line]:
    worse = [change for change in comparison.changes if change.severity]
    worse.sort(key=lambda change: -GRADES.index(change.severity))
    if worse:
        by_chance = "" if comparison.is_regression else ", perhaps by chance"
        yield f"Cases that got worse{by_chance}{suffix}:", "bold"
    for change in worse[:_CHANGES_SHOWN]:
        edited = " (the case was edited)" if change.is_edited else ""
        yield f"  {change.severity:<8}  {_name(change)}: {transition(change)}{edited}", _STYLES[change.severity]
        for note in [change.reason, *change.notes]:
            if note:
                yield f"            {one_line(note, _REASON_WIDTH)}", "dim"
    if len(worse) > _CHANGES_SHOWN:
        yield f"  … and {len(worse) - _CHANGES_SHOWN:,} more; --json lists all", "dim"


def transition(change: Change) -> str:
    """Format the status of a case before and now."""
    counts = (change.repeats_before, change.repeats)
    if any(counted > 1 for _, counted in counts) and all(counted for _, counted in counts):
        return " → ".join(f"{passed} of {counted}" for passed, counted in counts)
    if change.before != change.now or change.score is None or change.score_before is None:
        return f"{change.before} → {change.now or 'gone'}"
    return f"{change.now} as before, score {change.score_before:.3g} → {change.score:.3g}"


def _harmless_change_lines(comparison: Comparison, suffix: str) -> Iterator[Line]:
    """Yield the changes that are not for the worse, by kind, with the first few case ids."""
    kinds: dict[Kind, str] = {
        "gained": "gained",
        "new": "new",
        "gone": "only in the baseline",
        "not comparable": "not comparable (skipped, blocked or unscored)",
    }
    lines = [
        _named_cases(text, comparison.counts[kind], (change for change in comparison.changes if change.change == kind))
        for kind, text in kinds.items()
        if comparison.counts[kind]
    ]
    if comparison.edited:
        changes = (change for change in comparison.changes if change.is_edited and change.change in COMPARED)
        lines.append(_named_cases("edited since, but still compared", comparison.edited, changes))
    if {"new", "gone"} <= {change.change for change in comparison.changes if change.is_unnamed}:
        lines.append("Cases without an id are known by their content: an edited one is one gone and one new.")
    lines += [*_exclusive_groups("added", comparison.added), *_exclusive_groups("removed", comparison.removed)]
    if lines:
        yield f"Also{suffix}:", "bold"
    for line in lines:
        yield f"  {line}", ""


def _exclusive_groups(what: str, groups: list[OneSidedGroup]) -> Iterator[str]:
    """Yield the buckets and tags that only one side has, with their number of cases."""
    for by, members in groupby(groups, lambda group: group.by):
        names = [f"{printable(group.name)} ({pluralize(group.cases, 'case')})" for group in members]
        more = f" … and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
        yield f"{pluralize(len(names), by)} {what}: {', '.join(names[:_NAMES_SHOWN])}{more}"


def _named_cases(what: str, number: int, changes: Iterator[Change]) -> str:
    names = ", ".join(_name(change) for change in islice(changes, _NAMES_SHOWN))
    more = f" … and {number - _NAMES_SHOWN:,} more" if number > _NAMES_SHOWN else ""
    return f"{pluralize(number, 'case')} {what}: {names}{more}"


def _cost_lines(comparison: Comparison, suffix: str) -> Iterator[Line]:
    medians = []
    if latency := comparison.latency_s:
        medians.append(f"latency {seconds(latency.base)} → {seconds(latency.now)}")
    if tokens := comparison.tokens:
        medians.append(f"tokens {tokens.base:.4g} → {tokens.now:.4g}")
    if medians:
        yield f"Median of a case{suffix}: {'; '.join(medians)}", "dim"
    if comparison.cost or comparison.cost_before:
        yield f"Cost of the compared cases{suffix}: {comparison.cost_before:.4g} → {comparison.cost:.4g}", "dim"


def _next_command(compared: ComparisonResult) -> str:
    batch = printable(compared.batch)
    worse = [change for one in compared.comparisons for change in one.changes if change.severity and change.now]
    if worse:
        first = max(worse, key=lambda change: GRADES.index(change.severity))
        return f"evalloom batches show {batch} --case {quote_word(printable(first.case_id))}"
    is_partial = compared.is_bad or any(comparison.is_selection for comparison in compared.comparisons)
    return f"evalloom batches show {batch}" if is_partial else f"evalloom baseline save NAME {batch}"


def _number(position: int) -> str:
    # Nobody knows a digest by heart, so the number leads to the case.
    return f" (case {position} of its file)" if position else ""


def _name(change: Change) -> str:
    number = _number(change.position) if change.is_unnamed else ""
    return case_name(change.case_id) + number + (f" (occurrence {change.occurrence})" if change.occurrence > 1 else "")


def _signed(share: float) -> str:
    """Format a difference in points; a difference other than zero is never shown as zero."""
    points = round(100 * share, 9) + 0.0  # without the rounding error of a mean, and without "-0.0"
    return f"{points:+.1f}" if not points or abs(points) >= 0.05 else f"{points:+.1g}"


def _points(share: float) -> str:
    return f"{100 * share:.3g} points"


def noise_lines(compared: SelfComparison) -> Iterator[Line]:
    """Yield how much the repeats of a batch differ, and what a comparison could show in spite of it."""
    for noise in compared.profiles:
        yield from _profile_noise_lines(noise)
        yield "", ""
    yield from command_lines(f"evalloom baseline save NAME {printable(compared.batch)}", "Next: ")


def _profile_noise_lines(noise: ProfileNoise) -> Iterator[Line]:
    name, cases = printable(noise.profile or "the batch"), pluralize(noise.cases, "case")
    if not noise.flaky:
        yield f"NO NOISE: {name}: all {noise.repeats} repeats of {cases} gave the same results", "bold green"
        return
    flipped = f"{noise.flipped:,.1f} of {cases} ({noise.flipped / noise.cases:.1%})"
    yield f"NOISE: {name}: {flipped} flip between two repeats, though nothing changed", "bold"
    rates = f"{noise.lowest_rate:.1%} to {noise.highest_rate:.1%}"
    yield f"  The pass rate of one repeat is {rates} ({noise.repeats} repeats).", ""
    pairs = "in the one comparison" if noise.comparisons == 1 else f"in {noise.comparisons:,} comparisons"
    yield f"  A difference is shown {noise.differences_shown:,} times {pairs} of a repeat with another.", ""
    drops = [
        f"{_points(drop)} with {pluralize(repeats, 'repeat')}" for repeats, drop in sorted(noise.detectable.items())
    ]
    yield f"  On each side, a drop that 4 of 5 comparisons show: {', '.join(drops)}.", ""
    yield f"Flaky: {pluralize(noise.flaky, 'case')}", "bold"
    for case in noise.flakiest:
        yield f"  {case_name(case.case_id)}{_number(case.position)}: {case.passed} of {case.repeats}", ""
    if noise.flaky > len(noise.flakiest):
        yield f"  … and {noise.flaky - len(noise.flakiest):,} more", "dim"


def baseline_lines(file: Path, head: Baseline) -> Iterator[Line]:
    """Yield where a baseline comes from, and its pass rate."""
    batch = head.batch
    yield f"baseline  {printable(head.name)}   {printable(file.as_posix())}", "bold"
    yield f"saved     {printable(head.saved_at)}, from the batch {printable(batch.id)}", ""
    yield from batch_lines(batch)
    if batch.config:
        config = ", ".join(f"{name} {value}" for name, value in batch.config.items() if value not in ("", None))
        yield f"config    {one_line(config, _DIFFERENCE_WIDTH)}", ""
    if batch.documents and "" not in batch.documents:
        yield f"searched  {pluralize(len(batch.documents), 'document')}", ""
    rate: Any = batch.summary.get("pass_rate")
    scored = f"pass rate {percent(rate)}" if isinstance(rate, float) else "none of them scored"
    yield f"runs      {head.runs:,}, {scored}", ""
    yield from command_lines(f"evalloom compare latest --against {printable(head.name)}", "Next: ")
