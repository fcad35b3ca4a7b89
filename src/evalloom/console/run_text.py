"""What `evalloom run` prints: the summary, the worst failures with expected and actual, and what to type next."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from evalloom.analysis.tally import STATUSES, Figures
from evalloom.core.model import ABSENT, Mismatch, Record, Run, Scored, Verdict
from evalloom.core.text import one_line, pluralize, printable

if TYPE_CHECKING:
    from evalloom.engine.dry_run import DryRun
    from evalloom.engine.results import Results

Line = tuple[str, str]
"""A line to print, and the style it has on a terminal."""

_SHOWN = 5
_SHOWN_MISMATCHES = 3
_MESSAGE_WIDTH = 400
_STYLES = {"passed": "green", "failed": "red", "error": "magenta"}


def print_lines(lines: Iterable[Line]) -> None:
    """Prints lines on stdout, in colour on a terminal."""
    if not sys.stdout.isatty():
        for text, _ in lines:
            click.echo(text)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for text, style in lines:
        console.print(Text(text, style=style))


def result_lines(results: Results, next_step: str = "") -> Iterator[Line]:
    """Everything there is to say about a batch; at the end `next_step`, or else what there usually is to do next."""
    failures = results.worst()[:_SHOWN]
    for run, scored in failures:
        yield from run_lines(run, scored)
    summary = results.summary
    missed = summary.failed + summary.error
    if missed > len(failures):
        yield f"… and {missed - len(failures)} more that failed", "dim"
    if missed:
        yield "", ""
    yield from _table(results)
    yield from _spent(summary)
    for (status, reason), number in list(results.not_scored().items())[:_SHOWN]:
        yield f"{status} {number}: {one_line(reason, _MESSAGE_WIDTH)}", "yellow"
    for gate in results.gates:
        word, style = ("holds", "green") if gate.holds else ("does not hold", "bold red")
        yield printable(f"gate {gate.text}: {word} ({gate.reason})"), style
    yield from _closing(results, next_step)


def run_lines(run: Run, scored: Scored, with_trace: bool = False) -> Iterator[Line]:
    """One run: how it ended, what was not as expected, what came out; with everything that was sent when asked for."""
    profile = f" · {run.profile}" if run.profile else ""
    repeat = f" · repeat {run.repeat + 1}" if run.repeat else ""
    head = (
        f"{scored.status.upper()} {printable(run.case_id)}{printable(profile)}{repeat}   {printable(str(run.origin))}"
    )
    yield head, _STYLES.get(scored.status, "yellow")
    if run.error:
        yield f"    {one_line(run.error, _MESSAGE_WIDTH)}", ""
    if scored.step:
        why = next((one["error"] for one in run.trace if one.get("step") == scored.step and "error" in one), "")
        told = f": {one_line(why, _MESSAGE_WIDTH)}" if why else ""
        yield f"    first went wrong at step {printable(repr(scored.step))}{told}", "bold"
    for verdict in scored.verdicts:
        if verdict.status != "passed" or with_trace:
            yield from _verdict_lines(verdict, len(verdict.mismatches) if with_trace else _SHOWN_MISMATCHES)
    if scored.status == "failed" and scored.score is not None and all(v.status != "failed" for v in scored.verdicts):
        yield f"    the score of the case, {scored.score:.3g}, is below its threshold", ""
    if not (run.error or run.skipped or run.blocked):
        yield f"    output: {_value(run.output.value)}", "dim"
    if with_trace:
        yield f"    took {run.duration_s:.3f} s, {pluralize(run.usage.tokens, 'token')}", "dim"
        yield from _trace_lines(run)


def _trace_lines(run: Run) -> Iterator[Line]:
    for entry in run.trace:
        yield f"    trace: {printable(_entry_head(entry))}", "bold"
        text = json.dumps(entry, ensure_ascii=False, indent=2, default=str)
        for line in text.splitlines():
            yield f"      {printable(line)}", "dim"


def _entry_head(entry: Record) -> str:
    """What an entry of the trace is about; a step also says how it fared."""
    if entry.get("type") != "step" or "step" not in entry:
        return str(entry.get("type"))
    told = [str(entry.get("status")), *([seconds(entry["duration_s"])] if "duration_s" in entry else [])]
    told += [pluralize(entry["items"], "item")] if "items" in entry else []
    told += [f"{entry['failed_items']} failed"] if "failed_items" in entry else []
    told += [pluralize(entry["tokens"], "token")] if "tokens" in entry else []
    return f"step {entry['step']!r}: {', '.join(told)}"


def _verdict_lines(verdict: Verdict, shown: int) -> Iterator[Line]:
    word = "" if verdict.status == "failed" else f" {verdict.status}"
    follows = f" (follows from step {verdict.follows!r})" if verdict.follows else ""
    differ = len(verdict.mismatches)
    reason = f"{differ} differences" if differ > 1 else one_line(verdict.reason)
    yield f"    {printable(verdict.name)}{word}{printable(follows)}: {reason or 'as expected'}", ""
    if differ > 1:
        yield from ((f"      {_mismatch(mismatch)}", "") for mismatch in verdict.mismatches[:shown])
    if differ > max(shown, 1):
        yield f"      … and {differ - shown} more differences", "dim"


def _mismatch(mismatch: Mismatch) -> str:
    where = f"{printable(mismatch.path)}: " if mismatch.path else ""
    return f"{where}expected {_side(mismatch.expected)}, got {_side(mismatch.actual)}"


def _side(value: Any) -> str:
    return "nothing" if value == ABSENT else _value(value)


def _table(results: Results) -> Iterator[Line]:
    """One row per profile, with the columns that say something."""
    profiles = results.summary.profiles
    shown = [status for status in STATUSES if status in ("passed", "failed") or getattr(results.summary, status)]
    header = ["profile", "runs", *shown, "pass rate", "95 % interval", "p50", "p95"]
    rows = [
        [
            name or "-",
            str(one.total),
            *(str(getattr(one, status)) for status in shown),
            *_rates(one),
            seconds(one.p50_latency_s),
            seconds(one.p95_latency_s),
        ]
        for name, one in profiles.items()
    ]
    yield from table_lines(header, rows)


def table_lines(header: list[str], rows: list[list[str]]) -> Iterator[Line]:
    """A table with a header; all columns but the first are put to the right when they hold numbers."""
    table = [[printable(cell) for cell in row] for row in [header, *rows]]
    widths = [max(_cells(row[at]) for row in table) for at in range(len(header))]
    right = [all(row[at][:1].isdigit() or row[at][:1] in "-?" for row in table[1:]) for at in range(len(header))]
    for number, row in enumerate(table):
        cells = [_padded(cell, widths[at], at == 0 or not right[at]) for at, cell in enumerate(row)]
        yield "  ".join(cells).rstrip(), "" if number else "bold"


def _rates(figures: Figures) -> tuple[str, str]:
    if figures.pass_rate is None:
        return "-", "-"
    return f"{figures.pass_rate:.1%}", f"{figures.pass_rate_low:.1%} – {figures.pass_rate_high:.1%}"


def _spent(figures: Figures) -> Iterator[Line]:
    parts = [f"{figures.duration_s:.1f} s", pluralize(figures.tokens, "token")]
    if figures.cost or not figures.unpriced:
        parts.append(f"cost {figures.cost:.4g}")
    if figures.unpriced:
        parts.append(f"{pluralize(figures.unpriced, 'call')} without a price")
    if figures.cached:
        parts.append(f"{figures.cached} from the cache")
    if figures.retries:
        parts.append("1 retry" if figures.retries == 1 else f"{figures.retries:,} retries")
    yield " · ".join(parts), "dim"


def _closing(results: Results, next_step: str) -> Iterator[Line]:
    batch = results.summary.batch
    yield f"The record: {results.path.as_posix()}", ""
    if results.stopped:
        yield f"Stopped: {results.stopped}. What was finished is kept. Go on with the same command and --resume", "bold"
    elif next_step:
        yield next_step, ""
    elif results.summary.error:
        yield "Next: the same command with --resume --retry-errors runs again what ended in an error", ""
    elif results.summary.failed:
        yield f"Next: evalloom batches show {batch} --status failed", ""
    elif results.could_not_score:
        yield f"Nothing could be scored; the reasons stand above. Then: evalloom score {batch}", "bold"
    elif results.summary.unscored and not results.summary.passed:
        yield (
            f"Next: nothing is expected of these cases. Add some, or: evalloom score {batch} --checks FILE",
            "",
        )
    else:
        yield f"Next: evalloom batches show {batch}", ""


def dry_run_lines(ahead: DryRun) -> Iterator[Line]:
    """What would be run."""
    yield f"target    {printable(ahead.target)}", ""
    yield f"profiles  {printable(', '.join(ahead.profiles))}", ""
    there = f", {ahead.done_before} of them in {ahead.batch} already" if ahead.done_before else ""
    yield f"runs      {ahead.total}{there}; {ahead.to_run} to run", "bold"
    if ahead.skipped:
        yield f"skipped   {ahead.skipped} of them, by their conditions", ""
    if ahead.errors:
        yield f"errors    {ahead.errors} of them before anything is sent: {one_line(ahead.first_error)}", "red"
    if ahead.tokens_low is None:
        yield "cost      unknown: only a prompt can be estimated without calling it", ""
        return
    yield f"tokens    {ahead.tokens_low} to {ahead.tokens_high}, estimated", ""
    if ahead.cost_low is None:
        yield "cost      unknown: give the llm a price in evalloom.yaml", ""
    else:
        yield f"cost      {ahead.cost_low:.4g} to {ahead.cost_high:.4g}, estimated", ""


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return one_line(repr(text) if isinstance(value, str) else text)


def seconds(value: float | None) -> str:
    """A time as people read it."""
    if value is None:
        return "-"
    return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms" if value >= 1e-6 else "0 ms"


def _cells(text: str) -> int:
    """How wide a text is on a terminal: Chinese characters take two cells."""
    from unicodedata import east_asian_width

    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def _padded(text: str, width: int, is_left: bool) -> str:
    space = " " * (width - _cells(text))
    return text + space if is_left else space + text
