"""Texts for messages: plurals, quotes, descriptions and shortening."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.text import (
    clamp,
    describe,
    did_you_mean,
    list_names,
    one_line,
    percent,
    pluralize,
    printable,
    quote,
    shorten,
    type_name,
)


def test_a_count_has_its_noun_and_separated_thousands() -> None:
    assert [pluralize(count, "case") for count in (0, 1, 2, 12_345)] == ["0 cases", "1 case", "2 cases", "12,345 cases"]


@given(st.text(), st.integers(1, 50))
def test_a_shortened_text_fits_and_keeps_its_beginning(text: str, limit: int) -> None:
    short = shorten(text, limit)
    assert len(short) <= limit and text.startswith(short.removesuffix("…") if short != text else text)
    assert (short == text) == (len(text) <= limit or text == text[: limit - 1] + "…")


@given(st.text())
def test_nothing_that_is_printed_can_drive_a_terminal(text: str) -> None:
    assert printable(text).isprintable() and one_line(text).isprintable() and quote(text).isprintable()


def test_a_long_text_is_quoted_whole_and_says_that_more_follows() -> None:
    assert quote("a" * 100, 10) == "'aaaaaaaaa…'" and quote([1] * 100, 10) == "[1, 1, 1,…"
    assert clamp("abcdef", 4) == "abcd… (2 characters more)"


@pytest.mark.parametrize(
    ("value", "description"),
    [
        ("a", "'a'"),
        (0, "0"),
        (1.5, "1.5"),
        (10**30, "an integer"),
        (True, "a boolean"),
        (None, "null"),
        ([], "an empty list"),
        ({}, "an empty object"),
        ([1], "a list"),
        (b"", "bytes"),
    ],
)
def test_a_value_is_shown_if_it_is_short_and_named_by_its_type_if_not(value: object, description: str) -> None:
    assert describe(value) == description


def test_types_have_the_names_of_json() -> None:
    values: list[object] = [None, True, {}, 1.0]
    assert [type_name(value) for value in values] == ["null", "a boolean", "an object", "a number"]


def test_a_list_of_names_stays_short() -> None:
    assert list_names([]) == "none" and list_names(["a", "b"]) == "a, b"
    assert list_names(range(14)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more"


def test_only_a_near_word_is_proposed() -> None:
    assert did_you_mean("contians", ["contains", "equals"]) == ". Did you mean 'contains'?"
    assert did_you_mean("zzz", ["contains"]) == ""
    assert did_you_mean("contains" * 1000, ["contains"]) == ""


def test_only_what_is_whole_is_shown_as_whole() -> None:
    assert [percent(share) for share in (0, 0.0004, 0.376, 0.9995, 1)] == ["0.0%", "<0.1%", "37.6%", ">99.9%", "100.0%"]
    assert [percent(share, 0) for share in (0.001, 0.996, 1)] == ["<1%", ">99%", "100%"]
