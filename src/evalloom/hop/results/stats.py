"""Statistics of HOP results: completion, correctness, fields by type, agreement of scores (HOP-16, HOP-17).

DuckDB counts once per combination of tag, difficulty and profile; Python then sums these few rows in total and per
group.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import floor, fsum
from typing import TYPE_CHECKING, Any

from evalloom.analysis.statistics import wilson
from evalloom.core.errors import usage_error
from evalloom.core.model import Record
from evalloom.core.text import did_you_mean
from evalloom.hop.results.rows import OUTCOMES
from evalloom.hop.results.table import NO_DIFFICULTY, NO_PROFILE, NO_TAG, Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Bands = Mapping[str, tuple[float, float]]
DEFAULT_BANDS: Bands = {"BAD": (1, 2), "MID": (3, 3), "GOOD": (4, 5)}
GROUPS = {"tag": NO_TAG, "difficulty": NO_DIFFICULTY, "profile": NO_PROFILE}
"""The grouping columns, and the name of the group for missing values."""
FEW_VALUES = 20
_LOWEST, _HIGHEST = 1, 5
_TYPES = ("number", "boolean", "string", "array", "object")
_HEAD = ("total", "completed", "judged", "correct", "retries", "with_count", "retried", *OUTCOMES)


def stats(connection: DuckDBPyConnection, table: Table, profile: str | None, by: Sequence[str]) -> Record:
    """Return the statistics of all results, or of one profile, in total and per group."""
    gathering = Gathering(table.names.fields, by)
    where, parameters = table.where_profile(profile)
    source = f"(SELECT * FROM ({table.query}) WHERE {where})"
    for *keys, completed, correct, outcome, retry_count, count in connection.execute(
        _counting(source), parameters
    ).fetchall():
        gathering.add_head(keys, (completed, correct, outcome, retry_count), count)
    many = []
    for name in table.names.fields:
        connection.execute(_values(table, source, name), parameters)
        for row in connection.execute(_FIELD_FIGURES).fetchall():
            gathering.add_figures(row[:3], name, row[3:])
        [(different,)] = connection.execute(_DIFFERENT_TEXTS).fetchall()
        if different > FEW_VALUES:
            many.append(name)
            continue
        for *keys, text, count in connection.execute(_TEXTS).fetchall():
            gathering.add_text(keys, name, text, count)
    for name in [name for name in table.names.expected if gathering.is_ordinal(name)]:
        pairs = connection.execute(_pairs(table, source, name), parameters).fetchall()
        gathering.add_pairs(name, [(keys, expected, actual, count) for *keys, expected, actual, count in pairs])
    return {"files": table.files(), **gathering.figures(gathering.few(many))}


class Gathering:
    """Sums the counts in total and per requested group."""

    def __init__(self, fields: Iterable[str], by: Sequence[str]) -> None:
        for name in by:
            if name not in GROUPS:
                hint = did_you_mean(str(name), GROUPS) or f". Known are {', '.join(GROUPS)}"
                raise usage_error("unknown_group", f"by: cannot group by {name!r}{hint}")
        self._names = list(fields)
        self._every = _Sums(self._names)
        self._groups: dict[str, dict[str, _Sums]] = {name: {} for name in by}

    def _of(self, keys: Sequence[str | None]) -> Iterator[_Sums]:
        """Yield the sums that results with this tag, difficulty and profile belong to."""
        yield self._every
        for key, (name, nameless) in zip(keys, GROUPS.items(), strict=True):
            if name in self._groups:
                group, key = self._groups[name], nameless if key is None else key
                if key not in group:
                    group[key] = _Sums(self._names)
                yield group[key]

    def add_head(self, keys: Sequence[str | None], kind: Sequence[Any], count: int) -> None:
        """Add results with the same completion, correctness, outcome and retries."""
        for sums in self._of(keys):
            sums.add(kind, count)

    def add_figures(self, keys: Sequence[str | None], name: str, row: Sequence[Any]) -> None:
        """Add the statistics of a field computed by SQL."""
        for sums in self._of(keys):
            sums.fields[name].add(row)

    def add_value(self, keys: Sequence[str | None], name: str, text: str, count: int) -> None:
        """Add one value of a field, as JSON text."""
        row = _figures_of(text, count)
        is_string = text.startswith('"')
        for sums in self._of(keys):
            sums.fields[name].add(row)
            if is_string:
                sums.fields[name].values[text] += count

    def add_text(self, keys: Sequence[str | None], name: str, text: str, count: int) -> None:
        for sums in self._of(keys):
            sums.fields[name].values[text] += count

    def add_pairs(self, name: str, pairs: Sequence[tuple[Sequence[str | None], float, float, int]]) -> None:
        """Add expected and actual scores of a field, if all are scores."""
        is_score = all(_is_ordinal(expected) and _is_ordinal(actual) for _, expected, actual, _ in pairs)
        for keys, expected, actual, count in pairs if is_score and self.is_ordinal(name) else ():
            for sums in self._of(keys):
                sums.fields[name].pairs[expected, actual] += count

    def is_ordinal(self, name: str) -> bool:
        return name in self._every.fields and self._every.fields[name].is_ordinal

    def few(self, many: Iterable[str]) -> set[str]:
        """Return the fields with few enough texts to list all of them."""
        fields = self._every.fields
        return {name for name in fields if name not in many and len(fields[name].values) <= FEW_VALUES}

    def figures(self, few: set[str]) -> Record:
        return self._every.figures(few) | {
            f"by_{name}": {key: groups[key].figures(few) for key in sorted(groups)}
            for name, groups in self._groups.items()
        }


def _figures_of(text: str, count: int) -> tuple[Any, ...]:
    """Return the row of `_FIELD_FIGURES` for one value; a list may be abbreviated to `[` and its length."""
    number = float(text) if text[0] in "-0123456789" else None
    kind = "number" if number is not None else _KINDS.get(text[0], "boolean")
    items = 0
    if kind == "array":
        items = len(json.loads(text)) if text.endswith("]") else int(text[1:])
    types = [count if kind == name else 0 for name in _TYPES]
    total = None if number is None else number * count
    is_whole = number is None or number == floor(number)
    return (count, *types, total, number, number, is_whole, count if text == "true" else 0, items * count)


_KINDS = {'"': "string", "[": "array", "{": "object"}


def _counting(source: str) -> str:
    """Return the query that counts results of each kind."""
    return f"""SELECT tag, difficulty, profile, completed, correct, outcome, retry_count, count(*)
        FROM {source} GROUP BY ALL"""


def _values(table: Table, source: str, name: str) -> str:
    """Return the query that fills the table `field` with the distinct values of a field.

    Only completed results count; the first character of a JSON text determines its type.
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
        f"CASE WHEN {text} >= '-' AND {text} < ':' THEN TRY_CAST({text} AS DOUBLE) END" for text in ("e", "f")
    )
    return f"""SELECT tag, difficulty, profile, {expected} AS expected, {actual} AS actual, sum(n)::BIGINT
        FROM (SELECT tag, difficulty, profile, {table.expected(name)} AS e, {table.field(name)} AS f, count(*) AS n
            FROM {source} WHERE completed AND e IS NOT NULL AND f IS NOT NULL GROUP BY ALL)
        WHERE expected IS NOT NULL AND actual IS NOT NULL GROUP BY ALL"""


