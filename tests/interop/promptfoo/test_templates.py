"""Templates of promptfoo files: Nunjucks' language, JavaScript's rules, and limits."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.interop.promptfoo import nunjucks
from evalloom.interop.promptfoo.templates import LONGEST, TemplateError, has_marks, names_in, render

pytestmark = pytest.mark.req("WORK-31")


@pytest.mark.parametrize(
    ("text", "variables", "rendered"),
    [
        ("Hi {{name}}!", {"name": "Bo"}, "Hi Bo!"),
        ("{{ missing }}|{{ a.b.c }}", {}, "|"),
        ("{{ n }} {{ t }} {{ f }} {{ none }}", {"n": 3.0, "t": True, "f": 0.5, "none": None}, "3 true 0.5 "),
        ("{{ list }} {{ object }}", {"list": ["a", 1], "object": {"a": [1]}}, 'a,1 {"a":[1]}'),
        ("{% for x in xs %}{{ loop.index }}{{ x.n | upper }};{% endfor %}", {"xs": [{"n": "a"}, {"n": "b"}]}, "1A;2B;"),
        ("{% for k, v in o %}{{ k }}={{ v }};{% endfor %}", {"o": {"a": 1, "items": 2}}, "a=1;items=2;"),
        ("{% for x in o %}x{% endfor %}", {"o": {"a": 1}}, ""),
        ("{% if n === 1 %}one{% elseif n !== 2 %}other{% else %}two{% endif %}", {"n": 2}, "two"),
        ("{% if n == 1 %}equal{% endif %}", {"n": "1"}, "equal"),
        ("{% if xs %}full{% endif %}{% if not s %}empty{% endif %}", {"xs": [], "s": ""}, "fullempty"),
        ("{{ 'a === b' }}", {}, "a === b"),
        ("{{ xs or 'd' }} {{ s or 'd' }} {{ s and 'e' }}", {"xs": [1], "s": ""}, "1 d "),
        ("{{ 'a' + 1 }} {{ 7 / 2 }} {{ 4 / 2 }} {{ 'a' ~ 2 }} {{ 2 ** 3 }} {{ -n }}", {"n": 5}, "a1 3.5 2 a2 8 -5"),
        ("{{ xs.length }} {{ s.toUpperCase() }} {{ s.split('b').join('-') }}", {"xs": [1, 2], "s": "abc"}, "2 ABC a-c"),
        ("{{ 'x' in s }} {{ 2 in xs }} {{ 'k' in o }}", {"s": "axb", "xs": [1, 2], "o": {"k": 1}}, "true true true"),
        ("{% raw %}{{ x }}{% endraw %}{% verbatim %}{{ y }}{% endverbatim %}", {}, "{{ x }}{{ y }}"),
        ("{# a comment #}text", {}, "text"),
        ("{% set x = 1 %}{{ x }}{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f('q') }}", {}, "1<q>"),
        ("{{ a.items }}{{ a.keys }}", {"a": {"items": 3}}, "3"),
        ("JSON like { this } stays", {}, "JSON like { this } stays"),
        ("an unfinished {{ tag", {}, "an unfinished {{ tag"),
        ("line\n", {}, "line\n"),
        ("{{ o | dump }} {{ o | dump(2) }}", {"o": {"a": "é"}}, '{"a":"é"} {\n  "a": "é"\n}'),
        ("{{ x | default('d') }}{{ '' | default('e', true) }}{{ n | default('f') }}", {"n": None}, "de"),
        ("{{ x | sort | join }}{{ 'a' | int }}{{ x | dump }}", {}, ""),
        ("{{ 'hello world' | title | truncate(6) }}|{{ 'a,b' | replace(',', ';') }}", {}, "Hello...|a;b"),
        ("{{ xs | join(', ') }} {{ xs | first }} {{ xs | last }} {{ xs | length }}", {"xs": ["a", "b"]}, "a, b a b 2"),
        ("{{ xs | sort | reverse | join }}{{ '3.7abc' | int }}{{ 2.5 | round }}", {"xs": ["b", "a"]}, "ba33"),
        ("{{ p | groupby('t') | dump }}", {"p": [{"t": "a", "n": 1}]}, '{"a":[{"t":"a","n":1}]}'),
        ("{{ 'a b&c' | urlencode }} {{ '<b>x</b>' | striptags }} {{ '<' | escape }}", {}, "a%20b%26c x &lt;"),
    ],
)
def test_templates_render_as_in_promptfoo(text: str, variables: dict[str, Any], rendered: str) -> None:
    assert render(text, variables) == rendered


@pytest.mark.req("WORK-31")
@pytest.mark.parametrize("value", [{}, {"v": None}])
@pytest.mark.parametrize(
    "name", ["join(',')", "first", "last", "sum", "selectattr('a')", "batch(2)", "trim", "dictsort"]
)
def test_a_filter_of_what_is_missing_is_an_error(name: str, value: dict[str, Any]) -> None:
    with pytest.raises(TemplateError, match=rf"filter {name.partition('(')[0]}: expected an? \w+, got (nothing|null)"):
        render(f"{{{{ v | {name} }}}}", value)


@pytest.mark.parametrize(
    "text",
    [
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{{ range(1000000000) | length }}",
        "{{ 'x'.repeat(1000000000) }}",
        "{{ 'x' | indent(1000000000) | replace('', big) }}{{ big | replace('x', big) }}",
        "{{ 'a' | center(99999999999999) | indent(1000) | length | string | center(4000000) | upper }}",
        "{% set x = 'aaaaaaaaaaaaaaaa' %}" + "{% set x = x ~ x %}" * 40 + "{{ x }}",
        "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{% include '/etc/passwd' %}",
        "{% import 'x' as y %}",
        "{% extends 'x' %}",
        "{{ lipsum() }}",
        "{{ 'x' | nothing }}",
        "{% if %}",
        "{{ (1 }}",
        "{{" + "(" * 5000 + "1" + ")" * 5000 + "}}",
        "x" * LONGEST + "{{ y }}",
    ],
)
def test_what_cannot_be_rendered_is_an_error_and_not_a_hang(text: str) -> None:
    with pytest.raises(TemplateError):
        render(text, {"big": "x" * 100_000})


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__ }}",
        "{{ x.__class__.__mro__ }}",
        "{{ x['__class__'] }}",
        "{{ range.__globals__ }}",
        "{{ loop.__class__ }}",
        "{{ self.__init__ }}",
        "{{ cycler }}{{ namespace }}{{ dict }}{{ joiner }}",
        "{{ '{0.__class__}' }}",
        "{{ x.upper.__self__ }}",
    ],
)
def test_python_is_out_of_reach(text: str) -> None:
    assert "class" not in render(text, {"x": "a"}).replace("{0.__class__}", "")


def test_names_are_those_that_a_template_does_not_set() -> None:
    assert names_in("{{ a }}{% if b.c %}{{ d | upper }}{% endif %}{% set e = 1 %}{{ e }}") == {"a", "b", "d"}
    assert names_in("no template") == frozenset() and not has_marks("{ a }")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_PIECES = st.sampled_from(
    [
        "{{ a }}",
        "{{ a | upper }}",
        "{% if a %}",
        "{% endif %}",
        "{% for x in a %}",
        "{% endfor %}",
        "{{ a.b[0] }}",
        "{{ a + b }}",
        "{{ a == b }}",
        "{{ a | sort | join }}",
        "{{ a | round(2) }}",
        "{{",
        "%}",
        "text",
        "{{ a - b }}",
        "{{ a | groupby('x') }}",
        "{{ a | truncate(3) }}",
        "{{ a.slice(1, b) }}",
        "{{ a | batch(b) }}",
        "{{ a | int }}",
    ]
)


@given(st.lists(_PIECES, max_size=6), _VALUES, _VALUES)
def test_a_template_gives_a_text_or_an_error(pieces: list[str], a: Any, b: Any) -> None:
    with contextlib.suppress(TemplateError):
        assert isinstance(render("".join(pieces), {"a": a, "b": b}), str)


@given(st.text())
def test_a_text_without_marks_stays(text: str) -> None:
    if not has_marks(text):
        assert render(text, {"x": 1}) == text


@pytest.mark.parametrize(
    "text",
    [
        "{% set big = 'a'.repeat(1000000) %}{{ range(90000) | join(big) }}",
        "{% set big = 'a'.repeat(1000000) %}{{ range(90000).join(big) }}",
        "{% set big = 'a'.repeat(4000000) %}{{ ''.concat(big, big, big, big) }}",
        "{{ '<!--'.repeat(900000) | striptags }}",
        "{{}\n" * 500_000 + "{{ x",
        "{{" * 500_000 + "} x",
        "{{}\n" * 500_000 + "{% if a === b %}",
    ],
)
def test_what_grows_or_searches_without_end_is_stopped(text: str) -> None:
    started = time.monotonic()
    with contextlib.suppress(TemplateError):
        assert len(render(text, {})) <= LONGEST
    assert time.monotonic() - started < 10


def test_a_template_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nunjucks, "LONGEST_S", 0.2)
    words = "{% for i in range(9000) %}{% if (big | wordcount) == 0 %}x{% endif %}{% endfor %}"
    with pytest.raises(TemplateError, match="seconds"):
        render(words, {"big": "a " * 500_000})
