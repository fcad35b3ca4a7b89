"""What happened in one run, from the views of its batch: checks, values, steps and model calls, long texts cut."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.model import Output
from evalloom.core.repeats import WORST_FIRST
from evalloom.matchers.where import Missing, find
from evalloom.pages.library import Library
from evalloom.ui.diff import TextDiff, compare_texts
from evalloom.ui.json_diff import JsonDiff, compare_json

LARGEST = 1_000_000
"""Characters of an output that a page shows; larger ones can be downloaded."""
_LINES, _CHARACTERS = 12, 1_500
_MOST_FIELDS, _MOST_CALLS, _MOST_MESSAGES = 60, 100, 60
_COPIED = 20_000
_EQUALITY = frozenset({"equals", "iequals", "normalised", "structural"})
"""Checks that compare two whole values, so that a diff shows why they failed."""
_SHORT = 40
"""Texts up to this length are compared at a glance: the reason has both."""


class Text(Struct, frozen=True):
    """A value as text, or a part of it."""

    name: str
    text: str
    size: int
    """All its characters."""
    before: int = 0
    after: int = 0
    """Characters that are left out."""
    is_plain: bool = True
    """Whether it is a text as it is; otherwise it is JSON."""


class CheckResult(Struct, frozen=True):
    """How a check ended."""

    name: str
    kind: str
    where: str
    status: str
    score: float | None
    reason: str
    is_counted: bool
    follows: str
    mismatches: list[tuple[str, str, str]]
    """Path, expected and actual value of the first differences, as JSON."""


class Bar(Struct, frozen=True):
    """A place on a line of time, in percent."""

    start: float
    width: float


class Step(Struct, frozen=True):
    """A step of a run."""

    number: int
    name: str
    type: str
    status: str
    seconds: float | None
    bar: Bar
    tokens: int
    cost: float | None
    retries: int
    error: str
    output: Text | None
    is_wrong: bool
    """Whether it is the first step that failed."""


class Call(Struct, frozen=True):
    """A call of a model."""

    number: int
    llm: str
    model: str
    seconds: float | None
    waited: float
    bar: Bar
    input_tokens: int
    output_tokens: int
    cost: float
    cached: bool
    retries: int
    stop: str
    error: str
    messages: list[Text]
    """The name of each is its role; the answer comes last."""


class Comparison(Struct, frozen=True):
    """The difference between what a check expects and what it got."""

    check: str
    text: TextDiff | None
    json: JsonDiff | None


def cut(name: str, value: Any, is_full: bool, around: int = 0) -> Text:
    """Return a value as text, of a long one the part around a position."""
    is_plain = isinstance(value, str)
    text = value if is_plain else json.dumps(value, ensure_ascii=False, indent=2)
    size = len(text)
    start, end = 0, min(size, LARGEST)
    if not is_full:
        if around > _CHARACTERS // 2:
            # A few lines before the position, so that it is among those that are shown.
            above = text[around - _CHARACTERS // 3 : around].split("\n")[-_LINES // 3 :]
            start = around - len("\n".join(above))
        lines = text[start : start + _CHARACTERS].split("\n")
        shown = sum(len(line) + 1 for line in lines[:_LINES]) - 1
        end = start + min(shown, _CHARACTERS)
        if size - end < 40:  # a few more characters cost less than the words about them
            end = size
    return Text(name, text[start:end], size, start, size - end, is_plain)


def fields(values: Any, is_full: bool, around: Mapping[str, int] = MappingProxyType({})) -> list[Text]:
    """Return the fields of an object as texts, of long ones the part around a position; any other value as one."""
    if not isinstance(values, dict):
        return [] if values is None else [cut("", values, is_full)]
    return [cut(name, value, is_full, around.get(name, 0)) for name, value in list(values.items())[:_MOST_FIELDS]]


def decode(text: str | None) -> Any:
    """Decode a JSON column."""
    try:
        return None if text is None else msgspec.json.decode(text)
    except msgspec.DecodeError:  # an integer that is too large, or a float that is none
        return json.loads(text or "null")


# -- checks ------------------------------------------------------------------------------------------------


def read_checks(library: Library, batch: str, run: str) -> list[CheckResult]:
    """Return the checks of a run, those that failed first."""
    rows = library.rows(
        batch,
        """SELECT coalesce(nullif(name, ''), kind), kind, "where", status, score, reason, weight <> 0, follows,
            mismatches FROM verdicts WHERE key = ? ORDER BY number""",
        [run],
    )
    checks = [
        CheckResult(
            name or "", kind or "", where or "", status, score, reason or "", counted is not False, follows or "",
            [_mismatch(item) for item in (decode(mismatches) or [])[:20]],
        )
        for name, kind, where, status, score, reason, counted, follows, mismatches in rows
    ]  # fmt: skip
    return sorted(checks, key=lambda check: WORST_FIRST.index(check.status))


def _mismatch(item: dict[str, Any]) -> tuple[str, str, str]:
    sides = [json.dumps(item.get(side), ensure_ascii=False)[:2_000] for side in ("expected", "actual")]
    return str(item.get("path", "")), sides[0], sides[1]


def compare(checks: list[CheckResult], expected: Any, output: Any) -> tuple[Comparison | None, int]:
    """Return the difference that the first failed check of whole values found, and where it begins in the output."""
    for check in checks:
        if check.status != "failed" or check.kind not in _EQUALITY or not isinstance(expected, dict):
            continue
        wanted = expected.get(check.name)
        try:
            actual = find(check.where or "output", Output(value=output))
        except (ValueError, TypeError, LookupError):  # a place that this output cannot have
            continue
        if wanted is None or isinstance(actual, Missing) or actual is None:
            continue
        if (found := compare_json(wanted, actual)) is not None:
            return Comparison(check.name, None, found), 0
        if isinstance(wanted, str) and isinstance(actual, str) and max(len(wanted), len(actual)) > _SHORT:
            if max(len(wanted), len(actual)) > LARGEST:
                continue
            at = _equal_start(wanted, actual) if actual == output else 0
            return Comparison(check.name, compare_texts(wanted, actual), None), at
    return None, 0


def _equal_start(a: str, b: str) -> int:
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


# -- steps and calls ---------------------------------------------------------------------------------------


def read_steps(library: Library, batch: str, run: str, wrong: str, is_full: bool) -> list[Step]:
    """Return the steps of a run in order, each with its place in the time of all of them."""
    rows = library.rows(
        batch,
        """SELECT number, step, type, status, started_s, duration_s, tokens, cost, retries, error,
            CASE WHEN strlen(output::VARCHAR) <= 200000 THEN output END
        FROM steps WHERE key = ? ORDER BY number LIMIT 200""",
        [run],
    )
    bars = _bars([(row[4], row[5]) for row in rows])
    steps, is_found = [], False
    for bar, row in zip(bars, rows, strict=True):
        number, name, type, status, _, seconds, tokens, cost, retries, error, output = row
        is_wrong = bool(wrong) and name == wrong and not is_found
        is_found |= is_wrong
        shown = None if output is None else cut("", decode(output), is_full)
        steps.append(
            Step(number, name or "", type or "", status or "", seconds, bar, tokens or 0, cost, retries or 0,
                error or "", shown, is_wrong)
        )  # fmt: skip
    return steps


def read_calls(library: Library, batch: str, run: str, is_full: bool) -> list[Call]:
    """Return the calls of models in order; a call that began before the one before it ended is drawn after it."""
    rows = library.rows(
        batch,
        """SELECT number, llm, model, duration_s, waited_s, input_tokens, output_tokens, cost, cached, retries, stop,
            error, CASE WHEN strlen(messages::VARCHAR) <= 1000000 THEN messages END, left(answer, 1000000)
        FROM llm_calls WHERE key = ? ORDER BY number LIMIT ?""",
        [run, _MOST_CALLS],
    )
    bars = _bars([(None, row[3]) for row in rows])
    return [
        Call(
            number, llm or "", model or "", seconds, waited or 0.0, bar, tokens_in or 0, tokens_out or 0, cost or 0.0,
            bool(cached), retries or 0, stop or "", error or "", _messages(decode(messages), answer, is_full),
        )
        for bar, (number, llm, model, seconds, waited, tokens_in, tokens_out, cost, cached, retries, stop, error,
            messages, answer) in zip(bars, rows, strict=True)
    ]  # fmt: skip


def _messages(messages: Any, answer: str | None, is_full: bool) -> list[Text]:
    texts = []
    for message in (messages if isinstance(messages, list) else [])[:_MOST_MESSAGES]:
        content = message.get("content") if isinstance(message, dict) else message
        if isinstance(message, dict) and message.get("tool_calls"):
            content = {"content": content, "tool_calls": message["tool_calls"]} if content else message["tool_calls"]
        role = str(message.get("role") or "") if isinstance(message, dict) else ""
        texts.append(cut(role, "" if content is None else content, is_full))
    return [*texts, cut("answer", answer, is_full)] if answer else texts


def _bars(times: list[tuple[float | None, float | None]]) -> list[Bar]:
    """Place durations on a line of time; one without a start follows the one before it."""
    spans, end = [], 0.0
    for started, seconds in times:
        start = end if started is None else started
        end = start + max(0.0, seconds or 0.0)
        spans.append((start, end))
    total = max((end for _, end in spans), default=0.0) or 1.0
    return [Bar(round(100 * start / total, 2), round(max(0.4, 100 * (end - start) / total), 2)) for start, end in spans]
