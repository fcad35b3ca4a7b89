"""All results counted by kind in one pass over the files: what `get_stats` is answered from, as long as none changes.

This is quicker than the copy, which holds every row, and is enough for figures. Files that are not all of the plain
flat wrapper, and fields with many different numbers, are left to the copy.
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
from evalloom.hop.results.sample import Look, contract_names, joined, look, may_hide_results, occurrences
from evalloom.hop.results.stats import FEW_VALUES, Gathering
from evalloom.hop.results.table import NO_PROFILE, unknown_profile

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

FORMAT = 1
FILE = "cube.json"
_MANY_NUMBERS = 200
_MOST_KINDS = 300
_SOURCES, _HEADS = -2, -1
"""What a row of the query is about, where it is not about fields."""
_KEYS = "tag, difficulty, profile"

Counted = tuple[str | None, str | None, str | None, list[Any], int]
"""Tag, difficulty and profile of some results, what else they have in common, and how many they are."""


class Cube(Struct, frozen=True):
    """The results of a folder by kind: `heads` by status, `values` and `pairs` by field."""

    stamps: dict[str, Stamp]
    files: int
    heads: list[Counted]
    values: dict[str, list[Counted]]
    pairs: dict[str, list[Counted]]
    many: list[str]
    """Fields with so many different texts that they are not told apart."""
    format: int = FORMAT

    def stats(self, profile: str | None, by: Sequence[str]) -> Record:
        """The same as `hop_stats.stats`."""
        known = sorted({NO_PROFILE if row[2] is None else row[2] for row in self.heads})
        if profile is not None and profile not in known:
            raise unknown_profile(profile, known)
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
    """The cube of files that have not changed since it was made."""
    try:
        cube = msgspec.json.decode((copy.place / FILE).read_bytes(), type=Cube)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return cube if cube.format == FORMAT and cube.stamps == stamps else None


def make(copy: Copy, stamps: dict[str, Stamp]) -> Cube | None:
    """Counts the results of files, unless one of them needs a closer look."""
    looks = [look(copy.folder / name, FLAT) for name in stamps]
    values = _sampled(looks)
    if not stamps or any(one.way != FLAT for one in looks) or any(map(_is_measured, values.values())):
        return None
    names = joined([contract_names(copy.folder), *(one.names for one in looks)])
    many = [name for name in names.fields if _has_many_texts(values.get(name, []))]
    scores = [name for name in names.fields if name in names.expected and _may_be_score(values.get(name, []))]
    sets = _sets(names, values, scores)
    copy.make_writable()
    with copy.connection() as connection, ThreadPoolExecutor(1) as beside:
        # Beside the counting, which leaves the interpreter alone.
        expected = beside.submit(lambda: [occurrences(copy.folder / name) for name in stamps])
        rows = _counted(connection, [copy.folder / name for name in stamps], names, many, sets)
        if rows is None or not _is_exact(rows, expected.result(), [copy.folder / name for name in stamps]):
            return None
    cube = _cube(rows, stamps, names, many, sets)
    with suppress(OSError):
        # Without room for it, it is made again the next time.
        copy.put(FILE, cube)
    return cube


def _sampled(looks: Iterable[Look]) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = {}
    for one in looks:
        for name, found in one.values.items():
            values.setdefault(name, []).extend(found)
    return values


def _is_measured(values: list[Any]) -> bool:
    """Whether a field holds measurements: too many numbers to count one by one."""
    numbers = {value for value in values if isinstance(value, int | float) and not isinstance(value, bool)}
    return len(numbers) > _MANY_NUMBERS or any(isinstance(value, float) and value % 1 for value in numbers)


def _has_many_texts(values: list[Any]) -> bool:
    return len({json_text(value) for value in values if isinstance(value, str | list | dict)}) > FEW_VALUES


def _may_be_score(values: list[Any]) -> bool:
    """Whether nothing that was seen speaks against whole numbers from 1 to 5."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return all(1 <= value <= 5 and value == int(value) for value in numbers)


class _Set(NamedTuple):
    """Fields that are counted together, by the columns of their values and of what was expected of them."""

    fields: tuple[str, ...]
    columns: tuple[str, ...]


def _sets(names: Names, values: dict[str, list[Any]], scores: list[str]) -> list[_Set]:
    """As few sets as give few combinations: each takes as long as reading a column."""
    found: list[_Set] = []
    kinds = _MOST_KINDS
    for name in sorted(names.fields, key=lambda name: _different(values.get(name, []))):
        columns: tuple[str, ...] = (f"v{names.fields.index(name)}",)
        more = _different(values.get(name, []))
        if name in scores:
            columns, more = (*columns, f"e{names.expected.index(name)}"), more * 5
        if kinds * more > _MOST_KINDS:
            found.append(_Set((), ()))
            kinds = 1
        kinds *= more
        found[-1] = _Set((*found[-1].fields, name), (*found[-1].columns, *columns))
    return found


