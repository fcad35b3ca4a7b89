"""The tools that `hop_tool_use` chooses from, and how a choice is parsed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from evalloom.core.model import Record
from evalloom.core.text import did_you_mean, type_name
from evalloom.hop.operators.formats import fields_schema, schema_converter, schema_of
from evalloom.hop.operators.parse import Format, json_format, shown
from evalloom.hop.operators.to_json import in_words, quoted
from evalloom.llms.answer_json import AnswerError, loads

_NO_TOOL = ("null", "none", "无")
_CHOICE_FORM = '{"tool": <name of the tool, or null when none fits>, "parameters": {<name>: <value>, …}}'


class Tool(Struct, frozen=True):
    """A tool: its name, its description, and a JSON Schema of its parameters."""

    name: str
    description: str = ""
    parameters: Record = {}

    def check(self, parameters: Record) -> None:
        """Raise AnswerError if a parameter is missing, unknown or of the wrong type."""
        schema_converter(self.parameters)(parameters)


def tools_of(tools: Any) -> tuple[Tool, ...]:
    """Parse tools in OpenAI's format, flat objects, or Python functions. Raises TypeError or ValueError."""
    if isinstance(tools, dict | str) or callable(tools):
        raise TypeError(f"tools: expected a list of tools, got {quoted(tools)}")
    parsed = tuple(_parse_tool(tool, number) for number, tool in enumerate(tools))
    if not parsed:
        raise ValueError("tools: expected at least one tool, got none")
    names = [tool.name for tool in parsed]
    duplicate = next((name for name in names if names.count(name) > 1), "")
    if duplicate:
        raise ValueError(f"tools: expected unique names, got {duplicate!r} twice")
    return parsed


def _parse_tool(spec: Any, number: int) -> Tool:
    if callable(spec):
        return _function_tool(spec)
    inner = spec.get("function", spec) if isinstance(spec, dict) else None
    name = inner.get("name") if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or not isinstance(name, str) or not name:
        raise TypeError(f"tools[{number}]: expected an object with a name, or a function, got {quoted(spec)}")
    parameters = inner.get("parameters", inner.get("input_schema")) or {}
    if not isinstance(parameters, dict):
        raise TypeError(f"tools[{number}].parameters: expected an object, got {type_name(parameters)}")
    # The parameters of a tool are an object, so any other `type` is the name of a parameter.
    is_schema = parameters.get("type") == "object" or bool(parameters.keys() & {"properties", "$ref", "$schema"})
    schema = parameters if is_schema else fields_schema(parameters)
    if "properties" in schema:
        # Undeclared fields are forbidden, unless the schema allows them explicitly.
        schema = {"type": "object", "additionalProperties": False, **schema}
    return Tool(name, str(inner.get("description") or ""), schema)


def _function_tool(function: Callable[..., Any]) -> Tool:
    name = getattr(function, "__name__", type(function).__name__)
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception as error:  # users' code: their annotations are evaluated here
        raise TypeError(f"tools: the signature of {name} cannot be read: {in_words(error)}") from None
    parameters = signature.parameters.values()
    named = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    schema = {
        "type": "object",
        "properties": {parameter.name: _annotation_schema(parameter.annotation) for parameter in named},
        "required": [parameter.name for parameter in named if parameter.default is parameter.empty],
        "additionalProperties": any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters),
    }
    return Tool(name, (inspect.getdoc(function) or "").partition("\n")[0], schema)


def _annotation_schema(annotation: Any) -> Record:
    """Convert an annotation to JSON Schema; empty if it has no JSON equivalent."""
    try:
        return {} if annotation is inspect.Parameter.empty else schema_of(annotation)
    except TypeError:
        return {}


def _parse_choice(answer: Any) -> Record:
    if isinstance(answer, dict) and isinstance(answer.get("function"), dict):
        answer = answer["function"]
    if not isinstance(answer, dict) or not answer.keys() & {"tool", "name"}:
        raise AnswerError(f'expected an object with "tool" and "parameters", got {shown(answer)}')
    name = answer.get("tool", answer.get("name"))
    if name is not None and not isinstance(name, str):
        raise AnswerError(f"tool: expected the name of a tool or null, got {shown(name)}")
    parameters = answer.get("parameters", answer.get("arguments"))
    if isinstance(parameters, str):
        # OpenAI encodes arguments as JSON text.
        parameters = loads(parameters)
    if parameters is not None and not isinstance(parameters, dict):
        raise AnswerError(f"parameters: expected an object, got {shown(answer)}")
    is_none = not name or name.casefold() in _NO_TOOL
    return {"tool": None, "parameters": {}} if is_none else {"tool": name, "parameters": parameters or {}}


def choice_format(tools: Sequence[Tool]) -> Format:
    """Return the format of a choice: no tool, or a known tool with valid parameters."""

    def convert(answer: Any) -> Record:
        choice = _parse_choice(answer)
        check_choice(choice, tools)
        return choice

    return json_format(convert, _CHOICE_FORM, is_object=True)


def check_choice(choice: Any, tools: Sequence[Tool]) -> None:
    """Raise AnswerError if the tool is unknown or its parameters are invalid."""
    if not isinstance(choice, dict) or "tool" not in choice:
        raise AnswerError(f"expected a choice of a tool, got {shown(choice)}")
    name = choice["tool"]
    if name is None:
        return
    names = [tool.name for tool in tools]
    if name not in names:
        expected = f"tool: expected one of {', '.join(names)}"
        raise AnswerError(f"{expected}, got {shown(name)}{did_you_mean(str(name), names)}")
    try:
        tools[names.index(name)].check(choice.get("parameters") or {})
    except AnswerError as error:
        raise AnswerError(f"parameters of {name}: {error}") from None
