"""Stores projects, datasets and the runs of replays in one SQLite file, shared by threads and processes.

A replay is stored as windows of up to 200 rows. The assembled rows of a window are a *pack*. A pack depends only on
recipe and rows, so replays with equal results share it and cost one small write each. See docs/decisions/0008.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_bytes
from time import monotonic, sleep
from typing import Any

import msgspec

from evalloom.core.errors import EvalloomError
from evalloom.files import zstd
from evalloom.files.write import sync_names
from evalloom.replay.recipe.assemble import AssembledRow, RecipeNode, trace_of
from evalloom.replay.recipe.trace import Outcome, RunRecord, RunSummary
from evalloom.replay.store.records import (
    Counts,
    DatasetDeleted,
    Pack,
    PackBlock,
    PackDeleted,
    Replay,
    ReplayCounts,
    RunFilter,
    StoredDataset,
    StoredProject,
    StoredWindow,
    Window,
)
from evalloom.replay.store.running import ReplayState, is_running
from evalloom.replay.store.writer import Change, LoopWriter, Result, Writer

FOLDER = "store"
FILE = "replay.sqlite"
VERSION = 1
_BUSY_S = 30.0
_RETRY_S = 0.02
MAX_CANDIDATES = 1_000
_NO_BOUND = 2**62
_SCHEMA = """
CREATE TABLE projects (id TEXT PRIMARY KEY, name TEXT, state BLOB, digest TEXT, updated_at TEXT, number INTEGER);
CREATE TABLE datasets (id TEXT PRIMARY KEY, name TEXT, row_count INTEGER, updated_at TEXT, number INTEGER);
CREATE TABLE dataset_rows (dataset TEXT, number INTEGER, body BLOB, PRIMARY KEY (dataset, number)) WITHOUT ROWID;
CREATE TABLE recipes (digest TEXT PRIMARY KEY, parts BLOB) WITHOUT ROWID;
CREATE TABLE packs (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, summaries BLOB, blocks BLOB, body BLOB);
CREATE TABLE replays (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, dataset TEXT, project TEXT, created_at TEXT,
    profile TEXT, rows_requested INTEGER);
CREATE TABLE windows (
    replay INTEGER REFERENCES replays ON DELETE CASCADE, first_row INTEGER, row_count INTEGER, succeeded INTEGER,
    met INTEGER, unmet INTEGER, created_at TEXT, recipe TEXT REFERENCES recipes, pack INTEGER REFERENCES packs,
    PRIMARY KEY (replay, first_row)) WITHOUT ROWID;
