"""Replay rows: which keys become variables, as what text, and what `_expected` asks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom import catalog
from evalloom.core.model import Origin, Record
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Rules
from evalloom.data.mapping import proposals
from evalloom.data.validate import validate
from evalloom.files.source import source_of
from evalloom.replay import dialect as replay
from evalloom.replay.variables import as_text


@pytest.mark.req("REPLAY-4")
def test_top_level_keys_are_variables_unless_reserved() -> None:
    row = {"question": "什么是上下文工程？", "user_name": "Alice", "_meta": 1, "_expected": {"mustContain": ["上下文"]}}
    assert replay.variables_of(row) == {"question": "什么是上下文工程？", "user_name": "Alice"}


@pytest.mark.req("REPLAY-4")
def test_a_variables_object_is_the_only_source() -> None:
    row = {"variables": {"question": "q", "_hidden": "h"}, "other": "o"}
    assert replay.variables_of(row) == {"question": "q"}


@pytest.mark.req("REPLAY-4")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (True, "true"),
        (None, "null"),
        (1.5, "1.5"),
        (1.0, "1.0"),
        ({"b": [1, "中"], "a": 1}, '{"a":1,"b":[1,"中"]}'),
    ],
)
def test_values_become_text(value: object, text: str) -> None:
    assert as_text(value) == text


@pytest.mark.req("REPLAY-4")
@pytest.mark.parametrize("row", ['{"variables": [1]}', '{"variables": "x", "question": "q"}', "[1, 2]", '"text"'])
def test_a_row_that_is_no_object_is_invalid(tmp_path: Path, row: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"question": "fine"}}\n{row}\n', encoding="utf-8")
    (finding,) = validate(Dataset(source_of(path), catalog.load().formats, "replay")).findings
    assert (finding.code, finding.severity, finding.origin.line) == ("row_invalid", "error", 2)


@pytest.mark.parametrize(
    ("expected", "codes"),
    [
        ({"mustContain": ["a"], "mustNotContain": ["b"], "equals": "x", "regex": "^a", "jsonSchema": {}}, []),
        ({"mustContain": "a"}, ["bad_expected"]),
        ({"mustContain": []}, ["bad_expected"]),
        ({"regex": "("}, ["bad_regex"]),
        ({"jsonSchema": 1}, ["bad_expected"]),
        ({"mustcontain": ["a"]}, ["unknown_expectation"]),
        ("x", ["bad_expected"]),
    ],
)
def test_expectations_are_checked(expected: object, codes: list[str]) -> None:
    row = {"q": "x", "_expected": expected}
    assert [remark.code for remark in replay.findings(row, Rules())] == codes


@pytest.mark.parametrize("name", ["expected", "expected_output", "expected_outputs", "expected_tone"])
def test_an_expectation_that_would_go_in_is_told(name: str) -> None:
    rows = [{"question": "hi", name: "hi"}, {"question": "ho"}]
    (remark,) = proposals(rows, replay.DIALECT, catalog.load().formats)
    assert (remark.code, remark.severity) == ("fields_from_elsewhere", "warning")
    assert repr(name) in remark.message and "an 'id'" in remark.message
    assert remark.message.endswith(f"--dialect replay --map _expected.equals={name}")
    (beside,) = proposals([{"variables": {"question": "hi"}, name: "hi"}], replay.DIALECT, catalog.load().formats)
    assert "but is not checked. Try --dialect replay" in beside.message


def test_expectations_become_checks() -> None:
    row = {"q": "x", "_expected": {"mustContain": ["a"], "mustNotContain": ["b"], "regex": "c"}}
    checks = replay.to_case(row, Origin("f")).checks
    assert [(check.kind, bool(check.options.get("negate"))) for check in checks] == [
        ("contains_all", False),
        ("contains_any", True),
        ("regex", False),
    ]


@given(
    st.dictionaries(
        st.text(max_size=5) | st.sampled_from(["variables", "_expected", "_tags", "_meta"]),
        st.none() | st.text() | st.lists(st.integers()) | st.dictionaries(st.text(), st.integers()),
    )
)
def test_any_row_can_be_read(row: Record) -> None:
    list(replay.findings(row, Rules()))
    case = replay.to_case(row, Origin("f"))
    assert not any(name.startswith("_") for name in case.inputs)
    assert case.raw == row
