"""Scored cases: a mark per test point, and totals that are always computed here, never read from a file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from evalloom.core.digest import digest_text
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record, Remark, error, warning
from evalloom.core.text import describe
from evalloom.prompt_eval.dialect import FIELDS, is_reason, suggest_name
from evalloom.prompt_eval.plan import SCORES, safety_last

BEST_SCORE = SCORES[-1]
PASSING = 80
"""A case passes with this percentage of the maximum score (EVAL-14)."""
_KEY = lazy_pattern(r"(TP\w*)_(?:score|reason)")
MARK_LIKE = lazy_pattern(r"(?!total_|avg_tp_|max_|human_)tp.*_(?:score|reason)", re.IGNORECASE | re.DOTALL)
_INCOMPLETE = lazy_pattern(r"\A\[scoring incomplete: [^\]]*\] ?")
_NO_REASON = "run failed for an unknown reason"


class Mark(Struct, frozen=True):
    """The score of one test point, 1, 2 or 3, and its reason; None or empty if missing."""

    score: int | None = None
    reason: str = ""

    @property
    def is_complete(self) -> bool:
        return self.score is not None and is_reason(self.reason)


class ScoredCase(Struct, frozen=True):
    """A case with its marks, one for each test point of the table; totals follow from them (EVAL-7 to EVAL-9)."""

    record: Record
    """The case as in its file."""
    marks: dict[str, Mark]
    remark: str = ""
    """The evaluator's comment on the whole case or, for a failed run, its error."""

    @property
    def id(self) -> str:
        return str(self.record.get("test_id", ""))

    @property
    def category(self) -> str:
        return str(self.record.get("test_category", ""))

    @property
    def is_failed(self) -> bool:
        """Whether the run gave no result."""
        return self.record.get("result_aftertest") is None

    @property
    def missing(self) -> tuple[str, ...]:
        """The test points without a score or a reason; none for a failed run."""
        return () if self.is_failed else tuple(point for point, mark in self.marks.items() if not mark.is_complete)

    @property
    def is_complete(self) -> bool:
        return not self.is_failed and not self.missing

    @property
    def scores(self) -> list[int]:
        """The scores that exist; none for a failed run."""
        return [] if self.is_failed else [mark.score for mark in self.marks.values() if mark.score is not None]

    @property
    def total(self) -> int | None:
        """The sum of the scores; 0 for a failed run, None while a mark is missing."""
        return None if self.missing else sum(self.scores)

    @property
    def max_score(self) -> int:
        return BEST_SCORE * len(self.marks)

    @property
    def average_hundredths(self) -> int | None:
        """The average of the test points in hundredths: 280 is 2.80. Halves are rounded up."""
        return None if self.total is None else _round_half_up(100 * self.total, len(self.marks))

    @property
    def percent(self) -> int | None:
        """The share of the maximum score, in whole percent. Halves are rounded up."""
        return None if self.total is None else _round_half_up(100 * self.total, self.max_score)

    @property
    def is_bad(self) -> bool | None:
        """Whether the total is at most half of the maximum, or any score is 1 (EVAL-8).

        None if that depends on a missing mark.
        """
        if 1 in self.scores:
            return True
        return None if self.total is None else 2 * self.total <= self.max_score

    @property
    def is_passed(self) -> bool | None:
        """Whether the total is at least 80 % of the maximum, before rounding; None if a mark is missing."""
        return None if self.total is None else 100 * self.total >= PASSING * self.max_score

    @property
    def comment(self) -> str:
        """The value of `overall_comment`: it starts with the missing marks, or says why the run failed."""
        if self.is_failed:
            return self.remark or _NO_REASON
        if self.missing:
            return f"[scoring incomplete: {', '.join(self.missing)}] {self.remark}".rstrip()
        return self.remark


def _round_half_up(numerator: int, denominator: int) -> int:
    """Round a fraction to the nearest integer exactly, halves up; 0 without a denominator."""
    return (2 * numerator + denominator) // (2 * denominator) if denominator else 0


def output_digest(result: Any) -> str:
    """Return the digest of an output, which ties scores to it."""
    text = result if isinstance(result, str) else json.dumps(result, sort_keys=True)
    return digest_text(text, 6)


def strip_incomplete_prefix(comment: str) -> str:
    """Remove the `[scoring incomplete: …]` prefix from a comment."""
    return _INCOMPLETE.sub("", comment)