CREATE INDEX replays_of_dataset ON replays (dataset, number);
CREATE INDEX windows_of_pack ON windows (pack);
CREATE INDEX windows_of_recipe ON windows (recipe);
CREATE TABLE own (salt BLOB);
"""


class ReplayStore:
    """The store of one data folder. Each reading thread has its own connection; a single thread writes."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FOLDER / FILE
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._loop_writer: LoopWriter | None = None
        self._block_cache: dict[tuple[int, PackBlock], list[msgspec.Raw]] = {}
        self._nodes_cache: dict[str, list[RecipeNode]] = {}
        try:
            _make_private(self.path)
            self._connection()
        except (OSError, sqlite3.Error) as error:
            raise EvalloomError("bad_store", f"{self.path.as_posix()}: cannot be used: {error}") from None
        self._writer = Writer(self._connection)
        try:
            self._write(partial(_create_tables, path=self.path))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Write all queued changes and close all connections."""
        self._writer.close()
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._local = threading.local()

    @property
    def salt(self) -> bytes:
        """Random bytes that are unique to this store."""
        salt: bytes = self._fetch_row("SELECT salt FROM own")[0]
        return salt

    # -- projects and datasets ------------------------------------------------------------------------

    def put_project(self, project: StoredProject) -> None:
        """Insert a project, or replace the one with the same id."""
        query = (
            "INSERT INTO projects VALUES (?, ?, ?, ?, ?, (SELECT coalesce(max(number), 0) + 1 FROM projects)) "
            "ON CONFLICT (id) DO UPDATE SET name = excluded.name, state = excluded.state, "
            "digest = excluded.digest, updated_at = excluded.updated_at"
        )
        self._write(lambda connection: connection.execute(query, project))

    def project(self, id: str) -> StoredProject | None:
        row = self._fetch_row("SELECT id, name, state, digest, updated_at FROM projects WHERE id = ?", id)
        return StoredProject(*row) if row else None

    def has_project(self, id: str) -> bool:
        return self._fetch_row("SELECT 1 FROM projects WHERE id = ?", id) is not None

    def row_count_and_digest(self, dataset: str, project: str) -> tuple[int | None, str | None]:
        """Return the row count of a dataset and the digest of a project's state; None for each that does not exist."""
        query = "SELECT (SELECT row_count FROM datasets WHERE id = ?), (SELECT digest FROM projects WHERE id = ?)"
        row: tuple[int | None, str | None] = self._fetch_row(query, dataset, project)
        return row

    def projects(self, limit: int, offset: int) -> list[tuple[str, str, str]]:
        """List id, name and time of the projects, newest first."""
        return self._fetch_all(
            "SELECT id, name, updated_at FROM projects ORDER BY number DESC LIMIT ? OFFSET ?", limit, offset
        )

    def delete_project(self, id: str) -> bool:
        query = "DELETE FROM projects WHERE id = ?"
        return self._write(lambda connection: connection.execute(query, (id,)).rowcount > 0)

    def put_dataset(self, dataset: StoredDataset, rows: Sequence[bytes]) -> None:
        """Insert a dataset with all its rows in one transaction."""

        def change(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO datasets VALUES (?, ?, ?, ?, (SELECT coalesce(max(number), 0) + 1 FROM datasets))", dataset
            )
            numbered = ((dataset.id, number, body) for number, body in enumerate(rows))
            connection.executemany("INSERT INTO dataset_rows VALUES (?, ?, ?)", numbered)

        self._write(change)

    def dataset(self, id: str) -> StoredDataset | None:
        row = self._fetch_row("SELECT id, name, row_count, updated_at FROM datasets WHERE id = ?", id)
        return StoredDataset(*row) if row else None

    def datasets(self, limit: int, offset: int) -> list[StoredDataset]:
        """List the datasets, newest first."""
        query = "SELECT id, name, row_count, updated_at FROM datasets ORDER BY number DESC LIMIT ? OFFSET ?"
        return [StoredDataset(*row) for row in self._fetch_all(query, limit, offset)]

    def rows(self, dataset: str, offset: int, limit: int) -> list[bytes]:
        """Return rows of a dataset as JSON, in order."""
        query = "SELECT body FROM dataset_rows WHERE dataset = ? AND number >= ? AND number < ? ORDER BY number"
        return [body for (body,) in self._fetch_all(query, dataset, offset, offset + limit)]

    def delete_dataset(self, id: str, with_runs: bool) -> bool:
        """Delete a dataset, and its runs only if `with_runs` is set."""

        def change(connection: sqlite3.Connection) -> bool:
            existed = connection.execute("DELETE FROM datasets WHERE id = ?", (id,)).rowcount > 0
            connection.execute("DELETE FROM dataset_rows WHERE dataset = ?", (id,))
            # Runs of a dataset deleted earlier can still be deleted.
            return (with_runs and _delete_runs(connection, id)) or existed

        return self._write(change)

    # -- replays --------------------------------------------------------------------------------------

    def find_pack(self, key: str) -> tuple[int, list[Outcome]] | None:
        """Return id and outcomes of the pack stored under a key."""
        row = self._fetch_row("SELECT id, summaries FROM packs WHERE key = ?", key)
        return (row[0], msgspec.json.decode(row[1], type=list[Outcome])) if row else None

    def add_window(
        self, replay: Replay, window: Window, nodes: Sequence[RecipeNode], is_first: bool, is_stored_dataset: bool
    ) -> int:
        """Store a window of a replay, with the replay itself if it is the first; return the id of its pack.

        A stored dataset must still exist; the rows of a file are not stored.
        """
        try:
            return self._write(_insert_window(replay, window, nodes, is_first, is_stored_dataset))
        except sqlite3.IntegrityError:
            raise PackDeleted(window.recipe) from None

    async def add_window_async(self, replay: Replay, window: Window) -> None:
        """Store the first window of a replay, with a pack already stored, from one event loop."""
        if self._loop_writer is None:
            self._loop_writer = LoopWriter(self._connect(timeout_s=0.0), self._writer)
        try:
            await self._loop_writer.submit(_insert_window(replay, window, (), is_first=True, is_stored_dataset=True))
        except sqlite3.IntegrityError:
            raise PackDeleted(window.recipe) from None

    def replays(self, dataset: str, limit: int, offset: int, before: int = _NO_BOUND) -> list[ReplayCounts]:
        """List the replays of a dataset whose number is below `before`, newest first."""
        return self._select_replays("r.dataset = ?", dataset, limit, offset, before)

    def choose_two(self, dataset: str, a: str = "", b: str = "") -> tuple[str, str] | None:
        """Choose two replays to compare, older first: the named ones, else the newest and the one before it.

        Only complete ones are chosen: the rows that an interrupted replay lacks are no change of the recipe. An older
        replay of overlapping rows is preferred, for datasets that are replayed in pieces.
        """
        if a and b:
            return a, b
        newer = self.replay(b) if b else next(self._complete_replays(dataset), None)
        if newer is None or newer.replay.id == a:
            return None
        before = list(self._complete_replays(dataset, newer.number))
        overlapping = [older for older in before if older.offset < newer.end and newer.offset < older.end]
        older_id = a or next((older.replay.id for older in (*overlapping, *before)), "")
        return (older_id, newer.replay.id) if older_id else None

    def _complete_replays(self, dataset: str, before: int = _NO_BOUND) -> Iterator[ReplayCounts]:
        candidates = self.replays(dataset, MAX_CANDIDATES, 0, before)
        return (replay for replay in candidates if replay.state == "complete")

    def left_out(self, dataset: str, chosen: tuple[str, str] | None) -> list[ReplayCounts]:
        """List the incomplete replays, newest first, that `choose_two` did not choose although they are newer."""
        passed_over: list[ReplayCounts] = []
        for replay in self.replays(dataset, MAX_CANDIDATES, 0):
            if chosen and replay.replay.id == chosen[0]:
                break
            if replay.state != "complete" and not (chosen and replay.replay.id == chosen[1]):
                passed_over.append(replay)
        return passed_over

    def all_replays(self, limit: int, offset: int) -> list[ReplayCounts]:
        """List the replays of all datasets, newest first."""
        return self._select_replays("r.dataset IS NOT ?", None, limit, offset)

    def replays_by_prefix(self, prefix: str, limit: int) -> list[str]:
        """List the ids of replays that start with a prefix."""
        query = "SELECT id FROM replays WHERE substr(id, 1, ?) = ? ORDER BY number DESC LIMIT ?"
        return [id for (id,) in self._fetch_all(query, len(prefix), prefix, limit)]

    def replay(self, id: str) -> ReplayCounts | None:
        return next(iter(self._select_replays("r.id = ?", id, 1, 0)), None)

    def _select_replays(
        self, where: str, value: str | None, limit: int, offset: int, before: int = _NO_BOUND
    ) -> list[ReplayCounts]:
        query = (
            "SELECT r.id, r.dataset, r.project, r.created_at, r.profile, r.rows_requested, min(w.first_row), "
            "sum(w.row_count), sum(w.succeeded), sum(w.met), sum(w.unmet), r.number "
            "FROM replays r JOIN windows w ON w.replay = r.number "
            f"WHERE {where} AND r.number < ? GROUP BY r.number ORDER BY r.number DESC LIMIT ? OFFSET ?"
        )
        return [
            ReplayCounts(Replay(*row[:6]), row[6], Counts(*row[7:11]), row[11], self._state(row[0], row[7], row[5]))
            for row in self._fetch_all(query, value, before, limit, offset)
        ]

    def _state(self, replay: str, rows: int, rows_requested: int | None) -> ReplayState:
        # Earlier versions did not store how many rows were asked for: such a replay counts as complete.
        if rows_requested is None or rows >= rows_requested:
            return "complete"
        return "running" if is_running(self.path, replay) else "interrupted"

    def runs(self, run_filter: RunFilter, limit: int, offset: int) -> list[RunSummary]:
        """List the matching runs of a dataset, newest first: starting with the last row of the last replay."""
        runs: list[RunSummary] = []
        for window, matching_count in self._matching_windows(run_filter):
            # Skip whole windows by their counts, without reading their packs.
            if matching_count is not None and offset >= matching_count:
                offset -= matching_count
                continue
            matching = [
                _summary(window, row, outcome)
                for row, outcome in enumerate(self._pack_outcomes(window.pack), window.first_row)
                if run_filter.row_index in (None, row) and run_filter.matches(outcome)
            ]
            runs += matching[::-1][offset : offset + limit - len(runs)]
            offset = max(0, offset - len(matching))
            if len(runs) == limit:
                break
        return runs

    def _matching_windows(self, run_filter: RunFilter) -> Iterator[tuple[StoredWindow, int | None]]:
        """Yield the windows that may match, newest first, with their number of matching runs if it is stored."""
        query, values = f"{_SELECT_WINDOWS} WHERE r.dataset = ?", [run_filter.dataset]
        if run_filter.project:
            query, values = f"{query} AND r.project = ?", [*values, run_filter.project]
        if run_filter.row_index is not None:
            index = run_filter.row_index
            query = f"{query} AND w.first_row <= {index:d} AND w.first_row + w.row_count > {index:d}"
        for row in self._iterate(f"{query} ORDER BY r.number DESC, w.first_row DESC", *values):
            yield StoredWindow(*row), _matching_count(StoredWindow(*row), run_filter)

    def _pack_outcomes(self, pack: int) -> list[Outcome]:
        row = self._fetch_row("SELECT summaries FROM packs WHERE id = ?", pack)
        return msgspec.json.decode(row[0], type=list[Outcome]) if row else []

    def summaries(self, replay: str) -> Iterator[RunSummary]:
        """Yield the summaries of a replay, by row."""
        for window in self._windows_of(replay):
            for row, outcome in enumerate(self._pack_outcomes(window.pack), window.first_row):
                yield _summary(window, row, outcome)

    def outcomes(self, replay: str) -> dict[int, Outcome]:
        """Return the outcomes of a replay, by row."""
        return {
            row: outcome
            for window in self._windows_of(replay)
            for row, outcome in enumerate(self._pack_outcomes(window.pack), window.first_row)
        }

    def _windows_of(self, replay: str) -> Iterator[StoredWindow]:
        return (
            StoredWindow(*row)
            for row in self._iterate(f"{_SELECT_WINDOWS} WHERE r.id = ? ORDER BY w.first_row", replay)
        )

    def run(self, replay: str, row_index: int) -> RunRecord | None:
        """Return the full record of a run."""
        # Read only the window that contains the row: a replay of a million rows has thousands of windows.
        where = "WHERE r.id = ? AND w.first_row <= ? ORDER BY w.first_row DESC LIMIT 1"
        row = self._fetch_row(f"{_SELECT_WINDOWS} {where}", replay, row_index)
        return next(self._records(StoredWindow(*row), [row_index]), None) if row else None

    def records(self, replay: str) -> Iterator[RunRecord]:
        """Yield the full records of a replay, by row."""
        for window in self._windows_of(replay):
            yield from self._records(window, range(window.first_row, window.first_row + window.row_count))

    def _records(self, window: StoredWindow, row_indexes: Iterable[int]) -> Iterator[RunRecord]:
        """Yield the records of some rows of a window; none if they were deleted in the meantime."""
        nodes = self._nodes_of(window.recipe)
        for row_index in row_indexes:
            row = self._packed_row(window.pack, row_index - window.first_row)
            if row is None:
                return
            assembled = msgspec.json.decode(row, type=AssembledRow)
            run_id = f"{window.replay}-{row_index}"
            trace = trace_of(nodes, assembled, run_id, window.created_at)
            yield RunRecord(
                *(run_id, window.created_at, window.project, window.dataset, row_index),
                *(assembled.status, assembled.digest, assembled.missing, trace, assembled.errors),
            )

    def _packed_row(self, pack: int, index: int) -> msgspec.Raw | None:
        """Return a row of a pack. The last two blocks are cached, since runs are mostly read in sequence."""
        for (cached_pack, block), rows in self._block_cache.items():
            if cached_pack == pack and block.first <= index < block.first + block.rows:
                return rows[index - block.first]
        row = self._fetch_row("SELECT blocks FROM packs WHERE id = ?", pack)
        blocks = msgspec.json.decode(row[0], type=list[PackBlock]) if row else []
        for block in blocks:
            if block.first <= index < block.first + block.rows:
                query = "SELECT substr(body, ?, ?) FROM packs WHERE id = ?"
                if (body := self._fetch_row(query, block.start + 1, block.size, pack)) is None:
                    return None
                rows = msgspec.json.decode(zstd.decompress(body[0]), type=list[msgspec.Raw])
                self._block_cache = {**dict(list(self._block_cache.items())[-1:]), (pack, block): rows}
                return rows[index - block.first]
        return None

    def _nodes_of(self, recipe: str) -> list[RecipeNode]:
        if (nodes := self._nodes_cache.get(recipe)) is None:
            row = self._fetch_row("SELECT parts FROM recipes WHERE digest = ?", recipe)
            if row is None:
                # A recipe is deleted with its last run, so there are no rows to read either.
                return []
            nodes = msgspec.json.decode(row[0], type=list[RecipeNode])
            self._nodes_cache = {**dict(list(self._nodes_cache.items())[-1:]), recipe: nodes}
        return nodes

    # -- connections ----------------------------------------------------------------------------------

    def _fetch_row(self, query: str, *values: Any) -> Any:
        return self._connection().execute(query, values).fetchone()

    def _fetch_all(self, query: str, *values: Any) -> list[Any]:
        return self._connection().execute(query, values).fetchall()

    def _iterate(self, query: str, *values: Any) -> Iterator[Any]:
        # An open cursor would keep SQLite from truncating the write-ahead log.
        cursor = self._connection().execute(query, values)
        try:
            yield from cursor
        finally:
            cursor.close()

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect(_BUSY_S)
        return connection

    def _connect(self, timeout_s: float) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=timeout_s, isolation_level=None, check_same_thread=False)
        self._connections.append(connection)
        _switch_to_wal(connection)
        # FULL: acknowledged writes survive a power failure.
        connection.executescript("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON")
        return connection

    def _write(self, change: Change[Result]) -> Result:
        """Apply a change: durable when this returns, rolled back when it raises."""
        return self._writer.submit(change).result()


