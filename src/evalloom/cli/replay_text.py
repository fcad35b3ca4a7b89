"""What `evalloom replay` prints: how the rows fared, where they failed, what drifted, and what to type next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from shlex import quote as quote_word

from msgspec import Struct, field

from evalloom.analyse.replay import ReplayComparison, RowComparison, SegmentChange
from evalloom.cli.run_text import Line, seconds, short, table_lines
from evalloom.reports.lint import printable, tell
from evalloom.targets.recipe_trace import Answered, Message, RunError, RunRecord, Segment
from evalloom.workbench.replay import ReplaySummary

ROWS_SHOWN = 10
"""How many rows that drift are shown with their diff."""
_FAILED_SHOWN = 20
_ERRORS_SHOWN = 3
"""Of one row: a variable that many nodes use fails at each of them."""
_NAMES_SHOWN = 20
_DIFF_SHOWN = 20
_WIDTH = 200
_STYLES = {"succeeded": "green", "failed": "red", "passed": "green", "error": "magenta"}
_DIFF_STYLES = {"-": "red", "+": "green", "@": "cyan", " ": "dim"}
_SEVERITY_STYLES = {"info": "dim", "warn": "yellow", "error": "red"}


class Seen(Struct):
    """What the records of a replay come to; only the first rows of each kind are kept."""

    failed: list[RunRecord] = field(default_factory=list)
    unmet: list[RunRecord] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)

    @property
    def is_bad(self) -> bool:
        """Whether an answer is not what its row expects, or did not come."""
        return bool(self.answers["failed"] or self.answers["error"])


def look_over(records: Iterable[RunRecord]) -> Seen:
    """Counts what there is to tell of a replay, in one pass."""
    seen = Seen()
    for record in records:
        seen.missing.update({name for segment in record.trace.segments for name in segment.missing_variables})
        if record.status == "failed" and len(seen.failed) < _FAILED_SHOWN:
            seen.failed.append(record)
        model = record.trace.model
        if model is None:
            continue
        seen.answers[model.status] += 1
        if model.status in ("failed", "error") and len(seen.unmet) < _FAILED_SHOWN:
            seen.unmet.append(record)
    return seen


# -- a replay -----------------------------------------------------------------------------------------


def replay_lines(replay: ReplaySummary, seen: Seen, data_dir: str) -> Iterator[Line]:
    """Everything there is to say about a replay."""
    counts = f"{tell(replay.row_count, 'row')}, {replay.succeeded:,} succeeded, {replay.failed:,} failed"
    yield counts, "bold red" if replay.failed else "bold green"
    for record in seen.failed:
        yield from _failed_lines(record)
    if replay.failed > len(seen.failed):
        yield f"  … and {replay.failed - len(seen.failed):,} more that failed; --json has them", "dim"
    yield from _missing_lines(seen.missing)
    if replay.profile:
        yield from _answer_lines(replay.profile, seen)
    yield from _next_lines(replay, seen, data_dir)


def _failed_lines(record: RunRecord) -> Iterator[Line]:
    for error in record.errors[:_ERRORS_SHOWN]:
        yield f"  row {record.row_index}: {short(_told(error), _WIDTH)}", "red"
    if len(record.errors) > _ERRORS_SHOWN:
        yield f"  row {record.row_index}: … and {len(record.errors) - _ERRORS_SHOWN:,} more errors", "dim"


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
    words = {"passed": "passed", "failed": "failed", "error": "ended in an error", "unscored": "unscored"}
    told = ", ".join(
        f"{counts[status]:,} {word}" for status, word in words.items() if counts[status] or status == "passed"
    )
    style = "bold red" if seen.is_bad else "bold green"
    yield f"{printable(profile)} gave {tell(counts.total(), 'answer')}: {told}", style
    for record in seen.unmet:
        for reason in _reasons(record.trace.model):
            yield f"  row {record.row_index}: {short(reason, _WIDTH)}", "red"
    left = counts["failed"] + counts["error"] - len(seen.unmet)
    if left > 0:
        yield f"  … and {left:,} more", "dim"


def _reasons(model: Answered | None) -> list[str]:
    """What is wrong with an answer."""
    if model is None or model.error:
        return [model.error] if model else []
    return [f"{check.name}: {check.reason or check.status}" for check in model.checks if check.status != "passed"]


def _next_lines(replay: ReplaySummary, seen: Seen, data_dir: str) -> Iterator[Line]:
    at = _at(data_dir)
    yield f"Kept as replay {printable(replay.replay_id)}", ""
    to_see = [*seen.failed, *seen.unmet]
    if to_see:
        yield f"Next: evalloom replay show {printable(to_see[0].run_id)}{at}", ""
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
    # A message of a resolver is about its target; the reader looks for the variable.
    name = f"{details.get('variableName')}: " if message.severity == "error" and "variableName" in details else ""
    told = [short(f"{name}{message.message}", _WIDTH)]
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


def compared_lines(compared: ReplayComparison, new: list[int], gone: list[int], data_dir: str = "") -> Iterator[Line]:
    """The verdict, the rows of `compared` with what changed in them, then which rows only one of the sides has."""
    is_stable = not (compared.drift or new or gone)
    word, style = ("STABLE", "bold green") if is_stable else ("DRIFT", "bold red")
    counts = f"{compared.drift:,} drift, {compared.new:,} new, {compared.gone:,} gone"
    yield f"{word}: {tell(compared.stable, 'row')} stable, {counts}", style
    yield f"  {printable(compared.a)} → {printable(compared.b)}", "dim"
    shown: dict[tuple[str, ...], int] = {}
    for row in compared.rows:
        changed = tuple(line for line in row.diff if line[0] in "+-")
        yield from _row_lines(row, shown.setdefault(changed, row.row_index))
    if compared.drift > len(compared.rows):
        yield f"… and {compared.drift - len(compared.rows):,} more that drift; --json has them", "dim"
    for name, rows in (("new", new), ("gone", gone)):
        if rows:
            yield f"{name}: row {_ranges(rows)}", "yellow"
    run = next((row.b for row in compared.rows if row.b), None)
    # A run out of a file need not be kept here.
    if run and not Path(compared.b).suffix:
        yield f"Next: evalloom replay show {printable(run.run_id)}{_at(data_dir)}", ""


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
