"""Lists and objects written as text in a cell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.data.cells import as_list, as_object


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('["a", "b"]', ["a", "b"]),
        ("['a', \"it's\", None, 1.5]", ["a", "it's", None, 1.5]),
        ("['one text'\n 'another one']", ["one text", "another one"]),
        ("[('a', 'b')]", [["a", "b"]]),
        ("", []),
        (None, []),
    ],
)
def test_list_text_is_read(text: object, expected: list[object]) -> None:
    assert as_list(text) == expected


@pytest.mark.parametrize(
    "text", ["['a', 'b'", "[a, b]", "['a' ... 'b']", "[1e999]", "[b'x']", "__import__('os')", "['\\ud800']"]
)
def test_text_that_is_no_list_of_json_values_is_not_read(text: str) -> None:
    assert as_list(text) is None


def test_a_separator_parts_plain_text_only() -> None:
    assert as_list("a | b|", "|") == ["a", "b"]
    assert as_list('["a|b"]', "|") == ["a|b"]
    assert as_list(5, "|") is None


def test_object_text_is_read() -> None:
    assert as_object('{"a": 1}') == {"a": 1}
    assert as_object("{'a': True}") == {"a": True}
    assert as_object(" ") == {}
    assert as_object("a: 1") is None


@given(st.lists(st.text() | st.integers(-(2**53), 2**53) | st.none() | st.booleans()))
def test_the_repr_of_a_list_reads_back(items: list[object]) -> None:
    try:
        repr(items).encode()
    except UnicodeEncodeError:
        return
    assert as_list(repr(items)) == items


@given(st.text())
def test_no_text_raises(text: str) -> None:
    as_list("[" + text)
    as_object("{" + text)
