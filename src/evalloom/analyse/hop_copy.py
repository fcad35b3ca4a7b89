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
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, structs

from evalloom.analyse.hop_look import Look, contract_names, expected_names, joined, look, occurrences, selectable
from evalloom.analyse.hop_rows import (
    ANY,
    COLUMNS,
    EXACT,
    FLAT,
    INPUT,
    META,
    RESULT,
    Names,
    orjson_text,
    path_pattern,
    quoted,
    read_raw,
    row_of,
    same_json,
    select_rows,
)
from evalloom.errors import EvalloomError
from evalloom.files.read import RowReader
from evalloom.files.rows import Row
from evalloom.files.source import source_of
from evalloom.model import Record

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

OBSERVER = "observer.jsonl"
FORMAT = 1
"""Counts up when the columns change or what they mean; a copy of another format is made anew."""
_FAST_PART, _SLOW_PART = 256 * 1024**2, 32 * 1024**2
_SETTLED_NS = 50_000_000
"""A file written this shortly ago may be written again without its time changing, so its stamp proves nothing."""
_ABANDONED_S = 3600
_MEMORY = "2GB"
_SHOWN_LINES = 20
_OWN_MARKS = (b'"hop_result"', b'"hop_stats"')


class Stamp(Struct, frozen=True):
    """What tells that a file is still the one that was copied."""

    size: int
    mtime_ns: int


class Source(Struct, frozen=True):
    """One JSONL file inside a part, and what its lines are."""

    name: str
    stamp: Stamp
    first: int = 0
    """The place of its first line among the rows of the part."""
    results: int = 0
    metas: int = 0
    inputs: int = 0
    profiles: list[str | None] = []
    unreadable: int = 0
    faults: list[tuple[int, str]] = []
    """The first unreadable lines, each with the reason."""
    left_out: bool = False
    """Whether its rows in this part do not count, because another part has them read the exact way."""


class Part(Struct, frozen=True):
    """One Parquet file."""

    name: str
    way: str
    names: Names
    sources: list[Source]

    @property
    def exact(self) -> bool:
        return self.way == EXACT

    @property
    def size(self) -> int:
        return sum(source.stamp.size for source in self.sources)

    def counted(self) -> list[Source]:
        return [source for source in self.sources if not source.left_out]


class Index(Struct, frozen=True):
    """All parts of a copy."""

    format: int = FORMAT
    parts: list[Part] = []

    @property
    def digest(self) -> str:
        return sha256(" ".join(part.name for part in self.parts).encode()).hexdigest()[:20]

    def sources(self) -> list[Source]:
        return sorted((one for part in self.parts for one in part.counted()), key=lambda source: source.name)


class Copy:
    """The copy of one folder. `refresh` makes it agree with the files; nothing else writes to it."""

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

    def refresh(self) -> Index:
        """The index of a copy that agrees with the files as they are now."""
        stamps = _stamps(self.folder)
        index = self._read_index()
        if {one.name: one.stamp for one in index.sources()} != stamps:
            index = self._build(index, stamps)
        for source in index.sources():
            for line, reason in source.faults:
                self._tell(source.name, line, reason)
        return index

    def forget(self) -> None:
        """Lets go of an index that speaks of parts which are gone or damaged."""
        with suppress(OSError):
            (self.place / "index.json").unlink(missing_ok=True)

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
            connection.execute(f"COPY ({query}) TO {quoted(temporary.as_posix())} (FORMAT parquet)")
            os.replace(temporary, self.place / name)
        finally:
            temporary.unlink(missing_ok=True)

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
            builder = _Builder(self, connection, stamps, looks)
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
        self._write_index(index)
        self._clean(old, index)
        return index

    def _write_index(self, index: Index) -> None:
        temporary = self.place / f"index.{secrets.token_hex(4)}.tmp"
        temporary.write_bytes(msgspec.json.encode(index))
        os.replace(temporary, self.place / "index.json")

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


