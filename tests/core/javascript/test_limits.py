"""Hostile code: it is stopped, it reaches nothing, and it leaves no traces for the next call."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from evalloom.core.javascript import Code, JavaScriptError, call, close, process

pytestmark = [pytest.mark.req("WORK-31", "WORK-42"), pytest.mark.timeout(120)]


@pytest.fixture(scope="module", autouse=True)
def _ended() -> Iterator[None]:
    yield
    close()


def kind_of_failure(source: str) -> str:
    with pytest.raises(JavaScriptError) as caught:
        call(Code(source), {"output": "hello"}, 0.2)
    # The next call must find an engine that works.
    assert call(Code("output"), {"output": "fine"}) == "fine"
    return caught.value.kind


@pytest.mark.parametrize(
    "source",
    [
        "let a;\nfor (;;);",
        "let a;\nfor (;;) { try { for (;;); } catch {} }",
        "/^(a+)+$/.test('a'.repeat(40) + '!')",
        # What one built-in function does cannot be interrupted: the process is ended.
        "'a'.repeat(1e7).indexOf('a'.repeat(5e6) + 'b')",
        "new Array(2 ** 32 - 1).join('x')",
        "let again = () => Promise.resolve().then(again);\nreturn again()",
        "let again;\nreturn new Promise(() => { again = () => setTimeout(again, 0); again() })",
        "let a;\nreturn { get a() { for (;;); } }",
        "let a;\nreturn { toJSON() { for (;;); } }",
        "let a;\nreturn new Proxy({}, { ownKeys() { for (;;); } })",
        "let a;\nthrow { get message() { for (;;); } }",
        "let a;\nthrow { toString() { for (;;); }, toJSON() { for (;;); } }",
        "new Proxy([], { get: (array, key) => key === 'length' ? 1e9 : 1 })",
    ],
)
def test_code_that_does_not_end_is_stopped(source: str) -> None:
    assert kind_of_failure(source) == "time"


@pytest.mark.parametrize(
    "source",
    [
        "let all = [];\nfor (;;) all.push('x'.repeat(1000) + all.length)",
        "new Array(1e9).fill(0)",
        "'a'.repeat(2 ** 29)",
        "JSON.stringify(new Array(1e8).fill(1))",
        "let deep = [];\nfor (let i = 0; i < 1e6; i++) deep = [deep];\nreturn deep",
        "(function again() { return again() + 1 })()",
        "JSON.parse('['.repeat(1e6))",
        "eval('('.repeat(1e6))",
        "new Uint8Array(2 ** 33)",
        "'x'.repeat(2e7)",
        "(10n ** 5000000n).toString()",
    ],
)
def test_code_that_takes_too_much_is_stopped(source: str) -> None:
    assert kind_of_failure(source) in ("memory", "thrown", "result", "time")


@pytest.mark.parametrize(
    "source",
    [
        "Object.keys(globalThis).filter((name) => name !== 'performance')",
        "['std', 'os', 'print', 'scriptArgs', 'bjson', 'Worker', 'WebAssembly', 'fetch', 'Deno'].filter((name) => name in globalThis)",
    ],
)
def test_nothing_of_the_host_is_there(source: str) -> None:
    assert call(Code(source), {}) == []


def test_a_module_cannot_be_imported_past_require() -> None:
    with pytest.raises(JavaScriptError, match="could not load module"):
        call(Code("import('/etc/passwd')"), {})


_TRACES = [
    ("let a; leak = 1; return typeof leak", "typeof leak", "undefined"),
    ("globalThis.leak = 1", "typeof leak", "undefined"),
    ("Array.prototype.map = () => ['pwned']", "[1].map((x) => x)", [1]),
    ("Object.prototype.pass = true", "({}).pass === undefined", True),
    ("JSON.parse = () => 1", "JSON.parse('[2]')", [2]),
    ("(0, eval)('let hidden = 1'); 1", "typeof hidden", "undefined"),
    ("String.prototype.includes = () => true", "output.includes('nothing')", False),
]


@pytest.mark.parametrize(("first", "second", "expected"), _TRACES)
def test_a_call_leaves_no_traces(first: str, second: str, expected: object) -> None:
    for _ in range(3):
        call(Code(first), {"output": "hello"})
    for _ in range(3):
        assert call(Code(second), {"output": "hello"}) == expected


@pytest.mark.parametrize(
    "source",
    [
        # Their texts show no assignment, so their calls share a context: it must not let itself be changed.
        "const n = [].push.apply(Math, [1]); return n",
        "const keep = output.constructor; return keep('return 1')()",
        "const f = (() => 1)['const' + 'ructor']; return f ? f('return 1')() : 0",
        "const n = Map.call.call([].push, [].keys(), 1)",
        "const n = [].push.call(''.matchAll(/x/g)['__pro' + 'to__'], 1)",
    ],
)
def test_calls_of_the_same_code_are_alike(source: str) -> None:
    results = []
    for _ in range(8):
        try:
            results.append(call(Code(source), {"output": "hello"}))
        except JavaScriptError as error:
            results.append(error.kind)
    # The first calls have contexts of their own, and change those; the later ones cannot change theirs.
    assert len({str(result) for result in results[4:]}) == 1


def test_code_that_runs_often_computes_the_same(
    source: str = "const w = output.split(' ').map((x) => x.length); return w",
) -> None:
    assert [call(Code(source), {"output": "a bc " + "d" * number}) for number in range(8)] == [
        [1, 2, number] for number in range(8)
    ]


def test_a_lying_prototype_fools_only_itself() -> None:
    for source in (
        "Array.prototype.join = () => 'v{'; return 'x'",
        "Array.prototype.join = () => 'n[1]'; return 'x'",
        "Array.prototype.join = () => 'e[]'; return 'x'",
        "Array.prototype.join = () => ''; return 'x'",
        "Array.prototype.join = () => ({}); return 'x'",
    ):
        with pytest.raises(JavaScriptError):
            call(Code(f"let a;\n{source}"), {})
    assert call(Code("'x'"), {}) == "x"


def test_an_engine_that_dies_is_replaced() -> None:
    call(Code("1"), {})
    engine = process.borrow()
    os.kill(engine._process.pid, signal.SIGSEGV)
    process.give_back(engine)
    assert call(Code("2"), {}) == 2


def test_the_process_of_the_engine_is_isolated() -> None:
    from evalloom.core.sandbox import why_unavailable

    if why_unavailable():
        pytest.skip(why_unavailable())
    engine = process.borrow()
    try:
        assert engine.is_isolated
    finally:
        process.give_back(engine)
