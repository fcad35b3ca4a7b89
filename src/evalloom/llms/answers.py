"""What a prompt step makes of an llm's answer: JSON, a list, a number, one of some choices. What was mended is told.

An answer that cannot be read raises `Unparsed`, whose message is fit to be sent back to the model.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from msgspec import Struct

from evalloom.core.json_schema import cut, first_line, validator
from evalloom.core.model import Record, show_path
from evalloom.core.patterns import BadPattern, find
from evalloom.core.text import did_you_mean, quote, type_name
from evalloom.llms.broken_json import Broken, Reader
from evalloom.llms.json_text import NO_JSON, loads

KINDS = ("text", "json", "list", "lines", "number", "boolean", "choice", "regex")
MAX_ANSWER = 1_000_000
"""How long an answer may be that is to be taken apart: no llm writes a longer one."""
_MAX_SEARCHED = 100_000
"""How much of an answer a pattern is looked for in; the pattern is the author's, the text is not."""
_SEARCH_S = 0.3
_ALIASES = {
    **dict.fromkeys(("none", "str", "string", "raw"), "text"),
    **dict.fromkeys(("pydantic", "object", "dict", "json_schema"), "json"),
    **dict.fromkeys(("array", "csv"), "list"),
    **dict.fromkeys(("int", "integer", "float"), "number"),
    **dict.fromkeys(("bool",), "boolean"),
    **dict.fromkeys(("enum", "choices"), "choice"),
    **dict.fromkeys(("regexp", "pattern"), "regex"),
}
_KEYS = (
    *("type", "schema", "choices", "values", "pattern", "retry_on_error", "max_retries", "fix_prompt"),
    *("pydantic_model", "description"),
)
_SHOWN = 120
_LAST_WORDS = 40
_RETRIES = 2
_MOST_RETRIES = 10
_MOST_FAULTS = 3
_LONG_FAULT = 200


class Unparsed(Exception):
    """The answer is not what was asked for; the message says what was expected and what came."""


class Parser(Struct, frozen=True):
    """How an answer is read; `retries` says how often the model may be asked again when it cannot be."""

    kind: str = "text"
    schema: Record | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    retries: int = _RETRIES
    fix_prompt: str = ""
    """What to say to the model when it is asked again, where the prompt has words of its own for that."""


class Parsed(Struct, frozen=True):
    """What an answer comes to; `repair` says in words what was mended to get there."""

    value: Any
    repair: str = ""


Fault = tuple[str, str]
"""A key of a parser, and what is wrong with it."""


# -- options ------------------------------------------------------------------------------------------


def read_parser(given: Any) -> tuple[Parser, list[Fault]]:
    """The parser that a prompt asks for under `output_parser`, as a word or an object, and what is wrong with it."""
    if given is None:
        return Parser(), []
    if isinstance(given, str):
        given = {"type": given}
    if not isinstance(given, dict):
        return Parser(), [("output_parser", f"expected a word or an object with type, got {type_name(given)}")]
    faults = [
        (str(key), f"a parser has no such key{did_you_mean(str(key), _KEYS)}") for key in given if key not in _KEYS
    ]
    kind = _read_kind(given, faults)
    choices = given.get("choices") if given.get("choices") is not None else given.get("values")
    parser = Parser(
        kind,
        _read_schema(given, faults),
        _read_choices(choices, kind, faults),
        _read_pattern(given, kind, faults),
        _read_retries(given, faults),
        _read_text(given, "fix_prompt", faults),
    )
    return parser, faults


def _read_kind(given: Record, faults: list[Fault]) -> str:
    # A schema, choices or a pattern say what is meant.
    implied = {"schema": "json", "choices": "choice", "values": "choice", "pattern": "regex"}
    written = given.get("type")
    if written is None:
        return next((kind for key, kind in implied.items() if given.get(key) is not None), "text")
    word = written.strip().lower() if isinstance(written, str) else ""
    kind = _ALIASES.get(word, word)
    if kind in KINDS:
        return kind
    known = (*KINDS, *_ALIASES)
    hint = did_you_mean(written, known) if isinstance(written, str) else ""
    faults.append(("type", f"expected {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {quote(written)}{hint}"))
    return "text"


