"""Statistics of HOP results: completion, correctness, fields by type, agreement of scores (HOP-16, HOP-17).

DuckDB counts the results in total and per group; Python computes rates and intervals from the counts. A rate is the
mean of the cases' shares, and its interval is over cases: copies and repeats of a case are one cluster (WORK-4).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import fsum
from typing import TYPE_CHECKING, Any

from evalloom.analysis.statistics import mean_interval
from evalloom.batchlog.parquet import quoted
from evalloom.core.errors import usage_error
from evalloom.core.lazy import lazy_pattern
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
_TYPES = ("number", "boolean", "string", "array", "object")

_Group = tuple[str | None, str | None, str | None]
"""The tag, difficulty and profile of the results in a group; None where they may differ."""
_TOTAL: _Group = (None, None, None)


def stats(connection: DuckDBPyConnection, table: Table, profile: str | None, by: Sequence[str]) -> Record:
    """Return the statistics of all results, or of one profile, in total and per group."""
    for name in by:
        if name not in GROUPS:
            hint = did_you_mean(str(name), GROUPS) or f". Known are {', '.join(GROUPS)}"
            raise usage_error("unknown_group", f"by: cannot group by {name!r}{hint}")
    by = list(dict.fromkeys(by))
    counter = _Counter(connection, table, profile, by)
    figures = counter.results()
    for name in table.names.fields:
        for group, field in counter.field(name).items():
            figures[group]["fields"][name] = {
                "count": field["count"],
                "non_null_rate": _rate(field["count"], figures[group]["completed"]),
                **field,
            }
    answer = {"files": table.files(), **figures[_TOTAL]}
    for name in by:
        position = list(GROUPS).index(name)
        keys = {str(group[position]): group for group in figures if group[position] is not None}
        answer[f"by_{name}"] = {key: figures[keys[key]] for key in sorted(keys)}
    return answer


class _Counter:
    """Counts results and the values of their fields in DuckDB, in total and per group."""

    def __init__(self, connection: DuckDBPyConnection, table: Table, profile: str | None, by: Sequence[str]) -> None:
        self._connection = connection
        self._table = table
        self._by = by
        where, self._parameters = table.where_profile(profile)
        self._rows = f"(SELECT * FROM ({table.query}) WHERE {where})"

    def results(self) -> dict[_Group, Record]:
        """Return the figures of each group, without its fields."""
        self._count("completed, correct, outcome, retry_count")
        outcomes = ", ".join(f"{_total_where(f'outcome = {quoted(name)}')}" for name in OUTCOMES)
        groups = self._add_up(f"""
            {_total_where("true")}, {_total_where("completed")}, {_total_where("completed AND correct IS NOT NULL")},
            {_total_where("completed AND correct")}, {_total_where("completed AND correct IS NULL")},
            sum(retry_count * n) / sum(n) FILTER (retry_count IS NOT NULL),
            {_total_where("retry_count > 0")}, {outcomes}""")
        shares = self._shares()
        figures = {}
        for group, [row] in groups.items():
            total, completed, judged, correct, unscored, mean_retries, retried, *by_outcome = row
            rates = shares.get(group, _Rates())
            figures[group] = {
                "total": total,
                "cases": rates.completed.cases,
                "completed": completed,
                "errors": total - completed,
                "completion_rate": rates.completed.mean,
                "completion_interval": rates.completed.interval,
                "judged": judged,
                "correct": correct,
                "correctness": rates.correct.mean,
                "correctness_interval": rates.correct.interval,
                "unscored": unscored,
                "pass_rate": rates.passed.mean,
                "pass_rate_interval": rates.passed.interval,
                "outcomes": dict(zip(OUTCOMES, by_outcome, strict=True)),
                "retries": {"mean": mean_retries, "rows_with_retries": retried},
                "fields": {},
            }
        return figures

    def _shares(self) -> dict[_Group, _Rates]:
        """Return the shares of the cases of each group. A case is one cluster under all its profiles, too (WORK-4).

        Only in `correct` it is one for each profile: HOP-16 divides by the results that completed, and they may be of
        one profile only.
        """
        named = ", ".join(f"coalesce({name}, {quoted(label)}) AS {name}" for name, label in GROUPS.items())
        self._connection.execute(
            f"""CREATE OR REPLACE TEMP TABLE cases AS SELECT * REPLACE ({named}) FROM (
                SELECT {", ".join(GROUPS)}, case_key, {CASE_COUNTS} FROM {self._rows} GROUP BY ALL)""",
            self._parameters,
        )
        rates: dict[_Group, _Rates] = {}
        sums = ", ".join(f"sum({column}) AS {column}" for column in CASE_COLUMNS)
        for name in (None, *self._by):
            value, place = name or "NULL", list(GROUPS).index(name) if name else 0
            for cluster in ("case_key", "profile, case_key"):
                rows = self._connection.execute(f"""SELECT name, {CASE_SHARES}, count(*) FROM (
                    SELECT {value} AS name, {sums} FROM cases GROUP BY {value}, {cluster}) GROUP BY ALL ORDER BY ALL""")
                for label, completed, correct, passed, cases in rows.fetchall():
                    group = (*_TOTAL[:place], label, *_TOTAL[place + 1 :]) if name else _TOTAL
                    found = rates.setdefault(group, _Rates())
                    if cluster == "case_key":
                        found.add(completed, None, passed, cases)
                    else:
                        found.add(None, correct, None, cases)
        return rates

    def field(self, name: str) -> dict[_Group, Record]:
        """Return the figures of a field, for each group in which a completed result has a value of it."""
        column = self._table.field(name)
        # The first character of a JSON text determines its type.
        self._count(
            f"{column} AS text",
            f"completed AND {column} <> 'null'",
            f"""{_number("text")} AS number, CASE WHEN number IS NOT NULL THEN 'number'
                WHEN text IN ('true', 'false') THEN 'boolean' WHEN starts_with(text, '"') THEN 'string'
                WHEN starts_with(text, '[') THEN 'array' ELSE 'object' END AS type""",
        )
        types = ", ".join(_total_where(f"type = {quoted(kind)}") for kind in _TYPES)
        groups = self._add_up(f"""
            {_total_where("true")}, fsum(number * n), min(number), max(number), {_total_where("text = 'true'")},
            sum(CASE WHEN type = 'array' THEN n * json_array_length(text) END),
            bool_and({_is_score("number")}), {"count(DISTINCT text)" if is_identifier(name) else "NULL"}, {types}""")
        texts = self._text_counts()
        figures: dict[_Group, Record] = {}
        for group, [(count, total, low, high, true, items, _, distinct, *by_type)] in groups.items():
            if not count:
                continue
            counts = {kind: of_type for kind, of_type in zip(_TYPES, by_type, strict=True) if of_type}
            kind = next(iter(counts)) if len(counts) == 1 else "mixed"
            figures[group] = {"count": count, "type": kind}
            if kind == "mixed":
                figures[group]["types"] = counts
            elif is_identifier(name) and kind in ("number", "string"):
                figures[group]["distinct"] = distinct
            elif kind == "number":
                figures[group] |= {"mean": total / count, "min": low, "max": high}
            elif kind == "boolean":
                figures[group]["rate"] = true / count
            elif kind == "array":
                figures[group]["mean_length"] = items / count
            elif kind == "string" and texts:
                figures[group]["distribution"] = {json.loads(text): n for text, n in sorted(texts[group])}
        holds_scores = groups[_TOTAL][0][6] and not is_identifier(name)
        for group, items in (
            self._item_counts() if any("mean_length" in each for each in figures.values()) else {}
        ).items():
            figures[group]["items"] = items
        if holds_scores and name in self._table.names.expected:
            for group, pairs in self._score_pairs(name).items():
                by_pair = {(expected, actual): n for expected, actual, n in pairs}
                figures[group]["agreement"] = agreement_of(by_pair, DEFAULT_BANDS)
        return figures

    def _text_counts(self) -> dict[_Group, list[tuple[Any, ...]]]:
        """Return the counts of the distinct texts of a field; nothing if there are many."""
        strings = "type = 'string'"
        [(distinct,)] = self._connection.execute(f"SELECT count(DISTINCT text) FROM counted WHERE {strings}").fetchall()
        return self._add_up("sum(n)", ["text"], strings) if distinct <= FEW_VALUES else {}

    def _item_counts(self) -> dict[_Group, dict[str, dict[str, int]]]:
        """Return the counts of the texts that the objects of an array have, such as `severity` of `errors`, by key."""
        groups = "".join(f"{name}, " for name in self._by)
        self._connection.execute(f"""CREATE OR REPLACE TEMP TABLE counted AS
            SELECT {groups}key, item ->> ('$."' || key || '"') AS value, n FROM (
                SELECT *, unnest(json_keys(item)) AS key FROM (
                    SELECT {groups}n, unnest(json_extract(text, '$[*]')) AS item FROM counted
                    WHERE type = 'array' AND starts_with(text, '[{{'))
                WHERE json_type(item) = 'OBJECT')
            WHERE NOT contains(key, '"') AND json_type(item, '$."' || key || '"') = 'VARCHAR'""")
        self._connection.execute(f"""DELETE FROM counted WHERE key IN (
            SELECT key FROM counted GROUP BY key HAVING count(DISTINCT value) > {FEW_VALUES})""")
        counts: dict[_Group, dict[str, dict[str, int]]] = {}
        for group, rows in self._add_up("sum(n)", ["key", "value"]).items():
            for key, value, n in sorted(rows):
                counts.setdefault(group, {}).setdefault(key, {})[value] = int(n)
        return counts

    def _score_pairs(self, name: str) -> dict[_Group, list[tuple[Any, ...]]]:
        """Return the counts of the pairs of expected and actual scores of a field; nothing if one is not a score."""
        # Grouping texts and converting the few that differ takes half the time of converting all.
        self._count(
            f"{self._table.expected(name)} AS expected_text, {self._table.field(name)} AS actual_text",
            "completed AND expected_text IS NOT NULL AND actual_text IS NOT NULL",
            f"{_number('expected_text')} AS expected, {_number('actual_text')} AS actual",
        )
        are_numbers = "expected IS NOT NULL AND actual IS NOT NULL"
        [(are_scores,)] = self._connection.execute(
            f"SELECT bool_and({_is_score('expected')} AND {_is_score('actual')}) FROM counted WHERE {are_numbers}"
        ).fetchall()
        return self._add_up("sum(n)", ["expected", "actual"], are_numbers) if are_scores else {}

    def _count(self, columns: str, where: str = "true", derived: str = "") -> None:
        """Fill the table `counted` with the number `n` of results for each combination of group and columns.

        It is small, and every sum is over it. `derived` columns are computed once for each combination.
        """
        named = ", ".join(f"coalesce({name}, {quoted(GROUPS[name])}) AS {name}" for name in self._by)
        combinations = ", ".join((*self._by, columns))
        self._connection.execute(
            f"""CREATE OR REPLACE TEMP TABLE counted AS
                SELECT * {f"REPLACE ({named})" if named else ""}, {derived or "NULL"} FROM (
                    SELECT {combinations}, count(*) AS n FROM {self._rows} WHERE {where} GROUP BY ALL)""",
            self._parameters,
        )

    def _add_up(
        self, sums: str, split_by: Sequence[str] = (), where: str = "true"
    ) -> dict[_Group, list[tuple[Any, ...]]]:
        """Sum up `counted` in total and per group; `split_by` splits every group into several rows."""
        sets = ", ".join(f"({', '.join((*group, *split_by))})" for group in ((), *((name,) for name in self._by)))
        keys = (name if name in self._by else "NULL" for name in GROUPS)
        columns = ", ".join((*keys, *split_by, sums))
        rows = self._connection.execute(f"SELECT {columns} FROM counted WHERE {where} GROUP BY GROUPING SETS ({sets})")
        groups: dict[_Group, list[tuple[Any, ...]]] = {}
        for tag, difficulty, profile, *values in rows.fetchall():
            groups.setdefault((tag, difficulty, profile), []).append(tuple(values))
        return groups


def is_identifier(name: str) -> bool:
    """Return whether a field holds identifiers by its name: `id`, `ticket_id`, `orderId`, `编号`."""
    return _IDENTIFIER.search(name) is not None


_IDENTIFIER = lazy_pattern(
    r"(?:^|[_\-. ])(?i:id|ids|uuid|guid)$|[a-z0-9](?:Id|ID|Ids|IDs|Uuid|UUID)$|(?:编号|序号|单号|工号|标识)$"
)

CASE_COLUMNS = ("runs", "completed", "judged", "correct", "counted")
CASE_COUNTS = """count(*) AS runs, count(*) FILTER (completed) AS completed,
    count(*) FILTER (completed AND correct IS NOT NULL) AS judged, count(*) FILTER (completed AND correct) AS correct,
    count(*) FILTER (correct IS NOT NULL OR NOT completed) AS counted"""
"""The counts of one case; `counted` leaves out completed results of which nothing is expected."""
CASE_SHARES = (
    "completed / runs AS completed, correct / nullif(judged, 0) AS correct, correct / nullif(counted, 0) AS passed"
)
"""What of its runs completed, what of those is correct, and what of all passed; NULL if there is none."""


class _Shares:
    """The shares of some cases: their number, sum and sum of squares."""

    def __init__(self) -> None:
        self.cases = 0
        self._terms: list[float] = []
        self._squares: list[float] = []

    def add(self, share: float | None, cases: int) -> None:
        if share is not None:
            self.cases += cases
            self._terms.append(share * cases)
            self._squares.append(share * share * cases)

    @property
    def mean(self) -> float | None:
        return fsum(self._terms) / self.cases if self.cases else None

    @property
    def interval(self) -> list[float] | None:
        return list(mean_interval(fsum(self._terms), fsum(self._squares), self.cases)) if self.cases else None


class _Rates:
    """The shares of cases that completed, are correct where they completed, and passed."""

    def __init__(self) -> None:
        self.completed, self.correct, self.passed = _Shares(), _Shares(), _Shares()

    def add(self, completed: float | None, correct: float | None, passed: float | None, cases: int) -> None:
        self.completed.add(completed, cases)
        self.correct.add(correct, cases)
        self.passed.add(passed, cases)


def _total_where(condition: str) -> str:
    return f"coalesce(sum(n) FILTER ({condition}), 0)"


def _number(text: str) -> str:
    """Return the SQL for the number in a JSON text, or NULL."""
    return f"CASE WHEN {text} >= '-' AND {text} < ':' THEN TRY_CAST({text} AS DOUBLE) END"


def _is_score(number: str) -> str:
    return f"({number} BETWEEN 1 AND 5 AND {number} = floor({number}))"


def agreement(connection: DuckDBPyConnection, table: Table, field: str, bands: Bands, profile: str | None) -> Record:
    """Compute the agreement of a score with the expected one, in bands (HOP-17)."""
    if field not in table.names.expected:
        names = table.names.expected
        hint = did_you_mean(field, names) or (f". Known are {', '.join(names)}" if names else "")
        raise usage_error("unknown_result_column", f"field: no result has expected_{field}{hint}")
    where, parameters = table.where_profile(profile)
    query = f"""SELECT {_number(table.expected(field))} AS expected, {_number(table.field(field))} AS actual, count(*)
        FROM ({table.query}) WHERE ({where}) AND completed AND expected IS NOT NULL AND actual IS NOT NULL
        GROUP BY ALL"""
    pairs = connection.execute(query, parameters).fetchall()
    return agreement_of({(expected, actual): count for expected, actual, count in pairs}, bands)


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


def _rate(part: int, total: int) -> float | None:
    return part / total if total else None
