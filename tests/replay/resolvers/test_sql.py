"""`sql://`: data sources by the name that the settings give them, of SQLite and of DuckDB."""

from __future__ import annotations

import hashlib
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import duckdb
import msgspec
import pytest

from evalloom.replay.resolvers import Reach, Source, resolve

pytestmark = pytest.mark.req("REPLAY-5")


@pytest.fixture
def reach(tmp_path: Path) -> Reach:
    """A folder without databases, and two sources that lie beside it."""
    with closing(sqlite3.connect(tmp_path / "crm.db")) as database:
        database.execute("CREATE TABLE t AS SELECT 'from sqlite' AS x")
        database.commit()
    with duckdb.connect(str(tmp_path / "facts.duckdb")) as facts:
        facts.execute("CREATE TABLE t AS SELECT 'from duckdb' AS x, 2.0::DOUBLE AS n, DATE '2024-05-06' AS d")
        facts.execute("CREATE SEQUENCE s")
    (tmp_path / "data").mkdir()
    (tmp_path / "secret.csv").write_text("a,b\n")
    sources = {"crm": Source("sqlite", tmp_path / "crm.db"), "facts": Source("duckdb", tmp_path / "facts.duckdb")}
    return Reach(tmp_path / "data", sources=sources)


def test_a_source_is_found_by_its_name(reach: Reach) -> None:
    assert resolve("sql://crm", "SELECT x FROM t", reach).value == "from sqlite"
    assert resolve("sql://facts", "SELECT x FROM t", reach).value == "from duckdb"


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("SELECT n FROM t", "2.0"),
        ("SELECT d FROM t", "2024-05-06"),
        ("SELECT NULL", ""),
        ("SELECT true", "true"),
        ("SELECT 1.10::DECIMAL(5, 2)", "1.10"),
        ("SELECT {'b': [1, 2], 'a': d} FROM t", '{"a":"2024-05-06","b":[1,2]}'),
        ("SELECT encode('你')", "你"),
        ("WITH x AS (SELECT 7 AS n) SELECT n FROM x -- the end", "7"),
    ],
)
def test_cells_of_duckdb_are_texts(sql: str, value: str, reach: Reach) -> None:
    found = resolve("sql://facts", sql, reach)
    assert (found.value, found.error_code) == (value, "")


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("INSERT INTO t VALUES ('x', 1, NULL)", "readonly_required"),
        ("WITH y AS (SELECT 1) INSERT INTO t SELECT 'x', 1, NULL", "readonly_required"),
        ("WITH y AS (INSERT INTO t VALUES ('x', 1, NULL) RETURNING x) SELECT * FROM y", "readonly_required"),
        ("SELECT 1; DROP TABLE t", "readonly_required"),
        ("SELECT nextval('s')", "readonly_required"),
        ("COPY t TO 'x.csv'", "readonly_required"),
        ("ATTACH 'x.duckdb'", "readonly_required"),
        ("PRAGMA database_list", "readonly_required"),
        ("SET memory_limit = '64GB'", "readonly_required"),
        ("INSTALL httpfs", "readonly_required"),
        ("FROM t", "readonly_required"),
        ("SELECT * FROM read_csv('{folder}/secret.csv')", "query_failed"),
        ("SELECT content FROM read_text('{folder}/secret.csv')", "query_failed"),
        ("SELECT * FROM '{folder}/secret.csv'", "query_failed"),
        ("SELECT * FROM glob('{folder}/*')", "query_failed"),
        ("SELECT * FROM reach", "query_failed"),
        ("SELECT list(i) FROM range(1000000000) r(i)", "query_failed"),
        ("SELECT y FROM t", "query_failed"),
        ("SELECT ((", "query_failed"),
        ("SELECT unhex('ff')", "query_failed"),
        ("SELECT x FROM t WHERE false", "no_rows"),
        (" ", "query_failed"),
    ],
)
def test_duckdb_does_nothing_but_read_that_file(sql: str, code: str, reach: Reach) -> None:
    folder = reach.folder.parent
    before = _digests(folder)
    found = resolve("sql://facts", sql.replace("{folder}", folder.as_posix()), reach)
    assert (found.error_code, found.value) == (code, "")
    assert _digests(folder) == before


def test_a_time_with_a_zone_has_to_be_a_text(reach: Reach) -> None:
    found = resolve("sql://facts", "SELECT TIMESTAMPTZ '2024-05-06 07:00:00+00'", reach)
    # With pytz installed, which is none of our packages, the driver gives the time itself.
    assert "CAST(… AS VARCHAR)" in found.message or found.value.startswith("2024-05-06")


def test_an_endless_query_to_duckdb_ends_in_time(reach: Reach) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    found = resolve("sql://facts", endless, msgspec.structs.replace(reach, timeout_s=0.2))
    assert found.error_code == "timeout" and found.duration_ms < 5000


def test_threads_may_ask_one_duckdb_at_once(reach: Reach) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: resolve("sql://facts", f"SELECT {number} FROM t", reach), range(20)))
    assert [one.value for one in found] == [str(number) for number in range(20)]


def test_a_source_that_is_unknown_or_not_there_is_said_so(reach: Reach) -> None:
    assert resolve("sql://crn", "SELECT 1", reach).message.endswith(
        "there is no data source 'crn'. Did you mean 'crm'?"
    )
    unnamed = resolve("sql://", "SELECT 1", Reach(reach.folder))
    assert unnamed.error_code == "connect_failed" and "'resolvers: sources:'" in unnamed.message
    for source in reach.sources.values():
        source.path.unlink()
    for name in reach.sources:
        found = resolve(f"sql://{name}", "SELECT 1", reach)
        assert found.error_code == "connect_failed" and "there is no file" in found.message


def test_a_file_of_another_kind_is_said_so(reach: Reach) -> None:
    swapped = {
        "crm": Source("duckdb", reach.sources["crm"].path),
        "facts": Source("sqlite", reach.sources["facts"].path),
    }
    for name in swapped:
        found = resolve(f"sql://{name}", "SELECT 1 FROM t", msgspec.structs.replace(reach, sources=swapped))
        assert found.error_code == "connect_failed"


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()}