def _different(values: list[Any]) -> int:
    return 1 + len({json_text(value) for value in values[:_MOST_KINDS]})


def _counted(
    connection: DuckDBPyConnection, files: list[Path], names: Names, many: list[str], sets: list[_Set]
) -> list[tuple[Any, ...]] | None:
    """The rows of the one query; None where DuckDB stumbles over a line."""
    import duckdb

    values = "".join(f", {_value(number, name in many)}" for number, name in enumerate(names.fields))
    known = " + ".join(f"(e{number} IS NOT NULL)::INT" for number in range(len(names.expected))) or "0"
    grouped = ["src, kind", f"{_KEYS}, kind, completed, correct, outcome, retry_count"]
    grouped += [f"{_KEYS}, {', '.join(one.columns)}" for one in sets]
    # Each set has a column that no other one has.
    marks = ["src", "completed", *(one.columns[0] for one in sets)]
    what = " ".join(f"WHEN GROUPING({mark}) = 0 THEN {at - 2}" for at, mark in enumerate(marks))
    columns = "".join(f", {column}" for one in sets for column in one.columns)
    query = f"""SELECT CASE {what} END, count(*), {_KEYS}, src, kind, completed, correct, outcome, retry_count,
            bool_or(odd), sum(known){columns}
        FROM (SELECT *, {known} AS known{values} FROM ({select_rows(files, names, FLAT)}))
        GROUP BY GROUPING SETS ({", ".join(f"({one})" for one in grouped)})"""
    try:
        return connection.execute(query).fetchall()
    except (duckdb.InvalidInputException, duckdb.IOException):
        return None


def _value(number: int, is_many: bool) -> str:
    """The value of a field in a result that completed: as a whole, or only its type and the length of a list."""
    field = f"f{number}"
    short = f"""CASE WHEN starts_with({field}, '"') THEN '"' WHEN starts_with({field}, '{{') THEN '{{'
        WHEN starts_with({field}, '[') THEN '[' || json_array_length({field}) ELSE {field} END"""
    return f"CASE WHEN completed AND {field} <> 'null' THEN {short if is_many else field} END AS v{number}"


def _is_exact(rows: list[tuple[Any, ...]], expected: list[int], files: list[Path]) -> bool:
    """Whether every row was one that SQL can tell, and no expectation was missed."""
    known = [0] * len(expected)
    kinds: dict[int, set[int]] = {}
    for _, _, _, _, _, src, kind, *_, odd, found in (row[:13] for row in rows if row[0] == _SOURCES):
        known[src] += int(found)
        kinds.setdefault(src, set()).add(kind)
        if odd:
            return False
    # A row that looks like a case may be a result whose value is null, which a declared column hides.
    hidden = (src for src, found in kinds.items() if INPUT in found)
    return known == expected and not any(may_hide_results(files[src], RESULT in kinds[src]) for src in hidden)


def _cube(
    rows: list[tuple[Any, ...]], stamps: dict[str, Stamp], names: Names, many: list[str], sets: list[_Set]
) -> Cube:
    heads: list[Counted] = []
    values: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in names.fields}
    pairs: dict[str, Counter[tuple[Any, ...]]] = {}
    columns = [column for one in sets for column in one.columns]
    files = set()
    for what, count, tag, difficulty, profile, src, kind, *more in rows:
        completed, correct, outcome, retry_count, _, _, *found = more
        if what == _SOURCES and kind == RESULT:
            files.add(src)
        elif what == _HEADS and kind == RESULT:
            heads.append((tag, difficulty, profile, [completed, correct, OUTCOMES[outcome], retry_count], count))
        elif what >= 0:
            given = dict(zip(columns, found, strict=True))
            for name in sets[what].fields:
                text = given[f"v{names.fields.index(name)}"]
                expected = f"e{names.expected.index(name)}" if name in names.expected else ""
                if text is not None:
                    values[name][tag, difficulty, profile, text] += count
                if expected in sets[what].columns and _are_numbers(given[expected], text):
                    pairs.setdefault(name, Counter())[tag, difficulty, profile, given[expected], text] += count
    return Cube(stamps, len(files), heads, _listed(values), _listed(pairs), many)


def _are_numbers(*texts: str | None) -> bool:
    return all(text is not None and text[0] in "-0123456789" for text in texts)


def _listed(counts: dict[str, Counter[tuple[Any, ...]]]) -> dict[str, list[Counted]]:
    return {
        name: [(*key[:3], list(key[3:]), count) for key, count in counted.items()] for name, counted in counts.items()
    }
