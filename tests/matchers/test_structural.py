"""Comparing structures (PIPE-10, PIPE-11)."""

import asyncio
import re
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.model import ABSENT, Case, Check, Output, show_path
from evalloom.matchers import CheckResult, MatchContext, by_kind
from evalloom.matchers.base import Services


def grade(kind: str, expected: Any, value: Any, **options: Any) -> CheckResult:
    matcher = by_kind(kind)
    assert matcher is not None and matcher.grade is not None
    found = matcher.grade(Check(kind, expected, options=options), MatchContext(value, Output(value), Case("c", {})))
    assert found is not None
    return found


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("ab:", max_size=4)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
    max_leaves=10,
)


def structural(expected: Any, actual: Any, **options: Any) -> CheckResult:
    return grade("structural", expected, actual, **options)


def paths(found: CheckResult) -> list[str]:
    return [mismatch.path for mismatch in found.mismatches]


@pytest.mark.req("PIPE-11")
@given(JSON, st.booleans())
def test_anything_is_like_itself(value: Any, strict: bool) -> None:
    assert structural(value, value, strict=strict).passed
    assert grade("equals", value, value).passed


@pytest.mark.req("PIPE-3", "PIPE-10", "PIPE-11")
@pytest.mark.parametrize(
    ("names", "output", "further"),
    [
        (["a", "b"], Output({"a": 1}), []),
        (["a"], Output({"a": 1, "b": 2, "c": [3], "ignored": 4}), ["b", "c"]),
        (["a.x", "b[0]"], Output({"a": {}, "b": [], "x": 1}), ["x"]),
        (["output"], Output({"s": 1, "t": 2}, plain="output.s"), ["t"]),
        (["output", "t"], Output({"t": 2}, {"s": 1}, plain="steps.s"), []),
        (["a"], Output('{"a": 1, "b": 2}'), ["b"]),
        (["output"], Output('{"a": 1, "b": 2}'), []),
        (["a"], Output("text"), []),
    ],
)
def test_further_outputs_are_mismatches(names: list[str], output: Output, further: list[str]) -> None:
    matcher = by_kind("only_fields")
    assert matcher is not None and matcher.grade is not None
    check = Check("only_fields", names, options={"ignore_fields": ["ignored"]})
    found = matcher.grade(check, MatchContext(None, output, Case("c", {})))
    assert found is not None and found.passed is not bool(further)
    assert paths(found) == further and all(mismatch.expected is ABSENT for mismatch in found.mismatches)


# -- PIPE-11, row by row -----------------------------------------------------------------------------

Row = tuple[str, Any, Any, dict[str, Any], list[str], list[str]]
"""What it is about, expected, actual, options, and where it fails: leniently, strictly."""

