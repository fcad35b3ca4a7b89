"""A phrase in a text: found whole, or only inside a longer number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.phrases import contains_phrase, find_phrase, phrase_places, plain_width

pytestmark = pytest.mark.req("RAG-8")
NUMBER = st.from_regex(r"[0-9]{1,4}([.,][0-9]{1,3})?", fullmatch=True)
WORDS = st.text(alphabet="个天 days年x", max_size=6)


@pytest.mark.parametrize(
    ("text", "phrase", "found"),
    [
        ("8 个工作日", "8 个", "yes"),
        ("38 个工作日", "8 个", "in a longer number"),
        ("3.8 个工作日", "8 个", "in a longer number"),
        ("1,008 个工作日", "008 个", "in a longer number"),
        ("38 个，8 个", "8 个", "yes"),
        ("第 8. 个", "8", "yes"),
        ("共 8,", "共 8", "yes"),
        ("共 8,5", "共 8", "in a longer number"),
        ("共 85", "共 8", "in a longer number"),
        ("版本 v8 天", "8 天", "yes"),
        (".8 个", "8 个", "yes"),
        ("工作日", "8 个", "no"),
        ("第 38 个工作日", "工作日", "yes"),
    ],
)
def test_where_a_number_ends(text: str, phrase: str, found: str) -> None:
    assert find_phrase(plain_width(text), plain_width(phrase)) == found


def test_width_does_not_matter() -> None:
    assert contains_phrase("共３８个", "38个") and not contains_phrase("共３８个", "8个")


@given(NUMBER, WORDS, WORDS, WORDS)
def test_a_whole_number_is_found_wherever_it_stands(number: str, before: str, unit: str, after: str) -> None:
    assert contains_phrase(f"{before}{number}{unit}{after}", f"{number}{unit}")


@given(st.integers(0, 9), st.sampled_from(["", ".", ","]), NUMBER, st.sampled_from(["个", " days", "x"]))
def test_a_longer_number_never_has_a_shorter_one_in_it(digit: int, mark: str, number: str, unit: str) -> None:
    assert not contains_phrase(f"{digit}{mark}{number}{unit}", f"{number}{unit}")
    assert not contains_phrase(f"{unit}{number}{mark}{digit}", f"{unit}{number}")


@given(st.text(max_size=30), st.text(min_size=1, max_size=5))
def test_without_digits_at_its_ends_a_phrase_is_a_part_of_the_text(text: str, phrase: str) -> None:
    wide, plain = plain_width(text), plain_width(phrase)
    if plain and not (plain[0].isdecimal() or plain[-1].isdecimal()):
        assert contains_phrase(text, phrase) is (plain in wide)


def test_the_places_of_a_phrase_are_offsets_in_the_text_as_it_is() -> None:
    text = "满８ 个月，38 个，８ 个"
    places = phrase_places(text, "8 个")
    assert [text[start:end] for start, end in places] == ["８ 个", "８ 个"]
    assert phrase_places("any", "") == []
