"""Builds the parts of the derived copy: with SQL if it reads every row of a file exactly, else with Python."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from evalloom.batchlog.parquet import path_pattern, quoted
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Record
from evalloom.hop.contract import read_contract
from evalloom.hop.dialect import inputs_of, is_meta, is_view_row, normalize_audit, normalize_input
from evalloom.hop.results.index import ParquetPart, SourceFile, Stamp, named_part, read_records
from evalloom.hop.results.rows import (
    COLUMNS,
    EXPECTED,
    INPUT,
    META,
    RESULT,
    FieldNames,
    can_select,
    can_select_input,
    case_key,
    expected_of,
    orjson_text,
    result_names,
    row_of,
    select_rows,
)

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from evalloom.hop.results.copy import Copy

_MAX_SQL_PART, _MAX_PYTHON_PART = 1024**3, 32 * 1024**2
"""The maximum bytes of JSONL in a part. One large part is faster to write and to query than several."""
_MAX_LINE_ERRORS = 20
_SAMPLE_BYTES, _SAMPLE_EVERY, _SAMPLE_LINES = 8 * 1024, 8 * 1024**2, 3
"""A sample has the first 3 lines of every 8 MB of a file, as far as they are in 8 KB."""
_SMALL_FOLDER = 16 * 1024**2
"""The bytes of files of which every line is sampled."""
_SCAN_BYTES = 256 * 1024
_EXPECTED_KEY = f'"{EXPECTED}'.encode()


def can_stay(part: ParquetPart, stamps: dict[str, Stamp]) -> bool:
    """Return whether a part is current, and too large to be merged with new files."""
    if any(stamps.get(source.name) != source.stamp for source in part.sources):
        return False
    return part.size * 2 >= (_MAX_PYTHON_PART if part.by_python else _MAX_SQL_PART)


class Builder:
    """Builds parts for the files of a folder."""

    def __init__(self, copy: Copy, connection: DuckDBPyConnection, stamps: dict[str, Stamp]) -> None:
        self._copy = copy
        self._connection = connection
        self._stamps = stamps

    def build(self, files: Iterable[str], by_python: Iterable[str]) -> list[ParquetPart]:
        """Build parts for files; those in `by_python` are known to need Python."""
        python_files = set(by_python)
        new_files = [name for name in files if name not in python_files]
        is_small = sum(self._stamps[name].size for name in new_files) <= _SMALL_FOLDER
        samples = {name: sample_file(self._copy.folder / name, every_line=is_small) for name in new_files}
        parts = []
        for group in self._grouped((name for name, sample in samples.items() if sample is not None), _MAX_SQL_PART):
            part = self._sql_part(group, merge_names([names for name in group if (names := samples[name]) is not None]))
            parts += [part] if part is not None else []
        python_files.update(samples.keys() - {source.name for part in parts for source in part.sources})
        return [*parts, *(self._python_part(group) for group in self._grouped(python_files, _MAX_PYTHON_PART))]

    def _grouped(self, names: Iterable[str], limit: int) -> Iterator[list[str]]:
        """Yield groups of consecutive files, each up to the size limit of a part."""
        group: list[str] = []
        size = 0
        for name in sorted(names):
            if group and size + self._stamps[name].size > limit:
                yield group
                group, size = [], 0
            group.append(name)
            size += self._stamps[name].size
        if group:
            yield group

    # -- with SQL --------------------------------------------------------------------------------

    def _sql_part(self, group: list[str], names: FieldNames) -> ParquetPart | None:
        """Build a part with SQL from the files that do not need Python; return None if all of them do."""
        import duckdb

        names = merge_names([contract_names(self._copy.folder), names])
        while group:
            part = named_part([SourceFile(name, self._stamps[name]) for name in group], names)
            try:
                irregular, part = self._write_part(part)
            except (duckdb.InvalidInputException, duckdb.IOException):
                # A line that is too long fails the query.
                readable = [name for name in group if self._is_readable(name, names)]
                group = readable if readable != group else []
                continue
            if not irregular:
                return part
            (self._copy.place / part.name).unlink(missing_ok=True)
            all_names = merge_names([names, self._all_names(irregular)])
            if all_names == names:
                group = [name for name in group if name not in irregular]
            names = all_names
        return None

    def _write_part(self, part: ParquetPart) -> tuple[list[str], ParquetPart]:
        """Write a part; return the files that SQL may not have read exactly, and the part with its counts."""
        files = [source.name for source in part.sources]
        with ThreadPoolExecutor(1) as pool:
            # Runs in parallel with DuckDB, which releases the GIL: counting takes half a second per gigabyte.
            occurrences = pool.submit(lambda: {name: _count_expected_keys(self._copy.folder / name) for name in files})
            self._copy.write_parquet(self._connection, select_rows(self._paths(files), part.names), part.name)
        expected = " + ".join(f"count(e{number})" for number in range(len(part.names.expected))) or "0"
        rows = self._connection.execute(f"""
            SELECT src, min(file_row_number), count(*) FILTER (kind = {RESULT}), count(*) FILTER (kind = {META}),
                list(DISTINCT profile) FILTER (kind = {RESULT}), bool_or(kind = {RESULT} AND profile IS NULL),
                bool_or(needs_python), {expected}
            FROM read_parquet({quoted(path_pattern(self._copy.place / part.name))}) GROUP BY src""").fetchall()
        counts = {row[0]: row[1:] for row in rows}
        irregular, sources = [], []
        for number, source in enumerate(part.sources):
            first, results, metas, profiles, has_no_profile, needs_python, expected_count = counts.get(
                number, (0, 0, 0, [], False, False, 0)
            )
            # SQL does not see an expected field whose name is unknown, and reads an expected null as missing.
            if needs_python or expected_count != occurrences.result()[source.name]:
                irregular.append(source.name)
            unique = _sorted_profiles([*(profiles or []), *([None] if has_no_profile else [])])
            sources.append(structs.replace(source, first=first, results=results, metas=metas, profiles=unique))
        return irregular, structs.replace(part, sources=sources)

    def _paths(self, files: Iterable[str]) -> list[Path]:
        return [self._copy.folder / name for name in files]

    def _is_readable(self, name: str, names: FieldNames) -> bool:
        import duckdb

        try:
            query = select_rows(self._paths([name]), names)
            self._connection.execute(f"SELECT bit_xor(hash(t)) FROM ({query}) t").fetchone()
        except (duckdb.InvalidInputException, duckdb.IOException):
            return False
        return True

    def _all_names(self, files: list[str]) -> FieldNames:
        """Return all field names in files, from all lines."""
        pattern = re.compile(_EXPECTED_KEY + rb'([^"\\]+)"')
        expected: set[bytes] = set()
        for path in self._paths(files):
            with suppress(OSError), path.open("rb") as stream:
                for line in stream:
                    expected.update(pattern.findall(line))
        fields = self._connection.execute(result_names(self._paths(files))).fetchall()
        return selectable((name for (name,) in fields), (name.decode(errors="replace") for name in expected))

    # -- with Python -----------------------------------------------------------------------------

    def _python_part(self, group: list[str]) -> ParquetPart:
        """Build a part with `row_of`: write the rows to a temporary JSONL file, and let DuckDB convert it."""
        part = named_part([SourceFile(name, self._stamps[name]) for name in group], FieldNames(), by_python=True)
        temporary = self._copy.place / f"{part.name}.{secrets.token_hex(4)}.tmp"
        columns: dict[str, dict[str, int]] = {"fields": {}, "expected": {}, "inputs": {}}
        sources = []
        longest = first = 0
        try:
            with temporary.open("wb") as stream:
                for number, source in enumerate(part.sources):
                    rows = _Rows(self._copy.folder / source.name)
                    for row in rows:
                        for kind, numbers in columns.items():
                            for name, text in row.pop(kind, {}).items():
                                row[f"{kind[0]}{numbers.setdefault(name, len(numbers))}"] = text
                        line = orjson_text(row | {"src": number}) + b"\n"
                        longest = max(longest, len(line))
                        stream.write(line)
                    sources.append(rows.with_counts(source, first))
                    first += sum(rows.counts)
            texts = [f"{kind[0]}{number}" for kind, numbers in columns.items() for number in range(len(numbers))]
            declared = ", ".join(
                f"{name}: '{kind}'" for name, kind in {**COLUMNS, **dict.fromkeys(texts, "VARCHAR")}.items()
            )
            inputs = {name: f"i{number}" for name, number in columns["inputs"].items()}
            key = case_key("coalesce(id::VARCHAR, id_text)", inputs)
            without_inputs = f"EXCLUDE ({', '.join(inputs.values())})" if inputs else ""
            query = f"""SELECT * {without_inputs} REPLACE ({key} AS case_key)
                FROM read_json({quoted(path_pattern(temporary))}, format = 'newline_delimited',
                columns = {{{declared}}}, maximum_object_size = {max(16 * 1024**2, 2 * longest)})"""
            self._copy.write_parquet(self._connection, query, part.name)
        finally:
            temporary.unlink(missing_ok=True)
        names = FieldNames(*(list(numbers) for numbers in columns.values()))
        return structs.replace(part, names=names, sources=sources)


class _Rows:
    """Yields the rows of one file and counts its lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.counts = [0, 0, 0]
        self._profiles: set[str | None] = set()
        self._unreadable = 0
        self._line_errors: list[tuple[int, str]] = []

    def __iter__(self) -> Iterator[Record]:
        for line, record in read_records(self._path):
            if isinstance(record, str):
                self._unreadable += 1
                if len(self._line_errors) < _MAX_LINE_ERRORS:
                    self._line_errors.append((line, record))
                continue
            row = row_of(record)
            self.counts[row["kind"]] += 1
            if row["kind"] == RESULT:
                self._profiles.add(row["profile"])
            yield row

    def with_counts(self, source: SourceFile, first: int) -> SourceFile:
        """Add the counts to a source file; `first` is the number of its first row in the part."""
        return structs.replace(
            source,
            first=first,
            results=self.counts[RESULT],
            metas=self.counts[META],
            inputs=self.counts[INPUT],
            profiles=_sorted_profiles(self._profiles),
            unreadable=self._unreadable,
            line_errors=self._line_errors,
        )


