"""Verifiers: what is asked of an answer before a hoplet gets it (HOP-10).

A verifier takes an `Attempt` and says `Verified`. Whoever writes one of their own may also give a boolean or
`(outcome, reason)`, async or not.
"""

from __future__ import annotations

import asyncio
import inspect
import unicodedata
from collections.abc import Awaitable, Callable
from itertools import zip_longest
from typing import Any, get_args

import msgspec
from msgspec import Struct

from evalloom.core.errors import CallError
from evalloom.core.model import Llm, Outcome, Request, quote
from evalloom.hop.operators import prompts
from evalloom.hop.operators.parse import Format, Misfit, plain, spoken
from evalloom.hop.operators.to_json import fault_in_words, fields_of, in_words, quoted, text_of
from evalloom.hop.operators.tools import Tool, check_choice
from evalloom.llms.json_text import values_in

CROSS_CALLS = 3
CROSS_TEMPERATURE = 0.3
_AGREES = 0.7
_LEANS = 0.4
_LONG_TEXT = 40
_ALIKE = 85
_OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_VERDICT_FIELDS = ("status", "outcome", "verdict", "result")
_ABSENT = object()


class Verified(Struct, frozen=True):
    """What a verifier says of an answer; the reason is what the llm is told when it has to try again."""

    outcome: Outcome
    reason: str = ""


class Attempt(Struct, frozen=True):
    """One answer to be verified, with all that it was asked by."""

    task: str
    context: str
    value: Any
    """The answer as a value of the format."""
    text: str
    """The answer as the llm wrote it."""
    format: Format
    verify: Llm
    ask_again: Callable[[], Awaitable[Any]]
    """Puts the same question to the verify llm once more, at a temperature of its own. Raises Misfit or CallError."""
    tools: tuple[Tool, ...] = ()
    is_chinese: bool = False


Verifier = Callable[[Attempt], Any]
"""`(attempt) -> Verified | bool | (outcome, reason)`, or an awaitable of it:

    def quotes_the_context(attempt):
        is_quoted = attempt.value in attempt.context
        return is_quoted or ("FAIL", f"for {attempt.task!r}, quote the context word for word")
"""


async def verified_by(verifier: Verifier, attempt: Attempt) -> Verified:
    """What a verifier says. What it raises is FAIL with its text, but for a CallError, which ends the operator."""
    name = getattr(verifier, "__name__", type(verifier).__name__)
    try:
        said = verifier(attempt)
        if inspect.isawaitable(said):
            said = await said
        return _read(said, name)
    except CallError:
        raise
    except Exception as fault:  # users' code
        return Verified("FAIL", f"{name} raised {fault_in_words(fault)}")


def _read(said: Any, name: str) -> Verified:
    if isinstance(said, bool):
        return Verified("OK") if said else Verified("FAIL", f"{name} does not accept this answer")
    if isinstance(said, Verified):
        said = said.outcome, said.reason
    if isinstance(said, tuple | list) and len(said) == 2 and said[0] in _OUTCOMES:
        return Verified(said[0], str(said[1] or ""))
    wanted = f"True, False, Verified or (outcome, reason) with one of {', '.join(_OUTCOMES)}"
    return Verified("FAIL", f"{name}: expected {wanted}, got {quoted(said)}")


def format_verifier(attempt: Attempt) -> Verified:
    """OK when the answer is of its `return_format`. Calls nobody, and comes first before every other verifier."""
    try:
        attempt.format.read(attempt.text)
    except Misfit as fault:
        return Verified("FAIL", str(fault))
    return Verified("OK")


async def reverse_verify(attempt: Attempt) -> Verified:
    """One call of the verify llm, which sees task, context and answer, and gives one of the four outcomes."""
    messages = prompts.verification(attempt.task, attempt.context, attempt.value, attempt.is_chinese)
    response = await attempt.verify(Request(messages, answer="json"))
    text = spoken(response.text)
    said = {verified for found in (*values_in(text), text) if (verified := _verdict(found))}
    if len(said) == 1:
        return said.pop()
    return Verified("UNCERTAIN", f"the verifier's answer could not be read: {quote(response.text, 200)}")


