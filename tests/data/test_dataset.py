"""What a file is taken for, and what happens when it is none of the formats or several at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalloom import catalog
from evalloom.core.model import Case, Checked
from evalloom.data.dataset import Dataset
from evalloom.data.mapping import parse_mapping
from evalloom.data.validate import validate
from evalloom.files.source import source_of


def check(tmp_path: Path, name: str, text: str, dialect: str = "", mapping: str = "") -> Checked:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return validate(Dataset(source_of(path), catalog.load().formats, dialect, parse_mapping(mapping)))


def codes(checked: Checked) -> list[tuple[str, int]]:
    return [(finding.code, finding.origin.line) for finding in checked.findings]


def test_errors_in_an_array_are_not_hidden_by_its_one_good_record(tmp_path: Path) -> None:
    checked = check(tmp_path, "broken.json", '[{"text": "a"},\n{"text" 1},\n3]')
    assert codes(checked) == [("json_parse_error", 2), ("row_invalid", 3)]


@pytest.mark.parametrize(
    "text", ["{}", '{"name": "x", "steps_per_day": 3}', '{"id": "p", "steps": [{"id": "a"}], "inputs": []}']
)
def test_one_object_without_cases_is_no_dataset(tmp_path: Path, text: str) -> None:
    assert codes(check(tmp_path, "config.json", text)) == [("not_a_dataset", 0)]
    assert check(tmp_path, "config.json", text).cases == 0


def test_a_wrapped_list_is_mapped_like_any_other(tmp_path: Path) -> None:
    text = '{"data": [{"id": "a", "question": "How long?", "docs": ["a.md"], "keywords": ["10 days"]}]}'
    mapping = "query=question,expected_sources=docs,must_include=keywords"
    assert mapping in check(tmp_path, "w.json", text).findings[0].message
    checked = check(tmp_path, "w.json", text, "rag", mapping)
    assert (checked.cases, checked.count("error")) == (1, 0)


def test_records_of_several_dialects_say_so(tmp_path: Path) -> None:
    text = '{"query": "How?", "must_include": ["x"]}\n{"test_id": "TC001", "test_category": "i18n"}\n{"query": "So?", "must_include": ["x"]}\n'
    checked = check(tmp_path, "mixed.jsonl", text)
    assert checked.dialect == "rag"
    (doubt,) = [finding for finding in checked.findings if finding.code == "doubtful_dialect"]
    assert "rag (2), prompt-eval (1)" in doubt.message


def test_a_name_that_no_record_has_is_an_error(tmp_path: Path) -> None:
    checked = check(tmp_path, "a.jsonl", '{"id": "a", "question": "x"}\n', mapping="query=qestion")
    assert ("map_unknown_field", 0) in codes(checked)
    assert "Did you mean 'question'?" in str(checked.findings)


@pytest.mark.parametrize(
    ("text", "dialect", "expected"),
    [
        ('{"summary": 1, "whatever": [{"test_id": "TC001"}]}', "prompt-eval", True),
        ('{"prompt": "p.md", "test_points": [{"id": "TP1"}]}', "prompt-eval", True),
        ('{"test_id": "TC001", "input": {"items": [{"a": 1}]}}', "prompt-eval", False),
        ('{"documents": [{"a": 1}], "question": "x"}', "replay", False),
        ('{"results": [{"test_id": "TC001", "test_category": "i18n"}]}', "", False),
        ('{"results": [{"test_id": "TC001", "outcome": "passed"}]}', "", True),
    ],
)
def test_a_wrapper_that_cannot_be_opened_is_said_to_be_one(
    tmp_path: Path, text: str, dialect: str, expected: bool
) -> None:
    assert (("not_a_dataset", 0) in codes(check(tmp_path, "w.json", text, dialect))) is expected


def test_a_single_value_is_mapped_into_a_list(tmp_path: Path) -> None:
    text = (
        '{"query": "How long?", "doc": "a.md", "key": ["x1"]}\n{"query": "How much?", "doc": ["b.md"], "key": ["x2"]}\n'
    )
    mapping = parse_mapping("expected_sources[]=doc,must_include=key")
    assert str(mapping) == "expected_sources[]=doc,must_include=key"
    path = tmp_path / "cases.jsonl"
    path.write_text(text)
    cases = [
        case
        for case in Dataset(source_of(path), catalog.load().formats, "rag", mapping).cases()
        if isinstance(case, Case)
    ]
    assert [case.raw["expected_sources"] for case in cases] == [["a.md"], ["b.md"]]
    assert mapping.apply({"doc": None})["expected_sources"] is None


def test_a_mapping_of_single_values_is_proposed_as_a_list(tmp_path: Path) -> None:
    checked = check(tmp_path, "a.jsonl", '{"query": "How long?", "expected_document": "a.md"}\n')
    assert "Try --dialect rag --map expected_sources[]=expected_document" in checked.findings[0].message


def test_what_is_wrong_in_a_list_made_of_a_value_has_its_place(tmp_path: Path) -> None:
    text = '{"id": "a", "query": "How long?", "doc": "../a.md", "must_include": ["x1"]}\n'
    checked = check(tmp_path, "a.jsonl", text, "rag", "expected_sources[]=doc")
    (found,) = [one for one in checked.findings if one.code == "source_outside_root"]
    assert (found.origin.line, found.origin.column) == (1, 42)


@pytest.mark.parametrize(
    "name", ["a\\0b.yaml", "x" * 300 + ".yaml", "x/" * 3000 + "y.yaml"], ids=["nul", "long", "deep"]
)
def test_an_included_file_whose_name_no_file_can_have_is_missing(tmp_path: Path, name: str) -> None:
    checked = check(tmp_path, "promptfooconfig.yaml", f'prompts: [x]\ntests: "file://{name}"\n')
    assert ("included_file_missing", 2) in codes(checked)
