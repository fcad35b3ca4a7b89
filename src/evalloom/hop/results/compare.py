"""Compares two profiles on the same cases (HOP-20)."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalloom.analysis.statistics import mcnemar, paired_interval
from evalloom.core.model import Record
from evalloom.hop.results.copy import Copy
from evalloom.hop.results.index import CopyIndex, ParquetPart
from evalloom.hop.results.query import SHOWN, as_record, checked_page
from evalloom.hop.results.rows import case_key, path_pattern, quoted
from evalloom.hop.results.table import Position, Table, read_details

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SIDE = tuple(name.strip() for name in SHOWN.split(","))
_OF_CASE = ("id", "tag", "difficulty", "input", "expected")
_BOTH = "FROM sides a JOIN sides b USING (case_key) WHERE a.side = 'a' AND b.side = 'b'"


def compare(
    connection: DuckDBPyConnection, copy: Copy, table: Table, profiles: tuple[str, str], page: tuple[int, int]
) -> Record:
    """Compare the cases that ran under both profiles; `flipped` and `rows` hold at most one page."""
    page = checked_page(page)
    repeated = _make_sides(connection, copy, table, profiles)
    counts = connection.execute(_COUNTING).fetchall()[0]
    cases, judged, better, worse, *per_side = (int(count or 0) for count in counts)
    only = dict(connection.execute(_ALONE).fetchall())
    reader = _PairReader(connection, copy.folder, table.index, page)
    return {
        "profile_a": profiles[0],
        "profile_b": profiles[1],
        "cases": cases,
        "only_a": only.get("a", 0),
        "only_b": only.get("b", 0),
        "repeated": repeated,
        "judged": judged,
        "a": _side_figures(cases, judged, *per_side[:3]),
        "b": _side_figures(cases, judged, *per_side[3:]),
        "difference": (better - worse) / judged if judged else None,
        "interval": list(paired_interval(better, worse, judged)) if judged else None,
        "p_value": mcnemar(better, worse) if judged else None,
        "improved": better,
        "worsened": worse,
        "flipped": reader.pairs("AND a.good <> b.good"),
        "rows": reader.pairs(""),
    }


_COUNTING = f"""SELECT count(*), count(*) FILTER (a.good IS NOT NULL), count(*) FILTER (b.good AND NOT a.good),
    count(*) FILTER (a.good AND NOT b.good),
    count(*) FILTER (a.completed), count(*) FILTER (a.completed AND a.good IS NOT NULL), count(*) FILTER (a.good),
    count(*) FILTER (b.completed), count(*) FILTER (b.completed AND b.good IS NOT NULL), count(*) FILTER (b.good)
    {_BOTH}"""
_ALONE = """SELECT side, count(*) FROM sides s
    WHERE NOT EXISTS (FROM sides t WHERE t.case_key = s.case_key AND t.side <> s.side) GROUP BY side"""


def _side_figures(cases: int, judged: int, completed: int, completed_judged: int, good: int) -> Record:
    return {
        "completion_rate": completed / cases if cases else None,
        "correctness": good / completed_judged if completed_judged else None,
        "correct_rate": good / judged if judged else None,
    }


def _make_sides(connection: DuckDBPyConnection, copy: Copy, table: Table, profiles: tuple[str, str]) -> int:
    """Fill the table `sides` with one result per case and profile; return the number of superseded results.

    The result in the newest file counts. `good` is whether a result is correct; errors are not.
    """
    keys = " UNION ALL ".join(
        f"SELECT {number} AS part, file_row_number AS row, case_key FROM read_parquet({path})"
        for number, path in enumerate(_keys(connection, copy, part) for part in table.index.parts)
    )
    modified: dict[str, int] = {}
    for source in table.index.sources():
        try:
            modified[source.name] = (copy.folder / source.name).stat().st_mtime_ns
        except OSError:
            # The file was deleted after the index was read.
            modified[source.name] = 0
    newest_last = sorted(modified, key=lambda name: (modified[name], name))
    sides = []
    parameters: list[str] = []
    for side, profile in zip("ab", profiles, strict=True):
        where, bound = table.where_profile(profile)
        sides.append(f"SELECT '{side}' AS side, * FROM results WHERE {where}")
        parameters += bound
    files = ", ".join(quoted(name) for name in newest_last)
    connection.execute(
        f"""CREATE TEMP TABLE sides AS
        WITH results AS (FROM ({table.query}) LEFT JOIN ({keys}) USING (part, row)),
            both_sides AS ({" UNION ALL ".join(sides)})
        SELECT side, case_key, {", ".join(_SIDE)},
            CASE WHEN correct IS NOT NULL THEN correct AND completed END AS good,
            row_number() OVER (PARTITION BY side, case_key
                ORDER BY list_position([{files}], file) DESC, row DESC) AS age
        FROM both_sides""",
        parameters,
    )
    [(repeated,)] = connection.execute("SELECT count(*) FROM sides WHERE age > 1").fetchall()
    connection.execute("DELETE FROM sides WHERE age > 1")
    return int(repeated)


def _keys(connection: DuckDBPyConnection, copy: Copy, part: ParquetPart) -> str:
    """Return the Parquet file with the case key of each row of a part; built on first use."""
    path = copy.place / part.name.replace(".parquet", ".keys.parquet")
    if not path.is_file():
        plain = copy.place / f"{path.name}.{secrets.token_hex(4)}.tmp"
        try:
            with plain.open("wb") as stream:
                for source in part.sources:
                    for _, record in part.records(copy.folder, source):
                        key = case_key(record) if record is not None else ""
                        stream.write(b'{"case_key":"%b"}\n' % key.encode())
            columns = "format = 'newline_delimited', columns = {case_key: 'VARCHAR'}"
            query = f"SELECT nullif(case_key, '') AS case_key FROM read_json({quoted(path_pattern(plain))}, {columns})"
            copy.write_parquet(connection, query, path.name)
        finally:
            plain.unlink(missing_ok=True)
    return quoted(path_pattern(path))


class _PairReader:
    """Reads pairs of results, in the order of profile a's files."""

    def __init__(self, connection: DuckDBPyConnection, folder: Path, index: CopyIndex, page: tuple[int, int]) -> None:
        self._connection = connection
        self._folder = folder
        self._index = index
        self._page = page

    def pairs(self, condition: str) -> list[Record]:
        offset, limit = self._page
        columns = ", ".join(f"{side}.{name}" for side in "ab" for name in _SIDE)
        rows = self._connection.execute(
            f"SELECT {columns} {_BOTH} {condition} ORDER BY a.file, a.part, a.row LIMIT {limit} OFFSET {offset}"
        ).fetchall()
        halves = [(row[: len(_SIDE)], row[len(_SIDE) :]) for row in rows]
        details = read_details(self._folder, self._index, [Position(*half[:3]) for pair in halves for half in pair])
        return [_pair(as_record(a, details), as_record(b, details)) for a, b in halves]


def _pair(a: Record, b: Record) -> Record:
    def side(row: Record) -> dict[str, Any]:
        return {name: value for name, value in row.items() if name not in _OF_CASE}

    good = [bool(row["correct"]) and row["status"] == "OK" for row in (a, b)]
    change = "same" if good[0] == good[1] else "better" if good[1] else "worse"
    return {**{name: a[name] for name in _OF_CASE}, "a": side(a), "b": side(b), "change": change}
