"""Builds the parts of the derived copy: with DuckDB if it reads every row exactly, else with Python."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from evalloom.core.digest import sha256_hex
from evalloom.core.model import Record
from evalloom.hop.results.parts import FORMAT, Part, Source, Stamp, read_records
from evalloom.hop.results.rows import (
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
    select_rows,
)
from evalloom.hop.results.sample import (
    FileSample,
    contract_names,
    expected_names,
    joined,
    may_hide_results,
    occurrences,
    selectable,
)

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from evalloom.hop.results.copy import Copy

_SHOWN_LINES = 20


class Builder:
    """Builds parts with the fast strategies or the exact one."""

    def __init__(
        self, copy: Copy, connection: DuckDBPyConnection, stamps: dict[str, Stamp], samples: dict[str, FileSample]
    ) -> None:
        self._copy = copy
        self._connection = connection
        self._stamps = stamps
        self._samples = samples

    def fast(self, group: list[str], strategy: str) -> Part:
        """Build a part with DuckDB; files that it cannot read exactly are marked `left_out` or omitted."""
        names = joined([contract_names(self._copy.folder), *(self._samples[name].names for name in group)])
        part = self._try_fast(group, names, strategy)
        left_out = [source.name for source in part.sources if source.left_out]
        wanted = joined([names, self._all_names(left_out, strategy)]) if left_out else names
        if wanted != names:
            (self._copy.place / part.name).unlink(missing_ok=True)
            part = self._try_fast(group, wanted, strategy)
        return part

    def _try_fast(self, group: list[str], names: Names, strategy: str) -> Part:
        import duckdb

        part = self._named(group, names, strategy)
        with ThreadPoolExecutor(1) as beside:
            # Runs in parallel with DuckDB, which releases the GIL: counting takes half a second per gigabyte.
            counts = beside.submit(lambda: {name: occurrences(self._copy.folder / name) for name in group})
            try:
                self._copy.write_beside(self._connection, select_rows(self._paths(group), names, strategy), part.name)
            except (duckdb.InvalidInputException, duckdb.IOException):
                readable = [name for name in group if self._is_readable(name, names, strategy)]
                if not readable or readable == group:
                    return structs.replace(part, sources=[])
                return self._try_fast(readable, names, strategy)
            return self._checked(part, counts.result())

    def _paths(self, group: Iterable[str]) -> list[Path]:
        return [self._copy.folder / name for name in group]

    def _is_readable(self, name: str, names: Names, strategy: str) -> bool:
        import duckdb

        try:
            query = select_rows(self._paths([name]), names, strategy)
            self._connection.execute(f"SELECT bit_xor(hash(t)) FROM ({query}) t").fetchone()
        except (duckdb.InvalidInputException, duckdb.IOException):
            return False
        return True

    def _checked(self, part: Part, expected: dict[str, int]) -> Part:
        """Return the part with its counts; leave out files with rows that need Python."""
        counts = " + ".join(f"count(e{number})" for number in range(len(part.names.expected))) or "0"
        rows = self._connection.execute(f"""
            SELECT src, min(file_row_number), count(*) FILTER (kind = {RESULT}), count(*) FILTER (kind = {META}),
                count(*) FILTER (kind = {INPUT}), list(DISTINCT profile) FILTER (kind = {RESULT}),
                bool_or(kind = {RESULT} AND profile IS NULL), bool_or(odd), {counts}
            FROM read_parquet({quoted(path_pattern(self._copy.place / part.name))}) GROUP BY src""").fetchall()
        counts_by_source = {row[0]: row[1:] for row in rows}
        sources = []
        for number, source in enumerate(part.sources):
            first, results, metas, inputs, profiles, nameless, needs_python, expected_count = counts_by_source.get(
                number, (0, 0, 0, 0, [], 0, 0, 0)
            )
            lost = expected_count != expected[source.name]
            hidden = part.strategy == FLAT and inputs and may_hide_results(self._copy.folder / source.name, results > 0)
            sources.append(
                structs.replace(
                    source,
                    first=first,
                    results=results,
                    metas=metas,
                    inputs=inputs,
                    profiles=_profiles([*(profiles or []), *([None] if nameless else [])]),
                    left_out=bool(needs_python or lost or hidden),
                )
            )
        return structs.replace(part, sources=sources)

    def _all_names(self, group: list[str], strategy: str) -> Names:
        """Return all field names in files, from all lines."""
        import duckdb

        expected = set().union(*map(expected_names, self._paths(group)))
        fields: list[str] = []
        with suppress(duckdb.InvalidInputException, duckdb.IOException):
            raw = read_raw(self._paths(group), Names(), strategy)
            query = f"""SELECT DISTINCT unnest(json_keys(packed)) FROM ({raw})
                WHERE starts_with(packed, '{{') AND json_valid(packed)"""
            fields = [name for (name,) in self._connection.execute(query).fetchall()]
        return selectable(fields, expected)

    def exact(self, group: list[str]) -> Part:
        """Build a part with Python, line by line."""
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

    def _named(self, group: list[str], names: Names, strategy: str) -> Part:
        """Return a part named by a hash of its contents, so that concurrent processes build the same part."""
        sources = [Source(name, self._stamps[name]) for name in group]
        digest = sha256_hex(msgspec.json.encode([FORMAT, strategy, names, sources]))
        return Part(f"{digest[:20]}.parquet", strategy, names, sources)


class _ExactWriter:
    """Writes rows as clean JSON lines, adding a column for each new field name."""

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
        """Write one file, and return its source with counts."""
        counts = [0, 0, 0]
        profiles: dict[str | None, None] = {}
        line_errors: list[tuple[int, str]] = []
        first, unreadable = self._rows, 0
        for line, record in read_records(folder / source.name):
            if isinstance(record, str):
                unreadable += 1
                if len(line_errors) < _SHOWN_LINES:
                    line_errors.append((line, record))
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
            line_errors=line_errors,
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


def _profiles(names: Iterable[str | None] | None) -> list[str | None]:
    """Return the unique profiles, sorted, with None last."""
    return sorted(set(names or ()), key=lambda name: (name is None, name or ""))