def _read_schema(given: Record, faults: list[Fault]) -> Record | None:
    schema = given.get("schema")
    if schema is None:
        if given.get("pydantic_model") is not None:
            faults.append(("pydantic_model", "classes are not loaded from a prompt. Write their JSON Schema as schema"))
        return None
    if not isinstance(schema, dict):
        faults.append(("schema", f"expected a JSON Schema, got {type_name(schema)}"))
        return None
    try:
        validator(schema)
    except (TypeError, ValueError, RecursionError) as fault:
        faults.append(("schema", f"expected a JSON Schema: {first_line(fault)}"))
        return None
    return schema


def _read_choices(choices: Any, kind: str, faults: list[Fault]) -> tuple[str, ...]:
    if choices is None and kind != "choice":
        return ()
    if not isinstance(choices, list) or not choices or not all(isinstance(one, str) and one.strip() for one in choices):
        got = "nothing" if choices is None else quote(choices)
        faults.append(("choices", f"expected a list of texts to choose from, got {got}"))
        return ()
    return tuple(choices)


def _read_pattern(given: Record, kind: str, faults: list[Fault]) -> str:
    pattern = _read_text(given, "pattern", faults)
    if kind == "regex" and given.get("pattern") in (None, ""):
        faults.append(("pattern", "the type regex needs a pattern"))
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError, ValueError) as fault:
        faults.append(("pattern", f"{quote(pattern)} is no regular expression: {fault}"))
        return ""
    return pattern


def _read_text(given: Record, key: str, faults: list[Fault]) -> str:
    value = given.get(key)
    if value is None or isinstance(value, str):
        return value or ""
    faults.append((key, f"expected a string, got {type_name(value)}"))
    return ""


def _read_retries(given: Record, faults: list[Fault]) -> int:
    again, most = given.get("retry_on_error"), given.get("max_retries")
    if again is not None and not isinstance(again, bool):
        faults.append(("retry_on_error", f"expected true or false, got {quote(again)}"))
    if most is None:
        most = _RETRIES
    elif isinstance(most, bool) or not isinstance(most, int) or not 0 <= most <= _MOST_RETRIES:
        faults.append(("max_retries", f"expected a whole number from 0 to {_MOST_RETRIES}, got {quote(most)}"))
        most = _RETRIES
    return 0 if again is False else most


# -- answers ------------------------------------------------------------------------------------------


def parse(parser: Parser, text: str) -> Parsed:
    """What an answer comes to. Raises Unparsed, and only that."""
    if parser.kind == "text":
        return Parsed(text)
    if len(text) > MAX_ANSWER:
        raise Unparsed(f"expected at most {MAX_ANSWER:,} characters, got {len(text):,}")
    if not text.strip():
        raise _unparsed(parser, text)
    return _PARSERS[parser.kind](parser, text)


_WANTED = {
    "json": "JSON",
    "list": "a list",
    "lines": "at least one line",
    "number": "one number",
    "boolean": "true or false, or yes or no",
}


def _unparsed(parser: Parser, text: str, among: str = "") -> Unparsed:
    """What was expected, and what came; `among` says what was found in it."""
    wanted = _WANTED.get(parser.kind, "")
    if parser.kind == "choice":
        wanted = f"one of {_shown(parser.choices)}"
    elif parser.kind == "regex":
        wanted = f"a text that fits the pattern {quote(parser.pattern)}"
    came = quote(text.strip(), _SHOWN) if text.strip() else "nothing"
    return Unparsed(f"expected {wanted}, got {among}{came}")


# A dash or a dot and a space, or a number with a point or a bracket: 1.5 is none.
_BULLET = re.compile(r"(?:[-*+•·]\s+|\d{1,4}[.)]\s+|\d{1,4}[、）]\s*)(?=\S)")
_COMMA = re.compile(r"[,，、;；]")


def _parse_list(parser: Parser, text: str) -> Parsed:
    """JSON, the lines of a list, or else what stands between commas."""
    if text.lstrip()[0] in "[{`" and (found := next(_json_in(text), None)):
        return _as_list(found, parser, text)
    lines = _lines(text)
    bullets = [line[match.end() :] for line in lines if (match := _BULLET.match(line))]
    if bullets:
        left_out = ", and left out the others" if len(bullets) < len(lines) else ""
        return Parsed(bullets, f"took the marks off the lines of the list{left_out}")
    among = next((one for one in _json_in(text) if isinstance(one.value, list)), None)
    if among or len(lines) > 1:
        return among or Parsed(lines)
    return Parsed([part for part in map(str.strip, _COMMA.split(lines[0])) if part])