BIG = 10**40
SUBSETS: list[Row] = [
    ("the same", {"a": 1}, {"a": 1}, {}, [], []),
    ("the order of keys", {"a": 1, "b": 2}, {"b": 2, "a": 1}, {}, [], []),
    ("an extra key", {"a": 1}, {"a": 1, "b": 2}, {}, [], ["b"]),
    ("an extra key that is null", {"a": 1}, {"a": 1, "b": None}, {}, [], ["b"]),
    ("no key expected", {}, {"a": 1}, {}, [], ["a"]),
    ("a missing key", {"a": 1, "b": 2}, {"a": 1}, {}, ["b"], ["b"]),
    ("a missing key that is null", {"a": None}, {}, {}, ["a"], ["a"]),
    ("extra keys inside", {"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d": 3}, {}, [], ["a.c", "d"]),
    ("extra keys in a list", [{"x": 1}], [{"x": 1, "y": 2}], {}, [], ["[0].y"]),
    ("a longer list", {"a": [1]}, {"a": [1, 2, 3]}, {}, ["a[1]", "a[2]"], ["a[1]", "a[2]"]),
    ("a shorter list", {"a": [1, 2]}, {"a": [1]}, {}, ["a[1]"], ["a[1]"]),
    ("an empty list expected", {"a": []}, {"a": [{}]}, {}, ["a[0]"], ["a[0]"]),
    ("another order in a list", [1, 2], [2, 1], {}, ["[0]", "[1]"], ["[0]", "[1]"]),
    ("lists in lists", [[1, [2]]], [[1, [3]]], {}, ["[0][1][0]"], ["[0][1][0]"]),
]
TOLERANCES: list[Row] = [
    ("inclusive", {"a": 1.0}, {"a": 1.1}, {"tolerance": 0.1}, [], []),
    ("inclusive, as written", {"a": 0.3}, {"a": 0.1}, {"tolerance": 0.2}, [], []),
    ("just beyond", {"a": 1.0}, {"a": 1.11}, {"tolerance": 0.1}, ["a"], ["a"]),
    ("below as well as above", {"a": 1.0}, {"a": 0.9}, {"tolerance": 0.1}, [], []),
    ("absolute", {"a": 1000.0}, {"a": 1000.2}, {"tolerance": 0.1}, ["a"], ["a"]),
    ("at any depth", {"a": [{"b": [1.0]}]}, {"a": [{"b": [1.05]}]}, {"tolerance": 0.1}, [], []),
    ("integers", [10], [11], {"tolerance": 1}, [], []),
    ("an integer and a float", [10], [10.5], {"tolerance": 0.5}, [], []),
    ("integers beyond any float", [BIG**10], [BIG**10 + 1], {"tolerance": 1}, [], []),
    ("never for booleans", [True, False], [1, True], {"tolerance": 1}, ["[0]", "[1]"], ["[0]", "[1]"]),
    ("never for texts", ["1"], ["2"], {"tolerance": 1}, ["[0]"], ["[0]"]),
    ("none, and integers", [10], [11], {}, ["[0]"], ["[0]"]),
    ("none, and large integers", [BIG], [BIG + 1], {}, ["[0]"], ["[0]"]),
    ("none, and rounding", [0.3], [0.1 + 0.2], {}, [], []),
    ("none, and more than rounding", [0.3], [0.3001], {}, ["[0]"], ["[0]"]),
    ("a small one, and rounding", [1e12], [1e12 + 0.1], {"tolerance": 1e-6}, [], []),
    ("nothing near zero", [0.0], [1e-12], {}, ["[0]"], ["[0]"]),
]
DEEP = {"a": {"id": 1, "x": 2}, "at": "now"}
IGNORED: list[Row] = [
    ("on both sides", DEEP, {"a": {"id": 9, "x": 2}, "at": "then"}, {"ignore_fields": ["id", "at"]}, [], []),
    ("only expected", DEEP, {"a": {"x": 2}}, {"ignore_fields": ["id", "at"]}, [], []),
    ("only actual", {"a": {"x": 2}}, DEEP, {"ignore_fields": ["id", "at"]}, [], []),
    ("not all of them", DEEP, {"a": {"x": 2}}, {"ignore_fields": ["id"]}, ["at"], ["at"]),
    ("in lists", [{"id": 1, "x": 1}], [{"id": 2, "x": 2}], {"ignore_fields": ["id"]}, ["[0].x"], ["[0].x"]),
    ("with all that is inside", {"a": {"b": 1}}, {"a": {"b": 2}}, {"ignore_fields": ["a"]}, [], []),
    ("names, not values", ["id"], ["no"], {"ignore_fields": ["id"]}, ["[0]"], ["[0]"]),
    ("with a tolerance", DEEP, {"a": {"x": 3}}, {"ignore_fields": ["id", "at"], "tolerance": 1}, [], []),
]
PREFIXES: list[Row] = [
    ("contains", ["contains:ell", "contains: hello"], ["hello", "hello"], {}, [], []),
    ("contains what is not there", ["contains:x"], ["hello"], {}, ["[0]"], ["[0]"]),
    ("regex", [{"a": r"regex:^h.*o$"}], [{"a": "hello"}], {}, [], []),
    ("regex that does not fit", [{"a": r"regex:^h$"}], [{"a": "hello"}], {}, ["[0].a"], ["[0].a"]),
    ("strictly only texts", ["contains:1", r"regex:\d"], [12, 3], {}, [], ["[0]", "[1]"]),
    ("other prefixes are texts", ["note:x"], ["x"], {}, ["[0]"], ["[0]"]),
    ("a prefix in the actual text", ["x"], ["contains:x"], {}, ["[0]"], ["[0]"]),
]


