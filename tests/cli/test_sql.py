"""`evalloom sql` reads the views of batches, and nothing else."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

pytestmark = pytest.mark.req("WORK-13")
Call = Callable[..., Any]
CASES = """\
{"id": "fr", "q": "Paris", "expected_output": "Paris"}
{"id": "it", "q": "Milan", "expected_output": "Rome"}
"""


@pytest.fixture
def call(in_process: Call) -> Call:
    """In a folder with one batch of two runs."""
    Path("cases.jsonl").write_text(CASES, encoding="utf-8")
    Path("prompt.md").write_text("{{q}}", encoding="utf-8")
    in_process("run", "cases.jsonl", "--target", "prompt:prompt.md", "--profile", "echo")
    return in_process


def test_a_table_fits_the_terminal(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = call("sql", "select case_id, status, repeat('x', 500) as long, number from runs order by number")
    assert done.code == 0
    assert done.out.splitlines()[0].split() == ["case_id", "status", "long", "number"]
    assert re.fullmatch(r"fr +passed +x{30,}…  +1", done.out.splitlines()[1])
    assert max(map(len, done.out.splitlines())) <= 80
    record = call("sql", "select * from runs limit 1", "latest").out.splitlines()
    assert record[0] == "row 1" and max(map(len, record)) <= 80
    assert any(line.split() == ["passed", "true"] for line in record)


def test_rows_as_csv_json_and_parquet(call: Call) -> None:
    query = "select case_id, passed, tags, output, started_at from runs order by number"
    rows = list(csv.reader(io.StringIO(call("sql", query, "--csv").out)))
    assert rows[0] == ["case_id", "passed", "tags", "output", "started_at"]
    assert [row[:4] for row in rows[1:]] == [["fr", "true", "[]", '"Paris"'], ["it", "false", "[]", '"Milan"']]
    lines = [json.loads(line) for line in call("sql", query, "--json", "--limit", "1").out.splitlines()]
    assert [(line["case_id"], line["passed"], line["output"]) for line in lines] == [("fr", True, "Paris")]
    assert call("sql", query, "--parquet", "out.parquet").out == "wrote 2 rows to out.parquet\n"
    assert duckdb.execute("select case_id from 'out.parquet'").fetchall() == [("fr",), ("it",)]
    assert call("sql", "select 1 a, 2 a", "--json").out == '{"a":1,"a_2":2}\n'
    both = call("sql", query, "--csv", "--json")
    assert both.code == 2 and "expected one of them" in both.err
    assert not [path for path in os.listdir() if path.startswith(".evalloom.")]


def test_a_query_from_a_file_or_standard_input(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("q.sql").write_text("-- all\nselect count(*) as n\nfrom runs;\n", encoding="utf-8")
    assert call("sql", "-f", "q.sql", "latest", "--csv").out == "n\n2\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("select count(*) as n from verdicts"))
    assert call("sql", "-", "--csv").out == "n\n2\n"
    Path("q.sql").write_text("select 1,\n  nmber from runs", encoding="utf-8")
    wrong = call("sql", "-f", "q.sql")
    assert wrong.code == 2 and "q.sql:2:3: there is no column 'nmber'. Did you mean number" in wrong.err
    missing = call("sql", "-f", "none.sql")
    assert missing.code == 2 and "[query_unreadable]" in missing.err


def test_without_a_query_the_views_are_listed(call: Call) -> None:
    out = call("sql").out
    assert [line for line in out.splitlines() if line and line[0] != " " and not line.startswith("Example")] == [
        *("batches", "cases", "runs", "verdicts", "steps", "llm_calls", "observer")
    ]
    assert '"check" VARCHAR' in out and "passed BOOLEAN" in out


@pytest.mark.parametrize(
    ("query", "place", "message"),
    [
        ("select pased from runs", "1:8", "there is no column 'pased'. Did you mean passed"),
        ("select 1 from rns", "1:15", "there is no view 'rns'. Did you mean runs?"),
        ("select 1 from nothing_like_it", "1:15", "The views are batches, cases, runs"),
        ("select '中文', pased from runs", "1:14", "there is no column 'pased'"),
        ("select check from runs", "1:8", 'written "check"'),
        ("select\n  selec 1", "2:9", "syntax error"),
    ],
)
def test_an_error_has_its_position_and_the_candidates(call: Call, query: str, place: str, message: str) -> None:
    done = call("sql", query)
    assert done.code == 2 and f"query:{place}: " in done.err and message in done.err and "[bad_sql]" in done.err
    shown, caret = done.err.splitlines()[-2:]
    line, column = map(int, place.split(":"))
    assert shown == f"  {query.splitlines()[line - 1]}" and caret.strip() == "^"
    # A Chinese character takes two cells.
    assert len(caret) - 3 == column - 1 + sum(ord(char) > 0x2E80 for char in shown[: column + 1])


REFUSED = [
    ("copy runs to 'x.csv'", "--csv, --json or --parquet"),
    ("select 1; copy runs to 'x.csv'", "--csv, --json or --parquet"),
    ("create table t as select 1", "WITH name AS"),
    ("attach 'x.db'", "name further batches"),
    ("install httpfs", "INSTALL is refused"),
    ("load json", "LOAD is refused"),
    ("set memory_limit = '9GB'", "SET is refused"),
    ("pragma enable_profiling", "PRAGMA is refused"),
    ("call pragma_version()", "CALL is refused"),
    ("drop view runs", "DROP is refused"),
    ("insert into batches select * from batches", "INSERT is refused"),
    ("export database 'x'", "EXPORT is refused"),
    ("select 1; select 2", "got a second one"),
    ("explain analyze select 1", "EXPLAIN is refused"),
    ("begin", "BEGIN is refused"),
    ("select * from read_csv('secret.txt')", "reads no files"),
    ("select * from read_text('secret.txt')", "reads no files"),
    ("select * from read_json('secret.txt')", "reads no files"),
    ("select * from 'secret.txt'", "reads no files"),
    ("select * from glob('*')", "reads no files"),
    ("select * from parquet_metadata('other.parquet')", "reads no files"),
    ("select * from query('select * from read_text(''secret.txt'')')", "reads no files"),
    ("select * from 'https://example.com/x.parquet'", "reads no files"),
]


@pytest.mark.parametrize(("query", "message"), REFUSED, ids=[query[:30] for query, _ in REFUSED])
def test_what_does_not_only_read_the_views_is_refused(call: Call, query: str, message: str) -> None:
    Path("secret.txt").write_text("the secret")
    before = sorted(os.listdir())
    done = call("sql", query)
    assert done.code == 2 and message in done.err and "[query_refused]" in done.err
    assert "the secret" not in done.out + done.err and sorted(os.listdir()) == before


@pytest.mark.req("WORK-13")
@pytest.mark.parametrize("query", ["select TIME, [TIME] as more, 1 as t", "select TIME as t, '; --' as x; -- 退"])
def test_times_with_a_zone_are_shown_in_utc(call: Call, query: str) -> None:
    done = call("sql", query.replace("TIME", "'2026-01-01 08:00+08'::timestamptz"), "--csv")
    assert done.code == 0 and "2026-01-01 00:00:00" in done.out, done.err


def test_a_change_inside_a_select_is_refused(call: Call) -> None:
    done = call("sql", "with x as (insert into batches select * from batches returning *) select * from x")
    # Before DuckDB 2.0, it is a syntax error.
    assert done.code == 2 and ("a query only reads" in done.err or "CTE needs a SELECT" in done.err)


def test_no_other_file_of_the_copy_can_be_read(call: Call) -> None:
    call("sql", "select 1 from runs")
    [copy] = Path(".evalloom/batches").glob("*/copy")
    duckdb.execute(f"copy (select 'the secret' as text) to '{copy}/other.parquet'")
    for path in ("other.parquet", "*.parquet", "index.json", "../runs.jsonl"):
        for reader in ("read_parquet", "read_text", "read_blob", "read_csv"):
            done = call("sql", f"select * from {reader}('{copy.absolute()}/{path}')")
            assert done.code == 2 and "the secret" not in done.out + done.err, (reader, path)


def test_python_variables_and_the_environment_are_not_read(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "the secret")
    for query in ("select * from VIEWS", "select * from views", "select getenv('SOME_KEY')"):
        done = call("sql", query)
        assert done.code == 2 and "the secret" not in done.out + done.err


def test_a_query_that_takes_too_long_is_stopped(call: Call) -> None:
    endless = "select count(*) from range(100000000) a, range(1000000) b where a.range != b.range"
    done = call("sql", endless, "--timeout", "0.3")
    assert done.code == 3 and "stopped after 0.3 s." in done.err and "[query_timeout]" in done.err


def test_batches_are_named_as_elsewhere(call: Call) -> None:
    [path] = Path(".evalloom/batches").iterdir()
    for name in ("latest", path.name, path.name[:18], str(path), ".", ".evalloom/batches"):
        assert call("sql", "select count(*) as n from batches", name, "--csv").out == "n\n1\n", name
    assert call("sql", "select count(*) as n from batches", "latest", path.name, "--csv").out == "n\n1\n"
    unknown = call("sql", "select 1", "nothing")
    assert unknown.code == 2 and "[no_batch]" in unknown.err
    swapped = call("sql", "latest", "select 1")
    assert swapped.code == 2 and "expected the query before the batches, got 'latest' first" in swapped.err
    wrong = call("sql", "select 1", "cases.jsonl")
    assert wrong.code == 2 and "expected a batch, a folder of batches, or HOP result files" in wrong.err


def test_without_a_batch_it_says_what_makes_one(in_process: Call) -> None:
    done = in_process("sql", "select 1")
    assert done.code == 2 and "'evalloom run' makes one" in done.err
