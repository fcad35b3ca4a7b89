"""`parameters`: one record that stands for many cases."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom import catalog
from evalloom.core.model import Case, Origin, Record
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Rules
from evalloom.data.validate import validate
from evalloom.files.source import source_of
from evalloom.pipeline import TestCase
from evalloom.pipeline import dialect as pipeline
from evalloom.pipeline.findings import findings
from evalloom.pipeline.record import multiply

pytestmark = pytest.mark.req("PIPE-16")


def test_a_product_makes_one_case_of_each_choice_in_order() -> None:
    record = {"id": "t", "inputs": {"text": "{n} {lang}"}, "parameters": {"lang": ["en", "zh"], "n": [1, 2]}}
    found = list(multiply(record))
    assert [one["id"] for one in found] == ["t[lang=en,n=1]", "t[lang=en,n=2]", "t[lang=zh,n=1]", "t[lang=zh,n=2]"]
    assert [one["inputs"]["text"] for one in found] == ["1 en", "2 en", "1 zh", "2 zh"]
    assert all("parameters" not in one for one in found) and "parameters" in record


def test_a_list_names_each_choice_itself() -> None:
    record = {"id": "t", "q": "{a}/{b}", "parameters": [{"a": 1, "b": 2}, {"a": 3}]}
    assert [(one["id"], one["q"]) for one in multiply(record)] == [("t[a=1,b=2]", "1/2"), ("t[a=3]", "3/{b}")]


def test_values_are_filled_in_wherever_a_case_says_something() -> None:
    record = {
        "id": "t",
        "tags": ["{lang}"],
        "inputs": {"n": "{n}", "list": ["{n}!", {"deep": "{lang}"}], "other": "{ } {x} {{lang}"},
        "step_inputs": {"s": {"lang": "{lang}"}},
        "batch_items": [{"text": "{lang}"}],
        "expected_outputs": {"output": "contains:{lang}", "count": "{n}"},
        "expected_aggregation": {"total": "{n}"},
        "intermediate_expectations": {"s": "{flag}"},
        "evaluation_config": {"evaluate_intermediate": True},
        "depends_on": "base[lang={lang}]",
        "parameters": [{"lang": "en", "n": 3, "flag": None}],
    }
    (one,) = multiply(record)
    assert one["tags"] == ["en"] and one["depends_on"] == "base[lang=en]"
    assert one["inputs"] == {"n": 3, "list": ["3!", {"deep": "en"}], "other": "{ } {x} {en"}
    assert one["step_inputs"] == {"s": {"lang": "en"}} and one["batch_items"] == [{"text": "en"}]
    assert one["expected_outputs"] == {"output": "contains:en", "count": 3}
    assert one["expected_aggregation"] == {"total": 3} and one["intermediate_expectations"] == {"s": None}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain text", "plain text"),
        (1.5, "1.5"),
        (None, "null"),
        (True, "true"),
        ({"a": [1, "é"]}, '{"a":[1,"é"]}'),
        ("line\nbreak\x1b", "line�break�"),
        ("x" * 50, "x" * 39 + "…"),
    ],
)
def test_values_stand_in_the_id(value: object, shown: str) -> None:
    (one,) = multiply({"id": "t", "q": "{v}", "parameters": {"v": [value]}})
    assert one["id"] == f"t[v={shown}]" and one["q"] == value


def test_ids_that_would_be_the_same_are_numbered() -> None:
    record = {"id": "t", "q": "{v}", "parameters": {"v": ["1", 1, "x" * 60, "x" * 70]}}
    ids = [one["id"] for one in multiply(record)]
    assert ids[:2] == ["t[v=1]", "t[v=1]#2"] and ids[3] == f"{ids[2]}#2"


@pytest.mark.req("PIPE-4", "PIPE-16")
@pytest.mark.parametrize(
    ("parameters", "path", "both"),
    [
        (
            {"n": [1], "c": ["x", "y", "x", "x"]},
            ("parameters", "c", 2),
            "parameters.c[2]: is the same as parameters.c[0]",
        ),
        ([{"c": "x", "n": 1}, {"n": 1, "c": "x"}], ("parameters", 1), "parameters[1]: is the same as parameters[0]"),
    ],
)
def test_a_value_that_is_there_twice_is_an_error_that_names_both(
    parameters: object, path: tuple[str | int, ...], both: str
) -> None:
    (remark,) = findings({"id": "t", "inputs": {"q": "{c}"}, "parameters": parameters}, Rules())
    assert (remark.code, remark.severity, remark.path) == ("duplicate_id", "error", path)
    assert remark.message.startswith(both)
    assert not list(findings({"id": "t", "inputs": {}, "parameters": {"c": ["1", 1, 1.0, True, None]}}, Rules()))


VALUES = st.lists(st.none() | st.integers() | st.text(max_size=50), min_size=1, max_size=4, unique=True)


@given(st.dictionaries(st.text(min_size=1, max_size=3), VALUES, min_size=1, max_size=3))
def test_there_are_as_many_cases_as_choices_and_no_id_twice(parameters: Record) -> None:
    found = list(multiply({"id": "t", "inputs": {"x": "{a}"}, "parameters": parameters}))
    assert len({one["id"] for one in found}) == len(list(itertools.product(*parameters.values())))
    assert not any(remark.severity == "error" for one in found for remark in findings(one, Rules()))


@pytest.mark.parametrize(
    ("parameters", "path", "said"),
    [
        ({}, ("parameters",), "is empty"),
        ([], ("parameters",), "is empty"),
        (3, ("parameters",), "an object {name: [values]} or a list of objects, got an integer"),
        ({"x": "a"}, ("parameters", "x"), "expected a list of values, got a string"),
        ({"x": []}, ("parameters", "x"), "got an empty one"),
        ([{"x": 1}, 5], ("parameters", 1), "parameters[1]: expected an object of values by name, got an integer"),
        ([{}], ("parameters", 0), "got an empty one"),
        ({"x": list(range(101)), "y": list(range(100))}, ("parameters",), "at most 10,000 cases of one record"),
    ],
)
def test_what_cannot_be_filled_in_is_told_and_left(parameters: object, path: tuple[str | int], said: str) -> None:
    record: Record = {"id": "t", "inputs": {"x": "{x}"}, "parameters": parameters}
    (remark,) = findings(record, Rules())
    assert (remark.code, remark.severity, remark.path) == ("bad_parameters", "error", path)
    assert said in remark.message and list(multiply(record)) == [record]


def test_a_record_that_is_nested_too_deeply_is_told() -> None:
    deep: object = "{x}"
    for _ in range(3000):
        deep = [deep]
    record: Record = {"id": "t", "inputs": {"x": deep}, "parameters": {"x": [1]}}
    assert [remark.code for remark in findings(record, Rules())] == ["bad_parameters"]


def test_faults_that_only_show_when_filled_in_are_told_once() -> None:
    record: Record = {"id": "t", "inputs": "{t}", "parameters": {"t": [{}, "same"], "n": [1, 2]}}
    assert [remark.code for remark in findings(record, Rules())] == ["bad_inputs"]
    good = {"id": "t", "inputs": {}, "evaluation_config": {"tolerance": "{x}"}, "parameters": {"x": [0.1]}}
    assert not list(findings(good, Rules()))


def test_the_linter_counts_cases_and_finds_ids_twice(tmp_path: Path) -> None:
    path = tmp_path / "a_basic_v1.jsonl"
    path.write_text(
        '{"id": "a", "inputs": {"x": "{x}"}, "parameters": {"x": [1, 2, 3]}}\n{"id": "a[x=2]", "inputs": {}}\n',
        encoding="utf-8",
    )
    checked = validate(Dataset(source_of(path), catalog.load().formats))
    assert checked.cases == 4
    # The brackets are remarked upon where somebody wrote them, not where they were made.
    assert [(one.code, one.origin.line) for one in checked.findings] == [("id_characters", 2), ("duplicate_id", 2)]


def test_a_dataset_gives_each_case_with_its_own_record(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text('{"id": "a", "q": "{x}", "expected": "{x}", "parameters": {"x": [1, "b"]}}\n', encoding="utf-8")
    cases = [
        case for case in Dataset(source_of(path), catalog.load().formats, "pipeline").cases() if isinstance(case, Case)
    ]
    assert [(case.id, case.inputs, case.checks[0].expected) for case in cases] == [
        ("a[x=1]", {"q": 1}, 1),
        ("a[x=b]", {"q": "b"}, "b"),
    ]
    for case in cases:
        assert pipeline.to_case(case.raw, Origin(case.origin.file, 1, 1)) == case


@pytest.mark.parametrize("more", [{}, {"inputs": {"y": 1}}])
def test_the_record_itself_keeps_its_parameters(more: Record) -> None:
    record = {"id": "a", "parameters": {"x": [1]}, "conditions": "true", "depends_on": "b", **more}
    written = TestCase.from_dict(record).to_dict()
    assert {**written, **record} == written and written.get("inputs", {}) == more.get("inputs", {})


def test_a_tag_takes_the_text_of_a_value() -> None:
    record: Record = {"id": "t", "tags": ["{n}", "x{n}", "y"], "inputs": {}, "parameters": {"n": [1, None]}}
    assert [one["tags"] for one in multiply(record)] == [["1", "x1", "y"], ["null", "xnull", "y"]]
    assert not list(findings(record, Rules()))


@pytest.mark.parametrize(
    ("text", "parameters", "said"),
    [
        ("{v}" * 1000, {"v": ["short", "x" * 50_000]}, "at most 8 MB of text in a case, got 48 MB"),
        ("{v}" * 1000, [{"v": "x" * 50_000}], "at most 8 MB of text in a case, got 48 MB"),
        ("{v}" * 1000, {"v": [["x" * 50_000]]}, "at most 8 MB of text in a case, got 48 MB"),
        ("x" * 30_000, {"v": list(range(10_000))}, "at most 256 MB of text in all cases of one record, got 286 MB"),
        ("{v}", [{"v": "x" * 30_000}] * 10_000, "at most 256 MB of text in all cases of one record, got 287 MB"),
    ],
)
def test_a_small_record_that_would_become_huge_is_refused(text: str, parameters: object, said: str) -> None:
    record: Record = {"id": "t", "inputs": {"x": [text]}, "parameters": parameters}
    (remark,) = findings(record, Rules())
    assert (remark.code, remark.path) == ("bad_parameters", ("parameters",)) and said in remark.message
    assert list(multiply(record)) == [record]