_SELECT_WINDOWS = (
    "SELECT r.id, r.dataset, r.project, w.created_at, w.first_row, w.row_count, w.succeeded, w.pack, w.recipe "
    "FROM replays r JOIN windows w ON w.replay = r.number"
)


def _summary(window: StoredWindow, row: int, outcome: Outcome) -> RunSummary:
    return RunSummary(f"{window.replay}-{row}", window.created_at, row, outcome.status, outcome.digest, outcome.missing)


def _matching_count(window: StoredWindow, run_filter: RunFilter) -> int | None:
    """Return how many runs of a window match, or None if the pack has to be read."""
    if run_filter.row_index is not None or run_filter.check:
        return None
    if run_filter.status:
        return window.succeeded if run_filter.status == "succeeded" else window.row_count - window.succeeded
    return window.row_count


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Turn on the write-ahead log; retry while the file is locked, since SQLite ignores the busy timeout here."""
    deadline = monotonic() + _BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if monotonic() > deadline:
                raise
            sleep(_RETRY_S)


def _make_private(path: Path) -> None:
    """Create the file and its folder for the user only; take the rights of others from those that exist."""
    folder = path.parent
    folder.parent.mkdir(0o700, parents=True, exist_ok=True)
    folder.mkdir(0o700, exist_ok=True)
    # SQLite gives the files beside it (-wal, -shm) the rights that it has.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    sync_names(folder, folder.parent, folder.parent.parent)
    for place in (folder, *folder.glob(f"{FILE}*")):
        mode = stat.S_IMODE(place.stat().st_mode)
        if mode & 0o077:
            # Someone else's folder stays as its owner made it.
            with suppress(PermissionError):
                place.chmod(mode & 0o700)


def _create_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables of a new store, and check the version of an existing one."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        message = f"{path.as_posix()}: expected a store of version {VERSION}, got {version}. Use a newer evalloom"
        raise EvalloomError("bad_store", message)
    if version < VERSION:
        # Not executescript, which commits the open transaction first.
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute("INSERT INTO own VALUES (?)", (token_bytes(16),))
        connection.execute(f"PRAGMA user_version = {VERSION}")
    elif "rows_requested" not in {row[1] for row in connection.execute("PRAGMA table_info(replays)")}:
        # Added later. The version stays, because earlier versions of evalloom can still use the store.
        connection.execute("ALTER TABLE replays ADD COLUMN rows_requested INTEGER")


def _insert_window(
    replay: Replay, window: Window, nodes: Sequence[RecipeNode], is_first: bool, is_stored_dataset: bool
) -> Change[int]:
    """Return the change that inserts a window and gives the id of its pack."""

    def change(connection: sqlite3.Connection) -> int:
        if is_first:
            connection.execute(
                "INSERT INTO replays (id, dataset, project, created_at, profile, rows_requested) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                replay,
            )
        if (
            is_stored_dataset
            and not connection.execute("SELECT 1 FROM datasets WHERE id = ?", (replay.dataset,)).fetchone()
        ):
            raise DatasetDeleted(replay.dataset)
        pack = window.pack
        if isinstance(pack, Pack):
            connection.execute(
                "INSERT OR IGNORE INTO recipes VALUES (?, ?)", (window.recipe, msgspec.json.encode(nodes))
            )
            pack = _insert_pack(connection, pack)
        cursor = connection.execute(
            "INSERT INTO windows SELECT number, ?, ?, ?, ?, ?, ?, ?, ? FROM replays WHERE id = ?",
            (window.first_row, *window.counts, window.created_at, window.recipe, pack, replay.id),
        )
        if cursor.rowcount != 1:
            raise DatasetDeleted(replay.dataset)
        return pack

    return change


def _insert_pack(connection: sqlite3.Connection, pack: Pack) -> int:
    """Insert a pack unless another process has stored the same one; return its id."""
    summaries = msgspec.json.encode(pack.outcomes)
    row = connection.execute(
        "INSERT INTO packs (key, summaries, blocks, body) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (key) DO NOTHING RETURNING id",
        (pack.key or None, summaries, msgspec.json.encode(pack.blocks), pack.body),
    ).fetchone()
    row = row or connection.execute("SELECT id FROM packs WHERE key = ?", (pack.key,)).fetchone()
    pack_id: int = row[0]
    return pack_id


def _delete_runs(connection: sqlite3.Connection, dataset: str) -> bool:
    """Delete the runs of a dataset and the packs that no other run refers to; return whether there were any."""
    packs = connection.execute(
        "SELECT DISTINCT w.pack FROM replays r JOIN windows w ON w.replay = r.number WHERE r.dataset = ?", (dataset,)
    ).fetchall()
    connection.execute("DELETE FROM replays WHERE dataset = ?", (dataset,))
    unused = "DELETE FROM packs WHERE id = ? AND NOT EXISTS (SELECT 1 FROM windows WHERE pack = packs.id)"
    connection.executemany(unused, packs)
    connection.execute("DELETE FROM recipes WHERE NOT EXISTS (SELECT 1 FROM windows WHERE recipe = recipes.digest)")
    return bool(packs)
