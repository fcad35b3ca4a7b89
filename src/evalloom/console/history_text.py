"""Formats the output of `evalloom history`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from evalloom.analysis.history_cases import Kind
from evalloom.analysis.history_figures import BatchPoint, CaseHistory, History, ProfilePoint, RunLine
from evalloom.console.layout import Line, percent_interval, table_lines
from evalloom.core.text import one_line, percent, pluralize, printable, shorten

SHOWN = 5
"""The cases that a list names."""
_NAME_WIDTH = 60
_REASON_WIDTH = 120
_MOST_MARKS = 40
_BARS, _ASCII_BARS = "▁▂▃▄▅▆▇█", "_.,-=+*#"
_MARKS = {"passed": "✓", "failed": "✗", "mixed": "~", "none": "·"}
_ASCII_MARKS = {"passed": "+", "failed": "x", "mixed": "~", "none": "."}
_TITLES: dict[Kind, tuple[str, str]] = {
    "newly_failing": ("newly failing", "red"),
    "newly_flaky": ("newly flaky", "yellow"),
    "flaky": ("flaky", "yellow"),
    "fixed": ("fixed", "green"),
    "unclear": ("unclear", ""),
    "always_fails": ("always fails", ""),
    "never_fails": ("never fails", ""),
}
_STATES = {"running": "running", "stopped": "stopped early"}


def history_lines(history: History) -> Iterator[Line]:
    """Yield the table of the batches, then the lists of cases."""
    yield f"dataset   {printable(history.dataset or '-')}", ""
    yield f"target    {printable(history.target or '-')}", ""
    names = short_ids([batch.batch for batch in history.batches])
    profiles = list(dict.fromkeys(point.profile for batch in history.batches for point in batch.profiles))
    for profile in profiles:
        yield "", ""
        yield from _rate_lines(history, profile, len(profiles) > 1, names)
    if history.left_out:
        yield f"{pluralize(history.left_out, 'earlier batch').replace('batchs', 'batches')}: --limit shows more", "dim"
    if len(history.batches) == 1:
        yield "There is one batch only, so nothing can be compared yet", "yellow"
    yield from _change_lines(history.batches, names)
    yield "", ""
    yield from _case_lines(history, len(profiles) > 1, names)
    if history.others:
        yield "", ""
        yield "Other datasets and targets, for --dataset and --target:", ""
        rows = [[one.dataset or "-", one.target or "-", f"{one.batches:,}", one.newest] for one in history.others]
        yield from table_lines(["dataset", "target", "batches", "newest"], rows, indent=2)


def _rate_lines(history: History, profile: str, is_named: bool, names: dict[str, str]) -> Iterator[Line]:
    """Yield a sparkline, and one row per batch."""
    batches = [(batch, point) for batch in history.batches for point in batch.profiles if point.profile == profile]
    rates = [point.pass_rate for _, point in batches]
    name = f"{printable(profile or '-')}  " if is_named else ""
    yield f"{name}pass rate  {sparkline(rates)}  (0 to 100 %)", "bold"
    rows = [_row(batch, point, names) for batch, point in batches]
    styles = [
        {"worse": "red", "better": "green"}.get(point.change.judgement if point.change else "", "")
        for _, point in batches
    ]
    yield from table_lines(["batch", "cases", "pass rate", "95 % CI", "change", "95 % CI", ""], rows, styles)


def _row(batch: BatchPoint, point: ProfilePoint, names: dict[str, str]) -> list[str]:
    change = point.change
    notes = [word for word in [_STATES.get(batch.status, "")] if word]
    if batch.is_partial:
        notes.append("--until-sure")
    difference, interval = "-", "-"
    if change is not None and change.difference is not None and change.low is not None and change.high is not None:
        difference = f"{100 * change.difference:+.1f}"
        interval = f"{100 * change.low:+.1f} to {100 * change.high:+.1f}"
        if change.judgement != "no difference shown":
            notes.insert(0, change.judgement)
    return [
        names[batch.batch],
        f"{point.cases:,}",
        "-" if point.pass_rate is None else percent(point.pass_rate),
        percent_interval(point.low, point.high),
        difference,
        interval,
        ", ".join(notes),
    ]


def _change_lines(batches: Sequence[BatchPoint], names: dict[str, str]) -> Iterator[Line]:
    """Yield what changed before each batch."""
    changed = [batch for batch in batches if batch.changed]
    if not changed:
        if len(batches) > 1:
            yield "Nothing recorded changed between these batches", ""
        return
    yield "What changed:", ""
    for batch in changed:
        for one in batch.changed:
            yield f"  {names[batch.batch]}  {one_line(one.text, _REASON_WIDTH)}", ""


def _case_lines(history: History, names_profile: bool, ids: dict[str, str]) -> Iterator[Line]:
    for kind, (title, style) in _TITLES.items():
        cases = history.of_kind(kind)
        if not cases and kind in ("flaky", "unclear"):
            continue
        explained = _EXPLAINED.get(kind, "") if cases else ""
        yield f"{title:<13} {len(cases):>5,}{explained}", style if cases else ""
        if kind == "never_fails":
            continue
        rows = [
            [
                shorten(printable(_name(case, names_profile)), _NAME_WIDTH),
                record_marks(case, len(history.batches)),
                _note(case, ids),
            ]
            for case in cases[:SHOWN]
        ]
        if rows:
            yield from table_lines(["", "", ""], rows, indent=2)
        if len(cases) > SHOWN:
            yield f"  … and {len(cases) - SHOWN:,} more; --json lists all", "dim"
    for number, what in (
        (history.absent, "only in earlier batches"),
        (history.not_counted, "without a run that passed, failed or met an error"),
    ):
        if number:
            yield f"{pluralize(number, 'case')} {what}", "dim"


_EXPLAINED: dict[Kind, str] = {
    "newly_failing": "  passed before and fail since; chance does not explain it",
    "newly_flaky": "  first seen to pass and fail with nothing changed in the newest batch",
    "flaky": "  pass and fail with nothing changed",
    "fixed": "  failed before and pass since; chance does not explain it",
    "unclear": "  differ only where something changed; too few runs to tell a change from chance",
}


def _name(case: CaseHistory, names_profile: bool) -> str:
    return f"{case.name} · {case.profile}" if names_profile else case.name


def _note(case: CaseHistory, ids: dict[str, str]) -> str:
    if case.flake_rate is not None:
        rate = case.flake_rate
        return (
            f"fails {rate.rate:.0%} of {pluralize(rate.runs, 'run')} (95 % CI {percent_interval(rate.low, rate.high)})"
        )
    if case.kind in ("newly_failing", "fixed"):
        return f"since {ids[case.since]}, {'after a change' if case.is_after_change else 'nothing recorded changed'}"
    if case.direction:
        word = "fails" if case.direction == "worse" else "passes"
        return (
            f"{word} since {ids[case.since]}, by chance in 1 of {1 / case.chance:,.0f} histories" if case.chance else ""
        )
    return ""


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """Return the date and time of each id, which every command accepts; the whole ids if that is not unique."""
    for length in (15, 19):
        short = {id: id[:length] for id in ids}
        if len({*short.values()}) == len(short):
            return short
    return {id: id for id in ids}


def record_marks(case: CaseHistory, batches: int) -> str:
    """Return one mark per batch, oldest first; `|` stands where the case, the target or an llm changed."""
    marks = _MARKS if _is_unicode() else _ASCII_MARKS
    by_batch = {mark.batch: mark for mark in case.record}
    text = []
    for at in range(max(0, batches - _MOST_MARKS), batches):
        mark = by_batch.get(at)
        if mark is None or not mark.counted:
            text.append(marks["none"])
            continue
        kind = "passed" if mark.passed == mark.counted else "mixed" if mark.passed else "failed"
        text.append(("|" if mark.is_changed else "") + marks[kind])
    return "".join(text)


def sparkline(rates: Sequence[float | None]) -> str:
    """Return a bar for each rate, from 0 to 100 %; a space where there is none."""
    bars = _BARS if _is_unicode() else _ASCII_BARS
    return "".join(" " if rate is None else bars[min(len(bars) - 1, int(rate * len(bars)))] for rate in rates)


def _is_unicode() -> bool:
    """Whether standard output can show the marks."""
    try:
        (_BARS + "✓✗").encode(sys.stdout.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


def run_of_case_lines(case_id: str, runs: Sequence[RunLine]) -> Iterator[Line]:
    """Yield all runs of a case, one line each."""
    passed = sum(run.status == "passed" for run in runs)
    counted = sum(run.status in ("passed", "failed", "error") for run in runs)
    yield f"{one_line(case_id, _NAME_WIDTH)}: {passed:,} of {pluralize(counted, 'run')} passed", "bold"
    styles = {"passed": "green", "failed": "red", "error": "magenta"}
    names = short_ids(list(dict.fromkeys(run.batch for run in runs)))
    rows = [
        [
            names[run.batch],
            run.started_at[5:19].replace("T", " "),
            run.profile or "-",
            str(run.repeat + 1),
            run.status,
            "-" if run.score is None else f"{run.score:.3g}",
            ", ".join(one.what for one in run.changed) or "-",
            one_line(run.reason, _REASON_WIDTH),
        ]
        for run in runs
    ]
    header = ["batch", "time (UTC)", "profile", "repeat", "status", "score", "changed", "reason"]
    # Columns that say nothing would push the reason into a table of its own.
    shows = {
        "profile": len({run.profile for run in runs}) > 1,
        "repeat": any(run.repeat for run in runs),
        "changed": any(run.changed for run in runs),
    }
    kept = [at for at, name in enumerate(header) if shows.get(name, True)]
    header, rows = [header[at] for at in kept], [[row[at] for at in kept] for row in rows]
    yield from table_lines(header, rows, [styles.get(run.status, "yellow") for run in runs], preview="reason")
