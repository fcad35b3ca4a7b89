"""YAML rows: plain data by the rules of YAML 1.2, under our limits, each value at its place."""

import re
from itertools import pairwise
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from evalloom.files.jsontext import MAX_DEPTH
from evalloom.files.rows import Problem, Row
from evalloom.files.yaml_rows import YamlReader

words = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=6)
# PyYAML writes these without quotes, and YAML 1.2 reads them as numbers.
words = words.filter(lambda word: not re.fullmatch(r"[-+]?\d+[eE][-+]?\d+|0o[0-7]+", word))
leaves = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | words
values: st.SearchStrategy[Any] = st.recursive(
    leaves, lambda more: st.lists(more, max_size=3) | st.dictionaries(words, more, max_size=3)
)


def read(text: str | bytes) -> tuple[list[Row], list[Problem], int]:
    reader = YamlReader([text.encode() if isinstance(text, str) else text])
    items = list(reader)
    rows = [item for item in items if isinstance(item, Row)]
    return rows, [item for item in items if isinstance(item, Problem)], reader.lines


def values_of(text: str) -> list[Any]:
    rows, problems, _ = read(text)
    assert problems == []
    return [row.value for row in rows]


@given(st.lists(st.dictionaries(words, values, max_size=3), max_size=4), st.booleans())
def test_what_yaml_writes_is_read(items: list[dict[str, Any]], flow: bool) -> None:
    text = yaml.safe_dump(items, default_flow_style=flow, allow_unicode=True)
    assert values_of(text) == items


