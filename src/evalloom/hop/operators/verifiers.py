"""Verifiers: check an answer before the hoplet gets it (HOP-10).

A verifier takes an `Attempt` and returns `Verified`. Custom verifiers may also return a boolean or
`(outcome, reason)`, and may be async.
"""

from __future__ import annotations

import asyncio
import inspect
import unicodedata
from collections.abc import Awaitable, Callable
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.errors import CallError
from evalloom.core.model import Llm, Outcome, Request
from evalloom.core.text import quote, shorten
from evalloom.hop.operators import prompts
from evalloom.hop.operators.parse import Format, plain
from evalloom.hop.operators.to_json import describe_error, fields_of, in_words, quoted, text_of
from evalloom.hop.operators.tools import Tool, check_choice
from evalloom.hop.outcome import OUTCOMES, outcome_of
from evalloom.llms.answer_json import AnswerError, find_json, strip_reasoning

CROSS_CALLS = 3
CROSS_TEMPERATURE = 0.3
_AGREES = 0.7
_LEANS = 0.4
_LONG_TEXT = 40
_ALIKE = 85
_VERDICT_FIELDS = ("status", "outcome", "verdict", "result")
_ABSENT = object()


class Verified(Struct, frozen=True):
    """The result of a verifier; the llm gets the reason when it has to try again."""

    outcome: Outcome
    reason: str = ""


class Attempt(Struct, frozen=True):
    """An answer to verify, with its task and context."""

    task: str
    context: str
    value: Any
    """The answer, parsed to a value of the format."""
    text: str
    """The answer as the llm wrote it."""
    format: Format
    verify: Llm
    ask_again: Callable[[], Awaitable[Any]]
    """Asks the verify llm the same question again, at CROSS_TEMPERATURE. Raises AnswerError or CallError."""
    tools: tuple[Tool, ...] = ()
    is_chinese: bool = False


Verifier = Callable[[Attempt], Any]
"""`(attempt) -> Verified | bool | (outcome, reason)`, or an awaitable of it:

    def quotes_the_context(attempt):
        is_quoted = attempt.value in attempt.context
        return is_quoted or ("FAIL", f"for {attempt.task!r}, quote the context word for word")
"""


async def verified_by(verifier: Verifier, attempt: Attempt) -> Verified:
    """Run a verifier. An exception counts as FAIL, except a CallError, which ends the operator."""
    name = getattr(verifier, "__name__", type(verifier).__name__)
    try:
        returned = verifier(attempt)
        if inspect.isawaitable(returned):
            returned = await returned
        return _to_verified(returned, name)
    except CallError:
        raise
    except Exception as error:  # users' code
        return Verified("FAIL", f"{name} raised {describe_error(error)}")


def _to_verified(returned: Any, name: str) -> Verified:
    if isinstance(returned, bool):
        return Verified("OK") if returned else Verified("FAIL", f"{name} does not accept this answer")
    if isinstance(returned, Verified):
        returned = returned.outcome, returned.reason
    if isinstance(returned, tuple | list) and len(returned) == 2 and (outcome := outcome_of(returned[0])):
        return Verified(outcome, str(returned[1] or ""))
    wanted = f"True, False, Verified or (outcome, reason) with one of {', '.join(OUTCOMES)}"
    return Verified("FAIL", f"{name}: expected {wanted}, got {quoted(returned)}")


def format_verifier(attempt: Attempt) -> Verified:
    """Check that the answer matches its `return_format`, without a call. Runs before every other verifier."""
    try:
        attempt.format.read(attempt.text)
    except AnswerError as error:
        return Verified("FAIL", str(error))
    return Verified("OK")


async def reverse_verify(attempt: Attempt) -> Verified:
    """Ask the verify llm for one of the four outcomes, given task, context and answer."""
    messages = prompts.verification(attempt.task, attempt.context, attempt.value, attempt.is_chinese)
    response = await attempt.verify(Request(messages, answer="json"))
    text = strip_reasoning(response.text)
    answers = [*(answer.value for answer in find_json(text)), text]
    verdicts = {verified for answer in answers if (verified := _verdict(answer))}
    if len(verdicts) == 1:
        return verdicts.pop()
    return Verified("UNCERTAIN", f"the verifier's answer could not be read: {quote(response.text, 200)}")


