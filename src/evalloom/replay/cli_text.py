"""What `evalloom replay` prints: how the rows fared, where they failed, what drifted, and what to type next."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from shlex import quote as quote_word

from msgspec import Struct, field

from evalloom.console.run_text import Line, seconds, short, table_lines
from evalloom.replay.compare import Beside, ReplayComparison, RowComparison, SegmentChange
from evalloom.replay.recipe.trace import Answered, Message, RunError, RunRecord, Segment
from evalloom.replay.service import ReplaySummary
from evalloom.reports.lint import printable, tell

ROWS_SHOWN = 10
"""How many rows that drift are shown with their diff."""
_TROUBLES_SHOWN = 20
_NAMES_SHOWN = 20
_DIFF_SHOWN = 20
_WIDTH = 200
_STYLES = {"succeeded": "green", "failed": "red", "passed": "green", "error": "magenta"}
_DIFF_STYLES = {"-": "red", "+": "green", "@": "cyan", " ": "dim"}
_SEVERITY_STYLES = {"info": "dim", "warn": "yellow", "error": "red"}


class Seen(Struct):
    """What the records of a replay come to. Rows with the same trouble are told together."""

    failed: dict[str, list[int]] = field(default_factory=dict)
    unmet: dict[str, list[int]] = field(default_factory=dict)
    cut: list[int] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    to_see: str = ""
    """The first run that is worth a look."""

    @property
    def is_bad(self) -> bool:
        """Whether an answer is not what its row expects, or did not come."""
        return bool(self.answers["failed"] or self.answers["error"])


def look_over(records: Iterable[RunRecord]) -> Seen:
    """Counts what there is to tell of a replay, in one pass."""
    seen = Seen()
    for record in records:
        seen.missing.update({name for segment in record.trace.segments for name in segment.missing_variables})
        if record.trace.truncated:
            seen.cut.append(record.row_index)
        troubles = [(_told(error), seen.failed) for error in record.errors]
        if model := record.trace.model:
            seen.answers[model.status] += 1
            troubles += [(reason, seen.unmet) for reason in _reasons(model)]
        for text, where in troubles:
            where.setdefault(text, []).append(record.row_index)
            seen.to_see = seen.to_see or record.run_id
    return seen


# -- a replay -----------------------------------------------------------------------------------------


def replay_lines(replay: ReplaySummary, seen: Seen, data_dir: str) -> Iterator[Line]:
    """Everything there is to say about a replay."""
    counts = f"{tell(replay.row_count, 'row')}, {replay.succeeded:,} succeeded, {replay.failed:,} failed"
    yield counts, "bold red" if replay.failed else "bold green"
    yield from _trouble_lines(seen.failed)
    yield from _missing_lines(seen.missing)
    if seen.cut:
        rows = f"{tell(len(seen.cut), 'row')} ({_ranges(seen.cut)})"
        yield f"Cut at 20,000 bytes: {rows}. A change behind the cut does not change the digest", "yellow"
    if replay.profile:
        yield from _answer_lines(replay.profile, seen)
    yield from _next_lines(replay, seen, data_dir)


def _trouble_lines(troubles: dict[str, list[int]]) -> Iterator[Line]:
    """Each trouble once, with the rows that have it."""
    for text, rows in [*troubles.items()][:_TROUBLES_SHOWN]:
        yield f"  row {_ranges(rows)}: {short(text, _WIDTH)}", "red"
    if len(troubles) > _TROUBLES_SHOWN:
        yield f"  … and {len(troubles) - _TROUBLES_SHOWN:,} other errors; -o FILE writes all of them", "dim"


def _told(error: RunError) -> str:
    """Why a run failed, and where."""
    code = f" [{error.error_code}]" if error.error_code else ""
    places = [f"variable {error.variable_id!r}"] * bool(error.variable_id)
    places += [f"node {error.node_id!r}"] * bool(error.node_id)
    return f"{', '.join(places)}{': ' if places else ''}{error.message}{code}"


def _missing_lines(missing: Counter[str]) -> Iterator[Line]:
    if missing:
        yield "Missing variables, which stay in the text as they are written:", "yellow"
    # Most often first, then by name, so that the same replay prints the same lines.
    for name, number in sorted(missing.items(), key=lambda one: (-one[1], one[0]))[:_NAMES_SHOWN]:
        yield f"  {short(name)}: {tell(number, 'row')}", ""
    if len(missing) > _NAMES_SHOWN:
        yield f"  … and {len(missing) - _NAMES_SHOWN:,} more names", "dim"


def _answer_lines(profile: str, seen: Seen) -> Iterator[Line]:
    counts = seen.answers
    words = ("passed", "failed", "error", "unscored")
    told = [f"{counts[word]:,} {word}" for word in words if counts[word] or word == "passed"]
    style = "bold red" if seen.is_bad else "bold green"
    yield f"{printable(profile)} was asked {tell(counts.total(), 'time')}: {', '.join(told)}", style
    yield from _trouble_lines(seen.unmet)


def _reasons(model: Answered) -> list[str]:
    """What is wrong with an answer, or with what is expected of it."""
    if model.error:
        return [model.error]
    return [f"{check.name}: {check.reason or check.status}" for check in model.checks if check.status != "passed"]


def _next_lines(replay: ReplaySummary, seen: Seen, data_dir: str) -> Iterator[Line]:
    at = _at(data_dir)
    if not replay.row_count:
        yield f"Nothing is kept: the dataset has no row {replay.offset}", ""
        return
    yield f"Kept as replay {printable(replay.replay_id)}", ""
    if seen.to_see:
        yield f"Next: evalloom replay show {printable(seen.to_see)}{at}", ""
    else:
        yield f"Next: change the recipe, replay it, and see what drifts: evalloom replay compare{at}", ""


def _at(data_dir: str) -> str:
    """What a next command has to say to find the same folder."""
    return f" --data-dir {quote_word(printable(data_dir))}" if data_dir else ""


# -- the list -----------------------------------------------------------------------------------------


def list_lines(replays: list[ReplaySummary]) -> Iterator[Line]:
    """One line per replay."""
    if not replays:
        yield "There is no replay yet: 'evalloom replay --project FILE --dataset FILE' makes one.", ""
        return
    header = ["replay", "created", "project", "dataset", "profile", "rows", "succeeded", "failed"]
    yield from table_lines(header, [_cells(one) for one in replays])


def _cells(one: ReplaySummary) -> list[str]:
    names = [one.replay_id, one.created_at, one.project_id, one.dataset_id, one.profile or "none"]
    return [*names, str(one.row_count), str(one.succeeded), str(one.failed)]


# -- one run ------------------------------------------------------------------------------------------


def run_lines(record: RunRecord) -> Iterator[Line]:
    """One run: how it ended, each segment as it was assembled, its variables, and what a model said to it."""
    style = _STYLES[record.status]
    yield f"{record.status.upper()} {printable(record.run_id)}   row {record.row_index}, {record.created_at}", style
    yield f"project {printable(record.project_id)}, dataset {printable(record.dataset_id)}", "dim"
    yield f"digest  {printable(record.output_digest)}", "dim"
    for error in record.errors:
        yield f"  {short(_told(error), _WIDTH)}", "red"
    for segment in record.trace.segments:
        yield from _segment_lines(segment)
    if record.trace.truncated:
        yield "The text is cut off after 20,000 bytes.", "yellow"
    if record.trace.messages:
        yield "Variables and messages:", "bold"
    for message in record.trace.messages:
        yield f"  {_message(message)}", _SEVERITY_STYLES[message.severity]
    if record.trace.model:
        yield from _model_lines(record.trace.model)


def _segment_lines(segment: Segment) -> Iterator[Line]:
    missing = f", missing: {', '.join(segment.missing_variables)}" if segment.missing_variables else ""
    cut = ", cut off" if segment.truncated else ""
    head = f"--- {segment.label} --- ({segment.kind}, node {segment.node_id}{missing}{cut})"
    yield printable(head), "bold yellow" if missing else "bold"
    for line in segment.rendered.split("\n"):
        yield f"  {printable(line)}", ""


def _message(message: Message) -> str:
    details = message.details
    size, took = details.get("valueBytes"), details.get("durationMs")
    told = [short(message.message, _WIDTH)]
    told += [tell(size, "byte")] if isinstance(size, int) and message.severity != "error" else []
    told += [seconds(took / 1000)] if isinstance(took, int | float) and took else []
    return f"{', '.join(told)} [{printable(message.code)}]"


def _model_lines(model: Answered) -> Iterator[Line]:
    yield f"Answer of {printable(model.profile)} ({model.status}):", "bold"
    for line in (model.error or model.answer).split("\n"):
        yield f"  {printable(line)}", "red" if model.error else ""
    for check in model.checks:
        reason = f": {short(check.reason, _WIDTH)}" if check.reason else ""
        yield f"  {check.status}  {printable(check.name)}{reason}", _STYLES.get(check.status, "yellow")


# -- a comparison -------------------------------------------------------------------------------------


class Compared(Struct, frozen=True):
    """Two replays, and what there is to tell of them beside the rows that drift."""

    result: ReplayComparison
    what: tuple[str, str]
    """Which recipe and which rows, on each side."""
    new: list[int]
    gone: list[int]
    beside: Beside
    data_dir: str = ""


def compared_lines(told: Compared) -> Iterator[Line]:
    """The verdict, the rows with what changed in them, then which rows only one of the sides has."""
    compared, new, gone = told.result, told.new, told.gone
    is_stable = not (compared.drift or new or gone)
    word, style = ("STABLE", "bold green") if is_stable else ("DRIFT", "bold red")
    counts = f"{compared.drift:,} drift, {compared.new:,} new, {compared.gone:,} gone"
    yield f"{word}: {tell(compared.stable, 'row')} stable, {counts}", style
    yield f"  {printable(compared.a)} → {printable(compared.b)}", "dim"
    if told.what[0] != told.what[1]:
        yield f"  not the same: {printable(told.what[0])} → {printable(told.what[1])}", "yellow"
    shown: dict[tuple[str, ...], int] = {}
    for row in compared.rows:
        changed = tuple(line for line in row.diff if line[0] in "+-")
        yield from _row_lines(row, shown.setdefault(changed, row.row_index))
    if compared.drift > len(compared.rows):
        yield f"… and {compared.drift - len(compared.rows):,} more that drift; --json has them", "dim"
    for name, rows in (("new", new), ("gone", gone)):
        if rows:
            yield f"{name}: row {_ranges(rows)}", "yellow"
    if told.beside.cut:
        cut = _ranges(told.beside.cut)
        yield f"stable as far as can be told: row {cut}, cut at 20,000 bytes on both sides", "yellow"
    if told.beside.answers:
        yield f"another answer: row {_ranges(told.beside.answers)}", "yellow"
    run = next((row.b for row in compared.rows if row.b), None)
    # A run out of a file need not be kept here.
    if run and not os.path.isfile(compared.b):
        yield f"Next: evalloom replay show {printable(run.run_id)}{_at(told.data_dir)}", ""


def _row_lines(row: RowComparison, as_in: int) -> Iterator[Line]:
    """A row and its diff; `as_in` is the first row with the same lines in it, which shows them for all."""
    turned = f", {row.a.status} → {row.b.status}" if row.a and row.b and row.a.status != row.b.status else ""
    changes = f": {', '.join(map(_change, row.segments))}" if row.segments else ""
    same = f", as in row {as_in}" if as_in != row.row_index else ""
    yield f"row {row.row_index} {row.status}{turned}{short(changes, _WIDTH)}{same}", "red"
    if same:
        return
    for line in row.diff[:_DIFF_SHOWN]:
        yield f"    {_cut(line)}", _DIFF_STYLES[line[0]]
    if len(row.diff) > _DIFF_SHOWN:
        yield f"    … and {len(row.diff) - _DIFF_SHOWN:,} more lines", "dim"


def _ranges(rows: list[int]) -> str:
    """Rows that follow one another as one: `3, 5–9, 12`."""
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
    # The spaces of a line may be what changed, so they stay; cut before and after, since escapes make it longer.
    plain = printable(line[:_WIDTH])
    return plain if len(line) <= _WIDTH else f"{plain[: _WIDTH - 1]}…"
