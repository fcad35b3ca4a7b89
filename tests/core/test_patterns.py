"""Regular expressions of users: what `re` matches, and a limit."""

import re
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evalloom.core import patterns
from evalloom.core.patterns import BadPattern, PatternMatch, find, pattern_error, search

# Where `regex` by itself matches other texts than `re`, or means something else.
SPECIAL = [
    r"\w+", r"\W+", r"\b\w", r"\w\b", r"\B", r"\s", r"\S+", r"[^\W\d_]+", r"[\W\d]", r"[\s\S]+", r"[^\s\S]", r"\d+",
    r"(?a)\w+", r"(?a:\w)\w", r"(?i)i", r"(?i)[a-z]+", r"(?i)[A-Z]", r"(?i)[^i]", r"(?i)İ", r"(?i)ss", r"(?i)ß",
    r"(?i)\w+", r"(?i)[\w-]+", r"(?i:k)K", r"(?ai)k", r"[[:alpha:]]+", r"[[a]b]", r"[!--]", r"[a&&b]", r"[a||b]",
    r"[a~~b]", r"a{e}", r"(?:cat){e<=1}", r"{e}", r"x{,3}", r"x{a}", r"a++b", r"a*+a", r"(?>a+)b", r"(?x) a b # c",
    r"(?m)^b$", r"^b$", r"(?s)a.b", r"a.b", r"(a)?(?(1)b|c)", r"(?P<n>a|b)(?P=n)", r"(a)|b", r"(?:(a)|(b))*",
    r"(?<=a)b", r"(?<!a)b", r"a*?b", r"(a|ab)(c|bcd)(d*)", r"", r"\Z", r"[\]\[^-]", r"\N{BULLET}", r"\.\-\/\ ",
]  # fmt: skip
TEXTS = [
    "", "a", "ab", "aab", "b", "c", "abcd", "ss", "SS", "ß", "ẞ", "K", "k", "\u212a", "i", "I", "İ", "ı", "½", "²",
    "e\u0301", "\u0345", "ⓐ", "\u200d", "नमस्ते", "กำลัง", "٣", "\x1c", "\x85", "\u2028", "ab\n", "a\nb", "b\nb", "_",
    "cat", "cut", "a{e}", "cat{e}", "{e}", "x{a}", "xxx", "]", "a]", "-", "&", "|", "~", "[:alpha:]", "•", ".-/ ", "bb",
    "\ud800", "😀", "中文", "foo bar", "aaab", "Straße",
]  # fmt: skip


def spans(pattern: str, text: str, flags: int = 0) -> tuple[object, object]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = re.search(pattern, text, flags)
    ours = patterns._compile_with_limit(pattern, flags).search(text)
    return ours and (tuple(ours.regs), ours.groupdict()), theirs and (theirs.regs, theirs.groupdict())


@pytest.mark.parametrize("pattern", SPECIAL)
def test_a_pattern_matches_what_re_matches(pattern: str) -> None:
    for flags in (0, re.IGNORECASE, re.MULTILINE | re.DOTALL, re.IGNORECASE | re.ASCII):
        for text in TEXTS:
            ours, theirs = spans(pattern, text, flags)
            assert ours == theirs, (pattern, flags, text)


@st.composite
def written(draw: st.DrawFn) -> str:
    """Patterns that are mostly valid: pieces of syntax, side by side and inside of groups."""
    pieces = ["a", "B", "é", "ı", ".", r"\w", r"\W", r"\s", r"\b", r"\B", "[ab]", r"[^\w-]", r"[\Wa]", "^", "$", "|"]
    around = ["({})", "(?:{})", "(?={})", "(?!{})", "(?>{})", "(?i:{})", "(?-i:{})", "(?s:{})"]
    repeats = ["", "", "?", "*", "+", "{0,2}", "??", "*?", "?+"]
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        part = draw(st.sampled_from(pieces))
        if draw(st.booleans()):
            part = draw(st.sampled_from(around)).format(part + draw(st.sampled_from(pieces)))
        parts.append(part + draw(st.sampled_from(repeats)))
    return "".join(parts)


