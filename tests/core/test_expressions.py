"""Expressions: what they come to, what is refused and where, and that nothing gets out of them."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.expressions import MAX_LENGTH, MAX_NESTING, MAX_TEXT, ExpressionError, compile

CASE = {
    "id": 7,
    "text": "退款要多久 in days",
    "tags": ["safety", "zh"],
    "meta": {"difficulty": "hard", "score": 0.5, "a-b": True, "nested": {"deep": [10, 20]}},
    "nothing": None,
    "语言": "zh",
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("id", 7),
        ("meta.difficulty", "hard"),
        ("meta['a-b']", True),
        ("meta.nested.deep[1]", 20),
        ("tags[-1]", "zh"),
        ("语言", "zh"),
        ("[id, 'x', null]", [7, "x", None]),
        ("1 + 2 * 3 - 4 / 2 % 3", 5.0),
        ("-(1 + 2) * 2", -6),
        ("10 - 3 - 2", 5),
        ("'a' + \"b\"", "ab"),
        (r"'it\'s' + '\n'", "it's\n"),
        ("meta.language or 'en'", "en"),
        ("id and 0", 0),
        ("1.5e2", 150.0),
    ],
)
def test_value(text: str, value: Any) -> None:
    assert compile(text).value(CASE) == value


@pytest.mark.parametrize(
    "text",
    [
        'meta.difficulty == "hard" and id > 5',
        "1 < id <= 7 != 8",
        "not 1 < id < 5",
        "'safety' in tags and 'en' not in tags",
        "'款' in text and 'difficulty' in meta",
        "id in [1, 7]",
        "1 == 1.0 and true != 1 and not (1 == True)",
        "[1] == [1.0] and [true] != [1] and [[0]] != [[false]] and [true] not in [[1]]",
        "meta == meta and tags in [tags]",
        "false or null == None",
        "not id == 8",
        "not not tags",
        "exists(meta.score) and not exists(meta.language) and not exists(nothing)",
        "len(tags) == 2 and len(text) == 13 and len(meta) == 4",
        "lower('ÀB') == 'àb' and upper('ab') == 'AB'",
        "abs(-2) == 2 and round(2.567, 1) == 2.6 and round(2.4) == 2",
        "min(3, 1, 2) == 1 and max([3, 1, 2]) == 3 and max('a', 'b') == 'b'",
        "contains(tags, 'zh') and contains(text, '多久') and starts_with(text, '退') and ends_with(text, 'days')",
        r"matches(text, '\bin\s+d') and not matches(text, '^in')",
    ],
)
def test_holds(text: str) -> None:
    assert compile(text).holds(CASE) is True


@pytest.mark.parametrize(
    "text",
    [
        "missing",
        "missing.field[0].more",
        "id.field",
        "tags.first",
        "tags[9]",
        "tags['0']",
        "tags[true]",
        "meta[0]",
        "1 / 0",
        "5 % 0",
        "1e308 * 10",
        "id + 'a'",
        "'a' * 1000000000",
        "tags + tags",
        "-tags",
        "true + true",
        "len(5)",
        "lower(5)",
        "abs('a')",
        "max(1, 'a')",
        "min([])",
        "round('a')",
        "round(1, 99999999999)",
    ],
)
def test_what_has_no_value_is_null(text: str) -> None:
    assert compile(text).value(CASE) is None


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["^(a|a)+$", "(a|aa)+$"])
def test_a_search_without_end_has_no_value(pattern: str) -> None:
    expression = compile(f"matches(text, '{pattern}')")
    assert expression.value({"text": "a" * 42 + "!"}) is None
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(expression.value, {"text": "a" * 42 + "!"}).result() is None
    assert expression.value({"text": "a" * 80}) is True


@pytest.mark.parametrize("text", ["'a' < 1", "1 > 'a'", "null < 1", "tags < tags", "true < 2", "1 in 'a1'", "1 in 5"])
def test_unlike_things_compare_as_false(text: str) -> None:
    assert compile(text).value(CASE) is False


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "expected a value, got the end"),
        ("a = 1", 3, "write '==' in place of '='"),
        ("a && b", 3, "write 'and' in place of '&&'"),
        ("a b", 3, "expected an operator such as == or and, got 'b'"),
        ("(a", 3, "expected ')', got the end"),
        ("a == 'b", 6, "this string does not end"),
        ("lenn(a)", 1, "there is no function 'lenn'. Did you mean 'len'?"),
        ("a and len()", 7, "len(…): expected 1 between the brackets, got 0"),
        ("min()", 1, "min(…): expected 1 or more between the brackets, got 0"),
        ("matches(a, b)", 12, "expected a regular expression in quotes as second value"),
        ("matches(a, '(')", 12, "is not a regular expression: missing ), unterminated subpattern at position 0"),
        ("a + 1e999", 5, "the number is too large"),
    ],
)
def test_refusals_say_where_and_why(text: str, column: int, message: str) -> None:
    with pytest.raises(ExpressionError) as refusal:
        compile(text)
    assert (refusal.value.column, refusal.value.message) == (column, message)
    assert str(refusal.value) == f"column {column}: {message}"


@pytest.mark.parametrize(
    "text",
    [
        "().__class__",
        "__import__('os')",
        "lambda: 1",
        "[x for x in tags]",
        "{x: 1}",
        "f'{id}'",
        "(a := 1)",
        "2 ** 1000000000",
        "a if b else c",
        "tags[0:1]",
        "text.upper()",
        "eval('1')",
        "len.__self__('a')",
        "*tags",
        "a; b",
        "a\\b",
        "`id`",
        "matches(a, '" + "a" * 201 + "')",
        "(" * (MAX_NESTING + 1) + "1" + ")" * (MAX_NESTING + 1),
        "not " * (MAX_NESTING + 1) + "1",
        "-" * (MAX_NESTING + 1) + "1",
        "1 " * MAX_LENGTH,
    ],
)
def test_there_is_no_way_out(text: str) -> None:
    with pytest.raises(ExpressionError):
        compile(text)


@pytest.mark.parametrize("text", ["meta.__class__", "text.__class__.__mro__", "tags['__class__']", "meta.get"])
def test_only_what_is_in_the_data_is_reached(text: str) -> None:
    assert compile(text).value(CASE) is None


def test_long_and_deep_expressions_within_the_bounds_work() -> None:
    assert compile("+".join(["1"] * 1000)).value({}) == 1000
    assert compile(" or ".join(["a"] * 300)).value({}) is None
    assert compile("a" + ".a" * 900).value({"a": {}}) is None
    assert compile("(" * MAX_NESTING + "1" + ")" * MAX_NESTING).value({}) == 1
    assert compile("9" * 900 + "*" + "9" * 900).value({}) == int("9" * 900) ** 2
    assert compile("text + text").value({"text": "a" * MAX_TEXT}) is None


def test_names_are_the_variables_that_are_asked_for() -> None:
    expression = compile("meta.difficulty == 'hard' and len(tags[index]) > 0 or not true")
    assert expression.names == {"meta", "tags", "index"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
SIGNS = ("+", "-", "*", "/", "%", "<", ">=", "==", "!=", "in", "not in", "and", "or")
ONE = ("-{}", "not {}", "len({})", "lower({})", "abs({})", "max({})", "round({})", "exists({})", "matches({}, 'a+')")
TWO = ("[{}, {}]", "({})[{}]", "min({}, {})", "round({}, {})", "contains({}, {})", "starts_with({}, {})")
LEAVES = ("a", "b.c", "c[0]", "0", "-1", "2.5", "1e308", "99999999999999999999999", "'a'", "''", "true", "null", "[]")


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    forms = st.sampled_from([f"({{}}) {sign} ({{}})" for sign in SIGNS] + [*ONE, *TWO])
    return st.builds(lambda form, left, right: form.format(f"({left})", right), forms, inner, inner)


EXPRESSIONS = st.recursive(st.sampled_from(LEAVES), larger, max_leaves=12)


@given(st.text(max_size=40) | st.lists(st.sampled_from([*LEAVES, *SIGNS, *"()[].,=\x00é'"])).map(" ".join))
def test_any_text_is_compiled_or_refused(text: str) -> None:
    try:
        compile(text)
    except ExpressionError as refusal:
        assert 1 <= refusal.column <= max(len(text), MAX_LENGTH) + 1


@given(EXPRESSIONS, st.dictionaries(st.sampled_from("abc"), JSON))
def test_evaluating_never_raises(text: str, names: dict[str, Any]) -> None:
    expression = compile(text)
    expression.value(names)
    assert expression.holds(names) in (True, False)
    assert expression.names <= set("abc")
