"""Pipeline testsets v2.0, and v1.0 records, which are converted to v2.0."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from evalloom.core.model import Case, Check, Origin, Path, Record, Remark, error, info, show_path, warning
from evalloom.core.patterns import pattern_error
from evalloom.core.text import describe, did_you_mean, quote, type_name
from evalloom.data.dialect import VAGUE, Dialect, Rules, UnreadAnswer, Written, json_schema
from evalloom.data.formats import Formats
from evalloom.data.lost import Lost, output_field
from evalloom.data.mapping import answer_field, names_expectation, says_what_goes_in, shared_fields
from evalloom.pipeline import extensions, fit, parameters

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
_INPUT_FIELDS = frozenset(("inputs", "step_inputs", "batch_items"))
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
_EXTENSION_FIELDS = frozenset(extensions.FIELDS)
_EMPTY: Record = {}
_NEVER_INPUT = re.compile(r"expected(_|$)")
"""Fields that are never inputs, although the format does not reserve them."""
_ID_CHARACTERS = re.compile(r"[\w-]+")
_CONFIG: dict[str, tuple[str, Callable[[Any], bool]]] = {
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


def is_v2(record: Record) -> bool:
    return not _V2.isdisjoint(record)


def canonical(record: Record) -> Record:
    """Convert a record to v2.0 without losing fields; v2.0 records stay unchanged (PIPE-3)."""
    folded = _folded(record)
    fields = {name: value for name, value in record.items() if name not in folded}
    if isinstance(fields.get("id"), int) and not isinstance(fields["id"], bool):
        fields["id"] = str(fields["id"])
    expected = _expected_fields(record)
    if not is_v2(record):
        inputs = {name: value for name, value in fields.items() if _is_v1_input(name)}
        fields = {name: value for name, value in fields.items() if name not in inputs}
        fields["inputs"] = inputs
    if expected:
        outputs = fields.get("expected_outputs")
        fields["expected_outputs"] = {**expected, **outputs} if isinstance(outputs, dict) else outputs or expected
    return fields


def _is_v1_input(name: str) -> bool:
    return name not in _NO_INPUT and not name.startswith("_")


def _folded(record: Record) -> tuple[str, ...]:
    """Return the v1.0 expectations of a record; in v2.0 all but `expected_output` are custom fields."""
    if is_v2(record):
        return ("expected_output",) if "expected_output" in record else ()
    return tuple(
        name for name in record if name == "expected" or (name.startswith("expected_") and name != "expected_")
    )


def _expected_fields(record: Record) -> Record:
    """Return expectations by output field; `expected` and `expected_output` mean the plain output."""
    return {
        "output" if name in ("expected", "expected_output") else name.removeprefix("expected_"): record[name]
        for name in sorted(_folded(record), key=lambda name: name == "expected_output")
    }


def sniff(record: Record) -> str:
    field_name = next((field for field in V2_FIELDS if field in record), None)
    return f"it has {field_name!r}, a field of pipeline testsets v2.0" if field_name else ""


def sniff_v1(record: Record) -> str:
    """Recognize v1.0 by an `id` and other fields; tried after most dialects."""
    return "it has an 'id' and other fields, as pipeline testsets v1.0" if "id" in record and len(record) > 1 else ""


def identity(record: Record) -> str | None:
    case_id = record.get("id")
    if isinstance(case_id, int) and not isinstance(case_id, bool):
        return str(case_id)
    return case_id if isinstance(case_id, str) and case_id.strip() else None


def multiply(record: Record) -> Iterable[Record]:
    """Expand a record with `parameters`; return any other record unchanged."""
    return parameters.multiply(record, identity(record)) if "parameters" in record else (record,)


def _is_clean(record: Record) -> bool:
    """Return whether a record has no findings; a fast path for valid records."""
    case_id, tags, get = record.get("id"), record.get("tags"), record.get
    config, items, intermediate = get("evaluation_config"), get("batch_items"), get("intermediate_expectations")
    return (
        _EXTENSION_FIELDS.isdisjoint(record)
        and not ("expected_output" in record and ("expected" in record or "expected_outputs" in record))
        and type(case_id) is str
        and _ID_CHARACTERS.fullmatch(case_id) is not None
        and (tags is None or (type(tags) is list and all(type(tag) is str for tag in tags)))
        and type(get("inputs", _EMPTY)) is dict
        and type(get("expected_outputs", _EMPTY)) is dict
        and type(steps := get("step_inputs", _EMPTY)) is dict
        and all(type(inputs) is dict for inputs in steps.values())
        and (
            config is None or (type(config) is dict and all(k in _CONFIG and _CONFIG[k][1](config[k]) for k in config))
        )
        and (items is None or (type(items) is list and all(type(item) is dict for item in items)))
        and (items is None or get("expected_aggregation") is not None)
        and (intermediate is None or type(intermediate) is dict)
        and (not intermediate or (config is not None and config.get("evaluate_intermediate") is True))
        and ("inputs" in record or not _outside_inputs(record))
        and not any(_has_pattern(record[name]) for name in record if _is_expectation(name))
    )


def _is_expectation(name: str) -> bool:
    return name[:8] == "expected" or name == "intermediate_expectations"


def _has_pattern(value: Any) -> bool:
    """Return whether a value contains a text that starts with `regex:`."""
    if type(value) is str:
        return value[:6] == "regex:"
    inner = value.values() if type(value) is dict else value if type(value) is list else ()
    return any(map(_has_pattern, inner))


def are_clean(records: list[Record], rules: Rules) -> bool:
    return rules.steps is None and rules.shape is None and all(map(_is_clean, records))


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
    yield from _conflicts(record)
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
    if outside := _outside_inputs(record):
        names = ", ".join(map(quote, outside))
        message = f"inputs: missing, so nothing goes in; found beside it: {names}. Put under inputs what should go in"
        yield warning("fields_outside_inputs", (outside[0],), message)
    yield from _step_inputs_findings(case.get("step_inputs"))
    yield from _batch_findings(case)
    yield from _config_findings(case)
    yield from extensions.findings(case)
    for name in filter(_is_expectation, record):
        yield from _pattern_findings(record[name], (name,))
    steps = rules.steps if rules.shape is None else frozenset(rules.shape.steps)
    if steps is not None:
        yield from fit.unknown_steps(case, steps)
    if rules.shape is not None:
        yield from fit.misfits(case, rules.shape)


def _id_findings(record: Record) -> Iterator[Remark]:
    case_id = record.get("id")
    if "id" not in record:
        yield error("missing_field", (), "id: missing; every case needs one")
    elif isinstance(case_id, int) and not isinstance(case_id, bool):
        yield warning("id_not_string", ("id",), f"id: expected a string, got {case_id}; it is read as {str(case_id)!r}")
    elif not isinstance(case_id, str):
        yield error("bad_id", ("id",), f"id: expected a string, got {describe(case_id)}")
    elif not case_id.strip():
        yield error("empty_id", ("id",), "id: is empty; every case needs one of its own")
    elif not _ID_CHARACTERS.fullmatch(case_id):
        message = f"id: expected letters, digits, '_' and '-' only, got {quote(case_id)}"
        yield warning("id_characters", ("id",), message)


def _conflicts(record: Record) -> Iterator[Remark]:
    """Warn about different expectations for the plain output, because only one is used."""
    outputs = record.get("expected_outputs")
    named = {
        f"expected_outputs.{name}": outputs[name]
        for name in ("output",)
        if isinstance(outputs, dict) and name in outputs
    }
    said = named | {name: record[name] for name in ("expected_output", "expected") if name in _folded(record)}
    (first, value), *others = said.items() if said else [("", None)]
    for other, another in others:
        if another != value:
            message = f"{other}: says {describe(another)}, but {first} says {describe(value)}, which counts"
            yield warning("conflicting_expected", (other,), message)


def _outside_inputs(record: Record) -> list[str]:
    """Return the custom fields of a v2.0 record without inputs; in v1.0 they would be inputs."""
    if not is_v2(record) or not _INPUT_FIELDS.isdisjoint(record):
        return []
    return [name for name in record if name not in _V2 and _is_v1_input(name) and not _NEVER_INPUT.match(name)]


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
        if key not in _CONFIG:
            message = f"evaluation_config.{key}: is not known and has no effect{did_you_mean(key, _CONFIG)}"
            yield warning("unknown_config_key", path, message)
        elif not _CONFIG[key][1](value):
            message = f"evaluation_config.{key}: expected {_CONFIG[key][0]}, got {describe(value)}"
            yield error("bad_evaluation_config", path, message)
    if case.get("intermediate_expectations") and (config or {}).get("evaluate_intermediate") is not True:
        message = "intermediate_expectations: not checked while evaluation_config.evaluate_intermediate is off"
        yield warning("intermediate_not_evaluated", ("intermediate_expectations",), message)


def _pattern_findings(value: Any, path: Path) -> Iterator[Remark]:
    """Yield an error for each invalid regular expression after `regex:` (PIPE-11)."""
    if isinstance(value, str) and value.startswith("regex:"):
        if reason := pattern_error(value[6:]):
            expected = "expected a regular expression behind 'regex:'"
            yield error("bad_regex", path, f"{show_path(path)}: {expected}, got {quote(value[6:])}: {reason}")
        return
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in inner:
        yield from _pattern_findings(item, (*path, step))


def to_case(record: Record, origin: Origin) -> Case:
    """Convert a record to a case with checks on outputs, steps and aggregation, as configured (PIPE-10)."""
    record_v2 = canonical(record)
    # A field of the wrong type has its own finding and counts as absent.
    fields = {**record_v2, **{name: _typed(record_v2.get(name), default) for name, default in DEFAULTS.items()}}
    checked = _evaluated(fields)
    limits = tuple(extensions.baseline_checks(fields)) if "performance_baseline" in fields else ()
    return Case(
        id=str(fields["id"]),
        inputs=fields["inputs"],
        checks=(*_checks(fields, checked), *limits),
        tags=tuple(tag for tag in fields["tags"] if isinstance(tag, str)),
        needs=extensions.needs_of(fields) if "depends_on" in fields else (),
        meta={
            name: value
            for name, value in fields.items()
            if name not in ("id", "tags", "inputs", *checked)
            and (name not in DEFAULTS or value != DEFAULTS[name])
            and not (limits and name == "performance_baseline")
        },
        raw=record,
        origin=origin,
    )


def _typed(value: Any, default: Any) -> Any:
    """Return the value if it has the type of the default; any value if the default is None."""
    return value if default is None or type(value) is type(default) else default


def _evaluated(fields: Record) -> tuple[str, ...]:
    """Return the expectation fields that the config enables."""
    config = fields["evaluation_config"]
    switches = {
        "intermediate_expectations": config.get("evaluate_intermediate", False),
        "expected_aggregation": config.get("evaluate_aggregation", True),
        "expected_outputs": config.get("evaluate_final", True),
    }
    return tuple(name for name, wanted in switches.items() if wanted)


def _checks(fields: Record, evaluated: tuple[str, ...]) -> Iterator[Check]:
    config = fields["evaluation_config"]
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
    if "expected_outputs" in evaluated:
        for field, expected in fields["expected_outputs"].items():
            where = "output" if field == "output" else f"output.{field}"
            yield _prefixed(expected, where) or Check("structural", expected, where, options=options)


def _prefixed(expected: Any, where: str) -> Check | None:
    """Return the check for a text such as `contains:…` or `regex:…` (PIPE-11)."""
    prefix, colon, rest = expected.partition(":") if isinstance(expected, str) else ("", "", "")
    # As in structures, blanks after `contains:` are ignored; in a pattern they may be intended.
    rest = rest.strip() if prefix == "contains" else rest
    return Check(prefix, rest, where) if colon and prefix in ("contains", "regex") else None


def write(case: Case, number: int) -> Written:
    """Write a case as a v2.0 record; additional fields become custom fields."""
    lost = Lost(case)
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
        else:
            lost.check(check)
    if not case.id:
        lost.add("id: the case has none, so cases are numbered")
    record: Record = {"id": case.id or f"case_{number}", "tags": list(case.tags), "inputs": case.inputs}
    return Written({**record, **lost.meta_except(*record), **{k: v for k, v in expected.items() if v}}, lost.notes())


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
            "expected_outputs": {**anything, "description": "What the outputs should be, by key"},
            "expected_aggregation": {"description": "What the aggregator step should give"},
            "intermediate_expectations": {**anything, "description": "What a step should give, by step id"},
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
                "description": "What the run may take at most",
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


_FILE_NAME = re.compile(r"\w+_\w+_v?\d[\w.]*\.jsonl(\.gz|\.zst)?")


def file_name(name: str, suffix: str) -> Remark | None:
    """Check that a testset is named by feature, type and version."""
    if suffix != ".jsonl" or _FILE_NAME.fullmatch(name):
        return None
    message = f"expected a name like <feature>_<type>_<version>.jsonl for a pipeline testset, got {quote(name)}"
    return info("file_name", (), message)


def is_switched_off(case: Case) -> bool:
    """Return whether `evaluation_config` disables all expectations of a case."""
    if case.checks or not is_v2(case.raw):
        return False
    switched_on = {**case.raw, "evaluation_config": {"evaluate_intermediate": True}}
    return bool(to_case(switched_on, case.origin).checks)


def unread_answer(sample: list[Record]) -> UnreadAnswer | None:
    """Find a field that looks like the expected answer; beside `inputs`, it is a custom field."""
    answer = answer_field(sample)
    if not answer or (names_expectation(answer) and not all(map(says_what_goes_in, sample))):
        return None
    target = "pipeline --map expected_output" if "id" in shared_fields(sample) else "replay --map _expected.equals"
    return UnreadAnswer(answer, f"Try --dialect {target}={answer}")


DIALECT = Dialect(
    name="pipeline",
    summary="Pipeline testsets v2.0 (and v1.0): inputs, step_inputs, batch_items, expectations at each level",
    sniff=sniff,
    findings=findings,
    are_clean=are_clean,
    to_case=to_case,
    identity=identity,
    write=write,
    canonical=canonical,
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
)
FORMATS = Formats((DIALECT,))
"""Reads files as this dialect without detecting the format."""
