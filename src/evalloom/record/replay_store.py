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
from typing import Any, NamedTuple

import msgspec

from evalloom.errors import EvalloomError
from evalloom.files import zstd
from evalloom.record.replay_writer import LoopWriter, Work, Writer, Written
from evalloom.targets.recipe import Assembled, Part, trace_of
from evalloom.targets.recipe_trace import RunRecord, RunSummary

FOLDER = "store"
FILE = "replay.sqlite"
VERSION = 1
WINDOW = 200
"""How many rows a window holds at most."""
_BUSY_S = 30.0
_encode = msgspec.json.Encoder().encode
_SCHEMA = """
CREATE TABLE projects (id TEXT PRIMARY KEY, name TEXT, state BLOB, digest TEXT, updated_at TEXT, number INTEGER);
CREATE TABLE datasets (id TEXT PRIMARY KEY, name TEXT, row_count INTEGER, updated_at TEXT, number INTEGER);
CREATE TABLE dataset_rows (dataset TEXT, number INTEGER, body BLOB, PRIMARY KEY (dataset, number)) WITHOUT ROWID;
CREATE TABLE recipes (digest TEXT PRIMARY KEY, parts BLOB) WITHOUT ROWID;
CREATE TABLE packs (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, summaries BLOB, body BLOB);
CREATE TABLE replays (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, dataset TEXT, project TEXT, created_at TEXT,
    profile TEXT);
CREATE TABLE windows (
    replay INTEGER REFERENCES replays ON DELETE CASCADE, first_row INTEGER, row_count INTEGER, succeeded INTEGER,
    created_at TEXT, recipe TEXT REFERENCES recipes, pack INTEGER REFERENCES packs,
    PRIMARY KEY (replay, first_row)) WITHOUT ROWID;
CREATE INDEX replays_of_dataset ON replays (dataset, number);
CREATE INDEX windows_of_pack ON windows (pack);
"""


class StoredProject(NamedTuple):
    """A project as it is kept: its state is JSON text."""

    id: str
    name: str
    state: bytes
    digest: str
    updated_at: str


class StoredDataset(NamedTuple):
    """What is kept of a dataset beside its rows."""

    id: str
    name: str
    row_count: int
    updated_at: str


class Replay(NamedTuple):
    """Who was replayed with what."""

    id: str
    dataset: str
    project: str
    created_at: str
    profile: str = ""


class ReplayCounts(NamedTuple):
    """A replay, and what came of it so far."""

    replay: Replay
    offset: int
    row_count: int
    succeeded: int

    @property
    def end(self) -> int:
        """The row behind the last one."""
        return self.offset + self.row_count


class Outcome(NamedTuple):
    """What a list says of a run, in the order in which a pack keeps it."""

    status: Any
    digest: str
    missing: int


class Pack(NamedTuple):
    """What the rows of a window came to. `key` says what it was made of; without one it is not found again."""

    key: str
    outcomes: list[Outcome]
    body: bytes

    @classmethod
    def of(cls, key: str, made: Iterable[Assembled]) -> Pack:
        """The pack of assembled rows, which are taken one by one: together they may be large."""
        packer = zstd.ZstdCompressor()
        outcomes: list[Outcome] = []
        pieces = []
        for one in made:
            pieces.append(packer.compress((b"," if outcomes else b"[") + _encode(one)))
            outcomes.append(Outcome(one.status, one.digest, one.missing))
        pieces.append(packer.compress(b"]" if outcomes else b"[]"))
        return cls(key, outcomes, b"".join(pieces) + packer.flush())


class Window(NamedTuple):
    """Some rows of a replay that follow one another; `pack` is one that is kept already, or a new one."""

    first_row: int
    created_at: str
    recipe: str
    row_count: int
    succeeded: int
    pack: int | Pack


class Kept(NamedTuple):
    """A window as it is kept."""

    replay: str
    dataset: str
    project: str
    created_at: str
    first_row: int
    row_count: int
    pack: int
    recipe: str


