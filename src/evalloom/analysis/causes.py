"""Groups failures by cause: the first failing step, the check, and the reason without what differs by case."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from msgspec import Struct

Key = tuple[str, str, str]
"""What runs of one cause have in common: step, check, normalised reason."""
_LONGEST = 300
_ANY = "…"
_QUOTED = re.compile(
    r"""(?<![\w'])'(?:[^'\\]|\\.)*'(?!\w) | "(?:[^"\\]|\\.)*" | `[^`]*`
    | “[^”]*” | ‘[^’]*’ | 「[^」]*」 | 『[^』]*』""",
    # Chinese text has no space before a quote.
    re.X | re.A,
)
_CUT = re.compile(r"""(?<![\w'])['"`“‘「『][^'"]*…$""")
"""A quoted text whose end was cut off with the reason."""
_ADDRESS = re.compile(r"\b\w+://\S+")
_DIGEST = re.compile(r"\b(?=[0-9a-fA-F-]*\d)[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{2,})+\b")
_NUMBER = re.compile(r"(?<![\w.])(?<![^\W\d]-)[-+]?\d(?:,?\d)*(?:\.\d+)?(?:[eE][-+]?\d+)?")
_LIST = re.compile(rf"{_ANY}(?:, ?{_ANY})+(?=\])")
_SPACE = re.compile(r"\s+")
_BEFORE = r"(?:^|[ (\[{:,;=<>])"
LIKELY_VARIABLE = (
    rf"""({_BEFORE}')[^'"`“”‘’「」『』\\]*'\B|({_BEFORE})[-+]?[0-9](?:,?[0-9])*(?:\.[0-9]+)?\b""",
    r"\1\20",
)
"""The usual texts and numbers that `normalise` replaces, as a pattern and its replacement.

DuckDB groups by it before reasons are normalised; its regular expressions cannot look back.
"""


class Cause(Struct, frozen=True):
    """Failures that look alike. `cases` has every case once, `example` is the reason of the first as it was."""

    step: str
    check: str
    reason: str
    """The reason, as it was where all have the same, else with `…` for the values from the first that differs on."""
    count: int
    cases: list[str]
    example: str


def group_failures(rows: Iterable[Sequence[Any]]) -> list[Cause]:
    """Group rows that begin with case id, step, check and reason; the most frequent cause comes first."""
    groups: dict[Key, list[Sequence[Any]]] = {}
    for row in rows:
        groups.setdefault(cause_key(row[1], row[2], row[3]), []).append(row)
    causes = [_cause(key, group) for key, group in groups.items()]
    return sorted(causes, key=lambda cause: -cause.count)


def merge_causes(groups: Iterable[Cause]) -> list[Cause]:
    """Join groups of failures that have one cause; the most frequent cause comes first."""
    merged: dict[Key, list[Cause]] = {}
    for group in groups:
        merged.setdefault(cause_key(group.step, group.check, group.reason), []).append(group)
    causes = []
    for (step, check, _), alike in merged.items():
        first = alike[0]
        reason = shared_reason([group.reason for group in alike])
        cases = list(dict.fromkeys(case for group in alike for case in group.cases))
        causes.append(Cause(step, check, reason, sum(group.count for group in alike), cases, first.example))
    return sorted(causes, key=lambda cause: -cause.count)


def cause_key(step: str | None, check: str | None, reason: str | None) -> Key:
    """Return what failures of one cause share."""
    return step or "", check or "", normalise(reason or "")


def normalise(reason: str) -> str:
    """Replace quoted texts, addresses, digests, numbers and lists with `…`, so that reasons of one kind are equal."""
    text = _SPACE.sub(" ", reason[: 4 * _LONGEST]).strip()
    for pattern in (_QUOTED, _CUT, _ADDRESS, _DIGEST, _NUMBER):
        text = pattern.sub(_ANY, text)
    # A list of texts is one value, however many it has.
    text = _LIST.sub(_ANY, text)
    return text[:_LONGEST]


def shared_reason(reasons: Collection[str]) -> str:
    """Return what reasons of one kind have in common: `expected 'a' in …` where all expected the same.

    The smallest and the largest of them stand for all: whatever is between them in order begins as both begin.
    """
    first, last = min(reasons), max(reasons)
    if first == last:
        return first
    normalised = normalise(first)
    length = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    start = first[:length]
    # At a space, and not within a value: there, the two parts are normalised as the whole is.
    while (at := start.rfind(" ")) > 0:
        start = start[:at]
        shared = f"{_SPACE.sub(' ', start).strip()} {normalise(first[at:])}"[:_LONGEST]
        if f"{normalise(start)} {normalise(first[at:])}"[:_LONGEST] == normalised == normalise(shared):
            return shared
    return normalised


def _cause(key: Key, rows: list[Sequence[Any]]) -> Cause:
    example = rows[0][3] or ""
    reason = shared_reason([row[3] or "" for row in rows])
    return Cause(key[0], key[1], reason, len(rows), list(dict.fromkeys(row[0] for row in rows)), example)
