"""RAG eval cases as a dialect; the findings one by one are in tests/tools/test_validate_eval_cases.py."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom import Rules, check
from evalloom.core.model import Case, Check, Origin, Output
from evalloom.core.ranking import rank
from evalloom.matchers import by_kind
from evalloom.matchers.base import MatchContext
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
    anchors = Check("contains_all", ["5 公里"], options={"whole_numbers": True})
    assert case.checks == (Check("source_hit", ["docs/a.md", "docs/"], "sources"), anchors)
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
    assert [remark.code for remark in found if remark.severity == "error"] == ["expected_dir_missing"]


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


@pytest.mark.req("RAG-3")
@pytest.mark.parametrize(("source", "codes"), [("docs\\l.md", ["path_separator"]), ("docs/l.md#L3", [])])
def test_the_linter_reads_a_source_as_the_runner_does(source: str, codes: list[str], tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/l.md").write_text("限速 5 公里")
    record = {**RECORD, "expected_sources": [source], "must_include": ["5 公里"]}
    rules = Rules(root=tmp_path, check_sources_exist=True, check_must_include_in_sources=True)
    assert [remark.code for remark in findings(record, rules) if remark.severity == "warning"] == codes
    assert [remark for remark in findings(record, rules) if remark.severity == "error"] == []
    assert rank([source], ["docs/l.md"]).hit(1) == 1


@pytest.mark.req("RAG-8")
@given(st.text(alphabet="38.,个 天8", max_size=12), st.text(alphabet="38.,个天", min_size=2, max_size=4))
def test_the_linter_and_the_runner_agree_on_every_anchor(text: str, anchor: str) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "a.md").write_text(text, encoding="utf-8")
        record = {**RECORD, "expected_sources": ["a.md"], "must_include": [anchor]}
        remarks = findings(record, Rules(root=Path(folder), check_must_include_in_sources=True))
        is_accepted = not [remark for remark in remarks if remark.code.startswith("must_include")]
    case = DIALECT.to_case(record, Origin("cases.jsonl"))
    matcher = by_kind(case.checks[1].kind)
    assert matcher is not None and matcher.grade is not None
    result = matcher.grade(case.checks[1], MatchContext(text, Output(text), case))
    assert result is not None and result.passed is is_accepted
