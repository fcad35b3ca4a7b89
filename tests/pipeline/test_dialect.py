"""Pipeline testsets: the format's own examples, v1.0 records, and every finding of the specification."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom import catalog
from evalloom.core.contract import Shape
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Case, Checked, Origin, Record
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Rules
from evalloom.data.mapping import proposals
from evalloom.data.validate import validate
from evalloom.files.source import source_of
from evalloom.pipeline import TestCase, TestsetLoader
from evalloom.pipeline import dialect as pipeline
from evalloom.pipeline.findings import are_clean, findings
from evalloom.pipeline.record import canonical, is_v2

SEED = """\
// 示例 1: 简单格式
{"id": "simple_1", "text": "This is a test", "expected_output": "processed"}

// 示例 2: 多步骤
{
  "id": "multi_step_sentiment_analysis",
  "tags": ["sentiment", "multi-step"],
  "inputs": {
    "text": "I love this product! It's amazing and works perfectly."
  },
  "step_inputs": {
    "preprocess": {"lowercase": true},
    "analyze_sentiment": {"model": "advanced"}
  },
  "intermediate_expectations": {
    "preprocess": {"cleaned_text": "i love this product"}
  },
  "expected_outputs": {"sentiment": "positive"},
  "evaluation_config": {"evaluate_intermediate": true, "strict_mode": false}
}
  // 示例 3
{
  "id": "batch_customer_reviews",
  "batch_items": [
    {"review": "Excellent product!", "rating": 5},
    {"review": "Not satisfied", "rating": 2}
  ],
  "expected_aggregation": {"average_rating": 3.5}
}
"""


def check(tmp_path: Path, text: str, rules: Rules = Rules(), name: str = "review_basic_v1.jsonl") -> Checked:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return validate(Dataset(source_of(path), catalog.load().formats), rules)


@pytest.mark.req("PIPE-1")
@pytest.mark.parametrize("text", [SEED, "\ufeff" + SEED, SEED.replace("\n", "\r\n")])
def test_comments_and_printed_objects_are_read_where_they_stand(tmp_path: Path, text: str) -> None:
    path = tmp_path / "review_basic_v1.jsonl"
    path.write_bytes(text.encode())
    cases = [case for case in Dataset(source_of(path), catalog.load().formats).cases() if isinstance(case, Case)]
    assert [(case.id, case.origin.line) for case in cases] == [
        ("simple_1", 2),
        ("multi_step_sentiment_analysis", 5),
        ("batch_customer_reviews", 22),
    ]
    assert check(tmp_path, text).findings == []


@pytest.mark.req("PIPE-2")
def test_fields_have_the_defaults_of_the_format() -> None:
    case = TestCase(id="a")
    assert (case.tags, case.inputs, case.step_inputs, case.batch_items) == ([], {}, {}, None)
    assert (case.expected_outputs, case.expected_aggregation) == ({}, None)
    assert (case.intermediate_expectations, case.evaluation_config) == ({}, {})
    record = {"id": "a", "inputs": {"x": 1}, "custom": 2}
    assert TestCase.from_dict(record).raw_data == record


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(max_size=4), JSON, max_size=3)
V2 = st.fixed_dictionaries(
    {"id": st.text(min_size=1, max_size=6)},
    optional={
        "tags": st.lists(st.text(max_size=4), max_size=3),
        "inputs": OBJECTS,
        "step_inputs": st.dictionaries(st.text(max_size=4), OBJECTS, max_size=2),
        "batch_items": st.none() | st.lists(OBJECTS, max_size=3),
        "expected_outputs": OBJECTS,
        "expected_aggregation": JSON,
        "intermediate_expectations": OBJECTS,
        "evaluation_config": OBJECTS,
        "custom_field": JSON,
        "metadata": JSON,
    },
)


@pytest.mark.req("PIPE-2")
@given(V2.filter(is_v2))
def test_a_v2_record_comes_back_with_every_field(record: Record) -> None:
    assert TestCase.from_dict(record).to_dict() == record


@pytest.mark.req("PIPE-2", "PIPE-3")
@given(V2 | st.dictionaries(st.sampled_from(["id", "text", "expected", "expected_x", "tags", "_note", "inputs"]), JSON))
def test_the_canonical_form_is_reached_once(record: Record) -> None:
    once = canonical(record)
    assert canonical(once) == once


@pytest.mark.req("PIPE-3")
def test_a_v1_record_is_read_as_v2() -> None:
    record = {
        "id": "simple_1",
        "tags": ["a"],
        "text": "This is a test",
        "expected_output": "processed",
        "expected_score": 3,
        "description": "d",
        "metadata": {"author": "x"},
        "_note": "n",
    }
    case = TestCase.from_dict(record)
    assert case.inputs == {"text": "This is a test"}
    assert case.expected_outputs == {"output": "processed", "score": 3}
    assert TestCase.from_dict({"id": "a", "q": "x", "expected": "y"}).expected_outputs == {"output": "y"}


@pytest.mark.req("PIPE-3")
def test_the_expected_answer_never_reaches_the_inputs() -> None:
    record = {"id": "a", "inputs": {"q": 1}, "expected_output": "y", "custom": 1}
    case = pipeline.to_case(record, Origin("f"))
    assert case.inputs == {"q": 1}
    assert [(check.where, check.expected) for check in case.checks] == [("output", "y")]
    assert case.raw == record


@pytest.mark.req("PIPE-3")
def test_an_integer_id_is_read_as_its_text_with_a_warning(tmp_path: Path) -> None:
    checked = check(tmp_path, '{"id": 7, "text": "x"}\n')
    assert [(f.code, f.severity) for f in checked.findings] == [("id_not_string", "warning")]
    assert TestCase.from_dict({"id": 7, "text": "x"}).id == "7"


ERRORS = [
    ('{"inputs": {}}', "missing_field"),
    ('{"id": "", "inputs": {}}', "empty_id"),
    ('{"id": null, "inputs": {}}', "bad_id"),
    ('{"id": "a", "tags": "x", "inputs": {}}', "bad_tags"),
    ('{"id": "a", "tags": ["x", 1], "inputs": {}}', "bad_tags"),
    ('{"id": "a", "inputs": []}', "bad_inputs"),
    ('{"id": "a", "step_inputs": []}', "bad_step_inputs"),
    ('{"id": "a", "step_inputs": {"s": 1}}', "bad_step_inputs"),
    ('{"id": "a", "batch_items": {}, "expected_aggregation": 1}', "bad_batch_items"),
    ('{"id": "a", "batch_items": [1], "expected_aggregation": 1}', "bad_batch_items"),
    ('{"id": "a", "expected_outputs": "x"}', "bad_expected_outputs"),
    ('{"id": "a", "intermediate_expectations": []}', "bad_intermediate_expectations"),
    ('{"id": "a", "evaluation_config": []}', "bad_evaluation_config"),
    ('{"id": "a", "evaluation_config": {"strict_mode": "yes"}}', "bad_evaluation_config"),
    ('{"id": "a", "evaluation_config": {"tolerance": true}}', "bad_evaluation_config"),
    ('{"id": "a", "evaluation_config": {"tolerance": -1}}', "bad_evaluation_config"),
    ('{"id": "a", "evaluation_config": {"ignore_fields": [1]}}', "bad_evaluation_config"),
]
WARNINGS = [
    ('{"id": "a b", "inputs": {}}', "id_characters"),
    ('{"id": "a", "batch_items": [{}]}', "batch_without_aggregation"),
    ('{"id": "a", "evaluation_config": {"stric_mode": true}}', "unknown_config_key"),
    ('{"id": "a", "intermediate_expectations": {"s": 1}}', "intermediate_not_evaluated"),
]


@pytest.mark.req("PIPE-4")
@pytest.mark.parametrize(("record", "code"), ERRORS + WARNINGS)
def test_every_fault_of_a_record_has_its_finding(tmp_path: Path, record: str, code: str) -> None:
    checked = check(tmp_path, f'{{"id": "first", "inputs": {{}}}}\n{record}\n')
    severity = "error" if (record, code) in ERRORS else "warning"
    assert [(f.code, f.severity, f.origin.line) for f in checked.findings] == [(code, severity, 2)]


DECLARED = Shape(inputs=frozenset(), accepts=frozenset({"question", "lang"}))


@pytest.mark.req("PIPE-3", "PIPE-4")
@pytest.mark.parametrize(
    ("more", "shape", "said"),
    [
        ({"question": "hi", "inputs": {}}, None, ""),
        ({"question": "hi", "inputs": {"lang": "en"}}, None, ""),
        ({"question": "hi", "lang": "en"}, None, ""),
        ({"question": "hi", "_note": "n", "description": "d", "expected_tone": "t"}, DECLARED, ""),
        ({"question": "hi", "langs": 1, "x": 2}, DECLARED, "'langs', 'x': not an input that the pipeline declares"),
        ({"question": "hi", "inputs": {"lang": "en"}}, DECLARED, "'question': beside 'inputs', so not passed"),
        ({"author": "hi", "inputs": {"lang": "en"}}, DECLARED, ""),
    ],
)
def test_fields_that_do_not_reach_the_pipeline_are_named(more: Record, shape: Shape | None, said: str) -> None:
    record = {"id": "b", "expected_outputs": {"name": "x"}, **more}
    rules = Rules(shape=shape)
    remarks = [remark for remark in findings(record, rules) if not remark.code.startswith("unknown_")]
    assert [remark.code for remark in remarks] == (["fields_outside_inputs"] if said else [])
    assert all(said in remark.message for remark in remarks)
    assert are_clean([record], rules) is (shape is None)


@pytest.mark.req("PIPE-3")
def test_a_v2_record_without_inputs_keeps_the_rule_of_v1_for_the_rest() -> None:
    record = {
        "id": 7,
        "question": "hi",
        "_note": "n",
        "metadata": {},
        "step_inputs": {"s": {}},
        "expected_output": "x",
        "expected_tone": "kind",
        "expected_outputs": {"length": 3},
        "expected_aggregation": 5,
    }
    case = TestCase.from_dict(record)
    assert case.id == "7" and case.inputs == {"question": "hi"}
    assert case.expected_outputs == {"output": "x", "tone": "kind", "length": 3} and case.expected_aggregation == 5
    beside = TestCase.from_dict({**record, "inputs": {}})
    assert beside.inputs == {} and beside.expected_outputs == {"output": "x", "length": 3}
    assert beside.to_dict()["question"] == "hi" and beside.raw_data["expected_tone"] == "kind"


def test_an_expectation_of_v1_beside_inputs_is_told() -> None:
    (remark,) = proposals(
        [{"id": "a", "inputs": {"q": "hi"}, "expected": "hi"}], pipeline.DIALECT, catalog.load().formats
    )
    assert remark.message.endswith("is not checked. Try --dialect pipeline --map expected_output=expected")
    assert not list(proposals([{"id": "a", "q": "hi", "expected": "hi"}], pipeline.DIALECT, catalog.load().formats))
    assert not list(
        proposals(
            [{"id": "a", "inputs": {"q": "hi"}, "expected_output": "hi"}], pipeline.DIALECT, catalog.load().formats
        )
    )


@pytest.mark.req("PIPE-4")
def test_letters_of_any_script_are_fine_in_an_id(tmp_path: Path) -> None:
    assert check(tmp_path, '{"id": "情感分析_基础-1", "inputs": {}}\n').findings == []


@pytest.mark.req("PIPE-4")
def test_a_duplicate_id_names_both_lines(tmp_path: Path) -> None:
    checked = check(tmp_path, '{"id": "a", "inputs": {}}\n\n{"id": "a", "inputs": {}}\n')
    (finding,) = checked.findings
    assert (finding.code, finding.severity, finding.origin.line) == ("duplicate_id", "error", 3)
    assert "line 1" in finding.message and "line 3" in finding.message


@pytest.mark.req("PIPE-4")
def test_steps_that_the_pipeline_does_not_have_warn(tmp_path: Path) -> None:
    text = '{"id": "a", "step_inputs": {"preproces": {}}, "intermediate_expectations": {"analyze": 1}, "evaluation_config": {"evaluate_intermediate": true}}\n'
    checked = check(tmp_path, text, Rules(steps=frozenset({"preprocess", "analyze"})))
    assert [f.code for f in checked.findings] == ["unknown_step"]
    assert "Did you mean 'preprocess'?" in checked.findings[0].message


@pytest.mark.req("PIPE-4")
def test_an_unusual_file_name_is_only_an_info(tmp_path: Path) -> None:
    checked = check(tmp_path, '{"id": "a", "inputs": {}}\n', name="cases.jsonl")
    assert [(f.code, f.severity) for f in checked.findings] == [("file_name", "info")]


@pytest.mark.req("PIPE-5")
def test_the_loader_loads_filters_and_takes_apart(tmp_path: Path) -> None:
    path = tmp_path / "review_basic_v1.jsonl"
    path.write_text(SEED, encoding="utf-8")
    simple, steps, batch = cases = TestsetLoader.load_testset(path)
    assert TestsetLoader.filter_by_tags(cases, include_tags=["sentiment"]) == [steps]
    assert TestsetLoader.filter_by_tags(cases, exclude_tags=["multi-step"]) == [simple, batch]
    assert TestsetLoader.get_batch_test_cases(cases) == [batch]
    assert TestsetLoader.get_step_input_test_cases(cases) == [steps]
    assert TestsetLoader.get_intermediate_evaluation_test_cases(cases) == [steps]
    data = TestsetLoader.extract_step_data(steps, "preprocess")
    assert data == {"inputs": {"lowercase": True}, "expected": {"cleaned_text": "i love this product"}}
    groups = TestsetLoader.group_by_feature(cases)
    assert groups["simple"] == [simple] and groups["batch_processing"] == [batch] and groups["multi_step"] == [steps]


@pytest.mark.req("PIPE-5")
def test_the_loader_lists_findings_and_refuses_a_faulty_file(tmp_path: Path) -> None:
    path = tmp_path / "review_basic_v1.jsonl"
    path.write_text('{"id": "a", "tags": 1, "inputs": {}}\n{"id": "a", "inputs": 1}\n', encoding="utf-8")
    assert [f.code for f in TestsetLoader.findings(path)] == ["bad_tags", "bad_inputs", "duplicate_id"]
    with pytest.raises(EvalloomError, match="tags: expected a list of strings"):
        TestsetLoader.load_testset(path)
    in_memory = [TestCase(id="a"), TestCase(id="a", batch_items="x")]  # type: ignore[arg-type]
    assert [f.code for f in TestsetLoader.validate_testset(in_memory)] == ["bad_batch_items", "duplicate_id"]


@pytest.mark.req("PIPE-3")
@pytest.mark.parametrize(
    ("record", "counts"),
    [
        ('{"id": "a", "x": 1, "expected": "A", "expected_output": "B"}', "B"),
        ('{"id": "a", "inputs": {}, "expected_output": "A", "expected_outputs": {"output": "B"}}', "B"),
        ('{"id": "a", "expected_score": 1, "expected_outputs": {"score": 2}}', 2),
    ],
)
def test_two_expectations_that_differ_are_told(tmp_path: Path, record: str, counts: Any) -> None:
    checked = check(tmp_path, record + "\n")
    assert [(f.code, f.severity) for f in checked.findings] == [("conflicting_expected", "warning")]
    (case,) = TestsetLoader.load_testset(tmp_path / "review_basic_v1.jsonl")
    assert [*case.expected_outputs.values()] == [counts]


@pytest.mark.req("PIPE-2")
def test_what_the_config_turns_off_is_kept_beside_the_checks() -> None:
    record = {
        "id": "a",
        "inputs": {},
        "expected_outputs": {"output": "contains:x"},
        "intermediate_expectations": {"s": 1},
        "evaluation_config": {"evaluate_intermediate": False},
    }
    case = pipeline.to_case(record, Origin("f"))
    assert [(one.kind, one.expected) for one in case.checks] == [("contains", "x")]
    assert pipeline.write(case, 1).record == {**record, "tags": []}


STRICT = {"strict_mode": True}


def checks_of(config: Record, **fields: Any) -> list[tuple[str, str, Any]]:
    case = pipeline.to_case({"id": "a", "inputs": {}, "evaluation_config": config, **fields}, Origin("f"))
    return [(check.kind, check.where, check.expected) for check in case.checks]


@pytest.mark.req("PIPE-3", "PIPE-11")
def test_strict_mode_also_checks_the_names_of_the_outputs() -> None:
    named = checks_of(STRICT, expected_outputs={"a": 1, "b.c": "contains:x"})
    assert named == [("structural", "output.a", 1), ("structural", "output.b.c", "contains:x"), ("only_fields", "output", ["a", "b.c"])]  # fmt: skip
    assert checks_of(STRICT, expected_output=1) == [("structural", "output", 1)]
    assert checks_of({}, expected_outputs={"a": 1}) == [("structural", "output.a", 1)]
    assert checks_of({**STRICT, "evaluate_final": False}, expected_outputs={"a": 1}) == []


@pytest.mark.req("PIPE-3", "PIPE-11")
def test_writing_a_record_keeps_what_strict_mode_means() -> None:
    plain = {"id": "a", "inputs": {}, "expected_output": 1, "evaluation_config": STRICT}
    assert pipeline.DIALECT.canonical(plain) == plain
    lenient = pipeline.DIALECT.canonical({**plain, "evaluation_config": {}})
    assert lenient["expected_outputs"] == {"output": 1} and "expected_output" not in lenient
    both = pipeline.DIALECT.canonical({**plain, "expected_outputs": {"a": 2}})
    assert both["expected_outputs"] == {"output": 1, "a": 2}


@pytest.mark.req("PIPE-10")
def test_an_ignored_output_is_not_compared() -> None:
    expected = {"a": 1, "b": {"a": 1}, "c.a": 1, "d[0].a": 1, "aa": 1}
    checks = checks_of({"ignore_fields": ["a"]}, expected_outputs=expected)
    assert [where for _, where, _ in checks] == ["output.b", "output.aa"]
    assert checks_of({"ignore_fields": [{}, 1], **STRICT}, expected_outputs={"a": 1})


@pytest.mark.req("PIPE-3", "PIPE-4", "PIPE-11")
@pytest.mark.parametrize(
    ("more", "codes"),
    [
        ({"expected_tone": "x"}, [("unknown_expected_output", ("expected_tone",))]),
        ({"expected_outputs": {"tone": 1}}, [("unknown_expected_output", ("expected_outputs", "tone"))]),
        ({"expected_output": "x"}, []),
        ({"expected_output": "x", "evaluation_config": STRICT}, []),
        ({"expected_a": 1, "evaluation_config": STRICT}, [("strict_outputs", ("evaluation_config", "strict_mode"))]),
        ({"expected_a": 1, "evaluation_config": {**STRICT, "ignore_fields": ["b"]}}, []),
        ({"expected_outputs": {"a": 1, "output": 2}, "evaluation_config": STRICT}, []),
    ],
)
def test_what_can_never_pass_is_told_before_the_run(more: Record, codes: list[Any]) -> None:
    rules = Rules(shape=Shape(outputs=frozenset({"a", "b"})))
    assert [(remark.code, remark.path) for remark in findings({"id": "x", **more}, rules)] == codes


@pytest.mark.req("PIPE-4", "PIPE-11")
def test_a_pattern_that_does_not_compile_is_found_wherever_it_stands() -> None:
    record = {
        "id": "a",
        "inputs": {},
        "expected_outputs": {"fine": "regex:a+", "bad": "regex:("},
        "intermediate_expectations": {"step": {"deep": ["x", "regex:[a"]}},
        "expected_aggregation": "regex:*",
        "evaluation_config": {"evaluate_intermediate": True},
    }
    found = [remark for remark in findings(record, Rules()) if remark.code == "bad_regex"]
    assert [remark.path for remark in found] == [
        ("expected_outputs", "bad"), ("intermediate_expectations", "step", "deep", 1), ("expected_aggregation",)
    ]  # fmt: skip
    assert not are_clean([record], Rules())
