"""Pydantic Evals datasets: `cases` with inputs, an expected output and evaluators, some shared by all of them.

A case is read with its `dataset` (name and evaluators), which is checked once for all cases. As in Pydantic Evals, only
an evaluator compares the expected output; a case without any evaluator must equal it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from evalloom.core.model import Case, Check, Origin, Path, Record, Remark, error, show_path, warning
from evalloom.core.text import describe, did_you_mean, quote
from evalloom.data.cells import id_text, is_blank, own_id, text_list
from evalloom.data.dialect import Dialect, Expanded, Rules

_KINDS = {
    "Equals": "equals",
    "EqualsExpected": "equals",
    "Contains": "contains",
    "IsInstance": "is_instance",
    "MaxDuration": "latency",
    "LLMJudge": "judge",
    "GEval": "judge",
    "ToolCorrectness": "tool_calls",
    "HasMatchingSpan": "has_matching_span",
    "Python": "python",
}
_ARGUMENT = {
    "Equals": "value",
    "Contains": "value",
    "IsInstance": "type_name",
    "MaxDuration": "seconds",
    "LLMJudge": "rubric",
    "GEval": "criteria",
    "ToolCorrectness": "expected_tools",
    "HasMatchingSpan": "query",
    "Python": "expression",
}
_FIELDS = ("id", "name", "inputs", "expected_output", "metadata", "evaluators", "dataset")
_OTHER_PIPELINE = (
    "id",
    "step_inputs",
    "batch_items",
    "expected_outputs",
    "intermediate_expectations",
    "evaluation_config",
)


class _Evaluator(Struct, frozen=True):
    name: str
    arguments: Record


def sniff(record: Record) -> str:
    if _is_dataset(record):
        return "it has 'cases' with 'inputs'"
    return "it has 'inputs' and 'evaluators'" if "inputs" in record and "evaluators" in record else ""


def identity(record: Record) -> str | int | None:
    return own_id(record, "name")


def _is_dataset(document: Record) -> bool:
    cases = document.get("cases")
    if not isinstance(cases, list):
        return False
    objects = [case for case in cases if isinstance(case, dict)]
    return any("inputs" in case for case in objects) and not any(
        field in case for case in objects for field in _OTHER_PIPELINE
    )


def expand(document: Record) -> Expanded | None:
    """The cases of a dataset, each with the name and evaluators of the dataset."""
    return _expanded(document) if _is_dataset(document) else None


def _expanded(document: Record) -> Iterator[tuple[Path, Record] | Remark]:
    yield from _evaluator_findings(document.get("evaluators"), ("evaluators",))
    if document.get("report_evaluators"):
        message = "report_evaluators: are not scored: they look at all cases of a report, and a check here sees one"
        yield warning("unknown_evaluator", ("report_evaluators",), message)
    dataset = {name: document[name] for name in ("name", "evaluators") if name in document}
    for number, case in enumerate(document["cases"]):
        if isinstance(case, dict):
            yield ("cases", number), {**case, "dataset": dataset}
        else:
            message = f"cases[{number}]: expected an object, got {describe(case)}"
            yield error("json_not_object", ("cases", number), message)


def findings(record: Record, rules: Rules) -> Iterator[Remark]:
    """Problems that keep a case from running, from being read as intended, or from ever failing."""
    inputs = record.get("inputs")
    if "inputs" not in record:
        yield error("missing_field", (), "inputs: missing; every case needs them")
    elif is_blank(inputs) or inputs in ({}, []):
        yield warning("empty_input", ("inputs",), "inputs: are empty; were they forgotten?")
    name = record.get("name")
    if name is not None and not isinstance(name, str):
        yield error("bad_name", ("name",), f"name: expected a string, got {describe(name)}")
    yield from _evaluator_findings(record.get("evaluators"), ("evaluators",))
    if not _checks(record):
        message = "evaluators: none, and no expected_output, so nothing is checked and the case cannot fail"
        yield warning("no_checks", (), message)


def _evaluator_findings(evaluators: Any, at: Path) -> Iterator[Remark]:
    if evaluators is None:
        return
    if not isinstance(evaluators, list):
        message = f"{show_path(at)}: expected a list of evaluators, got {describe(evaluators)}"
        yield error("bad_evaluators", at, message)
        return
    for number, written in enumerate(evaluators):
        path = (*at, number)
        field = show_path(path)
        evaluator = _evaluator(written)
        if evaluator is None:
            expected = "expected a name, or an object with the name as its one key"
            yield error("bad_evaluators", path, f"{field}: {expected}, got {describe(written)}")
        elif evaluator.name not in _KINDS:
            hint = did_you_mean(evaluator.name, _KINDS) or ". It is kept, and nothing here scores it"
            expected = f"expected one of {', '.join(_KINDS)}"
            message = f"{field}: {expected}, got {quote(evaluator.name)}{hint}"
            yield warning("unknown_evaluator", path, message)
        else:
            yield from _argument_findings(evaluator, path)


def _argument_findings(evaluator: _Evaluator, path: Path) -> Iterator[Remark]:
    argument = _ARGUMENT.get(evaluator.name)
    if argument is None:
        return
    field = f"{show_path(path)}.{evaluator.name}.{argument}"
    value = evaluator.arguments.get(argument)
    if argument not in evaluator.arguments:
        yield error("bad_evaluators", path, f"{field}: missing; the evaluator needs it")
    elif argument == "seconds" and not _is_number(value):
        yield error("bad_threshold", path, f"{field}: expected a number of seconds, got {describe(value)}")
    elif argument in ("rubric", "criteria", "type_name", "expression") and not isinstance(value, str):
        yield error("bad_evaluators", path, f"{field}: expected a string, got {describe(value)}")


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and (
        isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    )


def _evaluator(written: Any) -> _Evaluator | None:
    """Parse an evaluator: a name, `{name: argument}`, `{name: {…}}` or `{name, arguments}`."""
    if isinstance(written, str) and written.strip():
        return _Evaluator(written, {})
    if not isinstance(written, dict):
        return None
    if isinstance(written.get("name"), str) and set(written) <= {"name", "arguments"}:
        return _Evaluator(written["name"], _arguments(written["name"], written.get("arguments")))
    if len(written) != 1:
        return None
    name, argument = next(iter(written.items()))
    return _Evaluator(name, argument if _is_keywords(name, argument) else {_ARGUMENT.get(name, "value"): argument})


def _is_keywords(name: str, argument: Any) -> bool:
    """Whether an object holds arguments by name; `Equals: {…}` may be the value itself."""
    if not isinstance(argument, dict):
        return False
    return name not in ("Equals", "Contains", "HasMatchingSpan") or _ARGUMENT[name] in argument


def _arguments(name: str, argument: Any) -> Record:
    if argument is None:
        return {}
    if isinstance(argument, dict):
        return argument
    first = argument[0] if isinstance(argument, list) and argument else argument
    return {_ARGUMENT.get(name, "value"): first}


def to_case(record: Record, origin: Origin) -> Case:
    """A case with one check per evaluator, its own and those of its dataset."""
    inputs = record.get("inputs")
    metadata = record.get("metadata")
    meta = {name: value for name, value in record.items() if name not in _FIELDS}
    if metadata is not None:
        meta["metadata"] = metadata
    checks = _checks(record)
    if "expected_output" in record and not any(check.expected is record["expected_output"] for check in checks):
        meta["expected_output"] = record["expected_output"]
    return Case(
        id=id_text(identity(record)),
        inputs=inputs if isinstance(inputs, dict) else {"input": inputs},
        checks=checks,
        tags=tuple(text_list(metadata.get("tags"))) if isinstance(metadata, dict) else (),
        meta=meta,
        raw=record,
        origin=origin,
    )


def _checks(record: Record) -> tuple[Check, ...]:
    dataset = record.get("dataset")
    shared = dataset.get("evaluators") if isinstance(dataset, dict) else None
    written = [item for part in (record.get("evaluators"), shared) if isinstance(part, list) for item in part]
    evaluators = [evaluator for item in written if (evaluator := _evaluator(item)) is not None]
    if not evaluators and record.get("expected_output") is not None:
        return (Check("equals", record["expected_output"], name="expected_output"),)
    return tuple(_check(evaluator, record) for evaluator in evaluators if _has_verdict(evaluator, record))


def _has_verdict(evaluator: _Evaluator, record: Record) -> bool:
    """Whether an evaluator decides about a case: EqualsExpected needs an expected output."""
    return evaluator.name != "EqualsExpected" or record.get("expected_output") is not None


def _check(evaluator: _Evaluator, record: Record) -> Check:
    name, arguments = evaluator.name, evaluator.arguments
    kind = _KINDS.get(name) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    options = dict(arguments)
    label = options.pop("evaluation_name", None)
    label = label if isinstance(label, str) else name
    if name not in _KINDS:
        return Check(kind, options.pop("value", None), name=label, options=options)
    expected = options.pop(_ARGUMENT[name], None) if name in _ARGUMENT else record.get("expected_output")
    where = "output"
    if name == "Contains" and options.get("as_strings") is True:
        kind = "pydantic_contains"
    elif name == "Contains" and options.get("case_sensitive") is False:
        kind = "icontains"
    if name == "GEval":
        steps = options.pop("evaluation_steps", None)
        options["scale"] = options.pop("score_range", [1, 5])
        if isinstance(steps, list) and steps:
            expected = "\n".join([str(expected), *(f"{number}. {step}" for number, step in enumerate(steps, 1))])
    if name == "LLMJudge" and options.get("assertion") is False:
        options["scale"] = [0, 1]
    if name == "ToolCorrectness":
        options["exact"], where = options.pop("allow_extra", False) is not True, "steps"
    if name == "MaxDuration":
        # All other latency checks use milliseconds.
        options["threshold"] = expected * 1000 if isinstance(expected, int | float) else expected
        expected = None
    if name == "LLMJudge" and options.get("include_expected_output"):
        options["reference"] = record.get("expected_output")
    return Check(kind, expected, where, label, options)


def check_paths(record: Record) -> Iterator[Path]:
    """Yield where each evaluator of the case is written; those of the dataset are outside of the case."""
    evaluators = record.get("evaluators")
    for number, written in enumerate(evaluators if isinstance(evaluators, list) else ()):
        evaluator = _evaluator(written)
        if evaluator is not None and _has_verdict(evaluator, record):
            yield ("evaluators", number)


DIALECT = Dialect(
    name="pydantic-evals",
    summary="Pydantic Evals datasets: cases with inputs, expected_output and evaluators",
    sniff=sniff,
    findings=findings,
    to_case=to_case,
    identity=identity,
    expand=expand,
    expectations=("expected_output", "evaluators"),
    check_paths=check_paths,
)
