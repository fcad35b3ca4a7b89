"""Formats the output of `evalloom stats`: figures with confidence intervals, by group, weakest first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from evalloom.console.layout import Line, percent_interval, seconds, table_lines
from evalloom.core.model import Record
from evalloom.core.text import one_line, percent, pluralize, printable
from evalloom.hop.results.perf import NO_RUNS

_FLIPPED = 10
"""The maximum number of flipped cases to print."""
_ERROR_WIDTH = 60
_NOTHING = (
    "No result yet: 'batchhoptest --task …' writes some. 'evalloom batches list' lists the batches of 'evalloom run'."
)
_PREVIEW = 400
"""Characters of a result, on terminals that have room for them."""


def stats_lines(stats: Record, groups: list[str]) -> Iterator[Line]:
    """Yield the summary of all results in a folder."""
    if not stats["total"]:
        yield _NOTHING, ""
        return
    with_cases = stats["cases"] != stats["total"]
    yield from table_lines(["", *_head(with_cases)], [["all", *_figures(stats, with_cases)]])
    outcomes = ", ".join(f"{name} {number}" for name, number in stats["outcomes"].items() if number)
    unscored = f"; nothing is expected of {stats['unscored']:,}" if stats["unscored"] else ""
    errors = f"; {pluralize(stats['errors'], 'error')}" if stats["errors"] else ""
    yield f"{pluralize(stats['files'], 'file')}; outcomes: {printable(outcomes)}{errors}{unscored}", "dim"
    for group in groups:
        if list(stats[f"by_{group}"]) == [f"no {group}"]:
            continue
        rows = sorted(stats[f"by_{group}"].items(), key=_weakness)
        yield "", ""
        yield from table_lines(
            [group, *_head(with_cases)], [[name, *_figures(figures, with_cases)] for name, figures in rows]
        )
    if stats["fields"]:
        yield "", ""
        yield from table_lines(["field", "filled", "what it holds"], [*map(_field_row, stats["fields"].items())])
    yield from performance_lines(stats.get("performance", NO_RUNS))


def _head(with_cases: bool) -> list[str]:
    """Return the columns of a group; cases are listed if there are copies or repeats of some."""
    return ["results", *(["cases"] if with_cases else []), "completed", "correct", "pass rate", "95 % CI", "retries"]


def _figures(group: Record, with_cases: bool) -> list[str]:
    low_high = group["pass_rate_interval"]
    return [
        f"{group['total']:,}",
        *([f"{group['cases']:,}"] if with_cases else []),
        _rate(group["completion_rate"]),
        _rate(group["correctness"]),
        _rate(group["pass_rate"]),
        percent_interval(*low_high) if low_high else "-",
        f"{group['retries']['mean']:.2f}" if group["retries"]["mean"] is not None else "-",
    ]


def _weakness(item: tuple[str, Record]) -> tuple[float, float, str]:
    """Sort key that puts the weakest group first: by pass rate, or by completion where nothing is expected."""
    name, group = item
    completion = group["completion_rate"]
    return (completion if group["pass_rate"] is None else group["pass_rate"], completion, name)


def _field_row(item: tuple[str, Record]) -> list[str]:
    name, field = item
    return [name, _rate(field["non_null_rate"]), ", ".join(_holds(field))]


def _holds(field: Record) -> Iterator[str]:
    if field.get("rate") is not None:
        yield f"true {percent(field['rate'])}"
    if field.get("mean") is not None:
        yield f"mean {_number(field['mean'])}, {_number(field['min'])} to {_number(field['max'])}"
    if field.get("distinct") is not None:
        yield f"{pluralize(field['distinct'], 'distinct value')}"
    if field.get("mean_length") is not None:
        yield f"{_number(field['mean_length'])} items on average"
    if field.get("distribution"):
        values = sorted(field["distribution"].items(), key=lambda item: (-item[1], item[0]))
        more = f" and {len(values) - 6} more" if len(values) > 6 else ""
        yield ", ".join(f"{one_line(value, 24)} {number:,}" for value, number in values[:6]) + more
    for key, counts in field.get("items", {}).items():
        listed = ", ".join(f"{one_line(value, 24)} {number:,}" for value, number in [*counts.items()][:6])
        yield f"{one_line(key, 24)}: {listed}"
    if field.get("agreement"):
        yield f"exact {_rate(field['agreement']['exact'])}, ±1 {_rate(field['agreement']['within_one'])}"


def performance_lines(performance: Record) -> Iterator[Line]:
    """Yield the durations of observed runs and operators."""
    if not performance["runs"]:
        return
    yield "", ""
    times = ", ".join(f"{name} {seconds(performance[name])}" for name in ("mean", "p50", "p95"))
    cached = f", {performance['cached']:,} with answers from the cache; the others" if performance["cached"] else ""
    yield f"{pluralize(performance['runs'], 'run')} observed{cached}: {times}", ""
    rows = [
        [
            operator["op"],
            f"{operator['calls']:,}",
            _rate(operator["success_rate"]),
            seconds(operator["mean_duration"]),
            f"{operator['mean_retries']:.2f}",
        ]
        for operator in performance["operators"]
    ]
    if rows:
        yield from table_lines(["operator", "calls", "succeeded", "mean", "retries"], rows)


def comparison_lines(comparisons: list[Record]) -> Iterator[Line]:
    """Yield comparisons with one profile: the difference, its confidence interval, and the cases that moved."""
    for number, comparison in enumerate(comparisons):
        if number:
            yield "", ""
        yield from _comparison_lines(comparison, len(comparisons))


def _comparison_lines(comparison: Record, comparisons: int) -> Iterator[Line]:
    first, second = comparison["profile_a"], comparison["profile_b"]
    sides = ((first, comparison["a"]), (second, comparison["b"]))
    unscored = comparison["cases"] - comparison["judged"]
    note = f", {unscored:,} without an expectation" if unscored and comparison["judged"] else ""
    yield f"{pluralize(comparison['cases'], 'case')} under both{note}", "bold"
    rows = [
        [name, _rate(side["completion_rate"]), _rate(side["correctness"]), _rate(side["pass_rate"])]
        for name, side in sides
    ]
    yield from table_lines(["profile", "completed", "correct", "pass rate"], rows)
    if comparison["difference"] is None:
        yield "No case with an expectation ran under both, so there is nothing to compare.", "yellow"
        return
    low, high = (100 * end for end in comparison["interval"])
    p_value = f"p = {comparison['p_adjusted']:.3g}" + (f" for {comparisons} comparisons" if comparisons > 1 else "")
    conclusion = comparison["conclusion"]
    if conclusion != "no difference shown":
        conclusion = f"{second if conclusion == 'better' else first} is better"
    points = f"{100 * comparison['difference']:+.1f} points (95 % CI {low:+.1f} to {high:+.1f}, {p_value})"
    yield printable(f"{second} against {first}: {points}: {conclusion}"), "bold"
    yield f"{comparison['improved']} better, {comparison['worsened']} worse", ""
    for pair in comparison["flipped"][:_FLIPPED]:
        label = f"{pair['change']:<6} {_name({**pair['a'], **pair})} {pair['tag'] or ''}".rstrip()
        yield f"  {printable(label)}: {_change(pair)}", ""
    more = comparison["improved"] + comparison["worsened"] - _FLIPPED
    if more > 0:
        yield f"  … and {more} more; --json lists all", "dim"


def _change(pair: Record) -> str:
    """Describe the expected fields whose values differ between the two sides; of repeats, how many passed."""
    before, after = pair["a"], pair["b"]
    if before["runs"] > 1 or after["runs"] > 1:
        return f"{_share(before)} → {_share(after)} passed"
    if before["error"] or after["error"] or not isinstance(before["result"], dict):
        return f"{_outcome_text(before)} → {_outcome_text(after)}"
    values = [
        (name, before["result"].get(name), (after["result"] or {}).get(name))
        for name in pair["expected"]
        if isinstance(after["result"], dict)
    ]
    changed = [f"{name} {_value(old)} → {_value(new)}" for name, old, new in values if old != new]
    return ", ".join(map(printable, changed)) or f"{_outcome_text(before)} → {_outcome_text(after)}"


def _share(side: Record) -> str:
    return f"{round(side['share'] * side['runs']):,} of {side['runs']:,}"


def _outcome_text(side: Record) -> str:
    return one_line(f"{side['outcome']}: {side['error']}", _ERROR_WIDTH) if side["error"] else _value(side["result"])


def agreement_lines(field: str, agreement: Record) -> Iterator[Line]:
    """Yield the confusion matrix of a score by bands, and the rates of agreement."""
    if not agreement["n"]:
        yield printable(f"{field}: no result has both an expected and an actual number"), "yellow"
        return
    matrix: dict[str, dict[str, int]] = agreement["matrix"]
    names = list(matrix)
    yield printable(f"{field}: {pluralize(agreement['n'], 'result')} with an expected and an actual score"), "bold"
    yield from table_lines(
        ["expected \\ actual", *names], [[name, *(str(matrix[name][band]) for band in names)] for name in names]
    )
    yield (
        f"exact {_rate(agreement['exact'])}, ±1 {_rate(agreement['within_one'])}, "
        f"in another band {_rate(agreement['cross_band_rate'])}"
        + (f"; {agreement['outside']} outside all bands" if agreement["outside"] else ""),
        "",
    )


def file_lines(files: list[Record]) -> Iterator[Line]:
    """Yield one line per file."""
    if not files:
        yield _NOTHING, ""
        return
    rows = [[file["name"], f"{file['rows']:,}", ", ".join(file["profiles"]), file["modified"]] for file in files]
    yield from table_lines(["file", "results", "profiles", "modified"], rows)


def row_lines(page: Record) -> Iterator[Line]:
    """Yield one line per result."""
    rows = [
        [
            _name(row),
            row["tag"] or "-",
            row["profile"] or "-",
            row["outcome"],
            _correct(row["correct"]),
            str(row["retry_count"]),
            one_line(row["error"] or _value(row["result"], _PREVIEW), _PREVIEW),
        ]
        for row in page["rows"]
    ]
    yield from table_lines(
        ["id", "tag", "profile", "outcome", "correct", "retry_count", "result"], rows, preview="result"
    )
    yield f"{len(rows)} of {pluralize(page['total'], 'result')}", "dim"


def _name(row: Record) -> str:
    """Return the id of a result, or its file and line."""
    return str(row["id"]) if row["id"] is not None else f"{row['file']}:{row['line']}"


def _correct(is_correct: bool | None) -> str:
    return {True: "yes", False: "no", None: "-"}[is_correct]


def _rate(value: float | None) -> str:
    return "-" if value is None else percent(value)


def _number(value: float) -> str:
    """Return a number as people write it: 25,000 and 0.125, not 2.5e+04."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def _value(value: Any, width: int = 100) -> str:
    return one_line(json.dumps(value, ensure_ascii=False, default=str), width)