@pytest.mark.req("PIPE-10", "PIPE-11")
@pytest.mark.parametrize("row", [*SUBSETS, *TOLERANCES, *IGNORED, *PREFIXES], ids=lambda row: row[0])
def test_where_it_fails(row: Row) -> None:
    _, expected, actual, options, leniently, strictly = row
    for strict, where in ((False, leniently), (True, strictly)):
        for depth in (0, 1, 3):
            found = structural(wrapped(expected, depth), wrapped(actual, depth), strict=strict, **options)
            inside = "w[0]" * (depth > 0) + ".w[0]" * (depth - 1)
            dots = ["" if path.startswith("[") or not inside else "." for path in where]
            assert paths(found) == [f"{inside}{dot}{path}" for dot, path in zip(dots, where, strict=True)]
            assert found.passed is not bool(where)


def wrapped(value: Any, depth: int) -> Any:
    return {"w": [wrapped(value, depth - 1)]} if depth else value


TYPES: dict[str, tuple[Any, ...]] = {
    "null": (None,),
    "boolean": (True, False),
    "number": (1, 1.0, 0, 0.0, 2.5),
    "text": ("1", "", "true", "null"),
    "list": ([], [1]),
    "object": ({}, {"a": 1}),
}


@pytest.mark.req("PIPE-11")
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("tolerance", [0, 5])
@pytest.mark.parametrize("expected_type", TYPES)
@pytest.mark.parametrize("actual_type", TYPES)
def test_types_are_never_taken_for_one_another(
    expected_type: str, actual_type: str, tolerance: float, strict: bool
) -> None:
    for expected, actual in product(TYPES[expected_type], TYPES[actual_type]):
        found = structural({"a": expected}, {"a": actual}, strict=strict, tolerance=tolerance)
        if expected_type != actual_type:
            assert paths(found) == ["a"]
        elif expected == actual:
            assert found.passed


# -- PIPE-11, laws ------------------------------------------------------------------------------------

