"""Parses the answer of a prompt by its `output_parser`: JSON, a list, a number, a choice and others.

An answer that does not fit raises `AnswerError`, whose message can be sent back to the llm.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import Any

from msgspec import Struct

from evalloom.core.json_schema import cut, first_line, validator
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record, show_path
from evalloom.core.patterns import BadPattern, find, pattern_error
from evalloom.core.text import did_you_mean, quote, type_name
from evalloom.llms.answer_json import AnswerError, ParsedAnswer, find_json, strip_reasoning

KINDS = ("text", "json", "list", "lines", "number", "boolean", "choice", "regex")
MAX_ANSWER = 1_000_000
"""The longest answer that is parsed; no llm writes a longer one."""
# A pattern of users runs over a text that they did not write, so both its text and its time are limited.
_MAX_SEARCHED = 100_000
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
_MAX_QUOTED = 120
_LAST_WORDS = 40
_RETRIES = 2
_MAX_RETRIES = 10
_MAX_ERRORS = 3


class OutputParser(Struct, frozen=True):
    """How an answer is parsed; `retries` says how often the llm is asked again when it does not fit."""

    kind: str = "text"
    schema: Record | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    retries: int = _RETRIES
    fix_prompt: str = ""
    """The prompt's own message for an llm whose answer could not be read."""


OptionError = tuple[str, str]
"""A key of an output parser, and what is wrong with its value."""


# -- options ------------------------------------------------------------------------------------------


def read_parser(written: Any) -> tuple[OutputParser, list[OptionError]]:
    """Read the `output_parser` of a prompt, a word or an object, and return it with everything wrong in it."""
    if written is None:
        return OutputParser(), []
    if isinstance(written, str):
        written = {"type": written}
    if not isinstance(written, dict):
        return OutputParser(), [("output_parser", f"expected a word or an object with type, got {type_name(written)}")]
    errors = [
        (str(key), f"a parser has no such key{did_you_mean(str(key), _KEYS)}") for key in written if key not in _KEYS
    ]
    kind = _read_kind(written, errors)
    parser = OutputParser(
        kind,
        _read_schema(written, errors),
        _read_choices(written, kind, errors),
        _read_pattern(written, kind, errors),
        _read_retries(written, errors),
        _read_text(written, "fix_prompt", errors),
    )
    return parser, errors


def _read_kind(written: Record, errors: list[OptionError]) -> str:
    kind = written.get("type")
    if kind is None:
        # A schema, choices or a pattern imply the kind.
        implied = {"schema": "json", "choices": "choice", "values": "choice", "pattern": "regex"}
        return next((kind for key, kind in implied.items() if written.get(key) is not None), "text")
    word = kind.strip().lower() if isinstance(kind, str) else ""
    word = _ALIASES.get(word, word)
    if word in KINDS:
        return word
    hint = did_you_mean(kind, (*KINDS, *_ALIASES)) if isinstance(kind, str) else ""
    errors.append(("type", f"expected {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {quote(kind)}{hint}"))
    return "text"


def _read_schema(written: Record, errors: list[OptionError]) -> Record | None:
    schema = written.get("schema")
    if schema is None:
        if written.get("pydantic_model") is not None:
            errors.append(("pydantic_model", "classes are not loaded from a prompt. Write their JSON Schema as schema"))
        return None
    if not isinstance(schema, dict):
        errors.append(("schema", f"expected a JSON Schema, got {type_name(schema)}"))
        return None
    try:
        validator(schema)
    except (TypeError, ValueError, RecursionError) as error:
        errors.append(("schema", f"expected a JSON Schema: {first_line(error)}"))
        return None
    return schema


def _read_choices(written: Record, kind: str, errors: list[OptionError]) -> tuple[str, ...]:
    choices: Any = written.get("choices") if written.get("choices") is not None else written.get("values")
    if choices is None and kind != "choice":
        return ()
    is_list = isinstance(choices, list) and choices
    if not is_list or not all(isinstance(choice, str) and choice.strip() for choice in choices):
        got = "nothing" if choices is None else quote(choices)
        errors.append(("choices", f"expected a list of texts to choose from, got {got}"))
        return ()
    return tuple(choices)


def _read_pattern(written: Record, kind: str, errors: list[OptionError]) -> str:
    pattern = _read_text(written, "pattern", errors)
    if kind == "regex" and written.get("pattern") in (None, ""):
        errors.append(("pattern", "the type regex needs a pattern"))
    if reason := pattern_error(pattern):
        errors.append(("pattern", f"{quote(pattern)} is not a regular expression: {reason}"))
        return ""
    return pattern


def _read_text(written: Record, key: str, errors: list[OptionError]) -> str:
    value = written.get(key)
    if value is None or isinstance(value, str):
        return value or ""
    errors.append((key, f"expected a string, got {type_name(value)}"))
    return ""


