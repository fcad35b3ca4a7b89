"""Compares the Parquet copies of two batches: cases that are alike are counted in groups, the others one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy
from numpy.typing import NDArray

from evalloom.analysis.compare import Comparer
from evalloom.batchlog.columns import RESULTS, columns_of
from evalloom.batchlog.copy import Copy, result_source
from evalloom.batchlog.parquet import Place, connect, path_pattern, quoted
from evalloom.batchlog.read import warn_of_damage
from evalloom.batchlog.results import RESULT_COLUMNS, CaseResult, ResultRow, result_of
from evalloom.core.errors import EvalloomError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_Numbers = NDArray[numpy.int64]
_Amounts = NDArray[numpy.float64]
_Mask = NDArray[numpy.bool_]


class _Columns(NamedTuple):
    """The results of a profile, a row for each case in the order of the batch; NaN where a case has no value."""

    row: _Numbers
    """The number of the row in its file."""
    content: _Numbers
    pair: _Numbers
    group: _Numbers
    score: _Amounts
    latency_s: _Amounts
    tokens: _Amounts
    cost: _Amounts


class CannotCopy(Exception):
    """The disk is full, or a damaged log has numbers that Parquet has not. The log itself can still be read."""


class CopiedResults:
    """The Parquet copies of the results of batches. Close it, or use it in a `with` block."""

    def __init__(self) -> None:
        self._place = Place()
        self._connection = connect(self._place.path)
        self._copies: list[Copy] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, and remove temporary copies."""
        self._connection.close()
        for copy in self._copies:
            copy.close()
        self._place.close()

    def open(self, paths: Iterable[Path], warn: Callable[[str], None]) -> list[ResultFile]:
        """Open the copies of batches, and build those that are missing or stale; raise CannotCopy if one cannot be."""
        import duckdb

        indexes = []
        for path in paths:
            self._copies.append(Copy(result_source(path), self._connection))
            try:
                indexes.append(self._copies[-1].refresh())
            except (duckdb.Error, EvalloomError) as error:
                raise CannotCopy(str(error)) from error
        for copy, index in zip(self._copies, indexes, strict=True):
            warn_of_damage(index.damage, copy.source.path, warn)
        return [
            ResultFile(self._connection, copy.place / index.tables[RESULTS].file if index.tables else None)
            for copy, index in zip(self._copies, indexes, strict=True)
        ]


class ResultFile:
    """The results of a batch in its copy; None is the file of a batch without runs."""

    def __init__(self, connection: DuckDBPyConnection, path: Path | None) -> None:
        self._connection = connection
        self._path = path

    def columns(self, profile: str) -> _Columns:
        """Read the numbers of a profile, whose rows follow each other. DuckDB keeps the order of a file."""
        where = f"FROM {self._table} WHERE profile = ?"
        first = self._connection.execute(f"SELECT file_row_number {where} LIMIT 1", [profile]).fetchone()
        query = f"""SELECT content, pair, "group", coalesce(score, 'nan') AS score,
            coalesce(latency_s, 'nan') AS latency_s, tokens, cost {where}"""
        found = self._connection.execute(query, [profile]).fetchnumpy()
        row = numpy.arange(len(found["pair"])) + (first[0] if first else 0)
        return _Columns(row, *(numpy.asarray(found[name]) for name in _Columns._fields[1:]))

    def results(self, rows: _Numbers, pass_if: float | None) -> Iterator[CaseResult]:
        """Yield the results in some rows, in the order of the file."""
        if not len(rows):
            return
        names = ", ".join(f'"{name}"' for name in RESULT_COLUMNS)
        self._connection.register("wanted", {"row": rows})
        cursor = self._connection.execute(
            f"""SELECT {names} FROM {self._table} WHERE file_row_number IN (SELECT "row" FROM wanted)
            ORDER BY file_row_number"""
        )
        # Twice as fast as fetching tuples.
        found = cursor.fetchnumpy()
        for values in zip(*(found[name].tolist() for name in RESULT_COLUMNS), strict=True):
            yield result_of(values, pass_if)

    @property
    def _table(self) -> str:
        if self._path is None:
            columns = {"file_row_number": "BIGINT", **columns_of(ResultRow)}
            nulls = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in columns.items())
            return f"(SELECT {nulls} WHERE false)"
        return f"read_parquet({quoted(path_pattern(self._path))}, file_row_number = true)"


def add_results(
    comparer: Comparer, base: ResultFile, now: ResultFile, profiles: tuple[str, str], pass_if: float | None
) -> None:
    """Add the results of two profiles, now and before, to a comparison, which decides by `pass_if` what passed."""
    before, after = base.columns(profiles[1]), now.columns(profiles[0])
    place = _places(before.pair, after.pair)
    alike = _alike(before, after, place)
    is_listed = numpy.ones(len(before.row), bool)
    is_listed[place[alike]] = False
    for result in base.results(before.row[is_listed], pass_if):
        comparer.add_before(result)
    groups = numpy.unique(after.group[alike])
    members = numpy.searchsorted(groups, after.group[alike])
    # The first case of each group stands for all.
    first = numpy.empty(len(groups), numpy.int64)
    first[members[::-1]] = after.row[alike][::-1]
    numbers = dict(zip(first.tolist(), numpy.bincount(members).tolist(), strict=True))
    is_listed = ~alike
    is_listed[numpy.searchsorted(after.row, first)] = True
    rows = after.row[is_listed]
    for row, result in zip(rows.tolist(), now.results(rows, pass_if), strict=True):
        if row in numbers:
            comparer.add_alike(result, numbers[row])
        else:
            comparer.add(result)
    _add_usage(comparer, before, after, place, alike)


def _places(before: _Numbers, now: _Numbers) -> _Numbers:
    """Return where each case of now was before; -1 for a new one."""
    if numpy.array_equal(before, now):
        return numpy.arange(len(now))
    if not len(before):
        return numpy.full(len(now), -1)
    order = numpy.argsort(before)
    found = numpy.minimum(numpy.searchsorted(before, now, sorter=order), len(before) - 1)
    places: _Numbers = numpy.where(before[order[found]] == now, order[found], -1)
    return places


def _alike(before: _Columns, now: _Columns, place: _Numbers) -> _Mask:
    """Tell which cases of now are the same in all that can make a change: content, result, tags, no lower score.

    What is not alike need not have changed: the comparer decides that, case by case.
    """
    if not len(before.row):
        return numpy.zeros(len(now.row), bool)
    is_same = (before.content[place] == now.content) & (before.group[place] == now.group) & (now.group != 0)
    alike: _Mask = is_same & (place >= 0) & ~(now.score < before.score[place])
    return alike


def _add_usage(comparer: Comparer, before: _Columns, now: _Columns, place: _Numbers, alike: _Mask) -> None:
    at = place[alike]
    latencies, tokens = (before.latency_s[at], now.latency_s[alike]), (before.tokens[at], now.tokens[alike])
    has_both = ~(numpy.isnan(latencies[0]) | numpy.isnan(latencies[1]))
    has_any = (tokens[0] != 0) | (tokens[1] != 0)
    comparer.add_usage(
        (latencies[0][has_both].tobytes(), latencies[1][has_both].tobytes()),
        (tokens[0][has_any].tobytes(), tokens[1][has_any].tobytes()),
        (float(before.cost[at].sum()), float(now.cost[alike].sum())),
    )
