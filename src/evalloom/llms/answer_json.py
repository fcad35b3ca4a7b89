"""Reads JSON in answers of llms: bare, in a fence, among prose, after reasoning, and slightly malformed.

Callers choose how strict to be: `loads` takes a text that is JSON as a whole, `only_object` one object with nothing
around it, and `find_json` whatever JSON a text holds. The message of an `AnswerError` can be sent back to the llm.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, Literal

import orjson
from msgspec import Struct

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record
from evalloom.core.text import quote
from evalloom.llms.malformed_json import LenientReader, finite_float, refuse_constant, repair_by_library, repair_json

__all__ = [
    "NO_JSON",
    "AnswerError",
    "ParsedAnswer",
    "find_json",
    "loads",
    "object_in",
    "only_object",
    "strip_fence",
    "strip_reasoning",
]

NO_JSON: Any = object()
"""Returned where a text holds no JSON, because null is JSON."""

_FENCE = lazy_pattern(r"```[^\S\n]*(?:\w+[^\S\n]*)?\n(.*?)(```|\Z)", re.DOTALL)
_ONLY_FENCE = lazy_pattern(r"\s*```[^\S\n]*(?:\w+[^\S\n]*)?\n(.*?)```\s*", re.DOTALL)
_OPENING = lazy_pattern(r"[{\[]")
_BRACKET = lazy_pattern(r"[{}\[\]]")
# A brace or bracket in prose is seldom followed by a quote.
_JSON_BEGINS = lazy_pattern(r'\{\s*"|\[\s*[\[{"]')
_LONG_NUMBER = lazy_pattern(r"\d{19}|[eE]\+?\d{3}")
_REASONING_TAG = lazy_pattern(r"[<◁](?P<end>/?)(?:seed:)?think(?:ing)?[>▷]", re.IGNORECASE)
_REASONING_BEGINS = lazy_pattern(r"\s*[<◁](?:seed:)?think(?:ing)?[>▷]", re.IGNORECASE)
# A text of nothing but brackets takes time that grows with its square, so the number of places is limited.
_MAX_PLACES = 200
_MAX_REPAIRED_PLACES = 50

_DECODER = json.JSONDecoder(parse_constant=refuse_constant)


class AnswerError(Exception):
    """An answer does not have the requested form; the message says what was expected and what came."""


class ParsedAnswer(Struct, frozen=True):
    """The value of an answer; `repair` says in words what was changed or left out to get it."""

    value: Any
    repair: str = ""


# -- the text around JSON -----------------------------------------------------------------------------


def strip_reasoning(text: str) -> str:
    """Return an answer without the `<think>…</think>` at its start; some llms omit the opening tag."""
    position = 0
    while opening := _REASONING_BEGINS.match(text, position):
        end = _end_of_reasoning(text, opening.end())
        if end is None:
            # Reasoning that was cut off leaves no answer.
            return ""
        position = end
    if position:
        return text[position:].lstrip()
    tag = _REASONING_TAG.search(text)
    if tag is None or not tag["end"] or loads(text) is not NO_JSON or _is_in_json(text, tag.start()):
        return text
    return text[tag.end() :].lstrip()


def _drop_inner_reasoning(text: str) -> str:
    """Return a text without the reasoning in its prose. A tag inside JSON is part of it, and a lone tag is a word."""
    position = 0
    for _ in range(_MAX_REPAIRED_PLACES):
        tag = _REASONING_TAG.search(text, position)
        if tag is None:
            break
        end = None if tag["end"] else _end_of_reasoning(text, tag.end())
        if end is None or _is_in_json(text, tag.start(), is_malformed=True):
            position = tag.end()
        else:
            text, position = f"{text[: tag.start()]} {text[end:]}", tag.start()
    return text


def _end_of_reasoning(text: str, start: int) -> int | None:
    """Return where reasoning ends that began before `start`; None if it was cut off."""
    depth, last = 1, None
    for tag in _REASONING_TAG.finditer(text, start):
        if not tag["end"]:
            depth += 1
            continue
        depth, last = depth - 1, tag.end()
        if not depth:
            break
    # An opening tag may be quoted in the reasoning, and has no end then: the last end counts.
    return last


def _is_in_json(text: str, position: int, is_malformed: bool = False) -> bool:
    """Return whether a position is inside a JSON object or list, or inside one that `is_malformed`."""
    end = 0
    for _ in range(_MAX_PLACES):
        opening = _OPENING.search(text, end, position)
        if opening is None:
            return False
        start = opening.start()
        try:
            end = _DECODER.raw_decode(text, start)[1]
        except (ValueError, RecursionError):
            is_json = is_malformed and _JSON_BEGINS.match(text, start)
            end = _end_of_malformed(text, start, start) if is_json else opening.end()
        if end > position:
            return True
    return False


def strip_fence(text: str) -> str:
    """Return the content of a text that is one fenced block and nothing else, else the text."""
    fenced = _ONLY_FENCE.fullmatch(text)
    return fenced[1] if fenced else text


# -- valid JSON ---------------------------------------------------------------------------------------


def loads(text: str) -> Any:
    """Return the value of a text that is JSON as a whole, else `NO_JSON`."""
    try:
        # orjson turns an integer beyond 64 bits into a float, and 1e999 into infinity.
        return _loads_exactly(text) if _LONG_NUMBER.search(text) else orjson.loads(text)
    except ValueError:
        return _loads_exactly(text)


def _loads_exactly(text: str) -> Any:
    """Load what orjson refuses or changes: a byte order mark, half of a surrogate pair, long numbers."""
    text = text.strip().removeprefix("\ufeff")
    if not text or text[0] not in '{["-0123456789tfn':
        return NO_JSON
    try:
        return json.loads(text, parse_constant=refuse_constant, parse_float=finite_float)
    except (ValueError, RecursionError):
        return NO_JSON


def only_object(text: str) -> Record:
    """Return the JSON object that an answer is, bare or in one fence. Raises AnswerError.

    Nothing may stand around it: an object among prose may be a quotation from the question.
    """
    try:
        value = json.loads(
            strip_fence(strip_reasoning(text)).strip("\ufeff \t\r\n"),
            object_pairs_hook=_unique_keys,
            parse_constant=refuse_constant,
        )
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise AnswerError(f"expected one JSON object and nothing else, got {quote(text, 80)}")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> Record:
    # Of two values under one key, it is unknown which is meant.
    record: Record = {}
    for name, value in pairs:
        if name in record:
            raise AnswerError(f"{name}: is there more than once")
        record[name] = value
    return record


# The checks of one case look at the same text one after another.
@lru_cache(maxsize=4)
def object_in(text: str) -> Any:
    """Return the first JSON object that a text is or holds, else `NO_JSON`."""
    return next((answer.value for answer in find_json(text) if isinstance(answer.value, dict)), NO_JSON)


def find_json(text: str, *, malformed: Literal["skip", "refuse", "repair"] = "skip") -> Iterator[ParsedAnswer]:
    """Yield the JSON in a text: all of it, or what stands in fences, or the objects and lists among the prose.

    Malformed JSON is skipped, which may leave valid values inside it; or refused with an AnswerError; or repaired where
    its meaning is clear. Where it is repaired, objects come before lists, because prose has brackets of its own.
    """
    value = loads(text)
    if value is not NO_JSON:
        yield ParsedAnswer(value)
        return
    answer = _drop_inner_reasoning(strip_reasoning(text))
    notes = ["left out the reasoning"] if answer != text else []
    if notes and (value := loads(answer)) is not NO_JSON:
        yield ParsedAnswer(value, *notes)
        return
    if malformed == "refuse":
        _refuse_malformed(answer)
    for value, repairs in _repaired_values(answer) if malformed == "repair" else _valid_values(answer):
        yield ParsedAnswer(value, ", ".join([*notes, *repairs]))


def _refuse_malformed(text: str) -> None:
    """Raise AnswerError where the first JSON is truncated or malformed: its inner values are not the answer."""
    begins = _JSON_BEGINS.search(text)
    if begins is None:
        return
    try:
        _DECODER.raw_decode(text, begins.start())
    except json.JSONDecodeError as error:
        raise AnswerError(f"expected JSON, got {quote(text[begins.start() :], 200)}: {error}") from None
    except (ValueError, RecursionError):
        raise AnswerError("expected JSON, got lists or objects too deep to be read") from None


def _valid_values(text: str) -> Iterator[tuple[Any, list[str]]]:
    fenced = [value for block in _FENCE.finditer(text) if block[2] and (value := loads(block[1])) is not NO_JSON]
    if fenced:
        yield from ((value, []) for value in fenced)
        return
    position = 0
    for _ in range(_MAX_PLACES):
        opening = _OPENING.search(text, position)
        if opening is None:
            return
        try:
            value, position = _DECODER.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            position = opening.end()
        else:
            yield value, []


# -- malformed JSON -----------------------------------------------------------------------------------


def _repaired_values(text: str) -> Iterator[tuple[Any, list[str]]]:
    """Yield the values of a text, and what was changed or left out to get each."""
    blocks = [block[1] for block in islice(_FENCE.finditer(text), _MAX_REPAIRED_PLACES)]
    place = "a fenced block" if len(blocks) == 1 else f"one of {len(blocks)} fenced blocks"
    is_fenced = False
    for block in blocks:
        value, repairs = loads(block), list[str]()
        if value is NO_JSON:
            try:
                value, repairs = repair_json(block)
            except ValueError:
                continue
        is_fenced = True
        yield value, [f"took the JSON out of {place}", *repairs]
    if is_fenced:
        return
    spans = sorted(_repaired_spans(text), key=lambda span: not isinstance(span.value, dict))
    several = f", which holds {len(spans)} values" if len(spans) > 1 else ""
    for span in spans:
        kind = "object" if isinstance(span.value, dict) else "list"
        yield (
            span.value,
            span.repairs if span.is_whole else [f"took the {kind} out of the text{several}", *span.repairs],
        )


class _Span(Struct, frozen=True):
    """A value that stands somewhere in a text, or is all of it."""

    value: Any
    repairs: list[str] = []
    is_whole: bool = False


def _repaired_spans(text: str) -> Iterator[_Span]:
    reader, end = LenientReader(text), 0
    for _ in range(_MAX_REPAIRED_PLACES):
        opening = _OPENING.search(text, end)
        # All places share one budget: a hostile text has thousands of them.
        if opening is None or reader.budget <= 0:
            return
        start, end = opening.start(), opening.end()
        is_first = not text[:start].strip()
        reader = LenientReader(text, start, reader.budget)
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            try:
                value, end = reader.read(), reader.position
            except ValueError:
                if is_first:
                    try:
                        yield _Span(*repair_by_library(text[start:]), is_whole=True)
                        return
                    except ValueError:
                        if _JSON_BEGINS.match(text, start):
                            return
                end = _end_of_malformed(text, start, reader.position)
                continue
        yield _Span(value, reader.repairs, is_whole=is_first and not text[end:].strip())


def _end_of_malformed(text: str, start: int, stopped: int) -> int:
    """Return where to look on after a malformed value: what stands inside it is not what was meant."""
    closing: list[str] = []
    for bracket in _BRACKET.finditer(text, start):
        if bracket[0] in "{[":
            closing.append("}" if bracket[0] == "{" else "]")
        elif closing.pop() != bracket[0]:
            break
        if not closing:
            return max(bracket.end(), stopped)
    return len(text) if _JSON_BEGINS.match(text, start) else max(stopped, start + 1)
