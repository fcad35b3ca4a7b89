"""Expressions, templates, gates and patterns: they end, they agree with a simple oracle, or they say what is wrong."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import assume
from hypothesis import strategies as st
from tests.fuzz.conftest import JSON, TEXTS, fuzz, mutations, nested

from evalloom.analysis import gates
from evalloom.core import patterns
from evalloom.core.errors import CallError, EvalloomError
from evalloom.core.expressions import ExpressionError, compile
from evalloom.core.model import Output
from evalloom.matchers.where import find
from evalloom.replay.recipe.parse import RecipeError, read_recipe
from evalloom.targets.template import Template, compile_json

NAMES = {"id": 7, "text": "in days", "tags": ["zh", 1], "meta": {"a": {"b": [10, True]}}, "deep": nested(1, 150)}
TOKENS = st.sampled_from(
    [
        *("id", "text", "tags", "meta", "deep", "missing", "and", "or", "not", "in", "not in", "true", "null", "None"),
        *(
            "(",
            ")",
            "[",
            "]",
            ",",
            ".",
            "==",
            "!=",
            "<",
            "<=",
            ">",
            ">=",
            "+",
            "-",
            "*",
            "/",
            "%",
            "**",
            "=",
            "&&",
            "!",
        ),
        *(
            "0",
            "1",
            "2.5",
            "1e308",
            "9" * 400,
            '"a"',
            "'b",
            "'\\n'",
            "len(",
            "lower(",
            "max(",
            "min(",
            "round(",
            "abs(",
        ),
        *(
            "contains(",
            "matches(",
            "exists(",
            "starts_with(",
            "'(a|a)+$')",
            "__class__",
            "lambda",
            "语言",
            "\x00",
            "\u2028",
        ),
    ]
)


@fuzz(tokens=st.lists(TOKENS | TEXTS, max_size=14), space=st.sampled_from(["", " ", "\n"]))
def test_any_text_is_an_expression_or_is_refused(tokens: list[str], space: str) -> None:
    text = space.join(tokens)
    try:
        expression = compile(text)
    except ExpressionError as error:
        assert 1 <= error.column <= len(text) + 1 and error.message
        return
    value = expression.value(NAMES)
    assert expression.holds(NAMES) is bool(value)
    assert expression.names <= set(re.findall(r"\w+", text))


@fuzz(names=st.dictionaries(st.sampled_from(sorted(NAMES)), JSON), tokens=st.lists(TOKENS, min_size=1, max_size=8))
def test_any_values_can_be_evaluated(names: dict[str, Any], tokens: list[str]) -> None:
    try:
        expression = compile(" ".join(tokens))
    except ExpressionError:
        return
    expression.value(names)


ARITHMETIC = st.recursive(
    st.integers(0, 50).map(str) | st.sampled_from(["0.5", "1.25", "1e3"]),
    lambda inner: (
        st.tuples(inner, st.sampled_from([" + ", " - ", " * ", " / ", " % "]), inner).map("".join)
        | inner.map("({})".format)
        | inner.map("-{}".format)
    ),
    max_leaves=8,
)
CLAIMS = st.recursive(
    st.lists(ARITHMETIC, min_size=2, max_size=3).flatmap(
        lambda sides: st.sampled_from([" < ", " <= ", " > ", " >= ", " == ", " != "]).map(lambda sign: sign.join(sides))
    ),
    lambda inner: (
        st.tuples(inner, st.sampled_from([" and ", " or "]), inner).map("".join)
        | inner.map("not ({})".format)
        | inner.map("({})".format)
    ),
    max_leaves=4,
)


@fuzz(text=ARITHMETIC | CLAIMS)
def test_numbers_and_claims_are_those_of_python(text: str) -> None:
    try:
        expected = eval(text, {"__builtins__": {}})
    except ArithmeticError:
        assume(False)
    try:
        found = compile(text).value({})
    except ExpressionError as error:
        assert "nesting" in error.message or "characters" in error.message
        return
    assert found == expected and type(found) is type(expected)


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal: true is not 1, wherever it stands."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return bool(left == right)


SMALL = st.recursive(
    st.sampled_from([True, False, 1, 0, 1.0, None, "1", ""]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=4,
)


@fuzz(left=SMALL, right=SMALL, items=st.lists(SMALL, max_size=3))
def test_values_compare_as_json(left: Any, right: Any, items: list[Any]) -> None:
    names = {"a": left, "b": right, "items": items}
    assert compile("a == b").value(names) is same(left, right)
    assert compile("a != b").value(names) is not same(left, right)
    assert compile("a in items").value(names) is any(same(left, item) for item in items)
    order = (type(left) in (int, float) and type(right) in (int, float)) or (type(left) is type(right) is str)
    assert compile("a < b").value(names) is (order and left < right)


# -- templates ----------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *("{{a}}", "{{ b }}", "{{a.x[0]}}", "{{missing}}", "{a}", "{b}", "{missing}", "{{", "}}", "{", "}", "{%", "%}"),
        *(
            "{% if a %}",
            "{%- if b == 1 -%}",
            "{% elif c %}",
            "{% else %}",
            "{% endif %}",
            "{% for x in y %}",
            "{% if %}",
        ),
        *("{{a|upper}}", "{{a['k']}}", "{{a[99999999999]}}", "{{ a", "{{{a}}}", "{{\n}}", '{{"a": 1}}', "text ", "\n"),
    ]
)


@fuzz(pieces=st.lists(PIECES | TEXTS, max_size=8), inputs=st.dictionaries(st.sampled_from(["a", "b", "c"]), JSON))
def test_any_template_renders_or_says_why_not(pieces: list[str], inputs: dict[str, Any]) -> None:
    text = "".join(pieces)
    try:
        rendered = Template(text).render(inputs)
    except (EvalloomError, CallError) as error:
        assert error.code in ("bad_prompt", "missing_variable", "unusable_input") and str(error)
    else:
        assert "{" in text or rendered == text


@fuzz(text=st.text(max_size=30).filter(lambda text: "{" not in text), inputs=st.dictionaries(TEXTS, JSON, max_size=2))
def test_a_text_without_holes_stays_as_it_is(text: str, inputs: dict[str, Any]) -> None:
    assert Template(text).render(inputs) == text
    filled, names = compile_json({"x": [text, 1]}, "t")
    assert filled(inputs) == {"x": [text, 1]} and not names


@fuzz(
    parts=st.lists(st.sampled_from(["a", "b"]) | st.text("xyz ,.\n", max_size=5).map(lambda text: (text,)), max_size=6),
    values=st.tuples(TEXTS | PIECES, TEXTS | PIECES),
)
def test_values_are_put_in_as_they_are(parts: list[Any], values: tuple[str, str]) -> None:
    inputs = dict(zip(("a", "b"), values, strict=True))
    text = "".join(f"{{{{{part}}}}}" if isinstance(part, str) else part[0] for part in parts)
    assert Template(text).render(inputs) == "".join(
        inputs[part] if isinstance(part, str) else part[0] for part in parts
    )


@st.composite
def choices(draw: st.DrawFn, depth: int = 3) -> tuple[str, str]:
    """A template with conditions on p, q and r, which are true, false and true, and its text."""
    text = shown = draw(st.text("xy ", max_size=3))
    if depth and draw(st.booleans()):
        values = {"p": True, "q": False, "r": True}
        words = draw(st.lists(st.sampled_from(sorted(values)), min_size=1, max_size=3))
        bodies = [draw(choices(depth - 1)) for _ in words]
        other = draw(st.none() | choices(depth - 1))
        for number, (word, body) in enumerate(zip(words, bodies, strict=True)):
            text += f"{{% {'elif' if number else 'if'} {word} %}}{body[0]}"
        text += f"{{% else %}}{other[0]}{{% endif %}}" if other else "{% endif %}"
        held = [body[1] for word, body in zip(words, bodies, strict=True) if values[word]]
        shown += held[0] if held else other[1] if other else ""
    end = draw(st.text("xy ", max_size=3))
    return text + end, shown + end


@fuzz(choice=choices())
def test_the_first_branch_that_holds_is_rendered(choice: tuple[str, str]) -> None:
    assert Template(choice[0]).render({"p": True, "q": False, "r": 1}) == choice[1]


STATE: dict[str, Any] = {
    "nodes": [
        {"id": "a", "data": {"label": "A", "type": "system_prompt", "content": "x {{v}}", "variables": ["v"]}},
        {"id": "b", "data": {"label": "B", "type": "user_input", "content": "{{w}}", "variables": ["w"]}},
    ],
    "edges": [{"id": "e", "source": "a", "target": "b"}],
    "variables": [{"id": "1", "name": "v", "type": "static", "value": "V"}],
}
STATE_KEYS = [
    "id",
    "data",
    "content",
    "variables",
    "source",
    "target",
    "name",
    "type",
    "value",
    "nodes",
    "edges",
    "resolver",
]


@fuzz(state=mutations(st.just(STATE), STATE_KEYS, most=4), row=JSON)
def test_a_recipe_is_assembled_or_refused(state: Any, row: Any) -> None:
    try:
        recipe = read_recipe(state)
    except RecipeError as error:
        assert error.errors and all(message for _, message in error.errors)
        return
    if not recipe.needs([row]):
        assembled = recipe.assemble(row)
        assert assembled.status in ("succeeded", "failed")


@fuzz(contents=st.lists(st.text(max_size=12).filter(lambda text: "{" not in text), min_size=1, max_size=3))
def test_a_recipe_without_holes_is_its_texts(contents: list[str]) -> None:
    nodes = [{"id": f"n{number}", "data": {"type": "text", "content": text}} for number, text in enumerate(contents)]
    edges = [{"source": f"n{number}", "target": f"n{number + 1}"} for number in range(len(nodes) - 1)]
    try:
        recipe = read_recipe({"nodes": nodes, "edges": edges, "variables": []})
    except RecipeError:
        assert any("\ud800" <= char <= "\udfff" for text in contents for char in text)
        return
    text = recipe.assemble({}).text
    for content in contents:
        assert content.strip() in text


# -- gates, places, patterns --------------------------------------------------------------------------

GATE = st.lists(
    st.sampled_from(
        [
            *(
                "pass_rate",
                "cost",
                "p95",
                "errors",
                "mean_score",
                "nothing",
                "[",
                "]",
                "tag",
                "profile",
                "=",
                ",",
                ">=",
            ),
            *("<", "==", "0.9", "90%", "1e999", "-1", "x", '"a"', "and", "or", "+", "$5", "%", " "),
        ]
    )
    | TEXTS,
    max_size=8,
).map("".join)


@fuzz(text=GATE)
def test_any_text_is_a_gate_or_is_refused(text: str) -> None:
    try:
        gate = gates.parse(text)
    except EvalloomError as error:
        assert error.code == "bad_gate" and error.exit_code == 2
    else:
        assert gate.text == text.strip()


@fuzz(
    steps=st.lists(
        st.sampled_from(["output", "steps", "sources", "aggregation", ".", "[0]", "[-1]", "['a']", "a", "[", "x"])
        | TEXTS,
        max_size=5,
    ),
    value=JSON,
)
def test_any_place_is_found_or_missing(steps: list[str], value: Any) -> None:
    find("".join(steps), Output(value, steps={"a": value}, aggregation=value, sources=[value]))


ATOM = st.sampled_from(
    [
        *(
            "a",
            "b",
            ".",
            r"\d",
            r"\w",
            r"\s",
            "^",
            "$",
            r"\b",
            "[ab]",
            "[^a]",
            "(a)",
            "(?:ab)",
            "(?i:B)",
            "(?=a)",
            "(?!b)",
        ),
        *("(?<=a)", "(a|b)", "(a|ab)", "(?P<n>a)", "(?P=n)", r"\1", "é", "一", r"\u4e00", "[a-", "(", ")", "{2}", "\n"),
        *(
            r"\Z",
            r"\A",
            "(?s:.)",
            "(?m:^b)",
            "[\\w-]",
            r"\.",
            "ß",
            "İ",
            "(?>a+)",
            "a*+",
            r"\N{BULLET}",
            "[[a]",
            "(?x: a b)",
        ),
    ]
)
PATTERN = st.lists(
    st.tuples(ATOM, st.sampled_from(["", "", "*", "+", "?", "*?", "{1,2}", "{,3}", "{2,1}"])).map("".join), max_size=4
).map("".join) | st.lists(ATOM, max_size=3).map(lambda atoms: f"({''.join(atoms)})+")


@fuzz(
    pattern=PATTERN, text=st.text("aAb1 \né一ßİi•", max_size=8), flags=st.sampled_from([0, re.IGNORECASE, re.MULTILINE])
)
@pytest.mark.filterwarnings("ignore:Possible ")
def test_a_search_finds_what_python_finds(pattern: str, text: str, flags: int) -> None:
    try:
        expected = re.search(pattern, text, flags)
    except (re.error, OverflowError):
        assert patterns.pattern_error(pattern, flags)
        return
    try:
        found = patterns.find(pattern, text, flags)
    except patterns.BadPattern as error:
        assert "stopped" in str(error) or "too much" in str(error) or "supported" in str(error), error
        return
    assert (found and (found.whole, found.groups)) == (expected and (expected[0], expected.groups()))
