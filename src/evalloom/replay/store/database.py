"""Projects, datasets and the runs of replays, in one SQLite file that several threads and processes may share.

A replay is kept as windows of up to 200 rows. What the rows of a window came to is a *pack*: it depends on recipe and
rows alone, so replays that come to the same share it, and one of them is a single small write. See docs/decisions/0008.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from secrets import token_bytes
from time import monotonic, sleep
from typing import Any

import msgspec

from evalloom.core.errors import EvalloomError
from evalloom.files import zstd
from evalloom.replay.recipe.assemble import Assembled, Part, trace_of
from evalloom.replay.recipe.trace import Outcome, RunRecord, RunSummary
from evalloom.replay.store.records import (
    Block,
    Chosen,
    Counts,
    DatasetGone,
    Kept,
    Pack,
    PackGone,
    Replay,
    ReplayCounts,
    StoredDataset,
    StoredProject,
    Window,
)
from evalloom.replay.store.writer import LoopWriter, Work, Writer, Written

FOLDER = "store"
FILE = "replay.sqlite"
VERSION = 1
_BUSY_S = 30.0
_RETRY_S = 0.02
_MOST_LOOKED_AT = 1_000
_PAST_EVERYTHING = 2**62
_SCHEMA = """
CREATE TABLE projects (id TEXT PRIMARY KEY, name TEXT, state BLOB, digest TEXT, updated_at TEXT, number INTEGER);
CREATE TABLE datasets (id TEXT PRIMARY KEY, name TEXT, row_count INTEGER, updated_at TEXT, number INTEGER);
CREATE TABLE dataset_rows (dataset TEXT, number INTEGER, body BLOB, PRIMARY KEY (dataset, number)) WITHOUT ROWID;
CREATE TABLE recipes (digest TEXT PRIMARY KEY, parts BLOB) WITHOUT ROWID;
CREATE TABLE packs (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, summaries BLOB, blocks BLOB, body BLOB);
CREATE TABLE replays (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, dataset TEXT, project TEXT, created_at TEXT,
    profile TEXT);
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
    """One data folder. Every thread that reads has a connection of its own; one thread writes for all."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FOLDER / FILE
        self._local = threading.local()
        self._open: list[sqlite3.Connection] = []
        self._loop_writer: LoopWriter | None = None
        self._unpacked: dict[tuple[int, Block], list[msgspec.Raw]] = {}
        self._parts: dict[str, list[Part]] = {}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection()
        except (OSError, sqlite3.Error) as fault:
            raise EvalloomError("bad_store", f"{self.path.as_posix()}: cannot be used: {fault}") from None
        self._writer = Writer(self._connection)
        try:
            self._write(partial(_prepare, path=self.path))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Waits until everything is written, and closes all connections."""
        self._writer.close()
        for connection in self._open:
            connection.close()
        self._open.clear()
        self._local = threading.local()

    @property
    def salt(self) -> bytes:
        """Random bytes that only this store has."""
        found: bytes = self._one("SELECT salt FROM own")[0]
        return found

    # -- projects and datasets ------------------------------------------------------------------------

    def put_project(self, project: StoredProject) -> None:
        """Keeps a project, in the place of one with the same id."""
        query = (
            "INSERT INTO projects VALUES (?, ?, ?, ?, ?, (SELECT coalesce(max(number), 0) + 1 FROM projects)) "
            "ON CONFLICT (id) DO UPDATE SET name = excluded.name, state = excluded.state, "
            "digest = excluded.digest, updated_at = excluded.updated_at"
        )
        self._write(lambda connection: connection.execute(query, project))

    def project(self, id: str) -> StoredProject | None:
        row = self._one("SELECT id, name, state, digest, updated_at FROM projects WHERE id = ?", id)
        return StoredProject(*row) if row else None

    def has_project(self, id: str) -> bool:
        return self._one("SELECT 1 FROM projects WHERE id = ?", id) is not None

    def look_up(self, dataset: str, project: str) -> tuple[int | None, str | None]:
        """How many rows a dataset has, and the digest of a project's state; None for what is not there."""
        query = "SELECT (SELECT row_count FROM datasets WHERE id = ?), (SELECT digest FROM projects WHERE id = ?)"
        found: tuple[int | None, str | None] = self._one(query, dataset, project)
        return found

    def projects(self, limit: int, offset: int) -> list[tuple[str, str, str]]:
        """Id, name and time of the projects, newest first."""
        return self._all(
            "SELECT id, name, updated_at FROM projects ORDER BY number DESC LIMIT ? OFFSET ?", limit, offset
        )

    def delete_project(self, id: str) -> bool:
        query = "DELETE FROM projects WHERE id = ?"
        return self._write(lambda connection: connection.execute(query, (id,)).rowcount > 0)

    def put_dataset(self, dataset: StoredDataset, rows: Sequence[bytes]) -> None:
        """Keeps a dataset and all its rows, or nothing of it."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO datasets VALUES (?, ?, ?, ?, (SELECT coalesce(max(number), 0) + 1 FROM datasets))", dataset
            )
            numbered = ((dataset.id, number, body) for number, body in enumerate(rows))
            connection.executemany("INSERT INTO dataset_rows VALUES (?, ?, ?)", numbered)

        self._write(work)

    def dataset(self, id: str) -> StoredDataset | None:
        row = self._one("SELECT id, name, row_count, updated_at FROM datasets WHERE id = ?", id)
        return StoredDataset(*row) if row else None

    def datasets(self, limit: int, offset: int) -> list[StoredDataset]:
        """The datasets, newest first."""
        query = "SELECT id, name, row_count, updated_at FROM datasets ORDER BY number DESC LIMIT ? OFFSET ?"
        return [StoredDataset(*row) for row in self._all(query, limit, offset)]

    def rows(self, dataset: str, offset: int, limit: int) -> list[bytes]:
        """Rows of a dataset as JSON, in their order."""
        query = "SELECT body FROM dataset_rows WHERE dataset = ? AND number >= ? AND number < ? ORDER BY number"
        return [body for (body,) in self._all(query, dataset, offset, offset + limit)]

    def delete_dataset(self, id: str, with_runs: bool) -> bool:
        """Removes a dataset; its runs stay unless they are to go as well."""

        def work(connection: sqlite3.Connection) -> bool:
            is_found = connection.execute("DELETE FROM datasets WHERE id = ?", (id,)).rowcount > 0
            connection.execute("DELETE FROM dataset_rows WHERE dataset = ?", (id,))
            # Runs that outlived their dataset can still be removed.
            return (with_runs and _forget_runs(connection, id)) or is_found

        return self._write(work)

    # -- replays --------------------------------------------------------------------------------------

    def find_pack(self, key: str) -> tuple[int, list[Outcome]] | None:
        """The pack that was made of this before."""
        row = self._one("SELECT id, summaries FROM packs WHERE key = ?", key)
        return (row[0], msgspec.json.decode(row[1], type=list[Outcome])) if row else None

    def add_window(
        self, replay: Replay, window: Window, parts: Sequence[Part], is_first: bool, of_service: bool
    ) -> int:
        """Keeps a window of a replay, and the replay itself with its first one; gives the id of its pack.

        The dataset of a service must be there; one of a file is not kept.
        """
        try:
            return self._write(_window_work(replay, window, parts, is_first, of_service))
        except sqlite3.IntegrityError:
            raise PackGone(window.recipe) from None

    async def add_window_async(self, replay: Replay, window: Window) -> None:
        """Store the first window of a replay, with a pack already stored, from one event loop."""
        if self._loop_writer is None:
            self._loop_writer = LoopWriter(self._connect(timeout_s=0.0), self._writer)
        try:
            await self._loop_writer.submit(_window_work(replay, window, (), is_first=True, of_service=True))
        except sqlite3.IntegrityError:
            raise PackGone(window.recipe) from None

    def replays(self, dataset: str, limit: int, offset: int, before: int = _PAST_EVERYTHING) -> list[ReplayCounts]:
        """The replays of a dataset that were kept before the one of a number, newest first."""
        return self._counted("r.dataset = ?", dataset, limit, offset, before)

    def last_two(self, dataset: str, a: str = "", b: str = "") -> tuple[str, str] | None:
        """Two replays to compare, the earlier first: those that are named, else the newest and the one before it.

        Whoever replays a large dataset in pieces wants the same piece of the time before.
        """
        if a and b:
            return a, b
        newer = self.replay(b) if b else next(iter(self.replays(dataset, 1, 0)), None)
        if newer is None or newer.replay.id == a:
            return None
        before = self.replays(dataset, _MOST_LOOKED_AT, 0, newer.number)
        same = [one for one in before if one.offset < newer.end and newer.offset < one.end]
        older = a or next((one.replay.id for one in (*same, *before)), "")
        return (older, newer.replay.id) if older else None

    def all_replays(self, limit: int, offset: int) -> list[ReplayCounts]:
        """The replays of all datasets, newest first."""
        return self._counted("r.dataset IS NOT ?", None, limit, offset)

    def replays_from(self, start: str, limit: int) -> list[str]:
        """The ids that begin like this."""
        query = "SELECT id FROM replays WHERE substr(id, 1, ?) = ? ORDER BY number DESC LIMIT ?"
        return [id for (id,) in self._all(query, len(start), start, limit)]

    def replay(self, id: str) -> ReplayCounts | None:
        return next(iter(self._counted("r.id = ?", id, 1, 0)), None)

    def _counted(
        self, where: str, value: str | None, limit: int, offset: int, before: int = _PAST_EVERYTHING
    ) -> list[ReplayCounts]:
        query = (
            "SELECT r.id, r.dataset, r.project, r.created_at, r.profile, min(w.first_row), sum(w.row_count), "
            "sum(w.succeeded), sum(w.met), sum(w.unmet), r.number FROM replays r JOIN windows w ON w.replay = r.number "
            f"WHERE {where} AND r.number < ? GROUP BY r.number ORDER BY r.number DESC LIMIT ? OFFSET ?"
        )
        return [
            ReplayCounts(Replay(*row[:5]), row[5], Counts(*row[6:10]), row[10])
            for row in self._all(query, value, before, limit, offset)
        ]

    def runs(self, chosen: Chosen, limit: int, offset: int) -> list[RunSummary]:
        """The runs of a dataset, newest first: of the last replay the last row."""
        found: list[RunSummary] = []
        for window, most in self._windows(chosen):
            # A window all of whose runs are meant, or none, need not be looked into to be passed over.
            if most is not None and offset >= most:
                offset -= most
                continue
            meant = list(self._chosen(window, chosen))
            found += meant[::-1][offset : offset + limit - len(found)]
            offset = max(0, offset - len(meant))
            if len(found) == limit:
                break
        return found

    def _windows(self, chosen: Chosen) -> Iterator[tuple[Kept, int | None]]:
        """The windows of a dataset, newest first, and how many of their runs are meant where that is plain."""
        query, values = f"{_KEPT} WHERE r.dataset = ?", [chosen.dataset]
        if chosen.project:
            query, values = f"{query} AND r.project = ?", [*values, chosen.project]
        if chosen.row_index is not None:
            index = chosen.row_index
            query = f"{query} AND w.first_row <= {index:d} AND w.first_row + w.row_count > {index:d}"
        for row in self._each(f"{query} ORDER BY r.number DESC, w.first_row DESC", *values):
            yield Kept(*row), _plain_count(Kept(*row), chosen)

    def _chosen(self, window: Kept, chosen: Chosen) -> Iterator[RunSummary]:
        for row, outcome in enumerate(self._outcomes(window.pack), window.first_row):
            if chosen.row_index in (None, row) and chosen.means(outcome):
                yield _summary(window, row, outcome)

    def _outcomes(self, pack: int) -> list[Outcome]:
        row = self._one("SELECT summaries FROM packs WHERE id = ?", pack)
        return msgspec.json.decode(row[0], type=list[Outcome]) if row else []

    def summaries(self, replay: str) -> Iterator[RunSummary]:
        """The runs of one replay, by row."""
        for window in self._windows_of(replay):
            for row, outcome in enumerate(self._outcomes(window.pack), window.first_row):
                yield _summary(window, row, outcome)

    def outcomes(self, replay: str) -> dict[int, Outcome]:
        """What the runs of one replay came to, by row."""
        return {
            row: outcome
            for window in self._windows_of(replay)
            for row, outcome in enumerate(self._outcomes(window.pack), window.first_row)
        }

    def _windows_of(self, replay: str) -> Iterator[Kept]:
        return (Kept(*row) for row in self._each(f"{_KEPT} WHERE r.id = ? ORDER BY w.first_row", replay))

    def run(self, replay: str, row_index: int) -> RunRecord | None:
        """The whole record of one run."""
        # The last window that begins before it: a replay of a million rows has thousands.
        where = "WHERE r.id = ? AND w.first_row <= ? ORDER BY w.first_row DESC LIMIT 1"
        row = self._one(f"{_KEPT} {where}", replay, row_index)
        return next(self._records(Kept(*row), [row_index]), None) if row else None

    def records(self, replay: str) -> Iterator[RunRecord]:
        """The whole records of a replay, by row."""
        for kept in self._windows_of(replay):
            yield from self._records(kept, range(kept.first_row, kept.first_row + kept.row_count))

    def _records(self, kept: Kept, wanted: Iterable[int]) -> Iterator[RunRecord]:
        """The records of some rows of a window; none where somebody removed them meanwhile."""
        parts = self._parts_of(kept.recipe)
        for row_index in wanted:
            row = self._row(kept.pack, row_index - kept.first_row)
            if row is None:
                return
            made = msgspec.json.decode(row, type=Assembled)
            run_id = f"{kept.replay}-{row_index}"
            trace = trace_of(parts, made, run_id, kept.created_at)
            yield RunRecord(
                *(run_id, kept.created_at, kept.project, kept.dataset, row_index),
                *(made.status, made.digest, made.missing, trace, made.errors),
            )

    def _row(self, pack: int, at: int) -> msgspec.Raw | None:
        """A row of a pack. The last blocks are remembered: who looks at a run mostly looks at the next one too."""
        for (known, block), rows in self._unpacked.items():
            if known == pack and block.first <= at < block.first + block.rows:
                return rows[at - block.first]
        found = self._one("SELECT blocks FROM packs WHERE id = ?", pack)
        blocks = msgspec.json.decode(found[0], type=list[Block]) if found else []
        for block in blocks:
            if block.first <= at < block.first + block.rows:
                query = "SELECT substr(body, ?, ?) FROM packs WHERE id = ?"
                if (body := self._one(query, block.start + 1, block.size, pack)) is None:
                    return None
                rows = msgspec.json.decode(zstd.decompress(body[0]), type=list[msgspec.Raw])
                self._unpacked = {**dict(list(self._unpacked.items())[-1:]), (pack, block): rows}
                return rows[at - block.first]
        return None

    def _parts_of(self, recipe: str) -> list[Part]:
        if (found := self._parts.get(recipe)) is None:
            row = self._one("SELECT parts FROM recipes WHERE digest = ?", recipe)
            if row is None:
                # It goes with the last run that needs it, and then no row is found either.
                return []
            found = msgspec.json.decode(row[0], type=list[Part])
            self._parts = {**dict(list(self._parts.items())[-1:]), recipe: found}
        return found

    # -- connections ----------------------------------------------------------------------------------

    def _one(self, query: str, *values: Any) -> Any:
        return self._connection().execute(query, values).fetchone()

    def _all(self, query: str, *values: Any) -> list[Any]:
        return self._connection().execute(query, values).fetchall()

    def _each(self, query: str, *values: Any) -> Iterator[Any]:
        # A reader that is never done would keep the log of changes from being tidied up.
        cursor = self._connection().execute(query, values)
        try:
            yield from cursor
        finally:
            cursor.close()

    def _connection(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if found is None:
            found = self._local.connection = self._connect(_BUSY_S)
        return found

    def _connect(self, timeout_s: float) -> sqlite3.Connection:
        made = sqlite3.connect(self.path, timeout=timeout_s, isolation_level=None, check_same_thread=False)
        self._open.append(made)
        _switch_to_wal(made)
        # FULL: what was answered is on disk, also when the power goes.
        made.executescript("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON")
        return made

    def _write(self, work: Work[Written]) -> Written:
        """Does what changes the store: on disk when this returns, or nothing of it where it raises."""
        return self._writer.submit(work).result()


_KEPT = (
    "SELECT r.id, r.dataset, r.project, w.created_at, w.first_row, w.row_count, w.succeeded, w.pack, w.recipe "
    "FROM replays r JOIN windows w ON w.replay = r.number"
)


def _summary(window: Kept, row: int, outcome: Outcome) -> RunSummary:
    return RunSummary(f"{window.replay}-{row}", window.created_at, row, outcome.status, outcome.digest, outcome.missing)


def _plain_count(window: Kept, chosen: Chosen) -> int | None:
    """How many runs of a window are meant, where its counts tell."""
    if chosen.row_index is not None or chosen.check:
        return None
    if chosen.status:
        return window.succeeded if chosen.status == "succeeded" else window.row_count - window.succeeded
    return window.row_count


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Turns on the log of changes. SQLite does not wait here by itself where another process does the same."""
    until = monotonic() + _BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if monotonic() > until:
                raise
            sleep(_RETRY_S)


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        message = f"{path.as_posix()}: expected a store of version {VERSION}, got {version}. Use a newer evalloom"
        raise EvalloomError("bad_store", message)
    if version < VERSION:
        # Not executescript, which commits first.
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute("INSERT INTO own VALUES (?)", (token_bytes(16),))
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _window_work(replay: Replay, window: Window, parts: Sequence[Part], is_first: bool, of_service: bool) -> Work[int]:
    """What keeps a window, and gives the id of its pack."""

    def work(connection: sqlite3.Connection) -> int:
        if is_first:
            connection.execute(
                "INSERT INTO replays (id, dataset, project, created_at, profile) VALUES (?, ?, ?, ?, ?)", replay
            )
        if of_service and not connection.execute("SELECT 1 FROM datasets WHERE id = ?", (replay.dataset,)).fetchone():
            raise DatasetGone(replay.dataset)
        pack = window.pack
        if isinstance(pack, Pack):
            _keep_recipe(connection, window.recipe, parts)
            pack = _keep_pack(connection, pack)
        kept = connection.execute(
            "INSERT INTO windows SELECT number, ?, ?, ?, ?, ?, ?, ?, ? FROM replays WHERE id = ?",
            (window.first_row, *window.counts, window.created_at, window.recipe, pack, replay.id),
        )
        if kept.rowcount != 1:
            raise DatasetGone(replay.dataset)
        return pack

    return work


