"""Compares runs and replays: stable or drift, the segments that changed, and a diff (REPLAY-16)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from evalloom.replay.recipe.trace import Outcome, RunRecord, RunSummary, Segment, Trace
from evalloom.replay.store.running import ReplayState

RowStatus = Literal["stable", "drift", "new", "gone"]

_CONTEXT = 3
_MOST_WORK = 1_000_000
"""The diff takes time proportional to lines × changes; beyond this limit, one block replaces all lines."""


class SegmentChange(Struct, frozen=True, rename="camel"):
    """A change of one segment; one that changed and moved is listed twice."""

    node_id: str
    label: str
    change: Literal["changed", "added", "removed", "moved"]


class RunComparison(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The comparison of two runs, `a` before `b`. `diff` is of the assembled text, `answer_diff` of the model's answer.

    The status is that of the text: an answer may change while its context is stable.
    """

    status: Literal["stable", "drift"]
    a: RunSummary
    b: RunSummary
    segments: list[SegmentChange]
    diff: list[str]
    answer: Literal["", "same", "changed"] = ""
    answer_diff: list[str] = []


class RowComparison(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One row of a dataset in two replays; a side without a run of it is left out."""

    row_index: int
    status: RowStatus
    a: RunSummary | None = None
    b: RunSummary | None = None
    segments: list[SegmentChange] = []
    diff: list[str] = []


class ReplayComparison(Struct, frozen=True, rename="camel"):
    """The comparison of two replays, `a` before `b`: the number of rows of each status, and the requested rows."""

    a: str
    b: str
    a_state: ReplayState
    b_state: ReplayState
    left_out: list[str]
    """Replays that are newer than `a` and were not chosen, because they are not complete."""
    stable: int
    drift: int
    new: int
    gone: int
    cut: int
    """Stable rows whose text is truncated on both sides: a change after that point does not change the digest."""
    answers_changed: int
    """Rows whose answers differ."""
    rows: list[RowComparison]


class Pair(NamedTuple):
    """The runs of a row in two replays."""

    row_index: int
    status: RowStatus
    a: RunSummary | None
    b: RunSummary | None


# -- runs and rows ------------------------------------------------------------------------------------


def compare_runs(a: RunRecord, b: RunRecord) -> RunComparison:
    """Compare two runs."""
    answer, answer_diff = _answers(a.trace, b.trace)
    before, after = summary_of(a), summary_of(b)
    return RunComparison(
        "stable" if _is_stable(before, after) else "drift",
        before,
        after,
        segment_changes(a.trace.segments, b.trace.segments),
        line_diff(a.trace.text, b.trace.text),
        answer,
        answer_diff,
    )


def compare_rows(a: Iterable[RunSummary], b: Iterable[RunSummary]) -> list[Pair]:
    """Pair the rows of two replays in order and classify each as stable, drift, new or gone."""
    before = {run.row_index: run for run in a}
    after = {run.row_index: run for run in b}
    return [_pair(index, before.get(index), after.get(index)) for index in sorted(before.keys() | after.keys())]


class OutcomeComparison(NamedTuple):
    """Differences that digests do not show: stable rows that are truncated, and rows with a different answer."""

    cut: list[int]
    answers: list[int]


def compare_outcomes(a: Mapping[int, Outcome], b: Mapping[int, Outcome]) -> OutcomeComparison:
    """Find actual and possible differences between two replays that digests do not show."""
    both = [(index, a[index], b[index]) for index in sorted(a.keys() & b.keys())]
    return OutcomeComparison(
        [index for index, old, new in both if old.digest == new.digest and old.is_cut and new.is_cut],
        # Only where both sides called a model; a missing answer is an error.
        [index for index, old, new in both if old.check and new.check and old.answer != new.answer],
    )


def build_comparison(
    names: tuple[str, str],
    pairs: Iterable[Pair],
    outcomes: OutcomeComparison,
    rows: list[RowComparison],
    states: tuple[ReplayState, ReplayState] = ("complete", "complete"),
    left_out: Sequence[str] = (),
) -> ReplayComparison:
    """Build the comparison of two replays; `rows` are the rows to show."""
    counts = Counter(pair.status for pair in pairs)
    return ReplayComparison(
        *names,
        *states,
        list(left_out),
        counts["stable"],
        counts["drift"],
        counts["new"],
        counts["gone"],
        len(outcomes.cut),
        len(outcomes.answers),
        rows,
    )


def compare_row(pair: Pair, a: RunRecord | None = None, b: RunRecord | None = None) -> RowComparison:
    """Compare a row, with segments and diff if both records are passed."""
    if a is None or b is None:
        return RowComparison(*pair)
    changes = segment_changes(a.trace.segments, b.trace.segments)
    return RowComparison(*pair, changes, line_diff(a.trace.text, b.trace.text))


def summary_of(record: RunRecord) -> RunSummary:
    """Summarize a record."""
    return RunSummary(
        record.run_id,
        record.created_at,
        record.row_index,
        record.status,
        record.output_digest,
        record.missing_variables_count,
    )


def _is_stable(a: RunSummary, b: RunSummary) -> bool:
    # A failed run can have the same text as one that succeeded.
    return a.output_digest == b.output_digest and a.status == b.status


def _pair(index: int, a: RunSummary | None, b: RunSummary | None) -> Pair:
    status: RowStatus = "drift"
    if a is None or b is None:
        status = "new" if a is None else "gone"
    elif _is_stable(a, b):
        status = "stable"
    return Pair(index, status, a, b)


def _answers(a: Trace, b: Trace) -> tuple[Literal["", "same", "changed"], list[str]]:
    if a.model is None or b.model is None:
        return "", []
    if a.model.answer_digest == b.model.answer_digest:
        return "same", []
    return "changed", line_diff(a.model.answer, b.model.answer)


# -- segments -----------------------------------------------------------------------------------------


def segment_changes(a: Sequence[Segment], b: Sequence[Segment]) -> list[SegmentChange]:
    """List the changed segments: those of `b` in order, then the removed ones."""
    before = {segment.node_id: (place, segment) for place, segment in enumerate(a)}
    stayed = _in_order([before[segment.node_id][0] for segment in b if segment.node_id in before])
    changes = []
    for segment in b:
        if segment.node_id not in before:
            changes.append(SegmentChange(segment.node_id, segment.label, "added"))
            continue
        place, old = before[segment.node_id]
        if (old.label, old.rendered) != (segment.label, segment.rendered):
            changes.append(SegmentChange(segment.node_id, segment.label, "changed"))
        if place not in stayed:
            changes.append(SegmentChange(segment.node_id, segment.label, "moved"))
    after = {segment.node_id for segment in b}
    changes += [SegmentChange(old.node_id, old.label, "removed") for old in a if old.node_id not in after]
    return changes


def _in_order(places: list[int]) -> set[int]:
    """Return the longest increasing subsequence; places outside it were moved."""
    ends: list[int] = []
    ranks = []
    for place in places:
        rank = bisect_left(ends, place)
        ends[rank : rank + 1] = [place]
        ranks.append(rank)
    unmoved, wanted = set(), len(ends) - 1
    for place, rank in zip(reversed(places), reversed(ranks), strict=True):
        if rank == wanted:
            unmoved.add(place)
            wanted -= 1
    return unmoved


# -- lines --------------------------------------------------------------------------------------------


class _Block(NamedTuple):
    """Lines of `a` that are replaced by lines of `b`."""

    a_start: int
    a_end: int
    b_start: int
    b_end: int


def line_diff(a: str, b: str) -> list[str]:
    """Return a unified diff from `a` to `b`, empty if the texts are equal.

    Only a newline separates lines, so other line separators show up inside their line.
    """
    if a == b:
        return []
    old, new = a.split("\n"), b.split("\n")
    head = _alike(old, new)
    tail = _alike(old[head:][::-1], new[head:][::-1])
    blocks = _changes(old[head : len(old) - tail], new[head : len(new) - tail])
    shifted = [_Block(*(place + head for place in block)) for block in blocks]
    return [line for near in _near(shifted) for line in _hunk(near, old, new)]


def _alike(a: list[str], b: list[str]) -> int:
    """Count the equal lines at the start."""
    pairs = zip(a, b, strict=False)
    return next((number for number, (old, new) in enumerate(pairs) if old != new), min(len(a), len(b)))


def _changes(a: list[str], b: list[str]) -> list[_Block]:
    """Return the shortest edit script by Myers' greedy algorithm, or one block if that would take too long.

    After round d, `reach` holds for each diagonal the furthest position in `a` with d changes.
    """
    size_a, size_b = len(a), len(b)
    most = min(size_a + size_b, _MOST_WORK // (size_a + size_b))
    reach = [0] * (2 * most + 3)
    rounds: list[list[int]] = []
    for changes in range(most + 1):
        for diagonal in range(-changes, changes + 1, 2):
            at = most + 1 + diagonal
            is_down = diagonal == -changes or (diagonal != changes and reach[at - 1] < reach[at + 1])
            x = reach[at + 1] if is_down else reach[at - 1] + 1
            while x < size_a and x - diagonal < size_b and a[x] == b[x - diagonal]:
                x += 1
            reach[at] = x
            if x >= size_a and x - diagonal >= size_b:
                return _walked_back(rounds, size_a, size_b)
        rounds.append(reach[most + 1 - changes : most + 2 + changes : 2])
    return [_Block(0, size_a, 0, size_b)]


def _walked_back(rounds: list[list[int]], x: int, y: int) -> list[_Block]:
    """Trace the changes back from the end; adjacent ones become one block."""
    blocks: list[_Block] = []
    for number in range(len(rounds), 0, -1):
        before, diagonal = rounds[number - 1], x - y
        at = (diagonal + number) // 2
        is_down = diagonal == -number or (diagonal != number and before[at - 1] < before[at])
        old_x = before[at] if is_down else before[at - 1]
        old_y = old_x - diagonal - (1 if is_down else -1)
        a_end, b_end = (old_x, old_y + 1) if is_down else (old_x + 1, old_y)
        if blocks and (blocks[-1].a_start, blocks[-1].b_start) == (a_end, b_end):
            last = blocks.pop()
            a_end, b_end = last.a_end, last.b_end
        blocks.append(_Block(old_x, a_end, old_y, b_end))
        x, y = old_x, old_y
    return blocks[::-1]


def _near(blocks: list[_Block]) -> Iterator[list[_Block]]:
    """Group blocks whose context lines overlap."""
    group: list[_Block] = []
    for block in blocks:
        if group and block.a_start - group[-1].a_end > 2 * _CONTEXT:
            yield group
            group = []
        group.append(block)
    yield group


def _hunk(blocks: list[_Block], old: list[str], new: list[str]) -> Iterator[str]:
    """Format a group of blocks with its context lines."""
    first, last = blocks[0], blocks[-1]
    lead = min(_CONTEXT, first.a_start)
    a_end = min(last.a_end + _CONTEXT, len(old))
    b_end = last.b_end + a_end - last.a_end
    a_start, b_start = first.a_start - lead, first.b_start - lead
    yield f"@@ -{a_start + 1},{a_end - a_start} +{b_start + 1},{b_end - b_start} @@"
    at = a_start
    for block in blocks:
        yield from (f" {line}" for line in old[at : block.a_start])
        yield from (f"-{line}" for line in old[block.a_start : block.a_end])
        yield from (f"+{line}" for line in new[block.b_start : block.b_end])
        at = block.a_end
    yield from (f" {line}" for line in old[at:a_end])
