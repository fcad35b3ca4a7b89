"""The replay service: manages the projects, datasets and replays in one data folder.

All methods are thread-safe. Methods that call a model, or that the HTTP server awaits, are async.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.clock import utc_now_z
from evalloom.core.digest import sha256_hex
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Record
from evalloom.llms import LlmOptions
from evalloom.pages.errors import RequestError
from evalloom.replay.compare import (
    Pair,
    ReplayComparison,
    RowComparison,
    RunComparison,
    build_comparison,
    compare_outcomes,
    compare_row,
    compare_rows,
    compare_runs,
)
from evalloom.replay.model_answers import ModelRunner
from evalloom.replay.recipe.assemble import AssembledRow, Recipe, trace_of
from evalloom.replay.recipe.parse import RecipeError, read_recipe
from evalloom.replay.recipe.trace import RunRecord, RunSummary, Trace
from evalloom.replay.requests import (
    ReplayRequest,
    check_id,
    check_page,
    not_found,
    read_dataset,
    read_execution,
    read_project,
    read_replay,
    validation_error,
)
from evalloom.replay.resolvers import Resolution, reach_of, resolve
from evalloom.replay.session import CachedPack, LruCache, ReplayRun, new_replay_id, redact
from evalloom.replay.store.database import FILE, FOLDER, ReplayStore
from evalloom.replay.store.records import PackDeleted, Replay, ReplayCounts, RunFilter, StoredDataset, StoredProject
from evalloom.replay.store.running import ReplayState
from evalloom.settings import Settings
from evalloom.settings import secrets as settings_secrets
from evalloom.settings.keys import Redactor

_MAX_RECIPES, _MAX_PACKS = 16, 256
"""Sizes of the caches; a recipe can take megabytes."""
_THREADS = 8
_TIMEOUTS_PER_REPLAY = 6
"""All resolvers of a replay together may take this many times the timeout of one resolver."""

_TIME_USED_UP = Resolution(error_code="timeout", message="other variables used up the time limit of the replay")
_NO_SETTINGS = Settings()


class Project(Struct, frozen=True, rename="camel"):
    """A context recipe with a name."""

    id: str
    name: str
    state: Record
    updated_at: str


class ProjectSummary(Struct, frozen=True, rename="camel"):
    """A project in a list."""

    id: str
    name: str
    updated_at: str


class DatasetSummary(Struct, frozen=True, rename="camel"):
    """A dataset in a list."""

    id: str
    name: str
    row_count: int
    updated_at: str


class ReplaySummary(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A replay in a list."""

    replay_id: str
    created_at: str
    project_id: str
    dataset_id: str
    offset: int
    row_count: int
    succeeded: int
    failed: int
    state: ReplayState
    """`interrupted` if fewer rows are stored than were asked for and none are being added."""
    rows_requested: int | None = None
    profile: str = ""
    checks_passed: int = 0
    checks_failed: int = 0
    """Rows whose answer passed or failed the checks of `_expected`, if a model was called."""


