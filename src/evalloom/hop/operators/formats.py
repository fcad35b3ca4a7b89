"""What an answer must look like: a type, fields by name, a JSON Schema, or a description in words (HOP-10)."""

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

from evalloom.core.errors import did_you_mean
from evalloom.core.json_schema import validator
from evalloom.core.model import Record, show_path
from evalloom.hop.contract import TYPE_WORDS
from evalloom.hop.operators.parse import (
    NO,
    TEXT,
    YES,
    Convert,
    Format,
    Misfit,
    cut,
    json_format,
    note_format,
    plain,
    shown,
)
from evalloom.hop.operators.to_json import fault_in_words, in_words, quoted

_PYTHON_TYPES: dict[str, Any] = {
    "string": str,
    "int": int,
    "float": float,
    "bool": bool,
    "array": list,
    "object": dict,
    "any": Any,
}
_TYPE_WORD = re.compile(
    r"(?P<word>[A-Za-z]+|[\u4e00-\u9fff]+)\s*(?:\[(?P<of>.*)\]|<(?P<of_>.*)>)?"
    r"\s*(?P<optional>\?|\|\s*(?:null|none)\b)?\s*(?:(?:[(（]|[,，:：;；]|-\s)\s*(?P<note>.*))?",
    re.IGNORECASE | re.DOTALL,
)
"""`int`, `list[string]`, `float?`, `int (1 to 5)`, `字符串：理由`."""
_SCHEMA_TYPES = frozenset(("string", "integer", "number", "boolean", "array", "object", "null"))
_SCHEMA_MARKS: dict[str, Callable[[Any], bool]] = {
    "type": lambda told: _SCHEMA_TYPES.issuperset(told if isinstance(told, list) else [told]),
    "properties": lambda told: isinstance(told, dict),
    "enum": lambda told: isinstance(told, list),
    "const": lambda told: True,
    "items": lambda told: isinstance(told, dict | bool),
    **dict.fromkeys(("anyOf", "oneOf", "allOf"), lambda told: isinstance(told, list)),
}
_SCHEMA_WORDS = re.compile(
    r"not|if|then|else|required|title|description|default|examples|format|pattern|contains|multipleOf|uniqueItems"
    r"|prefixItems|(min|max)\w+|exclusive\w+|additional\w+|dependent\w+|patternProperties|propertyNames|definitions|\$\w+"
)
_BOOLEAN_MISSED = re.compile(r"Expected `bool(?: \| null)?`, got `str`(?: - at `\$(?P<path>.*)`)?$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_MOST_BOOLEANS = 100
_MOST_FAULTS = 3
_NUMBERS = count()
_BY_SCHEMA = ("that fits this JSON Schema", "须符合此 JSON Schema")


def format_of(return_format: Any) -> Format:
    """The format that a hoplet asks for: a type, a JSON Schema, fields by name, or a description in words.

    Raises TypeError or ValueError when it is none of them.
    """
    if return_format is None or return_format is str:
        return TEXT
    try:
        key = _key(return_format)
        known = _KNOWN.get(key)
    except TypeError:
        # Something in it has no hash.
        return _compiled(return_format)
    if known is None:
        if len(_KNOWN) == _MOST_KNOWN:
            _KNOWN.clear()
        known = _KNOWN[key] = _compiled(return_format)
    return known


# A hoplet asks for the same formats with every case, and making one takes far longer than reading by it.
_KNOWN: dict[Any, Format] = {}
_MOST_KNOWN = 256


def _key(told: Any) -> Any:
    if isinstance(told, dict):
        return dict, tuple((name, _key(one)) for name, one in told.items())
    # For Python, True is 1.
    return (list, tuple(map(_key, told))) if isinstance(told, list) else (type(told), told)


def _compiled(told: Any) -> Format:
    if _holds_schema(told):
        return _schema_format(schema_of(told))
    if hasattr(told, "model_validate") and hasattr(told, "model_json_schema"):
        return _model_format(told)
    if isinstance(told, str) and _word(told) is None:
        return note_format(told.strip())
    kind = type_of(told)
    if kind is str:
        return TEXT
    return note_format("") if kind is Any or kind is object else _type_format(kind)


# --- Python types


def _type_format(kind: Any) -> Format:
    try:
        schema = msgspec.json.schema(kind)
    except Exception as fault:  # users' code: their annotations are evaluated here
        raise TypeError(_unfit(kind, in_words(fault).rpartition("\n")[2] or type(fault).__name__)) from None
    # msgspec.convert does not find a field whose name is not ASCII and was never encoded
    # (https://github.com/msgspec/msgspec/pull/1126).
    msgspec.json.encode(schema)
    root = _resolved(schema, schema)
    is_object, is_list = root.get("type") == "object", root.get("type") == "array"
    convert = _to_type(kind, tuple(choice for choice in root.get("enum", ()) if isinstance(choice, str)))
    return json_format(convert, _form_of(kind), is_object, takes_text=not is_object and not is_list)


def _unfit(told: Any, reason: str) -> str:
    wanted = "a type, a JSON Schema, fields by name, or a description in words"
    return f"return_format: expected {wanted}, got {quoted(told)}: {reason}"


def _to_type(kind: Any, choices: tuple[str, ...] = ()) -> Convert:
    """Makes values of a type out of JSON, as laxly as llms write it: "42" is an integer, "是" and "yes" are true."""

    def convert(found: Any) -> Any:
        for _ in range(_MOST_BOOLEANS):
            try:
                value = msgspec.convert(found, kind, strict=False)
            except msgspec.ValidationError as fault:
                repaired = _repaired(found, str(fault), choices)
                if repaired is None:
                    raise Misfit(f"{fault}, in {shown(found)}") from None
                found = repaired
            except Exception as fault:  # users' code: a class may check its fields
                raise Misfit(f"{fault_in_words(fault)}, in {shown(found)}") from None
            else:
                if isinstance(value, float) and not math.isfinite(value):
                    raise Misfit(f"expected a number, got {shown(found)}")
                return value
        raise Misfit(f"expected true or false in more than {_MOST_BOOLEANS} places, in {shown(found)}")

    return convert


def _repaired(found: Any, fault: str, choices: tuple[str, ...]) -> Any:
    """The same JSON with one word for a boolean or a choice put right; None where there is nothing of the kind."""
    if isinstance(found, str):
        same = [choice for choice in choices if choice.casefold() == found.strip().casefold() and choice != found]
        if len(same) == 1:
            return same[0]
    missed = _BOOLEAN_MISSED.match(fault)
    if missed is None:
        return None
    steps = [name or int(index) for name, index in _STEP.findall(missed["path"] or "")]
    try:
        return _with_boolean(found, steps)
    except (LookupError, TypeError):
        return None


def _with_boolean(found: Any, steps: list[str | int]) -> Any:
    if not steps:
        word = plain(found).casefold()
        return True if word in YES else False if word in NO else None
    changed = _with_boolean(found[steps[0]], steps[1:])
    if changed is None:
        return None
    copy = found.copy()
    copy[steps[0]] = changed
    return copy


# --- fields by name, in words


def type_of(told: Any) -> Any:
    """The Python type of a word, of fields by name, of a list of one, or of a type as it is."""
    if isinstance(told, str):
        word = _word(told)
        return Annotated[Any, Meta(description=told.strip())] if word is None else word[0]
    if isinstance(told, dict):
        fields = {str(name): _member(one) for name, one in told.items()}
        # msgspec takes two types of one name for one.
        return TypedDict(f"Fields{next(_NUMBERS)}", fields) if fields else dict  # type: ignore[operator]
    if isinstance(told, list):
        if len(told) != 1:
            raise TypeError(_unfit(told, "a list stands for a list of its one item"))
        return list[type_of(told[0])]  # type: ignore[misc]
    return told


def _member(told: Any) -> Any:
    word = _word(told) if isinstance(told, str) else None
    if isinstance(told, str) and word is None and (meant := did_you_mean(told, TYPE_WORDS, cutoff=0.85)):
        raise ValueError(_unfit(told, f"it looks like the name of a type{meant}"))
    return NotRequired[word[0]] if word and word[1] else type_of(told)


def _word(told: str) -> tuple[Any, bool] | None:
    """The type that a text names, and whether it is optional; None where the text only describes."""
    found = _TYPE_WORD.fullmatch(told.strip())
    name = TYPE_WORDS.get(found["word"].lower()) if found else None
    if found is None or name is None:
        return None
    kind = _PYTHON_TYPES[name]
    of = found["of"] or found["of_"]
    if of and kind is list:
        kind = list[type_of(of)]  # type: ignore[misc]
    note = (found["note"] or "").strip().removesuffix(")").removesuffix("）").strip()
    if note:
        kind = Annotated[kind, Meta(description=note)]
    return (Optional[kind], True) if found["optional"] else (kind, False)  # noqa: UP045  (kind may be a special form)


# --- the form that an llm is shown


def _form_of(kind: Any, seen: tuple[Any, ...] = ()) -> str:
    """A type as JSON with holes: `{"score": <integer>, "reason": <string>}`, with its fields in their order."""
    if get_origin(kind) in (Required, NotRequired):
        return _form_of(arguments_of(kind)[0], seen)
    if get_origin(kind) is list:
        return f"[{_form_of(arguments_of(kind)[0], seen)}, …]"
    if is_typeddict(kind) and kind not in seen:
        optional = kind.__optional_keys__
        hints = hints_of(kind, include_extras=True)
        fields = ((name, _form_of(hint, (*seen, kind)), name not in optional) for name, hint in hints.items())
        return _object_form(fields)
    schema = msgspec.json.schema(kind)
    return _schema_form(schema, schema)


def _object_form(fields: Iterator[tuple[str, str, bool]]) -> str:
    parts = (f"{shown(name)}: {form}{'' if is_required else ' (optional)'}" for name, form, is_required in fields)
    return "{" + ", ".join(parts) + "}"


def _schema_form(schema: Record, root: Record, depth: int = 0) -> str:
    if depth > 8:
        # A type may hold itself.
        return "<…>"
    schema = _resolved(schema, root)
    if "enum" in schema:
        return " | ".join(map(shown, schema["enum"]))
    if "anyOf" in schema:
        return " | ".join(_schema_form(one, root, depth + 1) for one in schema["anyOf"])
    kind = schema.get("type")
    if kind == "object" and schema.get("properties"):
        required = schema.get("required", ())
        fields = schema["properties"].items()
        return _object_form((name, _schema_form(one, root, depth + 1), name in required) for name, one in fields)
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f'{{"<name>": {_schema_form(schema["additionalProperties"], root, depth + 1)}, …}}'
    if kind == "array" and isinstance(schema.get("items"), dict):
        return f"[{_schema_form(schema['items'], root, depth + 1)}, …]"
    if kind == "array" and schema.get("prefixItems"):
        return f"[{', '.join(_schema_form(one, root, depth + 1) for one in schema['prefixItems'])}]"
    return _leaf_form(schema)


def _leaf_form(schema: Record) -> str:
    words = {"boolean": "true or false", "array": "list"}
    kind = schema.get("type") or ""
    parts = [words.get(kind, kind), schema.get("format"), schema.get("description")]
    return "null" if kind == "null" else f"<{': '.join(filter(None, parts)) or 'anything'}>"


def _resolved(schema: Record, root: Record) -> Record:
    """The schema that a reference of msgspec's leads to."""
    reference = schema.get("$ref", "")
    return root.get("$defs", {}).get(reference.rpartition("/")[2], {}) if reference else schema


# --- JSON Schema


def is_schema(told: Record) -> bool:
    """Whether an object is a JSON Schema, and not fields by name of which one is called `type` or `items`."""
    if "$schema" in told or "$ref" in told:
        return True
    marks = _SCHEMA_MARKS.keys() & told.keys()
    if not marks or not all(_is_well_formed(mark, told[mark]) for mark in marks):
        return False
    are_words = len(told) > 1 and all(isinstance(one, str) and _word(one) for one in told.values())
    others = told.keys() - marks if told.get("type") != "object" else ()
    is_known = all(_SCHEMA_WORDS.fullmatch(str(name)) for name in others)
    return is_known and not are_words


def _is_well_formed(mark: str, told: Any) -> bool:
    try:
        return _SCHEMA_MARKS[mark](told)
    except TypeError:
        # A value that cannot be in a set is no type of JSON Schema.
        return False


def _holds_schema(told: Any) -> bool:
    """Whether something, or a field of it at any depth, is told by a JSON Schema."""
    if isinstance(told, dict) and is_schema(told):
        return True
    inner = told.values() if isinstance(told, dict) else told if isinstance(told, list) else ()
    return any(map(_holds_schema, inner))


def schema_of(told: Any) -> Record:
    """The JSON Schema of fields by name, of a word, or of a type. Raises TypeError."""
    if isinstance(told, dict):
        return told if is_schema(told) else fields_schema(told)
    if isinstance(told, list) and len(told) == 1:
        return {"type": "array", "items": schema_of(told[0])}
    schema = msgspec.json.schema(type_of(told))
    if "$defs" in schema:
        # Its references lead to the root of the schema, and this will not be the root.
        raise TypeError(_unfit(told, "a class cannot stand beside a JSON Schema"))
    choices = schema.get("anyOf", ())
    # The same, in the form that a fault can be told of in a few words.
    return {"type": [one["type"] for one in choices]} if choices and all(map(_is_bare, choices)) else schema


def fields_schema(fields: Record) -> Record:
    """The JSON Schema of an object that has these fields."""
    optional = {name for name, told in fields.items() if isinstance(told, str) and (_word(told) or (Any, False))[1]}
    return {
        "type": "object",
        "properties": {name: schema_of(told) for name, told in fields.items()},
        "required": [name for name in fields if name not in optional],
    }


def _is_bare(schema: Record) -> bool:
    return schema.keys() == {"type"}


def _schema_format(schema: Record) -> Format:
    if "type" not in schema and ("properties" in schema or "required" in schema):
        # By the letter of JSON Schema a text would fit, since it has no field that is wrong.
        schema = {"type": "object", **schema}
    convert = against(schema)
    form = json.dumps(schema, ensure_ascii=False)
    return json_format(convert, form, schema.get("type") == "object", _takes_texts(schema), _BY_SCHEMA)


def _takes_texts(schema: Record) -> bool:
    """Whether a schema says that a text may fit it, and not only because it says nothing."""
    types = schema.get("type", [])
    choices = [*schema.get("enum", []), schema.get("const")]
    return "string" in ([types] if isinstance(types, str) else types) or any(isinstance(one, str) for one in choices)


def against(schema: Record) -> Convert:
    """Lets through what fits a JSON Schema. Raises ValueError when it is none."""
    try:
        fits = validator(schema)
    except (TypeError, ValueError, RecursionError) as fault:
        raise ValueError(_unfit(schema, str(fault).partition("\n")[0])) from None

    def convert(found: Any) -> Any:
        try:
            faults = list(islice(fits.iter_errors(found), _MOST_FAULTS))
        except (ValueError, RecursionError) as fault:
            raise Misfit(f"expected JSON, got {shown(found)}: {fault}") from None
        if faults:
            told = [f"{show_path(tuple(one.instance_path)) or '$'}: {cut(one.message)}" for one in faults]
            raise Misfit("; ".join(told))
        return found

    return convert


def _model_format(model: Any) -> Format:
    """The format of a class like pydantic's, known by its methods so that nothing is imported."""

    def convert(found: Any) -> Any:
        try:
            return model.model_validate(found)
        except Exception as fault:  # users' code: a model checks itself
            raise Misfit(f"{in_words(fault)}, in {shown(found)}") from None

    schema = json.dumps(model.model_json_schema(), ensure_ascii=False, default=repr)
    return json_format(convert, schema, is_object=True, by=_BY_SCHEMA)