class _Builder:
    """Makes parts, by the fast way or by the exact one."""

    def __init__(
        self, copy: Copy, connection: DuckDBPyConnection, stamps: dict[str, Stamp], looks: dict[str, Look]
    ) -> None:
        self._copy = copy
        self._connection = connection
        self._stamps = stamps
        self._looks = looks

    def fast(self, group: list[str], way: str) -> Part:
        """The part that DuckDB makes of files; those that it cannot tell exactly are left out, or not in it at all."""
        names = joined([contract_names(self._copy.folder), *(self._looks[name].names for name in group)])
        part = self._try_fast(group, names, way)
        odd = [one.name for one in part.sources if one.left_out]
        wanted = joined([names, self._all_names(odd, way)]) if odd else names
        if wanted != names:
            (self._copy.place / part.name).unlink(missing_ok=True)
            part = self._try_fast(group, wanted, way)
        return part

    def _try_fast(self, group: list[str], names: Names, way: str) -> Part:
        import duckdb

        part = self._named(group, names, way)
        with ThreadPoolExecutor(1) as beside:
            # Beside the copying, which leaves the interpreter alone: counting is half a second for a gigabyte.
            counts = beside.submit(lambda: {name: occurrences(self._copy.folder / name) for name in group})
            try:
                self._copy.write_beside(self._connection, select_rows(self._paths(group), names, way), part.name)
            except (duckdb.InvalidInputException, duckdb.IOException):
                readable = [name for name in group if self._is_readable(name, names, way)]
                if not readable or readable == group:
                    return structs.replace(part, sources=[])
                return self._try_fast(readable, names, way)
            return self._checked(part, counts.result())

    def _paths(self, group: Iterable[str]) -> list[Path]:
        return [self._copy.folder / name for name in group]

    def _is_readable(self, name: str, names: Names, way: str) -> bool:
        import duckdb

        try:
            query = select_rows(self._paths([name]), names, way)
            self._connection.execute(f"SELECT bit_xor(hash(t)) FROM ({query}) t").fetchone()
        except (duckdb.InvalidInputException, duckdb.IOException):
            return False
        return True

    def _checked(self, part: Part, expected: dict[str, int]) -> Part:
        """The part with what is in it. A file with a row that SQL cannot tell is left out."""
        counts = " + ".join(f"count(e{number})" for number in range(len(part.names.expected))) or "0"
        found = self._connection.execute(f"""
            SELECT src, min(file_row_number), count(*) FILTER (kind = {RESULT}), count(*) FILTER (kind = {META}),
                count(*) FILTER (kind = {INPUT}), list(DISTINCT profile) FILTER (kind = {RESULT}),
                bool_or(kind = {RESULT} AND profile IS NULL), bool_or(odd), {counts}
            FROM read_parquet({quoted(path_pattern(self._copy.place / part.name))}) GROUP BY src""").fetchall()
        seen = {row[0]: row[1:] for row in found}
        sources = []
        for number, source in enumerate(part.sources):
            first, results, metas, inputs, profiles, nameless, odd, known = seen.get(number, (0, 0, 0, 0, [], 0, 0, 0))
            lost = known != expected[source.name]
            hidden = part.way == FLAT and inputs and self._has_marks(source.name, results)
            sources.append(
                structs.replace(
                    source,
                    first=first,
                    results=results,
                    metas=metas,
                    inputs=inputs,
                    profiles=_profiles([*(profiles or []), *([None] if nameless else [])]),
                    left_out=bool(odd or lost or hidden),
                )
            )
        return structs.replace(part, sources=sources)

    def _has_marks(self, name: str, results: int) -> bool:
        """Whether rows that look like inputs may be results whose value is null, which a declared column hides."""
        return results > 0 or any(occurrences(self._copy.folder / name, mark) for mark in _OWN_MARKS)

    def _all_names(self, group: list[str], way: str) -> Names:
        """Every field name in files, from all of their lines."""
        import duckdb

        expected = set().union(*map(expected_names, self._paths(group)))
        fields: list[str] = []
        with suppress(duckdb.InvalidInputException, duckdb.IOException):
            query = f"""SELECT DISTINCT unnest(json_keys(packed)) FROM ({read_raw(self._paths(group), Names(), way)})
                WHERE starts_with(packed, '{{') AND json_valid(packed)"""
            fields = [name for (name,) in self._connection.execute(query).fetchall()]
        return selectable(fields, expected)

    def exact(self, group: list[str]) -> Part:
        """The part that Python makes of files, line by line."""
        part = self._named(group, Names(), EXACT)
        plain = self._copy.place / f"{part.name}.{secrets.token_hex(4)}.tmp"
        writer = _ExactWriter(plain)
        try:
            with writer:
                sources = [writer.add(number, source, self._copy.folder) for number, source in enumerate(part.sources)]
            columns = {
                **COLUMNS,
                **{f"f{number}": "VARCHAR" for number in range(len(writer.names.fields))},
                **{f"e{number}": "VARCHAR" for number in range(len(writer.names.expected))},
            }
            declared = ", ".join(f"{name}: '{kind}'" for name, kind in columns.items())
            query = f"""SELECT * FROM read_json({quoted(path_pattern(plain))}, format = 'newline_delimited',
                columns = {{{declared}}}, maximum_object_size = {max(16 * 1024**2, 2 * writer.longest)})"""
            self._copy.write_beside(self._connection, query, part.name)
        finally:
            plain.unlink(missing_ok=True)
        return structs.replace(part, names=writer.names, sources=sources)

    def _named(self, group: list[str], names: Names, way: str) -> Part:
        """A part whose name tells what it was made of, so that processes at once make the same."""
        sources = [Source(name, self._stamps[name]) for name in group]
        digest = sha256(msgspec.json.encode([FORMAT, way, names, sources])).hexdigest()
        return Part(f"{digest[:20]}.parquet", way, names, sources)