class Chosen(NamedTuple):
    """Which runs of a dataset are asked for."""

    dataset: str
    row_index: int | None = None
    status: str = ""
    project: str = ""


class PackGone(Exception):
    """A pack was removed by somebody else: what it held has to be made again."""


class ReplayStore:
    """One data folder. Every thread that reads has a connection of its own; one thread writes for all."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FOLDER / FILE
        self._local = threading.local()
        self._open: list[sqlite3.Connection] = []
        self._loop_writer: LoopWriter | None = None
        self._unpacked: dict[int, list[msgspec.Raw]] = {}
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

    def put_dataset(self, dataset: StoredDataset, rows: Iterable[bytes]) -> None:
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
            if not connection.execute("DELETE FROM datasets WHERE id = ?", (id,)).rowcount:
                return False
            connection.execute("DELETE FROM dataset_rows WHERE dataset = ?", (id,))
            if with_runs:
                _forget_runs(connection, id)
            return True

        return self._write(work)

    # -- replays --------------------------------------------------------------------------------------

    def find_pack(self, key: str) -> tuple[int, list[Outcome]] | None:
        """The pack that was made of this before."""
        row = self._one("SELECT id, summaries FROM packs WHERE key = ?", key)
        return (row[0], msgspec.json.decode(row[1], type=list[Outcome])) if row else None

    def add_window(self, replay: Replay, window: Window, parts: Sequence[Part], is_first: bool) -> int:
        """Keeps a window of a replay, and the replay itself with its first one; gives the id of its pack."""
        try:
            return self._write(_window_work(replay, window, parts, is_first))
        except sqlite3.IntegrityError:
            raise PackGone(window.recipe) from None

    async def add_window_soon(self, replay: Replay, window: Window) -> None:
        """The same for the first window of a replay whose pack is kept, from an event loop: always the same one."""
        if self._loop_writer is None:
            self._loop_writer = LoopWriter(self._connect(timeout_s=0.0), self._writer)
        try:
            await self._loop_writer.submit(_window_work(replay, window, (), is_first=True))
        except sqlite3.IntegrityError:
            raise PackGone(window.recipe) from None

    def replays(self, dataset: str, limit: int, offset: int) -> list[ReplayCounts]:
        """The replays of a dataset, newest first."""
        return self._counted("r.dataset = ?", dataset, limit, offset)

    def all_replays(self, limit: int, offset: int) -> list[ReplayCounts]:
        """The replays of all datasets, newest first."""
        return self._counted("r.dataset IS NOT ?", None, limit, offset)

    def replays_from(self, start: str, limit: int) -> list[str]:
        """The ids that begin like this."""
        query = "SELECT id FROM replays WHERE substr(id, 1, ?) = ? ORDER BY number DESC LIMIT ?"
        return [id for (id,) in self._all(query, len(start), start, limit)]

    def replay(self, id: str) -> ReplayCounts | None:
        return next(iter(self._counted("r.id = ?", id, 1, 0)), None)

    def _counted(self, where: str, value: str | None, limit: int, offset: int) -> list[ReplayCounts]:
        query = (
            "SELECT r.id, r.dataset, r.project, r.created_at, r.profile, min(w.first_row), sum(w.row_count), "
            f"sum(w.succeeded) FROM replays r JOIN windows w ON w.replay = r.number WHERE {where} "
            "GROUP BY r.number ORDER BY r.number DESC LIMIT ? OFFSET ?"
        )
        return [ReplayCounts(Replay(*row[:5]), *row[5:]) for row in self._all(query, value, limit, offset)]

    def runs(self, chosen: Chosen, limit: int, offset: int) -> list[RunSummary]:
        """The runs of a dataset, newest first: of the last replay the last row."""
        found: list[RunSummary] = []
        for replay, created_at, first_row, pack, count in self._windows(chosen):
            # Without looking into a window it is known how many of its runs are meant.
            if offset >= count:
                offset -= count
                continue
            meant = [
                one
                for one in self._summaries(replay, created_at, first_row, pack)
                if chosen.status in ("", one.status) and chosen.row_index in (None, one.row_index)
            ]
            found += meant[::-1][offset : offset + limit - len(found)]
            offset = 0
            if len(found) == limit:
                break
        return found

    def _windows(self, chosen: Chosen) -> Iterator[tuple[str, str, int, int, int]]:
        """The windows of a dataset, newest first, and how many of their runs are meant."""
        query = (
            "SELECT r.id, w.created_at, w.first_row, w.pack, w.row_count, w.succeeded "
            "FROM replays r JOIN windows w ON w.replay = r.number WHERE r.dataset = ?"
        )
        values: list[Any] = [chosen.dataset]
        if chosen.project:
            query, values = f"{query} AND r.project = ?", [*values, chosen.project]
        if chosen.row_index is not None:
            query = f"{query} AND w.first_row <= ? AND w.first_row + w.row_count > ?"
            values += [chosen.row_index, chosen.row_index]
        for id, created_at, first_row, pack, count, succeeded in self._each(
            f"{query} ORDER BY r.number DESC, w.first_row DESC", *values
        ):
            if chosen.row_index is not None:
                count = self._has_status(pack, chosen.row_index - first_row, chosen.status)
            elif chosen.status:
                count = succeeded if chosen.status == "succeeded" else count - succeeded
            yield id, created_at, first_row, pack, count

    def _has_status(self, pack: int, at: int, status: str) -> int:
        return int(not status or self._outcomes(pack)[at].status == status)

    def _outcomes(self, pack: int) -> list[Outcome]:
        row = self._one("SELECT summaries FROM packs WHERE id = ?", pack)
        return msgspec.json.decode(row[0], type=list[Outcome]) if row else []

    def _summaries(self, replay: str, created_at: str, first_row: int, pack: int) -> list[RunSummary]:
        return [
            RunSummary(f"{replay}-{row}", created_at, row, outcome.status, outcome.digest, outcome.missing)
            for row, outcome in enumerate(self._outcomes(pack), first_row)
        ]

    def summaries(self, replay: str) -> Iterator[RunSummary]:
        """The runs of one replay, by row."""
        query = (
            "SELECT w.created_at, w.first_row, w.pack FROM replays r JOIN windows w ON w.replay = r.number "
            "WHERE r.id = ? ORDER BY w.first_row"
        )
        for window in self._each(query, replay):
            yield from self._summaries(replay, *window)

    def run(self, replay: str, row_index: int) -> RunRecord | None:
        """The whole record of one run."""
        where = "WHERE r.id = ? AND w.first_row <= ? AND w.first_row + w.row_count > ?"
        row = self._one(f"{_KEPT} {where}", replay, row_index, row_index)
        return next(self._records(Kept(*row), [row_index])) if row else None

    def records(self, replay: str) -> Iterator[RunRecord]:
        """The whole records of a replay, by row."""
        for row in self._each(f"{_KEPT} WHERE r.id = ? ORDER BY w.first_row", replay):
            kept = Kept(*row)
            yield from self._records(kept, range(kept.first_row, kept.first_row + kept.row_count))

    def _records(self, kept: Kept, wanted: Iterable[int]) -> Iterator[RunRecord]:
        """The records of some rows of a window."""
        rows, parts = self._rows_of(kept.pack), self._parts_of(kept.recipe)
        for row_index in wanted:
            made = msgspec.json.decode(rows[row_index - kept.first_row], type=Assembled)
            run_id = f"{kept.replay}-{row_index}"
            trace = trace_of(parts, made, run_id, kept.created_at)
            yield RunRecord(
                *(run_id, kept.created_at, kept.project, kept.dataset, row_index),
                *(made.status, made.digest, made.missing, trace, made.errors),
            )

    def _rows_of(self, pack: int) -> list[msgspec.Raw]:
        """The rows of a pack. The last ones are remembered: whoever looks at a run mostly looks at the next one too."""
        if (found := self._unpacked.get(pack)) is None:
            (body,) = self._one("SELECT body FROM packs WHERE id = ?", pack)
            found = msgspec.json.decode(zstd.decompress(body), type=list[msgspec.Raw])
            self._unpacked = {**dict(list(self._unpacked.items())[-1:]), pack: found}
        return found

    def _parts_of(self, recipe: str) -> list[Part]:
        if (found := self._parts.get(recipe)) is None:
            (parts,) = self._one("SELECT parts FROM recipes WHERE digest = ?", recipe)
            found = msgspec.json.decode(parts, type=list[Part])
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
        # FULL: what was answered is on disk, also when the power goes.
        made.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON")
        self._open.append(made)
        return made

    def _write(self, work: Work[Written]) -> Written:
        """Does what changes the store: on disk when this returns, or nothing of it where it raises."""
        return self._writer.submit(work).result()


_KEPT = (
    "SELECT r.id, r.dataset, r.project, w.created_at, w.first_row, w.row_count, w.pack, w.recipe "
    "FROM replays r JOIN windows w ON w.replay = r.number"
)


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        message = f"{path.as_posix()}: expected a store of version {VERSION}, got {version}. Use a newer evalloom"
        raise EvalloomError("bad_store", message)
    if version < VERSION:
        # Not executescript, which commits first.
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _window_work(replay: Replay, window: Window, parts: Sequence[Part], is_first: bool) -> Work[int]:
    """What keeps a window, and gives the id of its pack."""

    def work(connection: sqlite3.Connection) -> int:
        if is_first:
            connection.execute(
                "INSERT INTO replays (id, dataset, project, created_at, profile) VALUES (?, ?, ?, ?, ?)", replay
            )
        pack = window.pack
        if isinstance(pack, Pack):
            _keep_recipe(connection, window.recipe, parts)
            pack = _keep_pack(connection, pack)
        connection.execute(
            "INSERT INTO windows SELECT number, ?, ?, ?, ?, ?, ? FROM replays WHERE id = ?",
            (
                *(window.first_row, window.row_count, window.succeeded),
                *(window.created_at, window.recipe, pack, replay.id),
            ),
        )
        return pack

    return work


def _keep_recipe(connection: sqlite3.Connection, digest: str, parts: Sequence[Part]) -> None:
    connection.execute("INSERT OR IGNORE INTO recipes VALUES (?, ?)", (digest, msgspec.json.encode(parts)))


def _keep_pack(connection: sqlite3.Connection, pack: Pack) -> int:
    """The id of a pack; another process may have kept the same one meanwhile."""
    summaries = msgspec.json.encode(pack.outcomes)
    kept = connection.execute(
        "INSERT INTO packs (key, summaries, body) VALUES (?, ?, ?) ON CONFLICT (key) DO NOTHING RETURNING id",
        (pack.key or None, summaries, pack.body),
    ).fetchone()
    found = kept or connection.execute("SELECT id FROM packs WHERE key = ?", (pack.key,)).fetchone()
    id: int = found[0]
    return id


def _forget_runs(connection: sqlite3.Connection, dataset: str) -> None:
    """Removes the runs of a dataset, and the packs that no other run needs."""
    packs = connection.execute(
        "SELECT DISTINCT w.pack FROM replays r JOIN windows w ON w.replay = r.number WHERE r.dataset = ?", (dataset,)
    ).fetchall()
    connection.execute("DELETE FROM replays WHERE dataset = ?", (dataset,))
    connection.executemany("DELETE FROM packs WHERE id = ? AND id NOT IN (SELECT pack FROM windows)", packs)
