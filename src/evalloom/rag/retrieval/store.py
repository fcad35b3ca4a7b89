"""Stores documents in SQLite: their chunks, and the word counts of each.

An update takes several transactions, so that an interruption keeps finished work; `is_complete` is set by the
last one.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from evalloom.core.errors import EvalloomError
from evalloom.rag.retrieval.chunks import Chunk
from evalloom.rag.retrieval.folder import FileStamp, Unread
from evalloom.rag.retrieval.words import CountedWords

FORMAT = 3
"""Incremented when chunks or words are computed differently; a store of another format is rebuilt."""

OWN_REPORT = "is a report of evalloom"
_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE documents (
    path TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, inode INTEGER,
    digest TEXT NOT NULL, error TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE chunks (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL, number INTEGER NOT NULL, start INTEGER, stop INTEGER, line INTEGER,
    page INTEGER, heading TEXT, text TEXT, terms BLOB, counts BLOB
);
CREATE INDEX chunks_by_path ON chunks (path, number);
CREATE TABLE terms (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
"""
_DAMAGE_CODES = (
    *(sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_TOOBIG),
    # A file that lacks our tables, or has duplicate ids or values of a wrong type.
    *(sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH),
)
_DECODE_ERROR = "Could not decode to UTF-8"


class DamagedIndex(sqlite3.DatabaseError):
    """The stored data is inconsistent."""


class DocumentStore:
    """One SQLite file. A writer must hold the lock of its folder."""

    def __init__(self, path: Path, is_readonly: bool = False) -> None:
        self.is_readonly = is_readonly
        self._db = _connect(path, is_readonly)
        self._term_ids: dict[str, int] = {}
        self._next_term_id = 0
        self._data_version = 0
        try:
            if not is_readonly:
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = NORMAL")
                if not self._db.execute("PRAGMA user_version").fetchone()[0]:
                    # One transaction, so that a killed process leaves no partial store.
                    store_id = secrets.token_hex(8)
                    meta = f"INSERT INTO meta VALUES ('birth', '{store_id}'), ('generation', 0), ('is_complete', 0);"
                    self._db.executescript(f"BEGIN IMMEDIATE; {_TABLES} {meta} PRAGMA user_version = {FORMAT}; COMMIT")
            self.store_id = str(self._meta("birth"))
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        self._db.close()

    def _meta(self, name: str) -> Any:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise DamagedIndex(f"it has no {name}")
        return row[0]

    @property
    def is_complete(self) -> bool:
        return bool(self._meta("is_complete"))

    @property
    def generation(self) -> int:
        """Incremented with every change of the chunks."""
        generation = self._meta("generation")
        if not isinstance(generation, int):
            raise DamagedIndex("its generation is not a number")
        return generation

    def begin_snapshot(self) -> None:
        """Start a read transaction: later reads see the store as it is now."""
        if not self._db.in_transaction:
            self._db.execute("BEGIN")
            self._meta("generation")

    def rollback(self) -> None:
        """End a snapshot or transaction; drop uncommitted changes and the cached term ids."""
        self._term_ids.clear()
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    # -- documents ------------------------------------------------------------------------------------

    def document_states(self) -> dict[str, tuple[FileStamp, str, str]]:
        """The stamp, digest and read error (empty when there is none) of every document."""
        rows = self._db.execute("SELECT path, size, mtime_ns, ctime_ns, inode, digest, error FROM documents")
        return {path: (FileStamp(*stamp), digest, error) for path, *stamp, digest, error in rows}

    def digests(self) -> dict[str, str]:
        return dict(self._db.execute("SELECT path, digest FROM documents WHERE error = '' ORDER BY path"))

    def unread(self) -> list[Unread]:
        """Documents that could not be read; evalloom's own reports are not among them."""
        sql = "SELECT path, error FROM documents WHERE error NOT IN ('', ?) ORDER BY path"
        return [Unread(path, error) for path, error in self._db.execute(sql, (OWN_REPORT,))]

    # -- changes --------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        version = self._db.execute("PRAGMA data_version").fetchone()[0]
        if version != self._data_version:
            # Another process may have added terms.
            self._term_ids.clear()
            self._data_version = version

    def commit(self, is_complete: bool = False) -> None:
        """Commit a transaction; `is_complete` marks the last one of an update."""
        self._db.execute("UPDATE meta SET value = ? WHERE name = 'is_complete'", (int(is_complete),))
        self._db.execute("COMMIT")

    def remove(self, path: str) -> None:
        self._db.execute("DELETE FROM documents WHERE path = ?", (path,))
        self._replace_chunks(path, [])

    def _replace_chunks(self, path: str, rows: Sequence[tuple[Any, ...]]) -> None:
        deleted = self._db.execute("DELETE FROM chunks WHERE path = ?", (path,)).rowcount
        columns = "path, number, start, stop, line, page, heading, text, terms, counts"
        self._db.executemany(f"INSERT INTO chunks ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        if deleted or rows:
            self._db.execute("UPDATE meta SET value = value + 1 WHERE name = 'generation'")

    def update_stamp(self, path: str, stamp: FileStamp) -> None:
        columns = "size = ?, mtime_ns = ?, ctime_ns = ?, inode = ?"
        self._db.execute(f"UPDATE documents SET {columns} WHERE path = ?", (*stamp, path))

    def put_unread(self, path: str, stamp: FileStamp, digest: str, reason: str) -> None:
        self._put_document(path, stamp, digest, reason)
        self._replace_chunks(path, [])

    def _put_document(self, path: str, stamp: FileStamp, digest: str, reason: str) -> None:
        row = (path, *stamp, digest, reason)
        self._db.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def put(self, path: str, stamp: FileStamp, digest: str, chunks: Sequence[tuple[Chunk, CountedWords]]) -> None:
        """Store a document with its chunks and their words."""
        self._put_document(path, stamp, digest, "")
        rows = []
        for number, (chunk, words) in enumerate(chunks):
            place = (chunk.start, chunk.end, chunk.line, chunk.page, chunk.heading)
            rows.append((path, number, *place, chunk.text, self._ids_of(words.text.split("\n")), words.counts))
        self._replace_chunks(path, rows)

    def _ids_of(self, words: list[str]) -> bytes:
        """The ids of distinct words; new words get ids."""
        if not self._term_ids:
            self._term_ids = dict(self._db.execute("SELECT text, id FROM terms"))
            self._next_term_id = self.term_count()
        ids = self._term_ids
        terms = list(map(ids.get, words))
        if None in terms:
            new = [word for word, term in zip(words, terms, strict=True) if term is None]
            rows = list(enumerate(new, self._next_term_id))
            self._next_term_id += len(rows)
            self._db.executemany("INSERT INTO terms VALUES (?, ?)", rows)
            ids.update((word, number) for number, word in rows)
            terms = list(map(ids.get, words))
        return struct.pack(f"<{len(terms)}i", *terms)

    # -- reading --------------------------------------------------------------------------------------

    def postings(self) -> Iterator[tuple[int, str, bytes, bytes]]:
        """Id, path, terms and counts of every chunk, by path descending, then by position."""
        return self._db.execute("SELECT id, path, terms, counts FROM chunks ORDER BY path DESC, number")

    def term_count(self) -> int:
        return int(self._db.execute("SELECT coalesce(max(id) + 1, 0) FROM terms").fetchone()[0])

    def term(self, word: str) -> int | None:
        row = self._db.execute("SELECT id FROM terms WHERE text = ?", (word,)).fetchone()
        return None if row is None else int(row[0])

    def chunk(self, id: int) -> tuple[str, Chunk]:
        """The path and chunk of an id."""
        columns = "path, text, start, stop, line, page, heading"
        row = self._db.execute(f"SELECT {columns} FROM chunks WHERE id = ?", (id,)).fetchone()
        if row is None or tuple(map(type, row)) != (str, str, int, int, int, int, str):
            raise DamagedIndex("a chunk is missing or incomplete")
        path, *rest = row
        return path, Chunk(*rest)

    def first_chunk(self, path: str) -> int | None:
        """The id of a document's first chunk; None when it has none."""
        row = self._db.execute("SELECT id FROM chunks WHERE path = ? ORDER BY number LIMIT 1", (path,)).fetchone()
        return None if row is None else int(row[0])

    def chunks_of(self, path: str) -> list[int]:
        """The ids of a document's chunks in order."""
        return [id for (id,) in self._db.execute("SELECT id FROM chunks WHERE path = ? ORDER BY number", (path,))]

    def texts(self) -> Iterator[tuple[str, str]]:
        """Heading and text of every chunk, in the order of `postings`."""
        return self._db.execute("SELECT heading, text FROM chunks ORDER BY path DESC, number")


STORE_ERRORS = (sqlite3.DatabaseError, UnicodeDecodeError)
"""Errors that a broken file raises; Python 3.11 fails to decode an SQLite error that quotes broken text."""


def is_damage(error: Exception) -> bool:
    """Whether an error means that the file is broken, rather than that the disk is full or the file locked."""
    if isinstance(error, DamagedIndex | UnicodeDecodeError) or str(error).startswith(_DECODE_ERROR):
        return True
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE) & 0xFF in _DAMAGE_CODES


