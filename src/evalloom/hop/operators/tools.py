"""The tools that `hop_tool_use` may choose among, and how a choice is read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from evalloom.core.errors import did_you_mean
from evalloom.core.model import Record, type_name
from evalloom.hop.operators.formats import against, fields_schema, schema_of
from evalloom.hop.operators.parse import Format, Misfit, json_format, shown
from evalloom.hop.operators.to_json import in_words, quoted
from evalloom.llms.json_text import loads

_NO_TOOL = ("null", "none", "无")
_CHOICE_FORM = '{"tool": <name of the tool, or null when none fits>, "parameters": {<name>: <value>, …}}'


class Tool(Struct, frozen=True):
    """A tool that may be chosen: its name, what it is for, and a JSON Schema of its parameters."""

    name: str
    description: str = ""
    parameters: Record = {}

    def check(self, parameters: Record) -> None:
        """Raises Misfit where a parameter is missing, unknown or of another type than declared."""
        against(self.parameters)(parameters)


def tools_of(tools: Any) -> tuple[Tool, ...]:
    """Tools as OpenAI writes them, as flat objects, or as Python functions. Raises TypeError or ValueError."""
    if isinstance(tools, dict | str) or callable(tools):
        raise TypeError(f"tools: expected a list of tools, got {quoted(tools)}")
    found = tuple(_tool(one, number) for number, one in enumerate(tools))
    if not found:
        raise ValueError("tools: expected at least one tool, got none")
    names = [one.name for one in found]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise ValueError(f"tools: expected names that differ, got {twice!r} twice")
    return found


def _tool(told: Any, number: int) -> Tool:
    if callable(told):
        return _function_tool(told)
    inner = told.get("function", told) if isinstance(told, dict) else None
    name = inner.get("name") if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or not isinstance(name, str) or not name:
        raise TypeError(f"tools[{number}]: expected an object with a name, or a function, got {quoted(told)}")
    parameters = inner.get("parameters", inner.get("input_schema")) or {}
    if not isinstance(parameters, dict):
        raise TypeError(f"tools[{number}].parameters: expected an object, got {type_name(parameters)}")
    # The parameters of a tool are an object, so that a `type` which says otherwise is the name of one of them.
    is_whole = parameters.get("type") == "object" or bool(parameters.keys() & {"properties", "$ref", "$schema"})
    return Tool(
        name, str(inner.get("description") or ""), _closed(parameters if is_whole else fields_schema(parameters))
    )


def _closed(schema: Record) -> Record:
    """The schema of an object that takes no other fields than it declares, unless it says so itself."""
    return {"type": "object", "additionalProperties": False, **schema} if "properties" in schema else schema


def _function_tool(function: Callable[..., Any]) -> Tool:
    name = getattr(function, "__name__", type(function).__name__)
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception as fault:  # users' code: their annotations are evaluated here
        raise TypeError(f"tools: the signature of {name} cannot be read: {in_words(fault)}") from None
    taken = signature.parameters.values()
    named = [one for one in taken if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    schema = {
        "type": "object",
        "properties": {one.name: _annotated(one.annotation) for one in named},
        "required": [one.name for one in named if one.default is one.empty],
        "additionalProperties": any(one.kind is one.VAR_KEYWORD for one in taken),
    }
    return Tool(name, (inspect.getdoc(function) or "").partition("\n")[0], schema)


def _annotated(annotation: Any) -> Record:
    """What an annotation says in JSON Schema; nothing, where it says nothing that JSON has."""
    try:
        return {} if annotation is inspect.Parameter.empty else schema_of(annotation)
    except TypeError:
        return {}


def _to_choice(found: Any) -> Record:
    if isinstance(found, dict) and isinstance(found.get("function"), dict):
        found = found["function"]
    if not isinstance(found, dict) or not found.keys() & {"tool", "name"}:
        raise Misfit(f'expected an object with "tool" and "parameters", got {shown(found)}')
    name = found.get("tool", found.get("name"))
    if name is not None and not isinstance(name, str):
        raise Misfit(f"tool: expected the name of a tool or null, got {shown(name)}")
    parameters = found.get("parameters", found.get("arguments"))
    if isinstance(parameters, str):
        # OpenAI writes arguments as a text of JSON.
        parameters = loads(parameters)
    if parameters is not None and not isinstance(parameters, dict):
        raise Misfit(f"parameters: expected an object, got {shown(found)}")
    is_none = not name or name.casefold() in _NO_TOOL
    return {"tool": None, "parameters": {}} if is_none else {"tool": name, "parameters": parameters or {}}


def choice_format(tools: Sequence[Tool]) -> Format:
    """The format of a choice among tools: none of them, or a known one with parameters as it declares them."""

    def convert(found: Any) -> Record:
        choice = _to_choice(found)
        check_choice(choice, tools)
        return choice

    return json_format(convert, _CHOICE_FORM, is_object=True)


def check_choice(choice: Any, tools: Sequence[Tool]) -> None:
    """Raises Misfit where a tool is unknown, or its parameters are not as it declares them."""
    if not isinstance(choice, dict) or "tool" not in choice:
        raise Misfit(f"expected a choice of a tool, got {shown(choice)}")
    name = choice["tool"]
    if name is None:
        return
    known = [tool.name for tool in tools]
    if name not in known:
        expected = f"tool: expected one of {', '.join(known)}"
        raise Misfit(f"{expected}, got {shown(name)}{did_you_mean(str(name), known)}")
    try:
        tools[known.index(name)].check(choice.get("parameters") or {})
    except Misfit as fault:
        raise Misfit(f"parameters of {name}: {fault}") from None
