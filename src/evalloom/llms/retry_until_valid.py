"""A question whose answer must have a form: what does not is asked for again, with the fault named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from msgspec import Struct

from evalloom.core.errors import CallError
from evalloom.core.model import Llm, Record, Request

TRIES = 3

Answer = TypeVar("Answer")


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