class _ExactWriter:
    """Writes the rows of files as clean lines, with a column for each field name as it comes up."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("wb")
        self._fields: dict[str, int] = {}
        self._expected: dict[str, int] = {}
        self._rows = 0
        self.longest = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    @property
    def names(self) -> Names:
        return Names(list(self._fields), list(self._expected))

    def add(self, number: int, source: Source, folder: Path) -> Source:
        """Writes one file and says what was in it."""
        counts = [0, 0, 0]
        profiles: dict[str | None, None] = {}
        faults: list[tuple[int, str]] = []
        first, unreadable = self._rows, 0
        for line, record in read_records(folder / source.name):
            if isinstance(record, str):
                unreadable += 1
                if len(faults) < _SHOWN_LINES:
                    faults.append((line, record))
                continue
            row = row_of(record)
            counts[row["kind"]] += 1
            if row["kind"] == RESULT:
                profiles[row["profile"]] = None
            self._write(row | {"src": number, "line": line})
        return structs.replace(
            source,
            first=first,
            results=counts[RESULT],
            metas=counts[META],
            inputs=counts[INPUT],
            profiles=_profiles(profiles),
            unreadable=unreadable,
            faults=faults,
        )

    def _write(self, row: Record) -> None:
        for name, text in row.pop("fields", {}).items():
            row[f"f{self._fields.setdefault(name, len(self._fields))}"] = text
        for name, text in row.pop("expected", {}).items():
            row[f"e{self._expected.setdefault(name, len(self._expected))}"] = text
        line = orjson_text(row) + b"\n"
        self._stream.write(line)
        self._rows += 1
        self.longest = max(self.longest, len(line))


def read_records(path: Path) -> Iterator[tuple[int, Record | str]]:
    """The objects of a file with their lines, and in between the reasons why there is none."""
    for item in RowReader(source_of(path)):
        if isinstance(item, Row):
            is_object = isinstance(item.value, dict)
            yield item.line, item.value if is_object else f"expected an object, got {type(item.value).__name__}"
        elif item.severity == "error":
            yield item.place.line, item.message


def _stamps(folder: Path) -> dict[str, Stamp]:
    """The result files of a folder, sorted by name."""
    try:
        entries = [
            entry
            for entry in os.scandir(folder)
            if entry.name.endswith(".jsonl") and entry.name[0] != "." and entry.name != OBSERVER and entry.is_file()
        ]
    except OSError as fault:
        reason = (fault.strerror or str(fault)).lower()
        raise EvalloomError("results_unreadable", f"{folder.as_posix()}: cannot be read: {reason}", 2) from None
    found = {entry.name: entry.stat() for entry in sorted(entries, key=lambda entry: entry.name)}
    fresh = time.time_ns() - _SETTLED_NS
    return {
        name: Stamp(stat.st_size, stat.st_mtime_ns if stat.st_mtime_ns < fresh else -secrets.randbits(62))
        for name, stat in found.items()
    }


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


def _profiles(names: Iterable[str | None] | None) -> list[str | None]:
    """The different profiles, sorted, the missing one last."""
    return sorted(set(names or ()), key=lambda name: (name is None, name or ""))