def _read_retries(written: Record, errors: list[OptionError]) -> int:
    is_retried, retries = written.get("retry_on_error"), written.get("max_retries")
    if is_retried is not None and not isinstance(is_retried, bool):
        errors.append(("retry_on_error", f"expected true or false, got {quote(is_retried)}"))
    if retries is None:
        retries = _RETRIES
    elif isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= _MAX_RETRIES:
        errors.append(("max_retries", f"expected a whole number from 0 to {_MAX_RETRIES}, got {quote(retries)}"))
        retries = _RETRIES
    return 0 if is_retried is False else retries


# -- answers ------------------------------------------------------------------------------------------


def parse(parser: OutputParser, text: str) -> ParsedAnswer:
    """Return the value of an answer. Raises AnswerError, and only that."""
    if parser.kind == "text":
        return ParsedAnswer(text)
    if len(text) > MAX_ANSWER:
        raise AnswerError(f"expected at most {MAX_ANSWER:,} characters, got {len(text):,}")
    answer = strip_reasoning(text)
    if not answer.strip():
        raise _misfit(parser, text)
    parsed = _PARSERS[parser.kind](parser, answer)
    if answer == text:
        return parsed
    return ParsedAnswer(parsed.value, f"left out the reasoning, {parsed.repair}".removesuffix(", "))


_EXPECTED = {
    "json": "JSON",
    "list": "a list",
    "lines": "at least one line",
    "number": "one number",
    "boolean": "true or false, or yes or no",
}


def _misfit(parser: OutputParser, text: str, count: str = "") -> AnswerError:
    """Say what was expected and what came; `count` says how many values came."""
    expected = _EXPECTED.get(parser.kind, "")
    if parser.kind == "choice":
        more = f" and {len(parser.choices) - 20} more" if len(parser.choices) > 20 else ""
        expected = f"one of {', '.join(map(quote, parser.choices[:20]))}{more}"
    elif parser.kind == "regex":
        expected = f"a text that fits the pattern {quote(parser.pattern)}"
    got = quote(text.strip(), _MAX_QUOTED) if text.strip() else "nothing"
    return AnswerError(f"expected {expected}, got {count}{got}")


def _parse_json(parser: OutputParser, text: str) -> ParsedAnswer:
    answers = list(find_json(text, malformed="repair"))
    if not answers:
        raise _misfit(parser, text)
    if parser.schema is None:
        return answers[0]
    errors: list[str] = []
    for answer in answers:
        answer_errors = _schema_errors(parser.schema, answer.value)
        if not answer_errors:
            return answer
        errors = errors or answer_errors
    got = quote(text.strip(), _MAX_QUOTED)
    raise AnswerError(f"expected JSON that fits the schema, got {got}: {'; '.join(errors)}")


def _schema_errors(schema: Record, value: Any) -> list[str]:
    """Return the first few errors of a value against a JSON Schema, each with its path."""
    try:
        errors = list(islice(validator(schema).iter_errors(value), _MAX_ERRORS + 1))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return [first_line(error)]
    shown = [f"{show_path(tuple(error.instance_path)) or '$'}: {cut(error.message)}" for error in errors[:_MAX_ERRORS]]
    return [*shown, "and more"] if len(errors) > _MAX_ERRORS else shown


# A dash or a dot and a space, or a number with a point or a bracket; 1.5 is not one.
_BULLET = lazy_pattern(r"(?:[-*+•·]\s+|\d{1,4}[.)]\s+|\d{1,4}[、）]\s*)(?=\S)")
_COMMA = lazy_pattern(r"[,，、;；]")


def _parse_list(parser: OutputParser, text: str) -> ParsedAnswer:
    """Take JSON, the lines of a list, or else the parts between commas."""
    if text.lstrip()[0] in "[{`" and (answer := next(find_json(text, malformed="repair"), None)):
        return _as_list(answer, parser, text)
    lines = _lines(text)
    bullets = [line[match.end() :] for line in lines if (match := _BULLET.match(line))]
    if bullets:
        left_out = ", and left out the others" if len(bullets) < len(lines) else ""
        return ParsedAnswer(bullets, f"took the marks off the lines of the list{left_out}")
    answers = find_json(text, malformed="repair")
    json_list = next((answer for answer in answers if isinstance(answer.value, list)), None)
    if json_list or len(lines) > 1:
        return json_list or ParsedAnswer(lines)
    return ParsedAnswer([part for part in map(str.strip, _COMMA.split(lines[0])) if part])


def _as_list(answer: ParsedAnswer, parser: OutputParser, text: str) -> ParsedAnswer:
    """Return a list, or the only list in an object."""
    if isinstance(answer.value, list):
        return answer
    fields = answer.value.items() if isinstance(answer.value, dict) else ()
    lists = [(name, value) for name, value in fields if isinstance(value, list)]
    if len(lists) != 1:
        raise _misfit(parser, text)
    taken = f"took the list out of {quote(lists[0][0])}"
    return ParsedAnswer(lists[0][1], f"{answer.repair}, {taken}" if answer.repair else taken)


