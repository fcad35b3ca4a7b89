"""Checks pipeline testsets: each record (PIPE-4), each case against its pipeline, and the file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from evalloom.core.contract import Shape
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Path, Record, Remark, error, info, show_path, warning
from evalloom.core.patterns import pattern_error
from evalloom.core.text import describe, did_you_mean, list_names, quote, type_name
from evalloom.data.dialect import PlainFields, Rules, UnreadAnswer
from evalloom.data.mapping import answer_field, has_input_object, names_expectation, shared_fields
from evalloom.pipeline import extensions, parameters
from evalloom.pipeline.record import (
    canonical,
    has_implied_inputs,
    ignored_fields,
    is_v1_input,
    is_v2,
    multiply,
    names_outputs,
    output_of,
    v1_expectations,
)

_EXTENSION_FIELDS = frozenset(extensions.FIELDS)
_EMPTY: Record = {}
_ID_CHARACTERS = lazy_pattern(r"[\w-]+")
_CONFIG_KEYS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "evaluate_intermediate": ("true or false", lambda value: isinstance(value, bool)),
    "evaluate_final": ("true or false", lambda value: isinstance(value, bool)),
    "evaluate_aggregation": ("true or false", lambda value: isinstance(value, bool)),
    "strict_mode": ("true or false", lambda value: isinstance(value, bool)),
    "tolerance": (
        "a number of 0 or more",
        lambda value: not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value < math.inf,
    ),
    "ignore_fields": (
        "a list of strings",
        lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
    ),
}


def _is_clean(record: Record) -> bool:
    """Return whether a record has no findings; a fast path for valid records."""
    case_id, tags, get = record.get("id"), record.get("tags"), record.get
    config, items, intermediate = get("evaluation_config"), get("batch_items"), get("intermediate_expectations")
    return (
        _EXTENSION_FIELDS.isdisjoint(record)
        and "checks" not in record
        and next(_conflict_findings(record), None) is None
        and type(case_id) is str
        and _ID_CHARACTERS.fullmatch(case_id) is not None
        and (tags is None or (type(tags) is list and all(type(tag) is str for tag in tags)))
        and type(get("inputs", _EMPTY)) is dict
        and type(get("expected_outputs", _EMPTY)) is dict
        and type(steps := get("step_inputs", _EMPTY)) is dict
        and all(type(inputs) is dict for inputs in steps.values())
        and (
            config is None
            or (type(config) is dict and all(k in _CONFIG_KEYS and _CONFIG_KEYS[k][1](config[k]) for k in config))
        )
        and (items is None or (type(items) is list and all(type(item) is dict for item in items)))
        and (items is None or get("expected_aggregation") is not None)
        and (intermediate is None or type(intermediate) is dict)
        and (not intermediate or (config is not None and config.get("evaluate_intermediate") is True))
        and not any(_has_pattern(record[name]) for name in record if _is_expectation(name))
    )


def _is_expectation(name: str) -> bool:
    return name[:8] == "expected" or name == "intermediate_expectations"


def _has_pattern(value: Any) -> bool:
    """Return whether a value contains a text that starts with `regex:` or `semantic:`."""
    if type(value) is str:
        return value[:6] == "regex:" or value[:9] == "semantic:"
    inner = value.values() if type(value) is dict else value if type(value) is list else ()
    return any(map(_has_pattern, inner))


def are_clean(records: list[Record], rules: Rules) -> bool:
    return rules.steps is None and rules.shape is None and all(map(_is_clean, records))


def plain_fields(record: Record) -> PlainFields | None:
    """Return which values matter; None if the record has v1.0 expectations, which may contradict each other."""
    return None if v1_expectations(record) else _PLAIN


_PLAIN = PlainFields({"id": r'"[\w-]++"', "evaluation_config": ""}, not_first=("regex:", "semantic:"))


def findings(record: Record, rules: Rules) -> Iterator[Remark]:
    """Yield the errors and warnings of PIPE-4 for one record."""
    yield from _id_findings(record)
    if "parameters" not in record:
        yield from _record_findings(record, rules)
        return
    yield from parameters.findings(record)
    # Types are known only after expansion; findings shared by all expanded records are reported once.
    yield from dict.fromkeys(remark for expanded in multiply(record) for remark in _record_findings(expanded, rules))


def _record_findings(record: Record, rules: Rules) -> Iterator[Remark]:
    yield from _conflict_findings(record)
    case = canonical(record)
    tags = case.get("tags")
    if tags is not None and not isinstance(tags, list):
        yield error("bad_tags", ("tags",), f"tags: expected a list of strings, got {describe(tags)}")
    elif wrong := [tag for tag in tags or () if not isinstance(tag, str)]:
        message = f"tags: expected a list of strings, got a list with {type_name(wrong[0])} in it"
        yield error("bad_tags", ("tags",), message)
    for field in ("inputs", "expected_outputs", "intermediate_expectations"):
        if case.get(field) is not None and not isinstance(case[field], dict):
            yield error(f"bad_{field}", (field,), f"{field}: expected an object, got {describe(case[field])}")
    yield from _step_inputs_findings(case.get("step_inputs"))
    yield from _batch_findings(case)
    yield from _config_findings(case)
    yield from extensions.findings(case)
    for name in filter(_is_expectation, record):
        yield from _pattern_findings(record[name], (name,))
    steps = rules.steps if rules.shape is None else frozenset(rules.shape.steps)
    if steps is not None:
        yield from _unknown_step_findings(case, steps)
    if rules.shape is not None:
        yield from pipeline_findings(record, case, rules.shape)


def _id_findings(record: Record) -> Iterator[Remark]:
    case_id = record.get("id")
    if "id" not in record:
        yield error("missing_field", (), "id: missing; every case needs a unique id")
    elif isinstance(case_id, int) and not isinstance(case_id, bool):
        yield warning("id_not_string", ("id",), f"id: expected a string, got {case_id}; it is read as {str(case_id)!r}")
    elif not isinstance(case_id, str):
        yield error("bad_id", ("id",), f"id: expected a string, got {describe(case_id)}")
    elif not case_id.strip():
        yield error("empty_id", ("id",), "id: is empty; every case needs a unique id")
    elif not _ID_CHARACTERS.fullmatch(case_id):
        message = f"id: expected letters, digits, '_' and '-' only, got {quote(case_id)}"
        yield warning("id_characters", ("id",), message)


def _conflict_findings(record: Record) -> Iterator[Remark]:
    """Warn about different expectations for one output, because only one is used."""
    expectations = v1_expectations(record)
    if not expectations:
        return
    winners = {key: (f"expected_outputs.{key}", value) for key, value in _object(record, "expected_outputs").items()}
    for name in sorted(expectations, key=lambda name: name == "expected"):
        first, value = winners.setdefault(output_of(name), (name, record[name]))
        if value != record[name]:
            message = f"{name}: is {describe(record[name])}, but {first} is {describe(value)} and wins"
            yield warning("conflicting_expected", (name,), message)


def _step_inputs_findings(step_inputs: Any) -> Iterator[Remark]:
    if step_inputs is None:
        return
    if not isinstance(step_inputs, dict):
        message = f"step_inputs: expected an object by step id, got {describe(step_inputs)}"
        yield error("bad_step_inputs", ("step_inputs",), message)
        return
    for step, inputs in step_inputs.items():
        if not isinstance(inputs, dict):
            message = f"step_inputs.{step}: expected an object, got {describe(inputs)}"
            yield error("bad_step_inputs", ("step_inputs", step), message)


def _batch_findings(case: Record) -> Iterator[Remark]:
    items = case.get("batch_items")
    if items is None:
        return
    if not isinstance(items, list):
        yield error(
            "bad_batch_items", ("batch_items",), f"batch_items: expected a list of objects, got {describe(items)}"
        )
        return
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            message = f"batch_items[{number}]: expected an object, got {describe(item)}"
            yield error("bad_batch_items", ("batch_items", number), message)
    if case.get("expected_aggregation") is None:
        message = "batch_items: there is no expected_aggregation, so the aggregate is not checked"
        yield warning("batch_without_aggregation", ("batch_items",), message)


def _config_findings(case: Record) -> Iterator[Remark]:
    config = case.get("evaluation_config")
    if config is not None and not isinstance(config, dict):
        message = f"evaluation_config: expected an object, got {describe(config)}"
        yield error("bad_evaluation_config", ("evaluation_config",), message)
        return
    for key, value in (config or {}).items():
        path = ("evaluation_config", key)
        if key not in _CONFIG_KEYS:
            message = f"evaluation_config.{key}: is not known and has no effect{did_you_mean(key, _CONFIG_KEYS)}"
            yield warning("unknown_config_key", path, message)
        elif not _CONFIG_KEYS[key][1](value):
            message = f"evaluation_config.{key}: expected {_CONFIG_KEYS[key][0]}, got {describe(value)}"
            yield error("bad_evaluation_config", path, message)
    if case.get("intermediate_expectations") and (config or {}).get("evaluate_intermediate") is not True:
        message = "intermediate_expectations: not checked while evaluation_config.evaluate_intermediate is off"
        yield warning("intermediate_not_evaluated", ("intermediate_expectations",), message)


def _pattern_findings(value: Any, path: Path) -> Iterator[Remark]:
    """Yield an error for each invalid regular expression after `regex:` (PIPE-11)."""
    if isinstance(value, str) and value.startswith("regex:"):
        if reason := pattern_error(value[6:]):
            expected = "expected a regular expression after 'regex:'"
            yield error("bad_regex", path, f"{show_path(path)}: {expected}, got {quote(value[6:])}: {reason}")
        return
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in inner:
        yield from _pattern_findings(item, (*path, step))


# -- the case and its pipeline ----------------------------------------------------------------------


def _unknown_step_findings(case: Record, steps: frozenset[str]) -> Iterator[Remark]:
    """Yield a warning for each step in a case that the pipeline does not have."""
    for field in ("step_inputs", "intermediate_expectations"):
        for step in _object(case, field):
            if step not in steps:
                message = f"{field}.{step}: the pipeline has no step {step!r}{did_you_mean(step, sorted(steps))}"
                yield warning("unknown_step", (field, step), message)


def pipeline_findings(record: Record, case: Record, shape: Shape) -> Iterator[Remark]:
    """Yield findings for parts of a case that the pipeline never uses or that can never pass.

    This runs before the batch, because a mismatch would waste paid calls.
    """
    yield from _input_findings(record, shape)
    yield from _unused_input_findings(case, shape)
    yield from _missing_input_findings(case, shape)
    if shape.outputs:
        yield from _output_findings(record, case, shape.outputs)
    if case.get("batch_items") and not shape.reads_items:
        message = "batch_items: no step of the pipeline has batch_mode or reads batch_items, so they are not used"
        yield warning("unused_batch_items", ("batch_items",), message)
    if case.get("expected_aggregation") is not None and not shape.aggregates:
        message = "expected_aggregation: the pipeline has no batch_aggregator, so this check always fails"
        yield warning("no_aggregator", ("expected_aggregation",), message)


def _input_findings(record: Record, shape: Shape) -> Iterator[Remark]:
    """Warn about fields that may be meant as inputs but do not reach the pipeline (PIPE-3)."""
    declared = shape.accepts
    if declared is None or not is_v2(record):
        return
    others = [name for name in record if is_v1_input(name)]
    if has_implied_inputs(record):
        if unknown := [name for name in others if name not in declared]:
            hint = did_you_mean(unknown[0], sorted(declared)) or f"; it takes {list_names(sorted(declared))}"
            names = ", ".join(map(quote, unknown))
            message = f"{names}: not an input that the pipeline declares, so not passed to it{hint}"
            yield warning("fields_outside_inputs", (unknown[0],), message)
    elif meant := [name for name in others if name in declared and name not in _object(record, "inputs")]:
        names = ", ".join(map(quote, meant))
        message = f"{names}: beside 'inputs', so not passed to the pipeline, which declares it. Move it into 'inputs'"
        yield warning("fields_outside_inputs", (meant[0],), message)


def _output_findings(record: Record, case: Record, outputs: frozenset[str]) -> Iterator[Remark]:
    config = _object(case, "evaluation_config")
    ignored = ignored_fields(config)
    expected = [key for key in _object(case, "expected_outputs") if key not in ignored]
    for key in expected:
        if key != "output" and key.replace("[", ".").partition(".")[0] not in outputs and key not in outputs:
            is_v1 = key not in _object(record, "expected_outputs")
            path = (f"expected_{key}",) if is_v1 else ("expected_outputs", key)
            hint = did_you_mean(key, sorted(outputs)) or f"; it has {', '.join(sorted(outputs))}"
            yield warning(
                "unknown_expected_output", path, f"{show_path(path)}: the pipeline has no output {key!r}{hint}"
            )
    if config.get("strict_mode") is True and config.get("evaluate_final", True) and names_outputs(record):
        named = {key.replace("[", ".").partition(".")[0] for key in expected}
        further = sorted(outputs - named - {*expected} - ignored)
        # A plain expectation stands for an output that only the run determines.
        if len(further) > ("output" in named - outputs):
            message = "evaluation_config.strict_mode: allows no further outputs, but the pipeline also has"
            advice = "Add them to the expected outputs, or to ignore_fields"
            path = ("evaluation_config", "strict_mode")
            yield warning("strict_outputs", path, f"{message} {', '.join(further)}. {advice}")


def _unused_input_findings(case: Record, shape: Shape) -> Iterator[Remark]:
    """Yield a warning for each key of step_inputs that its step does not take (PIPE-8)."""
    for step, inputs in _object(case, "step_inputs").items():
        accepted = shape.steps.get(step)
        if accepted is None or not isinstance(inputs, dict):
            continue
        for key in (key for key in inputs if key not in accepted):
            hint = did_you_mean(key, sorted(accepted))
            message = f"step_inputs.{step}.{key}: the step has no such input, so it is not passed{hint}"
            yield warning("unused_step_input", ("step_inputs", step, key), message)


def _missing_input_findings(case: Record, shape: Shape) -> Iterator[Remark]:
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


# -- the file --------------------------------------------------------------------------------------

_FILE_NAME = lazy_pattern(r"\w+_\w+_v?\d[\w.]*\.jsonl(\.gz|\.zst)?")


def file_name(name: str, suffix: str) -> Remark | None:
    """Check that a testset is named by feature, type and version."""
    if suffix != ".jsonl" or _FILE_NAME.fullmatch(name):
        return None
    message = f"expected a name like <feature>_<type>_<version>.jsonl for a pipeline testset, got {quote(name)}"
    return info("file_name", (), message)


def unread_answer(sample: list[Record]) -> UnreadAnswer | None:
    """Find a field that looks like the expected answer; beside `inputs`, it is a custom field."""
    answer = answer_field(sample)
    if not answer or (names_expectation(answer) and not all(map(has_input_object, sample))):
        return None
    target = "pipeline --map expected_output" if "id" in shared_fields(sample) else "replay --map _expected.equals"
    return UnreadAnswer(answer, f"Try --dialect {target}={answer}")