def _sorted_profiles(names: Iterable[str | None]) -> list[str | None]:
    """Return the unique profiles, sorted, with None last."""
    return sorted(set(names), key=lambda name: (name is None, name or ""))


# -- field names ---------------------------------------------------------------------------------


def sample_file(path: Path, every_line: bool = False) -> FieldNames | None:
    """Return the field names in some lines of a file, or in all; None if one of these lines needs Python.

    An input that no sampled line has is not part of the key of its case.
    """
    fields: dict[str, None] = {}
    expected: Record = {}
    inputs: Record = {}
    for record in _sample_records(path, every_line):
        expected |= expected_of(normalize_input(record))
        inputs |= inputs_of(record) if not is_meta(record) else {}
        audit = normalize_audit(record)
        if is_view_row(record) or None in expected.values():
            return None
        if audit is not None and isinstance(audit["result"], dict):
            fields |= dict.fromkeys(audit["result"])
        elif audit is not None and audit["result"] is not None:
            return None
    if not all(map(can_select_input, inputs)) or len({name.casefold() for name in inputs}) < len(inputs):
        return None
    return selectable(fields, expected, inputs)


def _sample_lines(path: Path, every_line: bool) -> Iterator[bytes]:
    with suppress(OSError), path.open("rb") as stream:
        if every_line:
            yield from stream
            return
        for start in range(0, os.fstat(stream.fileno()).st_size, _SAMPLE_EVERY):
            stream.seek(start)
            first = 1 if start else 0
            yield from stream.read(_SAMPLE_BYTES).split(b"\n")[first : first + _SAMPLE_LINES]


