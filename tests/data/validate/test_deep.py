"""`--deep`: what it finds, and above all what it keeps quiet about."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalloom import catalog
from evalloom.core.model import Finding, Record
from evalloom.data.dataset import Dataset
from evalloom.data.validate.deep import deep_findings
from evalloom.engine.lint import LintOptions, lint
from evalloom.files.source import source_of

DIALECTS = catalog.load().formats.dialects


def deep(*records: Record, dialect: str = "") -> list[Finding]:
    """The deep findings about a JSONL file of these records."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "cases.jsonl")
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        return list(deep_findings(Dataset(source_of(path), catalog.load().formats, dialect)))


def codes(*records: Record, dialect: str = "") -> list[str]:
    return [finding.code for finding in deep(*records, dialect=dialect)]


def qa(question: str, answer: Any, *tags: str) -> Record:
    return {"variables": {"question": question}, "_expected": {"equals": answer}, "_tags": list(tags)}


def rag(id: str, query: str, pair: str, bucket: str) -> Record:
    sources = {"expected_sources": ["refund.md"], "must_include": ["原路退回"]}
    return {"id": id, "query": query, "pair_id": pair, "bucket": bucket, **sources}


# -- near-duplicates ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (
            "How do I reset my password when the mail never comes?",
            "how do I reset my pasword when the mail never comes",
        ),
        (
            "How can I cancel an order that is on its way already?",
            "Please, how can I cancel an order that is on its way already?",
        ),
        ("订单已经发货三天了还没有物流信息，请问怎么申请退款？", "订单已经发货三天了还没有物流信息，请问如何申请退款"),
        ("会员积分过期之后还能不能恢复，需要联系哪个部门？", "会员积分过期之后还能不能恢复，需要联系哪个部门呢？"),
        ("hi", "Hi!"),
        ("退款", "退款。"),
    ],
)
def test_almost_the_same_case_twice_is_named_with_its_line(one: str, two: str) -> None:
    (finding,) = deep(
        qa(one, "see the help page"), qa("something else entirely", "another answer"), qa(two, "see the help page")
    )
    assert finding.code == "near_duplicate" and finding.severity == "warning"
    assert finding.origin.line == 3
    assert "on line 1 (similarity " in finding.message


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (
            "What is the interest on 1200 dollars after 3 years at 4 percent?",
            "What is the interest on 1200 dollars after 5 years at 4 percent?",
        ),
        (
            "How much open credit does the customer Robert Bowers have now?",
            "How much open credit does the customer Karen Bonilla have now?",
        ),
        (
            "Which of these animals is a mammal that lays eggs in a nest?",
            "Which of these animals is not a mammal that lays eggs in a nest?",
        ),
        ("True and not ( False or True ) and True or False is", "True and ( not False or True ) and True or False is"),
        (
            "从北京出发的高铁商务座可以免费改签一次吗，需要提前多久？",
            "从南京出发的高铁商务座可以免费改签一次吗，需要提前多久？",
        ),
        ("会员等级升到第三级之后可以享受哪些专属的优惠服务？", "会员等级升到第四级之后可以享受哪些专属的优惠服务？"),
    ],
)
def test_cases_that_differ_in_what_matters_are_no_duplicates(one: str, two: str) -> None:
    assert codes(qa(one, "yes"), qa(two, "yes"), qa("Is water wet?", "yes")) == []


def test_similar_inputs_with_different_expectations_are_a_minimal_pair() -> None:
    one, two = "请把这句话翻译成英文：今天的天气真不错啊", "请把这句话翻译成英文：今天的天气真不错"
    assert codes(qa(one, "What a fine day!"), qa(two, "It is a fine day.")) == []


def test_a_shared_prompt_does_not_make_cases_alike() -> None:
    prompt = "You are the assistant of a shop. Answer with one label only. Think before you answer, and never invent."
    chats = [
        {"input": [{"role": "system", "content": prompt}, {"role": "user", "content": question}], "ideal": "refund"}
        for question in ("my parcel is broken", "where is my money", "东西坏了能退吗")
    ]
    assert codes(*chats) == []


def test_the_two_wordings_of_a_pair_are_no_duplicates_and_a_third_case_is() -> None:
    official, oral = "请问怎么办理七天无理由退货退款手续", "请问怎么办理七天无理由退货退款手续呀"
    assert codes(rag("a", official, "p1", "official"), rag("b", oral, "p1", "oral")) == []
    assert codes(rag("a", official, "p1", "official"), rag("b", oral, "p2", "oral")) == ["near_duplicate"]


def test_the_rows_of_a_result_file_are_one_case_run_again() -> None:
    rows = [{"id": 1, "tag": "t", "question": "退款要几天", "hop_result": "{}", "profile": name} for name in ("a", "b")]
    assert codes(*rows) == []


