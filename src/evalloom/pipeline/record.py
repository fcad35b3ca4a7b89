"""Records of pipeline testsets: their fields, and the conversion of v1.0 to v2.0 (PIPE-3)."""

from __future__ import annotations

from collections.abc import Iterable

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
_NO_INPUT = ("id", "tags", "description", "metadata", *extensions.FIELDS)


def is_v2(record: Record) -> bool:
    """Return whether a record has a field of v2.0."""
    return not _V2.isdisjoint(record)


def canonical(record: Record) -> Record:
    """Convert a record to v2.0 without losing fields; v2.0 records stay unchanged (PIPE-3)."""
    expectations = v1_expectations(record)
    fields = {name: value for name, value in record.items() if name not in expectations}
    if isinstance(fields.get("id"), int) and not isinstance(fields["id"], bool):
        fields["id"] = str(fields["id"])
    # `expected` and `expected_output` both mean the plain output; the latter wins.
    expected = {
        "output" if name in ("expected", "expected_output") else name.removeprefix("expected_"): record[name]
        for name in sorted(expectations, key=lambda name: name == "expected_output")
    }
    if not is_v2(record):
        inputs = {name: value for name, value in fields.items() if is_v1_input(name)}
        fields = {name: value for name, value in fields.items() if name not in inputs}
        fields["inputs"] = inputs
    if expected:
        outputs = fields.get("expected_outputs")
        fields["expected_outputs"] = {**expected, **outputs} if isinstance(outputs, dict) else outputs or expected
    return fields


def is_v1_input(name: str) -> bool:
    """Return whether a field of a v1.0 record is an input."""
    return name not in _NO_INPUT and not name.startswith("_")


def v1_expectations(record: Record) -> tuple[str, ...]:
    """Return the v1.0 expectations of a record; in v2.0 all but `expected_output` are custom fields."""
    if is_v2(record):
        return ("expected_output",) if "expected_output" in record else ()
    return tuple(
        name for name in record if name == "expected" or (name.startswith("expected_") and name != "expected_")
    )


def identity(record: Record) -> str | None:
    """Return the id as a text; None if it is missing or blank."""
    case_id = record.get("id")
    if isinstance(case_id, int) and not isinstance(case_id, bool):
        return str(case_id)
    return case_id if isinstance(case_id, str) and case_id.strip() else None


def multiply(record: Record) -> Iterable[Record]:
    """Expand a record with `parameters`; return any other record unchanged."""
    return parameters.multiply(record, identity(record)) if "parameters" in record else (record,)
