"""Templates: what is filled, what is left, and what is said about a hole that nothing fills."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.errors import CallError, EvalloomError
from evalloom.targets.template import MISSING, Template, compile_json, follow

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("Hello {{name}}!", "Hello 张三!"),
        ("{{ name }} and {name}", "张三 and 张三"),
        ("{{order.lines[0].sku}}", "A-1"),
        ("{{order['lines'][0][\"sku\"]}}", "A-1"),
        ("{{order.lines}}", '[{"sku":"A-1"}]'),
        ("{{a.b}}", "a key with a dot"),
        ("{{用户 名}} {数}", "王 1.5"),
        ("{{{name}}}", "{张三}"),
        ("{{nothing}} {{yes}}", "null true"),
    ],
)
def test_holes_are_filled(text: str, filled: str) -> None:
    inputs = {
        "name": "张三",
        "order": {"lines": [{"sku": "A-1"}]},
        "a.b": "a key with a dot",
        "用户 名": "王",
        "数": 1.5,
        "nothing": None,
        "yes": True,
    }
    assert Template(text).render(inputs) == filled


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {"b": 1}}',
        '{{"a": 1}}',
        "{other}",
        "{ name }",
        "{0}",
        "{}",
        "{{}}",
        "{% if name",
        "%} {%",
        "{{#each}}",
        "}}{{",
    ],
)
def test_other_braces_are_left(text: str) -> None:
    template = Template(text)
    assert template.render({"name": "x"}) == text
    assert template.variables == frozenset()


def test_a_missing_name_is_named_with_what_there_is() -> None:
    with pytest.raises(CallError) as caught:
        Template("Hi {{nmae}}", "prompt.md").render({"name": "x", "tone": "y"})
    assert str(caught.value) == (
        "prompt.md: {{nmae}}: there is no input 'nmae'; there are name, tone. Did you mean 'name'? [missing_variable]"
    )


@pytest.mark.parametrize("path", ["a.c", "a[0]", "a.b[2]", "a.b[0].c", "a.b[-1]", "a..b", "a.__class__", "a | upper"])
def test_a_path_that_leads_nowhere_is_an_error(path: str) -> None:
    with pytest.raises(CallError) as caught:
        Template(f"{{{{{path}}}}}").render({"a": {"b": ["x", "y"]}})
    assert caught.value.code == "missing_variable"


def test_the_variables_are_the_roots_of_what_must_be_filled() -> None:
    assert Template("{{a.b[0]}} {{c}} {d}").variables == {"a", "c"}


@given(st.dictionaries(st.sampled_from(["a", "b"]), st.text() | JSON, min_size=2))
def test_a_value_is_never_expanded_again(inputs: dict[str, object]) -> None:
    written = [
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        for value in inputs.values()
    ]
    shown = dict(zip(inputs, written, strict=True))
    assert Template("<{{a}}|{b}>").render(inputs) == f"<{shown['a']}|{shown['b']}>"


@given(st.text(alphabet='{}ab. []01"\n', max_size=30), st.dictionaries(st.sampled_from(["a", "b"]), JSON))
def test_any_text_is_filled_or_refused(text: str, inputs: dict[str, object]) -> None:
    try:
        assert isinstance(Template(text).render(inputs), str)
    except CallError as fault:
        assert fault.code == "missing_variable"


@given(JSON)
def test_a_hole_alone_keeps_the_type(value: object) -> None:
    fill, variables = compile_json({"q": "{{v}}", "n": [1, "x {{w}}"]}, "body")
    assert fill({"v": value, "w": "y"}) == {"q": value, "n": [1, "x y"]}
    assert variables == {"v", "w"}


def test_inputs_that_are_no_json_are_refused() -> None:
    for value in (float("nan"), {1, 2}, object()):
        with pytest.raises(CallError) as caught:
            Template("{{v}}").render({"v": value})
        assert caught.value.code == "unusable_input"


def test_follow_a_path() -> None:
    answer = {"choices": [{"message": {"content": "hi"}}]}
    assert follow(answer, ".choices[0].message.content") == "hi"
    assert follow(answer, ".choices[1]") is MISSING
    assert follow([[1]], "[0][0]") == 1


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{% if a %}A: {{ a }}{% endif %}.", "A: x."),
        ("{% if gone %}A: {{ gone }}{% endif %}.", "."),
        ("{% if gone %}1{% elif n > 2 %}2{% elif a %}3{% else %}4{% endif %}", "2"),
        ("{% if gone %}1{% elif n < 2 %}2{% else %}{a}{% endif %}", "x"),
        ("{% if empty or gone.field %}1{% else %}{% if a == 'x' and not zero %}in{% endif %}out{% endif %}", "inout"),
        ("{{a}}\n{% if a %}\nkept\n{% endif %}\nend", "x\n\nkept\n\nend"),
        ("{{a}}\n  {%- if a -%}\n trimmed\n{%- endif -%} \nend", "xtrimmedend"),
        ("{%if a%}1{%else%}2{%endif%} {% 5 {%-if(a)-%} 3 {%- endif %}", "1 {% 53"),
        ("{%\n  if a\n  and n == 3\n%}yes{% endif %}", "yes"),
        ("{{ tag }}", "{% if a %}"),
    ],
)
def test_blocks_keep_one_branch(text: str, filled: str) -> None:
    inputs = {"a": "x", "n": 3, "empty": "", "zero": 0, "tag": "{% if a %}"}
    assert Template(text).render(inputs) == filled


def test_what_only_a_branch_needs_is_optional() -> None:
    template = Template("{{a}} {% if b.c or d %}{{e.f}} {{a}} {g}{% else %}{% if h %}{{i}}{% endif %}{% endif %}")
    assert template.variables == {"a"}
    assert template.optional == {"b", "d", "e", "g", "h", "i"}
    assert Template("{% if a %}{{a}}{% endif %}").only_name == ""


def test_a_name_that_is_missing_in_a_branch_counts_when_it_is_taken() -> None:
    template = Template("{% if a %}{{b}}{% endif %}", "p.yaml")
    assert template.render({}) == ""
    with pytest.raises(CallError) as caught:
        template.render({"a": 1})
    assert str(caught.value) == "p.yaml: {{b}}: there is no input 'b'; there are a [missing_variable]"


def test_values_in_a_branch_are_written_by_the_rules_of_the_place() -> None:
    template = Template("{% if a %}<{{a}}>{% endif %}", show=lambda value: f"[{value}]")
    assert template.render({"a": 1}) == "<[1]>"
    fill, variables = compile_json({"q": "{% if v %}{{v}}{% endif %}"}, "body")
    assert (fill({"v": 1}), fill({}), variables) == ({"q": "1"}, {"q": ""}, frozenset())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n{% for x in xs %}{% endfor %}", "line 2: {% for %} is not supported; only {% if %} blocks are"),
        ("a {% %}", "line 1: {%  %} is not supported"),
        ("{% if a %}\n{% if b %}{% endif %}", "line 1: {% if a %} has no {% endif %}"),
        ("{% endif %}", "line 1: {% endif %} has no {% if %} before it"),
        ("\n\n{% else %}", "line 3: {% else %} has no {% if %} before it"),
        ("{% if a %}{% else %}{% elif b %}{% endif %}", "{% elif b %} stands after {% else %}"),
        ("{% if a %}{% else b %}{% endif %}", "{% else b %} has a condition, and else takes none"),
        ("{% if a is defined %}{% endif %}", "{% if a is defined %} has a condition that cannot be read: column 3"),
        ("{% if %}{% endif %}", "{% if %} has a condition that cannot be read"),
        ("{% if a %}" * 30 + "{% endif %}" * 30, "at most 20 levels"),
    ],
)
def test_other_blocks_are_refused_with_their_line(text: str, message: str) -> None:
    with pytest.raises(EvalloomError) as caught:
        Template(text, "p.yaml")
    assert str(caught.value).startswith("p.yaml: in the text, line ") and message in str(caught.value)
    assert (caught.value.code, caught.value.exit_code) == ("bad_prompt", 2)


def test_a_filter_is_refused_in_plain_words() -> None:
    with pytest.raises(CallError) as caught:
        Template("{{ name | upper }}", "p.md").render({"name": "x"})
    assert "filters are not applied. Write {{name}}" in str(caught.value)


TAGS = st.sampled_from(
    ["{% if a %}", "{%- else -%}", "{% elif b == 1 %}", "{% endif %}", "{%", "%}", "{{a}}", " ", "x"]
)


@given(st.lists(TAGS, max_size=12))
def test_any_blocks_are_filled_or_refused(pieces: list[str]) -> None:
    try:
        assert isinstance(Template("".join(pieces)).render({"a": 1}), str)
    except EvalloomError as fault:
        assert fault.code == "bad_prompt"
