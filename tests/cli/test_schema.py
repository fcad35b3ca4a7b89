"""`evalloom schema`: JSON Schemas that editors can use, and that agree with the linter."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from evalloom import catalog
from evalloom.data.dialect import Rules
from evalloom.rag import dialect as rag

WRITERS = catalog.load().formats.writers

Evalloom = Callable[..., subprocess.CompletedProcess[str]]

FIXTURES = Path(__file__).parent.parent / "fixtures"
FILES = {
    "hop": "hop.jsonl",
    "pipeline": "pipeline_basic_v2.jsonl",
    "prompt-eval": "prompt_eval.json",
    "replay": "replay.jsonl",
    "rag": "rag.jsonl",
}
BAD = {
    "hop": {"id": "1", "tag": "t"},
    "pipeline": {"id": "a", "inputs": []},
    "prompt-eval": {"test_id": "TC1"},
    "replay": {"_expected": {"mustContain": "x"}},
    "rag": {"id": "a", "query": "ab", "expected_sources": "docs/a.md", "must_include": ["ab"]},
}


def records(name: str) -> list[Any]:
    text = (FIXTURES / name).read_text(encoding="utf-8")
    return list(json.loads(text)) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("dialect", [writer.name for writer in WRITERS])
def test_schema_takes_good_records_and_refuses_bad_ones(evalloom: Evalloom, dialect: str) -> None:
    done = evalloom("schema", dialect)
    schema = json.loads(done.stdout)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    assert (done.returncode, done.stderr) == (0, "")
    assert [error.message for record in records(FILES[dialect]) for error in validator.iter_errors(record)] == []
    assert not validator.is_valid(BAD[dialect]) and not validator.is_valid([1])


def test_without_a_dialect_any_of_them(evalloom: Evalloom) -> None:
    schema = json.loads(evalloom("schema").stdout)
    Draft202012Validator.check_schema(schema)
    assert [len(schema["anyOf"]), schema["$schema"]] == [5, "https://json-schema.org/draft/2020-12/schema"]
    assert all(Draft202012Validator(schema).is_valid(record) for name in FILES.values() for record in records(name))


def test_settings_have_a_schema_that_the_examples_keep_to(evalloom: Evalloom) -> None:
    schema = json.loads(evalloom("schema", "settings").stdout)
    Draft202012Validator.check_schema(schema)
    for file in (Path(__file__).parents[2] / "examples").glob("*/evalloom.yaml"):
        written = yaml.safe_load(file.read_text(encoding="utf-8"))
        assert [error.message for error in Draft202012Validator(schema).iter_errors(written)] == [], file
    assert not Draft202012Validator(schema).is_valid({"profiles": []})


def test_an_unknown_dialect_is_answered_with_the_known_ones(evalloom: Evalloom) -> None:
    done = evalloom("schema", "ragg")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'ragg' is not one of 'hop', 'pipeline', 'prompt-eval', 'replay', 'rag'" in done.stderr


TEXTS = st.sampled_from(["", " ", "a", " a ", "ab", "a b", "official", "oral"])
VALUES = st.none() | TEXTS | st.integers(0, 1) | st.lists(TEXTS | st.none(), max_size=3)
FIELDS = ("id", "query", "expected_sources", "must_include", "bucket", "pair_id", "concept_id")
RECORDS = st.fixed_dictionaries({}, optional={name: VALUES for name in FIELDS})
GOOD = {"id": "a", "query": "ab", "expected_sources": ["a"], "must_include": ["ab"], "bucket": "oral", "pair_id": "p"}


@pytest.mark.req("RAG-2")
@given(RECORDS)
def test_rag_schema_and_linter_agree(changes: dict[str, Any]) -> None:
    for record in (changes, {**GOOD, **changes}):
        errors = [remark for remark in rag.findings(record, Rules()) if remark.severity == "error"]
        assert Draft202012Validator(rag.schema()).is_valid(record) == (not errors), errors
