"""Compares profiles on the same cases (HOP-20)."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalloom.analysis.compare_figures import judge
from evalloom.analysis.statistics import holm, mcnemar_exact, paired_mean_interval, paired_test
from evalloom.batchlog.parquet import quoted
from evalloom.core.model import Record
from evalloom.hop.results.index import CopyIndex
from evalloom.hop.results.query import SHOWN, as_record, checked_page
from evalloom.hop.results.stats import CASE_COUNTS, CASE_SHARES
from evalloom.hop.results.table import Position, Table, read_details

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SIDE = tuple(name.strip() for name in SHOWN.split(","))
_OF_CASE = ("id", "tag", "difficulty", "input", "expected")
_BOTH = "FROM sides a JOIN sides b USING (case_key) WHERE a.side = 'a' AND b.side = 'b'"


def compare(
    connection: DuckDBPyConnection, folder: Path, table: Table, profiles: tuple[str, str], page: tuple[int, int]
) -> Record:
    """Compare the cases that ran under both profiles; `flipped` and `rows` hold at most one page.

    The results of a case under one profile are averaged first, so that repeats and copies count as one case.
    """
    page = checked_page(page)
    repeated = _make_sides(connection, folder, table, profiles)
    pairs = _Pairs(connection.execute(_SHARES).fetchall())
    only = dict(connection.execute(_ALONE).fetchall())
    reader = _PairReader(connection, folder, table.index, page)
    return {
        "profile_a": profiles[0],
        "profile_b": profiles[1],
        "cases": pairs.cases,
        "only_a": only.get("a", 0),
        "only_b": only.get("b", 0),
        "repeated": repeated,
        "judged": pairs.judged,
        "a": pairs.side(0),
        "b": pairs.side(1),
        **pairs.difference(),
        "flipped": reader.pairs("AND a.passed <> b.passed"),
        "rows": reader.pairs(""),
    }


def correct_for_number(comparisons: Sequence[Record]) -> list[Record]:
    """Add Holm's p-value to comparisons that are made at once, and conclude from that."""
    judged = [at for at, comparison in enumerate(comparisons) if comparison["p_value"] is not None]
    adjusted = dict(zip(judged, holm([comparisons[at]["p_value"] for at in judged]), strict=True))
    corrected = []
    for at, comparison in enumerate(comparisons):
        p_value = adjusted.get(at)
        change: Record = {"p_adjusted": p_value}
        if p_value is not None:
            low, high = comparison["interval"]
            change["conclusion"] = judge(low, high, p_value)
        corrected.append({**comparison, **change})
    return corrected


_COLUMNS = ("completed", "correct", "passed")
_SHARES = f"""SELECT {", ".join(f"{side}.{name}" for side in "ab" for name in _COLUMNS)}, count(*),
    bool_and(a.counted = b.counted) {_BOTH} GROUP BY ALL ORDER BY ALL"""
_ALONE = """SELECT side, count(*) FROM sides s
    WHERE NOT EXISTS (FROM sides t WHERE t.case_key = s.case_key AND t.side <> s.side) GROUP BY side"""


