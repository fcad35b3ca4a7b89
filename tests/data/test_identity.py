"""How a case is identified: by its id, a unique description, or its content; never by its position."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import evalloom
from evalloom.core.model import Case
from evalloom.data.dataset import Dataset
from evalloom.data.validate import validate

pytestmark = pytest.mark.req("WORK-6")

Written = dict[str, Any]
"""A test as promptfoo writes it."""


def read(folder: Path, tests: list[Written]) -> Dataset:
    """Open a promptfoo config with these tests."""
    file = folder / "promptfooconfig.json"
    file.write_text(json.dumps({"prompts": ["p"], "tests": tests}))
    return evalloom.read(file)


def ids(folder: Path, tests: list[Written]) -> list[str]:
    return ids_of(read(folder, tests))


def ids_of(dataset: Dataset) -> list[str]:
    return [case.id for case in dataset.cases() if isinstance(case, Case)]


def a_test(question: str, expected: str = "yes", **more: Any) -> Written:
    return {"vars": {"question": question}, "assert": [{"type": "contains", "value": expected}], **more}


def test_an_id_comes_before_a_description_and_a_description_before_the_content(tmp_path: Path) -> None:
    tests = [a_test("a", id="first", description="the first"), a_test("b", description=" the\n second"), a_test("c")]
    first, second, third = ids(tmp_path, tests)
    assert (first, second) == ("first", "the second")
    assert len(third) == 12 and int(third, 16)


def test_a_description_that_is_not_unique_identifies_nothing(tmp_path: Path) -> None:
    once, again = ids(tmp_path, [a_test("a", description="the same"), a_test("b", description="the same")])
    assert once != again and "the same" not in (once, again)


def test_a_description_that_is_the_id_of_another_case_identifies_nothing(tmp_path: Path) -> None:
    first, second = ids(tmp_path, [a_test("a", description="x"), a_test("b", id="x", description="y")])
    assert (len(first), second) == (12, "x")


def test_cases_with_the_same_inputs_are_told_apart_by_their_checks(tmp_path: Path) -> None:
    tests = [a_test("a", "yes"), a_test("a", "no"), a_test("b")]
    yes, no, other = ids(tmp_path, tests)
    assert yes[:12] == no[:12] and yes != no
    assert ids(tmp_path, tests[::-1]) == [other, no, yes]


def test_equal_cases_are_told_apart_by_their_order(tmp_path: Path) -> None:
    dataset = read(tmp_path, [a_test("a"), a_test("b"), a_test("a"), a_test("a")])
    first, _, second, third = ids_of(dataset)
    assert (second, third) == (f"{first}#2", f"{first}#3")
    assert dataset.names.equal_cases == 2


def test_ids_that_a_scenario_repeats_identify_nothing(tmp_path: Path) -> None:
    found = ids(tmp_path, [{**a_test("a"), "id": "greet", "vars": {"question": ["a", "b"]}}])
    assert len(set(found)) == 2 and "greet" not in found


def test_rows_that_have_numbers_keep_them(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"question": "b", "description": "x"}\n{"question": "a", "description": "y"}\n')
    assert ids_of(evalloom.read(file)) == ["1", "2"]
    file.write_text('{"input": {"q": "a"}, "result": {"x": 1}}\n{"input": {"q": "b"}, "result": {"x": 1}}\n')
    assert ids_of(evalloom.read(file)) == ["1", "2"]


def test_every_reader_of_a_file_has_the_same_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    expected = ids(tmp_path, [a_test("a", description="one"), a_test("b"), a_test("b")])
    results = evalloom.evaluate("promptfooconfig.json", lambda question: question, warn=lambda message: None)
    assert sorted(run.case_id for run, _ in results) == sorted(expected)
    chosen = evalloom.evaluate(
        "promptfooconfig.json", lambda question: question, filter="id == 'one'", warn=lambda message: None
    )
    assert [run.case_id for run, _ in chosen] == ["one"]


def test_cases_from_python_are_identified_in_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cases = [{"q": "a", "expected": "A"}, {"q": "b", "expected": "B", "description": "the second"}]
    once = evalloom.evaluate(cases, lambda q: q.upper())
    again = evalloom.evaluate([{"q": "new", "expected": "NEW"}, *cases], lambda q: q.upper())
    assert {run.case_id for run, _ in once} < {run.case_id for run, _ in again}
    assert "the second" in {run.case_id for run, _ in once}


# -- laws ------------------------------------------------------------------------------------------

QUESTIONS = st.lists(st.text("abcé 中", max_size=4), unique=True, min_size=1, max_size=8)
DESCRIPTIONS = st.lists(st.sampled_from(["", "one", "two", "three"]), min_size=8, max_size=8)


def written(questions: list[str], descriptions: list[str]) -> list[Written]:
    """Tests without equals: each has inputs of its own."""
    pairs = zip(questions, descriptions, strict=False)
    return [a_test(question, **({"description": text} if text else {})) for question, text in pairs]


@given(QUESTIONS, DESCRIPTIONS, st.randoms())
def test_order_changes_no_identity(questions: list[str], descriptions: list[str], random: Any) -> None:
    tests = written(questions, descriptions)
    order = random.sample(range(len(tests)), len(tests))
    with TemporaryDirectory() as folder:
        before = ids(Path(folder), tests)
        assert ids(Path(folder), [tests[index] for index in order]) == [before[index] for index in order]
    assert len(set(before)) == len(before)


@given(QUESTIONS, DESCRIPTIONS, st.data())
def test_a_case_that_is_added_or_edited_changes_no_other(
    questions: list[str], descriptions: list[str], data: Any
) -> None:
    tests = written(questions, descriptions)
    index = data.draw(st.integers(0, len(tests) - 1))
    edited = a_test("another question", description="another description")
    with TemporaryDirectory() as folder:
        before = ids(Path(folder), tests)
        added = ids(Path(folder), [*tests[:index], edited, *tests[index:]])
        # A description that two cases share identifies neither, so the edited one has none.
        plain = [{**test, "description": ""} for test in tests]
        unedited = ids(Path(folder), plain)
        after = ids(Path(folder), [*plain[:index], edited, *plain[index + 1 :]])
    assert added == [*before[:index], "another description", *before[index:]]
    assert after == [*unedited[:index], "another description", *unedited[index + 1 :]]


SOME_TESTS = st.lists(
    st.builds(
        a_test,
        st.sampled_from("ab"),
        st.sampled_from("yn"),
        id=st.sampled_from(["", "a", "b"]),
        description=st.sampled_from(["", "a", "the b"]),
    ),
    min_size=1,
    max_size=6,
)


@given(SOME_TESTS)
def test_a_linter_that_has_read_the_file_gives_its_cases_the_same_ids(tests: list[Written]) -> None:
    with TemporaryDirectory() as folder:
        dataset = read(Path(folder), tests)
        validate(dataset)
        named = ids_of(Dataset(dataset.source, dataset.formats, names=dataset.names))
        assert named == ids(Path(folder), tests)
        assert len(set(named)) == len(tests)