NAMES = st.sampled_from("abc")
NUMBERS = st.integers() | st.floats(allow_nan=False) | st.sampled_from([0, 0.1, 0.2, 0.3, 1, 1.1, 1e12, 1e12 + 1, -1])
NAMED = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.sampled_from(["", "a", "contains:a", "regex:^a?$"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
TOLERANCE = st.sampled_from([0, 1e-9, 1e-6, 0.1, 0.2, 1, 1000]) | st.floats(0, 1e15)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    """Two values that are alike in most places, which two at random never are."""
    expected = draw(NAMED)
    return expected, draw(st.just(expected) | NAMED | near(expected))


def near(value: Any) -> st.SearchStrategy[Any]:
    if isinstance(value, dict):
        fields = {name: near(inner) for name, inner in value.items()}
        return st.tuples(st.fixed_dictionaries(fields), st.dictionaries(NAMES, NAMED, max_size=1)).map(
            lambda both: both[1] | both[0]
        )
    if isinstance(value, list):
        return st.tuples(*map(near, value)).map(list)
    if isinstance(value, float) or type(value) is int:
        return st.sampled_from([value, value + 1, value - 0.1 if abs(value) < 1e300 else value])
    return st.just(value) | NAMED


@pytest.mark.req("PIPE-11")
@given(pairs(), TOLERANCE, st.sets(NAMES))
def test_lenient_never_fails_where_strict_passes(pair: tuple[Any, Any], tolerance: float, ignored: set[str]) -> None:
    options = {"tolerance": tolerance, "ignore_fields": sorted(ignored)}
    lenient, strict = (structural(*pair, strict=strict, **options) for strict in (False, True))
    assert lenient.passed or not strict.passed
    assert set(paths(lenient)) <= set(paths(strict))


BASES = st.sampled_from([0, 0.3, 1, 1000.0, 1e9, 1e12, BIG])
STEPS = st.sampled_from([0, 1e-12, 1e-9, 1e-6, 0.1, 0.2, 1, 5])
APART = st.tuples(BASES, STEPS).map(lambda both: ([both[0]], [both[0] + both[1]]))


@pytest.mark.req("PIPE-11")
@given(APART | pairs(), TOLERANCE, TOLERANCE, st.booleans())
def test_a_larger_tolerance_never_fails_more(pair: tuple[Any, Any], first: float, second: float, strict: bool) -> None:
    smaller, larger = (structural(*pair, strict=strict, tolerance=one) for one in sorted((first, second)))
    assert set(paths(larger)) <= set(paths(smaller))


@pytest.mark.req("PIPE-11")
@given(pairs(), st.sets(NAMES), st.sets(NAMES), st.booleans())
def test_ignoring_more_never_fails_more(pair: tuple[Any, Any], ignored: set[str], more: set[str], strict: bool) -> None:
    before = structural(*pair, strict=strict, ignore_fields=sorted(ignored))
    after = structural(*pair, strict=strict, ignore_fields=sorted(ignored | more))
    assert set(paths(after)) <= set(paths(before))


@pytest.mark.req("PIPE-11")
@given(pairs(), st.booleans())
def test_every_mismatch_shows_what_stands_at_its_path(pair: tuple[Any, Any], strict: bool) -> None:
    # As a text at the top, JSON is read.
    expected, actual = {"a": pair[0]}, {"a": pair[1]}
    found = structural(expected, actual, strict=strict)
    assert len(set(paths(found))) == len(found.mismatches)
    for mismatch in found.mismatches:
        assert same(at_path(expected, mismatch.path), mismatch.expected)
        assert same(at_path(actual, mismatch.path), mismatch.actual)


def at_path(value: Any, path: str) -> Any:
    for name, index in re.findall(r"(\w+)|\[(\d+)\]", path.replace("].", "]")):
        step: Any = int(index) if index else name
        try:
            value = value[step]
        except (KeyError, IndexError):
            return ABSENT
    return value


def same(left: Any, right: Any) -> bool:
    return repr(left) == repr(right)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [leaf for step, one in inner for leaf in leaves(one, (*path, step))]
    return found or [path]


def changed(value: Any, places: set[tuple[Any, ...]], path: tuple[Any, ...] = ()) -> Any:
    if path in places:
        return "something else"
    if isinstance(value, dict):
        return {name: changed(inner, places, (*path, name)) for name, inner in value.items()}
    if isinstance(value, list):
        return [changed(inner, places, (*path, at)) for at, inner in enumerate(value)]
    return value


@pytest.mark.req("PIPE-11")
@given(st.data(), st.booleans())
def test_all_mismatches_are_reported(data: st.DataObject, strict: bool) -> None:
    expected = {"a": data.draw(JSON)}
    places = data.draw(st.sets(st.sampled_from(leaves(expected))))
    found = structural(expected, changed(expected, places), strict=strict)
    assert sorted(paths(found)) == sorted(show_path(place) for place in places)


@pytest.mark.req("PIPE-11")
def test_every_mismatch_has_its_path_and_both_sides() -> None:
    expected = {"a": 1, "b": {"c": [1, 2, 3]}, "d": "x", "e": None}
    found = structural(expected, {"a": 2, "b": {"c": [1, 9]}, "d": ["x"], "e": 0})
    seen = {mismatch.path: (mismatch.expected, mismatch.actual) for mismatch in found.mismatches}
    assert seen == {"a": (1, 2), "b.c[1]": (2, 9), "b.c[2]": (3, ABSENT), "d": ("x", ["x"]), "e": (None, 0)}
    assert "(and 4 more)" in found.reason


@pytest.mark.req("PIPE-10")
def test_without_tolerance_floats_differ_by_rounding_only() -> None:
    assert structural(0.3, 0.1 + 0.2).passed
    assert structural(0.3, 0.3001).passed is False
    assert structural(10**18, 10**18 + 1).passed is False
    assert grade("equals", 0.3, 0.1 + 0.2).passed is False
    assert structural(1, 1, tolerance="much").passed is None


@pytest.mark.req("PIPE-11")
def test_a_pattern_that_does_not_compile_is_no_verdict() -> None:
    assert structural({"a": "regex:("}, {"a": "x"}).passed is None


@pytest.mark.req("PIPE-11")
def test_semantic_texts_are_asked_about() -> None:
    async def embed(texts: list[str]) -> list[list[float]]:
        return [[1.0, 0.0] if "hi" in text else [0.0, 1.0] for text in texts]

    async def ask(seen: MatchContext, services: Services) -> CheckResult:
        assert matcher is not None and matcher.ask is not None
        return await matcher.ask(check, seen, services)

    matcher = by_kind("structural")
    assert matcher is not None and matcher.grade is not None
    check = Check("structural", {"a": "semantic:hi", "b": "semantic:hi", "c": 1})
    value = {"a": "hi there", "b": "no", "c": 2}
    seen = MatchContext(value, Output(value), Case("c", {}))
    assert matcher.grade(check, seen) is None
    assert paths(asyncio.run(ask(seen, Services(embed=embed)))) == ["c", "b"]
    agreeing = MatchContext({**value, "b": "hi", "c": 1}, Output(), Case("c", {}))
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
