"""Compares runs and replays: stable or drift, the segments that changed, and a diff (REPLAY-16)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from evalloom.replay.recipe.trace import Outcome, RunRecord, RunSummary, Segment, Trace
from evalloom.replay.store.running import ReplayState
from evalloom.ui.diff import Block, changed_blocks, increasing

RowStatus = Literal["stable", "drift", "new", "gone"]

_CONTEXT = 3


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
    places = [before[segment.node_id][0] for segment in b if segment.node_id in before]
    # Those outside the longest run in order were moved.
    stayed = {places[at] for at in increasing(places)}
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


# -- lines --------------------------------------------------------------------------------------------


def line_diff(a: str, b: str) -> list[str]:
    """Return a unified diff from `a` to `b`, empty if the texts are equal.

    Only a newline separates lines, so other line separators show up inside their line.
    """
    if a == b:
        return []
    old, new = a.split("\n"), b.split("\n")
    blocks, _ = changed_blocks(old, new)
    return [line for near in _near(blocks) for line in _hunk(near, old, new)]


def _near(blocks: list[Block]) -> Iterator[list[Block]]:
    """Group blocks whose context lines overlap."""
    group: list[Block] = []
    for block in blocks:
        if group and block.a_start - group[-1].a_end > 2 * _CONTEXT:
            yield group
            group = []
        group.append(block)
    yield group


def _hunk(blocks: list[Block], old: list[str], new: list[str]) -> Iterator[str]:
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