def _as_list(found: Parsed, parser: Parser, text: str) -> Parsed:
    """A list, or the only one in an object."""
    if isinstance(found.value, list):
        return found
    fields = found.value.items() if isinstance(found.value, dict) else ()
    lists = [(name, value) for name, value in fields if isinstance(value, list)]
    if len(lists) != 1:
        raise _unparsed(parser, text)
    told = f"took the list out of {quote(lists[0][0])}"
    return Parsed(lists[0][1], f"{found.repair}, {told}" if found.repair else told)


def _parse_lines(parser: Parser, text: str) -> Parsed:
    return Parsed(_lines(text))


def _lines(text: str) -> list[str]:
    return [line for line in map(str.strip, text.splitlines()) if line]


_NUMBER = re.compile(r"(?<![\w.])[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,3})?(?!\w|\.\d)")
_AROUND = " \t\r\n.。!！*_`\"'“”‘’「」[]()"
"""What llms put around a single word or number."""


def _parse_number(parser: Parser, text: str) -> Parsed:
    found = list(dict.fromkeys(match[0] for match in islice(_NUMBER.finditer(text), 100)))
    if len(found) != 1:
        raise _unparsed(parser, text, f"{len(found)} of them in " if found else "")
    value = _number(found[0])
    if value is None:
        raise _unparsed(parser, text, "one that is too large in ")
    return Parsed(value, "" if text.strip() == found[0] else "took the number out of the text")


def _number(written: str) -> int | float | None:
    plain = written.replace(",", "").replace("−", "-").removeprefix("+")
    try:
        value = int(plain) if plain.lstrip("-").isdigit() else float(plain)
    except ValueError:
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


_TRUE = ("true", "yes", "y", "1", "correct", "是", "是的", "对", "正确", "真")
_FALSE = ("false", "no", "n", "0", "incorrect", "否", "不是", "不", "错", "错误", "假")
# Inside prose only where it begins or ends the answer: "this is not true" does not mean true.
_BEGINS = re.compile(r"\W*(true|yes|false|no|是的|不是)(?![a-z0-9_])")
_ENDS = re.compile(r"[:：]\s*[*_`\"'“]*(true|yes|false|no|是的?|不是|否)\W*\Z")


def _parse_boolean(parser: Parser, text: str) -> Parsed:
    word = text.strip(_AROUND).lower()
    if word in _TRUE or word in _FALSE:
        return Parsed(word in _TRUE)
    found = {match[1] for match in (_BEGINS.match(word), _ENDS.search(word[-_LAST_WORDS:])) if match}
    values = {word in _TRUE for word in found}
    if len(values) != 1:
        raise _unparsed(parser, text)
    return Parsed(values.pop(), f"took {quote(found.pop())} out of the text")


def _parse_choice(parser: Parser, text: str) -> Parsed:
    if text.strip() in parser.choices:
        return Parsed(text.strip())
    word = text.strip(_AROUND).casefold()
    alike = [choice for choice in parser.choices if word and choice.strip(_AROUND).casefold() == word]
    if len(alike) == 1:
        return Parsed(alike[0], f"read {quote(text.strip())} as {quote(alike[0])}")
    found = _among(text, parser.choices)
    if len(found) != 1:
        raise _unparsed(parser, text, f"{len(found)} of them in " if found else "")
    return Parsed(found[0], f"took {quote(found[0])} out of the text")


def _shown(choices: tuple[str, ...]) -> str:
    more = f" and {len(choices) - 20} more" if len(choices) > 20 else ""
    return ", ".join(map(quote, choices[:20])) + more


def _among(text: str, choices: tuple[str, ...]) -> list[str]:
    """The choices that stand in a text as words of their own; of two that overlap, the longer."""
    if not choices:
        return []
    known = {choice.casefold(): choice for choice in choices}
    matches = _choices_pattern(choices).finditer(text.casefold())
    return list(dict.fromkeys(known[match[0]] for match in islice(matches, 1000)))


