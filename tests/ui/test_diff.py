"""A diff shows both texts in full, and no line as changed that is not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evalloom.ui.diff import diff_lines

texts = st.text() | st.lists(st.sampled_from(["a\n", "b\n", "c\n", "d"]), max_size=8).map("".join)


@given(texts, texts)
def test_both_texts_can_be_read_from_a_diff(before: str, after: str) -> None:
    lines = list(diff_lines(before, after))
    assert "".join(line.text for line in lines if line.kind != "added") == before
    assert "".join(line.text for line in lines if line.kind != "removed") == after


@given(texts)
def test_equal_texts_have_no_changes(text: str) -> None:
    assert {line.kind for line in diff_lines(text, text)} <= {"same"}


def test_removed_lines_come_before_added_ones() -> None:
    kinds = [(line.kind, line.text) for line in diff_lines("one\ntwo\n", "one\n2\n")]
    assert kinds == [("same", "one\n"), ("removed", "two\n"), ("added", "2\n")]
