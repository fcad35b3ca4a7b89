"""The form of a contract: one field for each input, and the values that somebody entered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.contract import Contract, Field
from evalloom.core.model import Record
from evalloom.ui.language import Language

PREFIX = "in."
"""What the names of the fields begin with, so that an input may have any name."""
ALL = "*"
"""The name of the only field where no contract is declared: an object with all inputs."""


class FormField(Struct, frozen=True):
    """An input as a form shows it; `value` is its text."""

    name: str
    type: str
    required: bool
    description: str
    choices: tuple[str, ...]
    least: float | None
    most: float | None
    value: str = ""
    error: str = ""

    @property
    def key(self) -> str:
        return PREFIX + self.name


def fields_of(
    contract: Contract | None, inputs: Record | None, texts: Mapping[str, str] = {}, errors: Mapping[str, str] = {}
) -> list[FormField]:
    """Return the fields of a form with the values of a case, or with the texts that were entered."""
    values = inputs or {}

    def text(name: str, type: str) -> str:
        if name in texts:
            return texts[name]
        return _text_of(values[name], type) if name in values else ""

    if contract is None:
        everything = texts.get(ALL, _text_of(values, "object") if inputs is not None else "")
        return [FormField(ALL, "object", True, "", (), None, None, everything, errors.get(ALL, ""))]
    return [
        FormField(
            name,
            field.type,
            field.required,
            field.description,
            field.choices,
            field.least,
            field.most,
            text(name, field.type),
            errors.get(name, ""),
        )
        for name, field in contract.inputs.items()
    ]


def _text_of(value: Any, type: str) -> str:
    if type in ("array", "object") or not isinstance(value, str | int | float | bool):
        return msgspec.json.format(msgspec.json.encode(value)).decode()
    return ("on" if value else "") if isinstance(value, bool) else str(value)


def entered_texts(form: Mapping[str, list[str]]) -> dict[str, str]:
    """Return the texts of the fields. Browsers send line ends as CRLF, which nobody typed."""
    return {
        name.removeprefix(PREFIX): values[0].replace("\r\n", "\n")
        for name, values in form.items()
        if name.startswith(PREFIX) and values
    }


def parse(contract: Contract | None, texts: Mapping[str, str], t: Language) -> tuple[Record, dict[str, str]]:
    """Return the inputs, and what is wrong with them by field."""
    if contract is None:
        value, error = _parse_value(Field("object"), texts.get(ALL, ""), t)
        return (value if isinstance(value, dict) else {}), ({ALL: error} if error else {})
    inputs: Record = {}
    errors: dict[str, str] = {}
    for name, field in contract.inputs.items():
        text = texts.get(name, "")
        if field.type == "bool":
            # A box that is not ticked is not sent.
            inputs[name] = text not in ("", "false")
        elif text.strip() or (field.required and field.type == "string" and text):
            value, error = _parse_value(field, text, t)
            if error:
                errors[name] = error
            else:
                inputs[name] = value
        elif field.required:
            errors[name] = t("Needed")
    return inputs, errors


def _parse_value(field: Field, text: str, t: Language) -> tuple[Any, str]:
    if field.choices and text not in field.choices:
        return None, t("Expected one of: {list}", list=", ".join(field.choices))
    if field.type == "string":
        return text, ""
    try:
        value = msgspec.json.decode(text.strip())
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        if field.type == "any":
            return text, ""
        return None, _expected(field, t) + (f" ({error})" if field.type in ("array", "object") else "")
    if not field.accepts(value):
        return (text, "") if field.type == "any" else (None, _expected(field, t))
    is_low = isinstance(value, int | float) and field.least is not None and value < field.least
    is_high = isinstance(value, int | float) and field.most is not None and value > field.most
    return (None, _expected(field, t)) if is_low or is_high else (value, "")


def _expected(field: Field, t: Language) -> str:
    if field.type in ("array", "object"):
        return t("Expected a JSON array") if field.type == "array" else t("Expected a JSON object")
    if field.least is not None and field.most is not None:
        return t("Expected a number from {least} to {most}", least=f"{field.least:g}", most=f"{field.most:g}")
    return t("Expected a whole number") if field.type == "int" else t("Expected a number")
