"""What `validate` says beforehand about checks: not scored, in need of a service, not read (WORK-2)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from evalloom import catalog, check
from evalloom.core.model import Checked, Finding, Origin, Output, Request, Response, Run
from evalloom.engine.score import score
from evalloom.interop.promptfoo.assert_types import TYPES as PROMPTFOO_TYPES
from evalloom.matchers import Services

pytestmark = pytest.mark.req("WORK-2")


def checked(path: Path, *records: dict[str, Any], mapping: str = "") -> Checked:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return check(path, mapping=mapping)


def findings(path: Path, *records: dict[str, Any]) -> list[Finding]:
    codes = ("check_not_scored", "checks_not_read", "unknown_assert_type")
    found = checked(path, *records).findings
    return [one for one in found if one.code in codes or one.code.startswith("needs_")]


def promptfoo(*asserts: dict[str, Any]) -> dict[str, Any]:
    return {"vars": {"q": "a", "context": "a"}, "assert": list(asserts)}


VALUES: dict[str, Any] = {"word-count": 2, "is-json": {"type": "object"}, "is-sql": {}, "contains-sql": {}}
MORE = {"latency": {"threshold": 9}, "cost": {"threshold": 9}, "perplexity": {"threshold": 9}}


@pytest.mark.parametrize("type_", [*PROMPTFOO_TYPES, "promptfoo:redteam:pii", "no-such-type"])
def test_an_assert_of_promptfoo_is_scored_or_a_warning_with_advice(type_: str, tmp_path: Path) -> None:
    record = promptfoo({"type": type_, "value": VALUES.get(type_, "a"), **MORE.get(type_, {})})
    told = [one for one in findings(tmp_path / "t.jsonl", record) if one.severity == "warning"]

    async def judge(request: Request) -> Response:
        return Response('{"reason": "fine", "pass": true, "score": 1}')

    async def embed(texts: list[str]) -> list[list[float]]:
        return [[1.0, 0.0] for _ in texts]

    case = catalog.load().formats.by_name("promptfoo").to_case(record, Origin(""))
    run = Run("k", "c", output=Output("a", sources=["a"]))
    scored = asyncio.run(score(case, run, Services(judge=judge, embed=embed, matchers=catalog.load().matchers)))
    needs_more = type_ in ("python", "cost")  # a function that is not there, a price
    assert bool(told) == (scored.status == "unscored" and not needs_more)
    assert all("will not be scored" in one.message and one.origin.column > 1 for one in told)
    assert all(
        any(word in one.message for word in ("; write", "; run")) or ". " in one.message or "videos" in one.message
        for one in told
    )


def test_the_warning_is_at_the_line_of_the_check(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(
        "- vars: {q: a}\n  assert:\n    - {type: contains, value: a}\n    - type: meteor\n", encoding="utf-8"
    )
    (found,) = (one for one in check(path).findings if one.code == "check_not_scored")
    assert (found.origin.line, found.field) == (4, "assert") and "assert[1].type: will not be scored" in found.message


def test_shared_asserts_are_told_once(tmp_path: Path) -> None:
    path = tmp_path / "promptfooconfig.yaml"
    tests = "defaultTest: {assert: [{type: meteor, value: a}]}\ntests: [{vars: {q: a}}, {vars: {q: b}}]\n"
    path.write_text(f"prompts: [p]\nproviders: [echo]\n{tests}", encoding="utf-8")
    (found,) = (one for one in check(path).findings if one.code == "check_not_scored")
    assert found.message.endswith("(2 cases)")


def test_what_is_needed_is_one_info_for_each_kind_with_a_count(tmp_path: Path) -> None:
    judge, code = {"type": "llm-rubric", "value": "polite"}, {"type": "python", "value": "my_checks:polite"}
    records = [promptfoo(judge, code, {"type": "similar", "value": "a"})] * 3
    told = findings(tmp_path / "t.jsonl", *records)
    assert {one.code for one in told} == {"needs_judge", "needs_embeddings", "needs_code"}
    assert all(one.severity == "info" and one.message.startswith("3 checks of kind ") for one in told)


def test_a_meaning_of_a_pipeline_case_needs_a_model(tmp_path: Path) -> None:
    record = {"id": "a", "q": "x", "expected_output": "semantic:yes"}
    (found,) = findings(tmp_path / "a_basic_v1.jsonl", {"id": "b", "q": "x", "expected_output": "y"}, record)
    assert found.code == "needs_judge_or_embeddings" and found.origin.line == 2


@pytest.mark.parametrize(
    ("record", "field"),
    [
        ({"id": "a", "q": "x", "expect": "y"}, "expect"),
        ({"id": "a", "q": "x", "expcted_output": "y"}, "expcted_output"),
        ({"id": "a", "q": "x", "asserts": [{"type": "contains"}]}, "asserts"),
        ({"id": "a", "q": "x", "checks": ["oil", "water"]}, "checks"),
        ({"id": "a", "inputs": {"q": "x"}, "checks": [{"contains": "y"}]}, "checks"),
        ({"id": "a", "inputs": {"q": "x"}, "cheks": [{"contains": "y"}]}, "cheks"),
        ({"vars": {"q": "x"}, "assert": [{"type": "contains", "value": "a"}], "asert": []}, ""),
        ({"id": "a", "q": "x", "expected_output": "y"}, ""),
        ({"id": "a", "q": "x", "expected_answer": "y"}, ""),
        ({"id": "a", "q": "x", "checks": "the oil"}, ""),
        ({"id": "a", "q": "x", "check": "the oil", "assets": ["a"], "except": ["b"]}, ""),
        ({"id": "a", "q": "x", "checks": [{"contains": "y"}]}, ""),
    ],
)
def test_a_field_that_looks_like_checks_and_is_not_read_is_a_warning(
    record: dict[str, Any], field: str, tmp_path: Path
) -> None:
    told = [one for one in findings(tmp_path / "a_basic_v1.jsonl", record) if one.code == "checks_not_read"]
    assert [(one.field, one.severity) for one in told] == ([(field, "warning")] if field else [])


def test_the_count_and_the_first_line_are_the_same_in_one_process_and_in_several(tmp_path: Path) -> None:
    lines = [{"id": str(number), "q": "x" * 400, "expect": "y"} for number in range(45_000)]
    large = checked(tmp_path / "a_basic_v1.jsonl", {"id": "first", "q": "x"}, *lines)
    (found,) = (one for one in large.findings if one.code == "checks_not_read")
    assert found.origin.line == 2 and "in 45,000 records" in found.message
