"""DeepEval goldens and test cases, of one turn or of a conversation.

`input` is the input; for a golden with a `scenario`, the scenario and the user's description are. Recorded behaviour
(`actual_output`, `retrieval_context`, `tools_called`, the turns of a scenario) is kept in `meta` and is never an input.
A judge compares the answer with the expected output or outcome, as DeepEval's own metrics do. Names in
camelCase mean the same, and tables write lists as `a|b` or as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from evalloom.core.model import Case, Check, Origin, Record, Remark, error, show_path, warning
from evalloom.core.text import describe
from evalloom.data import chat
from evalloom.data.cells import as_list, as_object, id_text, is_blank, own_id, text_list
from evalloom.data.dialect import Dialect, Rules, Scorer

_CAMEL = {
    "actualOutput": "actual_output",
    "additionalMetadata": "additional_metadata",
    "customColumnKeyValues": "custom_column_key_values",
    "expectedOutcome": "expected_outcome",
    "expectedOutput": "expected_output",
    "expectedTools": "expected_tools",
    "retrievalContext": "retrieval_context",
    "sourceFile": "source_file",
    "toolsCalled": "tools_called",
    "userDescription": "user_description",
}
_SNAKE = {snake: camel for camel, snake in _CAMEL.items()}
_MARKS = ("retrieval_context", "expected_tools", "tools_called", "additional_metadata", "source_file")
_TEXTS = ("expected_output", "actual_output", "scenario", "expected_outcome", "user_description")
_PIPED = ("context", "retrieval_context")
_TOOLS = ("tools_called", "expected_tools")
_USED = (
    "id",
    "name",
    "input",
    "scenario",
    "user_description",
    "expected_output",
    "expected_outcome",
    "expected_tools",
    "tags",
)


def sniff(record: Record) -> str:
    fields = with_snake_case(record)
    if "scenario" in fields:
        beside = next((name for name in ("expected_outcome", "turns", "user_description") if name in fields), "")
        return f"it has 'scenario' and {_name_in(record, beside)!r}" if beside else ""
    if "turns" in fields and "expected_outcome" in fields:
        return f"it has 'turns' and {_name_in(record, 'expected_outcome')!r}"
    if "input" not in fields:
        return ""
    marks = _MARKS if "id" in fields else (*_MARKS, "expected_output", "actual_output")
    mark = next((name for name in marks if name in fields), "")
    return f"it has 'input' and {_name_in(record, mark)!r}" if mark else ""


def identity(record: Record) -> str | int | None:
    return own_id(record, "id")


def with_snake_case(record: Record) -> Record:
    """The record with snake_case names; when both forms are present, snake_case wins."""
    return {_CAMEL.get(name, name): value for name, value in record.items() if _CAMEL.get(name) not in record}


def _name_in(record: Record, name: str) -> str:
    """The name of a field as this record spells it, for messages and locations."""
    camel = _SNAKE.get(name, name)
    return camel if camel in record and name not in record else name


def findings(record: Record, rules: Rules) -> Iterator[Remark]:
    """Problems that keep a golden from running, from being read as intended, or from ever failing."""
    fields = with_snake_case(record)
    yield from _input_findings(fields)
    for name in _TEXTS:
        value = fields.get(name)
        if value is not None and not isinstance(value, str):
            field = _name_in(record, name)
            yield error(f"bad_{name}", (field,), f"{field}: expected a string, got {describe(value)}")
    for name in (*_PIPED, *_TOOLS):
        yield from _list_findings(fields.get(name), name, _name_in(record, name))
    if as_object(fields.get("additional_metadata")) is None:
        field = _name_in(record, "additional_metadata")
        expected = "expected an object or one written as JSON"
        yield warning(
            "unreadable_cell", (field,), f"{field}: {expected}, got {describe(fields['additional_metadata'])}"
        )
    if not _checks(fields):
        names = "expected_outcome" if "scenario" in fields or "turns" in fields else "expected_output or expected_tools"
        yield warning("no_checks", (), f"{names}: missing, so nothing is checked and the case cannot fail")


def _input_findings(fields: Record) -> Iterator[Remark]:
    turns = as_list(fields.get("turns"))
    if turns is None:
        message = f"turns: expected a list of turns or one written as JSON, got {describe(fields['turns'])}"
        yield error("bad_turns", ("turns",), message)
        return
    if "input" in fields:
        value = fields["input"]
        if not isinstance(value, str):
            yield error("bad_input", ("input",), f"input: expected a string, got {describe(value)}")
        elif not value.strip():
            yield warning("empty_input", ("input",), "input: is empty; was it forgotten?")
    elif is_blank(fields.get("scenario")) and not turns:
        wanted = "scenario" if "scenario" in fields or "turns" in fields else "input"
        yield error("missing_field", (), f"{wanted}: missing; every golden needs it")
    if turns:
        # Turns in a cell have no locations of their own, so the path ends at the cell.
        for remark in chat.findings(turns, ("turns",)):
            yield remark if isinstance(fields["turns"], list) else replace(remark, path=("turns",))


def _list_findings(value: Any, name: str, field: str) -> Iterator[Remark]:
    items = as_list(value, "|" if name in _PIPED else "")
    path = (field,)
    if items is None:
        form = "separated by '|'" if name in _PIPED else "written as JSON"
        expected = f"expected a list or one {form}"
        if isinstance(value, str):
            yield warning("unreadable_cell", path, f"{field}: {expected}, got {describe(value)}")
        else:
            yield error(f"bad_{name}", path, f"{field}: {expected}, got {describe(value)}")
        return
    for number, item in enumerate(items):
        if name in _TOOLS and not (isinstance(item, str) or (isinstance(item, dict) and "name" in item)):
            at = show_path((field, number))
            yield error(f"bad_{name}", (field, number), f"{at}: expected a tool with its 'name', got {describe(item)}")


def to_case(record: Record, origin: Origin) -> Case:
    """A case whose answer a judge compares with the expected output or outcome."""
    fields = with_snake_case(record)
    metadata = as_object(fields.get("additional_metadata")) or {}
    return Case(
        id=id_text(own_id(fields, "id", "name")),
        inputs=_inputs(fields),
        checks=_checks(fields),
        tags=tuple(dict.fromkeys([*text_list(fields.get("tags")), *text_list(metadata.get("tags"))])),
        meta={
            name: _parse_cell(name, value)
            for name, value in fields.items()
            if name not in _USED and not is_blank(value)
        },
        raw=record,
        origin=origin,
    )


def _inputs(fields: Record) -> Record:
    if "input" in fields:
        return {"input": fields["input"]}
    if not is_blank(fields.get("scenario")):
        return {name: fields[name] for name in ("scenario", "user_description") if not is_blank(fields.get(name))}
    return {"messages": chat.until_last_user(as_list(fields.get("turns")) or [])}


def _checks(fields: Record) -> tuple[Check, ...]:
    checks = [
        Check("judge", fields[name], name=name, options={"variant": "reference"})
        for name in ("expected_output", "expected_outcome")
        if not is_blank(fields.get(name))
    ]
    if tools := as_list(fields.get("expected_tools")):
        checks.append(Check("tool_calls", tools, "steps", name="expected_tools"))
    return tuple(checks)


def _parse_cell(name: str, value: Any) -> Any:
    """Parse a field that a table holds as text."""
    if name == "additional_metadata":
        parsed = as_object(value)
        return value if parsed is None else parsed
    if name in (*_PIPED, "tools_called", "turns"):
        items = as_list(value, "|" if name in _PIPED else "")
        return value if items is None else items
    return value


def _scorers() -> tuple[Scorer, ...]:
    from evalloom.interop.deepeval_scorers import SCORERS

    return SCORERS


DIALECT = Dialect(
    name="deepeval",
    summary="DeepEval goldens: input and expected_output, or scenario, turns and expected_outcome",
    sniff=sniff,
    findings=findings,
    to_case=to_case,
    identity=identity,
    expectations=("expected_output", "expected_outcome", "expected_tools"),
    scorers=_scorers,
)
