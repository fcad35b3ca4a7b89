"""What pipeline records say beyond v2.0, and what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest

from evalloom.core.contract import Shape
from evalloom.core.model import Case, Check, Origin, Record
from evalloom.data.dialect import Rules
from evalloom.pipeline import TestCase, TestsetLoader
from evalloom.pipeline import dialect as pipeline
from evalloom.pipeline.findings import are_clean, findings
from evalloom.pipeline.record import is_v2


def remarks(rules: Rules = Rules(), **fields: Any) -> list[tuple[str, str, tuple[str | int, ...]]]:
    record = {"id": "a", "inputs": {"text": "x"}, **fields}
    found = list(findings(record, rules))
    assert not (found and are_clean([record], rules))
    return [(remark.code, remark.severity, remark.path) for remark in found]


def message(rules: Rules = Rules(), **fields: Any) -> str:
    (remark,) = findings({"id": "a", "inputs": {"text": "x"}, **fields}, rules)
    return remark.message


@pytest.mark.req("PIPE-13")
def test_a_baseline_becomes_checks_of_what_a_run_takes() -> None:
    record = {"id": "a", "q": 1, "performance_baseline": {"max_latency_ms": 800, "max_tokens": 9, "max_cost": 0.5}}
    case = pipeline.to_case(record, Origin("f"))
    assert [(check.name, check.kind, check.expected) for check in case.checks] == [
        ("performance_baseline.max_latency_ms", "latency", 800),
        ("performance_baseline.max_tokens", "tokens", 9),
        ("performance_baseline.max_cost", "cost", 0.5),
    ]
    assert case.inputs == {"q": 1} and not remarks(performance_baseline=record["performance_baseline"])


@pytest.mark.req("PIPE-13")
def test_limits_from_elsewhere_are_written_as_a_baseline() -> None:
    case = Case("a", {}, (Check("latency", 5), Check("cost", 1, options={"weight": 2})))
    written = pipeline.write(case, 1)
    assert written.record["performance_baseline"] == {"max_latency_ms": 5} and len(written.lost) == 1


@pytest.mark.req("PIPE-13")
@pytest.mark.parametrize(
    ("baseline", "code", "severity"),
    [
        ([], "bad_performance_baseline", "error"),
        ({"max_cost": "1"}, "bad_performance_baseline", "error"),
        ({"max_tokens": True}, "bad_performance_baseline", "error"),
        ({"max_latency_ms": -1}, "bad_performance_baseline", "error"),
        ({"max_latency": 1}, "unknown_baseline_key", "warning"),
    ],
)
def test_a_faulty_baseline_is_told(baseline: Any, code: str, severity: str) -> None:
    ((found, is_of, path),) = remarks(performance_baseline=baseline)
    assert (found, is_of, path[0]) == (code, severity, "performance_baseline")


@pytest.mark.req("PIPE-14")
@pytest.mark.parametrize("needs", [7, {}, "", [""], ["a", 7], [None]])
def test_dependencies_are_ids(needs: Any) -> None:
    ((code, severity, path),) = remarks(depends_on=needs)
    assert (code, severity, path[0]) == ("bad_depends_on", "error", "depends_on")


@pytest.mark.req("PIPE-14")
@pytest.mark.parametrize(("written", "needs"), [("b", ("b",)), (["b", "c", "b"], ("b", "c")), (None, ()), ([], ())])
def test_dependencies_become_needs(written: Any, needs: tuple[str, ...]) -> None:
    assert pipeline.to_case({"id": "a", "q": 1, "depends_on": written}, Origin("f")).needs == needs


@pytest.mark.req("PIPE-15")
@pytest.mark.parametrize("conditions", [7, {}, "", ["true", 7], "profile ==", "__import__('os')", ["true", "1 +"]])
def test_conditions_are_expressions(conditions: Any) -> None:
    ((code, severity, path),) = remarks(conditions=conditions)
    assert (code, severity, path[0]) == ("bad_conditions", "error", "conditions")


@pytest.mark.req("PIPE-15")
def test_a_condition_is_told_with_its_column_and_the_name_that_was_meant() -> None:
    assert message(conditions="profile == and") == (
        "conditions: 'profile == and': column 12: expected a value, got 'and'"
    )
    assert message(conditions="profle == 'a'").endswith("which is always null. Did you mean 'profile'?")
    assert not remarks(conditions=["profile != variant", "'x' in tags", "env.CI and inputs.n > 1", "id"])


@pytest.mark.parametrize("field", ["performance_baseline", "depends_on", "conditions", "parameters"])
def test_none_of_these_fields_is_an_input_or_makes_a_record_v2(field: str) -> None:
    record: Record = {"id": "a", "q": "x", field: None}
    assert pipeline.to_case(record, Origin("f")).inputs == {"q": "x"}
    assert not is_v2(record) and not list(findings(record, Rules()))


TAKES = Rules(shape=Shape({"summarize": frozenset({"max_length", "model"}), "free": None, "else": None}))


@pytest.mark.req("PIPE-8")
def test_a_key_that_its_step_does_not_take_is_told() -> None:
    found = remarks(TAKES, step_inputs={"summarize": {"max_lenght": 5, "model": "m"}, "free": {"x": 1}, "else": {}})
    assert found == [("unused_step_input", "warning", ("step_inputs", "summarize", "max_lenght"))]
    assert message(TAKES, step_inputs={"summarize": {"max_lenght": 5}}) == (
        "step_inputs.summarize.max_lenght: the step has no such input, so it is not passed. Did you mean 'max_length'?"
    )
    assert not remarks(TAKES, step_inputs={"summarize": {"model": "m"}})


@pytest.mark.req("PIPE-8")
def test_a_case_without_an_input_that_the_pipeline_needs_is_told() -> None:
    rules = Rules(shape=Shape({"first": None}, frozenset({"text", "texts"})))
    assert remarks(rules) == [("missing_input", "error", ("inputs",))]
    assert message(rules) == "inputs.texts: missing; the pipeline needs it. Did you mean 'text'?"
    assert not remarks(rules, step_inputs={"first": {"texts": []}})
    assert not remarks(rules, batch_items=[{"texts": 1}], expected_aggregation=1)
    v1 = {"id": "a", "text": "x", "texts": []}
    assert not list(findings(v1, rules))


def test_the_schema_lists_every_field() -> None:
    properties = pipeline.schema()["properties"]
    assert {"performance_baseline", "depends_on", "conditions", "parameters"} <= properties.keys()


@pytest.mark.req("PIPE-5")
def test_cases_in_memory_are_held_against_these_fields_too() -> None:
    case = TestCase.from_dict({"id": "a", "inputs": {}, "depends_on": 7, "conditions": "1 +"})
    assert [one.code for one in TestsetLoader.validate_testset([case])] == ["bad_depends_on", "bad_conditions"]


SHAPE = Shape(
    {"judge": None},
    inputs=frozenset({"text", "tone"}),
    batch_inputs=frozenset({"tone"}),
    outputs=frozenset({"label", "figures"}),
    reads_items=False,
    aggregates=False,
)


@pytest.mark.req("PIPE-4", "PIPE-8")
@pytest.mark.parametrize(
    ("fields", "codes"),
    [
        ({"inputs": {"text": 1, "tone": None}, "expected_outputs": {"label": 1, "output": 2, "figures.mean": 3}}, []),
        ({"inputs": {"text": 1, "tone": 2}, "expected_outputs": {"lable": 1}}, ["unknown_expected_output"]),
        ({"inputs": {"tone": 2}}, ["missing_input"]),
        (
            {"inputs": {"tone": 2}, "batch_items": [{}], "expected_aggregation": 1},
            ["unused_batch_items", "no_aggregator"],
        ),
        ({"inputs": {}, "batch_items": [{}]}, ["batch_without_aggregation", "missing_input", "unused_batch_items"]),
    ],
)
def test_what_does_not_fit_the_pipeline_is_told(fields: Record, codes: list[str]) -> None:
    assert [code for code, _, _ in remarks(Rules(shape=SHAPE), **fields)] == codes
