"""The derived copy of a folder of HOP result files: Parquet parts that follow the JSONL files, which are the truth.

A part holds consecutive files of a folder and every line of them in order. Parts and the index are written under
another name and then put in place, the index last, so whoever comes in between finds the copy as it was.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from evalloom.core.errors import EvalloomError
from evalloom.hop.results.build import Builder
from evalloom.hop.results.parts import FORMAT, Index, Part, Stamp, stamps_of
from evalloom.hop.results.rows import ANY, EXACT, FLAT, quoted, same_json
from evalloom.hop.results.sample import Look, look

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_FAST_PART, _SLOW_PART = 1024**3, 32 * 1024**2
_ABANDONED_S = 3600
_PARQUET = "FORMAT parquet, COMPRESSION lz4_raw, WRITE_BLOOM_FILTER false"
"""The quickest to write; the copy is about a hundredth of the files."""
_MEMORY = "2GB"


class Copy:
    """The copy of one folder, which `refresh` makes agree with the files. Every file in it is written whole."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self.folder = folder
        self._warn = warn
        self._kept_elsewhere: tempfile.TemporaryDirectory[str] | None = None
        self._told: set[tuple[str, int, str]] = set()

    @property
    def place(self) -> Path:
        """Where the copy is kept: beside the files, or in a folder of this process where that cannot be written."""
        if self._kept_elsewhere is not None:
            return Path(self._kept_elsewhere.name)
        return self.folder / ".evalloom" / "hop-store"

    def stamps(self) -> dict[str, Stamp]:
        """What tells the files as they are now."""
        return stamps_of(self.folder)

    def exists(self) -> bool:
        """Whether rows were copied before, so that only what changed has to be read again."""
        return (self.place / "index.json").is_file()

    def refresh(self) -> Index:
        """The index of a copy that agrees with the files as they are now."""
        stamps = self.stamps()
        index = self._read_index()
        if {one.name: one.stamp for one in index.sources()} != stamps:
            index = self._build(index, stamps)
        for source in index.sources():
            for line, reason in source.faults:
                self._tell(source.name, line, reason)
        return index

    def forget(self) -> None:
        """Lets go of a copy that is damaged: nothing in it is the only one of its kind."""
        for path in self.place.glob("*"):
            if path.suffix in (".json", ".parquet"):
                with suppress(OSError):
                    path.unlink()

    @contextmanager
    def connection(self) -> Iterator[DuckDBPyConnection]:
        """A connection of its own for one question, bounded in memory."""
        import duckdb

        spill = self.place if os.access(self.place, os.W_OK) else Path(tempfile.gettempdir())
        connection = duckdb.connect()
        try:
            connection.execute(f"SET memory_limit = '{_MEMORY}'")
            connection.execute(f"SET temp_directory = {quoted((spill / 'spill').as_posix())}")
            connection.execute("SET enable_progress_bar = false")
            connection.create_function("same_json", same_json, ["VARCHAR", "VARCHAR"], "BOOLEAN")
            yield connection
        finally:
            connection.close()

    def write_beside(self, connection: DuckDBPyConnection, query: str, name: str) -> None:
        """Writes what a query gives as a Parquet file of the copy, whole or not at all."""
        temporary = self.place / f"{name}.{secrets.token_hex(4)}.tmp"
        try:
            connection.execute(f"COPY ({query}) TO {quoted(temporary.as_posix())} ({_PARQUET})")
            os.replace(temporary, self.place / name)
        finally:
            temporary.unlink(missing_ok=True)

    def put(self, name: str, value: Struct) -> None:
        """Writes a JSON file of the copy, whole or not at all."""
        temporary = self.place / f"{name}.{secrets.token_hex(4)}.tmp"
        temporary.write_bytes(msgspec.json.encode(value))
        os.replace(temporary, self.place / name)

    def _tell(self, name: str, line: int, reason: str) -> None:
        if (name, line, reason) not in self._told:
            self._told.add((name, line, reason))
            where = f"{(self.folder / name).as_posix()}:{line}" if line else (self.folder / name).as_posix()
            self._warn(f"{where}: skipped: {reason} [unreadable_result_line]")

    def make_writable(self) -> None:
        """Makes the folder of the copy, or takes one of this process where that cannot be written."""
        try:
            self.place.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.place):
                pass
        except OSError:
            self._keep_elsewhere()

    def _keep_elsewhere(self) -> None:
        self._kept_elsewhere = tempfile.TemporaryDirectory(prefix="evalloom-hop-store-")

    def _read_index(self) -> Index:
        try:
            index = msgspec.json.decode((self.place / "index.json").read_bytes(), type=Index)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return Index()
        whole = index.format == FORMAT and all((self.place / part.name).is_file() for part in index.parts)
        return index if whole else Index()

    # -- building --------------------------------------------------------------------------------

    def _build(self, old: Index, stamps: dict[str, Stamp]) -> Index:
        import duckdb

        self.make_writable()
        try:
            return self._build_here(old, stamps)
        except (OSError, duckdb.IOException) as fault:
            if self._kept_elsewhere is not None:
                reason = str(fault).splitlines()[0]
                message = f"{self.place.as_posix()}: cannot be written: {reason}. Make room for a copy of the results"
                raise EvalloomError("cannot_write", message) from None
        self._keep_elsewhere()
        return self._build(Index(), stamps)

    def _build_here(self, old: Index, stamps: dict[str, Stamp]) -> Index:
        """Keeps the parts that are as they should be, and makes new ones of all other files."""
        kept = [part for part in old.parts if _can_stay(part, stamps)]
        have = {source.name for part in kept for source in part.counted()}
        known = {
            one.name: part.way for part in old.parts for one in part.counted() if stamps.get(one.name) == one.stamp
        }
        looks = {name: look(self.folder / name, known.get(name, FLAT)) for name in stamps if name not in have}
        made = []
        with self.connection() as connection:
            builder = Builder(self, connection, stamps, looks)
            left: list[str] = []
            for way in (FLAT, ANY):
                for group in _grouped(sorted([*left, *_going(looks, way)]), stamps, _FAST_PART):
                    part = builder.fast(group, way)
                    told = {one.name for one in part.counted()}
                    left = [name for name in (*left, *group) if name not in told]
                    made += [part] if told else []
            waiting = sorted({*left, *_going(looks, EXACT)})
            made += [builder.exact(group) for group in _grouped(waiting, stamps, _SLOW_PART)]
        index = Index(FORMAT, kept + made)
        self.put("index.json", index)
        self._clean(old, index)
        return index

    def _clean(self, old: Index, new: Index) -> None:
        """Removes parts that were replaced, and what killed processes left behind.

        A part that no index names may be one that another process is about to name, so it is given time.
        """
        alive = {_stem(part.name) for part in new.parts}
        replaced = {_stem(part.name) for part in old.parts} - alive
        for path in self.place.iterdir():
            with suppress(OSError):
                is_ours = path.suffix in (".tmp", ".parquet") and _stem(path.name) not in alive
                if is_ours and (_stem(path.name) in replaced or time.time() - path.stat().st_mtime > _ABANDONED_S):
                    path.unlink()


def _stem(name: str) -> str:
    return name.split(".")[0]


def _can_stay(part: Part, stamps: dict[str, Stamp]) -> bool:
    """Whether a part is as it should be, and large enough not to be joined with what is new."""
    if any(stamps.get(one.name) != one.stamp for one in part.sources):
        return False
    return part.size * 2 >= (_SLOW_PART if part.exact else _FAST_PART)


def _grouped(names: Iterable[str], stamps: dict[str, Stamp], limit: int) -> Iterator[list[str]]:
    """Consecutive files, together as large as a part may be."""
    group: list[str] = []
    size = 0
    for name in names:
        if group and size + stamps[name].size > limit:
            yield group
            group, size = [], 0
        group.append(name)
        size += stamps[name].size
    if group:
        yield group


def _going(looks: dict[str, Look], way: str) -> list[str]:
    return [name for name, look in looks.items() if look.way == way]
