"""What is known of the documents, in SQLite: their chunks, and how often each word is in them.

A file is brought up to date in several transactions, so that what was done is kept when the work is interrupted;
`is_complete` tells whether the last one was reached.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from evalloom.errors import EvalloomError
from evalloom.retrieval.chunks import Chunk
from evalloom.retrieval.folder import Stamp, Unread

FORMAT = 1
"""Changes with everything that makes chunks or words come out differently; a store of another one is made anew."""

_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE documents (
    path TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, digest TEXT NOT NULL, error TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE chunks (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL, number INTEGER NOT NULL, start INTEGER, stop INTEGER, line INTEGER,
    page INTEGER, heading TEXT, text TEXT, terms BLOB, counts BLOB
);
CREATE INDEX chunks_by_path ON chunks (path, number);
CREATE TABLE terms (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
"""
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""The last one is what a file without our tables gives."""


class Store:
    """One SQLite file. Who writes to it holds the lock of its folder."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        self._ids: dict[str, int] = {}
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            if not self._db.execute("PRAGMA user_version").fetchone()[0]:
                self._create()
            self.birth: str = self._meta("birth")
        except BaseException:
            self._db.close()
            raise

    def _create(self) -> None:
        # All in one transaction: who is killed half-way leaves no store that looks like one.
        meta = f"INSERT INTO meta VALUES ('birth', '{secrets.token_hex(8)}'), ('generation', 0), ('is_complete', 0);"
        self._db.executescript(f"BEGIN IMMEDIATE; {_TABLES} {meta} PRAGMA user_version = {FORMAT}; COMMIT")

    def close(self) -> None:
        self._db.close()

    def _meta(self, name: str) -> Any:
        return self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0]

    @property
    def is_complete(self) -> bool:
        return bool(self._meta("is_complete"))

    @property
    def generation(self) -> int:
        """Grows with every change of the chunks."""
        return int(self._meta("generation"))

    def hold(self) -> None:
        """From here on reads see the store as it is now, whatever others write."""
        if not self._db.in_transaction:
            self._db.execute("BEGIN")
            self._meta("generation")

    def let_go(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    # -- documents ------------------------------------------------------------------------------------

    def known(self) -> dict[str, tuple[Stamp, str, str]]:
        """Of every document: its stamp, its digest, and why it is unread (empty when it is not)."""
        rows = self._db.execute("SELECT path, size, mtime_ns, digest, error FROM documents ORDER BY path")
        return {path: (Stamp(size, mtime_ns), digest, error) for path, size, mtime_ns, digest, error in rows}

    def digests(self) -> dict[str, str]:
        return dict(self._db.execute("SELECT path, digest FROM documents WHERE error = '' ORDER BY path"))

    def unread(self) -> list[Unread]:
        rows = self._db.execute("SELECT path, error FROM documents WHERE error != '' ORDER BY path")
        return [Unread(path, error) for path, error in rows]

    # -- changes --------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def commit(self, is_complete: bool = False) -> None:
        """Ends a step of the work; a reader that comes now knows whether there are more."""
        self._db.execute("UPDATE meta SET value = ? WHERE name = 'is_complete'", (int(is_complete),))
        self._db.execute("COMMIT")

    def remove(self, path: str) -> None:
        self._db.execute("DELETE FROM documents WHERE path = ?", (path,))
        self._change(path)

    def _change(self, path: str) -> None:
        self._db.execute("DELETE FROM chunks WHERE path = ?", (path,))
        self._db.execute("UPDATE meta SET value = value + 1 WHERE name = 'generation'")

    def stamp(self, path: str, stamp: Stamp) -> None:
        self._db.execute("UPDATE documents SET size = ?, mtime_ns = ? WHERE path = ?", (*stamp, path))

    def put_unread(self, path: str, stamp: Stamp, digest: str, reason: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?)", (path, *stamp, digest, reason))
        self._change(path)

    def put(self, path: str, stamp: Stamp, digest: str, chunks: Sequence[tuple[Chunk, list[str]]]) -> None:
        """Stores a document with its chunks and the words of each."""
        self._db.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, '')", (path, *stamp, digest))
        self._change(path)
        rows = []
        for number, (chunk, words) in enumerate(chunks):
            terms, counts = self._counted(words)
            place = (chunk.start, chunk.end, chunk.line, chunk.page, chunk.heading)
            rows.append((path, number, *place, chunk.text, terms, counts))
        columns = "path, number, start, stop, line, page, heading, text, terms, counts"
        self._db.executemany(f"INSERT INTO chunks ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def _counted(self, words: list[str]) -> tuple[bytes, bytes]:
        """The numbers of the words, and how often each is there."""
        import numpy as np  # deferred: slow to load

        counted = Counter(words)
        ids = self._ids or self._load_ids()
        new = [word for word in counted if word not in ids]
        if new:
            rows = [(number, word) for number, word in enumerate(new, len(ids))]
            self._db.executemany("INSERT INTO terms VALUES (?, ?)", rows)
            ids.update((word, number) for number, word in rows)
        terms = np.fromiter((ids[word] for word in counted), "<i4", len(counted))
        return terms.tobytes(), np.fromiter(counted.values(), "<i4", len(counted)).tobytes()

    def _load_ids(self) -> dict[str, int]:
        self._ids = dict(self._db.execute("SELECT text, id FROM terms"))
        return self._ids

    # -- reading --------------------------------------------------------------------------------------

    def postings(self) -> Iterator[tuple[int, str, bytes, bytes]]:
        """Of every chunk its id, path, words and counts: by path downwards, then by place."""
        return self._db.execute("SELECT id, path, terms, counts FROM chunks ORDER BY path DESC, number")

    def term_count(self) -> int:
        return int(self._db.execute("SELECT coalesce(max(id) + 1, 0) FROM terms").fetchone()[0])

    def term(self, word: str) -> int | None:
        row = self._db.execute("SELECT id FROM terms WHERE text = ?", (word,)).fetchone()
        return None if row is None else int(row[0])

    def chunk(self, id: int) -> tuple[str, Chunk]:
        """The path and the chunk of this id."""
        columns = "path, text, start, stop, line, page, heading"
        path, *rest = self._db.execute(f"SELECT {columns} FROM chunks WHERE id = ?", (id,)).fetchone()
        return path, Chunk(*rest)

    def first_chunk(self, path: str) -> int | None:
        """The id of a document's first chunk; None when it has none."""
        row = self._db.execute("SELECT id FROM chunks WHERE path = ? ORDER BY number LIMIT 1", (path,)).fetchone()
        return None if row is None else int(row[0])

    def chunks_of(self, path: str) -> list[int]:
        """The ids of a document's chunks in their order."""
        return [id for (id,) in self._db.execute("SELECT id FROM chunks WHERE path = ? ORDER BY number", (path,))]

    def texts(self) -> Iterator[tuple[str, str]]:
        """Heading and text of every chunk, in the order of `postings`."""
        return self._db.execute("SELECT heading, text FROM chunks ORDER BY path DESC, number")


def is_damage(fault: sqlite3.Error) -> bool:
    """Whether a fault means that the file is broken, rather than that the disk is full or the file locked."""
    return getattr(fault, "sqlite_errorcode", sqlite3.SQLITE_MISUSE) & 0xFF in _DAMAGE


def unusable(path: Path, fault: Exception) -> EvalloomError:
    """A store that can be neither read nor made anew."""
    message = f"{path}: the index cannot be used: {str(fault).lower()}. Check the disk and the folder's permissions"
    return EvalloomError("index_unusable", message)


def set_aside(path: Path) -> Path:
    """Moves a broken file out of the way, where it can still be looked at; where it is now."""
    aside = path.with_name(path.name + ".damaged")
    with suppress(FileNotFoundError):
        os.replace(path, aside)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return aside


def format_of(path: Path) -> int:
    """The format of a store; 0 when there is none yet."""
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path, timeout=60)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])