def _parse_lines(parser: OutputParser, text: str) -> ParsedAnswer:
    return ParsedAnswer(_lines(text))


def _lines(text: str) -> list[str]:
    return [line for line in map(str.strip, text.splitlines()) if line]


_NUMBER = lazy_pattern(r"(?<![\w.])[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,3})?(?!\w|\.\d)")
_AROUND = " \t\r\n.。!！*_`\"'“”‘’「」[]()"
"""What llms put around a single word or number."""


def _parse_number(parser: OutputParser, text: str) -> ParsedAnswer:
    numbers = list(dict.fromkeys(match[0] for match in islice(_NUMBER.finditer(text), 100)))
    if len(numbers) != 1:
        raise _misfit(parser, text, f"{len(numbers)} of them in " if numbers else "")
    digits = numbers[0].replace(",", "").replace("−", "-").removeprefix("+")
    try:
        value = int(digits) if digits.lstrip("-").isdigit() else float(digits)
    except ValueError:  # Python converts no integer of more than 4,300 digits
        value = math.inf
    if value in (math.inf, -math.inf):
        raise _misfit(parser, text, "one that is too large in ")
    return ParsedAnswer(value, "" if text.strip() == numbers[0] else "took the number out of the text")


_TRUE = ("true", "yes", "y", "1", "correct", "是", "是的", "对", "正确", "真")
_FALSE = ("false", "no", "n", "0", "incorrect", "否", "不是", "不", "错", "错误", "假")
# Inside prose only where it begins or ends the answer: "this is not true" does not mean true.
_BEGINS = lazy_pattern(r"\W*(true|yes|false|no|是的|不是)(?![a-z0-9_])")
_ENDS = lazy_pattern(r"[:：]\s*[*_`\"'“]*(true|yes|false|no|是的?|不是|否)\W*\Z")


def _parse_boolean(parser: OutputParser, text: str) -> ParsedAnswer:
    word = text.strip(_AROUND).lower()
    if word in _TRUE or word in _FALSE:
        return ParsedAnswer(word in _TRUE)
    words = {match[1] for match in (_BEGINS.match(word), _ENDS.search(word[-_LAST_WORDS:])) if match}
    values = {word in _TRUE for word in words}
    if len(values) != 1:
        raise _misfit(parser, text)
    return ParsedAnswer(values.pop(), f"took {quote(words.pop())} out of the text")


def _parse_choice(parser: OutputParser, text: str) -> ParsedAnswer:
    if text.strip() in parser.choices:
        return ParsedAnswer(text.strip())
    word = text.strip(_AROUND).casefold()
    alike = [choice for choice in parser.choices if word and choice.strip(_AROUND).casefold() == word]
    if len(alike) == 1:
        return ParsedAnswer(alike[0], f"read {quote(text.strip())} as {quote(alike[0])}")
    named = _choices_in(text, parser.choices)
    if len(named) != 1:
        raise _misfit(parser, text, f"{len(named)} of them in " if named else "")
    return ParsedAnswer(named[0], f"took {quote(named[0])} out of the text")


def _choices_in(text: str, choices: tuple[str, ...]) -> list[str]:
    """Return the choices that a text names as separate words; of two that overlap, the longer."""
    if not choices:
        return []
    by_word = {choice.casefold(): choice for choice in choices}
    matches = _choices_pattern(choices).finditer(text.casefold())
    return list(dict.fromkeys(by_word[match[0]] for match in islice(matches, 1000)))


@lru_cache(maxsize=64)
def _choices_pattern(choices: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted({choice.casefold() for choice in choices}, key=len, reverse=True)
    return re.compile("|".join(_as_word(choice) for choice in longest_first))


def _as_word(choice: str) -> str:
    """Return a pattern for a separate word; Chinese has no spaces between words."""
    before = r"(?<![a-z0-9_])" if choice[0].isascii() else ""
    after = r"(?![a-z0-9_])" if choice[-1].isascii() else ""
    return f"{before}{re.escape(choice)}{after}"


def _parse_regex(parser: OutputParser, text: str) -> ParsedAnswer:
    """Take the named groups, the groups, or else all of the first match."""
    try:
        match = find(parser.pattern, text[:_MAX_SEARCHED], seconds=_SEARCH_S)
    except BadPattern as error:
        raise AnswerError(str(error)) from None
    if match is None:
        raise _misfit(parser, text)
    if match.named:
        return ParsedAnswer(match.named)
    return ParsedAnswer(
        list(match.groups) if len(match.groups) > 1 else match.groups[0] if match.groups else match.whole
    )


_PARSERS: dict[str, Callable[[OutputParser, str], ParsedAnswer]] = {
    "json": _parse_json,
    "list": _parse_list,
    "lines": _parse_lines,
    "number": _parse_number,
    "boolean": _parse_boolean,
    "choice": _parse_choice,
    "regex": _parse_regex,
}
