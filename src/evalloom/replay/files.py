"""Replays files without a server, and finds the two sides of a comparison."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from evalloom.core.clock import utc_now_z
from evalloom.core.digest import sha256_hex
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Finding
from evalloom.core.text import quote
from evalloom.data.dataset import Dataset
from evalloom.engine.loop import run_loop
from evalloom.engine.plan import spooled
from evalloom.files.read import RowReader
from evalloom.files.rows import Problem, Row
from evalloom.files.source import Source, source_of
from evalloom.replay.compare import summary_of as summary_of_record
from evalloom.replay.dialect import FORMATS
from evalloom.replay.recipe import assemble as recipes
from evalloom.replay.recipe.assemble import AssembledRow
from evalloom.replay.recipe.document import RecipeFile
from evalloom.replay.recipe.parse import read_recipe
from evalloom.replay.recipe.trace import Outcome, RunRecord, RunSummary
from evalloom.replay.service import ReplayService, ReplaySummary, left_out_text, summary_of
from evalloom.replay.session import MODEL_WINDOW, ReplayRun, new_replay_id
from evalloom.replay.store.database import MAX_CANDIDATES
from evalloom.replay.store.records import WINDOW, Counts, Replay, ReplayCounts
from evalloom.replay.store.running import ReplayState

_NOT_ID = lazy_pattern(r"[^A-Za-z0-9_-]+")
_MAX_SHOWN = 10


class FileReplay:
    """A finished replay of files, read from the store."""

    def __init__(self, replay: ReplaySummary, service: ReplayService, warnings: list[Finding]) -> None:
        """`warnings` are likely mistakes in the recipe."""
        self.replay = replay
        self.warnings = warnings
        self._service = service

    def summaries(self) -> Iterator[RunSummary]:
        return self._service.store.summaries(self.replay.replay_id)

    def records(self) -> Iterator[RunRecord]:
        return self._service.store.records(self.replay.replay_id)


def replay_files(
    project: Path,
    dataset: str,
    service: ReplayService,
    limit: int | None = None,
    offset: int = 0,
    profile: str = "",
    progress: Callable[[int], None] = lambda done: None,
) -> FileReplay:
    """Replay the rows of a file through a recipe file, and store a record of each."""
    file = RecipeFile(project)
    # Parsed unredacted, so that errors point to the right lines; the replay uses the redacted state.
    file.read()
    state = service.redactor.value(file.state)
    name = project_id(file)
    source = spooled(source_of(dataset))
    row_count = _count_rows(source)
    asked = max(0, row_count - offset if limit is None else min(row_count - offset, limit))
    # A path, so that files of the same name in two folders have different ids.
    dataset_name = os.path.relpath(source.name) if source.path is not None else "stdin"
    replay = Replay(new_replay_id(), id_of(dataset_name, "rows"), name, utc_now_z(), profile, asked)
    digest = sha256_hex(msgspec.json.encode(state))
    replay_run = ReplayRun(service, replay, digest, read_recipe(state))
    last = None if limit is None else min(offset + limit, sys.maxsize)
    rows = islice(_rows(source, service), min(offset, sys.maxsize), last)
    try:
        with replay_run:
            run_loop(_run_rows(replay_run, rows, offset, service, progress))
    except KeyboardInterrupt:
        raise interrupted(replay.id, service) from None
    # Past the last row, nothing is stored.
    counts = service.store.replay(replay.id) or ReplayCounts(replay._replace(id=""), offset, Counts.of([]))
    return FileReplay(summary_of(counts), service, [*file.warnings()])


def interrupted(replay_id: str, service: ReplayService) -> EvalloomError:
    """Return the error for a replay stopped by Ctrl-C."""
    stored = service.store.replay(replay_id)
    outcome = "nothing is kept"
    if stored:
        asked = f" of {stored.replay.rows_requested:,}" if stored.replay.rows_requested is not None else ""
        kept = f"{stored.counts.rows:,}{asked} rows are kept as replay {replay_id}"
        outcome = f"{kept}. 'evalloom replay compare' leaves it out; the same command makes a complete one"
    return EvalloomError("stopped", f"interrupted: {outcome}")


async def _run_rows(
    replay_run: ReplayRun,
    rows: Iterator[tuple[Any, AssembledRow | None]],
    first: int,
    service: ReplayService,
    progress: Callable[[int], None],
) -> None:
    model_runner = service.model_runner(replay_run.replay.profile) if replay_run.replay.profile else None
    done = 0
    size = MODEL_WINDOW if model_runner is not None else WINDOW
    try:
        while window := list(islice(rows, size)):
            # Without a model nothing else awaits, and Ctrl-C is only delivered at an await.
            await asyncio.sleep(0)
            valid = replay_run.assemble([row for row, failed in window if failed is None])
            assembled = (failed or next(valid) for _, failed in window)
            if model_runner is None:
                replay_run.store_rows(first + done, assembled)
            else:
                raw_rows = [row for row, _ in window]
                replay_run.store_rows(
                    first + done,
                    await model_runner.answer_rows(replay_run.recipe.nodes, raw_rows, list(assembled)),
                )
            done += len(window)
            progress(done)
    finally:
        if model_runner is not None:
            await model_runner.close()


def _count_rows(source: Source) -> int:
    """Count the rows of a file; raise if it is unreadable or has none. A row that is not an object only fails."""
    count = 0
    errors: list[str] = []
    for item in Dataset(source, FORMATS, "replay"):
        if isinstance(item, Row) or item.code == "row_invalid":
            count += 1
        elif item.severity == "error":
            where = f"{item.file or source.name}:{item.place.line}" if item.place.line else item.file or source.name
            # This command has no --encoding flag.
            errors.append(f"{where}: {item.message.replace(', or pass its --encoding', '')}")
    if errors:
        more = [f"… and {len(errors) - _MAX_SHOWN} more"] if len(errors) > _MAX_SHOWN else []
        raise usage_error("bad_dataset", "\n".join(errors[:_MAX_SHOWN] + more))
    if not count:
        raise usage_error("no_cases", f"{source.name}: expected rows to replay, got none")
    return count


def _rows(source: Source, service: ReplayService) -> Iterator[tuple[Any, AssembledRow | None]]:
    for item in Dataset(source, FORMATS, "replay"):
        if isinstance(item, Row):
            yield service.redactor.value(item.value), None
        elif item.code == "row_invalid":
            # The message quotes the row.
            message = service.redactor.text(f"{source.name}:{item.place.line}: {item.message}")
            yield None, recipes.failed_row(message)


def project_id(file: RecipeFile) -> str:
    """Return the id under which replays of a recipe file are stored."""
    return id_of(str(file.body.get("id") or file.path.stem), "project")


def id_of(name: str, otherwise: str) -> str:
    """Turn a name into an id; a name with other characters gets a digest to stay unique."""
    plain = name.removesuffix(".jsonl")
    id = _NOT_ID.sub("-", plain).strip("-")[-50:]
    return id if id == plain else f"{id or otherwise}-{sha256_hex(name.encode())[:8]}"


# -- sides of a comparison ----------------------------------------------------------------------------


class Side:
    """One side of a comparison: a stored replay or a file of records."""

    def __init__(
        self,
        name: str,
        what: str,
        summaries: Callable[[], Iterator[RunSummary]],
        outcomes: Callable[[], dict[int, Outcome]],
        record: Callable[[int], RunRecord | None],
        summary: ReplaySummary | None = None,
    ) -> None:
        """`what` names the recipe and the dataset; `summary` is that of a stored replay."""
        self.name = name
        self.what = what
        self.summaries = summaries
        self.outcomes = outcomes
        self.record = record
        self.summary = summary

    @property
    def state(self) -> ReplayState:
        # A file of records is written when its replay is complete.
        return self.summary.state if self.summary else "complete"


def load_sides(a: str, b: str, service: Callable[[], ReplayService]) -> tuple[Side, Side]:
    """Find both sides of a comparison, by default the last two complete replays; open the service only for replays."""
    if not a:
        return _last_sides(service())
    sides = load_side(a, service), load_side(b, service)
    if sides[0].name == sides[1].name:
        raise usage_error(
            "replay_not_found", f"{a!r} and {b!r} are the same replay. Name another one to compare it with"
        )
    return sides


def _last_sides(service: ReplayService) -> tuple[Side, Side]:
    newest = service.store.all_replays(1, 0)
    if not newest:
        raise usage_error("replay_not_found", "there is no replay yet. 'evalloom replay' makes one")
    chosen = _choose_two(newest[0].replay.dataset, service)
    return _stored_side(chosen[0], service), _stored_side(chosen[1], service)


def _choose_two(dataset: str, service: ReplayService, newer: str = "") -> tuple[str, str]:
    chosen = service.store.choose_two(dataset, b=newer)
    if chosen is None:
        has_one = any(replay.state == "complete" for replay in service.store.replays(dataset, MAX_CANDIDATES, 0))
        hint = left_out_text(service.store.left_out(dataset, None))
        got = f"got {'one' if has_one else 'none'}{hint}"
        again = "once more" if has_one else "twice"
        message = f"expected two complete replays of {dataset!r} to compare, {got}. Run 'evalloom replay' {again}"
        message += ", or name both sides: 'evalloom replay compare A B'" if hint else ""
        raise usage_error("replay_not_found", message)
    return chosen


def left_out(a: str, b: str, sides: tuple[Side, Side], service: Callable[[], ReplayService]) -> list[ReplaySummary]:
    """List the replays that were not taken for a side because they are not complete; `a` and `b` as in `load_sides`."""
    summary = sides[0].summary
    if summary is None or (a and "previous" not in (a, b)):
        return []
    chosen = (sides[0].name, sides[1].name)
    return [summary_of(replay) for replay in service().store.left_out(summary.dataset_id, chosen)]


def load_side(name: str, service: Callable[[], ReplayService]) -> Side:
    """Find a side by name: a replay id or its prefix, `latest`, `previous`, or a file of records."""
    if os.path.isfile(name) or name.endswith((".jsonl", ".ndjson")):
        return _file_side(Path(name))
    return _stored_side(find_replay(name, service()), service())


def _stored_side(id: str, service: ReplayService) -> Side:
    store, stored = service.store, service.store.replay(id)
    what = f"{stored.replay.project} · {stored.replay.dataset}" if stored else ""
    summary = summary_of(stored) if stored else None
    return Side(
        id, what, lambda: store.summaries(id), lambda: store.outcomes(id), lambda row: store.run(id, row), summary
    )


def find_replay(name: str, service: ReplayService) -> str:
    """Return the id of the replay that a name refers to."""
    if name in ("latest", "last", "previous"):
        newest = service.store.all_replays(1, 0)
        if not newest:
            raise usage_error("replay_not_found", "there is no replay yet. 'evalloom replay' makes one")
        replay = newest[0].replay
        return _choose_two(replay.dataset, service, replay.id)[0] if name == "previous" else replay.id
    ids = service.store.replays_by_prefix(name, 6)
    if len(ids) == 1 or name in ids:
        return name if name in ids else ids[0]
    if ids:
        raise usage_error("replay_not_found", f"{name!r} is the beginning of several replays: {', '.join(ids[:5])}")
    raise usage_error(
        "replay_not_found", f"there is no replay {quote(name)}. 'evalloom replay list' shows what there is"
    )


def _file_side(path: Path) -> Side:
    """Read a file of records written by `evalloom replay -o`."""
    lines: dict[int, bytes] = {}
    runs: list[RunSummary] = []
    outcomes: dict[int, Outcome] = {}
    what = ""
    for item in RowReader(source_of(path)):
        if isinstance(item, Problem):
            if item.severity == "error":
                where = f"{path.as_posix()}:{item.place.line}" if item.place.line else path.as_posix()
                raise usage_error("bad_record", f"{where}: {item.message}")
            continue
        try:
            record = msgspec.convert(item.value, RunRecord)
        except msgspec.ValidationError:
            message = f"{path.as_posix()}:{item.line}: expected a record as 'evalloom replay -o FILE' writes it"
            raise usage_error("bad_record", f"{message}, got something else") from None
        runs.append(summary_of_record(record))
        trace, model = record.trace, record.trace.model
        answer = (model.status, model.answer_digest) if model else ("", "")
        outcomes[record.row_index] = Outcome(
            record.status, record.output_digest, record.missing_variables_count, trace.truncated, *answer
        )
        lines[record.row_index] = msgspec.json.encode(item.value)
        what = what or f"{record.project_id} · {record.dataset_id}"

    if not runs:
        raise usage_error("bad_record", f"{path.as_posix()}: expected records to compare, got none")

    def record_of(row: int) -> RunRecord | None:
        return msgspec.json.decode(lines[row], type=RunRecord) if row in lines else None

    return Side(path.as_posix(), what, lambda: iter(runs), lambda: outcomes, record_of)
