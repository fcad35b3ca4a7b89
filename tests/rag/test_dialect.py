"""RAG eval cases as a dialect; the findings one by one are in tests/tools/test_validate_eval_cases.py."""

from pathlib import Path

import pytest

from evalloom import Rules, check
from evalloom.core.model import Case, Check, Origin
from evalloom.rag.dialect import DIALECT, findings

RECORD = {
    "id": "a",
    "query": "限速多少？",
    "expected_sources": ["docs/a.md", "docs/"],
    "must_include": ["5 公里", " "],
    "bucket": "oral",
    "pair_id": "p",
    "tags": ["speed"],
}


def test_a_case_has_the_query_the_sources_and_the_anchors() -> None:
    case = DIALECT.to_case(RECORD, Origin("cases.jsonl", 4))
    assert case.inputs == {"query": "限速多少？"} and case.tags == ("oral", "speed")
    assert case.checks == (Check("source_hit", ["docs/a.md", "docs/"], "sources"), Check("contains_all", ["5 公里"]))
    assert case.raw == RECORD and case.meta["pair_id"] == "p"


@pytest.mark.req("RAG-3")
def test_a_missing_bucket_is_official() -> None:
    case = DIALECT.to_case({**RECORD, "bucket": None}, Origin("cases.jsonl"))
    assert case.tags[0] == "official"
    assert DIALECT.pairing is not None
    assert DIALECT.pairing.of({**RECORD, "bucket": None}) == ("p", "official")


def test_a_query_is_never_made_of_another_type() -> None:
    assert DIALECT.write is not None
    written = DIALECT.write(Case("1", {"query": 5, "text": "how fast?"}), 1)
    assert written.record["query"] == "how fast?" and "input: query has no place" in written.lost


@pytest.mark.req("RAG-2")
@pytest.mark.parametrize("folder", ["docs\\", "docs/"])
def test_a_trailing_slash_of_either_kind_means_a_folder(folder: str, tmp_path: Path) -> None:
    rules = Rules(root=tmp_path, check_sources_exist=True)
    found = list(findings({**RECORD, "must_include": ["ab"], "expected_sources": [folder]}, rules))
    assert [remark.code for remark in found] == ["expected_dir_missing"]


def test_the_next_check_looks_at_the_sources_anew(tmp_path: Path) -> None:
    (tmp_path / "cases.jsonl").write_text(
        '{"id": "a", "query": "ab", "expected_sources": ["a.md"], "must_include": ["ab"], "bucket": "ambiguous"}'
    )
    rules = Rules(root=tmp_path, check_sources_exist=True, check_must_include_in_sources=True)
    codes = []
    for text in (None, "nothing", "here is ab"):
        if text is not None:
            (tmp_path / "a.md").write_text(text)
        codes.append([finding.code for finding in check(tmp_path / "cases.jsonl", rules=rules).findings])
    assert codes == [["expected_file_missing"], ["must_include_not_in_expected_sources"], []]


@pytest.mark.req("RAG-7")
def test_what_is_run_may_need_less_than_the_format() -> None:
    bare = {"query": "限速多少？", "bucket": "ambiguous"}
    rules = Rules(required=frozenset({"query"}), unused=frozenset({"must_include"}))
    found = [(one.code, one.severity, one.message.partition(":")[0]) for one in findings(bare, rules)]
    assert found == [("missing_field", "warning", "id"), ("nothing_to_measure", "warning", "expected_sources")]
    assert [one.code for one in findings({**bare, "id": "a", "expected_sources": []}, rules)] == ["nothing_to_measure"]
    assert [one.code for one in findings({**bare, "id": "a", "expected_sources": "a.md"}, rules)] == [
        "bad_expected_sources"
    ]
    assert "missing_field" in [one.code for one in findings({"id": "a"}, rules) if one.severity == "error"]