def error_text(error: Exception) -> str:
    """The message of an error, without the piece of a document that SQLite may quote."""
    return str(error).partition(" with text")[0].lower()


def unusable_error(path: Path, error: Exception) -> EvalloomError:
    """The error for a store that can be neither read nor rebuilt."""
    message = f"{path}: the index cannot be used: {error_text(error)}. Check the disk and the folder's permissions"
    return EvalloomError("index_unusable", message)


def move_damaged(path: Path) -> Path:
    """Move a damaged file out of the way for inspection; return its new path."""
    moved = path.with_name(path.name + ".damaged")
    with suppress(FileNotFoundError):
        os.replace(path, moved)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return moved


def read_format(path: Path, is_readonly: bool = False) -> int:
    """The format of a store; 0 when it does not exist."""
    if not path.exists():
        return 0
    with closing(_connect(path, is_readonly)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def _connect(path: Path, is_readonly: bool) -> sqlite3.Connection:
    """Connect to the store; a read-only connection creates no files beside it."""
    uri = str(path)
    if is_readonly:
        wal = path.with_name(path.name + "-wal")
        # Immutable mode ignores the WAL, so use it only when the WAL is empty.
        is_immutable = not wal.exists() or not wal.stat().st_size
        uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if is_immutable else ''}"
    return sqlite3.connect(uri, timeout=60, isolation_level=None, check_same_thread=False, uri=is_readonly)
