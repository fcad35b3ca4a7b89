"""Parses an llm's answer into a value: the text itself, JSON inside it, or an unambiguous word.

Nothing here calls an llm. A bad answer raises `AnswerError`, whose message goes back to the llm.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from evalloom.core.text import quote, shorten
from evalloom.llms.answer_json import NO_JSON, AnswerError, find_json, loads, strip_fence

YES = frozenset(("true", "yes", "y", "是", "是的", "对", "正确", "真", "成立"))
NO = frozenset(("false", "no", "n", "否", "不是", "不", "不对", "错误", "错", "假", "不成立"))
_UNCERTAIN = frozenset(("uncertain", "unsure", "unknown", "不确定", "无法确定", "无法判断"))
_AROUND = " \t\r\n\"'`*“”‘’"
_WRAPPERS = ("value", "result", "answer")
_LONGEST = 200
_IN_FORM = ("in this form", "形式如下")

Convert = Callable[[Any], Any]
"""Converts JSON to a value of a format, or raises AnswerError."""


class Format(Struct, frozen=True):
    """How to request an answer and how to parse it. `read` converts a text to a value, or raises AnswerError."""

    read: Callable[[str], Any]
    instructions: tuple[str, str]
    is_object: bool = False
    """Whether the answer is a JSON object, so the llm's JSON mode applies."""

    def describe(self, is_chinese: bool) -> str:
        """Return the sentence of the prompt that describes the reply."""
        return self.instructions[is_chinese]


# --- plain texts


def _read_text(text: str) -> str:
    text = _require_text(text, "a text")
    parsed = loads(text) if text[0] == '"' else NO_JSON
    return parsed.strip() if isinstance(parsed, str) else text


def _require_text(text: str, expected: str) -> str:
    text = text.strip()
    if not text:
        raise AnswerError(f"expected {expected}, got an empty answer")
    return text


TEXT = Format(_read_text, ("Reply with the answer only, as plain text.", "只回复答案本身，用纯文本。"))


def note_format(note: str) -> Format:
    """Return the format for a description in words: a JSON object or list if the answer is one, else the text."""

    def read(text: str) -> Any:
        text = _require_text(text, note or "an answer")
        parsed = loads(strip_fence(text))
        return parsed if isinstance(parsed, dict | list) else _require_text(_read_text(text), note or "an answer")

    english, chinese = "Reply with the answer only", "只回复答案本身"
    return Format(
        read, (f"{english}, as: {note}" if note else f"{english}.", f"{chinese}：{note}" if note else f"{chinese}。")
    )


# --- JSON in a text


def json_format(
    convert: Convert, form: str, is_object: bool = False, takes_text: bool = False, by: tuple[str, str] = _IN_FORM
) -> Format:
    """Return a JSON format. `form` describes it to the llm; `takes_text` also accepts plain words as the value."""

    expected = shorten(form, _LONGEST)

    def read(text: str) -> Any:
        return _read_json(_require_text(text, expected), convert, expected, takes_text)

    english = f"Reply with JSON only, without a fence or any other text, {by[0]}: {form}"
    return Format(read, (english, f"只回复 JSON，不要代码围栏，也不要其他文字，{by[1]}：{form}"), is_object)


def _read_json(text: str, convert: Convert, expected: str, takes_text: bool) -> Any:
    """Return the only matching value in a text, or plain words if `takes_text`."""
    fits: list[tuple[Any, Any]] = []
    errors: list[AnswerError] = []
    # Parts of malformed JSON are not the answer, but plain words may contain brackets.
    for answer in find_json(text, malformed="skip" if takes_text else "refuse"):
        try:
            fits.append((answer.value, _convert_unwrapped(answer.value, convert)))
        except AnswerError as error:
            errors.append(error)
    for words in (text, plain(text)) if takes_text and not fits else ():
        try:
            return convert(words)
        except AnswerError as error:
            errors.append(error)
    if not fits:
        raise errors[0] if errors else AnswerError(f"expected {expected}, got {shown(text)}")
    if any(value != fits[0][0] for value, _ in fits):
        raise AnswerError(f"expected one answer, got several that differ: {shown([value for value, _ in fits])}")
    return fits[0][1]


def _convert_unwrapped(value: Any, convert: Convert) -> Any:
    try:
        return convert(value)
    except AnswerError as error:
        for inner in _unwrap(value):
            try:
                return convert(inner)
            except AnswerError:
                continue
        raise error


def _unwrap(value: Any) -> Iterator[Any]:
    """Yield the value inside common wrappers: an object with one field, or JSON in a string."""
    if isinstance(value, dict) and len(value) == 1:
        name, inner = next(iter(value.items()))
        if name in _WRAPPERS:
            yield inner
    elif isinstance(value, str) and (inner := loads(value)) is not NO_JSON:
        yield inner


def plain(text: str) -> str:
    """Strip the quotes, markup and full stop that llms put around a word."""
    return text.lstrip(_AROUND).rstrip(_AROUND + "。.!！")


def shown(value: Any) -> str:
    """Format a value for a message to the llm: JSON, truncated."""
    try:
        return shorten(json.dumps(value, ensure_ascii=False, default=repr), _LONGEST)
    except (TypeError, ValueError, RecursionError):
        return quote(value, _LONGEST)


# --- judgements


def _to_judgement(value: Any) -> bool | str:
    if isinstance(value, dict):
        wrapped = [value[name] for name in _WRAPPERS if name in value]
        value = wrapped[0] if wrapped else value
    if isinstance(value, bool):
        return value
    word = plain(value).casefold() if isinstance(value, str) else ""
    if word in YES or word in NO:
        return word in YES
    if word in _UNCERTAIN:
        return "Uncertain"
    raise AnswerError(f'answer: expected true, false or "Uncertain", got {shown(value)}')


JUDGEMENT = json_format(
    _to_judgement, '{"reason": <string>, "answer": true | false | "Uncertain"}', is_object=True, takes_text=True
)
