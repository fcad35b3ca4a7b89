"""The values of promptfoo's asserts: templates that are filled in, files that are read, texts that become lists."""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec import Struct

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record
from evalloom.core.text import quote
from evalloom.data.cells import is_blank
from evalloom.files.rows import Row
from evalloom.interop.promptfoo.assert_types import CODE, LISTED, TEXTUAL
from evalloom.interop.promptfoo.files import FileProblem, is_file, language_of, read

_MARKS = lazy_pattern(r"\{\{|\{%|\{#")
_VARIABLE = lazy_pattern(r"\{\{-?\s*([^\W\d]\w*)\s*-?\}\}")


class Value(Struct, frozen=True):
    """The value of an assert: `expected`, and for code of a file the options that say where it is.

    `problem` is why there is none, with the code of its finding: a file that cannot be read, a template that is not
    filled in.
    """

    expected: Any = None
    options: Record = {}
    problem: str = ""
    code: str = ""


def value_of(written: Any, type_: str, variables: Record, base: str) -> Value:
    """Return the value of an assert; `base` is the folder that its files are relative to."""
    if isinstance(written, str) and "{" not in written and not is_file(written):
        # Most values name no variable.
        return Value(_expected(written, type_, {}, is_final=True))
    if not is_file(written) and not (isinstance(written, list) and any(map(is_file, written))):
        if why := "" if type_ in CODE else why_unfilled(written, variables):
            return Value(render(written, variables), {}, why, "template_not_filled")
        return Value(_expected(written, type_, variables))
    try:
        if isinstance(written, str) and (language := language_of(written)):
            return _code(written, type_, language, base)
        items = [_content(item, base) if is_file(item) else item for item in _listed(written)]
    except FileProblem as problem:
        return Value(written, {}, problem.message, problem.code)
    value = items if isinstance(written, list) else items[0]
    # promptfoo fills in no template of a file.
    return Value(_expected(value, type_, {}, is_final=True))


def prompt_of(written: Any, base: str) -> tuple[str, str]:
    """Return the prompt for a judge, a text, messages or a file; or why there is none."""
    if not is_file(written):
        return written if isinstance(written, str) else json.dumps(written, ensure_ascii=False), ""
    try:
        content = read(written, base).value
    except FileProblem as problem:
        return "", problem.message
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False), ""


def _listed(written: Any) -> list[Any]:
    return written if isinstance(written, list) else [written]


def _content(reference: str, base: str) -> Any:
    content = read(reference, base).value
    return content.strip() if isinstance(content, str) else content


def _code(reference: str, type_: str, language: str, base: str) -> Value:
    """The code that a file holds; only asserts that are code themselves may name one."""
    file = read(reference, base)
    if type_ != language:
        why = f"{quote(reference)} computes the expected value with {language.title()}, which is not done here"
        return Value(reference, {}, why, "file_not_read")
    options: Record = {"file": str(file.path), "folder": str(file.path.parent)}
    name = "function" if language == "javascript" else "entry"
    return Value(file.text, {**options, name: file.function} if file.function else options)


def _expected(value: Any, type_: str, variables: Record, is_final: bool = False) -> Any:
    if type_ in CODE:
        # Braces are part of the code, so only plain names are filled in.
        return value if is_final or not isinstance(value, str) else _with_names(value, variables)
    if not is_final:
        value = render(value, variables)
    if type_ in ("is-json", "contains-json"):
        return None if is_blank(value) else schema_of(value)
    if type_ in LISTED:
        return [text_of(item) for item in (value if isinstance(value, list) else parts_of(text_of(value)))]
    if type_ == "regex":
        return python_regex(text_of(value))
    if type_ in TEXTUAL or (type_ == "equals" and not isinstance(value, list | dict)):
        return text_of(value)
    return value


def render(value: Any, variables: Record) -> Any:
    """Fill in the templates of a text, or of the texts in a list; what cannot be filled in stays as written."""
    if isinstance(value, list):
        return [render(item, variables) for item in value]
    if not isinstance(value, str) or not _MARKS.search(value) or _missing(value, variables):
        return value
    from evalloom.interop.promptfoo import templates  # deferred: few asserts have templates

    try:
        return templates.render(value, variables)
    except templates.TemplateError:
        return value


def _with_names(text: str, variables: Record) -> str:
    def filled(match: re.Match[str]) -> str:
        value = variables.get(match[1])
        if value is None or is_file(value):
            return match[0]
        from evalloom.interop.promptfoo.javascript_values import text_of as printed  # deferred, as below

        return printed(value)

    return _VARIABLE.sub(filled, text)


def why_unfilled(value: Any, variables: Record | None) -> str:
    """Why a template in a value cannot be filled in; empty if all can. Without `variables`, every name is there.

    promptfoo prints nothing for a variable that is not there, and an answer contains nothing always.
    """
    for text in value if isinstance(value, list) else [value]:
        if not isinstance(text, str) or not _MARKS.search(text):
            continue
        if variables is not None and (name := _missing(text, variables)):
            return f"{quote(text)} names {name!r}, which the test does not have"
        from evalloom.interop.promptfoo import templates  # deferred, as above

        try:
            templates.render(text, variables or {})
        except templates.TemplateError as error:
            return f"{quote(text)}: {error}"
    return ""


def _missing(text: str, variables: Record) -> str:
    """The first variable that a template prints and a test does not have, or has as a file that is not read."""
    # In a template with tags, a loop or `set` may make the name, or a condition may guard it.
    names = [] if "{%" in text else _VARIABLE.findall(text)
    return next((name for name in names if name not in variables or is_file(variables[name])), "")


def render_variables(variables: Record) -> Record:
    """Fill in plain names of other variables in the text variables, once."""
    if not any(isinstance(value, str) and "{{" in value for value in variables.values()):
        return variables
    return {
        name: _with_names(value, {**variables, name: None}) if isinstance(value, str) else value
        for name, value in variables.items()
    }


def text_of(value: Any) -> str:
    """A scalar as promptfoo prints it, because it compares texts."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def parts_of(value: str) -> list[str]:
    """Split comma-separated texts; a text with a comma is in double quotes."""
    import csv  # deferred: few asserts are written as CSV

    try:
        rows = list(csv.reader([value.replace("\r", " ").replace("\n", " ")], skipinitialspace=True))
    except csv.Error:
        rows = [value.split(",")]
    # Commas without a text between them separate nothing.
    return [part.strip() for part in rows[0] if part.strip()] if rows else []


def python_regex(pattern: str) -> str:
    """Convert a JavaScript pattern to Python; in practice only named groups differ."""
    pattern = re.sub(r"\(\?<(?![=!])", "(?P<", pattern)
    return re.sub(r"\\k<(\w+)>", r"(?P=\1)", pattern)


def schema_of(value: Any) -> Any:
    """Parse a JSON Schema in JSON or YAML text; return any other text unchanged."""
    if not isinstance(value, str) or "{{" in value:
        return value
    # Deferred: yaml takes longer to import than all dialects together.
    from evalloom.files.yaml_rows import YamlReader

    rows = list(YamlReader([value.encode("utf-8", "replace")]))
    if len(rows) == 1 and isinstance(rows[0], Row) and isinstance(rows[0].value, dict):
        return rows[0].value
    return value
