"""Records of pipeline testsets: their fields, and the conversion of v1.0 to v2.0 (PIPE-3)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from evalloom.core.model import Record
from evalloom.pipeline import extensions, parameters

V2_FIELDS = (
    "inputs",
    "step_inputs",
    "batch_items",
    "expected_outputs",
    "expected_aggregation",
    "intermediate_expectations",
    "evaluation_config",
)
FIELDS = ("id", "tags", *V2_FIELDS)
_V2 = frozenset(V2_FIELDS)
DEFAULTS: Record = {
    "id": "",
    "tags": [],
    "inputs": {},
    "step_inputs": {},
    "batch_items": None,
    "expected_outputs": {},
    "expected_aggregation": None,
    "intermediate_expectations": {},
    "evaluation_config": {},
}
PLAIN = ("expected", "expected_output")
"""The v1.0 expectations of the plain output."""
_NO_INPUT = ("id", "tags", "description", "metadata", *extensions.FIELDS)


def is_v2(record: Record) -> bool:
    """Return whether a record has a field of v2.0."""
    return not _V2.isdisjoint(record)


def canonical(record: Record) -> Record:
    """Convert a record to v2.0 without losing fields; v2.0 records with `inputs` stay unchanged (PIPE-3)."""
    expectations, inputs, others = _parts(tuple(record))
    fields = {name: record[name] for name in others}
    if isinstance(fields.get("id"), int) and not isinstance(fields["id"], bool):
        fields["id"] = str(fields["id"])
    if inputs is not None:
        fields["inputs"] = {name: record[name] for name in inputs}
    if expectations:
        # `expected` and `expected_output` both mean the plain output; the latter wins.
        expected = {output: record[name] for name, output in expectations}
        outputs = fields.get("expected_outputs")
        fields["expected_outputs"] = {**expected, **outputs} if isinstance(outputs, dict) else outputs or expected
    return fields


@lru_cache(maxsize=64)
def _parts(names: tuple[str, ...]) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...] | None, tuple[str, ...]]:
    """Return which fields of a record are v1.0 expectations, each with its output, which are inputs, and the others.

    The inputs are None for a record that has none besides those of v2.0. Most records of a file have the same fields.
    """
    fields = dict.fromkeys(names)
    expectations = sorted(v1_expectations(fields), key=lambda name: name == "expected_output")
    others = tuple(name for name in names if name not in expectations)
    inputs: tuple[str, ...] | None = None
    if "inputs" not in fields:
        inputs = tuple(filter(is_v1_input, others))
        others = tuple(name for name in others if name not in inputs)
        if not inputs and is_v2(fields):
            inputs = None
    return tuple((name, output_of(name)) for name in expectations), inputs, others


def written(record: Record) -> Record:
    """Return a record as it is written: in v2.0, with the same meaning."""
    fields = canonical(record)
    config = fields.get("evaluation_config")
    if (
        isinstance(config, dict)
        and config.get("strict_mode")
        and expects_plain_output(record)
        and not names_outputs(record)
    ):
        # In strict mode, expected_outputs would demand that there are no other outputs.
        fields["expected_output"] = fields.pop("expected_outputs")["output"]
    return fields


def is_v1_input(name: str) -> bool:
    """Return whether a field of a record without `inputs` is an input."""
    return name not in _NO_INPUT and name not in _V2 and not name.startswith("_") and not _is_v1_expectation(name)


def v1_expectations(record: Record) -> tuple[str, ...]:
    """Return the v1.0 expectations of a record; beside `inputs`, all but `expected_output` are custom fields."""
    return _v1_expectations(tuple(record))


@lru_cache(maxsize=64)
def _v1_expectations(names: tuple[str, ...]) -> tuple[str, ...]:
    if "inputs" in names:
        return ("expected_output",) if "expected_output" in names else ()
    return tuple(filter(_is_v1_expectation, names))


def _is_v1_expectation(name: str) -> bool:
    return name == "expected" or (name.startswith("expected_") and name != "expected_" and name not in _V2)


def output_of(expectation: str) -> str:
    """Return the output that a v1.0 expectation is about; `output` is the plain one."""
    return "output" if expectation in PLAIN else expectation.removeprefix("expected_")


def expects_plain_output(record: Record) -> bool:
    """Return whether a record expects something of the plain output."""
    outputs = record.get("expected_outputs")
    return (isinstance(outputs, dict) and "output" in outputs) or any(n in PLAIN for n in v1_expectations(record))


def names_outputs(record: Record) -> bool:
    """Return whether a record names the outputs that it expects, instead of expecting only the plain output."""
    return bool(record.get("expected_outputs")) or any(name not in PLAIN for name in v1_expectations(record))


def ignored_fields(config: Record) -> frozenset[str]:
    """Return the `ignore_fields` of an evaluation_config; those of a wrong type have their own finding."""
    names = config.get("ignore_fields")
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()


def has_implied_inputs(record: Record) -> bool:
    """Return whether the inputs of a v2.0 record are the fields that v2.0 does not define."""
    return "inputs" not in record and is_v2(record)


def identity(record: Record) -> str | None:
    """Return the id as a text; None if it is missing or blank."""
    case_id = record.get("id")
    if isinstance(case_id, int) and not isinstance(case_id, bool):
        return str(case_id)
    return case_id if isinstance(case_id, str) and case_id.strip() else None


def multiply(record: Record) -> Iterable[Record]:
    """Expand a record with `parameters`; return any other record unchanged."""
    return parameters.multiply(record, identity(record)) if "parameters" in record else (record,)