class _Field:
    """The counts of one field."""

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
        """Whether it looks like a score: integers from 1 to 5."""
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
        figures: Record = {"count": self.filled, "non_null_rate": _rate(self.filled, completed)}
        figures["type"] = next(iter(self.types)) if len(self.types) == 1 else "mixed" if self.types else "null"
        if figures["type"] == "mixed":
            figures["types"] = {name: self.types[name] for name in _TYPES if self.types[name]}
        if figures["type"] == "number":
            figures |= {"mean": fsum(self.sums) / self.types["number"], "min": self.low, "max": self.high}
        elif figures["type"] == "boolean":
            figures["rate"] = _rate(self.true, self.types["boolean"])
        elif figures["type"] == "array":
            figures["mean_length"] = self.items / self.types["array"]
        elif figures["type"] == "string" and is_few:
            figures["distribution"] = {json.loads(text): self.values[text] for text in sorted(self.values)}
        if self.pairs:
            figures["agreement"] = agreement_of(self.pairs, DEFAULT_BANDS)
        return figures


class _Sums:
    """The counts of a group of results."""

    def __init__(self, fields: Iterable[str]) -> None:
        self.head: dict[str, float] = dict.fromkeys(_HEAD, 0)
        self.fields = {name: _Field() for name in fields}

    def add(self, kind: Sequence[Any], count: int) -> None:
        completed, correct, outcome, retry_count = kind
        is_judged = completed and correct is not None
        added = {"total": 1, "completed": completed, "judged": is_judged, "correct": is_judged and correct}
        added[outcome] = 1
        if retry_count is not None:
            added |= {"retries": retry_count, "with_count": 1, "retried": retry_count > 0}
        for name, value in added.items():
            self.head[name] += value * count

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
    """Compute the agreement of a score with the expected one, in bands (HOP-17)."""
    if field not in table.names.expected:
        names = table.names.expected
        hint = did_you_mean(field, names) or (f". Known are {', '.join(names)}" if names else "")
        raise usage_error("unknown_result_column", f"field: no result has expected_{field}{hint}")
    where, parameters = table.where_profile(profile)
    source = f"(SELECT * FROM ({table.query}) WHERE {where})"
    query = f"""SELECT expected, actual, sum(count)
        FROM ({_pairs(table, source, field)}) t(tag, difficulty, profile, expected, actual, count) GROUP BY ALL"""
    pairs: Counter[tuple[float, float]] = Counter()
    for expected, actual, count in connection.execute(query, parameters).fetchall():
        pairs[expected, actual] = int(count)
    return agreement_of(pairs, bands)


def agreement_of(pairs: Mapping[tuple[float, float], int], bands: Bands) -> Record:
    """Return the confusion matrix of (expected, actual) pairs and its rates."""
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
