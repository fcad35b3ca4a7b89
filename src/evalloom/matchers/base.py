"""What a matcher is: it looks at one value for one check and says whether it holds, how well, and why."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import orjson
from msgspec import Struct

from evalloom.core.model import NO_USAGE, Case, Check, Embedder, Llm, Mismatch, Output, Usage
from evalloom.core.text import quote, shorten

if TYPE_CHECKING:
    from evalloom.matchers import Matchers

Function = Callable[..., Any]


class CheckResult(Struct, frozen=True):
    """What a matcher says. `passed` None means that the check could not be applied: unscored, never zero.

    `share` is `score` between 0 and 1, for weighing, where the score has a scale of its own.
    """

    passed: bool | None
    score: float | None = None
    reason: str = ""
    mismatches: tuple[Mismatch, ...] = ()
    share: float | None = None
    usage: Usage = NO_USAGE


class MatchContext(Struct):
    """What a matcher looks at: the value that `where` points at, and what stands around it."""

    value: Any
    output: Output
    case: Case
    duration_s: float = 0.0
    usage: Usage = NO_USAGE


class Services(Struct, frozen=True):
    """Whom a matcher may ask.

    `functions` are the Python functions that the user named in a trusted place (settings, Python), by that name. Code
    that only a data file names runs in the sandbox when `allow_code` says so.
    """

    judge: Llm | None = None
    judge_name: str = ""
    embed: Embedder | None = None
    allow_code: bool = False
    functions: Mapping[str, Function] = {}
    matchers: Matchers | None = None
    """What grades the checks of each kind; without it, the matchers of the engine alone."""


GradeNow = Callable[[Check, MatchContext], CheckResult | None]
Ask = Callable[[Check, MatchContext, Services], Awaitable[CheckResult]]


class Matcher(Struct, frozen=True):
    """One kind of check. `grade` answers at once, or gives None where it must `ask`; one of the two may be absent."""

    kind: str
    summary: str
    grade: GradeNow | None = None
    ask: Ask | None = None

    @property
    def waits(self) -> bool:
        return self.grade is None


PASSED = CheckResult(True)


def failed(reason: str) -> CheckResult:
    return CheckResult(False, reason=reason)


def unscored(reason: str) -> CheckResult:
    return CheckResult(None, reason=reason)


def graded(score: float, threshold: float, what: str) -> CheckResult:
    """Passed when a score reaches its threshold; a hair of rounding does not decide."""
    passed = score >= threshold - 1e-9
    return CheckResult(passed, score, f"{what} {score:.3g}, {'at least' if passed else 'below'} {threshold:g}")


def text_of(value: Any) -> str:
    """A text as it is, nothing as an empty one, anything else as compact JSON."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        pass
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except (ValueError, TypeError, RecursionError):
        # What a function of the user returned may be no JSON at all: circular, too deep, with keys that are no texts.
        return f"<{type(value).__name__}>"


def show(value: Any, limit: int = 60) -> str:
    """A value for a reason, cut when long."""
    if isinstance(value, str):
        return quote(value, limit)
    text = "null" if value is None else text_of(value)
    return shorten(text, limit)


def number_of(value: Any) -> float | int | None:
    """The value when it is a number; booleans are none, nor is what no float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= sys.float_info.max else None


def threshold_of(check: Check, default: float) -> float | None:
    """The check's threshold, or the default where it has none; None when it is no number."""
    found = check.options.get("threshold")
    return default if found is None else number_of(found)


def bad_option(name: str, expected: str, value: Any) -> CheckResult:
    return unscored(f"{name}: expected {expected}, got {show(value)}")
