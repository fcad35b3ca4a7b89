"""JSON is compared by key: each change has its path, and what the matchers call equal is no change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.matchers.structural import CompareRules, compare
from evalloom.ui.diff import TextDiff
from evalloom.ui.json_diff import JsonDiff, compare_json, compare_values

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from([1, 1.0, "1"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4)
)
STRICT = CompareRules(strict=True, has_patterns=False, relative=0.0)


def changes(a: Any, b: Any) -> list[str]:
    diff = compare_json(a, b)
    assert diff is not None
    return [f"{change.path}: {change.before} → {change.after}" for change in diff.changes]


def test_each_change_has_its_path() -> None:
    before = {"city": "Paris", "n": 1, "tags": ["a", "b"], "at": {"odd key": True, "0": None}}
    after = '{"at": {"0": 0, "odd key": 1}, "n": 1.0, "tags": ["new", "a", "b"], "城市": "里昂", "city": "Lyon"}'
    assert changes(before, after) == [
        '$.city: "Paris" → "Lyon"',
        '$.tags[0]:  → "new"',
        '$.at["odd key"]: true → 1',
        '$.at["0"]: null → 0',
        '$.城市:  → "里昂"',
    ]


def test_added_and_removed_keys_and_items_are_listed() -> None:
    diff = compare_json([{"a": 1}, 2, 3], [{"b": 1}, 3])
    assert diff is not None
    assert [(change.kind, change.path) for change in diff.changes] == [
        ("removed", "$[0].a"),
        ("added", "$[0].b"),
        ("removed", "$[1]"),
    ]


def test_the_order_of_keys_and_the_form_do_not_count() -> None:
    assert compare_values('{"a": 1, "b": [2]}', '{"b":[2.0],"a":1}') == JsonDiff(())


def test_longer_texts_inside_are_compared_by_word() -> None:
    diff = compare_json({"text": "one\ntwo"}, {"text": "one\n2"})
    assert diff is not None and diff.changes[0].text is not None
    assert [line.kind for line in diff.changes[0].text.lines] == ["same", "removed", "added"]
    spaced = compare_json(["a b"], ["a  b"])
    assert spaced is not None and spaced.changes[0].text is not None and spaced.changes[0].text.is_whitespace_only


@pytest.mark.parametrize(
    ("a", "b"),
    [("plain", "{}"), ("[1, NaN]", "[1]"), ("1", "2"), ("[1e999]", "[2]"), ("[" * 100_000, "[]"), (None, {}), ("", [])],
)
def test_what_is_not_json_on_both_sides_is_compared_as_text(a: Any, b: Any) -> None:
    assert compare_json(a, b) is None
    assert isinstance(compare_values(a, b), TextDiff)


def test_deep_values_and_values_that_contain_themselves_do_not_raise() -> None:
    deep: Any = 1
    other: Any = 2
    for _ in range(20_000):
        deep, other = [deep], [other]
    assert changes(deep, other) == [f"${'[0]' * 20_000}: 1 → 2"]
    circle: list[Any] = []
    circle.append(circle)
    assert isinstance(compare_values(circle, deep), TextDiff)


def test_more_changes_than_a_page_shows_are_counted() -> None:
    diff = compare_json(list(range(1000)), {"a": 1})
    assert diff is not None and len(diff.changes) == 1
    many = compare_json(dict.fromkeys(map(str, range(1000)), 1), dict.fromkeys(map(str, range(1000)), 2))
    assert many is not None and (len(many.changes), many.hidden) == (200, 800)


@given(values, values)
def test_equal_is_what_the_matchers_call_equal(a: Any, b: Any) -> None:
    diff = compare_json([a], [b])
    assert diff is not None
    assert diff.is_equal == (not compare([a], [b], STRICT).mismatches)


@given(values)
def test_a_value_and_its_text_are_equal(value: Any) -> None:
    text = json.dumps([value])
    if "NaN" not in text and "Infinity" not in text:
        assert compare_json([value], text) == JsonDiff(())


@given(values | st.text(), values | st.text())
def test_any_two_values_are_compared(a: Any, b: Any) -> None:
    there, back = compare_values(a, b), compare_values(b, a)
    assert type(there) is type(back) and there.is_equal == back.is_equal