@settings(max_examples=300, deadline=None)
@given(written(), st.text("aAbBéÉ½ıİ\n -\u0301", max_size=8), st.sampled_from([0, re.IGNORECASE, re.ASCII]))
@example(r"(\b|a)*", "a", 0)
def test_any_pattern_matches_what_re_matches(pattern: str, text: str, flags: int) -> None:
    if not pattern_error(pattern, flags):
        ours, theirs = spans(pattern, text, flags)
        assert ours == theirs


def test_a_stopped_search_says_so() -> None:
    with pytest.raises(BadPattern, match=re.escape("the search for '^(a|a)+$' was stopped after 0.1 s")):
        search("^(a|a)+$", "a" * 60 + "b", seconds=0.1)


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"^(a|a)+$", "a?" * 60 + "a" * 60 + "$", r"^(\w+\s?)*$"])
def test_a_search_without_end_ends_in_every_thread(pattern: str) -> None:
    text = "a" * 59 + "-"
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(search, pattern, text, seconds=0.1)
        with suppress(BadPattern):
            # `regex` sees that some of them cannot match.
            assert not search(pattern, text, seconds=0.1)
        with suppress(BadPattern):
            assert not future.result()


def test_a_search_that_others_slow_down_is_not_stopped() -> None:
    pattern, text, is_over = r"(?:a|b|ab)*c", "ab" * 12, threading.Event()
    compiled = patterns._compile_with_limit(pattern, 0)
    start = time.thread_time()
    compiled.search(text)
    needed = time.thread_time() - start

    def burn() -> None:
        while not is_over.is_set():
            with ThreadPoolExecutor(1):
                patterns._compile_with_limit("^(a|a)+$", 0).search("a" * 22 + "b", concurrent=True)

    threads = [threading.Thread(target=burn) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        assert search(pattern, text, seconds=max(needed * 2, 0.02)) is False
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize(
    ("pattern", "length", "is_quick"),
    [
        ("refund", 100_000, True),
        (r"400[- ]?820[- ]?1234", 100_000, True),
        (r"\d+", 500, True),
        (r"\d+", 100_000, False),
        (r"(a+)+$", 30, False),
        (r"(a|a)*$", 30, False),
        (r"(a?){30}b", 30, False),
        (r"(.*),(.*),(.*)", 200, False),
    ],
)
def test_re_searches_only_what_it_ends_soon(pattern: str, length: int, is_quick: bool) -> None:
    assert patterns._is_quick(pattern, 0, length) is is_quick


@pytest.mark.parametrize("pattern", ["a{4000000000}", "(?:a{1000}){1000}", "(?:(?:ab){999}c){999}"])
def test_a_pattern_that_would_fill_the_memory_is_refused(pattern: str) -> None:
    assert pattern_error(pattern).startswith("repeats too much")
    with pytest.raises(BadPattern, match="repeats too much"):
        search(pattern, "a")


def test_errors_are_those_of_python() -> None:
    assert pattern_error("(a") == "missing ), unterminated subpattern at position 0"
    assert pattern_error(r"\p{L}") == r"bad escape \p at position 0" and pattern_error("(?P<n>a)") == ""
    with pytest.raises(BadPattern, match=re.escape("expected a regular expression, got '(a': missing )")):
        search("(a", "a")


@pytest.mark.parametrize("repeats", ["", "(?:x*y*z*)*"])
def test_a_match_has_its_groups(repeats: str) -> None:
    match = find(r"b(?P<number>\d+)(?:-(?P<rest>x+))?" + repeats, "ab7")
    assert match == PatternMatch("b7", ("7", None), {"number": "7", "rest": None})
    assert (match.by_number(0), match.by_number(1)) == ("b7", "7")
    assert find(r"b(\d+)" + repeats, "ab") is None


def test_regex_is_imported_only_for_a_search_that_needs_a_limit() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from evalloom.core.patterns import search; search('a?b', 'ab'); assert 'regex' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
