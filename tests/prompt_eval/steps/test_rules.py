"""Rules score without a judge: each kind, where it looks, what a broken one costs, and a reason that quotes."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.errors import EvalloomError
from evalloom.prompt_eval.citing import uncited_reasons
from evalloom.prompt_eval.plan import RULES, ScoringRule, TestPlan, TestPoint
from evalloom.prompt_eval.scores import Mark, ScoredCase
from evalloom.prompt_eval.steps.rules import score_by_rules, validate_rules

OUTPUT = '{"name": "电动叉车", "countries": ["China", "Japan"], "items": [{"term": "a"}, {"term": "bbbb"}]}'


def mark(*rules: ScoringRule, output: str = OUTPUT, **case: Any) -> Mark:
    return score_by_rules(TestPoint("TP1", "form", rules=rules), case, output)


@pytest.mark.req("EVAL-6")
@pytest.mark.parametrize(
    ("rule", "score"),
    [
        (ScoringRule("json_valid"), 3),
        (ScoringRule("json_schema", {"type": "object", "required": ["name"]}), 3),
        (ScoringRule("json_schema", {"type": "object", "required": ["nome"]}), 1),
        (ScoringRule("required_keys", ["name", "countries"]), 3),
        (ScoringRule("required_keys", ["name", "price"]), 1),
        (ScoringRule("required_keys", ["term"], path="items[*]"), 3),
        (ScoringRule("allowed_values", ["China", "Japan"], path="countries"), 3),
        (ScoringRule("allowed_values", ["China"], path="countries"), 1),
        (ScoringRule("allowed_values", ["电动叉车", 3], path="name"), 3),
        (ScoringRule("max_chars", 4, path="name"), 3),
        (ScoringRule("max_chars", 3, path="name"), 1),
        (ScoringRule("max_chars", 3, path="items[*].term", otherwise=2), 2),
        (ScoringRule("min_chars", 5, path="name"), 1),
        (ScoringRule("regex", "叉车$", path="name"), 3),
        (ScoringRule("regex", "^叉车", path="name"), 1),
        (ScoringRule("not_regex", "[★!]"), 3),
        (ScoringRule("contains", ["China", "Japan"]), 3),
        (ScoringRule("contains", "Korea"), 1),
        (ScoringRule("not_contains", "Korea"), 3),
        (ScoringRule("not_contains", ["Korea", "China"]), 1),
        (ScoringRule("language", "zh", path="name"), 3),
        (ScoringRule("language", "en", path="name"), 1),
        (ScoringRule("not_empty", path="countries"), 3),
        (ScoringRule("not_empty", path="price"), 1),
    ],
)
def test_each_kind_of_rule(rule: ScoringRule, score: int) -> None:
    found = mark(rule)
    assert found.score == score and found.reason
    case = ScoredCase({"result_aftertest": OUTPUT}, {"TP1": found})
    assert not list(uncited_reasons(case)), found.reason


@pytest.mark.req("EVAL-6")
@pytest.mark.parametrize("output", ["", "no", '```json\n{"a": 1}\n```', 'Sure: {"a": 1}', "{'a': 1}", '{"a": NaN}'])
def test_json_valid_wants_json_and_nothing_else(output: str) -> None:
    assert mark(ScoringRule("json_valid"), output=output).score == 1


def test_inside_a_fence_other_rules_still_look() -> None:
    output = f"```json\n{OUTPUT}\n```"
    assert (
        mark(ScoringRule("required_keys", ["name"]), ScoringRule("max_chars", 9, path="name"), output=output).score == 3
    )


def test_the_lowest_score_of_broken_rules_counts_and_all_are_named() -> None:
    found = mark(ScoringRule("max_chars", 1, otherwise=2), ScoringRule("contains", "Korea"), ScoringRule("json_valid"))
    assert found.score == 1 and "max_chars" in found.reason and "Korea" in found.reason


def test_a_rule_asks_nothing_of_cases_that_it_is_not_for() -> None:
    rule = ScoringRule("required_keys", ["price"], when="test_category != 'error_case' and output.error == null")
    assert mark(rule, test_category="happy_path").score == 1
    assert mark(rule, test_category="error_case").score == 3
    assert mark(rule, output='{"error": "refused"}', test_category="happy_path").score == 3


def test_a_search_that_does_not_end_gives_no_score() -> None:
    found = mark(ScoringRule("regex", "^(a|a)+$"), output="a" * 60 + "!")
    assert found.score is None and "regex" in found.reason


@pytest.mark.parametrize(
    "rule",
    [ScoringRule("language", "klingon"), ScoringRule("json_schema", {"type": 7}), ScoringRule("regex", "a", "a[")],
)
def test_a_rule_that_could_never_be_applied_is_refused_before(rule: ScoringRule) -> None:
    plan = TestPlan((TestPoint("TP1", "form", rules=(rule,)),), path=Path("plan.yaml"))
    with pytest.raises(EvalloomError, match=r"plan\.yaml: TP1: rule: .*\[bad_rule\]"):
        validate_rules(plan)


@given(st.text(max_size=200), st.sampled_from(sorted(RULES)), st.sampled_from(["", "a", "a[0].b", "$..x"]))
def test_no_output_makes_a_rule_fail(output: str, kind: str, path: str) -> None:
    values: dict[str, Any] = {"json_schema": {}, "required_keys": ["a"], "allowed_values": ["a"], "language": "zh"}
    value = values.get(kind, 5 if kind.endswith("chars") else "a")
    found = mark(ScoringRule(kind, value, path if path != "$..x" else ""), output=output)
    assert found.score in (1, 3)
