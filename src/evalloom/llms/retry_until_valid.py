"""Asks an llm again, with the errors named, until its answer has the requested form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from msgspec import Struct

from evalloom.core.errors import CallError
from evalloom.core.model import Llm, Record, Request

TRIES = 3

Answer = TypeVar("Answer")


class Best(Struct, Generic[Answer], frozen=True):
    """The best answer to a question, and the errors that are left in it."""

    answer: Answer
    errors: tuple[str, ...] = ()
    is_unreadable: bool = False
    """Whether nothing in it can be used, so that any other answer is better."""


async def ask(
    llm: Llm, messages: list[Record], read: Callable[[str], Best[Answer]], params: Record | None = None, repeat: int = 0
) -> Best[Answer]:
    """Ask until the answer has no errors, at most three times, and return the answer with the fewest errors.

    `read` parses an answer and lists its errors. A CallError is raised unless there is an answer already, which then
    counts.
    """
    best: Best[Answer] | None = None
    for _ in range(TRIES):
        try:
            response = await llm(Request(messages, params or {}, answer="json", repeat=repeat))
        except CallError as error:
            if best is None:
                raise
            return Best(best.answer, (*best.errors, f"asked again, and got no answer: {error}"))
        parsed = read(response.text)
        # Of equally good answers the last counts, because it knows the errors of the others.
        if best is None or (parsed.is_unreadable, len(parsed.errors)) <= (best.is_unreadable, len(best.errors)):
            best = parsed
        if not parsed.errors:
            break
        listed = "\n".join(f"- {error}" for error in parsed.errors)
        correction = f"That answer cannot be used:\n{listed}\nAnswer again, with one JSON object in the requested form."
        messages = [
            *messages,
            {"role": "assistant", "content": response.text or "…"},
            {"role": "user", "content": correction},
        ]
    assert best is not None
    return best
