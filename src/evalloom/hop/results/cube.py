"""Counts of all results by kind, from one pass over the files; `get_stats` uses them until a file changes.

This is faster than the copy, which holds every row, and enough for statistics. Files outside the flat wrapper and
fields with many distinct numbers need the copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct

from evalloom.core.model import Record
from evalloom.hop.results.copy import Copy
from evalloom.hop.results.parts import Stamp
from evalloom.hop.results.rows import FLAT, INPUT, OUTCOMES, RESULT, Names, json_text, select_rows
from evalloom.hop.results.sample import FileSample, contract_names, joined, may_hide_results, occurrences, sample_file
from evalloom.hop.results.stats import FEW_VALUES, Gathering
from evalloom.hop.results.table import NO_PROFILE, unknown_profile

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

FORMAT = 1
FILE = "cube.json"
_MANY_NUMBERS = 200
_MOST_KINDS = 300
_SOURCES, _HEADS = -2, -1
"""The kinds of query rows that are not about fields."""
_KEYS = "tag, difficulty, profile"

Counted = tuple[str | None, str | None, str | None, list[Any], int]
"""Tag, difficulty and profile of some results, their other common values, and their count."""


class Cube(Struct, frozen=True):
    """Counts of the results of a folder: `heads` by status, `values` and `pairs` by field."""

    stamps: dict[str, Stamp]
    files: int
    heads: list[Counted]
    values: dict[str, list[Counted]]
    pairs: dict[str, list[Counted]]
    many: list[str]
    """Fields with too many distinct texts to count each of them."""
    format: int = FORMAT

    def stats(self, profile: str | None, by: Sequence[str]) -> Record:
        """Return the same as `stats.stats`."""
        profiles = sorted({NO_PROFILE if row[2] is None else row[2] for row in self.heads})
        if profile is not None and profile not in profiles:
            raise unknown_profile(profile, profiles)
        gathering = Gathering(self.values, by)
        for *keys, kind, count in _of_profile(self.heads, profile):
            gathering.add_head(keys, kind, count)
        for name, rows in self.values.items():
            for *keys, (text,), count in _of_profile(rows, profile):
                gathering.add_value(keys, name, text, count)
        for name, rows in self.pairs.items():
            chosen = _of_profile(rows, profile)
            gathering.add_pairs(name, [(row[:3], float(row[3][0]), float(row[3][1]), row[4]) for row in chosen])
        return {"files": self.files, **gathering.figures(gathering.few(self.many))}


def _of_profile(rows: Iterable[Counted], profile: str | None) -> Iterable[Counted]:
    return (row for row in rows if profile is None or (NO_PROFILE if row[2] is None else row[2]) == profile)


def load(copy: Copy, stamps: dict[str, Stamp]) -> Cube | None:
    """Load the cube if the files have not changed since it was built."""
    try:
        cube = msgspec.json.decode((copy.place / FILE).read_bytes(), type=Cube)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return cube if cube.format == FORMAT and cube.stamps == stamps else None


def make(copy: Copy, stamps: dict[str, Stamp]) -> Cube | None:
    """Build the cube; return None if a file needs the copy."""
    samples = [sample_file(copy.folder / name, FLAT) for name in stamps]
    values = _sampled(samples)
    if not stamps or any(sample.strategy != FLAT for sample in samples) or any(map(_is_measured, values.values())):
        return None
    names = joined([contract_names(copy.folder), *(sample.names for sample in samples)])
    many = [name for name in names.fields if _has_many_texts(values.get(name, []))]
    scores = [name for name in names.fields if name in names.expected and _may_be_score(values.get(name, []))]
    sets = _sets(names, values, scores)
    copy.make_writable()
    with copy.connection() as connection, ThreadPoolExecutor(1) as beside:
        # Runs in parallel with DuckDB, which releases the GIL.
        expected = beside.submit(lambda: [occurrences(copy.folder / name) for name in stamps])
        rows = _counted(connection, [copy.folder / name for name in stamps], names, many, sets)
        if rows is None or not _is_exact(rows, expected.result(), [copy.folder / name for name in stamps]):
            return None
    cube = _cube(rows, stamps, names, many, sets)
    with suppress(OSError):
        # If the disk is full, the cube is rebuilt next time.
        copy.put(FILE, cube)
    return cube


def _sampled(samples: Iterable[FileSample]) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = {}
    for sample in samples:
        for name, sampled in sample.values.items():
            values.setdefault(name, []).extend(sampled)
    return values


def _is_measured(values: list[Any]) -> bool:
    """Return whether a field holds measurements: too many distinct numbers to count each."""
    numbers = {value for value in values if isinstance(value, int | float) and not isinstance(value, bool)}
    return len(numbers) > _MANY_NUMBERS or any(isinstance(value, float) and value % 1 for value in numbers)


def _has_many_texts(values: list[Any]) -> bool:
    return len({json_text(value) for value in values if isinstance(value, str | list | dict)}) > FEW_VALUES


def _may_be_score(values: list[Any]) -> bool:
    """Return whether all sampled numbers are integers from 1 to 5."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return all(1 <= value <= 5 and value == int(value) for value in numbers)


class _Set(NamedTuple):
    """Fields that are counted together, with the columns of their actual and expected values."""

    fields: tuple[str, ...]
    columns: tuple[str, ...]


