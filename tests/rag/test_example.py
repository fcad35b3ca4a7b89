"""The bundled RAG example: sources and anchors are there, wordings differ, and one file has every fault."""

import asyncio
import json
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evalloom import check
from evalloom.core.model import Request
from evalloom.core.ranking import rank, sources_in_order
from evalloom.llms.delimiters import mostly_chinese
from evalloom.llms.scripted import Scripted
from evalloom.rag.example import EXAMPLE
from evalloom.rag.retrieval import open_index

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RAG, FAULTY = (EXAMPLES / file.file for file in EXAMPLE.files)
WITH_SOURCES = EXAMPLE.files[0].rules(EXAMPLES)

# code -> line, for every error and warning of RAG-2 and RAG-3 that a line of a file can have
FAULTY_FILE_CODES = {
    "json_parse_error": 3,
    "json_not_object": 4,
    "missing_field": 5,
    "empty_id": 6,
    "duplicate_id": 7,
    "bad_query": 8,
    "bad_expected_sources": 9,
    "bad_must_include": 10,
    "invalid_bucket": 11,
    "expected_file_missing": 12,
    "expected_dir_missing": 13,
    "source_outside_root": 14,
    "missing_bucket_default": 15,
    "missing_pair_id": 16,
    "empty_pair_id": 17,
    "empty_concept_id": 18,
    "must_include_duplicates": 19,
    "must_include_too_short": 20,
    "must_include_not_in_expected_sources": 21,
    "unpaired_pair_id": 22,
    "blank_must_include_entry": 23,
    "must_include_in_longer_number": 24,
    "path_separator": 25,
}


@pytest.mark.req("RAG-2", "RAG-3")
def test_faulty_file_has_each_fault_on_its_own_line() -> None:
    found = check(FAULTY, rules=WITH_SOURCES)
    assert {finding.code: finding.origin.line for finding in found.findings} == FAULTY_FILE_CODES
    assert EXAMPLE.files[1].is_faulty
    assert set(found.counts.values()) == {1}
    severities = {finding.origin.line: finding.severity for finding in found.findings}
    assert all(severity == ("error" if line < 15 else "warning") for line, severity in severities.items())
    assert all("note" in line for line in FAULTY.read_text(encoding="utf-8").splitlines())


def test_sources_and_anchors_are_there() -> None:
    assert check(RAG, rules=WITH_SOURCES).findings == []
    rows = [json.loads(line) for line in RAG.read_text(encoding="utf-8").splitlines()]
    buckets = Counter(row["bucket"] for row in rows)
    assert buckets["official"] == buckets["oral"] == 22 and buckets["ambiguous"] == 12
    assert any(source.endswith("/") for row in rows for source in row["expected_sources"])


@pytest.mark.req("RAG-7")
def test_wordings_differ_in_what_they_find(tmp_path: Path) -> None:
    index = open_index(EXAMPLES / "rag", tmp_path)
    index.refresh()
    rows = [json.loads(line) for line in RAG.read_text(encoding="utf-8").splitlines()]
    found: dict[str, set[str]] = {"official": set(), "oral": set(), "ambiguous": set()}
    for row in rows:
        sources = sources_in_order(index.search(row["query"], 5))
        if rank(row["expected_sources"], sources).hit(5):
            found[row["bucket"]].add(row.get("pair_id", row["id"]))
    index.close()
    assert found["official"] - found["oral"] == {"P01", "P12", "P14", "P16", "P19", "P21"}
    assert found["oral"] - found["official"] == {"P18"}
    assert [len(ids) for ids in found.values()] == [20, 15, 10]


@pytest.mark.req("RAG-7")
def test_the_example_needs_no_extra_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extras = tomllib.loads((EXAMPLES.parent / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    modules = {"pypdf": "pypdf", "python-docx": "docx"}
    for requirement in extras["documents"]:
        monkeypatch.setitem(sys.modules, modules[requirement.partition(">")[0]], None)
    index = open_index(EXAMPLES / "rag", tmp_path)
    refreshed = index.refresh()
    index.close()
    assert refreshed.unread == [] and refreshed.documents == 17


def files_of(expected: list[str]) -> list[Path]:
    paths = [EXAMPLES / "rag" / name for name in expected]
    return [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]


async def answer_from_expected_sources(llm: Scripted, row: dict[str, Any]) -> str:
    texts = [file.read_text(encoding="utf-8") for file in files_of(row["expected_sources"])]
    sources = "\n\n".join(f"[{place}] {text}" for place, text in enumerate(texts, 1))
    question = "问题：" if mostly_chinese(row["query"]) else "Question: "
    prompt = f"{sources}\n\n{question}{row['query']}\n"
    return (await llm(Request([{"role": "user", "content": prompt}]))).text


def test_model_answers_from_the_sources_and_errs_on_purpose() -> None:
    llm = Scripted(EXAMPLES / "rag/answers.yaml")
    rows = [json.loads(line) for line in RAG.read_text(encoding="utf-8").splitlines()]
    said = {row["id"]: asyncio.run(answer_from_expected_sources(llm, row)) for row in rows}
    incomplete = {row["id"] for row in rows if not all(anchor in said[row["id"]] for anchor in row["must_include"])}
    uncited = {id for id, text in said.items() if not re.search(r"\[[1-8]\]", text)}
    assert incomplete == {"zh-expense-hotel-oral", "en-remote-days-oral", "en-returns-refund-oral"}
    assert uncited == {"en-it-password-oral", "zh-forklift-speed-official"}
    unknown = asyncio.run(answer_from_expected_sources(llm, {"query": "Who won the cup?", "expected_sources": []}))
    assert unknown == "The sources do not hold the answer."
