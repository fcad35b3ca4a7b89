"""What inline code and files mean, what they get, and what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalloom.core.javascript import Code, JavaScriptError, SlowJavaScript, call, call_in_thread, call_quickly, close

pytestmark = pytest.mark.req("WORK-31")


@pytest.fixture(scope="module", autouse=True)
def _ended() -> Iterator[None]:
    yield
    close()


def run(source: str, output: Any = "hello", **options: Any) -> Any:
    return call(Code(source, **options), {"output": output, "context": {"vars": {"a": 1}}})


def why(source: str, output: Any = "hello", **options: Any) -> str:
    with pytest.raises(JavaScriptError) as caught:
        run(source, output, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("output.length > 3", True),
        ("output.length > 3;\n", True),
        ("const s = output; s === 'a;b' || s.length", 5),
        ("const r = output.replace(/;/g, ''); return r", "hello"),
        ("return output + '!'", "hello!"),
        ("if (output) return 1; return 2", 1),
        ("const n = output.length;\nreturn n - context.vars.a;", 4),
        ("// a comment\nreturn 1 // and one more", 1),
        ("(output, context) => context.vars.a", 1),
        ("output => {\n  return output.length\n}", 5),
        ("async (output) => ({ pass: true, score: 1, reason: output })", {"pass": True, "score": 1, "reason": "hello"}),
        ("function (output) { return [output] }", ["hello"]),
        ("Promise.resolve(output).then((text) => text.length)", 5),
        ("new Promise((done) => setTimeout(() => done('late'), 60_000))", "late"),
        ("undefined", None),
        ("const unused = 1", None),
        ("output.slice(0, 1).codePointAt(0)", 104),
        ("console.log(output) || process.env.HOME === undefined", True),
        ("structuredClone({ a: [1, new Date(0)] }).a[1].getTime()", 0),
        ("new TextDecoder().decode(new TextEncoder().encode('é😀'))", "é😀"),
        ("'x'.repeat(5000) + output.length", "x" * 5000 + "5"),
    ],
)
def test_inline_code_means_what_promptfoo_takes_it_for(source: str, expected: Any) -> None:
    assert run(source) == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("\n\nreturn nowhere.x", "ReferenceError: nowhere is not defined (line 3)"),
        ("null.x", "TypeError: cannot read property 'x' of null (line 1)"),
        ("let a = 1;\nthrow new Error('not this')", "not this (line 2)"),
        ("let a = 1;\nthrow { code: 7 }", '{"code":7}'),
        ("async () => { throw new RangeError('later') }", "RangeError: later (line 1)"),
        ("new Promise(() => {})", "never settles"),
        ("output.length / 0", "expected a result that is JSON, got Infinity"),
        ("({ score: NaN })", "got score: NaN"),
        ("10n", "convert it with Number()"),
        ("({ f: () => 1 })", "got f: a function"),
        ("const a = {}; a.a = a; return a", "contains itself"),
        ("fetch('http://localhost')", "has no network"),
        ("require('fs').readFileSync('x')", "require('./data.json')"),
        ("require('lodash')", "modules of Node.js and npm cannot be loaded"),
        ("process.mainModule.require('node:child_process')", "starts no processes"),
        ("Buffer.from('x')", "Buffer belongs to Node.js"),
        ("(1).toLocaleString('xx-YY')", "known are en-US"),
    ],
)
def test_an_error_says_what_failed_where_and_what_to_do(source: str, message: str) -> None:
    assert message in why(source)


def test_a_syntax_error_has_its_kind_and_line() -> None:
    with pytest.raises(JavaScriptError) as caught:
        run("let a = 1;\nreturn a +* 2")
    assert (caught.value.kind, caught.value.line) == ("syntax", 2)


@pytest.mark.parametrize(
    ("source", "function", "expected"),
    [
        ("module.exports = (output, context) => output + context.vars.a", "", "hello1"),
        ("module.exports = { short: (o) => o.length < 9, other: 1 }", "short", True),
        ("exports.short = async (o) => o.length", "short", 5),
        ("#!/usr/bin/env node\nmodule.exports = () => 1", "", 1),
        ("export default function check(output) { return limit }\nexport const limit = 4;", "", 4),
        ("export default async (output) => output", "", "hello"),
        ("const a = (o) => o, b = () => 2;\nexport { a as first, b };", "b", 2),
        ("export function named(o) {\n  return o\n}", "named", "hello"),
        (
            "export default class { }\nexport const text = `\nexport default 1\n`;\nexport const f = () => text",
            "f",
            None,
        ),
        ("module.exports = [{ vars: { a: 1 } }]", "", [{"vars": {"a": 1}}]),
    ],
)
def test_a_file_exports_functions_of_both_kinds_of_modules(source: str, function: str, expected: Any) -> None:
    result = run(source, file="checks/x.js", function=function)
    assert result == expected if expected is not None else result == "\nexport default 1\n"


def test_errors_in_files_name_the_file_the_line_and_the_functions() -> None:
    assert why("module.exports = (o) => {\n  return o.a.b\n}", file="x.js").endswith("of undefined (x.js:2)")
    assert "name one as file://x.js:short" in why("exports.short = () => 1", file="x.js")
    assert "exports no function nope" in why("exports.short = () => 1", file="x.js", function="nope")
    assert "TypeScript is not compiled" in why("export default (o: string) => o", file="x.ts")


def test_files_beside_the_code_can_be_required(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "limits.json").write_text('{"most": 9}')
    (tmp_path / "data" / "helper.mjs").write_text(
        "import limits from './limits.json' with { type: 'json' };\nexport const most = limits.most;"
    )
    inner = "import { most } from '../data/helper.mjs';\nexport default (o) => o.length < most && require('../data/limits').most === 9"
    code = Code(inner, str(tmp_path / "sub" / "x.js"), "", str(tmp_path))
    (tmp_path / "sub").mkdir()
    assert call(code, {"output": "hello"}) is True
    inline = Code("require('./data/limits.json').most", folder=str(tmp_path))
    assert call(inline, {}) == 9
    (tmp_path / "data" / "limits.json").write_text('{"most": 10}')
    assert call(inline, {}) == 10


def test_an_error_in_a_required_file_names_that_file(tmp_path: Path) -> None:
    (tmp_path / "helper.js").write_text("\n\nexports.f = () => null.x")
    assert why("require('./helper').f()", folder=str(tmp_path)).endswith("(helper.js:3)")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../secret.json", "outside of the folder"),
        ("./sub/../../secret.json", "outside of the folder"),
        ("./link.json", "leads out of the folder"),
        ("./.hidden.json", "is hidden"),
        ("./.git/x.json", "is hidden"),
        ("./to_hidden.json", "is hidden"),
        ("./notes.txt", "only these can be required"),
        ("./none.json", "there is no file"),
        ("/etc/passwd", "only relative files"),
        ("file:///etc/passwd", "only relative files"),
    ],
)
def test_no_other_file_can_be_required(name: str, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "suite"
    folder.mkdir()
    (tmp_path / "secret.json").write_text("1")
    (folder / ".hidden.json").write_text("1")
    (folder / "notes.txt").write_text("1")
    (folder / "link.json").symlink_to(tmp_path / "secret.json")
    (folder / "to_hidden.json").symlink_to(folder / ".hidden.json")
    assert message in why(f"require({name!r})", folder=str(folder))
    assert "no folder to read from" in why("require('./x.json')")


def test_numbers_are_written_as_in_three_languages() -> None:
    assert run("(1234567.891).toLocaleString()") == "1,234,567.891"
    assert run("(1234567.891).toLocaleString('de-DE')") == "1.234.567,891"
    assert run("(1234.5).toLocaleString('en-US', { style: 'currency', currency: 'USD' })") == "$1,234.50"
    assert run("new Intl.NumberFormat('zh-CN', { style: 'currency', currency: 'CNY' }).format(-1234.5)") == "-¥1,234.50"
    assert (
        run("Intl.NumberFormat('de-DE', { style: 'percent', maximumFractionDigits: 1 }).format(0.1234)") == "12,3\xa0%"
    )
    assert run("(1.005).toLocaleString('en-US', { maximumFractionDigits: 2 })") == "1.01"


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(-1e15, 1e15).map(lambda number: number + 0.0)
    | st.text(),
    # A property of this name is the prototype in JavaScript.
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text().filter(lambda key: key != "__proto__"), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(_JSON)
def test_json_values_come_back_as_they_went(value: Any) -> None:
    assert call(Code("output"), {"output": value}) == value


def test_half_a_character_comes_back_as_a_replacement() -> None:
    assert run("output.slice(0, 1)", "😀") == "\ufffd"
    assert run("output.length", "\ud83d") == 1
    assert run("output", "a\0b") == "a\0b"


def test_a_quick_call_leaves_slow_code_to_a_thread() -> None:
    call(Code("1"), {})
    slow = Code("let n = 0;\nfor (let i = 0; i < 3e6; i++) n += i % 7;\nreturn n > 0")
    with pytest.raises(SlowJavaScript):
        call_quickly(slow, {}, 0.002)
    with pytest.raises(SlowJavaScript):
        # It is remembered, so the loop does not wait for it again.
        call_quickly(slow, {}, 0.002)
    assert asyncio.run(call_in_thread(slow, {}, 20.0)) is True


def test_calls_of_many_threads_do_not_meet() -> None:
    async def many() -> list[Any]:
        return await asyncio.gather(*(call_in_thread(Code("output * 2"), {"output": number}) for number in range(40)))

    assert asyncio.run(many()) == [number * 2 for number in range(40)]
