"""The parts of a matcher, which applies one check to one value: its context, its services, its result."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson
from msgspec import Struct

from evalloom.core.model import NO_USAGE, Case, Check, Embedder, Llm, Mismatch, Need, Output, Record, Usage
from evalloom.core.text import quote, shorten

if TYPE_CHECKING:
    from evalloom.matchers import Matchers

Function = Callable[..., Any]
_MOST_SCORES = 100
_LONGEST_NAME = 200


class CheckResult(Struct, frozen=True):
    """The result of a check. `passed` None means that the check could not be applied: unscored, never zero.

    `share` is `score` between 0 and 1, for weighting, where the score has its own scale.
    """

    passed: bool | None
    score: float | None = None
    reason: str = ""
    mismatches: tuple[Mismatch, ...] = ()
    share: float | None = None
    usage: Usage = NO_USAGE
    named_scores: dict[str, float] = {}
    """Further scores that code has returned, by name."""


class MatchContext(Struct):
    """The value that the `where` of a check resolves to, with its output, case, usage and trace."""

    value: Any
    output: Output
    case: Case
    duration_s: float = 0.0
    usage: Usage = NO_USAGE
    trace: list[Record] = []


class Services(Struct, frozen=True):
    """The services that a matcher may use.

    `functions` are the Python functions that the user named in a trusted place (settings, Python), by that name. Code
    that only a data file names runs in the sandbox when `allow_code` says so.
    """

    judge: Llm | None = None
    judge_name: str = ""
    embed: Embedder | None = None
    allow_code: bool = False
    functions: Mapping[str, Function] = {}
    matchers: Matchers | None = None
    """The matchers of all kinds; None means those of the engine alone."""


GradeNow = Callable[[Check, MatchContext], CheckResult | None]
Ask = Callable[[Check, MatchContext, Services], Awaitable[CheckResult]]


class Matcher(Struct, frozen=True):
    """One kind of check. `grade` returns at once, or None where it must `ask`; one of the two may be absent."""

    kind: str
    summary: str
    grade: GradeNow | None = None
    ask: Ask | None = None
    needs: Callable[[Check], Need] = lambda check: ""
    """Returns the service without which a check is unscored."""
    refuses: Callable[[Check], str] = lambda check: ""
    """Returns why a check can be scored for no output, where `grade` does not tell."""

    @property
    def waits(self) -> bool:
        return self.grade is None


PASSED = CheckResult(True)


def failed(reason: str) -> CheckResult:
    return CheckResult(False, reason=reason)


def unscored(reason: str) -> CheckResult:
    return CheckResult(None, reason=reason)


def graded(score: float, threshold: float, what: str) -> CheckResult:
    """Return a result that passes if a score reaches its threshold, with a margin for rounding."""
    passed = score >= threshold - 1e-9
    return CheckResult(passed, score, f"{what} {score:.3g}, {'at least' if passed else 'below'} {threshold:g}")


def text_of(value: Any) -> str:
    """Return a text as it is, None as an empty text, anything else as compact JSON."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        pass
    import json

    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except (ValueError, TypeError, RecursionError):
        # A function of the user may return what JSON cannot express: circular, too deep, with keys that are not texts.
        return f"<{type(value).__name__}>"


def composed(text: str) -> str:
    """Return a text with its accents composed (NFC): é as one character, not as e and an accent."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


PREPARING = frozenset({"case_sensitive", "normalise", "punctuation"})
"""The options that change a text before it is compared."""


def prepared(check: Check, text: str, always: bool = False) -> str:
    """Prepare a text by the options of a check: `case_sensitive: false`, `normalise: true`, `punctuation: false`."""
    options = check.options
    if not always and PREPARING.isdisjoint(options):
        return text
    if always or options.get("normalise") is True:
        from evalloom.matchers.normalise import normalise

        text = normalise(text, keeps_punctuation=options.get("punctuation") is not False)
    elif options.get("case_sensitive") is False:
        text = text.casefold()
    return text


def show(value: Any, limit: int = 60) -> str:
    """Return a value for a reason, shortened."""
    if isinstance(value, str):
        return quote(value, limit)
    text = "null" if value is None else text_of(value)
    return shorten(text, limit)


def number_of(value: Any) -> float | int | None:
    """Return the value if it is a number that a float can hold; None otherwise, and for booleans."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= sys.float_info.max else None


def returned_scores(returned: Record) -> dict[str, float]:
    """Return the numbers in the `namedScores` that code has returned; what is no number is left out."""
    written = returned.get("namedScores")
    pairs = islice(written.items(), _MOST_SCORES) if isinstance(written, dict) else ()
    return {str(name)[:_LONGEST_NAME]: float(score) for name, value in pairs if (score := number_of(value)) is not None}


def threshold_of(check: Check, default: float) -> float | None:
    """Return the threshold of a check, or the default; None if it is not a number."""
    threshold = check.options.get("threshold")
    return default if threshold is None else number_of(threshold)


def bad_option(name: str, expected: str, value: Any) -> CheckResult:
    return unscored(f"{name}: expected {expected}, got {show(value)}")
