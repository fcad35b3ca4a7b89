"""A question whose answer must have a form: what does not is asked for again, with the fault named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from msgspec import Struct

from evalloom.core.errors import CallError
from evalloom.core.model import Llm, Record, Request
from evalloom.core.text import quote

TRIES = 3
_FENCED = re.compile(r"\s*```[^\S\n]*(?:\w+[^\S\n]*)?\n(.*?)```\s*", re.DOTALL)

Answer = TypeVar("Answer")


class Unreadable(Exception):
    """An answer is not what was asked for; the message says all that is wrong with it."""


class Best(Struct, Generic[Answer], frozen=True):
    """What came of a question: the best answer, and what is still wrong with it where something is."""

    answer: Answer
    faults: tuple[str, ...] = ()
    is_unreadable: bool = False
    """Whether there is nothing in it at all: then any other answer is better."""


async def ask(
    llm: Llm, messages: list[Record], read: Callable[[str], Best[Answer]], params: Record | None = None, repeat: int = 0
) -> Best[Answer]:
    """Asks until the answer has no fault, three times at most; then the answer with the fewest faults counts.

    `read` says what is in an answer and what is wrong with it. A CallError goes through, unless there is an answer
    already: then that one counts.
    """
    best: Best[Answer] | None = None
    for _ in range(TRIES):
        try:
            response = await llm(Request(messages, params or {}, answer="json", repeat=repeat))
        except CallError as fault:
            if best is None:
                raise
            return Best(best.answer, (*best.faults, f"asked again, and got no answer: {fault}"))
        found = read(response.text)
        if best is None or _worth(found) <= _worth(best):
            best = found
        if not found.faults:
            break
        messages = [*messages, {"role": "assistant", "content": response.text or "…"}, _again(found.faults)]
    assert best is not None
    return best


def _worth(found: Best[Answer]) -> tuple[bool, int]:
    return found.is_unreadable, len(found.faults)


def _again(faults: tuple[str, ...]) -> Record:
    listed = "\n".join(f"- {fault}" for fault in faults)
    told = f"That answer cannot be used:\n{listed}\nAnswer again, with one JSON object in the form that was asked for."
    return {"role": "user", "content": told}


def object_of(text: str) -> Record:
    """The JSON object that an answer is, bare or in one fence. Raises Unreadable.

    Nothing may stand around it: an object among prose may be a piece of what was asked about.
    """
    fenced = _FENCED.fullmatch(text)
    try:
        found = json.loads((fenced[1] if fenced else text).strip("\ufeff \t\r\n"), object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Unreadable(f"expected one JSON object and nothing else, got {quote(text, 80)}")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> Record:
    """An object whose keys stand there once: of two values nobody knows which was meant."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, _ in pairs if sum(name == other for other, _ in pairs) > 1)
        raise Unreadable(f"{twice}: is there more than once")
    return found
