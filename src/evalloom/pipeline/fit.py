"""Whether a case fits the pipeline that it is for: what does not was paid for in vain."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evalloom.core.contract import Shape
from evalloom.core.errors import did_you_mean
from evalloom.core.model import Record, Remark, error, warning


def unknown_steps(case: Record, steps: frozenset[str]) -> Iterator[Remark]:
    """Steps that a case speaks of, and that the pipeline does not have."""
    for field in ("step_inputs", "intermediate_expectations"):
        for step in _object(case, field):
            if step not in steps:
                message = f"{field}.{step}: the pipeline has no step {step!r}{did_you_mean(step, sorted(steps))}"
                yield warning("unknown_step", (field, step), message)


def misfits(case: Record, shape: Shape) -> Iterator[Remark]:
    """What does not fit the pipeline: nothing of it would be used, or ever hold."""
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
    """Keys of step_inputs that their step does nothing with (PIPE-8)."""
    for step, given in _object(case, "step_inputs").items():
        known = shape.steps.get(step)
        if known is None or not isinstance(given, dict):
            continue
        for key in (key for key in given if key not in known):
            hint = did_you_mean(key, sorted(known))
            message = f"step_inputs.{step}.{key}: the step takes no such input, and it is not passed{hint}"
            yield warning("unused_step_input", ("step_inputs", step, key), message)


def _missing_inputs(case: Record, shape: Shape) -> Iterator[Remark]:
    """Inputs of the pipeline that the case gives nowhere: neither for the whole, nor for a step, nor by its items."""
    inputs = _object(case, "inputs")
    by_step = [given for given in _object(case, "step_inputs").values() if isinstance(given, dict)]
    for name in sorted((shape.batch_inputs if case.get("batch_items") else shape.inputs) - inputs.keys()):
        if not any(name in given for given in by_step):
            message = f"inputs.{name}: missing; the pipeline needs it{did_you_mean(name, inputs)}"
            yield error("missing_input", ("inputs",), message)


def _object(case: Record, field: str) -> Record:
    """A field of a case; one of a wrong type has its finding already, and counts as absent."""
    found = case.get(field)
    return found if isinstance(found, dict) else {}
