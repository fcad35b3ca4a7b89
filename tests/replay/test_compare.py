"""Comparing runs and replays: status from the digests, segments, and a diff that leads from one text to the other."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.replay.compare import compare_row, compare_rows, compare_runs, line_diff, segment_changes, summary_of
from evalloom.replay.recipe.trace import Answered, RunRecord, RunStatus, RunSummary, Segment, Trace

pytestmark = pytest.mark.req("REPLAY-16")

# Few different lines, so that many are alike; some hold what other programs take for the end of a line.
LINES = st.lists(st.sampled_from(["", "a", "b", "c\r", "d\u2028e", "@@ x", "-", "+ f\x0b"]), max_size=30)
TEXTS = LINES.map("\n".join) | st.text(max_size=60)


def applied(text: str, diff: list[str]) -> str:
    """What a diff makes of a text; every line it shows of the text must be there."""
    old, new, at, wanted = text.split("\n"), [], 0, 0
    for line in diff:
        if wanted == 0:
            head = re.fullmatch(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@", line)
            assert head
            start, wanted = int(head[1]) - 1, int(head[2]) + int(head[4])
            new += old[at:start]
            at = start
            assert len(new) == int(head[3]) - 1
            continue
        wanted -= 2 if line[0] == " " else 1
        if line[0] in " -":
            assert old[at] == line[1:]
            at += 1
        if line[0] in " +":
            new.append(line[1:])
    assert wanted == 0
    return "\n".join(new + old[at:])


@given(TEXTS, TEXTS)
def test_a_diff_makes_the_new_text_of_the_old(a: str, b: str) -> None:
    assert applied(a, line_diff(a, b)) == b
    assert line_diff(a, a) == []


@given(LINES, LINES)
def test_a_diff_takes_out_and_puts_in_as_little_as_can_be(a: list[str], b: list[str]) -> None:
    old, new = a or [""], b or [""]
    kept = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for row, one in enumerate(old, 1):
        for column, other in enumerate(new, 1):
            kept[row][column] = (
                kept[row - 1][column - 1] + 1 if one == other else max(kept[row - 1][column], kept[row][column - 1])
            )
    diff = line_diff("\n".join(a), "\n".join(b))
    assert sum(line[0] in "+-" for line in diff) == len(old) + len(new) - 2 * kept[-1][-1]


def test_a_diff_shows_three_lines_around_what_changed() -> None:
    old = [str(number) for number in range(30)]
    new = [*old[:5], "five", *old[6:9], *old[10:25], "more", *old[25:]]
    assert line_diff("\n".join(old), "\n".join(new)) == [
        *("@@ -3,11 +3,10 @@", " 2", " 3", " 4", "-5", "+five", " 6", " 7", " 8", "-9", " 10", " 11", " 12"),
        *("@@ -23,6 +22,7 @@", " 22", " 23", " 24", "+more", " 25", " 26", " 27"),
    ]


@pytest.mark.parametrize(
    "lines",
    [
        [chr(0x4E00 + number) for number in range(5000)],
        [str(number % 10) for number in range(10_000)],
        [str(number * number % 7 % 2) for number in range(10_000)],
    ],
    ids=["distinct", "periodic", "two kinds"],
)
@pytest.mark.timeout(20)
def test_long_texts_of_short_lines_are_compared_at_once(lines: list[str]) -> None:
    text = "\n".join(lines)
    for other in (lines[::-1], lines[1:], lines[::2], ["x", *lines, "y"]):
        assert applied(text, line_diff(text, "\n".join(other))) == "\n".join(other)
    one_more = [*lines[:2500], "new", *lines[2500:]]
    assert len(line_diff(text, "\n".join(one_more))) == 8


def segment(node_id: str, rendered: str = "", label: str = "") -> Segment:
    return Segment(node_id, label or node_id.upper(), "text", rendered, rendered, [], [])


def changes(a: list[Segment], b: list[Segment]) -> list[tuple[str, str]]:
    return [(one.node_id, one.change) for one in segment_changes(a, b)]


def test_segments_are_changed_added_removed_and_moved() -> None:
    a, b, c, d = (segment(name) for name in "abcd")
    assert changes([a, b, c], [a, b, c]) == []
    assert changes([a, b], [a, segment("b", "new")]) == [("b", "changed")]
    assert changes([a, b], [a, segment("b", label="Other")]) == [("b", "changed")]
    assert changes([a, b], [b, c]) == [("c", "added"), ("a", "removed")]
    assert changes([a, b, c, d], [d, a, b, c]) == [("d", "moved")]
    assert changes([a, b, c], [segment("c", "new"), a, b]) == [("c", "changed"), ("c", "moved")]
    assert segment_changes([a], [])[0].label == "A"


@given(st.permutations("abcdefg"))
def test_what_was_not_moved_stands_in_its_old_order(order: list[str]) -> None:
    found = changes([segment(name) for name in "abcdefg"], [segment(name) for name in order])
    moved = {name for name, _ in found}
    stayed = [name for name in order if name not in moved]
    assert stayed == sorted(stayed) and {change for _, change in found} <= {"moved"}


def digest(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def record(row: int, rendered: str, answer: str = "", status: RunStatus = "succeeded") -> RunRecord:
    text = f"--- U ---\n{rendered}"
    model = Answered("p", "unscored", [], answer, digest(answer)) if answer else None
    trace = Trace(f"r-{row}", "t", "labeled", text, [segment("u", rendered)], [], model=model)
    return RunRecord(f"r-{row}", "t", "p", "d", row, status, digest(text), 0, trace)


def test_runs_are_stable_or_in_drift() -> None:
    same = compare_runs(record(0, "hi"), record(0, "hi"))
    assert (same.status, same.segments, same.diff, same.answer) == ("stable", [], [], "")
    other = compare_runs(record(0, "hi"), record(0, "ho"))
    assert other.status == "drift" and [one.node_id for one in other.segments] == ["u"]
    assert other.diff == ["@@ -1,2 +1,2 @@", " --- U ---", "-hi", "+ho"]
    assert compare_runs(record(0, "hi"), record(0, "hi", status="failed")).status == "drift"


@pytest.mark.req("REPLAY-17")
def test_an_answer_may_change_while_its_context_is_stable() -> None:
    found = compare_runs(record(0, "hi", "yes"), record(0, "hi", "no"))
    assert (found.status, found.answer, found.answer_diff) == ("stable", "changed", ["@@ -1,1 +1,1 @@", "-yes", "+no"])
    assert compare_runs(record(0, "hi", "yes"), record(0, "ho", "yes")).answer == "same"
    assert compare_runs(record(0, "hi", "yes"), record(0, "hi")).answer == ""


def test_rows_are_stable_in_drift_new_or_gone() -> None:
    before = [summary_of(record(row, "hi")) for row in (0, 1, 2, 5)]
    after = [summary_of(record(row, text)) for row, text in ((0, "hi"), (1, "ho"), (5, "hi"), (7, "hi"))]
    found = compare_rows(iter(before), iter(after))
    assert [(row.row_index, row.status) for row in found] == [
        *((0, "stable"), (1, "drift"), (2, "gone"), (5, "stable"), (7, "new"))
    ]
    assert found[2].b is None and found[4].a is None and compare_rows([], []) == []


def test_a_row_with_its_records_says_what_changed() -> None:
    old, new = record(3, "hi"), record(3, "ho")
    (pair,) = compare_rows([summary_of(old)], [summary_of(new)])
    assert compare_row(pair).segments == [] and compare_row(pair, old).diff == []
    written = msgspec.to_builtins(compare_row(pair, old, new))
    assert written["rowIndex"] == 3 and written["status"] == "drift" and "runId" in written["a"]
    assert written["segments"] == [{"nodeId": "u", "label": "U", "change": "changed"}]


INDEXES = st.lists(st.integers(0, 20), unique=True).map(sorted)


@given(INDEXES, INDEXES, st.sets(st.integers(0, 20)))
def test_every_row_of_either_side_is_told_once(a: list[int], b: list[int], changed: set[int]) -> None:
    before = [RunSummary("r", "t", index, "succeeded", "x", 0) for index in a]
    after = [RunSummary("r", "t", index, "succeeded", "y" if index in changed else "x", 0) for index in b]
    found = compare_rows(before, after)
    assert [row.row_index for row in found] == sorted({*a, *b})
    assert {row.row_index for row in found if row.status == "drift"} == {*a} & {*b} & changed
    assert {row.row_index for row in found if row.status == "new"} == {*b} - {*a}
