"""A test plan is read strictly: every fault at its place, all of them at once."""

from pathlib import Path
from typing import Any

import pytest

from evalloom.prompt_eval.plan import (
    RULES,
    ScoringRule,
    TestPlan,
    plan_of,
    plan_remarks,
    read_plan,
    replace_prompt,
    safety_last,
)

ANCHORS: dict[Any, Any] = {1: "wrong", 2: "nearly", 3: "right"}
POINT = {"id": "TP1", "name": "form", "criticality": "core", "anchors": ANCHORS}
PLAN: dict[str, Any] = {"prompt": "prompt_a.md", "test_points": [POINT], "dimensions": {"happy_path": 3}}


def codes(record: dict[str, Any]) -> list[str]:
    return [remark.code for remark in plan_remarks(record)]


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "test_plan.yaml"
    path.write_text(text, "utf-8")
    return path


@pytest.mark.req("EVAL-3")
def test_a_plan_is_read_with_its_points_rules_and_dimensions(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """\
prompt: prompt_a.md
dimensions: {safety: 2, happy_path: 3, i18n: 0}
floors: {safety_injection: 1}
test_points:
  - {id: TP_safety, name: safe, criticality: baseline, anchors: {1: a, 2: b, 3: c}}
  - id: TP1
    name: form
    criticality: core
    rule: [json_valid, {max_chars: 100, path: name, otherwise: 2, when: "test_category != 'safety'"}]
  - {id: TP_qualitative_tone, name: tone, type: qualitative, criticality: supporting, anchors: {"1": a, "2": b, "3": c}}
""",
    )
    plan, findings = read_plan(path)
    assert not findings and plan is not None
    assert plan.ids == ("TP1", "TP_qualitative_tone", "TP_safety")
    assert plan.points[0].rules == (
        ScoringRule("json_valid"),
        ScoringRule("max_chars", 100, "name", 2, "test_category != 'safety'"),
    )
    assert [point.type for point in plan.points] == ["quantitative", "qualitative", "safety"]
    assert plan.dimensions == {"happy_path": 3, "safety": 2} and plan.floors == {"safety_injection": 1}
    assert [point.id for point in plan.judged] == ["TP_qualitative_tone", "TP_safety"]


@pytest.mark.req("EVAL-3")
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"test_points": []}, "bad_test_points"),
        ({"test_points": [{**POINT, "id": "TP0"}]}, "bad_test_point"),
        ({"test_points": [{**POINT, "id": "tp1"}]}, "bad_test_point"),
        ({"test_points": [{**POINT, "name": " "}]}, "bad_test_point"),
        ({"test_points": [{**POINT, "criticality": "vital"}]}, "bad_test_point"),
        ({"test_points": [{**POINT, "type": "subjective"}]}, "bad_test_point"),
        ({"test_points": ["TP1"]}, "bad_test_point"),
        ({"test_points": [{**POINT, "anchors": {1: "a", 2: "b"}}]}, "bad_anchors"),
        ({"test_points": [{**POINT, "anchors": {**ANCHORS, 4: "d"}}]}, "bad_anchors"),
        ({"test_points": [{**POINT, "anchors": "good or bad"}]}, "bad_anchors"),
        ({"test_points": [POINT, {**POINT, "name": "other"}]}, "duplicate_test_point"),
        ({"test_points": [POINT, {**POINT, "id": "TP2", "name": "Form "}]}, "duplicate_test_point"),
        ({"dimensions": {}}, "bad_dimensions"),
        ({"dimensions": {"happy": 3}}, "bad_dimensions"),
        ({"dimensions": {"happy_path": -1}}, "bad_dimensions"),
        ({"dimensions": {"happy_path": "3"}}, "bad_dimensions"),
        ({"dimensions": {"happy_path": True}}, "bad_dimensions"),
        ({"floors": {"safety_injection": 1}}, "bad_floors"),
        ({"floors": {"safety": 1}}, "bad_floors"),
        ({"prompt": 3}, "bad_prompt"),
    ],
)
def test_each_fault_of_a_plan_has_its_code(change: dict[str, Any], code: str) -> None:
    assert code in codes({**PLAN, **change})


@pytest.mark.req("EVAL-6")
@pytest.mark.parametrize(
    "rule",
    [
        [],
        "json",
        "max_chars",
        {"max_chars": "100"},
        {"max_chars": 100, "min_chars": 2},
        {"json_schema": "yes"},
        {"required_keys": "a"},
        {"allowed_values": []},
        {"regex": "("},
        {"language": 3},
        {"json_valid": None, "otherwise": 3},
        {"json_valid": None, "when": "test_category =="},
        {"json_valid": None, "path": ""},
        7,
    ],
)
def test_a_rule_that_cannot_be_meant_is_an_error(rule: Any) -> None:
    assert "bad_rule" in codes({**PLAN, "test_points": [{**POINT, "rule": rule}]})


def test_every_kind_of_rule_can_be_written() -> None:
    values = {"json_schema": {"type": "object"}, "regex": "a+", "not_regex": "a+", "language": "zh", "contains": "a"}
    lists = {"required_keys": ["a"], "allowed_values": ["a", 1], "not_contains": ["a"]}
    rules = [{kind: {**values, **lists, "max_chars": 9, "min_chars": 0}.get(kind)} for kind in RULES]
    assert codes({**PLAN, "test_points": [{**POINT, "rule": rules}]}) == []


def test_an_unknown_key_is_a_warning_with_a_proposal() -> None:
    (remark,) = plan_remarks({**PLAN, "test_points": [{**POINT, "anchor": {}}]})
    assert remark.severity == "warning" and "Did you mean 'anchors'?" in remark.message


def test_faults_stand_at_their_places_and_all_at_once(tmp_path: Path) -> None:
    path = written(
        tmp_path, "test_points:\n  - {id: TP1, name: a, criticality: cor, anchors: {1: a, 2: b, 3: c}}\ndimensions: 3\n"
    )
    plan, findings = read_plan(path)
    assert plan is None
    assert [(finding.origin.line, finding.code) for finding in findings] == [
        (2, "bad_test_point"),
        (3, "bad_dimensions"),
    ]


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words", "a: [", "a: 1\n---\na: 2\n"])
def test_a_file_that_is_no_plan_is_a_finding(tmp_path: Path, text: str) -> None:
    plan, findings = read_plan(written(tmp_path, text))
    assert plan is None and findings and all(finding.severity == "error" for finding in findings)


@pytest.mark.req("EVAL-11")
def test_safety_stands_last_whatever_the_order() -> None:
    assert safety_last(["TP_safety", "TP2", "TP1"]) == ["TP2", "TP1", "TP_safety"]
    assert safety_last(["TP2", "TP1"]) == ["TP2", "TP1"]


@pytest.mark.parametrize(
    "text",
    [
        "# a plan\nprompt: old.md  # here\ndimensions: {}\n",
        "prompt: |\n  You are\n\n  here.\ndimensions: {}\n",
        "a: 1\n",
    ],
)
def test_a_plan_gets_another_prompt_and_keeps_the_rest(text: str) -> None:
    changed = replace_prompt(text, "new: prompt.md")
    assert 'prompt: "new: prompt.md"\n' in changed and changed.count("prompt:") == 1
    assert all(line in changed for line in text.splitlines() if line.startswith(("#", "dimensions", "a")))


def test_a_plan_of_a_record_is_the_plan_of_its_file() -> None:
    assert plan_of(PLAN) == TestPlan(plan_of(PLAN).points, {"happy_path": 3}, prompt="prompt_a.md")