@pytest.mark.parametrize(
    ("word", "value"),
    [
        *[("no", "no"), ("on", "on"), ("2024-01-01", "2024-01-01"), ("12:30:45", "12:30:45"), ("1_000", "1_000")],
        *[("true", True), ("FALSE", False), ("~", None), ("", None), ("0o17", 15), ("0x1F", 31), ("+3", 3)],
        *[("'1'", "1"), ("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("007", 7), ("!!str 5", "5"), ("!!int '5'", 5)],
        *[("18446744073709551615", 2**64 - 1), ("18446744073709551616", "18446744073709551616")],
        *[("0xFFFFFFFFFFFFFFFFFF", "0xFFFFFFFFFFFFFFFFFF"), ("9" * 5000, "9" * 5000), ("!!null ~", None)],
    ],
)
def test_words_are_read_by_yaml_1_2(word: str, value: object) -> None:
    (row,) = values_of(f"- a: {word}\n")
    assert row == {"a": value} and type(row["a"]) is type(value)


@pytest.mark.parametrize(
    ("broken", "code", "column"),
    [
        (".nan", "yaml_parse_error", 6),
        ("-.inf", "yaml_parse_error", 6),
        ("1e400", "number_loses_precision", 6),
        ("0.1234567890123456789", "number_loses_precision", 6),
        ("!!bool yes", "yaml_parse_error", 6),
        ("!!binary aGk=", "yaml_parse_error", 6),
        ("!!python/object/apply:os.system [ls]", "yaml_parse_error", 6),
        ("*nowhere", "yaml_parse_error", 6),
        ("{? [x] : y}", "yaml_parse_error", 9),
        ("{<<: 3}", "yaml_parse_error", 7),
    ],
)
def test_record_with_what_is_no_plain_data_loses_only_itself(broken: str, code: str, column: int) -> None:
    rows, problems, lines = read(f"- a: 1\n- a: {broken}\n- a: 3\n")
    assert [(row.value["a"], row.line, row.column) for row in rows] == [(1, 1, 3), (3, 3, 3)]
    assert [(problem.code, problem.place) for problem in problems] == [(code, (2, column))]
    assert lines == 3


def test_rows_before_an_error_are_read() -> None:
    rows, (problem,), _ = read("- a: 1\n- a: 2\n- [\n")
    assert [row.value["a"] for row in rows] == [1, 2]
    assert (problem.code, problem.place.line) == ("yaml_parse_error", 4)


@pytest.mark.parametrize(("text", "place"), [("a: 1\nb: x\x01y\n", (2, 5)), ("- ok\n- \x1b[31m\n", (2, 3))])
def test_control_character_is_named_at_its_place(text: str, place: tuple[int, int]) -> None:
    _, (problem,), _ = read(text)
    assert (problem.code, problem.place) == ("yaml_parse_error", place)
    assert problem.message.isprintable()


def test_bytes_that_are_no_text_are_named_at_their_place() -> None:
    rows, (problem,), _ = read(b"- a\n- \xe4\xb8\n")
    assert (rows, problem.code, problem.place) == ([], "not_utf8", (2, 3))


def test_keys_written_twice_are_a_warning_beside_their_row() -> None:
    rows, (problem,), _ = read("- {a: 1, a: 2}\n- b\n")
    assert [row.value for row in rows] == [{"a": 2}, "b"]
    assert (problem.code, problem.severity, problem.place) == ("duplicate_key", "warning", (1, 10))


def test_reader_may_be_left_before_its_end(recwarn: pytest.WarningsRecorder) -> None:
    items = iter(YamlReader([b"- {a: 1, a: 2}\n- {b: 1, b: 2}\n"]))
    next(items)
    items.close()  # type: ignore[attr-defined]
    assert not recwarn


def test_anchors_merges_and_places() -> None:
    first, second = read("- &a {x: 1, y: {z: 2}}\n- <<: [*a, {x: 5, w: 6}]\n  q: *a\n")[0]
    assert second.value == {"x": 1, "y": {"z": 2}, "w": 6, "q": first.value}
    assert [second.place_of(path) for path in (("q",), ("q", "y", "z"), ("no",))] == [(1, 3), (1, 20), (2, 3)]


@pytest.mark.parametrize(("opener", "closer"), [("[", "]"), ("{a: ", "}")])
def test_depth_has_the_limit_of_json(opener: str, closer: str) -> None:
    fits = opener * MAX_DEPTH + "1" + closer * MAX_DEPTH
    assert len(values_of(f"- {fits}")) == 1
    assert [problem.code for problem in read(f"- {opener}{fits}{closer}")[1]] == ["nesting_too_deep"]


def test_chain_of_aliases_is_as_deep_as_it_would_be_written_out() -> None:
    chain = "".join(f"- &a{number} [{f'*a{number - 1}' if number else 'x'}]\n" for number in range(1000))
    rows, (problem,), _ = read(chain)
    assert len(rows) == MAX_DEPTH
    assert (problem.code, problem.place.line) == ("nesting_too_deep", MAX_DEPTH + 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{now}: &{now} [{', '.join([f'*{before}'] * 10)}]\n" for before, now in pairwise("abcdefghi")),
        "- &a [" + "x, " * 3000 + "]\n- [" + "[" * 240 + "*a, " * 400 + "]" * 240 + "]\n",
    ],
    ids=["billion laughs", "wide and deep"],
)
def test_few_aliases_cannot_stand_for_billions_of_values(text: str) -> None:
    assert [problem.code for problem in read(text)[1]] == ["file_too_large"]


def test_value_inside_itself_is_refused() -> None:
    rows, problems, _ = read("- &a [*a]\n- &b {b: *b}\n- c\n")
    assert [row.value for row in rows] == ["c"]
    assert [problem.place for problem in problems] == [(1, 7), (2, 10)]


def test_documents_are_rows_and_empty_ones_none() -> None:
    rows, problems, lines = read("---\na: 1\n---\n---\n- b: 2\n- c: 3\n...\n")
    assert [(row.value, row.line, row.column) for row in rows] == [({"a": 1}, 2, 1), ({"b": 2}, 5, 3), ({"c": 3}, 6, 3)]
    assert (problems, lines) == ([], 7)


CODES = ("not_utf8", "wrong_encoding", "yaml_parse_error", "duplicate_key", "number_loses_precision")


@given(st.binary(max_size=60) | st.text("-[]{}:&*a,\n \"'!|>?%@#", max_size=40).map(str.encode))
def test_any_bytes_are_rows_or_problems(data: bytes) -> None:
    for problem in read(data)[1]:
        assert problem.code in CODES
        assert problem.message.isprintable()


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 100_000, "? " * 100_000, "&a " * 50_000])
def test_deep_nesting_ends_at_the_limit(text: str) -> None:
    assert read(text)[1][-1].code in ("nesting_too_deep", "yaml_parse_error")
