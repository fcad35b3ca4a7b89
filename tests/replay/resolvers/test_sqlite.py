"""`sqlite://`: the first cell of a query, from real files that are never written, whatever is asked."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from evalloom.replay.resolvers import MOST_BYTES, Reach, Resolution, resolve

pytestmark = pytest.mark.req("REPLAY-5")

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


@pytest.fixture
def reach(tmp_path: Path) -> Reach:
    with closing(sqlite3.connect(tmp_path / "crm.db")) as database:
        database.execute("CREATE TABLE customers (id INTEGER, name TEXT, rate REAL, photo BLOB)")
        database.execute("INSERT INTO customers VALUES (1, '王小明', 1.0, x'e4bda0'), (2, NULL, 2.5, x'ff')")
        database.execute("CREATE VIRTUAL TABLE notes USING fts5(body)")
        database.execute("INSERT INTO notes VALUES ('refunds take ten days')")
        database.commit()
    return Reach(tmp_path)


def ask(sql: str, reach: Reach, resolver: str = "sqlite://crm.db") -> Resolution:
    return resolve(resolver, sql, reach)


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("SELECT name, id FROM customers ORDER BY id", "王小明"),
        ("select id from customers", "1"),
        ("SELECT rate FROM customers", "1.0"),
        ("SELECT name FROM customers WHERE id = 2", ""),
        ("SELECT photo FROM customers WHERE id = 1", "你"),
        ("-- who?\n/* and ; why */ WITH x AS (SELECT 7 AS n) SELECT n FROM x;", "7"),
        ("SELECT body FROM notes WHERE notes MATCH 'refunds'", "refunds take ten days"),
        ("SELECT value FROM json_each('[3,4]')", "3"),
        ("SELECT count(*) FROM sqlite_master WHERE name = 'customers'", "1"),
        ("SELECT CAST(x'ff41' AS TEXT)", "\ufffdA"),
    ],
)
def test_the_first_cell_is_the_value(sql: str, value: str, reach: Reach) -> None:
    found = ask(sql, reach)
    assert (found.value, found.error_code, found.message) == (value, "", "")


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO customers VALUES (3, 'x', 1, NULL)",
        "WITH x AS (SELECT 1) INSERT INTO customers SELECT 3, 'x', 1, NULL",
        "WITH x AS (SELECT 1) UPDATE customers SET name = 'x'",
        "WITH x AS (SELECT 1) UPDATE sqlite_master SET type = 'x'",
        "WITH x AS (SELECT 1) DELETE FROM customers",
        "SELECT 1; DELETE FROM customers",
        "SELECT 1; SELECT 2",
        "/* SELECT */ DROP TABLE customers",
        "-- SELECT\nDROP TABLE customers",
        "/* SELECT 1",
        "ATTACH 'other.db' AS other",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA query_only = OFF",
        "VACUUM INTO 'copy.db'",
        "EXPLAIN SELECT 1",
        "VALUES (1)",
        "BEGIN EXCLUSIVE",
        "SELECT load_extension('evil.so')",
        "SELECT fts3_tokenizer('simple')",
        "SELECT name FROM pragma_table_info('customers')",
        "SELECTED",
    ],
)
def test_everything_but_one_query_is_refused_and_changes_nothing(sql: str, reach: Reach) -> None:
    before = _digests(reach.folder)
    found = ask(sql, reach)
    assert (found.error_code, found.value) == ("readonly_required", "")
    assert "only SELECT or WITH" in found.message
    assert _digests(reach.folder) == before


@pytest.mark.parametrize(
    ("sql", "code", "told"),
    [
        ("SELECT name FROM customers WHERE id = 9", "no_rows", "coalesce"),
        ("SELECT nme FROM customers", "query_failed", "no such column: nme"),
        ("SELECT photo FROM customers WHERE id = 2", "query_failed", "not UTF-8"),
        ("SELECT zeroblob(1000000000)", "query_failed", "too big"),
        ("SELECT 'a' LIKE hex(zeroblob(1000))", "query_failed", "pattern too complex"),
        ("SELECT 'a\0b'", "query_failed", "null character"),
        ("SELECT " + "(" * 5000, "query_failed", ""),
        ("SELECT 1 --" + "x" * 200_000, "query_failed", "at most 100,000"),
        ("", "query_failed", "no query"),
        (" \n", "query_failed", "no query"),
    ],
)
def test_what_goes_wrong_is_told(sql: str, code: str, told: str, reach: Reach) -> None:
    found = ask(sql, reach)
    assert found.error_code == code and told in found.message
    assert found.message.startswith("sqlite://crm.db: ")


def test_long_values_are_clamped(reach: Reach) -> None:
    found = ask("SELECT replace(hex(zeroblob(20000)), '00', '字')", reach)
    assert found.truncated and found.value == "字" * (MOST_BYTES // 3)


def test_an_endless_query_ends_in_time(reach: Reach) -> None:
    found = ask(ENDLESS, msgspec.structs.replace(reach, timeout_s=0.1))
    assert found.error_code == "timeout" and "0.1 s" in found.message
    assert 100 <= found.duration_ms < 5000


@pytest.mark.parametrize("name", ["other.db", "", "chats", "missing/crm.db", "x" * 3000, "a\0b"])
def test_a_database_that_is_not_there_is_not_made(name: str, reach: Reach) -> None:
    (reach.folder / "chats").mkdir()
    before = sorted(reach.folder.rglob("*"))
    assert ask("SELECT 1", reach, f"sqlite://{name}").error_code in ("connect_failed", "outside_folder")
    assert sorted(reach.folder.rglob("*")) == before


@pytest.mark.parametrize("name", ["../crm.db", "link.db", "/etc/passwd", "sub/../../data/../crm.db"])
def test_a_database_outside_the_folder_is_not_read(name: str, reach: Reach) -> None:
    inside = reach.folder / "data"
    inside.mkdir()
    (inside / "link.db").symlink_to(reach.folder / "crm.db")
    assert ask("SELECT 1", Reach(inside), f"sqlite://{name}").error_code == "outside_folder"


def test_what_is_no_database_is_said_so(reach: Reach) -> None:
    (reach.folder / "notes.db").write_text("These are only notes, and no database at all. " * 40)
    found = ask("SELECT 1 FROM sqlite_master", reach, "sqlite://notes.db")
    assert (found.error_code, found.message) == ("connect_failed", "sqlite://notes.db: is not a SQLite database")


def test_odd_names_open_the_file_of_that_name(reach: Reach) -> None:
    os.link(reach.folder / "crm.db", reach.folder / "a?mode=rwc#%41 字.db")
    assert ask("SELECT id FROM customers", reach, "sqlite://a?mode=rwc#%41 字.db").value == "1"


def test_a_locked_database_is_waited_for_until_the_deadline(reach: Reach) -> None:
    with closing(sqlite3.connect(reach.folder / "crm.db")) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        found = ask("SELECT id FROM customers", msgspec.structs.replace(reach, timeout_s=0.1))
    assert found.error_code == "timeout" and "locked" in found.message
    assert ask("SELECT id FROM customers", reach).value == "1"


WRITER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute("PRAGMA journal_mode = WAL")
database.execute("CREATE TABLE t (x)")
database.execute("INSERT INTO t VALUES ('written by another process')")
database.commit()
database.execute("INSERT INTO t VALUES ('not yet')")
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[None]:
    """Another process amid a change of a database in WAL mode."""
    command = [sys.executable, "-c", WRITER, str(tmp_path / "wal.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        yield
        process.kill()


@pytest.mark.usefixtures("writer")
def test_a_database_that_another_process_writes_is_read_and_left_alone(tmp_path: Path) -> None:
    before = _digests(tmp_path)
    found = ask("SELECT group_concat(x) FROM t", Reach(tmp_path), "sqlite://wal.db")
    assert found.value == "written by another process"
    after = _digests(tmp_path)
    # The third file holds who is reading, and nothing of the content.
    assert {name: after[name] for name in ("wal.db", "wal.db-wal")} == {
        name: before[name] for name in ("wal.db", "wal.db-wal")
    }


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()}
