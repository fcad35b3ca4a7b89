"""The derived copy of a folder of HOP result files: Parquet parts built from the JSONL files.

A part holds all lines of consecutive files in order. Parts and the index are written to temporary files and renamed,
the index last, so concurrent readers always see a consistent copy.
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
from evalloom.hop.results.sample import FileSample, sample_file

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_FAST_PART, _SLOW_PART = 1024**3, 32 * 1024**2
_ABANDONED_S = 3600
_PARQUET = "FORMAT parquet, COMPRESSION lz4_raw, WRITE_BLOOM_FILTER false"
"""The fastest to write; the copy is about 1 % of the size of the files."""
_MEMORY = "2GB"


class Copy:
    """The copy of one folder; `refresh` updates it. Every file is written atomically."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self.folder = folder
        self._warn = warn
        self._temporary_folder: tempfile.TemporaryDirectory[str] | None = None
        self._warned: set[tuple[str, int, str]] = set()

    @property
    def place(self) -> Path:
        """The folder of the copy: beside the files, or a temporary folder if that is not writable."""
        if self._temporary_folder is not None:
            return Path(self._temporary_folder.name)
        return self.folder / ".evalloom" / "hop-store"

    def stamps(self) -> dict[str, Stamp]:
        """Return the current stamps of the files."""
        return stamps_of(self.folder)

    def exists(self) -> bool:
        """Return whether there is a copy, so that only changed files have to be read."""
        return (self.place / "index.json").is_file()

    def refresh(self) -> Index:
        """Update the copy to the current files, and return its index."""
        stamps = self.stamps()
        index = self._read_index()
        if {one.name: one.stamp for one in index.sources()} != stamps:
            index = self._build(index, stamps)
        for source in index.sources():
            for line, reason in source.line_errors:
                self._warn_once(source.name, line, reason)
        return index

    def forget(self) -> None:
        """Delete a damaged copy; it can be rebuilt from the files."""
        for path in self.place.glob("*"):
            if path.suffix in (".json", ".parquet"):
                with suppress(OSError):
                    path.unlink()

    @contextmanager
    def connection(self) -> Iterator[DuckDBPyConnection]:
        """Open a DuckDB connection for one query, with a memory limit."""
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
        """Write the result of a query to a Parquet file of the copy, atomically."""
        temporary = self.place / f"{name}.{secrets.token_hex(4)}.tmp"
        try:
            connection.execute(f"COPY ({query}) TO {quoted(temporary.as_posix())} ({_PARQUET})")
            os.replace(temporary, self.place / name)
        finally:
            temporary.unlink(missing_ok=True)

    def put(self, name: str, value: Struct) -> None:
        """Write a JSON file of the copy, atomically."""
        temporary = self.place / f"{name}.{secrets.token_hex(4)}.tmp"
        temporary.write_bytes(msgspec.json.encode(value))
        os.replace(temporary, self.place / name)

    def _warn_once(self, name: str, line: int, reason: str) -> None:
        if (name, line, reason) not in self._warned:
            self._warned.add((name, line, reason))
            where = f"{(self.folder / name).as_posix()}:{line}" if line else (self.folder / name).as_posix()
            self._warn(f"{where}: skipped: {reason} [unreadable_result_line]")

    def make_writable(self) -> None:
        """Create the folder of the copy, or a temporary folder if it is not writable."""
        try:
            self.place.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.place):
                pass
        except OSError:
            self._use_temporary_folder()

    def _use_temporary_folder(self) -> None:
        self._temporary_folder = tempfile.TemporaryDirectory(prefix="evalloom-hop-store-")

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
        except (OSError, duckdb.IOException) as error:
            if self._temporary_folder is not None:
                reason = str(error).splitlines()[0]
                message = (
                    f"{self.place.as_posix()}: cannot be written: {reason}. Free disk space for a copy of the results"
                )
                raise EvalloomError("cannot_write", message) from None
        self._use_temporary_folder()
        return self._build(Index(), stamps)

    def _build_here(self, old: Index, stamps: dict[str, Stamp]) -> Index:
        """Keep the valid parts, and build new parts for all other files."""
        unchanged = [part for part in old.parts if _can_stay(part, stamps)]
        current_files = {source.name for part in unchanged for source in part.counted()}
        strategies = {
            source.name: part.strategy
            for part in old.parts
            for source in part.counted()
            if stamps.get(source.name) == source.stamp
        }
        samples = {
            name: sample_file(self.folder / name, strategies.get(name, FLAT))
            for name in stamps
            if name not in current_files
        }
        added = []
        with self.connection() as connection:
            builder = Builder(self, connection, stamps, samples)
            remaining: list[str] = []
            for strategy in (FLAT, ANY):
                for group in _grouped(sorted([*remaining, *_files_for(samples, strategy)]), stamps, _FAST_PART):
                    part = builder.fast(group, strategy)
                    copied = {source.name for source in part.counted()}
                    remaining = [name for name in (*remaining, *group) if name not in copied]
                    added += [part] if copied else []
            waiting = sorted({*remaining, *_files_for(samples, EXACT)})
            added += [builder.exact(group) for group in _grouped(waiting, stamps, _SLOW_PART)]
        index = Index(FORMAT, unchanged + added)
        self.put("index.json", index)
        self._clean(old, index)
        return index

    def _clean(self, old: Index, new: Index) -> None:
        """Delete replaced parts and the leftovers of killed processes.

        Another process may be about to add an unlisted part to the index, so unlisted parts are kept for a while.
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
    """Return whether a part is current, and too large to be merged with new files."""
    if any(stamps.get(one.name) != one.stamp for one in part.sources):
        return False
    return part.size * 2 >= (_SLOW_PART if part.exact else _FAST_PART)


def _grouped(names: Iterable[str], stamps: dict[str, Stamp], limit: int) -> Iterator[list[str]]:
    """Yield groups of consecutive files, each up to the size limit of a part."""
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


def _files_for(samples: dict[str, FileSample], strategy: str) -> list[str]:
    return [name for name, sample in samples.items() if sample.strategy == strategy]