def test_what_a_pipeline_case_is_given_besides_its_inputs_tells_cases_apart() -> None:
    cases = [
        {"id": name, "inputs": {"text": "summarise these reviews"}, "batch_items": [{"review": name}]} for name in "ab"
    ]
    assert codes(*cases) == []
    assert codes(cases[0], {**cases[0], "id": "c"}) == ["near_duplicate"]


# -- contradictions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (qa("Is a tomato a fruit?", "yes"), qa("is a tomato a  fruit", "no")),
        (qa("番茄是水果吗？", "是"), qa("番茄是水果吗", "不是")),
        ({"input": "1 + 1", "ideal": ["2", "two"]}, {"input": "1 + 1", "ideal": "3"}),
        (
            {"q": "退款", "_expected": {"mustContain": ["七天"]}},
            {"q": "退款", "_expected": {"mustNotContain": ["七天"]}},
        ),
        (
            {"id": "a", "inputs": {"n": 1}, "expected_outputs": {"x": {"y": 1}}},
            {"id": "b", "inputs": {"n": 1.0}, "expected_outputs": {"x": {"y": 2}}},
        ),
    ],
)
def test_the_same_input_with_contradicting_expectations(one: Record, two: Record) -> None:
    (finding,) = deep(one, two)
    assert finding.code == "contradicting_expectations"
    assert "on line 1, but " in finding.message


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (qa("What is 3 + 4?", "7"), qa("What is 3 - 4?", "-1")),
        (qa("3 * (4 + 5) 等于几", "27"), qa("(3 * 4) + 5 等于几", "17")),
        ({"input": "1 + 1", "ideal": ["2", "two"]}, {"input": "1 + 1", "ideal": "two"}),
        ({"q": "退款", "_expected": {"mustContain": ["七天"]}}, {"q": "退款", "_expected": {"mustContain": ["原路"]}}),
        (qa("Capital of France?", "Paris"), {**qa("Capital of France?", "Paris"), "_expected": {"regex": "P.+"}}),
        (
            {"id": "a", "inputs": {"n": 1}, "expected_outputs": {"x": 1}},
            {"id": "b", "inputs": {"n": 1}, "expected_outputs": {"x": 1.0, "z": 2}},
        ),
    ],
)
def test_expectations_that_one_answer_can_meet_do_not_contradict(one: Record, two: Record) -> None:
    assert "contradicting_expectations" not in codes(one, two)


# -- leaks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        qa("What is the capital of Australia? Hint: the answer is Canberra.", "Canberra"),
        qa("世界上最高的山峰是哪一座？（提示：答案是珠穆朗玛峰）", "珠穆朗玛峰"),
        qa(
            "How does the famous novel about a Russian lady begin? I think: all happy families are alike in the end.",
            "all happy families are alike",
        ),
        {"query": "如何在退货之后申请退款？", "_expected": {"mustContain": ["退款"]}},
    ],
)
def test_an_answer_that_the_input_gives_away(case: Record) -> None:
    (finding,) = deep(case, dialect="replay")
    assert finding.code == "answer_in_input"
    assert "is in the input que" in finding.message


@pytest.mark.parametrize(
    "case",
    [
        qa("Which one is a fruit?\nA) the answer\nB) brick\nC) apple", "apple"),
        qa("Is the correct label of this mail positive, negative or neutral?", "negative"),
        qa("这条评论的正确分类是好评、差评还是中评？", "差评"),
        qa("The answer is 42 or so. How many is it?", "42"),
        qa("Where will Sally look? The ball was moved to the basket.", "basket"),
        qa("Repeat the words: the quick brown fox jumps", "the quick brown fox"),
        {
            "variables": {"context": "标准答案是七天无理由退货", "question": "退货期限是多久"},
            "_expected": {"equals": "七天无理由退货"},
        },
        {"variables": {"question": "怎样退货"}, "_expected": {"mustContain": ["退货", "七天之内"]}},
        {"variables": {"question": "哪种退款方式最快？退款要几天？"}, "_expected": {"mustNotContain": ["退款"]}},
    ],
)
def test_an_answer_that_belongs_in_the_input_is_no_leak(case: Record) -> None:
    assert codes(case) == []


def test_a_file_where_answers_are_read_from_the_input_is_a_reading_task() -> None:
    story = "Anna put the {} into the box. The answer is the {}: what is in the box now?"
    assert codes(*(qa(story.format(thing, thing), thing) for thing in ("apple", "spoon", "letter", "candle"))) == []


# -- tags -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("common", "once"),
    [
        ("refund", "refnud"),
        ("Billing", "billing"),
        ("time_limit", "time limit"),
        ("多轮对话", "多轮对活话"),
        ("售后服务类", "售后服物类"),
    ],
)
def test_a_tag_that_looks_like_a_slip(common: str, once: str) -> None:
    cases = [qa(f"question {number}", str(number), common) for number in range(3)]
    (finding,) = deep(*cases, qa("question 3", "3", once))
    assert finding.code == "tag_typo" and finding.origin.line == 4
    assert repr(once) in finding.message and repr(common) in finding.message


