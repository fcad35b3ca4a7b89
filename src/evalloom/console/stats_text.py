"""Formats the output of `evalloom stats`: figures in total and by group, and failures by cause."""

from __future__ import annotations

from collections.abc import Iterator

from evalloom.analysis.causes import Cause
from evalloom.analysis.stats import Figures, Metric, Stats, Values
from evalloom.analysis.tally import STATUSES, Counts
from evalloom.console.layout import Line, percent_interval, seconds, table_lines
from evalloom.console.run_text import case_name
from evalloom.core.text import one_line, percent, pluralize, printable

_SHOWN_CAUSES = 10
_SHOWN_CASES = 5
_REASON_WIDTH = 160


def stats_lines(stats: Stats) -> Iterator[Line]:
    """Yield the figures of some batches, then their failures by cause."""
    if len(stats.batches) == 1:
        yield f"batch  {printable(stats.batches[0])}", "dim"
    else:
        first_last = f"{printable(stats.batches[0])} to {printable(stats.batches[-1])}"
        yield f"{len(stats.batches)} batches  {first_last}", "dim"
    if not stats.total.total:
        yield "No run fulfils the condition, or there is none yet.", ""
        return
    tables = [("", {"all": stats.total}), *stats.by.items()]
    for dimension, groups in tables:
        if dimension and set(groups) <= {""}:
            yield f"no run has a {dimension}", "dim"
            continue
        if dimension:
            yield "", ""
        figures = [stats.total, *groups.values()]
        rows = [
            [name or f"no {dimension}", *figure_cells(group, stats.metric, figures)] for name, group in groups.items()
        ]
        yield from table_lines([dimension, *figure_names(stats.metric, figures)], rows)
    if stats.until_sure and stats.metric in ("pass", "score"):
        yield "No interval where results decided when a batch ended (--until-sure); its own summary has one", "dim"
    if stats.metric == "pass":
        yield from _cause_lines(stats.causes, stats.ungrouped)


def _shown_statuses(figures: list[Figures]) -> list[str]:
    """Return the statuses to list: passed and failed always, the others where a run has them."""
    return [
        status
        for status in STATUSES
        if status in ("passed", "failed") or any(getattr(group, status, 0) for group in figures)
    ]


def figure_names(metric: Metric, figures: list[Figures]) -> list[str]:
    """Return the header of a table of groups; `figures` are all that it shows."""
    if metric == "pass":
        return ["runs", "cases", *_shown_statuses(figures), "pass rate", "95 % CI"]
    if metric == "score":
        return ["runs", "scored", "mean", "95 % CI", "min", "p50", "max"]
    return ["runs", "measured", *(["sum"] if metric != "latency" else []), "mean", "p50", "p95", "max"]


def figure_cells(group: Figures, metric: Metric, figures: list[Figures]) -> list[str]:
    """Return the cells of a group below that header."""
    if isinstance(group, Counts):
        statuses = [f"{getattr(group, status):,}" for status in _shown_statuses(figures)]
        rate = "-" if group.pass_rate is None else percent(group.pass_rate)
        interval = percent_interval(group.pass_rate_low, group.pass_rate_high)
        return [f"{group.total:,}", f"{group.cases:,}", *statuses, rate, interval]
    return [f"{group.total:,}", f"{group.count:,}", *_values(group, metric)]


def _values(group: Values, metric: Metric) -> list[str]:
    if metric == "score":
        interval = "-" if group.low is None else f"{group.low:.3f}–{group.high:.3f}"
        return [_number(group.mean), interval, _number(group.min), _number(group.p50), _number(group.max)]
    numbers = [group.mean, group.p50, group.p95, group.max]
    if metric == "latency":
        return [seconds(number) for number in numbers]
    return [_number(number) for number in (group.sum, *numbers)]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.4g}"


def _cause_lines(causes: list[Cause], ungrouped: int) -> Iterator[Line]:
    """Yield the causes of failures, the most frequent first, each with an example and its cases."""
    if not causes:
        return
    failures = sum(cause.count for cause in causes) + ungrouped
    yield "", ""
    yield f"{pluralize(failures, 'failure')}, {pluralize(len(causes), 'cause')}", "bold"
    for cause in causes[:_SHOWN_CAUSES]:
        where = f"step {cause.step}: " if cause.step else ""
        check = f"{cause.check}: " if cause.check else ""
        yield printable(f"{cause.count:,} × {where}{check}") + one_line(cause.reason, _REASON_WIDTH), "red"
        if cause.example != cause.reason:
            yield f"    for example {one_line(cause.example, _REASON_WIDTH)}", "dim"
        names = ", ".join(case_name(id) for id in cause.cases[:_SHOWN_CASES])
        more = f" and {len(cause.cases) - _SHOWN_CASES:,} more" if len(cause.cases) > _SHOWN_CASES else ""
        yield f"    {names}{more}", ""
    if len(causes) > _SHOWN_CAUSES:
        yield f"… and {len(causes) - _SHOWN_CAUSES:,} more causes: --json lists all", "dim"
    if ungrouped:
        yield f"… and {ungrouped:,} failures more, which are not grouped", "dim"
