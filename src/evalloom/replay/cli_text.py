"""Formats the output of `evalloom replay`: row counts, errors, drift and the next command."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from shlex import quote as quote_word

from msgspec import Struct, field

from evalloom.console.layout import Line, Verbatim, command_lines, seconds, table_lines, unbroken
from evalloom.core.text import one_line, pluralize, printable
from evalloom.replay.compare import OutcomeComparison, ReplayComparison, RowComparison, SegmentChange
from evalloom.replay.recipe.trace import Answered, Message, RunError, RunRecord, Segment
from evalloom.replay.service import ReplaySummary, state_text

ROWS_SHOWN = 10
"""Drifting rows shown with their diff."""
_ERRORS_SHOWN = 20
_NAMES_SHOWN = 20
_NODES_SHOWN = 5
_LEFT_OUT_SHOWN = 3
_DIFF_SHOWN = 20
_WIDTH = 200
_STYLES = {"succeeded": "green", "failed": "red", "passed": "green", "error": "magenta"}
_DIFF_STYLES = {"-": "red", "+": "green", "@": "cyan", " ": "dim"}
_SEVERITY_STYLES = {"info": "dim", "warn": "yellow", "error": "red"}


class RecordStats(Struct):
    """Statistics over the records of a replay; rows with the same error are grouped."""

    failed: dict[str, list[int]] = field(default_factory=dict)
    unmet: dict[str, list[int]] = field(default_factory=dict)
    cut: list[int] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    first_failed_run: str = ""
    """The id of the first run with an error."""

    @property
    def is_bad(self) -> bool:
        """Whether an answer misses its expectations or is missing."""
        return bool(self.answers["failed"] or self.answers["error"])


def collect_stats(records: Iterable[RunRecord]) -> RecordStats:
    """Collect the statistics of a replay in one pass."""
    stats = RecordStats()
    for record in records:
        stats.missing.update({name for segment in record.trace.segments for name in segment.missing_variables})
        if record.trace.truncated:
            stats.cut.append(record.row_index)
        errors_by_text = [(text, stats.failed) for text in _error_texts(record.errors)]
        if model := record.trace.model:
            stats.answers[model.status] += 1
            errors_by_text += [(reason, stats.unmet) for reason in _reasons(model)]
        for text, where in errors_by_text:
            where.setdefault(text, []).append(record.row_index)
            stats.first_failed_run = stats.first_failed_run or record.run_id
    return stats


# -- a replay -----------------------------------------------------------------------------------------


def replay_lines(replay: ReplaySummary, stats: RecordStats, data_dir: str) -> Iterator[Line]:
    """Format the summary of a replay."""
    counts = f"{pluralize(replay.row_count, 'row')}, {replay.succeeded:,} succeeded, {replay.failed:,} failed"
    yield counts, "bold red" if replay.failed else "bold green"
    yield from _error_lines(stats.failed)
    yield from _missing_lines(stats.missing)
    if stats.cut:
        rows = f"{pluralize(len(stats.cut), 'row')} ({_ranges(stats.cut)})"
        yield f"Cut at 20,000 bytes: {rows}. A change behind the cut does not change the digest", "yellow"
    if replay.profile:
        yield from _answer_lines(replay.profile, stats)
    yield from _next_lines(replay, stats, data_dir)


def _error_lines(errors_by_text: dict[str, list[int]]) -> Iterator[Line]:
    """List each error once, with its rows."""
    for text, rows in [*errors_by_text.items()][:_ERRORS_SHOWN]:
        yield f"  row {_ranges(rows)}: {one_line(text, _WIDTH)}", "red"
    if len(errors_by_text) > _ERRORS_SHOWN:
        yield f"  … and {len(errors_by_text) - _ERRORS_SHOWN:,} other errors; -o FILE writes all of them", "dim"


def _error_texts(errors: Iterable[RunError]) -> list[str]:
    """Format each error once, with its variable and the nodes that it breaks."""
    nodes: dict[tuple[str, str, str], list[str]] = {}
    for error in errors:
        broken = nodes.setdefault((error.error_code, error.message, error.variable_id), [])
        broken += [repr(error.node_id)] * bool(error.node_id)
    return [_error_text(*error, broken) for error, broken in nodes.items()]


def _error_text(code: str, message: str, variable_id: str, nodes: list[str]) -> str:
    places = [f"variable {variable_id!r}"] * bool(variable_id)
    if nodes:
        more = f" and {len(nodes) - _NODES_SHOWN} more" if len(nodes) > _NODES_SHOWN else ""
        places.append(f"{'node' if len(nodes) == 1 else 'nodes'} {', '.join(nodes[:_NODES_SHOWN])}{more}")
    return f"{', '.join(places)}{': ' if places else ''}{message}{f' [{code}]' if code else ''}"


def _missing_lines(missing: Counter[str]) -> Iterator[Line]:
    if missing:
        yield "Missing variables, which stay in the text as they are written:", "yellow"
    # By count, then by name, so that the output is deterministic.
    for name, number in sorted(missing.items(), key=lambda item: (-item[1], item[0]))[:_NAMES_SHOWN]:
        yield f"  {one_line(name)}: {pluralize(number, 'row')}", ""
    if len(missing) > _NAMES_SHOWN:
        yield f"  … and {len(missing) - _NAMES_SHOWN:,} more names", "dim"


def _answer_lines(profile: str, stats: RecordStats) -> Iterator[Line]:
    counts = stats.answers
    words = ("passed", "failed", "error", "unscored")
    parts = [f"{counts[word]:,} {word}" for word in words if counts[word] or word == "passed"]
    style = "bold red" if stats.is_bad else "bold green"
    yield f"{printable(profile)} was asked {pluralize(counts.total(), 'time')}: {', '.join(parts)}", style
    yield from _error_lines(stats.unmet)


def _reasons(model: Answered) -> list[str]:
    """List the reasons why an answer failed its checks."""
    if model.error:
        return [model.error]
    return [f"{check.name}: {check.reason or check.status}" for check in model.checks if check.status != "passed"]


def _next_lines(replay: ReplaySummary, stats: RecordStats, data_dir: str) -> Iterator[Line]:
    flag = _data_dir_flag(data_dir)
    if not replay.row_count:
        yield f"Nothing is kept: the dataset has no row {replay.offset}", ""
        return
    yield f"Kept as replay {printable(replay.replay_id)}", ""
    if stats.first_failed_run:
        yield from command_lines(f"evalloom replay show {printable(stats.first_failed_run)}{flag}", "Next: ")
    else:
        yield f"Next: change the recipe, replay it, then: {unbroken(f'evalloom replay compare{flag}')}", ""


def _data_dir_flag(data_dir: str) -> str:
    """Return the flag that the next command needs to find the same folder."""
    return f" --data-dir {quote_word(printable(data_dir))}" if data_dir else ""


# -- the list -----------------------------------------------------------------------------------------


def list_lines(replays: list[ReplaySummary]) -> Iterator[Line]:
    """Format the list of replays, one per line."""
    if not replays:
        yield "There is no replay yet: 'evalloom replay --project FILE --dataset FILE' makes one.", ""
        return
    has_profile = any(replay.profile for replay in replays)
    header = ["replay", "created", "project", "dataset", *(["profile"] * has_profile), "rows", "failed", "state"]
    rows = [_cells(replay, has_profile) for replay in replays]
    yield from table_lines(header, rows, spare=("profile", "dataset"), whole=("replay",))


def _cells(replay: ReplaySummary, has_profile: bool) -> list[str]:
    created = f"{replay.created_at[:16].replace('T', ' ')}Z"
    names = [replay.replay_id, created, replay.project_id, replay.dataset_id]
    names += [replay.profile or "none"] * has_profile
    is_known = replay.state != "complete" and replay.rows_requested is not None
    state = f"{replay.state} (of {replay.rows_requested:,})" if is_known else replay.state
    return [*names, str(replay.row_count), str(replay.failed), state]


# -- one run ------------------------------------------------------------------------------------------


def run_lines(record: RunRecord) -> Iterator[Line]:
    """Format one run: status, segments, variables and the answer of the model."""
    style = _STYLES[record.status]
    yield f"{record.status.upper()} {printable(record.run_id)}   row {record.row_index}, {record.created_at}", style
    yield f"project {printable(record.project_id)}, dataset {printable(record.dataset_id)}", "dim"
    yield f"digest  {printable(record.output_digest)}", "dim"
    for text in _error_texts(record.errors):
        yield f"  {one_line(text, _WIDTH)}", "red"
    for segment in record.trace.segments:
        yield from _segment_lines(segment)
    if record.trace.truncated:
        yield "The text is cut off after 20,000 bytes.", "yellow"
    # The errors of the run are above, with their nodes.
    above = {(error.error_code, error.message) for error in record.errors}
    messages = [one for one in record.trace.messages if (one.code, one.message) not in above]
    if messages:
        yield "Variables and messages:", "bold"
    for message in messages:
        yield f"  {_message(message)}", _SEVERITY_STYLES[message.severity]
    if record.trace.model:
        yield from _model_lines(record.trace.model)


def _segment_lines(segment: Segment) -> Iterator[Line]:
    missing = f", missing: {', '.join(segment.missing_variables)}" if segment.missing_variables else ""
    cut = ", cut off" if segment.truncated else ""
    head = f"--- {segment.label} --- ({segment.kind}, node {segment.node_id}{missing}{cut})"
    yield printable(head), "bold yellow" if missing else "bold"
    for line in segment.rendered.split("\n"):
        yield Verbatim(f"  {printable(line)}"), ""


def _message(message: Message) -> str:
    details = message.details
    size, took = details.get("valueBytes"), details.get("durationMs")
    parts = [one_line(message.message, _WIDTH)]
    parts += [pluralize(size, "byte")] if isinstance(size, int) and message.severity != "error" else []
    parts += [seconds(took / 1000)] if isinstance(took, int | float) and took else []
    return f"{', '.join(parts)} [{printable(message.code)}]"


def _model_lines(model: Answered) -> Iterator[Line]:
    yield f"Answer of {printable(model.profile)} ({model.status}):", "bold"
    for line in (model.error or model.answer).split("\n"):
        yield Verbatim(f"  {printable(line)}"), "red" if model.error else ""
    for check in model.checks:
        reason = f": {one_line(check.reason, _WIDTH)}" if check.reason else ""
        yield f"  {check.status}  {printable(check.name)}{reason}", _STYLES.get(check.status, "yellow")


# -- a comparison -------------------------------------------------------------------------------------


class ComparisonView(Struct, frozen=True):
    """A comparison of two replays as it is printed."""

    result: ReplayComparison
    what: tuple[str, str]
    """Recipe and dataset of each side."""
    new: list[int]
    gone: list[int]
    outcomes: OutcomeComparison
    notes: tuple[str, ...] = ()
    """Statements about replays that are not complete."""
    data_dir: str = ""


def incomplete_notes(replays: Iterable[ReplaySummary]) -> Iterator[str]:
    """Warn about compared replays that are not complete."""
    return (f"{state_text(replay)}: rows that it lacks are new or gone" for replay in replays)


def left_out_notes(replays: list[ReplaySummary]) -> Iterator[str]:
    """Say which replays were not chosen."""
    for replay in replays[:_LEFT_OUT_SHOWN]:
        yield f"left out: {state_text(replay)}; name it to compare it"
    if len(replays) > _LEFT_OUT_SHOWN:
        yield f"left out: {len(replays) - _LEFT_OUT_SHOWN:,} more that are not complete"


def comparison_lines(view: ComparisonView) -> Iterator[Line]:
    """Format a comparison: the conclusion, the drifting rows with their diffs, then rows of one side only."""
    compared, new, gone = view.result, view.new, view.gone
    is_stable = not (compared.drift or new or gone)
    word, style = ("STABLE", "bold green") if is_stable else ("DRIFT", "bold red")
    counts = f"{compared.drift:,} drift, {compared.new:,} new, {compared.gone:,} gone"
    yield f"{word}: {pluralize(compared.stable, 'row')} stable, {counts}", style
    yield f"  {printable(compared.a)} → {printable(compared.b)}", "dim"
    if view.what[0] != view.what[1]:
        yield f"  not the same: {printable(view.what[0])} → {printable(view.what[1])}", "yellow"
    yield from ((f"  {printable(note)}", "yellow") for note in view.notes)
    shown: dict[tuple[str, ...], int] = {}
    for row in compared.rows:
        changed = tuple(line for line in row.diff if line[0] in "+-")
        yield from _row_lines(row, shown.setdefault(changed, row.row_index))
    if compared.drift > len(compared.rows):
        yield f"… and {compared.drift - len(compared.rows):,} more that drift; --json has them", "dim"
    for name, rows in (("new", new), ("gone", gone)):
        if rows:
            yield f"{name}: row {_ranges(rows)}", "yellow"
    if view.outcomes.cut:
        cut = _ranges(view.outcomes.cut)
        yield f"stable as far as can be told: row {cut}, cut at 20,000 bytes on both sides", "yellow"
    if view.outcomes.answers:
        yield f"another answer: row {_ranges(view.outcomes.answers)}", "yellow"
    run = next((row.b for row in compared.rows if row.b), None)
    # A run from a file may not be in this store.
    if run and not os.path.isfile(compared.b):
        command = f"evalloom replay show {printable(run.run_id)}{_data_dir_flag(view.data_dir)}"
        yield from command_lines(command, "Next: ")


def _row_lines(row: RowComparison, as_in: int) -> Iterator[Line]:
    """Format a row with its diff; `as_in` is the first row with the same changes, which shows them for all."""
    turned = f", {row.a.status} → {row.b.status}" if row.a and row.b and row.a.status != row.b.status else ""
    changes = f": {', '.join(map(_change, row.segments))}" if row.segments else ""
    same = f", as in row {as_in}" if as_in != row.row_index else ""
    yield f"row {row.row_index} {row.status}{turned}{one_line(changes, _WIDTH)}{same}", "red"
    if same:
        return
    for line in row.diff[:_DIFF_SHOWN]:
        yield Verbatim(f"    {_cut(line)}"), _DIFF_STYLES[line[0]]
    if len(row.diff) > _DIFF_SHOWN:
        yield f"    … and {len(row.diff) - _DIFF_SHOWN:,} more lines", "dim"


def _ranges(rows: list[int]) -> str:
    """Format row numbers as ranges: `3, 5–9, 12`."""
    runs: list[list[int]] = []
    for row in rows:
        if runs and runs[-1][-1] == row - 1:
            runs[-1][1:] = [row]
        else:
            runs.append([row])
    shown = ", ".join("–".join(map(str, run)) for run in runs[:_NAMES_SHOWN])
    return shown if len(runs) <= _NAMES_SHOWN else f"{shown}, …"


def _change(change: SegmentChange) -> str:
    return f"{change.label} {change.change}"


def _cut(line: str) -> str:
    # Keep spaces, which may be the change. Cut twice, because escaping makes the line longer.
    plain = printable(line[:_WIDTH])
    return plain if len(line) <= _WIDTH else f"{plain[: _WIDTH - 1]}…"
