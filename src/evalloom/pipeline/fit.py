"""Checks a case against its pipeline before a run, because a mismatch would waste paid calls."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evalloom.core.contract import Shape
from evalloom.core.model import Record, Remark, error, warning
from evalloom.core.text import did_you_mean


def unknown_steps(case: Record, steps: frozenset[str]) -> Iterator[Remark]:
    """Yield a warning for each step in a case that the pipeline does not have."""
    for field in ("step_inputs", "intermediate_expectations"):
        for step in _object(case, field):
            if step not in steps:
                message = f"{field}.{step}: the pipeline has no step {step!r}{did_you_mean(step, sorted(steps))}"
                yield warning("unknown_step", (field, step), message)


def misfits(case: Record, shape: Shape) -> Iterator[Remark]:
    """Yield findings for parts of a case that the pipeline never uses or that can never pass."""
    yield from _unused_inputs(case, shape)
    yield from _missing_inputs(case, shape)
    for key in _object(case, "expected_outputs") if shape.outputs else ():
        if key != "output" and re.split(r"[.\[]", key)[0] not in shape.outputs and key not in shape.outputs:
            hint = did_you_mean(key, sorted(shape.outputs)) or f"; it has {', '.join(sorted(shape.outputs))}"
            message = f"expected_outputs.{key}: the pipeline has no output {key!r}{hint}"
            yield warning("unknown_expected_output", ("expected_outputs", key), message)
    if case.get("batch_items") and not shape.reads_items:
        message = "batch_items: no step of the pipeline has batch_mode or reads batch_items, so they go nowhere"
        yield warning("unused_batch_items", ("batch_items",), message)
    if case.get("expected_aggregation") is not None and not shape.aggregates:
        message = "expected_aggregation: the pipeline has no batch_aggregator, so this can never hold"
        yield warning("no_aggregator", ("expected_aggregation",), message)


def _unused_inputs(case: Record, shape: Shape) -> Iterator[Remark]:
    """Yield a warning for each key of step_inputs that its step does not take (PIPE-8)."""
    for step, inputs in _object(case, "step_inputs").items():
        accepted = shape.steps.get(step)
        if accepted is None or not isinstance(inputs, dict):
            continue
        for key in (key for key in inputs if key not in accepted):
            hint = did_you_mean(key, sorted(accepted))
            message = f"step_inputs.{step}.{key}: the step takes no such input, and it is not passed{hint}"
            yield warning("unused_step_input", ("step_inputs", step, key), message)


def _missing_inputs(case: Record, shape: Shape) -> Iterator[Remark]:
    """Yield an error for each required input missing from the inputs, step_inputs and batch_items of a case."""
    inputs = _object(case, "inputs")
    by_step = [step_inputs for step_inputs in _object(case, "step_inputs").values() if isinstance(step_inputs, dict)]
    for name in sorted((shape.batch_inputs if case.get("batch_items") else shape.inputs) - inputs.keys()):
        if not any(name in step_inputs for step_inputs in by_step):
            message = f"inputs.{name}: missing; the pipeline needs it{did_you_mean(name, inputs)}"
            yield error("missing_input", ("inputs",), message)


def _object(case: Record, field: str) -> Record:
    """Return a field of a case; a wrong type has its own finding and counts as absent."""
    value = case.get(field)
    return value if isinstance(value, dict) else {}