@lru_cache(maxsize=64)
def _choices_pattern(choices: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted({choice.casefold() for choice in choices}, key=len, reverse=True)
    return re.compile("|".join(_as_word(choice) for choice in longest_first))


def _as_word(choice: str) -> str:
    """A pattern for a word of its own; Chinese has no spaces between words."""
    before = r"(?<![a-z0-9_])" if choice[0].isascii() else ""
    after = r"(?![a-z0-9_])" if choice[-1].isascii() else ""
    return f"{before}{re.escape(choice)}{after}"


def _parse_regex(parser: Parser, text: str) -> Parsed:
    """The named groups, the groups, or else all of the first place that fits."""
    try:
        found = find(parser.pattern, text[:_MAX_SEARCHED], seconds=_SEARCH_S)
    except BadPattern as fault:
        raise Unparsed(str(fault)) from None
    if found is None:
        raise _unparsed(parser, text)
    if found.named:
        return Parsed(found.named)
    return Parsed(list(found.groups) if len(found.groups) > 1 else found.groups[0] if found.groups else found.whole)


# -- JSON ---------------------------------------------------------------------------------------------

_FENCE = re.compile(r"```[^\S\n]*(?:\w+[^\S\n]*)?\n(.*?)(?:```|\Z)", re.DOTALL)
_OPENING = re.compile(r"[{\[]")
_TRIES = 50


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _parse_json(parser: Parser, text: str) -> Parsed:
    found = list(_json_in(text))
    if not found:
        raise _unparsed(parser, text)
    if parser.schema is None:
        return found[0]
    faults: list[str] = []
    for one in found:
        misfits = _misfits(parser.schema, one.value)
        if not misfits:
            return one
        faults = faults or misfits
    raise Unparsed(f"expected JSON that fits the schema, got {quote(text.strip(), _SHOWN)}: {'; '.join(faults)}")


def _json_in(text: str) -> Iterator[Parsed]:
    """What a text holds as JSON, the likeliest first."""
    whole = loads(text)
    if whole is not NO_JSON:
        yield Parsed(whole)
        return
    blocks = [block[1] for block in islice(_FENCE.finditer(text), _TRIES)]
    fenced = [found for block in blocks if (found := _fenced(block, len(blocks))) is not None]
    yield from fenced or _among_prose(text)


def _fenced(block: str, among: int) -> Parsed | None:
    value, repairs = loads(block), list[str]()
    if value is NO_JSON:
        reader = Reader(block)
        try:
            value, repairs = reader.read_all(), reader.repairs
        except Broken:
            return None
    which = "a fenced block" if among == 1 else f"one of {among} fenced blocks"
    return Parsed(value, ", ".join([f"took the JSON out of {which}", *repairs]))


def _among_prose(text: str) -> list[Parsed]:
    """The objects and lists that stand in a text; objects first, since prose has brackets of its own."""
    spans = sorted(_spans(text), key=lambda span: not isinstance(span.value, dict))
    several = f", which holds {len(spans)} values" if len(spans) > 1 else ""
    return [Parsed(span.value, ", ".join(span.told(several))) for span in spans]


class _Span(NamedTuple):
    """A value that stands somewhere in a text, or is all of it."""

    value: Any
    repairs: list[str]
    is_all: bool

    def told(self, several: str) -> list[str]:
        kind = "object" if isinstance(self.value, dict) else "list"
        return self.repairs if self.is_all else [f"took the {kind} out of the text{several}", *self.repairs]


def _spans(text: str) -> Iterator[_Span]:
    reader, end = Reader(text), 0
    for _ in range(_TRIES):
        opening = _OPENING.search(text, end)
        # One budget for all the places: a hostile text has thousands of them.
        if opening is None or reader.budget <= 0:
            return
        start, end = opening.start(), opening.end()
        reader = Reader(text, start, reader.budget)
        try:
            value, end = _strict(text, start) or (reader.read(), reader.at)
        except Broken:
            # What stands inside something broken is not what was meant.
            end = max(end, reader.at)
            continue
        yield _Span(value, reader.repairs, not text[:start].strip() and not text[end:].strip())


def _strict(text: str, start: int) -> tuple[Any, int] | None:
    """The JSON that begins at a place, and where it ends; None where it is none."""
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None


# -- schemas ------------------------------------------------------------------------------------------


def _misfits(schema: Record, value: Any) -> list[str]:
    """What keeps a value from fitting a JSON Schema, the first few faults by their paths."""
    try:
        faults = list(islice(validator(schema).iter_errors(value), _MOST_FAULTS + 1))
    except (TypeError, ValueError, OverflowError, RecursionError) as fault:
        return [first_line(fault)]
    told = [f"{show_path(tuple(one.instance_path)) or '$'}: {cut(one.message)}" for one in faults[:_MOST_FAULTS]]
    return [*told, "and more"] if len(faults) > _MOST_FAULTS else told


_PARSERS: dict[str, Callable[[Parser, str], Parsed]] = {
    "json": _parse_json,
    "list": _parse_list,
    "lines": _parse_lines,
    "number": _parse_number,
    "boolean": _parse_boolean,
    "choice": _parse_choice,
    "regex": _parse_regex,
}
