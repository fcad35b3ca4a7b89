"""Comparing structures (PIPE-10, PIPE-11)."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.matchers import Grade, Seen, by_kind
from evalloom.matchers.matcher import Services
from evalloom.matchers.structural import ABSENT
from evalloom.model import Case, Check, Output


def grade(kind: str, expected: Any, value: Any, **options: Any) -> Grade:
    matcher = by_kind(kind)
    assert matcher is not None and matcher.grade is not None
    found = matcher.grade(Check(kind, expected, options=options), Seen(value, Output(value), Case("c", {})))
    assert found is not None
    return found


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("ab:", max_size=4)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
    max_leaves=10,
)


def structural(expected: Any, actual: Any, **options: Any) -> Grade:
    return grade("structural", expected, actual, **options)


def paths(found: Grade) -> list[str]:
    return [mismatch.path for mismatch in found.mismatches]


@pytest.mark.req("PIPE-11")
@given(JSON, st.booleans())
def test_anything_is_like_itself(value: Any, strict: bool) -> None:
    assert structural(value, value, strict=strict).passed
    assert grade("equals", value, value).passed


@pytest.mark.req("PIPE-11")
@given(JSON, JSON)
def test_what_is_strictly_alike_is_leniently_alike(expected: Any, actual: Any) -> None:
    if structural(expected, actual, strict=True).passed:
        assert structural(expected, actual).passed


@pytest.mark.req("PIPE-11")
def test_lenient_is_a_subset_and_lists_keep_their_length() -> None:
    actual = {"a": {"b": 1, "more": 2}, "list": [{"x": 1, "y": 2}], "more": 3}
    assert structural({"a": {"b": 1}, "list": [{"x": 1}]}, actual).passed
    assert paths(structural({"list": [{"x": 1}, {"x": 2}]}, actual)) == ["list[1]"]
    assert paths(structural({"list": []}, actual)) == ["list[0]"]


@pytest.mark.req("PIPE-11")
def test_strict_means_the_same_keys_and_types() -> None:
    assert paths(structural({"a": 1}, {"a": 1, "b": 2}, strict=True)) == ["b"]
    assert structural({"a": 1}, {"a": 1.0}, strict=True).passed
    assert structural({"a": 1}, {"a": "1"}, strict=True).passed is False
    assert structural({"a": "contains:1"}, {"a": 1}, strict=True).passed is False
    assert structural({"a": "contains:1"}, {"a": 1}).passed
    assert structural({"a": "contains: hello"}, {"a": "hello"}).passed


@pytest.mark.req("PIPE-11")
def test_every_mismatch_has_its_path_and_both_sides() -> None:
    expected = {"a": 1, "b": {"c": [1, 2, 3]}, "d": "x", "e": None}
    found = structural(expected, {"a": 2, "b": {"c": [1, 9]}, "d": ["x"], "e": 0})
    seen = {mismatch.path: (mismatch.expected, mismatch.actual) for mismatch in found.mismatches}
    assert seen == {"a": (1, 2), "b.c[1]": (2, 9), "b.c[2]": (3, ABSENT), "d": ("x", ["x"]), "e": (None, 0)}
    assert "(and 4 more)" in found.reason


@pytest.mark.req("PIPE-10", "PIPE-11")
@pytest.mark.parametrize("strict", [False, True])
def test_tolerance_is_absolute_and_inclusive_at_any_depth(strict: bool) -> None:
    assert structural({"a": [1.0]}, {"a": [1.1]}, tolerance=0.1, strict=strict).passed
    assert structural({"a": [0.3]}, {"a": [0.1]}, tolerance=0.2, strict=strict).passed
    assert structural({"a": [1.0]}, {"a": [1.11]}, tolerance=0.1, strict=strict).passed is False
    assert structural(10, 11, tolerance=1, strict=strict).passed
    assert structural(True, 1, tolerance=1, strict=strict).passed is False
    assert structural(False, True, tolerance=1, strict=strict).passed is False


@pytest.mark.req("PIPE-10")
def test_without_tolerance_floats_differ_by_rounding_only() -> None:
    assert structural(0.3, 0.1 + 0.2).passed
    assert structural(0.3, 0.3001).passed is False
    assert structural(10**18, 10**18 + 1).passed is False
    assert grade("equals", 0.3, 0.1 + 0.2).passed is False
    assert structural(1, 1, tolerance="much").passed is None


@pytest.mark.req("PIPE-10")
def test_ignored_fields_at_any_depth_on_both_sides() -> None:
    expected = {"a": {"id": 1, "x": 2}, "at": "now"}
    assert structural(expected, {"a": {"id": 9, "x": 2}}, ignore_fields=["id", "at"], strict=True).passed
    assert structural({"a": {"x": 2}}, {"a": {"x": 2, "id": 9}}, ignore_fields=["id"], strict=True).passed
    assert structural(expected, {"a": {"x": 2}}, ignore_fields=["id"]).passed is False


@pytest.mark.req("PIPE-11")
def test_texts_with_a_prefix() -> None:
    expected = {"a": ["contains:ell", r"regex:^h.*o$"]}
    assert structural(expected, {"a": ["hello", "hello"]}).passed
    assert paths(structural(expected, {"a": ["x", "y"]})) == ["a[0]", "a[1]"]
    assert structural({"a": "regex:("}, {"a": "x"}).passed is None


@pytest.mark.req("PIPE-11")
def test_semantic_texts_are_asked_about() -> None:
    async def embed(texts: list[str]) -> list[list[float]]:
        return [[1.0, 0.0] if "hi" in text else [0.0, 1.0] for text in texts]

    async def ask(seen: Seen, services: Services) -> Grade:
        assert matcher is not None and matcher.ask is not None
        return await matcher.ask(check, seen, services)

    matcher = by_kind("structural")
    assert matcher is not None and matcher.grade is not None
    check = Check("structural", {"a": "semantic:hi", "b": "semantic:hi", "c": 1})
    value = {"a": "hi there", "b": "no", "c": 2}
    seen = Seen(value, Output(value), Case("c", {}))
    assert matcher.grade(check, seen) is None
    assert paths(asyncio.run(ask(seen, Services(embed=embed)))) == ["c", "b"]
    agreeing = Seen({**value, "b": "hi", "c": 1}, Output(), Case("c", {}))
    assert asyncio.run(ask(agreeing, Services(embed=embed))).passed
    unasked = asyncio.run(ask(agreeing, Services()))
    assert unasked.passed is None and "embeddings:" in unasked.reason and "--judge" in unasked.reason


def test_text_that_is_json_compares_as_json() -> None:
    assert structural({"a": 1}, ' {"a": 1, "b": 2}').passed
    assert grade("equals", {"a": 1}, '{"a": 1.0}').passed
    assert grade("equals", 42, "42").passed
    assert grade("equals", "42", 42).passed is False
    assert grade("equals", True, 1).passed is False


def test_equals_and_its_kin() -> None:
    assert grade("equals", "a", "a ").passed is False
    assert paths(grade("equals", {"a": [1, 2]}, {"a": [1, 3], "b": 0})) == ["a[1]", "b"]
    assert grade("iequals", "Yes", "yES").passed
    assert grade("iequals", None, "").passed is None
    assert grade("one_of", ["a", 2], 2.0).passed
    assert grade("one_of", ["a", 2], "b").mismatches[0].expected == ["a", 2]
    assert grade("one_of", "a", "a").passed is None


def test_deep_structures() -> None:
    expected: Any = 1
    actual: Any = 2
    for _ in range(5_000):
        expected, actual = {"a": [expected]}, {"a": [actual]}
    found = structural(expected, actual, strict=True)
    assert len(found.mismatches) == 1 and found.mismatches[0].path.endswith(".a[0]")
