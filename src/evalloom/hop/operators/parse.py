"""Parses an llm's answer into a value: the text itself, JSON inside it, or an unambiguous word.

Nothing here calls an llm. A bad answer raises `Misfit`, whose message goes back to the llm.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from evalloom.core.text import quote, shorten
from evalloom.llms.json_text import NO_JSON, loads, values_in

YES = frozenset(("true", "yes", "y", "是", "是的", "对", "正确", "真", "成立"))
NO = frozenset(("false", "no", "n", "否", "不是", "不", "不对", "错误", "错", "假", "不成立"))
_UNCERTAIN = frozenset(("uncertain", "unsure", "unknown", "不确定", "无法确定", "无法判断"))
_AROUND = " \t\r\n\"'`*“”‘’"
_WRAPPERS = ("value", "result", "answer")
_LONGEST = 200
_JSON_BEGINS = re.compile(r'\{\s*"|\[\s*[\[{"]')
_FENCED = re.compile(r"```[^\S\n]*\w*[^\S\n]*\n(.*?)\n?```", re.DOTALL)
_DECODER = json.JSONDecoder()
_IN_FORM = ("in this form", "形式如下")

Convert = Callable[[Any], Any]
"""Converts JSON to a value of a format, or raises Misfit."""


class Misfit(Exception):
    """An answer does not match the format; the message says where, what was expected and what was found."""


class Format(Struct, frozen=True):
    """How to request an answer and how to parse it. `read` converts a text to a value, or raises Misfit."""

    read: Callable[[str], Any]
    asks: tuple[str, str]
    is_object: bool = False
    """Whether the answer is a JSON object, so the llm's JSON mode applies."""

    def describe(self, is_chinese: bool) -> str:
        """Return the sentence of the prompt that says how to reply."""
        return self.asks[is_chinese]


# --- plain texts


def spoken(text: str) -> str:
    """Strip the reasoning before `</think>`; some llms omit the opening tag."""
    thoughts, end, rest = text.partition("</think>")
    is_thought = end and ("<think>" not in thoughts or thoughts.lstrip().startswith("<think>"))
    return rest.lstrip() if is_thought else text


def _read_text(text: str) -> str:
    text = _not_empty(text, "a text")
    whole = loads(text) if text[0] == '"' else NO_JSON
    return whole.strip() if isinstance(whole, str) else text


def _not_empty(text: str, expected: str) -> str:
    text = text.strip()
    if not text:
        raise Misfit(f"expected {expected}, got an empty answer")
    return text


TEXT = Format(_read_text, ("Reply with the answer only, as plain text.", "只回复答案本身，用纯文本。"))


def note_format(note: str) -> Format:
    """Return the format for a description in words: a JSON object or list if the answer is one, else the text."""

    def read(text: str) -> Any:
        text = _not_empty(text, note or "an answer")
        fenced = _FENCED.fullmatch(text)
        whole = loads(fenced[1] if fenced else text)
        return whole if isinstance(whole, dict | list) else _not_empty(_read_text(text), note or "an answer")

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
        return _read_json(_not_empty(text, expected), convert, expected, takes_text)

    english = f"Reply with JSON only, without a fence or any other text, {by[0]}: {form}"
    return Format(read, (english, f"只回复 JSON，不要代码围栏，也不要其他文字，{by[1]}：{form}"), is_object)


def _read_json(text: str, convert: Convert, expected: str, takes_text: bool) -> Any:
    """Return the only matching value in a text, or plain words if `takes_text`."""
    if not takes_text:
        _refuse_broken(text)
    fits: list[tuple[Any, Any]] = []
    misfits: list[Misfit] = []
    for value in values_in(text):
        try:
            fits.append((value, _converted(value, convert)))
        except Misfit as misfit:
            misfits.append(misfit)
    for words in (text, plain(text)) if takes_text and not fits else ():
        try:
            return convert(words)
        except Misfit as misfit:
            misfits.append(misfit)
    if not fits:
        raise misfits[0] if misfits else Misfit(f"expected {expected}, got {shown(text)}")
    if any(value != fits[0][0] for value, _ in fits):
        raise Misfit(f"expected one answer, got several that differ: {shown([value for value, _ in fits])}")
    return fits[0][1]


def _refuse_broken(text: str) -> None:
    """Raise Misfit for truncated or malformed JSON: its inner values may parse, but they are not the answer."""
    begins = _JSON_BEGINS.search(text) if loads(text) is NO_JSON else None
    if begins is None:
        return
    try:
        _DECODER.raw_decode(text, begins.start())
    except json.JSONDecodeError as error:
        raise Misfit(f"expected JSON, got {shown(text[begins.start() :])}: {error}") from None
    except RecursionError:
        raise Misfit("expected JSON, got lists or objects too deep to be read") from None


def _converted(value: Any, convert: Convert) -> Any:
    try:
        return convert(value)
    except Misfit as misfit:
        for inner in _inside(value):
            try:
                return convert(inner)
            except Misfit:
                continue
        raise misfit


def _inside(value: Any) -> Iterator[Any]:
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
    raise Misfit(f'answer: expected true, false or "Uncertain", got {shown(value)}')


JUDGEMENT = json_format(
    _to_judgement, '{"reason": <string>, "answer": true | false | "Uncertain"}', is_object=True, takes_text=True
)
