"""HOP cases and result rows, as the format's own examples write them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom import catalog
from evalloom.core.contract import Contract, Field
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Case, Checked, Record
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Rules
from evalloom.data.validate import validate
from evalloom.files.source import source_of
from evalloom.hop import dialect as hop
from evalloom.hop.contract import read_contract

INPUT = """\
{"id": 1, "tag": "fabrication", "description": "完全虚构的数据", "context_window": "A公司2023年营收120亿元", "model_output": "A公司2023年营收200亿元", "expected_hallucination_detected": true}
{"id": 2, "tag": "clean", "description": "忠实原文的输出", "context_window": "B公司成立于2010年", "model_output": "B公司成立于2010年", "expected_hallucination_detected": false}
"""
META = '{"_type": "meta", "profile": "kimi-full", "run_llm": "Kimi-K2-Instruct-0905", "verify_llm": "Kimi-K2-Instruct-0905", "run_params": {"temperature": 0.1, "max_tokens": 4000}, "timestamp": "2026-02-19T10:30:00"}\n'
FLAT = '{"id": 1, "tag": "fabrication", "context_window": "c", "model_output": "m", "hop_result": "{\\"hallucination_detected\\": true}", "hop_stats": {"retry_count": 0, "execution_path": [], "status": "OK"}, "profile": "kimi-full"}\n'
VIEW = """\
{"input": {"question": "HOP 是什么？"}, "result": "{\\"answer\\": \\"...\\", \\"confidence\\": \\"High\\"}"}
{"input": {"question": "fail case"}, "error": "timeout"}
"""


def check(tmp_path: Path, text: str, rules: Rules = Rules(), dialect: str = "") -> Checked:
    path = tmp_path / "cases.jsonl"
    path.write_text(text, encoding="utf-8")
    return validate(Dataset(source_of(path), catalog.load().formats, dialect), rules)


def codes(checked: Checked) -> list[tuple[int, str, str]]:
    return [(finding.origin.line, finding.code, finding.field) for finding in checked.findings]


@pytest.mark.req("HOP-1")
def test_the_formats_own_example_is_in_order(tmp_path: Path) -> None:
    checked = check(tmp_path, INPUT)
    assert (checked.dialect, checked.cases, checked.findings) == ("hop", 2, [])


@pytest.mark.req("HOP-1")
@pytest.mark.parametrize(
    ("record", "code", "field"),
    [
        ('{"tag": "a", "q": "x"}', "missing_field", "id"),
        ('{"id": 1, "q": "x"}', "missing_field", "tag"),
        ('{"id": "1", "tag": "a", "q": "x"}', "bad_id", "id"),
        ('{"id": true, "tag": "a", "q": "x"}', "bad_id", "id"),
        ('{"id": 1, "tag": 5, "q": "x"}', "bad_tag", "tag"),
        ('{"id": 1, "tag": " ", "q": "x"}', "bad_tag", "tag"),
        ('{"id": 1, "tag": "a", "q": "x", "difficulty": "hrad"}', "unknown_difficulty", "difficulty"),
        ('{"id": 1, "tag": "a", "q": "x", "description": 3}', "bad_description", "description"),
        ('{"id": 1, "tag": "a"}', "no_inputs", ""),
    ],
)
def test_a_fault_in_a_case_is_named_with_line_and_field(tmp_path: Path, record: str, code: str, field: str) -> None:
    checked = check(tmp_path, f"// first line\n{record}\n", dialect="hop")
    assert codes(checked) == [(2, code, field)]


@pytest.mark.req("HOP-1")
def test_duplicate_ids_are_errors_and_falling_ids_warn(tmp_path: Path) -> None:
    text = "".join(f'{{"id": {number}, "tag": "a", "q": "x"}}\n' for number in (1, 3, 3, 2, 4))
    checked = check(tmp_path, text)
    assert codes(checked) == [(3, "duplicate_id", "id"), (4, "id_not_increasing", "id")]
    assert checked.count("error") == 1
    assert "line 2" in checked.findings[0].message


@pytest.mark.req("HOP-1", "HOP-2")
def test_a_contract_is_held_against_every_field(tmp_path: Path) -> None:
    contract = Contract(
        {"q": Field("string"), "n": Field("int"), "note": Field("string", required=False)}, {"score": Field("float")}
    )
    text = (
        '{"id": 1, "tag": "a", "q": "x", "n": 1, "expected_score": 2}\n'
        '{"id": 2, "tag": "a", "q": 5, "expected_scroe": 1}\n'
        '{"id": 3, "tag": "a", "q": "x", "n": true, "note": null, "expected_score": "high"}\n'
    )
    checked = check(tmp_path, text, Rules(contract=contract))
    assert codes(checked) == [
        (2, "contract_type_mismatch", "q"),
        (2, "missing_field", "n"),
        (2, "unknown_expected_field", "expected_scroe"),
        (3, "contract_type_mismatch", "n"),
        (3, "contract_type_mismatch", "expected_score"),
    ]
    assert "Did you mean 'expected_score'?" in checked.findings[2].message


METAINFO = """\
# Hallucination checker

