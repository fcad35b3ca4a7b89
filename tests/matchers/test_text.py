"""Texts in texts."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.model import Case, Check, Output
from evalloom.matchers import CheckResult, MatchContext, by_kind


def grade(kind: str, expected: Any, value: Any, **options: Any) -> CheckResult:
    matcher = by_kind(kind)
    assert matcher is not None and matcher.grade is not None
    found = matcher.grade(Check(kind, expected, options=options), MatchContext(value, Output(value), Case("c", {})))
    assert found is not None
    return found


@given(st.text(alphabet="abA你", max_size=6), st.text(alphabet="abA你", min_size=1, max_size=2))
def test_contains_is_in(text: str, part: str) -> None:
    assert grade("contains", part, text).passed is (part in text)
    assert grade("contains_all", [part], text).passed is (part in text)
    assert grade("icontains", part, text).passed is (part.lower() in text.lower())
    assert grade("starts_with", part, text).passed is text.startswith(part)
    assert grade("ends_with", part, text).passed is text.endswith(part)


def test_contains_on_other_than_texts() -> None:
    assert grade("contains", '"a":1', {"a": 1}).passed
    assert grade("contains", {"a": 1}, {"a": 1, "b": 2}).passed
    assert grade("contains", {"a": 1}, '{"a": 1, "b": 2}').passed
    assert grade("contains", [2], [1, 2, 3]).passed
    assert grade("contains", 42, "it is 42").passed
    assert grade("contains", "x", None).passed is False
    assert grade("contains", None, "x").passed is None


def test_members_of_a_list_are_compared_by_value() -> None:
    for kind in ("contains", "contains_all", "contains_any", "icontains"):
        assert grade(kind, "1", [10]).passed is False
        assert grade(kind, "a", ["b", "a"]).passed
    assert grade("contains", 1, [10]).passed is False
    assert grade("contains", 10, [10]).passed
    assert grade("icontains", "A", ["a"]).passed


def test_what_holds_for_any_answer_or_for_none_is_unscored() -> None:
    for kind in ("contains", "icontains", "starts_with", "ends_with", "contains_all", "contains_any"):
        assert "any answer" in grade(kind, "", "x").reason
    listed = grade("contains", ["a", "b"], "a and b")
    assert listed.passed is None and "contains_all" in listed.reason
    assert grade("contains", ["a"], '["a", "b"]').passed


def test_all_and_any_name_what_is_missing() -> None:
    found = grade("contains_all", ["a", "x", "y"], "abc")
    assert found.passed is False and "x" in found.reason and "y" in found.reason
    assert grade("contains_any", ["x", "b"], "abc").passed
    assert "x" in grade("contains_any", ["x", "y"], "abc").reason
    assert grade("icontains_all", ["A", "B"], "abc").passed
    assert grade("icontains_any", ["X", "B"], "abc").passed
    assert grade("contains_all", [], "abc").passed is None


def test_options_of_text_checks() -> None:
    assert grade("contains", "HELLO", "say hello", case_sensitive=False).passed
    assert grade("contains", "１２３", "共一百二十三个", normalise=True).passed
    assert grade("equals", "Ａbc", "abc", normalise=True).passed
    assert grade("regex", "HEL+O", "hello", case_sensitive=False).passed


def test_regex() -> None:
    assert grade("regex", r"\d{3}", "id 123").passed
    assert grade("regex", r"^\d+$", "id 123").passed is False
    bad = grade("regex", "(", "x")
    assert bad.passed is None and "regular expression" in bad.reason


def test_a_search_without_end_is_unscored() -> None:
    found = grade("regex", r"^(a|a)+$", "a" * 60 + "b")
    assert found.passed is None and "stopped" in found.reason


def test_normalised() -> None:
    assert grade("normalised", "共 123 元", "共一百二十三元").passed
    assert grade("normalised", "Hello, World!", "hello world", punctuation=False).passed
    assert grade("normalised", "Hello, World!", "hello world").passed is False
