"""Replay dataset rows: the variables of a context recipe, and expectations of the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from evalloom.core.model import Case, Check, Origin, Record, Remark, error, warning
from evalloom.core.patterns import pattern_error
from evalloom.core.text import describe
from evalloom.data.cells import read_cell
from evalloom.data.conversion import ConversionNotes, output_field
from evalloom.data.dialect import Dialect, PlainFields, Rules, UnreadAnswer, Written, json_schema
from evalloom.data.formats import Formats
from evalloom.data.mapping import answer_field, names_expectation, shared_fields
from evalloom.replay.variables import as_text, texts_of

_KINDS = {
    "mustContain": "contains_all",
    "mustNotContain": "contains_any",
    "equals": "equals",
    "regex": "regex",
    "jsonSchema": "json_schema",
}
_OWN = ("_expected", "_tags", "_id", "_meta")


def variables_of(record: Record) -> dict[str, str]:
    """Return the variables of a row as texts; if `variables` is not an object (a finding), its other keys are used."""
    return texts_of(record["variables"] if isinstance(record.get("variables"), dict) else record)


def sniff(record: Record) -> str:
    if isinstance(record.get("variables"), dict):
        return "it has a 'variables' object"
    return "it has '_expected'" if "_expected" in record else ""


def has_variables(record: Record) -> bool:
    variables = record["variables"] if isinstance(record.get("variables"), dict) else record
    return any(not name.startswith("_") for name in variables)


def are_clean(records: list[Record], rules: Rules) -> bool:
    """Whether all rows are plain variables, which cannot have findings."""
    return all("variables" not in record and "_expected" not in record and has_variables(record) for record in records)


def findings(record: Record, rules: Rules) -> Iterator[Remark]:
    if "variables" in record and not isinstance(record["variables"], dict):
        message = f"variables: expected an object, got {describe(record['variables'])}"
        yield error("row_invalid", ("variables",), message)
    elif not has_variables(record):
        yield warning("no_variables", (), "the row has no variable, so the recipe is the same as without it")
    expected = record.get("_expected")
    if expected is None:
        return
    if not isinstance(expected, dict):
        yield error("bad_expected", ("_expected",), f"_expected: expected an object, got {describe(expected)}")
        return
    for key, value in expected.items():
        yield from _expected_findings(key, value)


def _expected_findings(key: str, value: Any) -> Iterator[Remark]:
    path = ("_expected", key)
    if key in ("mustContain", "mustNotContain"):
        if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
            yield error("bad_expected", path, f"_expected.{key}: expected a list of strings, got {describe(value)}")
    elif key == "regex":
        if reason := pattern_error(value) if isinstance(value, str) else "it is not a string":
            message = f"_expected.regex: expected a regular expression, got {describe(value)}: {reason}"
            yield error("bad_regex", path, message)
    elif key == "jsonSchema":
        if not isinstance(value, dict):
            yield error("bad_expected", path, f"_expected.jsonSchema: expected an object, got {describe(value)}")
    elif key not in _KINDS:
        known = ", ".join(_KINDS)
        yield warning(
            "unknown_expectation", path, f"_expected.{key}: is not known and has no effect; known are {known}"
        )


def to_case(record: Record, origin: Origin) -> Case:
    expected = record.get("_expected")
    tags = record.get("_tags")
    return Case(
        id=str(record.get("_id", "")),
        inputs=dict(variables_of(record)),
        checks=tuple(_checks(expected)) if isinstance(expected, dict) else (),
        tags=tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else (),
        meta=_meta(record),
        raw=record,
        origin=origin,
    )


def _meta(record: Record) -> Record:
    """Return `_meta` merged with other reserved keys, and with all other keys if there is a `variables` object."""
    has_object = isinstance(record.get("variables"), dict)
    others = {
        name: value
        for name, value in record.items()
        if name not in (*_OWN, "variables") and (has_object or name.startswith("_"))
    }
    meta = record.get("_meta")
    return {**others, **meta} if isinstance(meta, dict) else others


def checks_of(record: Record) -> tuple[Check, ...]:
    """Return the checks of a row, named by their keys in `_expected`, without invalid ones."""
    expected = record.get("_expected")
    return tuple(
        msgspec.structs.replace(check, name=key)
        for key, value in (expected.items() if isinstance(expected, dict) else ())
        if not any(remark.severity == "error" for remark in _expected_findings(key, value))
        for check in _checks({key: value})
    )


def _checks(expected: Record) -> Iterator[Check]:
    for key, value in expected.items():
        if key in _KINDS:
            yield Check(_KINDS[key], value, options={"negate": True} if key == "mustNotContain" else {})


def write(case: Case, number: int) -> Written:
    """Write a case as a row with a `variables` object; id, tags and other fields have reserved names."""
    lost = ConversionNotes(case)
    variables = {}
    for name, value in case.inputs.items():
        if name.startswith("_"):
            lost.add(f"input: {name} has another meaning here")
        else:
            if not isinstance(value, str):
                lost.add(f"input: {name} becomes JSON text")
            variables[name] = as_text(value)
    expected: Record = {}
    for check in case.checks:
        key = _expectation(check)
        if key is None or key in expected:
            lost.check(check)
        elif key == "equals" and not isinstance(check.expected, str):
            lost.add("check: equals compares the text of the answer, so the expected value becomes JSON text")
            expected[key] = as_text(check.expected)
        else:
            expected[key] = [check.expected] if check.kind == "contains" else check.expected
    record: Record = {"variables": variables}
    if expected:
        record["_expected"] = expected
    if case.tags:
        record["_tags"] = list(case.tags)
    if case.id:
        record["_id"] = case.id
    if case.meta:
        record["_meta"] = case.meta
    return Written(record, lost.notes())


def _expectation(check: Check) -> str | None:
    """Return the key of `_expected` that is equivalent to a check, or None."""
    if check.where != "output" or check.options.get("unsupported"):
        return None
    negated = bool(check.options.get("negate"))
    if check.kind in ("contains", "contains_all") and not negated:
        return "mustContain"
    if check.kind == "contains_any" and negated:
        return "mustNotContain"
    if output_field(check) is not None:
        return "equals"
    return {"regex": "regex", "json_schema": "jsonSchema"}.get(check.kind) if not negated else None


def schema() -> Record:
    texts = {"type": "array", "minItems": 1, "items": {"type": "string"}}
    return json_schema(
        "Replay dataset row",
        {
            "variables": {"type": "object", "description": "The only source of variables, if present"},
            "_expected": {
                "type": "object",
                "properties": {
                    "mustContain": texts,
                    "mustNotContain": texts,
                    "equals": {},
                    "regex": {"type": "string", "format": "regex"},
                    "jsonSchema": {"type": "object"},
                },
            },
            "_tags": {"type": "array", "items": {"type": "string"}},
            "_id": {},
            "_meta": {},
        },
        additionalProperties={"description": "A variable; any JSON value"},
    )


def from_cells(row: dict[str, str]) -> Record:
    """Read a row of a table: `_tags` is a list of tags, any other column is a variable."""
    return {name: read_cell(name, text, tags="_tags") for name, text in row.items()}


_COMMON_NAMES = ("expected_output", "expected_outputs", "expected")


def unread_answer(sample: list[Record]) -> UnreadAnswer | None:
    """Find a field that looks like an expected answer but is not `_expected`."""
    fields = shared_fields(sample)
    names = filter(names_expectation, {name for row in sample for name in row})
    expected = next(iter(sorted(names, key=lambda name: (name not in _COMMON_NAMES, name))), "")
    if not expected:
        answer = answer_field(sample)
        target = "pipeline --map expected_output" if "id" in fields else "replay --map _expected.equals"
        return UnreadAnswer(answer, f"Try --dialect {target}={answer}") if answer else None
    mapped = f"--dialect replay --map _expected.equals={expected}"
    # Either makes it a replay row, with an id or without.
    if fields & {"_expected", "variables"}:
        return UnreadAnswer(expected, f"Try {mapped}")
    if "id" in fields:
        return UnreadAnswer(expected, f"Try --dialect pipeline or {mapped}")
    return UnreadAnswer(expected, f"Give each case an 'id' (then it is a pipeline case), or try {mapped}")


DIALECT = Dialect(
    name="replay",
    summary="Replay dataset rows: variables by name, _expected, _tags",
    sniff=sniff,
    findings=findings,
    are_clean=are_clean,
    plain_fields=lambda record: PlainFields({}),
    to_case=to_case,
    has_row_numbers=True,
    write=write,
    schema=schema,
    not_object_code="row_invalid",
    rank=50,
    is_fallback=True,
    from_cells=from_cells,
    is_open=True,
    unread_answer=unread_answer,
    expectations=("_expected",),
)
FORMATS = Formats((DIALECT,))
"""Only this dialect, for commands that read replay rows."""