def _sample_records(path: Path, every_line: bool) -> Iterator[Record]:
    for line in _sample_lines(path, every_line):
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            record = msgspec.json.decode(line)
            if isinstance(record, dict):
                yield record


def contract_names(folder: Path) -> FieldNames:
    """Return the fields of the task's contract, if there is one beside the folder."""
    path = folder.parent / "Hoplet" / "metainfo.md"
    if not path.is_file():
        return FieldNames()
    try:
        contract = read_contract(str(path))
        return selectable(contract.outputs, (), contract.inputs)
    except EvalloomError:
        # The contract is only a hint here; other commands report its errors.
        return FieldNames()


def selectable(fields: Iterable[str], expected: Iterable[str], inputs: Iterable[str] = ()) -> FieldNames:
    """Return the names that SQL can select. DuckDB ignores case in column names."""
    unique = {name.casefold(): name for name in expected if can_select(name)}
    unique_inputs = {name.casefold(): name for name in inputs if can_select_input(name)}
    return FieldNames(
        [name for name in fields if can_select(name)], list(unique.values()), list(unique_inputs.values())
    )


def merge_names(groups: Iterable[FieldNames]) -> FieldNames:
    """Merge names in a deterministic order."""
    all_names = list(groups)

    def merged(group: str) -> list[str]:
        return sorted({name for names in all_names for name in getattr(names, group)})

    return selectable(merged("fields"), merged("expected"), merged("inputs"))


def _count_expected_keys(path: Path) -> int:
    """Count the occurrences of `"expected_` in a file."""
    count, keep = 0, 0
    buffer = bytearray(_SCAN_BYTES)
    view = memoryview(buffer)
    overlap = len(_EXPECTED_KEY) - 1
    with suppress(OSError), path.open("rb", buffering=0) as stream:
        while read := stream.readinto(view[keep:]):
            end = keep + read
            count += buffer.count(_EXPECTED_KEY, 0, end)
            keep = min(overlap, end)
            buffer[:keep] = buffer[end - keep : end]
    return count