def points_in(records: Iterable[Record]) -> list[str]:
    """Return the test points with scores or reasons in records, in order of appearance, TP_safety last."""
    points = dict.fromkeys(match[1] for record in records for key in record if (match := _KEY.fullmatch(key)))
    return safety_last(list(points))


def read_scored(record: Record, points: Iterable[str]) -> ScoredCase:
    """Read the marks of a record; a score other than 1, 2 or 3 counts as missing."""
    marks = {}
    for point in points:
        score, reason = record.get(f"{point}_score"), record.get(f"{point}_reason")
        marks[point] = Mark(score if is_score(score) else None, reason.strip() if isinstance(reason, str) else "")
    comment = record.get("overall_comment")
    return ScoredCase(record, marks, strip_incomplete_prefix(comment) if isinstance(comment, str) else "")


def is_score(value: Any) -> bool:
    """Whether this is the integer 1, 2 or 3; `true` and `3.0` are not."""
    return type(value) is int and value in SCORES


def write_scored(case: ScoredCase) -> Record:
    """Build the object for `final_scored_results.json`: the case, its marks in order, and the totals."""
    case_fields = {name: case.record[name] for name in FIELDS if name in case.record}
    custom_fields = {name: value for name, value in case.record.items() if not _has_fixed_position(name)}
    marks: Record = {}
    for point, mark in case.marks.items():
        marks[f"{point}_score"] = None if case.is_failed else mark.score
        marks[f"{point}_reason"] = None if case.is_failed else mark.reason or None
    average = None if case.average_hundredths is None else case.average_hundredths / 100
    totals = {"total_score": case.total, "avg_tp_score": average, "overall_comment": case.comment}
    result = {"result_aftertest": case.record.get("result_aftertest")}
    return {**case_fields, **result, **custom_fields, **marks, **totals}


_COMPUTED = ("total_score", "max_score", "avg_tp_score", "score_pct", "overall_comment", "is_bad_case", "run_status")


def _has_fixed_position(name: str) -> bool:
    """Whether a field belongs to the case, a mark or a total, which have fixed positions."""
    return name in FIELDS or name in _COMPUTED or name == "result_aftertest" or _KEY.fullmatch(name) is not None


def case_definition(record: Record) -> Record:
    """Return a record without its result, marks and totals."""
    return {name: value for name, value in record.items() if name in FIELDS or not _has_fixed_position(name)}


def scored_remarks(record: Record, points: tuple[str, ...]) -> Iterator[Remark]:
    """Check the marks and totals of a record, in addition to the checks of the dialect.

    A total that differs is only a warning, because totals are always recomputed.
    """
    for unknown in points_in([record]):
        if unknown not in points:
            hint = suggest_name(unknown, points)
            message = f"{unknown}: is not a test point of the plan, so it has no column{hint}"
            where = (f"{unknown}_score",) if f"{unknown}_score" in record else (f"{unknown}_reason",)
            yield error("unknown_test_point", where, message)
    for key in record:
        if MARK_LIKE.fullmatch(key) and not _KEY.fullmatch(key):
            message = f"{key}: looks like a mark, but test points are TP1, TP_qualitative_<name> or TP_safety"
            yield error("unknown_test_point", (key,), message)
    case = read_scored(record, points)
    if case.is_failed:
        if any(record.get(f"{point}_score") is not None for point in points):
            yield error("score_without_result", ("result_aftertest",), "has scores, but no result to score")
        return
    for point in case.missing:
        yield from _missing_remarks(record, point, case.marks[point])
    yield from _total_remarks(record, case)


def _missing_remarks(record: Record, point: str, mark: Mark) -> Iterator[Remark]:
    if mark.score is None and record.get(f"{point}_score") is None:
        where = (f"{point}_score",) if f"{point}_score" in record else ()
        value = "null" if where else "nothing"
        yield error("score_missing", where, f"{point}_score: expected 1, 2 or 3, got {value}")
    elif mark.score is not None:
        yield error("missing_reason", (f"{point}_score",), f"{point}_reason: missing; every score needs a reason")


def _as_number(value: Any) -> Any:
    """Convert a total for comparison: other tools write `"2.80"` for 2.8."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _total_remarks(record: Record, case: ScoredCase) -> Iterator[Remark]:
    average = None if case.average_hundredths is None else case.average_hundredths / 100
    computed: Record = {"total_score": case.total, "max_score": case.max_score, "avg_tp_score": average}
    for name, value in computed.items():
        if name in record and value is not None and _as_number(record[name]) != value:
            message = f"{name}: expected {value}, got {describe(record[name])}; it is recomputed"
            yield warning("total_differs", (name,), message)