def _sets(names: Names, values: dict[str, list[Any]], scores: list[str]) -> list[_Set]:
    """Group the fields into few sets with few combinations; each set costs as much as reading a column."""
    sets: list[_Set] = []
    kinds = _MOST_KINDS
    for name in sorted(names.fields, key=lambda name: _different(values.get(name, []))):
        columns: tuple[str, ...] = (f"v{names.fields.index(name)}",)
        more = _different(values.get(name, []))
        if name in scores:
            columns, more = (*columns, f"e{names.expected.index(name)}"), more * 5
        if kinds * more > _MOST_KINDS:
            sets.append(_Set((), ()))
            kinds = 1
        kinds *= more
        sets[-1] = _Set((*sets[-1].fields, name), (*sets[-1].columns, *columns))
    return sets


def _different(values: list[Any]) -> int:
    return 1 + len({json_text(value) for value in values[:_MOST_KINDS]})


def _counted(
    connection: DuckDBPyConnection, files: list[Path], names: Names, many: list[str], sets: list[_Set]
) -> list[tuple[Any, ...]] | None:
    """Run the counting query; return None if DuckDB cannot read a line."""
    import duckdb

    values = "".join(f", {_value(number, name in many)}" for number, name in enumerate(names.fields))
    expected_count = " + ".join(f"(e{number} IS NOT NULL)::INT" for number in range(len(names.expected))) or "0"
    grouped = ["src, kind", f"{_KEYS}, kind, completed, correct, outcome, retry_count"]
    grouped += [f"{_KEYS}, {', '.join(field_set.columns)}" for field_set in sets]
    # Each set has a column that no other one has.
    marks = ["src", "completed", *(field_set.columns[0] for field_set in sets)]
    what = " ".join(f"WHEN GROUPING({mark}) = 0 THEN {at - 2}" for at, mark in enumerate(marks))
    columns = "".join(f", {column}" for field_set in sets for column in field_set.columns)
    query = f"""SELECT CASE {what} END, count(*), {_KEYS}, src, kind, completed, correct, outcome, retry_count,
            bool_or(odd), sum(known){columns}
        FROM (SELECT *, {expected_count} AS known{values} FROM ({select_rows(files, names, FLAT)}))
        GROUP BY GROUPING SETS ({", ".join(f"({field_set})" for field_set in grouped)})"""
    try:
        return connection.execute(query).fetchall()
    except (duckdb.InvalidInputException, duckdb.IOException):
        return None


def _value(number: int, is_many: bool) -> str:
    """Return the SQL for the value of a field in a completed result: in full, or only its type and list length."""
    field = f"f{number}"
    short = f"""CASE WHEN starts_with({field}, '"') THEN '"' WHEN starts_with({field}, '{{') THEN '{{'
        WHEN starts_with({field}, '[') THEN '[' || json_array_length({field}) ELSE {field} END"""
    return f"CASE WHEN completed AND {field} <> 'null' THEN {short if is_many else field} END AS v{number}"


def _is_exact(rows: list[tuple[Any, ...]], expected: list[int], files: list[Path]) -> bool:
    """Return whether SQL read every row exactly and missed no expectation."""
    counts = [0] * len(expected)
    kinds: dict[int, set[int]] = {}
    for _, _, _, _, _, src, kind, *_, needs_python, found in (row[:13] for row in rows if row[0] == _SOURCES):
        counts[src] += int(found)
        kinds.setdefault(src, set()).add(kind)
        if needs_python:
            return False
    # A row that looks like a case may be a result with a null value, which a declared column hides.
    hidden = (src for src, found in kinds.items() if INPUT in found)
    return counts == expected and not any(may_hide_results(files[src], RESULT in kinds[src]) for src in hidden)


def _cube(
    rows: list[tuple[Any, ...]], stamps: dict[str, Stamp], names: Names, many: list[str], sets: list[_Set]
) -> Cube:
    heads: list[Counted] = []
    values: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in names.fields}
    pairs: dict[str, Counter[tuple[Any, ...]]] = {}
    columns = [column for field_set in sets for column in field_set.columns]
    files = set()
    for what, count, tag, difficulty, profile, src, kind, *more in rows:
        completed, correct, outcome, retry_count, _, _, *found = more
        if what == _SOURCES and kind == RESULT:
            files.add(src)
        elif what == _HEADS and kind == RESULT:
            heads.append((tag, difficulty, profile, [completed, correct, OUTCOMES[outcome], retry_count], count))
        elif what >= 0:
            by_column = dict(zip(columns, found, strict=True))
            for name in sets[what].fields:
                text = by_column[f"v{names.fields.index(name)}"]
                expected = f"e{names.expected.index(name)}" if name in names.expected else ""
                if text is not None:
                    values[name][tag, difficulty, profile, text] += count
                if expected in sets[what].columns and _are_numbers(by_column[expected], text):
                    pairs.setdefault(name, Counter())[tag, difficulty, profile, by_column[expected], text] += count
    return Cube(stamps, len(files), heads, _listed(values), _listed(pairs), many)


def _are_numbers(*texts: str | None) -> bool:
    return all(text is not None and text[0] in "-0123456789" for text in texts)


def _listed(counts: dict[str, Counter[tuple[Any, ...]]]) -> dict[str, list[Counted]]:
    return {
        name: [(*key[:3], list(key[3:]), count) for key, count in counted.items()] for name, counted in counts.items()
    }
