"""Negated checks, and what they say."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.model import Case, Output, Request, Response, Run, Verdict
from evalloom.engine.score import grade_now, score
from evalloom.matchers import CheckResult, Services, parse_check
from evalloom.matchers.negation import negated


def verdict_of(written: dict[str, Any], value: Any, services: Services | None = None) -> Verdict:
    case, run = Case("c", {}, (parse_check(written),)), Run("k", "c", output=Output(value), duration_s=0.9)
    found = grade_now(case, run, Services()) or asyncio.run(score(case, run, services or Services()))
    return found.verdicts[0]


@given(st.booleans(), st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.none() | st.sampled_from([0.25, 1.0]))
def test_two_negations_are_none(passed: bool, number: float | None, share: float | None) -> None:
    again = negated(negated(CheckResult(passed, number, share=share)))
    assert (again.passed, again.score, again.share) == (passed, number, share)
    assert negated(CheckResult(None)).passed is None


@pytest.mark.parametrize(
    ("written", "value", "reason"),
    [
        ({"not_contains": "Sure!"}, "Sure! Here", "expected not 'Sure!' in 'Sure! Here'"),
        ({"not_icontains": "sure"}, "Sure!", "expected not 'sure' in 'Sure!', in any case"),
        ({"not_contains_any": ["a", "z"]}, "abc", """expected not any of ["a","z"] in 'abc' (found ["a"])"""),
        ({"not_contains_all": ["a", "b"]}, "abc", """expected not all of ["a","b"] in 'abc'"""),
        ({"not_starts_with": "a"}, "abc", "expected not 'a' at the beginning of 'abc'"),
        ({"not_ends_with": "c"}, "abc", "expected not 'c' at the end of 'abc'"),
        ({"not_regex": "b+"}, "abc", "expected not a match of 'b+' in 'abc'"),
        ({"not_equals": "a"}, "a", "expected not 'a', got 'a'"),
        ({"not_equals": None}, None, "expected not null, got null"),
        ({"not_iequals": "A"}, "a", "expected not 'A' in any case, got 'a'"),
        ({"not_one_of": ["a", "b"]}, "a", """expected not one of ["a","b"], got 'a'"""),
        ({"not_structural": {"a": 1}}, {"a": 1, "b": 2}, 'expected not structural {"a":1}, got {"a":1,"b":2}'),
        ({"not_normalised": "五"}, "5", "expected not '五', got '5'"),
        ({"not_numeric": 5}, "5", "expected not numeric 5, got '5'"),
        ({"not_length": {"max": 3}}, "abc", "expected not length {\"max\":3}, got 'abc'"),
        ({"kind": "not_length", "min": 3}, "abc", "expected not length {\"min\":3}, got 'abc'"),
        ({"kind": "not_latency", "threshold": 1000}, "x", "expected not latency: 900 ms"),
        ({"not_bleu": "a b"}, "a b", "expected not bleu 'a b': BLEU 1, at least 0.5"),
        ({"not_levenshtein": "abc"}, "abd", "expected not levenshtein 'abc': 1 edits from 'abc'"),
        (
            {"not_language": "en"},
            "This is an English sentence.",
            "expected not 'en', got 'This is an English sentence.'",
        ),
        ({"kind": "not_refusal"}, "I can't help with that.", 'expected not a refusal, got "I can\'t help with that."'),
        ({"kind": "not_is_json"}, "{}", "expected not JSON, got '{}'"),
        ({"not_json_path": "$.a"}, {"a": 1}, "expected not '$.a' in {\"a\":1}"),
        ({"json_path": "$.a", "check": {"not_equals": 1}}, {"a": 1}, "$.a: expected not 1, got 1"),
        ({"json_path": "$[*]", "check": {"not_contains": "n"}}, ["y", "no"], "$[1]: expected not 'n' in 'no'"),
    ],
)
def test_a_negated_check_that_fails_says_what_was_not_expected(
    written: dict[str, Any], value: Any, reason: str
) -> None:
    found = verdict_of(written, value)
    assert (found.status, found.reason, found.mismatches) == ("failed", reason, [])


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *(({f"not_{kind}": "Sure!"}, "No.") for kind in ("contains", "icontains", "equals", "iequals", "regex")),
        *(({f"not_{kind}": "Sure!"}, "No.") for kind in ("starts_with", "ends_with", "normalised", "structural")),
        *(({f"not_{kind}": ["a"]}, "No.") for kind in ("contains_all", "contains_any", "one_of", "icontains_any")),
        *(({f"not_{kind}": "Sure!"}, "No!") for kind in ("bleu", "gleu", "rouge", "f1")),
        *(({"kind": f"not_{kind}"}, "No.") for kind in ("is_json", "contains_json", "refusal")),
        ({"not_language": "zh"}, "No."),
        ({"not_levenshtein": "abcdefgh"}, "x"),
        ({"not_json_path": "$.a"}, {"b": 1}),
        ({"not_json_schema": {"required": ["b"]}}, {"a": 1}),
        ({"not_tool_calls": ["search"]}, {"tool_calls": [{"name": "other"}]}),
        ({"json_path": "$.a", "check": {"not_equals": 1}}, {"a": 2}),
    ],
)
def test_a_negated_check_that_passes_has_no_reason_of_failure(written: dict[str, Any], value: Any) -> None:
    found = verdict_of(written, value)
    assert (found.status, found.reason, found.mismatches) == ("passed", "", [])


@pytest.mark.parametrize(("answer", "status"), [("true", "failed"), ("false", "passed")])
def test_a_negated_judge_says_why(answer: str, status: str) -> None:
    async def judge(request: Request) -> Response:
        return Response(f'{{"reason": "It says so.", "pass": {answer}}}')

    found = verdict_of({"not_judge": "It is rude."}, "x", Services(judge=judge))
    assert found.status == status
    assert found.reason == ("It says so." if status == "passed" else "expected not judge 'It is rude.': It says so.")
