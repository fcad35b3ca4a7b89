"""The formats of answers: a type, fields by name, a JSON Schema, or a description in words (HOP-10)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Annotated, Any, NotRequired, Optional, Required, TypedDict, get_origin, is_typeddict
from typing import get_args as arguments_of
from typing import get_type_hints as hints_of

import msgspec
from msgspec import Meta

from evalloom.core.json_schema import validator
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record, show_path
from evalloom.core.text import did_you_mean, shorten
from evalloom.hop.contract import TYPE_WORDS
from evalloom.hop.operators.parse import (
    NO,
    TEXT,
    YES,
    Convert,
    Format,
    json_format,
    note_format,
    plain,
    shown,
)
from evalloom.hop.operators.to_json import describe_error, in_words, quoted
from evalloom.llms.answer_json import AnswerError

_PYTHON_TYPES: dict[str, Any] = {
    "string": str,
    "int": int,
    "float": float,
    "bool": bool,
    "array": list,
    "object": dict,
    "any": Any,
}
_TYPE_WORD = lazy_pattern(
    r"(?P<word>[A-Za-z]+|[\u4e00-\u9fff]+)\s*(?:\[(?P<of>.*)\]|<(?P<of_>.*)>)?"
    r"\s*(?P<optional>\?|\|\s*(?:null|none)\b)?\s*(?:(?:[(（]|[,，:：;；]|-\s)\s*(?P<note>.*))?",
    re.IGNORECASE | re.DOTALL,
)
"""`int`, `list[string]`, `float?`, `int (1 to 5)`, `字符串：理由`."""
_SCHEMA_TYPES = frozenset(("string", "integer", "number", "boolean", "array", "object", "null"))
_SCHEMA_MARKS: dict[str, Callable[[Any], bool]] = {
    "type": lambda spec: _SCHEMA_TYPES.issuperset(spec if isinstance(spec, list) else [spec]),
    "properties": lambda spec: isinstance(spec, dict),
    "enum": lambda spec: isinstance(spec, list),
    "const": lambda spec: True,
    "items": lambda spec: isinstance(spec, dict | bool),
    **dict.fromkeys(("anyOf", "oneOf", "allOf"), lambda spec: isinstance(spec, list)),
}
_SCHEMA_WORDS = lazy_pattern(
    r"not|if|then|else|required|title|description|default|examples|format|pattern|contains|multipleOf|uniqueItems"
    r"|prefixItems|(min|max)\w+|exclusive\w+|additional\w+|dependent\w+|patternProperties|propertyNames|definitions|\$\w+"
)
_BOOLEAN_MISSED = lazy_pattern(r"Expected `bool(?: \| null)?`, got `str`(?: - at `\$(?P<path>.*)`)?$")
_STEP = lazy_pattern(r"\.([^.\[\]]+)|\[(\d+)\]")
_MOST_BOOLEANS = 100
_MOST_ERRORS = 3
_NUMBERS = count()
_BY_SCHEMA = ("that fits this JSON Schema", "须符合此 JSON Schema")


def format_of(return_format: Any) -> Format:
    """Return the format for a type, a JSON Schema, fields by name, or a description in words.

    Raises TypeError or ValueError for anything else.
    """
    if return_format is None or return_format is str:
        return TEXT
    try:
        key = _key(return_format)
        cached = _CACHE.get(key)
    except TypeError:
        # Some part of it is not hashable.
        return _compile(return_format)
    if cached is None:
        if len(_CACHE) == _CACHE_SIZE:
            _CACHE.clear()
        cached = _CACHE[key] = _compile(return_format)
    return cached


# A hoplet uses the same formats for every case, and compiling one takes far longer than parsing with it.
_CACHE: dict[Any, Format] = {}
_CACHE_SIZE = 256


def _key(spec: Any) -> Any:
    if isinstance(spec, dict):
        return dict, tuple((name, _key(item)) for name, item in spec.items())
    # In Python, True == 1.
    return (list, tuple(map(_key, spec))) if isinstance(spec, list) else (type(spec), spec)


def _compile(spec: Any) -> Format:
    if _contains_schema(spec):
        return _schema_format(schema_of(spec))
    if hasattr(spec, "model_validate") and hasattr(spec, "model_json_schema"):
        return _model_format(spec)
    if isinstance(spec, str) and _word(spec) is None:
        return note_format(spec.strip())
    kind = type_of(spec)
    if kind is str:
        return TEXT
    return note_format("") if kind is Any or kind is object else _type_format(kind)


# --- Python types


def _type_format(kind: Any) -> Format:
    try:
        schema = msgspec.json.schema(kind)
    except Exception as error:  # users' code: their annotations are evaluated here
        raise TypeError(_format_error(kind, in_words(error).rpartition("\n")[2] or type(error).__name__)) from None
    # msgspec.convert does not find a field whose name is not ASCII and was never encoded
    # (https://github.com/msgspec/msgspec/pull/1126).
    msgspec.json.encode(schema)
    root = _resolve(schema, schema)
    is_object, is_list = root.get("type") == "object", root.get("type") == "array"
    convert = _to_type(kind, tuple(choice for choice in root.get("enum", ()) if isinstance(choice, str)))
    return json_format(convert, _form_of(kind), is_object, takes_text=not is_object and not is_list)


def _format_error(spec: Any, reason: str) -> str:
    wanted = "a type, a JSON Schema, fields by name, or a description in words"
    return f"return_format: expected {wanted}, got {quoted(spec)}: {reason}"


def _to_type(kind: Any, choices: tuple[str, ...] = ()) -> Convert:
    """Return a lenient converter from JSON to a type: "42" is an integer, "是" and "yes" are true."""

    def convert(answer: Any) -> Any:
        for _ in range(_MOST_BOOLEANS):
            try:
                value = msgspec.convert(answer, kind, strict=False)
            except msgspec.ValidationError as error:
                repaired = _repair(answer, str(error), choices)
                if repaired is None:
                    raise AnswerError(f"{error}, in {shown(answer)}") from None
                answer = repaired
            except Exception as error:  # users' code: a class may check its fields
                raise AnswerError(f"{describe_error(error)}, in {shown(answer)}") from None
            else:
                if isinstance(value, float) and not math.isfinite(value):
                    raise AnswerError(f"expected a number, got {shown(answer)}")
                return value
        raise AnswerError(f"expected true or false in more than {_MOST_BOOLEANS} places, in {shown(answer)}")

    return convert


def _repair(answer: Any, error: str, choices: tuple[str, ...]) -> Any:
    """Return the JSON with one boolean or choice corrected; None if there is nothing to correct."""
    if isinstance(answer, str):
        same = [choice for choice in choices if choice.casefold() == answer.strip().casefold() and choice != answer]
        if len(same) == 1:
            return same[0]
    missed = _BOOLEAN_MISSED.match(error)
    if missed is None:
        return None
    steps = [name or int(index) for name, index in _STEP.findall(missed["path"] or "")]
    try:
        return _with_boolean(answer, steps)
    except (LookupError, TypeError):
        return None


def _with_boolean(answer: Any, steps: list[str | int]) -> Any:
    if not steps:
        word = plain(answer).casefold()
        return True if word in YES else False if word in NO else None
    changed = _with_boolean(answer[steps[0]], steps[1:])
    if changed is None:
        return None
    copy = answer.copy()
    copy[steps[0]] = changed
    return copy


# --- fields by name, in words


def type_of(spec: Any) -> Any:
    """Return the Python type for a word, fields by name, a list with one item, or a type."""
    if isinstance(spec, str):
        word = _word(spec)
        return Annotated[Any, Meta(description=spec.strip())] if word is None else word[0]
    if isinstance(spec, dict):
        fields = {str(name): _field_type(item) for name, item in spec.items()}
        # msgspec treats two types with the same name as one.
        return TypedDict(f"Fields{next(_NUMBERS)}", fields) if fields else dict  # type: ignore[operator]
    if isinstance(spec, list):
        if len(spec) != 1:
            raise TypeError(_format_error(spec, "a list needs exactly one item, the type of its items"))
        return list[type_of(spec[0])]  # type: ignore[misc]
    return spec


def _field_type(spec: Any) -> Any:
    word = _word(spec) if isinstance(spec, str) else None
    if isinstance(spec, str) and word is None and (meant := did_you_mean(spec, TYPE_WORDS, cutoff=0.85)):
        raise ValueError(_format_error(spec, f"it looks like the name of a type{meant}"))
    return NotRequired[word[0]] if word and word[1] else type_of(spec)


def _word(spec: str) -> tuple[Any, bool] | None:
    """Return the type that a text names and whether it is optional; None if the text is a description."""
    match = _TYPE_WORD.fullmatch(spec.strip())
    name = TYPE_WORDS.get(match["word"].lower()) if match else None
    if match is None or name is None:
        return None
    kind = _PYTHON_TYPES[name]
    of = match["of"] or match["of_"]
    if of and kind is list:
        kind = list[type_of(of)]  # type: ignore[misc]
    note = (match["note"] or "").strip().removesuffix(")").removesuffix("）").strip()
    if note:
        kind = Annotated[kind, Meta(description=note)]
    return (Optional[kind], True) if match["optional"] else (kind, False)  # noqa: UP045  (kind may be a special form)


# --- the form shown to the llm


def _form_of(kind: Any, enclosing: tuple[Any, ...] = ()) -> str:
    """Show a type as JSON with placeholders: `{"score": <integer>, "reason": <string>}`, fields in order."""
    if get_origin(kind) in (Required, NotRequired):
        return _form_of(arguments_of(kind)[0], enclosing)
    if get_origin(kind) is list:
        return f"[{_form_of(arguments_of(kind)[0], enclosing)}, …]"
    if is_typeddict(kind) and kind not in enclosing:
        optional = kind.__optional_keys__
        hints = hints_of(kind, include_extras=True)
        fields = ((name, _form_of(hint, (*enclosing, kind)), name not in optional) for name, hint in hints.items())
        return _object_form(fields)
    schema = msgspec.json.schema(kind)
    return _schema_form(schema, schema)


def _object_form(fields: Iterator[tuple[str, str, bool]]) -> str:
    parts = (f"{shown(name)}: {form}{'' if is_required else ' (optional)'}" for name, form, is_required in fields)
    return "{" + ", ".join(parts) + "}"


def _schema_form(schema: Record, root: Record, depth: int = 0) -> str:
    if depth > 8:
        # A type may be recursive.
        return "<…>"
    schema = _resolve(schema, root)
    if "enum" in schema:
        return " | ".join(map(shown, schema["enum"]))
    if "anyOf" in schema:
        return " | ".join(_schema_form(inner, root, depth + 1) for inner in schema["anyOf"])
    kind = schema.get("type")
    if kind == "object" and schema.get("properties"):
        required = schema.get("required", ())
        fields = schema["properties"].items()
        return _object_form((name, _schema_form(inner, root, depth + 1), name in required) for name, inner in fields)
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f'{{"<name>": {_schema_form(schema["additionalProperties"], root, depth + 1)}, …}}'
    if kind == "array" and isinstance(schema.get("items"), dict):
        return f"[{_schema_form(schema['items'], root, depth + 1)}, …]"
    if kind == "array" and schema.get("prefixItems"):
        return f"[{', '.join(_schema_form(inner, root, depth + 1) for inner in schema['prefixItems'])}]"
    if kind == "null":
        return "null"
    word = {"boolean": "true or false", "array": "list"}.get(kind or "", kind)
    parts = [word, schema.get("format"), schema.get("description")]
    return f"<{': '.join(filter(None, parts)) or 'anything'}>"


def _resolve(schema: Record, root: Record) -> Record:
    """Resolve a reference written by msgspec."""
    reference = schema.get("$ref", "")
    return root.get("$defs", {}).get(reference.rpartition("/")[2], {}) if reference else schema


# --- JSON Schema


def is_schema(spec: Record) -> bool:
    """Return whether an object is a JSON Schema, not fields by name such as `type` or `items`."""
    if "$schema" in spec or "$ref" in spec:
        return True
    marks = _SCHEMA_MARKS.keys() & spec.keys()
    if not marks or not all(_is_well_formed(mark, spec[mark]) for mark in marks):
        return False
    are_words = len(spec) > 1 and all(isinstance(item, str) and _word(item) for item in spec.values())
    others = spec.keys() - marks if spec.get("type") != "object" else ()
    is_schema_key = all(_SCHEMA_WORDS.fullmatch(str(name)) for name in others)
    return is_schema_key and not are_words


def _is_well_formed(mark: str, spec: Any) -> bool:
    try:
        return _SCHEMA_MARKS[mark](spec)
    except TypeError:
        # An unhashable value is not a JSON Schema type.
        return False


def _contains_schema(spec: Any) -> bool:
    """Return whether a spec is or contains a JSON Schema, at any depth."""
    if isinstance(spec, dict) and is_schema(spec):
        return True
    inner = spec.values() if isinstance(spec, dict) else spec if isinstance(spec, list) else ()
    return any(map(_contains_schema, inner))


def schema_of(spec: Any) -> Record:
    """Return the JSON Schema for fields by name, a word, or a type. Raises TypeError."""
    if isinstance(spec, dict):
        return spec if is_schema(spec) else fields_schema(spec)
    if isinstance(spec, list) and len(spec) == 1:
        return {"type": "array", "items": schema_of(spec[0])}
    schema = msgspec.json.schema(type_of(spec))
    if "$defs" in schema:
        # References point to the root of the schema, and this schema will be nested.
        raise TypeError(_format_error(spec, "a class cannot be combined with a JSON Schema"))
    choices = schema.get("anyOf", ())
    if choices and all(choice.keys() == {"type"} for choice in choices):
        # Equivalent, but validation errors are shorter.
        return {"type": [choice["type"] for choice in choices]}
    return schema


def fields_schema(fields: Record) -> Record:
    """Return the JSON Schema of an object with these fields."""
    optional = {name for name, spec in fields.items() if isinstance(spec, str) and (_word(spec) or (Any, False))[1]}
    return {
        "type": "object",
        "properties": {name: schema_of(spec) for name, spec in fields.items()},
        "required": [name for name in fields if name not in optional],
    }


def _schema_format(schema: Record) -> Format:
    if "type" not in schema and ("properties" in schema or "required" in schema):
        # Without a type, JSON Schema would also accept a text.
        schema = {"type": "object", **schema}
    convert = schema_converter(schema)
    form = json.dumps(schema, ensure_ascii=False)
    return json_format(convert, form, schema.get("type") == "object", _takes_texts(schema), _BY_SCHEMA)


def _takes_texts(schema: Record) -> bool:
    """Return whether a schema explicitly allows texts."""
    types = schema.get("type", [])
    choices = [*schema.get("enum", []), schema.get("const")]
    return "string" in ([types] if isinstance(types, str) else types) or any(
        isinstance(choice, str) for choice in choices
    )


def schema_converter(schema: Record) -> Convert:
    """Return a converter that validates against a JSON Schema. Raises ValueError if the schema is invalid."""
    try:
        fits = validator(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(_format_error(schema, str(error).partition("\n")[0])) from None

    def convert(answer: Any) -> Any:
        try:
            errors = list(islice(fits.iter_errors(answer), _MOST_ERRORS))
        except (ValueError, RecursionError) as error:
            raise AnswerError(f"expected JSON, got {shown(answer)}: {error}") from None
        if errors:
            messages = [
                f"{show_path(tuple(error.instance_path)) or '$'}: {shorten(error.message, 200)}" for error in errors
            ]
            raise AnswerError("; ".join(messages))
        return answer

    return convert


def _model_format(model: Any) -> Format:
    """Return the format of a pydantic-like class, recognized by its methods so that pydantic is not imported."""

    def convert(answer: Any) -> Any:
        try:
            return model.model_validate(answer)
        except Exception as error:  # users' code: a model checks itself
            raise AnswerError(f"{in_words(error)}, in {shown(answer)}") from None

    schema = json.dumps(model.model_json_schema(), ensure_ascii=False, default=repr)
    return json_format(convert, schema, is_object=True, by=_BY_SCHEMA)