def _verdict(answer: Any) -> Verified | None:
    """Return the outcome in a verifier's JSON or single word; None if there is none or more than one."""
    candidates = [answer.get(name) for name in _VERDICT_FIELDS] if isinstance(answer, dict) else [answer]
    outcomes = {outcome for text in candidates if isinstance(text, str) and (outcome := outcome_of(plain(text)))}
    if len(outcomes) != 1:
        return None
    return Verified(outcomes.pop(), str(answer.get("reason") or "").strip() if isinstance(answer, dict) else "")


async def forward_cross_verify(attempt: Attempt) -> Verified:
    """Compare with three answers of the verify llm at temperature 0.3: an agreement of 0.7 or more is OK."""
    return await _cross_verify(attempt, agreement)


async def tool_use_verifier(attempt: Attempt) -> Verified:
    """Check the tool and its parameters, then compare with three more choices."""
    try:
        check_choice(attempt.value, attempt.tools)
    except AnswerError as error:
        return Verified("FAIL", str(error))
    return await _cross_verify(attempt, _choice_agreement)


def _choice_agreement(first: Any, second: Any) -> float:
    """Return the agreement of two choices; 0 if the tools differ."""
    return agreement(first["parameters"], second["parameters"]) if first["tool"] == second["tool"] else 0.0


async def _cross_verify(attempt: Attempt, agree: Callable[[Any, Any], float]) -> Verified:
    # Wait for all, so that no call continues unobserved when another fails.
    others = await asyncio.gather(*(attempt.ask_again() for _ in range(CROSS_CALLS)), return_exceptions=True)
    errors = [other for other in others if isinstance(other, BaseException) and not isinstance(other, AnswerError)]
    # An exhausted budget is more informative than a failed call.
    for error in sorted(errors, key=lambda error: (isinstance(error, Exception), in_words(error))):
        raise error
    mean = _mean([0.0 if isinstance(other, AnswerError) else agree(attempt.value, other) for other in others])
    # Answers arrive in any order; sorting keeps the next prompt, and so its cache key, the same.
    texts = (
        f"unreadable ({other})" if isinstance(other, AnswerError) else shorten(text_of(other), 200) for other in others
    )
    answers = "; ".join(sorted(texts))
    # Floating-point sums may fall just below the threshold.
    outcome: Outcome = "OK" if mean >= _AGREES - 1e-9 else "UNCERTAIN" if mean >= _LEANS - 1e-9 else "FAIL"
    return Verified(outcome, f"{CROSS_CALLS} other answers agree with this one by {mean:.2f}: {answers}")


def agreement(first: Any, second: Any) -> float:
    """Return the agreement of two values from 0 to 1: the mean over fields and items, 0 or 1 for leaves."""
    return _agreement(_builtins(first), _builtins(second))


def _builtins(value: Any) -> Any:
    return msgspec.to_builtins(value, order="deterministic", enc_hook=fields_of)


def _agreement(first: Any, second: Any) -> float:
    if isinstance(first, dict) and isinstance(second, dict):
        names = first.keys() | second.keys()
        return _mean([_agreement(first.get(name, _ABSENT), second.get(name, _ABSENT)) for name in names])
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return _mean([_agreement(*pair) for pair in zip_longest(first, second, fillvalue=_ABSENT)])
    return float(_same_leaf(first, second))


def _mean(shares: list[float]) -> float:
    # Sorted, so that the order of fields does not change the sum.
    return sum(sorted(shares)) / len(shares) if shares else 1.0


def _same_leaf(first: Any, second: Any) -> bool:
    if isinstance(first, str) and isinstance(second, str):
        return _same_text(_normalize(first), _normalize(second))
    # For Python, True is 1.
    if isinstance(first, bool) is not isinstance(second, bool):
        return False
    return bool(first == second)


def _same_text(first: str, second: str) -> bool:
    if first == second:
        return True
    if min(len(first), len(second)) <= _LONG_TEXT:
        return False
    from rapidfuzz.fuzz import ratio

    return ratio(first, second, score_cutoff=_ALIKE) >= _ALIKE


def _normalize(text: str) -> str:
    """Normalize case, width and whitespace."""
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split())