@pytest.mark.parametrize(
    ("common", "once"),
    [
        *[("batch_1", "batch_2"), ("level_a", "level_b"), ("answerable", "unanswerable"), ("test", "text")],
        *[
            ("internal", "external"),
            ("en", "fr"),
            ("国内订单问题", "国外订单问题"),
            ("退款", "退货"),
            ("refund", "shipping"),
        ],
    ],
)
def test_a_tag_that_is_another_one_is_no_slip(common: str, once: str) -> None:
    cases = [qa(f"question {number}", str(number), common) for number in range(3)]
    assert codes(*cases, qa("question 3", "3", once)) == []


# -- checks that cannot fail ----------------------------------------------------------------------


def pipeline(expected: Any, **config: Any) -> Record:
    return {"id": "a", "inputs": {"text": "你好"}, "expected_outputs": {"x": expected}, "evaluation_config": config}


@pytest.mark.parametrize(
    "case",
    [
        *[{"q": "1", "_expected": {"regex": pattern}} for pattern in (".*", "(答案)?", r"[\s\S]*", "a*|b")],
        {"q": "1", "_expected": {"mustContain": ["", ""]}},
        {"q": "1", "_expected": {"jsonSchema": {"title": "anything"}}},
        {"vars": {"q": "1"}, "assert": [{"type": "icontains", "value": ""}]},
        {"vars": {"q": "1"}, "assert": [{"type": "javascript", "value": "return true;"}]},
        *[pipeline({}), pipeline("contains:"), pipeline("regex:.*"), pipeline(0.5, tolerance=2)],
        *[pipeline({"id": 7}, ignore_fields=["id"]), pipeline("通过", evaluate_final=False)],
    ],
)
def test_a_check_that_cannot_fail(case: Record) -> None:
    assert codes(case) == ["check_cannot_fail"]


@pytest.mark.parametrize(
    "case",
    [
        {"q": "no expectation at all"},
        {
            "test_id": "TC001",
            "test_category": "boundary",
            "test_subcategory": "",
            "eval_type": "quantitative",
            "test_description": "空输入",
            "input": {"q": "x"},
        },
        *[{"q": "1", "_expected": {"regex": pattern}} for pattern in ("^$", r"^\s*$", ".+", "答案|answer")],
        {"q": "1", "_expected": {"mustContain": ["七天", ""]}},
        {"q": "1", "_expected": {"jsonSchema": {"type": "object"}}},
        *[pipeline({}, strict_mode=True), pipeline([]), pipeline(4.5, tolerance=0.5), pipeline(0, tolerance=0.1)],
        *[pipeline({"id": 7, "ok": True}, ignore_fields=["id"]), {"id": "a", "inputs": {"text": "x"}}],
    ],
)
def test_a_check_that_can_fail(case: Record) -> None:
    assert codes(case) == []


# -- the command's door ---------------------------------------------------------------------------


def test_findings_are_warnings_counted_exactly_and_listed_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text('{"q": "the very same question", "_expected": {"regex": "x"}}\n' * 1_200, encoding="utf-8")
    (checked,) = lint([str(path)], catalog.load(), LintOptions(deep=True)).checked
    assert checked.counts == {("near_duplicate", "warning"): 1_199}
    assert len(checked.findings) == 1_000
    assert lint([str(path)], catalog.load()).checked[0].findings == []


def test_deep_checks_need_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"q": "1", "_expected": {"regex": ".*"}}\n')))
    (checked,) = lint(["-"], catalog.load(), LintOptions(deep=True)).checked
    assert [(finding.code, finding.severity) for finding in checked.findings] == [("deep_needs_file", "info")]


def test_records_with_errors_are_left_to_the_errors() -> None:
    assert (
        codes({"id": "a", "inputs": 7}, {"id": "a", "inputs": 7}, {"id": "a", "tags": [None]}, dialect="pipeline") == []
    )


_scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=30)
)
_json = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_fields = st.sampled_from(
    [
        *("id", "tag", "tags", "_tags", "input", "inputs", "vars", "variables", "query", "user_input", "choices"),
        *("ideal", "target", "assert", "_expected", "expected", "expected_output", "expected_outputs", "reference"),
        *("must_include", "expected_sources", "evaluation_config", "batch_items", "test_id", "test_category"),
    ]
)


@settings(max_examples=min(60, settings().max_examples))
@given(st.lists(st.dictionaries(_fields | st.text(max_size=5), _json, max_size=6), max_size=6))
def test_no_record_makes_it_raise(records: list[Record]) -> None:
    for dialect in ("", *(dialect.name for dialect in DIALECTS)):
        assert all(finding.severity == "warning" for finding in deep(*records, *records[:1], dialect=dialect))
