"""Replays a recipe and rows that lie in files, and finds the replays that are to be compared: no server needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from evalloom.dialects.dataset import Dataset
from evalloom.errors import usage_error
from evalloom.files.read import RowReader
from evalloom.files.rows import Problem, Row
from evalloom.files.source import Source, source_of
from evalloom.model import Record, quote, type_name
from evalloom.record.replay_store import WINDOW, Replay, ReplayCounts
from evalloom.targets import recipe as recipes
from evalloom.targets.recipe import Assembled, RecipeFault
from evalloom.targets.recipe_trace import RunRecord, RunSummary
from evalloom.workbench.loop import run_loop
from evalloom.workbench.plan import spooled
from evalloom.workbench.replay import Desk, Going, ReplaySummary, new_replay_id, now, summary_of

_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_MOST_TOLD = 10


class FileReplay:
    """A replay of files that is over, as it was kept."""

    def __init__(self, replay: ReplaySummary, desk: Desk) -> None:
        self.replay = replay
        self._desk = desk

    def summaries(self) -> Iterator[RunSummary]:
        return self._desk.store.summaries(self.replay.replay_id)

    def records(self) -> Iterator[RunRecord]:
        return self._desk.store.records(self.replay.replay_id)


def replay_files(
    project: Path,
    dataset: str,
    desk: Desk,
    limit: int | None = None,
    offset: int = 0,
    profile: str = "",
    progress: Callable[[int], None] = lambda done: None,
) -> FileReplay:
    """Replays the rows of a file through the recipe in another, and keeps a record of each."""
    name, state = _read_project(project, desk)
    source = spooled(source_of(dataset))
    _refuse_broken(source)
    replay = Replay(new_replay_id(), _id_of(Path(source.name).stem, "rows"), name, now(), profile)
    digest = sha256(msgspec.json.encode(state)).hexdigest()
    going = Going(desk, replay, digest, recipes.read(state), range(0))
    rows = islice(_rows(source, desk), offset, None if limit is None else offset + limit)
    run_loop(_go(going, rows, offset, desk, progress))
    kept = desk.store.replay(replay.id)
    # Without a row there is nothing to keep.
    return FileReplay(summary_of(kept or ReplayCounts(replay, offset, 0, 0)), desk)


async def _go(
    going: Going, rows: Iterator[tuple[Any, Assembled | None]], first: int, desk: Desk, progress: Callable[[int], None]
) -> None:
    asker = desk.asker(going.replay.profile) if going.replay.profile else None
    done = 0
    try:
        while window := list(islice(rows, WINDOW)):
            given = [row for row, failed in window if failed is None]
            assembled = going.assemble(given)
            made = [failed or next(assembled) for _, failed in window]
            if asker is not None:
                made = await asker.ask(going.recipe.parts, [row for row, _ in window], made)
            going.keep(first + done, made)
            done += len(window)
            progress(done)
    finally:
        if asker is not None:
            await asker.close()


def _read_project(path: Path, desk: Desk) -> tuple[str, Record]:
    """Id and state of the project in a file; the file may also hold a state alone."""
    row = _only_row(path)
    body: Record = row.value
    state, prefix = (body, "") if "state" not in body and "nodes" in body else (body.get("state"), "state")
    try:
        recipes.read(state)
    except RecipeFault as fault:
        lines = [_placed(path, row, at, message, prefix) for at, message in fault.faults[:_MOST_TOLD]]
        raise usage_error("bad_project", "\n".join(lines)) from None
    return _id_of(str(body.get("id") or path.stem), "project"), desk.redactor.value(state)


def _only_row(path: Path) -> Row:
    items = list(islice(RowReader(source_of(path)), 2))
    for item in items:
        if isinstance(item, Problem) and item.severity == "error":
            raise usage_error("bad_project", f"{path.as_posix()}:{item.place.line}: {item.message}")
    rows = [item for item in items if isinstance(item, Row)]
    if len(rows) != 1 or not isinstance(rows[0].value, dict):
        got = type_name(rows[0].value) if len(rows) == 1 else "several values" if rows else "nothing"
        raise usage_error("bad_project", f"{path.as_posix()}: expected one object with name and state, got {got}")
    return rows[0]


def _placed(path: Path, row: Row, at: str, message: str, prefix: str) -> str:
    """A fault with the line that it is about."""
    steps = [int(number) if number else name for number, name in _STEP.findall(at)]
    place = row.place_of(tuple(steps if prefix else steps[1:]))
    return f"{path.as_posix()}:{place.line}: {at}: {message}"


def _refuse_broken(source: Source) -> None:
    """Raises where the file cannot be read as rows; a row that is no object is a failed row and nothing more."""
    problems = (item for item in Dataset(source, "replay") if isinstance(item, Problem))
    faults = [item for item in problems if item.severity == "error" and item.code != "row_invalid"]
    if faults:
        shown = [f"{item.file or source.name}:{item.place.line}: {item.message} [{item.code}]" for item in faults]
        more = [f"… and {len(shown) - _MOST_TOLD} more"] if len(shown) > _MOST_TOLD else []
        raise usage_error("bad_dataset", "\n".join(shown[:_MOST_TOLD] + more))


def _rows(source: Source, desk: Desk) -> Iterator[tuple[Any, Assembled | None]]:
    for item in Dataset(source, "replay"):
        if isinstance(item, Row):
            yield desk.redactor.value(item.value), None
        elif item.code == "row_invalid":
            yield None, recipes.failed_row(f"{source.name}:{item.place.line}: {item.message}")


def _id_of(name: str, otherwise: str) -> str:
    """An id for what has only a file name."""
    return _UNFIT.sub("-", name).strip("-")[:64] or otherwise


# -- sides of a comparison ----------------------------------------------------------------------------


class Side:
    """One side of a comparison: a replay that was kept, or a file of records."""

    def __init__(
        self, name: str, summaries: Callable[[], Iterator[RunSummary]], record: Callable[[int], RunRecord | None]
    ) -> None:
        self.name = name
        self.summaries = summaries
        self.record = record


def load_side(name: str, desk: Desk) -> Side:
    """What a name means: a replay by its id or the beginning of one, `latest`, `previous`, or a file of records."""
    if name.endswith((".jsonl", ".ndjson")):
        return _file_side(Path(name))
    id = _find(name, desk)
    return Side(id, lambda: desk.store.summaries(id), lambda row: desk.store.run(id, row))


def _find(name: str, desk: Desk) -> str:
    if name in ("latest", "last", "previous"):
        newest = desk.store.all_replays(1, 0)
        same = desk.store.replays(newest[0].replay.dataset, 2, 0) if newest else []
        at = 1 if name == "previous" else 0
        if len(same) <= at:
            more = f" of {same[0].replay.dataset!r}" if same else ""
            raise usage_error(
                "replay_not_found", f"{name}: there is no such replay{more} yet. 'evalloom replay' makes one"
            )
        return same[at].replay.id
    found = desk.store.replays_from(name, 6)
    if len(found) == 1 or name in found:
        return name if name in found else found[0]
    if found:
        raise usage_error("replay_not_found", f"{name!r} is the beginning of several replays: {', '.join(found[:5])}")
    raise usage_error(
        "replay_not_found", f"there is no replay {quote(name)}. 'evalloom replay list' shows what there is"
    )


def _file_side(path: Path) -> Side:
    """A file of records, as `evalloom replay -o` writes it."""
    lines: dict[int, bytes] = {}
    runs: list[RunSummary] = []
    number = 0
    try:
        with path.open("rb") as stream:
            for line in stream:
                number += 1
                if line.strip():
                    runs.append(msgspec.json.decode(line, type=RunSummary))
                    lines[runs[-1].row_index] = line
    except OSError as fault:
        raise usage_error("cannot_read", f"{path.as_posix()}: {(fault.strerror or str(fault)).lower()}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        message = f"{path.as_posix()}:{number}: expected a record that 'evalloom replay -o' wrote, got {fault}"
        raise usage_error("bad_record", message) from None

    def record(row: int) -> RunRecord | None:
        return msgspec.json.decode(lines[row], type=RunRecord) if row in lines else None

    return Side(path.as_posix(), lambda: iter(runs), record)
