"""Regular expressions of users."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalloom.core.patterns import BadPattern, Found, find, search


def test_a_search_without_end_is_stopped() -> None:
    for pattern in (r"(a+)+$", r"^(a|a)+$", "a?" * 60 + "a" * 60 + "$"):
        with pytest.raises(BadPattern, match=r"stopped after 0\.1 s"):
            search(pattern, "a" * 59 + "b", seconds=0.1)
    assert search(r"(a+)+b", "aaab")


def test_a_search_off_the_main_thread_is_stopped_too() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(search, r"\d+\ud800?", "id 7 \ud800").result()
        assert not pool.submit(search, "A+", "a").result()
        assert pool.submit(search, "A+", "a", re.IGNORECASE).result()
        with pytest.raises(BadPattern, match="stopped"):
            pool.submit(search, r"^(a|a)+$", "a" * 60 + "b", 0, 0.1).result()
        assert pool.submit(search, "a|b", "b").result()


def test_what_is_found_is_the_same_in_every_thread() -> None:
    wanted = Found("b7", ("7", None), {"number": "7", "rest": None})
    pattern = r"b(?P<number>\d+)(?:-(?P<rest>x+))?"
    with ThreadPoolExecutor(1) as pool:
        assert find(pattern, "ab7") == pool.submit(find, pattern, "ab7").result() == wanted
        assert find(pattern, "ab") is pool.submit(find, pattern, "ab").result() is None


@settings(max_examples=50)
@given(st.sampled_from(["a+", "(a)|(b)", "(a*)(b?)c", "^(?:a|b)+$", "x?"]), st.text("abcx", max_size=20))
def test_what_is_found_is_what_re_finds(pattern: str, text: str) -> None:
    ours, theirs = find(pattern, text), re.search(pattern, text)
    assert (ours and (ours.whole, ours.groups)) == (theirs and (theirs[0], theirs.groups()))
