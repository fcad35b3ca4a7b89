"""`evalloom compare` on RAG cases: a document breaks, and what is told about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.req("RAG-10")

Call = Callable[..., Any]
CONFIG = {"kind": "rag", "purpose": "retrieve", "k": 5, "mode": "bm25"}
SEARCH = '''
from pathlib import Path
from evalloom.core.model import Output

def find(query):
    """Every document that has the query in it."""
    found = [file.as_posix() for file in sorted(Path("docs").glob("*.md")) if query in file.read_text()]
    return Output(query, sources=found)
'''


@pytest.fixture
def call(in_process: Call) -> Call:
    """In a folder with two documents, cases of two buckets, and a target that searches."""
    Path("docs").mkdir()
    Path("docs/leave.md").write_text("annual leave, days off", encoding="utf-8")
    Path("docs/pay.md").write_text("salary, payday", encoding="utf-8")
    Path("search.py").write_text(SEARCH, encoding="utf-8")
    queries = {"annual leave": "official", "days off": "oral", "salary": "official", "payday": "oral"}
    rows = [
        {"id": f"q{number}", "query": query, "must_include": [query], "bucket": bucket, "pair_id": f"p{number // 2}"}
        | {"expected_sources": ["docs/leave.md" if number < 2 else "docs/pay.md"]}
        for number, (query, bucket) in enumerate(queries.items())
    ]
    Path("cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return in_process


def ran(call: Call, **more: Any) -> str:
    """A batch of the search, with the configuration and documents that `evalloom rag` would take down."""
    done = call("run", "cases.jsonl", "--dialect", "rag", "--target", "python:search.py:find", "--json")
    path = Path(".evalloom/batches", json.loads(done.out)["batch"], "batch.json")
    documents = {file.as_posix(): file.read_text() for file in Path("docs").glob("*")}
    facts = {**json.loads(path.read_bytes()), "config": {**CONFIG, **more}, "documents": documents}
    path.write_text(json.dumps(facts), encoding="utf-8")
    return path.parent.name


def test_a_document_that_breaks_is_a_regression_with_its_reason(call: Call) -> None:
    ran(call)
    assert call("baseline", "save", "good").code == 0
    Path("docs/leave.md").write_text("annual leave", encoding="utf-8")
    ran(call)
    done = call("compare", "latest", "--baseline", "good", "--strict")
    assert done.code == 1 and "the allowed drop is 0 points, and 1 bucket fell: oral" in done.out
    assert "p is corrected for 3 comparisons" in done.out and "Measures do not affect the conclusion." in done.out
    worse = done.out[done.out.index("Cases that got worse:") :].splitlines()
    assert worse[1] == "  major     q1: passed → failed" and "docs/leave.md" in worse[2]
    assert worse[3].strip() == "docs/leave.md changed since the baseline"
    assert "  documents: 1 changed (docs/leave.md)\n" in done.out


def test_a_baseline_shows_its_configuration(call: Call) -> None:
    ran(call)
    call("baseline", "save", "good")
    shown = call("baseline", "show", "good").out
    assert "config    kind rag, purpose retrieve, k 5, mode bm25\n" in shown and "searched  2 documents\n" in shown


def test_a_drop_may_be_allowed_to_a_bucket(call: Call) -> None:
    ran(call)
    call("baseline", "save", "good")
    Path("docs/leave.md").write_text("annual leave", encoding="utf-8")
    ran(call)

    def code(*drops: str) -> int:
        flags = [word for drop in drops for word in ("--allowed-drop", drop)]
        return int(call("compare", "latest", "--baseline", "good", *flags).code)

    assert [code("0.25"), code("0.25", "oral=0.4"), code("0.25", "oral=0.5"), code("0.2", "oral=1")] == [1, 1, 0, 1]
    told = call("compare", "latest", "--baseline", "good", "--allowed-drop", "oral=0.4").out
    assert "1 bucket fell: oral (allowed 40 points)" in told


def test_another_configuration_is_wrong_usage_unless_it_is_meant(call: Call) -> None:
    ran(call)
    call("baseline", "save", "good")
    ran(call, k=10, rerank={"by": "size"})
    done = call("compare", "latest", "--baseline", "good")
    assert (done.code, done.out) == (2, "") and "k: 5 → 10; rerank.by only now: size. " in done.err
    assert "--any-config [config_differs]" in done.err
    done = call("compare", "latest", "--baseline", "good", "--any-config")
    assert done.code == 0 and "Other differences:\n  k: 5 → 10\n  rerank.by only now: size\n" in done.out


def test_a_bucket_on_one_side_is_told(call: Call) -> None:
    ran(call)
    call("baseline", "save", "good")
    rows = Path("cases.jsonl").read_text().replace('"oral"', '"ambiguous"').replace("q3", "q4")
    Path("cases.jsonl").write_text(rows, encoding="utf-8")
    ran(call)
    done = call("compare", "latest", "--baseline", "good", "--by", "tag")
    assert "  1 bucket added: ambiguous (2 cases)\n  1 bucket removed: oral (2 cases)\n" in done.out
    [comparison] = json.loads(call("compare", "latest", "--baseline", "good", "--json").out)["comparisons"]
    assert comparison["added"] == [{"by": "bucket", "name": "ambiguous", "cases": 2}]
    assert {one["bucket"] for one in comparison["measures"]} == {"", "official", "ambiguous"}


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--allowed-drop", "oral=nan"), "got 'oral=nan' [bad_allowed_drop]"),
        (("--allowed-drop", "=0.1"), "got '=0.1' [bad_allowed_drop]"),
        (("--allowed-drop", "oral="), "got 'oral=' [bad_allowed_drop]"),
        (("--allowed-drop", "much"), "such as oral=0.1; got 'much' [bad_allowed_drop]"),
        (("--allowed-drop", "0.1", "--allowed-drop", "0.2"), "given twice without a name: 0.1 and 0.2"),
        (("--allowed-drop", "oral=0.1", "--allowed-drop", "oral=0"), "given twice for 'oral'"),
        (("--allowed-drop", "orl=0.1"), "Did you mean 'oral'? [bad_allowed_drop]"),
    ],
)
def test_a_drop_that_nobody_can_mean_is_wrong_usage(call: Call, flags: tuple[str, ...], told: str) -> None:
    id = ran(call)
    done = call("compare", "latest", "--baseline", id, *flags)
    assert (done.code, done.out) == (2, "") and told in done.err


def test_buckets_are_asked_for_where_it_is_no_rag_batch(call: Call) -> None:
    run = ("run", "cases.jsonl", "--target", "python:search.py:find")
    call(*run, "--dialect", "rag")
    done = call("compare", "latest", "--baseline", "latest")
    assert "bucket" not in done.out and "measure" not in done.out
    assert "\nbucket " in call("compare", "latest", "--baseline", "latest", "--by", "bucket", "--by", "tag").out
    Path("cases.jsonl").write_text('{"id": "a", "query": "salary", "expected_output": "salary"}\n', encoding="utf-8")
    call(*run)
    done = call("compare", "latest", "--baseline", "latest", "--by", "bucket")
    assert done.code == 0 and "--by bucket: no case that is compared has one of official, oral" in done.err
