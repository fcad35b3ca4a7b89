"""Failures grouped by cause: what differs from case to case does not part them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.analysis.causes import Cause, cause_key, group_failures, merge_causes, normalise, shared_reason

pytestmark = pytest.mark.req("WORK-11")


def test_failures_of_one_cause_are_one_group_and_the_most_frequent_comes_first() -> None:
    rows = [
        ("c1", "", "judge", "too long"),
        ("c2", "classify", "contains", "expected 'Paris', got 'Lyon'"),
        ("c3", "classify", "contains", "expected 'Rome', got \"It's 12\""),
        ("c2", "classify", "contains", "expected 'Paris', got 'Nice'"),
    ]
    assert group_failures(rows) == [
        Cause("classify", "contains", "expected …, got …", 3, ["c2", "c3"], "expected 'Paris', got 'Lyon'"),
        Cause("", "judge", "too long", 1, ["c1"], "too long"),
    ]


def test_a_reason_that_all_share_stays_as_it_is() -> None:
    cause = group_failures([("a", None, None, "HTTP 500"), ("b", "", "", "HTTP 500")])[0]
    assert (cause.reason, cause.count, cause.cases) == ("HTTP 500", 2, ["a", "b"])


@pytest.mark.parametrize(
    ("reasons", "shared"),
    [
        (["expected 'yes' in 'no 1'", "expected 'yes' in 'no 2'", "expected 'yes' in ''"], "expected 'yes' in …"),
        (["expected at most 5 words, got 12", "expected at most 5 words, got 17"], "expected at most 5 words, got …"),
        (["expected 'a b', got 'c'", "expected 'a d', got 'c'"], "expected …, got …"),
        (["expected  'a'\n in 'c d'", "expected  'a'\n in 'c e'"], "expected 'a' in …"),
        (["it's 'a' or 'b'", "it's 'a' or 'c'"], "it's 'a' or …"),
    ],
)
def test_what_all_failures_of_a_cause_expect_is_kept(reasons: list[str], shared: str) -> None:
    assert shared_reason(reasons) == shared
    [cause] = group_failures([(f"c{n}", "", "contains", reason) for n, reason in enumerate(reasons)])
    assert cause.reason == shared
    assert merge_causes([cause, cause])[0].reason == shared


@given(st.lists(st.text("ab 1'\"…,"), min_size=1, max_size=4))
def test_a_shared_reason_is_of_the_same_kind(texts: list[str]) -> None:
    reasons = [f"expected 'x' in {text}" for text in texts]
    for first in reasons:
        alike = [reason for reason in reasons if normalise(reason) == normalise(first)]
        assert normalise(shared_reason(alike)) == normalise(first)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no answer within 30 s [timed_out]", "no answer within 7.5 s [timed_out]"),
        ("got “退款” 3 times", "got “发票” 12 times"),
        ("https://a.example/x?y=1 refused", "http://b.example refused"),
        ("run 0f8fad5b-d9cb-469f-a165-70867728950e", "run 7c9e6679-7425-40de-944b-e07fc1f90ae7"),
        ("a\n  b", "a b"),
        ("输出'甲'不含", "输出'乙'不含"),
        ("no JSON in it: 'How long'", "no JSON in it: 'How long is the warran…"),
        ('missing ["a.md"]; the sources: ["b.md","c.md"]', 'missing ["x.md", "y.md"]; the sources: ["z.md"]'),
    ],
)
def test_reasons_of_one_kind_are_equal(one: str, other: str) -> None:
    assert cause_key("s", "c", one) == cause_key("s", "c", other)


@pytest.mark.parametrize("name", ["gpt-4", "field2", "it isn't there, and doesn't count"])
def test_names_and_words_stay(name: str) -> None:
    assert normalise(name) == name


@given(st.text())
def test_any_reason_is_normalised_to_itself(reason: str) -> None:
    assert normalise(normalise(reason)) == normalise(reason)
    assert group_failures([("c", "", "", reason)])[0].example == reason


def test_many_causes_are_merged_in_linear_time() -> None:
    groups = [Cause("", "equal", f"got 'a{n}'", 2, [f"c{n}", f"c{n + 1}"], f"got 'a{n}'") for n in range(20_000)]
    start = time.process_time()
    [cause] = merge_causes(groups)
    assert (cause.reason, cause.count, len(cause.cases)) == ("got …", 40_000, 20_001)
    # Copying the cases for every group takes a minute.
    assert time.process_time() - start < 5
