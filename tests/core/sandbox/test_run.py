"""Code in the sandbox that does what it should."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from evalloom.core.errors import CallError
from evalloom.core.sandbox import Call, Code, Done, run_code

pytestmark = pytest.mark.req("PIPE-12")


def run(text: str, *calls: Call, entry: tuple[str, ...] = ("aggregate",)) -> list[Done]:
    return asyncio.run(run_code(Code(text, entry), calls or [Call({"items": [1, 2]}, whole=[1, 2])]))


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_calls_share_one_process_and_keep_their_order(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    text = "import os\ndef aggregate(items):\n    print('got', len(items))\n    return [os.getpid(), 6 / sum(items)]\n"
    with asyncio.Runner(loop_factory=loop) as runner:
        done = runner.run(run_code(Code(text), [Call({"items": [one]}) for one in (1, 0, 2)]))
    assert [one.value and one.value[1] for one in done] == [6, None, 3]
    assert done[1].error == "ZeroDivisionError: division by zero (line 4)"
    assert done[0].printed == "got 1\n" and done[0].value[0] == done[2].value[0] != os.getpid()


@pytest.mark.parametrize(
    ("signature", "given"),
    [
        ("items", "items"),
        ("items, sep='-'", "(items, sep)"),
        ("*, items", "items"),
        ("items, /", "items"),
        ("**all", "sorted(all)"),
        ("rows", "rows"),
        ("rows, sep='-'", "(rows, sep)"),
        ("rows, /, **rest", "(rows, sorted(rest))"),
        ("rows=None", "rows"),
        ("", "0"),
    ],
)
def test_a_function_gets_what_it_takes(signature: str, given: str) -> None:
    done = run(f"def aggregate({signature}): return {given}", Call({"items": [1], "sep": ","}, whole="all"))
    expected = {
        "items": [1],
        "(items, sep)": [[1], ","],
        "sorted(all)": ["items", "sep"],
        "rows": None if "None" in signature else "all",
        "(rows, sep)": ["all", ","],
        "(rows, sorted(rest))": ["all", ["items", "sep"]],
        "0": 0,
    }
    assert done == [Done(expected[given])]


def test_the_whole_may_be_all_of_the_inputs_or_one_of_them() -> None:
    inputs: dict[str, Any] = {"a": [1], "": 2, "n": None}
    calls = [Call(inputs, whole) for whole in (inputs, inputs["a"], inputs[""], None, [1])]
    assert [done.value for done in run("def f(x): return x", *calls)] == [inputs, [1], 2, None, [1]]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("def other(x): return 1\ndef aggregate(x): return 2", 2),
        ("def _help(x): return 1\ndef mine(x): return _help(x) + 2", 3),
        ("from math import sqrt\nmine = lambda x: 4", 4),
        ("import functools\ndef two(a, x): return a\naggregate = functools.partial(two, 5)", 5),
        ("class aggregate(dict):\n    def __init__(self, x): self['a'] = (6,)", {"a": [6]}),
        ("async def aggregate(x): return 7", 7),
        ("from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    b: int\ndef f(x: Nothing): return A(8).b", 8),
        ("import decimal, hashlib, statistics, re, datetime, collections, random, sqlite3\ndef f(x): return statistics.mean(x)", 1.5),
        ("def f(x):\n    with open('a', 'w+') as a:\n        a.write('好'); a.seek(0)\n        return a.read()", "好"),
        ("import tempfile, os\ndef f(x):\n    open('a', 'w').close(); os.rename('a', 'b'); os.remove('b')\n    return os.listdir()", []),
    ],
)  # fmt: skip
def test_which_function_is_meant_and_what_it_may_use(text: str, value: Any) -> None:
    assert run(text) == [Done(value)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def aggregate(x):\n  return (", "SyntaxError: '(' was never closed (line 2)"),
        ("x = 1", "defines no function; expected one, named aggregate"),
        ("def a(x): pass\ndef b(x): pass", "several functions (a, b); name one of them aggregate"),
        ("import nothing_like_it", "ModuleNotFoundError: No module named 'nothing_like_it' (line 1)"),
        ("analyze()", "NameError: name 'analyze' is not defined (line 1)"),
        ("a = '\0'", "null bytes"),
    ],
)
def test_code_that_cannot_be_called(text: str, said: str) -> None:
    with pytest.raises(CallError) as failed:
        run(text)
    assert failed.value.code == "code_error" and said in failed.value.message


def test_what_is_printed_is_clamped_and_disturbs_nothing() -> None:
    done = run("import os\ndef f(x):\n    os.write(1, b'{}')\n    print('好' * 10**6)\n    return 1")[0]
    assert done.value == 1 and done.printed == "好" * 8000


def test_a_module_beside_the_dataset(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from pack import WORD\nimport msgspec\ndef good(value, case): return [value, case, WORD]\n"
    )
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack/__init__.py").write_text("WORD = 'x'\ndef read(path): return open(path).read()\n")
    (tmp_path / ".env").write_text("KEY=1")
    calls = [Call(ordered=("v", {"id": 1}, "more"))]
    assert asyncio.run(run_code(Code(reference="mine:good", folder=tmp_path), calls)) == [Done(["v", {"id": 1}, "x"])]
    done = asyncio.run(run_code(Code(reference="pack:read", folder=tmp_path), [Call(whole=str(tmp_path / ".env"))]))
    assert "PermissionError" in done[0].error
    (tmp_path / "link.py").symlink_to(tmp_path / "../outside.py")
    (tmp_path / "../outside.py").write_text("def f(x): return x")
    with pytest.raises(CallError, match="cannot import link: PermissionError"):
        asyncio.run(run_code(Code(reference="link:f", folder=tmp_path), calls))
    with pytest.raises(CallError, match="no 'nope' in pack"):
        asyncio.run(run_code(Code(reference="pack:nope", folder=tmp_path), calls))


def test_only_references_reach_installed_packages(tmp_path: Path) -> None:
    where = str(Path(msgspec.__file__).parents[1])
    body = "import sys\ndef f(where):\n    sys.path.append(where)\n    import msgspec\n    return msgspec.__name__\n"
    assert run(body, Call({"where": where}))[0].error.startswith(("ModuleNotFoundError", "PermissionError"))
    reads = "def f(where): return open(where + '/msgspec/__init__.py').read()"
    assert "PermissionError" in run(reads, Call({"where": where}))[0].error
    (tmp_path / "own.py").write_text(body)
    done = asyncio.run(run_code(Code(reference="own:f", folder=tmp_path), [Call({"where": where})]))
    assert done == [Done("msgspec")]


def test_a_large_answer_comes_back_whole() -> None:
    done = run("def f(x): return [[]] * 600_000")
    assert len(done) == 1 and len(done[0].value) == 600_000


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("after_s", [0, 0.01, 0.15])
def test_cancelling_leaves_nothing(loop: Callable[[], asyncio.AbstractEventLoop], after_s: float) -> None:
    async def start_and_cancel() -> None:
        task = asyncio.create_task(run_code(Code("def f():\n    while True: pass"), [Call()]))
        await asyncio.sleep(after_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(start_and_cancel())


def test_many_at_once() -> None:
    async def all_of_them() -> list[list[Done]]:
        return await asyncio.gather(*(run_code(Code("def f(x): return x"), [Call(whole=one)]) for one in range(12)))

    assert [done[0].value for done in asyncio.run(all_of_them())] == list(range(12))


def test_async_functions_cannot_wait() -> None:
    done = run("import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    await asyncio.sleep(9)")[0]
    assert done.error == "RuntimeError: no running event loop (line 4)"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


@settings(max_examples=5, deadline=None)
@given(st.lists(JSON, min_size=1, max_size=20))
def test_json_comes_back_as_it_went_in(values: list[Any]) -> None:
    done = run("def f(x): return x", *(Call(whole=value) for value in values))
    assert json.dumps([one.value for one in done]) == json.dumps(values)


@pytest.mark.parametrize(("name", "value"), [("sys.platform", "darwin"), ("platform.machine", lambda: "riscv64")])
def test_other_machines_are_refused(name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name, value)
    with pytest.raises(CallError) as failed:
        run("def f(x): return x")
    assert failed.value.code == "sandbox_failed" and "is needed, this is" in failed.value.message