class ReplayService:
    """Manages the projects, datasets and replays in one data folder."""

    def __init__(
        self, data_dir: Path, settings: Settings = _NO_SETTINGS, files: Path | None = None, token: str = ""
    ) -> None:
        """Resolve files, databases and chats of dynamic variables inside `files`, by default the data folder.

        `token` is redacted from everything stored, like the secrets of the settings.
        """
        self.store = ReplayStore(data_dir)
        self.settings = settings
        self.redactor = Redactor([*settings_secrets(settings), *([token] if token else [])])
        self.redaction_fingerprint = self.redactor.fingerprint(self.store.salt)
        reach = reach_of(settings, files or data_dir, (data_dir / FOLDER,))
        self._reach = msgspec.structs.replace(reach, hide=self.redactor.text)
        self._data_dir = data_dir
        self._recipes = LruCache[Recipe](_MAX_RECIPES)
        self.packs = LruCache[CachedPack](_MAX_PACKS)
        self._threads = ThreadPoolExecutor(_THREADS, "replay")

    def close(self) -> None:
        """Finish pending writes and close the store."""
        self._threads.shutdown()
        self.store.close()

    # -- projects -------------------------------------------------------------------------------------

    def create_project(self, body: Any) -> Project:
        """Store `{name, state}` under a new id."""
        return self._put_project(_new_id("p"), body)

    def replace_project(self, id: str, body: Any) -> Project:
        """Replace a project by `{name, state}`."""
        if not self.store.has_project(check_id(id, "project")):
            raise not_found("project", id)
        return self._put_project(id, body)

    def _put_project(self, id: str, body: Any) -> Project:
        name, state, _ = read_project(body)
        name, state = self.redactor.text(name), self.redactor.value(state)
        encoded = msgspec.json.encode(state)
        digest = sha256_hex(encoded)
        updated_at = utc_now_z()
        self.store.put_project(StoredProject(id, name, encoded, digest, updated_at))
        return Project(id, name, state, updated_at)

    def projects(self, limit: int = 100, offset: int = 0) -> list[ProjectSummary]:
        """List the projects, newest first."""
        limit, offset = check_page(limit, offset)
        return [ProjectSummary(*row) for row in self.store.projects(limit, offset)]

    def project(self, id: str) -> Project:
        """Return a project with its recipe."""
        stored = self._project(id)
        return Project(stored.id, stored.name, msgspec.json.decode(stored.state), stored.updated_at)

    def _project(self, id: str) -> StoredProject:
        stored = self.store.project(check_id(id, "project"))
        if stored is None:
            raise not_found("project", id)
        return stored

    def delete_project(self, id: str) -> None:
        """Delete a project, but keep its runs."""
        if not self.store.delete_project(check_id(id, "project")):
            raise not_found("project", id)

    # -- datasets -------------------------------------------------------------------------------------

    def create_dataset(self, body: Any) -> DatasetSummary:
        """Store `{name, rows}` under a new id."""
        name, rows = read_dataset(body)
        id, updated_at, name = _new_id("d"), utc_now_z(), self.redactor.text(name)
        encoded = [msgspec.json.encode(self.redactor.value(row)) for row in rows]
        self.store.put_dataset(StoredDataset(id, name, len(rows), updated_at), encoded)
        return DatasetSummary(id, name, len(rows), updated_at)

    def datasets(self, limit: int = 100, offset: int = 0) -> list[DatasetSummary]:
        """List the datasets, newest first."""
        limit, offset = check_page(limit, offset)
        return [DatasetSummary(*stored) for stored in self.store.datasets(limit, offset)]

    def dataset(self, id: str, limit: int | None = None, offset: int = 0) -> bytes:
        """Return a dataset and its rows as JSON, with the rows exactly as stored."""
        stored = self._dataset(id)
        count = stored.row_count if limit is None else limit
        check_page(1 if limit is None else min(limit, 1), offset)
        head = msgspec.json.encode(DatasetSummary(*stored))[:-1]
        rows = self.store.rows(id, min(offset, stored.row_count), min(count, stored.row_count))
        return b'%s,"rows":[%s]}' % (head, b",".join(rows))

    def _dataset(self, id: str) -> StoredDataset:
        stored = self.store.dataset(check_id(id, "dataset"))
        if stored is None:
            raise not_found("dataset", id)
        return stored

    def delete_dataset(self, id: str, with_runs: bool = False) -> None:
        """Delete a dataset, and its runs only if `with_runs` is set."""
        if not self.store.delete_dataset(check_id(id, "dataset"), with_runs):
            raise not_found("dataset", id)

    # -- replays --------------------------------------------------------------------------------------

    async def replay(self, dataset_id: str, body: Any) -> tuple[str, bytes]:
        """Replay rows; return the id of the replay and the summaries of its runs as a JSON array."""
        request = read_replay(body)
        if request.profile:
            windows = [window async for window in self._stream_windows(dataset_id, request)]
        else:
            windows = await self._replay_from_cache(dataset_id, request)
            if not windows:
                windows = await self._run_in_thread(self._run_windows, dataset_id, request)
        return windows[0][0] if windows else "", b"[%s]" % b",".join(summaries[1:-1] for _, summaries in windows)

    async def _replay_from_cache(self, dataset_id: str, request: ReplayRequest) -> list[tuple[str, bytes]]:
        """Replay rows whose pack is cached; return an empty list if it is not.

        This reads one row by key, so it stays on the event loop and awaits only the write.
        """
        row_count, digest = self._row_count_and_digest(dataset_id, request.project_id)
        if (recipe := self._recipes.get(digest)) is None:
            return []
        replay_run = self._new_run(dataset_id, request, row_count, digest, recipe)
        for first, count in replay_run.windows:
            if cached := self.packs.get(replay_run.pack_key(first, count)):
                with suppress(PackDeleted):
                    return [(replay_run.replay.id, await replay_run.reuse_pack(first, cached))]
        return []

    async def replay_stream(self, dataset_id: str, body: Any) -> AsyncGenerator[bytes, None]:
        """Replay any number of rows; yield a JSON array of summaries per window once it is on disk."""
        request = read_replay(body, is_streamed=True)
        async with aclosing(self._stream_windows(dataset_id, request)) as windows:
            async for _, summaries in windows:
                yield summaries

    def _run_windows(self, dataset_id: str, request: ReplayRequest) -> list[tuple[str, bytes]]:
        # At most 200 rows are one window, so such a replay is stored as a whole or not at all.
        replay_run = self._start_run(dataset_id, request)
        return [(replay_run.replay.id, replay_run.run_window(first, count)) for first, count in replay_run.windows]

    async def _stream_windows(self, dataset_id: str, request: ReplayRequest) -> AsyncGenerator[tuple[str, bytes], None]:
        replay_run = await self._run_in_thread(self._start_run, dataset_id, request)
        model_runner = self.model_runner(request.profile) if request.profile else None
        try:
            with replay_run:
                for first, count in replay_run.windows:
                    if model_runner is None:
                        summaries = await self._run_in_thread(replay_run.run_window, first, count)
                    else:
                        rows, assembled = await self._run_in_thread(replay_run.load_and_assemble, first, count)
                        answered = await model_runner.answer_rows(replay_run.recipe.nodes, rows, assembled)
                        summaries = await self._run_in_thread(replay_run.store_rows, first, answered)
                    yield replay_run.replay.id, summaries
        finally:
            if model_runner is not None:
                await model_runner.close()

    def _start_run(self, dataset_id: str, request: ReplayRequest) -> ReplayRun:
        row_count, digest = self._row_count_and_digest(dataset_id, request.project_id)
        recipe = self._recipes.get(digest)
        if recipe is None:
            digest, recipe = self._read_recipe(request.project_id)
        return self._new_run(dataset_id, request, row_count, digest, recipe)

    def _row_count_and_digest(self, dataset_id: str, project_id: str) -> tuple[int, str]:
        """Return the row count of the dataset and the digest of the project's state."""
        row_count, digest = self.store.row_count_and_digest(
            check_id(dataset_id, "dataset"), check_id(project_id, "project")
        )
        if row_count is None:
            raise not_found("dataset", dataset_id)
        if digest is None:
            raise not_found("project", project_id)
        return row_count, digest

    def _new_run(
        self, dataset_id: str, request: ReplayRequest, row_count: int, digest: str, recipe: Recipe
    ) -> ReplayRun:
        replay = Replay(new_replay_id(), dataset_id, request.project_id, utc_now_z(), request.profile)
        end = row_count if request.limit is None else min(row_count, request.offset + request.limit)
        return ReplayRun(self, replay, digest, recipe, range(min(request.offset, end), end))

    def _read_recipe(self, project_id: str) -> tuple[str, Recipe]:
        """Return the digest of a project's state, and its recipe."""
        stored = self._project(project_id)
        recipe = self._recipes.get(stored.digest)
        return stored.digest, recipe or self._recipes.put(stored.digest, read_recipe(msgspec.json.decode(stored.state)))

    def model_runner(self, profile: str) -> ModelRunner:
        """Return a runner for the model of a profile; the caller closes it."""
        options = LlmOptions(self.settings.run.concurrency, self.settings.run.cache, home=self._data_dir)
        try:
            return ModelRunner(profile, self.settings, options, self.redactor.text)
        except EvalloomError as error:
            raise validation_error([("profile", self.redactor.text(str(error.args[0])))]) from None

    async def _run_in_thread(self, function: Any, *arguments: Any) -> Any:
        """Run a blocking call in the thread pool."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *arguments))

    def deadline(self) -> float:
        """Return the deadline for all dynamic variables of a replay that starts now."""
        return monotonic() + _TIMEOUTS_PER_REPLAY * self._reach.timeout_s

    def resolve_all(self, recipe: Recipe, names: Sequence[str], deadline: float) -> dict[str, Resolution]:
        """Resolve dynamic variables in parallel, equal ones once, before the deadline."""
        sources = {name: (recipe.dynamic[name].resolver, recipe.dynamic[name].value) for name in names}

        def resolve_source(source: tuple[str, str]) -> Resolution:
            seconds_left = deadline - monotonic()
            if seconds_left >= self._reach.timeout_s:
                return resolve(*source, self._reach)
            if seconds_left <= 0:
                return _TIME_USED_UP
            resolution = resolve(*source, msgspec.structs.replace(self._reach, timeout_s=seconds_left))
            return _TIME_USED_UP if resolution.error_code == "timeout" else resolution

        if not sources:
            return {}
        distinct = list(dict.fromkeys(sources.values()))
        with ThreadPoolExecutor(min(_THREADS, len(distinct))) as pool:
            resolutions = dict(zip(distinct, pool.map(resolve_source, distinct), strict=True))
        return {name: resolutions[source] for name, source in sources.items()}

    # -- stored runs ---------------------------------------------------------------------------------

    def replays(self, dataset_id: str = "", limit: int = 100, offset: int = 0) -> list[ReplaySummary]:
        """List the replays of a dataset, or of all, newest first."""
        limit, offset = check_page(limit, offset)
        if not dataset_id:
            return [summary_of(replay) for replay in self.store.all_replays(limit, offset)]
        self._dataset(dataset_id)
        return [summary_of(replay) for replay in self.store.replays(dataset_id, limit, offset)]

    def runs(
        self,
        dataset_id: str,
        row_index: int | None = None,
        status: str = "",
        project_id: str = "",
        check: str = "",
        limit: int = 100,
        offset: int = 0,
    ) -> list[RunSummary]:
        """List the matching runs of a dataset, newest first."""
        limit, offset = check_page(limit, offset)
        if status not in ("", "succeeded", "failed"):
            raise validation_error([("status", f"expected succeeded or failed, got {status!r}")])
        if check not in ("", "passed", "failed"):
            raise validation_error([("check", f"expected passed or failed, got {check!r}")])
        if row_index is not None and row_index < 0:
            raise validation_error([("rowIndex", f"expected 0 or more, got {row_index}")])
        row_count = self._dataset(dataset_id).row_count
        if row_index is not None and row_index >= row_count:
            return []
        return self.store.runs(RunFilter(dataset_id, row_index, status, project_id, check), limit, offset)

    def run(self, run_id: str) -> RunRecord:
        """Return the full record of a run."""
        replay, _, row = check_id(run_id, "run").rpartition("-")
        # Row numbers have no leading zeros: 007 is not the id of row 7.
        is_row = row.isascii() and row.isdigit() and len(row) < 10 and str(int(row)) == row
        record = self.store.run(replay, int(row)) if is_row else None
        if record is None:
            raise not_found("run", run_id)
        return record

    def compare_runs(self, a: str, b: str) -> RunComparison:
        """Compare two runs (REPLAY-16)."""
        return compare_runs(self.run(a), self.run(b))

    def compare_replays(
        self, dataset_id: str, a: str = "", b: str = "", status: str = "", limit: int = 100, offset: int = 0
    ) -> ReplayComparison:
        """Compare two replays of a dataset row by row, by default the last two."""
        limit, offset = check_page(limit, offset)
        if status not in ("", "stable", "drift", "new", "gone"):
            raise validation_error([("status", f"expected stable, drift, new or gone, got {status!r}")])
        self._dataset(dataset_id)
        older, newer = self._choose_two(dataset_id, a, b)
        pairs = compare_rows(self.store.summaries(older), self.store.summaries(newer))
        outcomes = compare_outcomes(self.store.outcomes(older), self.store.outcomes(newer))
        page = [pair for pair in pairs if status in ("", pair.status)][offset : offset + limit]
        rows = [self._with_diff(pair) for pair in page]
        left_out = [] if a and b else self.store.left_out(dataset_id, (older, newer))
        ids = [replay.replay.id for replay in left_out]
        return build_comparison(
            (older, newer), pairs, outcomes, rows, (self._state_of(older), self._state_of(newer)), ids
        )

    def _state_of(self, replay_id: str) -> ReplayState:
        stored = self.store.replay(replay_id)
        return stored.state if stored else "complete"

    def _with_diff(self, pair: Pair) -> RowComparison:
        if pair.status != "drift" or pair.a is None or pair.b is None:
            return compare_row(pair)
        try:
            return compare_row(pair, self.run(pair.a.run_id), self.run(pair.b.run_id))
        except RequestError as error:
            # Another client deleted the run in the meantime.
            raise RequestError("replay_not_found", error.message) from None

    def _choose_two(self, dataset_id: str, a: str, b: str) -> tuple[str, str]:
        for id in filter(None, (a, b)):
            stored = self.store.replay(check_id(id, "replay"))
            if stored is None or stored.replay.dataset != dataset_id:
                raise not_found("replay", id)
        chosen = self.store.choose_two(dataset_id, a, b)
        if chosen is None:
            hint = left_out_text(self.store.left_out(dataset_id, None))
            message = f"expected two complete replays of the dataset to compare{hint}. Replay it once more"
            raise RequestError("replay_not_found", message)
        return chosen

    # -- one context ----------------------------------------------------------------------------------

    async def execute(self, body: Any) -> Trace:
        """Assemble the context of one row without storing it."""
        project_id, state, row, profile = read_execution(body)
        row = self.redactor.value(row)
        recipe, assembled = await self._run_in_thread(self._execute, project_id, self.redactor.value(state), row)
        model_runner = self.model_runner(profile) if profile else None
        if model_runner is not None:
            try:
                [assembled] = await model_runner.answer_rows(recipe.nodes, [row], [assembled])
            finally:
                await model_runner.close()
        return trace_of(recipe.nodes, assembled, f"{new_replay_id()}-0", utc_now_z())

    def _execute(self, project_id: str, state: Any, row: Any) -> tuple[Recipe, AssembledRow]:
        recipe = self._read_recipe(project_id)[1] if project_id else _read_state(state)
        assembled = redact(
            recipe.assemble(row, self.resolve_all(recipe, sorted(recipe.needs([row])), self.deadline())), self.redactor
        )
        # Nothing was assembled; the client has to fix the error first.
        if assembled.status == "failed" and not assembled.segments:
            error = assembled.errors[0]
            raise RequestError(error.error_code, error.message, **({"nodeIds": recipe.cycle} if recipe.cycle else {}))
        return recipe, assembled


def has_store(data_dir: Path) -> bool:
    """Return whether a data folder has a replay store."""
    return (data_dir / FOLDER / FILE).is_file()


def _read_state(state: Any) -> Recipe:
    try:
        return read_recipe(state)
    except RecipeError as error:
        raise (
            validation_error(error.errors)
            if error.code == "validation_failed"
            else RequestError(error.code, str(error))
        ) from None


def summary_of(stored: ReplayCounts) -> ReplaySummary:
    """Summarize a replay."""
    replay, counts = stored.replay, stored.counts
    return ReplaySummary(
        replay_id=replay.id,
        created_at=replay.created_at,
        project_id=replay.project,
        dataset_id=replay.dataset,
        offset=stored.offset,
        row_count=counts.rows,
        succeeded=counts.succeeded,
        failed=counts.rows - counts.succeeded,
        state=stored.state,
        rows_requested=replay.rows_requested,
        profile=replay.profile,
        checks_passed=counts.met,
        checks_failed=counts.unmet,
    )


def left_out_text(replays: Sequence[ReplayCounts]) -> str:
    """`; r1 is interrupted (400 of 20,000 rows)`; empty if no replay was left out."""
    return "".join(f"; {state_text(summary_of(replay))}" for replay in replays[:3])


def state_text(replay: ReplaySummary) -> str:
    """`r1 is interrupted (400 of 20,000 rows)`."""
    asked = f" of {replay.rows_requested:,}" if replay.rows_requested is not None else ""
    return f"{replay.replay_id} is {replay.state} ({replay.row_count:,}{asked} rows)"


def _new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(8)}"
