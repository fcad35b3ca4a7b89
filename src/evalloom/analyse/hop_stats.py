"""The figures of HOP results: completion, correctness, each field by its type, how far scores agree (HOP-16, HOP-17).

DuckDB counts once for every combination of tag, difficulty and profile; those few rows are then added up in Python
for the whole, and for each group.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from typing import TYPE_CHECKING, Any

from evalloom.analyse.hop_rows import OUTCOMES
from evalloom.analyse.hop_table import NO_DIFFICULTY, NO_PROFILE, NO_TAG, Table
from evalloom.analyse.statistics import wilson
from evalloom.errors import did_you_mean, usage_error
from evalloom.model import Record

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Bands = Mapping[str, tuple[float, float]]
DEFAULT_BANDS: Bands = {"BAD": (1, 2), "MID": (3, 3), "GOOD": (4, 5)}
GROUPS = {"tag": NO_TAG, "difficulty": NO_DIFFICULTY, "profile": NO_PROFILE}
"""What results are grouped by, and the name of the group of those that do not say."""
FEW_VALUES = 20
_LOWEST, _HIGHEST = 1, 5
_TYPES = ("number", "boolean", "string", "array", "object")
_HEAD = ("total", "completed", "judged", "correct", "retries", "with_count", "retried", *OUTCOMES)


def stats(connection: DuckDBPyConnection, table: Table, profile: str | None, by: Sequence[str]) -> Record:
    """The figures of all results, or of one profile, and of each group."""
    for name in by:
        if name not in GROUPS:
            hint = did_you_mean(str(name), GROUPS) or f". Known are {', '.join(GROUPS)}"
            raise usage_error("unknown_group", f"by: cannot group by {name!r}{hint}")
    where, given = table.where_profile(profile)
    source = f"(SELECT * FROM ({table.query}) WHERE {where})"
    every = _Sums(table.names.fields)
    groups: dict[str, dict[str, _Sums]] = {name: {} for name in by}

    def sums_of(keys: Sequence[str | None]) -> list[_Sums]:
        """The sums that a row of these keys adds to."""
        found = [every]
        for key, (name, nameless) in zip(keys, GROUPS.items(), strict=True):
            if name in groups:
                group, key = groups[name], nameless if key is None else key
                if key not in group:
                    group[key] = _Sums(table.names.fields)
                found.append(group[key])
        return found

    for row in connection.execute(_counting(source), given).fetchall():
        for sums in sums_of(row[:3]):
            sums.add(row[3:])
    few = set()
    for name in table.names.fields:
        connection.execute(_values(table, source, name), given)
        for row in connection.execute(_FIELD_FIGURES).fetchall():
            for sums in sums_of(row[:3]):
                sums.fields[name].add(row[3:])
        [(different,)] = connection.execute(_DIFFERENT_TEXTS).fetchall()
        if different <= FEW_VALUES:
            few.add(name)
            for *keys, text, count in connection.execute(_TEXTS).fetchall():
                for sums in sums_of(keys):
                    sums.fields[name].values[text] += count
    for name in [name for name in table.names.expected if name in every.fields and every.fields[name].is_ordinal]:
        pairs = connection.execute(_pairs(table, source, name), given).fetchall()
        if all(_is_ordinal(expected) and _is_ordinal(actual) for *_, expected, actual, _ in pairs):
            for *keys, expected, actual, count in pairs:
                for sums in sums_of(keys):
                    sums.fields[name].pairs[expected, actual] += count
    return every.figures(few) | {
        f"by_{name}": {key: found[key].figures(few) for key in sorted(found)} for name, found in groups.items()
    }


def _counting(source: str) -> str:
    """The head figures for each combination of the groups."""
    return f"""SELECT tag, difficulty, profile, count(*), count(*) FILTER (completed),
            count(*) FILTER (completed AND correct IS NOT NULL), count(*) FILTER (completed AND correct),
            coalesce(sum(retry_count), 0), count(retry_count), count(*) FILTER (retry_count > 0),
            {", ".join(f"count(*) FILTER (outcome_code = {number})" for number in range(len(OUTCOMES)))}
        FROM {source} GROUP BY ALL"""


def _values(table: Table, source: str, name: str) -> str:
    """Fills the table `field` with the different values of a field, which are mostly few, before anything is reckoned.

    Only results that completed have something to say; the first character of a JSON text tells its type.
    """
    text = table.field(name)
    number = f"CASE WHEN {text} >= '-' AND {text} < ':' THEN TRY_CAST({text} AS DOUBLE) END"
    return f"""CREATE OR REPLACE TEMP TABLE field AS
        SELECT tag, difficulty, profile, {text} AS text, count(*) AS n, {number} AS number, CASE
                WHEN number IS NOT NULL THEN 'number' WHEN text IN ('true', 'false') THEN 'boolean'
                WHEN starts_with(text, '"') THEN 'string' WHEN starts_with(text, '[') THEN 'array'
                ELSE 'object' END AS type
        FROM {source} WHERE completed AND {text} IS NOT NULL AND {text} <> 'null'
        GROUP BY tag, difficulty, profile, text"""


_FIELD_FIGURES = f"""SELECT tag, difficulty, profile, sum(n),
        {", ".join(f"coalesce(sum(n) FILTER (type = '{name}'), 0)" for name in _TYPES)},
        fsum(number * n), min(number), max(number), bool_and(number = floor(number)),
        coalesce(sum(n) FILTER (text = 'true'), 0),
        coalesce(sum(CASE WHEN type = 'array' THEN n * json_array_length(text) END), 0)
    FROM field GROUP BY ALL"""
_DIFFERENT_TEXTS = "SELECT count(DISTINCT text) FROM field WHERE type = 'string'"
_TEXTS = "SELECT tag, difficulty, profile, text, n FROM field WHERE type = 'string'"


def _pairs(table: Table, source: str, name: str) -> str:
    expected, actual = (
        f"CASE WHEN {text} >= '-' AND {text} < ':' THEN TRY_CAST({text} AS DOUBLE) END"
        for text in (table.expected(name), table.field(name))
    )
    return f"""SELECT tag, difficulty, profile, {expected} AS expected, {actual} AS actual, count(*) FROM {source}
        WHERE completed AND expected IS NOT NULL AND actual IS NOT NULL GROUP BY ALL"""


class _Field:
    """What was counted of one field."""

    def __init__(self) -> None:
        self.filled = 0
        self.types: Counter[str] = Counter()
        self.sums: list[float] = []
        self.low: float | None = None
        self.high: float | None = None
        self.is_whole = True
        self.true = 0
        self.items = 0
        self.values: Counter[str] = Counter()
        self.pairs: Counter[tuple[float, float]] = Counter()

    @property
    def is_ordinal(self) -> bool:
        """Whether it looks like a score: whole numbers from 1 to 5."""
        if self.low is None or self.high is None:
            return False
        return self.is_whole and self.low >= _LOWEST and self.high <= _HIGHEST

    def add(self, row: Sequence[Any]) -> None:
        self.filled += int(row[0])
        self.types.update({name: int(count) for name, count in zip(_TYPES, row[1:6], strict=True) if count})
        if row[1]:
            self.sums.append(row[6])
            self.low = row[7] if self.low is None else min(self.low, row[7])
            self.high = row[8] if self.high is None else max(self.high, row[8])
            self.is_whole &= row[9]
        self.true += int(row[10])
        self.items += int(row[11])

    def figures(self, completed: int, is_few: bool) -> Record:
        found: Record = {"count": self.filled, "non_null_rate": _rate(self.filled, completed)}
        found["type"] = next(iter(self.types)) if len(self.types) == 1 else "mixed" if self.types else "null"
        if found["type"] == "mixed":
            found["types"] = {name: self.types[name] for name in _TYPES if self.types[name]}
        if found["type"] == "number":
            found |= {"mean": fsum(self.sums) / self.types["number"], "min": self.low, "max": self.high}
        elif found["type"] == "boolean":
            found["rate"] = _rate(self.true, self.types["boolean"])
        elif found["type"] == "array":
            found["mean_length"] = self.items / self.types["array"]
        elif found["type"] == "string" and is_few:
            found["distribution"] = {json.loads(text): self.values[text] for text in sorted(self.values)}
        if self.pairs:
            found["agreement"] = agreement_of(self.pairs, DEFAULT_BANDS)
        return found


class _Sums:
    """What was counted of a group of results."""

    def __init__(self, fields: Iterable[str]) -> None:
        self.head: dict[str, float] = dict.fromkeys(_HEAD, 0)
        self.fields = {name: _Field() for name in fields}

    def add(self, row: Sequence[Any]) -> None:
        for name, value in zip(_HEAD, row, strict=True):
            self.head[name] += value

    def figures(self, few: set[str]) -> Record:
        head = {name: int(self.head[name]) for name in _HEAD}
        return {
            "total": head["total"],
            "completed": head["completed"],
            "completion_rate": _rate(head["completed"], head["total"]),
            "completion_interval": _interval(head["completed"], head["total"]),
            "judged": head["judged"],
            "correct": head["correct"],
            "correctness": _rate(head["correct"], head["judged"]),
            "correctness_interval": _interval(head["correct"], head["judged"]),
            "outcomes": {name: head[name] for name in OUTCOMES},
            "retries": {
                "mean": self.head["retries"] / head["with_count"] if head["with_count"] else None,
                "rows_with_retries": head["retried"],
            },
            "fields": {
                name: field.figures(head["completed"], name in few)
                for name, field in self.fields.items()
                if field.filled
            },
        }


def agreement(connection: DuckDBPyConnection, table: Table, field: str, bands: Bands, profile: str | None) -> Record:
    """How far a score agrees with the expected one, in bands (HOP-17)."""
    if field not in table.names.expected:
        known = table.names.expected
        hint = did_you_mean(field, known) or (f". Known are {', '.join(known)}" if known else "")
        raise usage_error("unknown_result_column", f"field: no result has expected_{field}{hint}")
    where, given = table.where_profile(profile)
    source = f"(SELECT * FROM ({table.query}) WHERE {where})"
    query = f"""SELECT expected, actual, sum(count)
        FROM ({_pairs(table, source, field)}) t(tag, difficulty, profile, expected, actual, count) GROUP BY ALL"""
    pairs: Counter[tuple[float, float]] = Counter()
    for expected, actual, count in connection.execute(query, given).fetchall():
        pairs[expected, actual] = int(count)
    return agreement_of(pairs, bands)


def agreement_of(pairs: Mapping[tuple[float, float], int], bands: Bands) -> Record:
    """The confusion matrix of pairs (expected, given), and the rates that follow from it."""
    matrix = {name: dict.fromkeys(bands, 0) for name in bands}
    total = exact = near = outside = 0
    for (expected, actual), count in pairs.items():
        row, column = _band(expected, bands), _band(actual, bands)
        total += count
        exact += count if expected == actual else 0
        near += count if abs(expected - actual) <= 1 else 0
        if row is None or column is None:
            outside += count
        else:
            matrix[row][column] += count
    inside = total - outside
    same = sum(matrix[name][name] for name in bands)
    return {
        "n": total,
        "matrix": matrix,
        "cross_band_rate": _rate(inside - same, inside),
        "exact": _rate(exact, total),
        "within_one": _rate(near, total),
        "outside": outside,
    }


def _band(value: float, bands: Bands) -> str | None:
    return next((name for name, (low, high) in bands.items() if low <= value <= high), None)


def _is_ordinal(value: float) -> bool:
    return _LOWEST <= value <= _HIGHEST and value == int(value)


def _rate(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _interval(part: int, whole: int) -> list[float] | None:
    return list(wilson(part, whole)) if whole else None
