"""A question whose answer must have a form: what does not is asked for again, with the fault named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from msgspec import Struct

from evalloom.asking.json_text import values_in
from evalloom.model import Llm, Record, Request, quote

TRIES = 3

Answer = TypeVar("Answer")


class Unreadable(Exception):
    """An answer is not what was asked for; the message says all that is wrong with it."""


class Best(Struct, Generic[Answer], frozen=True):
    """What came of a question: the best answer, and what is still wrong with it where something is."""

    answer: Answer
    faults: tuple[str, ...] = ()


async def ask(
    llm: Llm, messages: list[Record], read: Callable[[str], Best[Answer]], params: Record | None = None, repeat: int = 0
) -> Best[Answer]:
    """Asks until the answer has no fault, three times at most; then the answer with the fewest faults counts.

    `read` says what is in an answer and what is wrong with it. CallError goes through.
    """
    best: Best[Answer] | None = None
    for _ in range(TRIES):
        response = await llm(Request(messages, params or {}, answer="json", repeat=repeat))
        found = read(response.text)
        if best is None or len(found.faults) <= len(best.faults):
            best = found
        if not found.faults:
            break
        messages = [*messages, {"role": "assistant", "content": response.text or "…"}, _again(found.faults)]
    assert best is not None
    return best


def _again(faults: tuple[str, ...]) -> Record:
    listed = "\n".join(f"- {fault}" for fault in faults)
    told = f"That answer cannot be used:\n{listed}\nAnswer again, with one JSON object in the form that was asked for."
    return {"role": "user", "content": told}


def object_of(text: str) -> Record:
    """The one JSON object of an answer, bare or in a fence. Raises Unreadable."""
    found: list[Any] = list(values_in(text))
    objects = [value for value in found if isinstance(value, dict)]
    if len(objects) != 1 or len(found) != 1:
        count = f"{len(found)} values" if len(found) > 1 else quote(text, 80)
        raise Unreadable(f"expected one JSON object and nothing else, got {count}")
    return objects[0]