def _keep_recipe(connection: sqlite3.Connection, digest: str, parts: Sequence[Part]) -> None:
    connection.execute("INSERT OR IGNORE INTO recipes VALUES (?, ?)", (digest, msgspec.json.encode(parts)))


def _keep_pack(connection: sqlite3.Connection, pack: Pack) -> int:
    """The id of a pack; another process may have kept the same one meanwhile."""
    summaries = msgspec.json.encode(pack.outcomes)
    kept = connection.execute(
        "INSERT INTO packs (key, summaries, blocks, body) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (key) DO NOTHING RETURNING id",
        (pack.key or None, summaries, msgspec.json.encode(pack.blocks), pack.body),
    ).fetchone()
    found = kept or connection.execute("SELECT id FROM packs WHERE key = ?", (pack.key,)).fetchone()
    id: int = found[0]
    return id


def _forget_runs(connection: sqlite3.Connection, dataset: str) -> bool:
    """Removes the runs of a dataset, and the packs that no other run needs; says whether there were some."""
    packs = connection.execute(
        "SELECT DISTINCT w.pack FROM replays r JOIN windows w ON w.replay = r.number WHERE r.dataset = ?", (dataset,)
    ).fetchall()
    connection.execute("DELETE FROM replays WHERE dataset = ?", (dataset,))
    unused = "DELETE FROM packs WHERE id = ? AND NOT EXISTS (SELECT 1 FROM windows WHERE pack = packs.id)"
    connection.executemany(unused, packs)
    connection.execute("DELETE FROM recipes WHERE NOT EXISTS (SELECT 1 FROM windows WHERE recipe = recipes.digest)")
    return bool(packs)