## 输入契约
| 字段 | 类型 | 必填 | 说明 |
|------|------|------|------|
| `context_window` | string | 是 | source |
| `model_output` | str | 是 | answer |
| `strictness` | int | 否 | |

## Output contract
| field | type | required | notes |
|---|---|---|---|
| hallucination_detected | bool | yes | |
"""
YAML = "inputs:\n  context_window: string\n  model_output: {type: string}\n  strictness: int?\noutputs:\n  hallucination_detected: bool\n"
PYTHON = """\
from typing import TypedDict

class Out(TypedDict):
    hallucination_detected: bool

raise SystemExit("never run")

async def check_hop(session, context_window: str, model_output: "str", strictness: int = 1) -> Out: ...
"""


@pytest.mark.req("HOP-2")
@pytest.mark.parametrize(("name", "text"), [("metainfo.md", METAINFO), ("contract.yaml", YAML), ("Hop.py", PYTHON)])
def test_a_contract_reads_the_same_from_each_place(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    contract = read_contract(str(path))
    assert {field: (each.type, each.required) for field, each in contract.inputs.items()} == {
        "context_window": ("string", True),
        "model_output": ("string", True),
        "strictness": ("int", False),
    }
    assert contract.outputs == {"hallucination_detected": Field("bool")}


@pytest.mark.req("HOP-2")
@pytest.mark.parametrize(
    ("name", "text"),
    [("a.yaml", "inputs: {q: strnig}"), ("a.md", "no table"), ("a.py", "def f( :"), ("a.yaml", "a: [")],
)
def test_a_contract_that_cannot_be_read_says_why(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(EvalloomError, match="contract ") as caught:
        read_contract(str(path))
    assert caught.value.exit_code == 2


@pytest.mark.req("HOP-2")
def test_the_function_receives_contract_fields_only() -> None:
    record = {"id": 1, "tag": "a", "q": "x", "extra": 1, "expected_q": "y", "hop_result": "null", "profile": "p"}
    assert hop.inputs_of(record) == {"q": "x", "extra": 1}
    assert hop.inputs_of(record, Contract({"q": Field("string")})) == {"q": "x"}


@pytest.mark.req("HOP-3", "HOP-7")
def test_result_files_of_both_wrappers_are_read_as_cases(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(META + FLAT + VIEW, encoding="utf-8")
    cases = [case for case in Dataset(source_of(path), catalog.load().formats).cases() if isinstance(case, Case)]
    assert [case.inputs for case in cases] == [
        {"context_window": "c", "model_output": "m"},
        {"question": "HOP 是什么？"},
        {"question": "fail case"},
    ]
    assert [case.id for case in cases] == ["1", "2", "3"]
    checked = check(tmp_path, META + FLAT + VIEW)
    assert (checked.cases, checked.findings) == (3, [])


@pytest.mark.req("HOP-3")
def test_ids_are_unique_per_profile_in_a_result_file(tmp_path: Path) -> None:
    other = FLAT.replace("kimi-full", "kimi-lite")
    assert check(tmp_path, FLAT + other).findings == []
    assert [code for _, code, _ in codes(check(tmp_path, FLAT + other + FLAT))] == ["duplicate_id"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.dictionaries(
    st.sampled_from(["input", "result", "error", "id", "tag", "q", "hop_result", "profile", "_type"])
    | st.text(max_size=5),
    VALUES,
    max_size=6,
)


@pytest.mark.req("HOP-3")
@given(RECORDS)
def test_normalising_twice_gives_no_more_than_once(record: Record) -> None:
    once = hop.normalize_input(record)
    wrapped = {"input": once, "result": "null"}
    assert hop.normalize_input(wrapped) == once
    if not hop.is_view_row(once):
        assert hop.normalize_input(once) is once


@pytest.mark.req("HOP-14")
@pytest.mark.parametrize(
    ("packed", "value"),
    [
        ('{"answer": 1}', {"answer": 1}),
        ({"answer": 1}, {"answer": 1}),
        ('"{\\"answer\\": 1}"', {"answer": 1}),
        (["OK", '{"answer": 1}'], {"answer": 1}),
        ('["UNCERTAIN", "{\\"answer\\": 1}"]', {"answer": 1}),
        ("not json", "not json"),
        ("null", None),
        (None, None),
        ([1, 2], [1, 2]),
    ],
)
def test_a_packed_result_is_unpacked(packed: object, value: object) -> None:
    assert hop.unpack_result(packed) == value


@pytest.mark.req("HOP-14", "HOP-7")
def test_an_audit_row_is_the_same_from_both_wrappers() -> None:
    stats = {"retry_count": 1, "status": "ERROR", "error": "timeout"}
    flat = hop.normalize_audit({"id": 1, "q": "x", "hop_result": "null", "hop_stats": stats, "profile": "p"})
    assert flat == {"case": {"id": 1, "q": "x"}, "result": None, "error": "timeout", "stats": stats, "profile": "p"}
    view = hop.normalize_audit({"input": {"q": "x"}, "error": "timeout"})
    assert view == {"case": {"q": "x"}, "result": None, "error": "timeout", "stats": {}, "profile": None}
    assert hop.normalize_audit({"_type": "meta", "profile": "p"}) is None
    assert hop.normalize_audit({"id": 1, "tag": "a", "q": "only an input"}) is None


@pytest.mark.req("HOP-14")
@given(RECORDS)
def test_an_audit_never_raises(record: Record) -> None:
    row = hop.normalize_audit(record)
    assert row is None or set(row) == {"case", "result", "error", "stats", "profile"}


@pytest.mark.req("HOP-7", "HOP-3")
def test_a_view_row_is_written_in_the_flat_wrapper_with_its_outcome() -> None:
    failed = {"input": {"id": 1, "tag": "a", "q": "x"}, "error": "timeout"}
    flat = hop.canonical(failed)
    assert flat == {
        "id": 1,
        "tag": "a",
        "q": "x",
        "hop_result": "null",
        "hop_stats": {"status": "ERROR", "error": "timeout"},
    }
    assert hop.inputs_of(flat) == hop.inputs_of(failed)
    assert hop.normalize_audit(flat) is not None and hop.normalize_audit(flat)["error"] == "timeout"  # type: ignore[index]


def test_a_contract_cell_may_say_optional_in_many_ways(tmp_path: Path) -> None:
    rows = "".join(
        f"| f{number} | int | {word} |\n" for number, word in enumerate(["否", "选填", "非必填", "no", "optional (0)"])
    )
    path = tmp_path / "metainfo.md"
    path.write_text(f"## 输入\n| 字段 | 类型 | 必填 |\n|---|---|---|\n| q | string | 是 |\n{rows}", encoding="utf-8")
    assert [field.required for field in read_contract(str(path)).inputs.values()] == [True] + [False] * 5


def test_hop_cases_can_stand_in_a_table(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("id,tag,q\n1,a,x\n2,a,y\n", encoding="utf-8")
    assert validate(Dataset(source_of(path), catalog.load().formats, "hop")).findings == []