def _verdict(found: Any) -> Verified | None:
    """The outcome in a verifier's JSON, or in a word that is all it said; None where there is none, or several."""
    told = [found.get(name) for name in _VERDICT_FIELDS] if isinstance(found, dict) else [found]
    outcomes = {outcome for one in told if (outcome := _outcome(one))}
    if len(outcomes) != 1:
        return None
    return Verified(outcomes.pop(), str(found.get("reason") or "").strip() if isinstance(found, dict) else "")


def _outcome(word: Any) -> Outcome | None:
    """An outcome, however the word for it is written."""
    said = "_".join(plain(word).upper().replace("-", " ").split()) if isinstance(word, str) else ""
    return next((outcome for outcome in _OUTCOMES if outcome == said), None)


async def forward_cross_verify(attempt: Attempt) -> Verified:
    """Three more answers of the verify llm at temperature 0.3: OK when they agree with this one by 0.7 or more."""
    return await _cross(attempt, agreement)


async def tool_use_verifier(attempt: Attempt) -> Verified:
    """The tool is known, its parameters are as declared, or there is none; then three more choices must agree."""
    try:
        check_choice(attempt.value, attempt.tools)
    except Misfit as fault:
        return Verified("FAIL", str(fault))
    return await _cross(attempt, _same_choice)


def _same_choice(one: Any, other: Any) -> float:
    """How far two choices agree: not at all when the tools differ, however alike their parameters."""
    return agreement(one["parameters"], other["parameters"]) if one["tool"] == other["tool"] else 0.0


async def _cross(attempt: Attempt, agree: Callable[[Any, Any], float]) -> Verified:
    # All are waited for, so that none goes on unheard when another fails.
    others = await asyncio.gather(*(attempt.ask_again() for _ in range(CROSS_CALLS)), return_exceptions=True)
    faults = [other for other in others if isinstance(other, BaseException) and not isinstance(other, Misfit)]
    # A spent budget says more than a call that failed beside it.
    for fault in sorted(faults, key=lambda fault: (isinstance(fault, Exception), in_words(fault))):
        raise fault
    mean = _mean([0.0 if isinstance(other, Misfit) else agree(attempt.value, other) for other in others])
    # The three come in any order, and what is said of them becomes part of a question that must stay the same.
    said = "; ".join(sorted(f"unreadable ({other})" if isinstance(other, Misfit) else _cut(other) for other in others))
    # Three shares may add up to a hair less than what they come to.
    outcome: Outcome = "OK" if mean >= _AGREES - 1e-9 else "UNCERTAIN" if mean >= _LEANS - 1e-9 else "FAIL"
    return Verified(outcome, f"{CROSS_CALLS} other answers agree with this one by {mean:.2f}: {said}")


def _cut(value: Any, limit: int = 200) -> str:
    text = text_of(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def agreement(one: Any, other: Any) -> float:
    """How far two values agree, from 0 to 1: over fields and positions the mean, over leaves equal or not."""
    return _agreement(_builtins(one), _builtins(other))


def _builtins(value: Any) -> Any:
    return msgspec.to_builtins(value, order="deterministic", enc_hook=fields_of)


def _agreement(one: Any, other: Any) -> float:
    if isinstance(one, dict) and isinstance(other, dict):
        names = one.keys() | other.keys()
        return _mean([_agreement(one.get(name, _ABSENT), other.get(name, _ABSENT)) for name in names])
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return _mean([_agreement(*pair) for pair in zip_longest(one, other, fillvalue=_ABSENT)])
    return float(_same_leaf(one, other))


def _mean(shares: list[float]) -> float:
    # Summed in order of size, so that the order of fields makes no difference.
    return sum(sorted(shares)) / len(shares) if shares else 1.0


def _same_leaf(one: Any, other: Any) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return _same_text(_folded(one), _folded(other))
    # For Python, True is 1.
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    return bool(one == other)


def _same_text(one: str, other: str) -> bool:
    if one == other:
        return True
    if min(len(one), len(other)) <= _LONG_TEXT:
        return False
    from rapidfuzz.fuzz import ratio

    return ratio(one, other, score_cutoff=_ALIKE) >= _ALIKE


def _folded(text: str) -> str:
    """A text in one case and width, with single blanks."""
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split())
