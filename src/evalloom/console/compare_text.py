"""What `evalloom compare` prints: the verdict first, then what it rests on, then what to type next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from shlex import quote as quote_word
from typing import Any

from evalloom.analysis.compare import COMPARED, By, Change, Comparison, Kind, OneSidedGroup
from evalloom.analysis.compare_figures import FEWEST_FLIPS, GRADES, Figures, Medians
from evalloom.analysis.compare_measures import Measured
from evalloom.batchlog import Baseline
from evalloom.console.run_text import Line, seconds, table_lines
from evalloom.core.text import one_line, pluralize, printable
from evalloom.engine.compare import ComparisonResult

_SHOWN = 20
_GROUPS = 50
_NAMED = 5
"""How many cases are named where only their ids are told."""
_DIFFERENCE_WIDTH = 400
_REASON_WIDTH = 160
_STYLES = {"": "", "minor": "yellow", "major": "red", "critical": "bold red"}


def compared_lines(compared: ComparisonResult, buckets: Sequence[str]) -> Iterator[Line]:
    """Everything there is to say about a comparison; `buckets` are in the order in which they are shown."""
    for one in compared.comparisons:
        yield _verdict(one, compared)
        yield _certainty(one.figures), ""
    if compared.is_same_batch:
        yield (
            f"  Both sides are the batch {printable(compared.batch)}: only what was run or scored again can differ.",
            "",
        )
    yield "", ""
    yield from _table(compared.comparisons)
    for one in compared.comparisons:
        of = f" · {printable(one.profile)}" if len(compared.comparisons) > 1 else ""
        yield from _group_lines("bucket", one.buckets, of)
        yield from _group_lines("tag", one.tags, of)
        yield from _measure_lines(one.measures, buckets, of)
        yield "", ""
        yield from _worse_lines(one, of)
        yield from _apart_lines(one, of)
        yield from _spent_lines(one, of)
    if compared.differences:
        yield "What else is not the same:", "bold"
        for difference in compared.differences:
            yield f"  {one_line(difference.text, _DIFFERENCE_WIDTH)}", ""
    yield _next(compared), ""


def _verdict(one: Comparison, compared: ComparisonResult) -> Line:
    figures, name = one.figures, printable(one.profile or "the batch")
    against = compared.baseline if one.profile == one.base_profile else one.base_profile
    if figures.difference is None:
        return f"NOTHING TO COMPARE: no case of {name} has a result on both sides", "yellow"
    rates = f"{figures.rate:.1%} of {pluralize(figures.cases, 'case')}, {printable(against)} {figures.base_rate:.1%}"
    what = f"{name} passes {rates}"
    if one.missing:
        what += f"; {one.missing:,} of {pluralize(one.counted_before, 'case')} cannot be compared"
    if one.is_regression:
        return f"REGRESSION ({one.severity}): {what}; {_because(one, compared)}", "bold red"
    if not one.is_comparable:
        return f"NOT COMPARABLE: {what}; more than half of what passed has no result now", "bold red"
    return f"NO REGRESSION: {what}", "bold green"


def _because(one: Comparison, compared: ComparisonResult) -> str:
    reasons = []
    if one.figures.regression:
        reasons.append(f"the allowed drop is {_points(compared.allowed_drop)}")
    for by, groups in (("bucket", one.buckets), ("tag", one.tags)):
        fell = [_fallen(figures, compared) for figures in groups if figures.regression]
        if fell:
            reasons.append(f"{pluralize(len(fell), by)} fell: {', '.join(fell[:_NAMED])}")
    critical = sum(change.severity == "critical" for change in one.changes)
    if critical:
        reasons.append(f"{pluralize(critical, 'case')} of critical severity")
    return ", ".join(reasons)


def _fallen(figures: Figures, compared: ComparisonResult) -> str:
    allowed = compared.allowed_drops.get(figures.name)
    return printable(figures.name) + ("" if allowed is None else f" (allowed {_points(allowed)})")


def _certainty(figures: Figures) -> str:
    """The verdict of the statistics, in words."""
    if figures.difference is None:
        return ""
    cells = _cells(figures)
    found = f"  Difference {cells[3]} points, 95 % interval {cells[4]}, p = {cells[5]}: {figures.judgement}."
    if figures.judgement != "no difference shown":
        return found
    alike = f"{FEWEST_FLIPS} cases that turn the same way"
    if figures.cases < FEWEST_FLIPS:
        return f"{found} So few can never show one: it takes {alike}."
    return f"{found} The least that could show is {alike}, {_points(FEWEST_FLIPS / figures.cases)}."


def _header(*names: str) -> list[str]:
    return [*names, "cases", "base rate", "rate", "difference", "95 % interval", "p", "gained", "lost"]


def _table(comparisons: list[Comparison]) -> Iterator[Line]:
    if all(one.profile == one.base_profile for one in comparisons):
        yield from table_lines(_header("profile"), [[one.profile or "-", *_cells(one.figures)] for one in comparisons])
        return
    rows = [[one.profile or "-", one.base_profile or "-", *_cells(one.figures)] for one in comparisons]
    yield from table_lines(_header("profile", "base"), rows)


def _cells(figures: Figures) -> list[str]:
    if figures.difference is None or figures.low is None or figures.high is None:
        return [str(figures.cases), "-", "-", "-", "-", "-", "0", "0"]
    return [
        str(figures.cases),
        f"{figures.base_rate:.1%}",
        f"{figures.rate:.1%}",
        _signed(figures.difference),
        f"{_signed(figures.low)} to {_signed(figures.high)}",
        f"{figures.p_value:.2g}",
        str(figures.gained),
        str(figures.lost),
    ]


def _group_lines(by: By, groups: list[Figures], of: str) -> Iterator[Line]:
    if not groups:
        return
    yield "", ""
    # What fell most stands first, since that is where there is something to do.
    groups = sorted(groups, key=lambda one: (one.difference or 0.0, one.name))
    rows = [[one.name, *_cells(one), one.judgement, one.regression or "-"] for one in groups]
    yield from table_lines([*_header(f"{by}{of}"), "judgement", "regression"], rows[:_GROUPS])
    if len(groups) > _GROUPS:
        yield f"… and {len(groups) - _GROUPS:,} more; --json has them", "dim"
    if len(groups) > 1:
        yield f"{len(groups):,} {by}s are {len(groups):,} comparisons: p is corrected for that (Holm).", "dim"


def _measure_lines(measures: list[Measured], buckets: Sequence[str], of: str) -> Iterator[Line]:
    """The measures of all cases, and beside them how they differ in each bucket."""
    whole = [one for one in measures if not one.bucket]
    if not whole:
        return
    measured = {one.bucket for one in measures}
    buckets = [bucket for bucket in buckets if bucket in measured]
    by_bucket = {(one.bucket, one.name): _thousandths(one.difference) for one in measures}
    rows = [[*_measure_cells(one), *(by_bucket.get((bucket, one.name), "-") for bucket in buckets)] for one in whole]
    header = [f"measure{of}", "cases", "base", "now", "difference", "95 % interval"]
    yield "", ""
    yield from table_lines([*header, *(f"in {bucket}" for bucket in buckets)], rows)
    yield "Measures inform and decide nothing. A case that met an error on either side is in none of them.", "dim"


def _measure_cells(one: Measured) -> list[str]:
    interval = f"{_thousandths(one.low)} to {_thousandths(one.high)}"
    return [one.name, str(one.cases), f"{one.base:.3f}", f"{one.now:.3f}", _thousandths(one.difference), interval]


def _thousandths(value: float) -> str:
    """A difference of means; one that is there is never shown as none."""
    return f"{value:+.3f}" if not value or abs(value) >= 0.0005 else f"{value:+.1g}"


def _worse_lines(one: Comparison, of: str) -> Iterator[Line]:
    worse = sorted((change for change in one.changes if change.severity), key=lambda it: -GRADES.index(it.severity))
    if worse:
        yield f"Worse{of}:", "bold"
    for change in worse[:_SHOWN]:
        edited = " (the case was edited)" if change.is_edited else ""
        yield f"  {change.severity:<8}  {_name(change)}: {_turn(change)}{edited}", _STYLES[change.severity]
        if change.reason:
            yield f"            {one_line(change.reason, _REASON_WIDTH)}", "dim"
        for note in change.notes:
            yield f"            {one_line(note, _REASON_WIDTH)}", "dim"
    if len(worse) > _SHOWN:
        yield f"  … and {len(worse) - _SHOWN:,} more; --json has them", "dim"


def _turn(change: Change) -> str:
    """What a case was, and what it is now."""
    shares = (change.share_before, change.share)
    if any(share not in (None, 0.0, 1.0) for share in shares):
        return " → ".join("-" if share is None else f"{share:.0%} of its repeats passed" for share in shares)
    if change.before != change.now or change.score is None or change.score_before is None:
        return f"{change.before} → {change.now or 'gone'}"
    return f"{change.now} as before, score {change.score_before:.3g} → {change.score:.3g}"


def _apart_lines(one: Comparison, of: str) -> Iterator[Line]:
    """The cases that are not worse, but of which one should know: by kind, with the first few ids."""
    kinds: dict[Kind, str] = {
        "gained": "gained",
        "new": "new",
        "gone": "only in the baseline",
        "not comparable": "not comparable (skipped, blocked or unscored)",
    }
    lines = [
        _naming(text, one.counts[kind], (change for change in one.changes if change.change == kind))
        for kind, text in kinds.items()
        if one.counts[kind]
    ]
    if one.edited:
        changes = (change for change in one.changes if change.is_edited and change.change in COMPARED)
        lines.append(_naming("edited since, and compared all the same", one.edited, changes))
    lines += [*_one_sided("added", one.added), *_one_sided("removed", one.removed)]
    if lines:
        yield f"Also{of}:", "bold"
    for line in lines:
        yield f"  {line}", ""


def _one_sided(what: str, groups: list[OneSidedGroup]) -> Iterator[str]:
    """The buckets and tags that are there on one side only, with the number of their cases."""
    for by, found in groupby(groups, lambda group: group.by):
        names = [f"{printable(group.name)} ({pluralize(group.cases, 'case')})" for group in found]
        more = f" … and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        yield f"{pluralize(len(names), by)} {what}: {', '.join(names[:_NAMED])}{more}"


def _naming(what: str, number: int, changes: Iterator[Change]) -> str:
    named = ", ".join(_name(change) for change in islice(changes, _NAMED))
    return f"{pluralize(number, 'case')} {what}: {named}" + (
        f" … and {number - _NAMED:,} more" if number > _NAMED else ""
    )


def _spent_lines(one: Comparison, of: str) -> Iterator[Line]:
    parts = []
    if one.latency_s is not None:
        parts.append(f"latency {_medians(one.latency_s, seconds)}")
    if one.tokens is not None:
        parts.append(f"tokens {_medians(one.tokens, lambda number: f'{number:.4g}')}")
    if parts:
        yield f"Median of a case{of}: {'; '.join(parts)}", "dim"
    if one.cost or one.cost_before:
        yield f"Cost of the cases compared{of}: {one.cost_before:.4g} → {one.cost:.4g}", "dim"


def _medians(found: Medians, shown: Callable[[float], str]) -> str:
    return f"{shown(found.base)} → {shown(found.now)}"


def _next(compared: ComparisonResult) -> str:
    worse = [change for one in compared.comparisons for change in one.changes if change.severity and change.now]
    if worse:
        first = max(worse, key=lambda change: GRADES.index(change.severity))
        return f"Next: evalloom batches show {printable(compared.batch)} --case {quote_word(printable(first.case_id))}"
    if compared.is_bad:
        return f"Next: evalloom batches show {printable(compared.batch)}"
    return f"Next: evalloom baseline save NAME {printable(compared.batch)} keeps this batch as a baseline"


def _name(change: Change) -> str:
    return printable(change.case_id) + (f" (occurrence {change.occurrence})" if change.occurrence > 1 else "")


def _signed(share: float) -> str:
    """A difference in points; one that is there is never shown as none."""
    points = 100 * share
    return f"{points:+.1f}" if not points or abs(points) >= 0.05 else f"{points:+.1g}"


def _points(share: float) -> str:
    return f"{100 * share:.3g} points"


def baseline_lines(file: Path, head: Baseline) -> Iterator[Line]:
    """What a baseline was made of."""
    batch = head.batch
    yield f"baseline  {printable(head.name)}   {printable(file.as_posix())}", "bold"
    yield f"saved     {printable(head.saved_at)}, of the batch {printable(batch.id)}", ""
    yield f"target    {printable(batch.target)}", ""
    yield f"datasets  {printable(', '.join(f'{one.path} ({one.dialect})' for one in batch.datasets))}", ""
    named = [f"{one.name} ({batch.models.get(one.run) or one.run or 'no llm'})" for one in batch.profiles]
    yield f"profiles  {printable(', '.join(named))}", ""
    if batch.config:
        config = ", ".join(f"{name} {value}" for name, value in batch.config.items() if value not in ("", None))
        yield f"config    {one_line(config, _DIFFERENCE_WIDTH)}", ""
    if batch.documents and "" not in batch.documents:
        yield f"searched  {pluralize(len(batch.documents), 'document')}", ""
    rate: Any = batch.summary.get("pass_rate")
    shown = f"{rate:.1%} passed" if isinstance(rate, float) else "none of them counted"
    yield f"runs      {head.runs:,}, {shown}", ""
    yield f"Next: evalloom compare latest --baseline {printable(head.name)}", ""