class _Pairs:
    """The shares of the cases that ran under both profiles: three of each side, and the number of such cases."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows = [(row[:3], row[3:6], row[6]) for row in rows]
        self._is_balanced = all(row[7] for row in rows)
        # Without an expectation on both sides there is nothing to compare.
        self._judged = [(a, b, n) for a, b, n in self._rows if a[2] is not None and b[2] is not None]
        self.cases = sum(n for *_, n in self._rows)
        self.judged = sum(n for *_, n in self._judged)

    def side(self, number: int) -> Record:
        """Return the rates of one side, over the cases that both have."""
        passed = _mean([(row[number][2], row[2]) for row in self._judged])
        return {
            "completion_rate": _mean([(row[number][0], row[2]) for row in self._rows]),
            "correctness": _mean([(row[number][1], row[2]) for row in self._judged]),
            "pass_rate": passed,
            # The name of version 0.2.
            "correct_rate": passed,
        }

    def difference(self) -> Record:
        """Return the mean difference of the cases with its interval, and the test over the cases that moved."""
        changes = [(b[2] - a[2], n) for a, b, n in self._judged]
        gained, lost = (sum(n for change, n in changes if change * sign > 0) for sign in (1, -1))
        moved: Record = {"improved": gained, "worsened": lost}
        if not self.judged:
            return {"difference": None, "interval": None, "p_value": None, "conclusion": None, **moved}
        total, squares = fsum(change * n for change, n in changes), fsum(change**2 * n for change, n in changes)
        interval = list(paired_mean_interval(total, squares, self.judged))
        # A case with more results on one side moves more often to the other, also when nothing has changed.
        p_value = mcnemar_exact(gained, lost) if self._is_balanced else paired_test(total, squares, self.judged)
        return {
            "difference": total / self.judged,
            "interval": interval,
            "p_value": p_value,
            "conclusion": judge(interval[0], interval[1], p_value),
            **moved,
        }


def _mean(shares: list[tuple[float | None, int]]) -> float | None:
    known = [(share, cases) for share, cases in shares if share is not None]
    return fsum(share * cases for share, cases in known) / sum(cases for _, cases in known) if known else None


def _make_sides(connection: DuckDBPyConnection, folder: Path, table: Table, profiles: tuple[str, str]) -> int:
    """Fill the table `sides` with one row per case and profile; return the number of results beyond the first of each.

    A row has the shares of all results of the case, and the columns of the result in the newest file.
    """
    modified: dict[str, int] = {}
    for source in table.index.sources():
        try:
            modified[source.name] = (folder / source.name).stat().st_mtime_ns
        except OSError:
            # The file was deleted after the index was read.
            modified[source.name] = 0
    files = ", ".join(quoted(name) for name in sorted(modified, key=lambda name: (modified[name], name)))
    sides = []
    parameters: list[str] = []
    for side, profile in zip("ab", profiles, strict=True):
        where, bound = table.where_profile(profile)
        sides.append(f"SELECT '{side}' AS side, * FROM ({table.query}) WHERE {where}")
        parameters += bound
    newest = ", ".join(f"{name} := {name}" for name in _SIDE)
    connection.execute(
        f"""CREATE TEMP TABLE sides AS SELECT side, case_key, runs, counted, newest, {CASE_SHARES} FROM (
            SELECT side, case_key, {CASE_COUNTS},
                arg_max(struct_pack({newest}), row(list_position([{files}], file), row)) AS newest
            FROM ({" UNION ALL ".join(sides)}) GROUP BY side, case_key)""",
        parameters,
    )
    [(repeated,)] = connection.execute("SELECT coalesce(sum(runs - 1), 0) FROM sides").fetchall()
    return int(repeated)


class _PairReader:
    """Reads pairs of results, in the order of profile a's files."""

    def __init__(self, connection: DuckDBPyConnection, folder: Path, index: CopyIndex, page: tuple[int, int]) -> None:
        self._connection = connection
        self._folder = folder
        self._index = index
        self._page = page

    def pairs(self, condition: str) -> list[Record]:
        offset, limit = self._page
        names = ("counted", "passed", *(f"newest.{name}" for name in _SIDE))
        columns = ", ".join(f"{side}.{name}" for side in "ab" for name in names)
        order = "a.newest.file, a.newest.part, a.newest.row"
        rows = self._connection.execute(
            f"SELECT {columns} {_BOTH} {condition} ORDER BY {order} LIMIT {limit} OFFSET {offset}"
        ).fetchall()
        halves = [(row[: len(names)], row[len(names) :]) for row in rows]
        positions = [Position(*half[2:5]) for pair in halves for half in pair]
        details = read_details(self._folder, self._index, positions)
        return [_pair(*((half[:2], as_record(half[2:], details)) for half in pair)) for pair in halves]


def _pair(a: tuple[Any, Record], b: tuple[Any, Record]) -> Record:
    def side(counts: tuple[int, float | None], newest: Record) -> dict[str, Any]:
        runs, share = counts
        return {**{name: newest[name] for name in newest if name not in _OF_CASE}, "runs": runs, "share": share}

    before, after = a[0][1], b[0][1]
    is_same = before is None or after is None or before == after
    change = "same" if is_same else "better" if after > before else "worse"
    return {**{name: a[1][name] for name in _OF_CASE}, "a": side(*a), "b": side(*b), "change": change}
