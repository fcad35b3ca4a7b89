"""Pipeline testsets v2.0, and v1.0 records, which are converted to v2.0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evalloom.core.model import Case, Check, Origin, Record
from evalloom.data.conversion import ConversionNotes, output_field
from evalloom.data.dialect import VAGUE, Dialect, Written, json_schema
from evalloom.data.formats import Formats
from evalloom.pipeline import extensions
from evalloom.pipeline.findings import are_clean, file_name, findings, plain_fields, unread_answer
from evalloom.pipeline.record import (
    DEFAULTS,
    V2_FIELDS,
    canonical,
    identity,
    ignored_fields,
    is_v2,
    multiply,
    names_outputs,
    written,
)

_EXPECTATIONS = frozenset(
    {"expected_outputs", "expected_aggregation", "intermediate_expectations", "evaluation_config"}
)


def sniff(record: Record) -> str:
    field_name = next((field for field in V2_FIELDS if field in record), None)
    return f"it has {field_name!r}, a field of pipeline testsets v2.0" if field_name else ""


def sniff_v1(record: Record) -> str:
    """Recognize v1.0 by an `id` and other fields; tried after most dialects."""
    return "it has an 'id' and other fields, as pipeline testsets v1.0" if "id" in record and len(record) > 1 else ""


def to_case(record: Record, origin: Origin) -> Case:
    """Convert a record to a case with checks on outputs, steps and aggregation, as configured (PIPE-10)."""
    record_v2 = canonical(record)
    fields = {**DEFAULTS, **record_v2}
    for name, value in record_v2.items():
        default = DEFAULTS.get(name)
        # A field of the wrong type has its own finding and counts as absent; None as the default allows any type.
        if default is not None and type(value) is not type(default):
            fields[name] = default
    is_checked = not _EXPECTATIONS.isdisjoint(record_v2)
    checked = _evaluated(fields["evaluation_config"]) if is_checked else ()
    elsewhere = ("id", "tags", "inputs", *checked)
    limits = tuple(extensions.baseline_checks(fields)) if "performance_baseline" in fields else ()
    return Case(
        id=str(fields["id"]),
        inputs=fields["inputs"],
        checks=(*_checks(fields, checked, record), *limits) if is_checked else limits,
        tags=tuple([tag for tag in fields["tags"] if isinstance(tag, str)]) if "tags" in record_v2 else (),
        needs=extensions.needs_of(fields) if "depends_on" in fields else (),
        meta={
            name: fields[name]
            for name in record_v2
            if name not in elsewhere
            and (name not in DEFAULTS or fields[name] != DEFAULTS[name])
            and not (limits and name == "performance_baseline")
        },
        raw=record,
        origin=origin,
    )


def _evaluated(config: Record) -> tuple[str, ...]:
    """Return the expectation fields that the config enables."""
    switches = {
        "intermediate_expectations": config.get("evaluate_intermediate", False),
        "expected_aggregation": config.get("evaluate_aggregation", True),
        "expected_outputs": config.get("evaluate_final", True),
    }
    return tuple([name for name, wanted in switches.items() if wanted])


def _checks(fields: Record, evaluated: tuple[str, ...], record: Record) -> Iterator[Check]:
    """Yield the checks of a case; `record` is as it was written, and `fields` are those of v2.0."""
    config = fields["evaluation_config"]
    ignored = ignored_fields(config)
    options = {
        "strict": config.get("strict_mode", False),
        "tolerance": config.get("tolerance", 0),
        "ignore_fields": config.get("ignore_fields", []),
    }
    if "intermediate_expectations" in evaluated:
        for step, expected in fields["intermediate_expectations"].items():
            yield Check("structural", expected, f"steps.{step}", options=options)
    if "expected_aggregation" in evaluated and fields["expected_aggregation"] is not None:
        yield Check("structural", fields["expected_aggregation"], "aggregation", options=options)
    if "expected_outputs" not in evaluated:
        return
    names = [*fields["expected_outputs"]]
    for field in names:
        # PIPE-10: the name of an output is ignored like that of any field inside it.
        if ignored and not _names_in(field).isdisjoint(ignored):
            continue
        expected, where = fields["expected_outputs"][field], "output" if field == "output" else f"output.{field}"
        prefix, colon, rest = expected.partition(":") if isinstance(expected, str) else ("", "", "")
        # PIPE-11. Strictly, only a text can match, so `structural` reads the prefix.
        if colon and prefix in ("contains", "regex") and options["strict"] is not True:
            # As in structures, blanks after `contains:` are ignored; in a pattern they may be intended.
            yield Check(prefix, rest.strip() if prefix == "contains" else rest, where)
        else:
            yield Check("structural", expected, where, options=options)
    # PIPE-3: a plain expected_output is compared with that output alone, also strictly.
    if options["strict"] is True and names and names_outputs(record):
        yield Check("only_fields", names, options={"ignore_fields": sorted(ignored)} if ignored else {})


def _names_in(field: str) -> set[str]:
    """Return the names in the key of an expected output: the key itself, and the steps of a path like `a.b[0].c`."""
    return {field, *field.replace("[", ".").replace("]", "").split(".")}


def write(case: Case, number: int) -> Written:
    """Write a case as a v2.0 record; additional fields become custom fields."""
    lost = ConversionNotes(case)
    expected: dict[str, Record] = {}
    for check in case.checks:
        text = check.expected[0] if isinstance(check.expected, list) and len(check.expected) == 1 else check.expected
        if (field := output_field(check, has_prefixes=True)) is not None:
            expected.setdefault("expected_outputs", {})[field] = check.expected
        elif check.kind == "structural" and check.where.startswith("steps."):
            expected.setdefault("intermediate_expectations", {})[check.where.removeprefix("steps.")] = check.expected
        elif check.kind == "structural" and check.where == "aggregation":
            expected["expected_aggregation"] = check.expected
        elif limit := extensions.limit_of(check):
            expected.setdefault("performance_baseline", {})[limit] = check.expected
        elif (field := _prefix_field(check, text)) and field not in expected.setdefault("expected_outputs", {}):
            expected["expected_outputs"][field] = f"{'regex' if check.kind == 'regex' else 'contains'}:{text}"
        elif check.kind != "only_fields" or not _is_strict(case):
            lost.check(check)
    if not case.id:
        lost.add("id: the case has none, so cases are numbered")
    record: Record = {"id": case.id or f"case_{number}", "tags": list(case.tags), "inputs": case.inputs}
    return Written({**record, **lost.meta_except(*record), **{k: v for k, v in expected.items() if v}}, lost.notes())


def _is_strict(case: Case) -> bool:
    """Return whether the evaluation_config of a case, which is written as it is, demands the same output names."""
    config = case.meta.get("evaluation_config")
    return isinstance(config, dict) and config.get("strict_mode") is True


def _prefix_field(check: Check, text: Any) -> str:
    """Return the output field of a check that `contains:…` or `regex:…` can express, or an empty string."""
    if (
        check.kind not in ("contains", "contains_all", "regex")
        or check.options.get("negate")
        or check.options.get("unsupported")
        or not isinstance(text, str)
    ):
        return ""
    return "output" if check.where == "output" else check.where.removeprefix("output.") if "." in check.where else ""


def schema() -> Record:
    anything: Record = {"type": "object"}
    switch = {"type": "boolean"}
    texts = {"type": ["string", "array", "null"], "items": {"type": "string"}}
    return json_schema(
        "Pipeline test case (v2.0)",
        {
            "id": {"type": "string", "minLength": 1, "description": "Unique in the testset"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "inputs": {**anything, "description": "The inputs of the pipeline"},
            "step_inputs": {"type": "object", "additionalProperties": anything, "description": "Inputs by step id"},
            "batch_items": {"type": ["array", "null"], "items": anything},
            "expected_outputs": {**anything, "description": "The expected outputs, by key"},
            "expected_aggregation": {"description": "The expected output of the aggregator step"},
            "intermediate_expectations": {**anything, "description": "The expected output of a step, by step id"},
            "evaluation_config": {
                "type": "object",
                "properties": {
                    "evaluate_intermediate": switch,
                    "evaluate_final": switch,
                    "evaluate_aggregation": switch,
                    "strict_mode": switch,
                    "tolerance": {"type": "number", "minimum": 0},
                    "ignore_fields": {"type": "array", "items": {"type": "string"}},
                },
            },
            "performance_baseline": {
                "type": "object",
                "properties": {name: {"type": "number", "minimum": 0} for name in extensions.LIMITS},
                "description": "The limits of a run",
            },
            "depends_on": {**texts, "description": "The ids of cases that must not have failed before this one runs"},
            "conditions": {
                **texts,
                "description": f"Expressions over {', '.join(extensions.CONDITION_NAMES)}; the case runs when all hold",
            },
            "parameters": {
                "anyOf": [
                    {"type": "object", "additionalProperties": {"type": "array", "minItems": 1}, "minProperties": 1},
                    {"type": "array", "items": {"type": "object", "minProperties": 1}, "minItems": 1},
                ],
                "description": "Values for {name} in the other fields; one case for each of them",
            },
        },
        ("id",),
    )


def is_switched_off(case: Case) -> bool:
    """Return whether `evaluation_config` disables all expectations of a case."""
    if case.checks or not is_v2(case.raw):
        return False
    switched_on = {**case.raw, "evaluation_config": {"evaluate_intermediate": True}}
    return bool(to_case(switched_on, case.origin).checks)


DIALECT = Dialect(
    name="pipeline",
    summary="Pipeline testsets v2.0 (and v1.0): inputs, step_inputs, batch_items, expectations at each level",
    sniff=sniff,
    findings=findings,
    are_clean=are_clean,
    plain_fields=plain_fields,
    to_case=to_case,
    identity=identity,
    write=write,
    canonical=written,
    schema=schema,
    multiply=multiply,
    needs=extensions.needs_of,
    beside_inputs=("step_inputs", "batch_items"),
    rank=40,
    weaker=((VAGUE, sniff_v1),),
    file_name=file_name,
    is_switched_off=is_switched_off,
    has_conditions=True,
    is_open=True,
    unread_answer=unread_answer,
    expectations=("expected_output", "expected_outputs", "expected_aggregation", "intermediate_expectations"),
    has_check_list=lambda record: not is_v2(record),
)
FORMATS = Formats((DIALECT,))
"""Reads files as this dialect without detecting the format."""
