"""Python functions: found, called with what they take, and kept from doing harm."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from evalloom.core.errors import BudgetSpent, CallError, EvalloomError
from evalloom.core.model import Context, Output, Record, Request, Response
from evalloom.targets import TargetOptions, build, build_callable

Call = Callable[..., Output]
FaultOf = Callable[..., CallError]


def write(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_a_module_beside_the_file_that_names_it(tmp_path: Path, call: Call) -> None:
    write(tmp_path, "beside_a.py", "WORD = 'from beside'\n")
    write(tmp_path, "app_a.py", "import beside_a\ndef answer(q):\n    return f'{q} {beside_a.WORD}'\n")
    target = build("python:app_a:answer", tmp_path)
    assert call(target, {"q": "hi"}) == Output("hi from beside")
    assert (target.name, target.watch) == ("python:app_a:answer", (tmp_path / "app_a.py", tmp_path / "beside_a.py"))


def test_a_path_and_a_dotted_module_with_relative_imports(tmp_path: Path, call: Call) -> None:
    write(tmp_path, "pack_b/__init__.py", "")
    write(tmp_path, "pack_b/words.py", "HI = 'hi'\n")
    write(
        tmp_path,
        "pack_b/app.py",
        "from .words import HI\nclass Bot:\n    @staticmethod\n    def say():\n        return HI\n",
    )
    write(tmp_path, "lone/plain.py", "def say():\n    return 'lone'\n")
    assert call(build("python:pack_b.app:Bot.say", tmp_path), {}).value == "hi"
    assert call(build("python:lone/plain.py:say", tmp_path), {}).value == "lone"


def test_files_of_one_name_do_not_meet(tmp_path: Path, call: Call) -> None:
    for name in ("one", "two"):
        write(tmp_path, f"{name}/same_c.py", f"def f():\n    return {name!r}\n")
    write(tmp_path, "json.py", "def f():\n    return 'not the library'\n")
    found = [build("python:same_c:f", tmp_path / name) for name in ("one", "two")] + [build("python:json:f", tmp_path)]
    assert [call(target, {}).value for target in found] == ["one", "two", "not the library"]
    assert hasattr(sys.modules["json"], "dumps")


def test_an_edited_file_is_read_again(tmp_path: Path, call: Call) -> None:
    write(tmp_path, "app_d.py", "def f():\n    return 1\n")
    before = build("python:app_d:f", tmp_path)
    write(tmp_path, "app_d.py", "def f():\n    return 22\n")
    after = build("python:app_d:f", tmp_path)
    assert (call(before, {}).value, call(after, {}).value) == (1, 22)
    assert before.digest != after.digest == build("python:app_d:f", tmp_path).digest


def test_a_module_of_the_library_and_a_function_that_says_nothing(call: Call) -> None:
    assert call(build("python:json:dumps"), {"a": 1}).value == '{"a": 1}'
    assert call(build_callable(len), {"a": 1}).value == 1


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("app_e:anwser", "it has answer. Did you mean 'answer'?"),
        ("no_such_module_e:f", "No module named 'no_such_module_e'"),
        ("nofile.py:f", "there is no file"),
        ("bad_e:f", "SyntaxError"),
        ("exits_e:f", "SystemExit: 3 (exits_e.py:2)"),
        ("app_e", "expected module:function"),
        ("app_e:NUMBER", "expected a function, got 3"),
    ],
)
def test_a_target_that_is_not_there(reference: str, said: str, tmp_path: Path) -> None:
    write(tmp_path, "app_e.py", "NUMBER = 3\ndef answer():\n    pass\n")
    write(tmp_path, "bad_e.py", "def f(:\n")
    write(tmp_path, "exits_e.py", "import sys\nsys.exit(3)\n")
    with pytest.raises(EvalloomError) as caught:
        build(f"python:{reference}", tmp_path)
    assert (caught.value.code, caught.value.exit_code) == ("target_missing", 2)
    assert said in str(caught.value)


def by_name(q: str, tone: str = "kind") -> Any:
    return [q, tone]


def whole(inputs: Record) -> Any:
    return sorted(inputs)


def anything(**inputs: Any) -> Any:
    return sorted(inputs)


def by_position(q: str, /, *, tone: str) -> Any:
    return [q, tone]


async def not_at_once(q: str) -> Any:
    await asyncio.sleep(0)
    return [q]


class Bot:
    async def __call__(self, q: str) -> Any:
        return [q, "bot"]


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (by_name, ["why", "dry"]),
        (whole, ["q", "tone", "x"]),
        (anything, ["q", "tone", "x"]),
        (by_position, ["why", "dry"]),
        (not_at_once, ["why"]),
        (Bot(), ["why", "bot"]),
        (lambda q: not_at_once(q), ["why"]),
        (lambda: None, None),
    ],
)
def test_a_function_gets_what_it_takes(function: Callable[..., Any], value: Any, call: Call) -> None:
    assert call(build_callable(function), {"q": "why", "tone": "dry", "x": 1}).value == value


def test_a_missing_argument_is_named(fault_of: FaultOf) -> None:
    def answer(question: str, tone: str) -> str:
        return question + tone

    target = build_callable(answer)
    assert target.variables == {"question", "tone"}
    assert str(fault_of(target, {"question": "x", "tonne": "y"})) == (
        "answer() needs 'tone'; the inputs are question, tonne. Did you mean 'tone'? [missing_argument]"
    ).replace("'tone'?", "'tonne'?")


def test_the_context_by_name_and_by_type(call: Call) -> None:
    async def asks(q: str, context: Context) -> str:
        return (await context.llm(Request([{"role": "user", "content": q}]))).text

    def named(q: Any, context: Any) -> str:
        return f"{q} {type(context).__name__}"

    assert '"content": "hi"' in call(build_callable(asks), {"q": "hi", "context": "an input"}).value
    assert call(build_callable(named), {"q": "hi"}).value == "hi Context"
    assert call(build_callable(named), {"q": "hi", "context": "an input"}).value == "hi str"


def test_inputs_cannot_be_changed_by_the_function(call: Call) -> None:
    inputs: Record = {"rows": [{"a": 1}]}
    call(build_callable(lambda rows: rows[0].clear()), inputs)
    assert inputs == {"rows": [{"a": 1}]}


def test_what_it_raises_is_an_error_with_its_traceback(fault_of: FaultOf, trace: list[Record], tmp_path: Path) -> None:
    write(
        tmp_path,
        "raises_f.py",
        "def inner():\n    1 / 0\ndef f():\n    try:\n        inner()\n    except Exception as e:\n        raise ValueError('no good') from e\n",
    )
    fault = fault_of(build("python:raises_f:f", tmp_path), {})
    assert str(fault) == "ValueError: no good [target_raised]"
    (entry,) = trace
    assert entry["type"] == "traceback" and "ZeroDivisionError" in entry["text"]
    assert 'raises_f.py", line 2, in inner' in entry["text"] and "evalloom" not in entry["text"].replace(
        str(tmp_path), ""
    )


def raises(fault: BaseException) -> Callable[[], Any]:
    def function() -> Any:
        raise fault

    return function


def raises_async(fault: BaseException) -> Callable[[], Any]:
    async def function() -> Any:
        raise fault

    return function


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("make", [raises, raises_async])
@pytest.mark.parametrize(
    "fault",
    [SystemExit(2), StopIteration(1), TimeoutError("own"), asyncio.CancelledError(), Odd(), ValueError("x" * 10**6)],
)
def test_nothing_it_raises_gets_further(
    make: Callable[[BaseException], Any], fault: BaseException, fault_of: FaultOf
) -> None:
    found = fault_of(build_callable(make(fault)), {})
    assert found.code == "target_raised" and len(found.message) < 2000


@pytest.mark.parametrize("fault", [CallError("http_429", "slow down"), BudgetSpent()])
def test_errors_of_the_llm_pass_through(fault: Exception, call: Call) -> None:
    with pytest.raises(type(fault)) as caught:
        call(build_callable(raises_async(fault)), {})
    assert caught.value is fault


def test_an_output_of_its_own(call: Call, fault_of: FaultOf) -> None:
    output = Output("x", {"step": 1}, sources=["a.md"], outcome="LACK_OF_INFO")
    assert call(build_callable(lambda: output), {}) == output
    assert fault_of(build_callable(lambda: {"a": {1}}), {}).code == "bad_output"


def test_threads_are_reused_and_run_side_by_side() -> None:
    meet = threading.Barrier(4, timeout=10)
    names: set[str] = set()

    def function(q: str) -> None:
        meet.wait()
        names.add(str(threading.get_ident()))

    target = build_callable(function)
    context: Any = None

    async def rounds() -> None:
        for _ in range(3):
            await asyncio.gather(*(target.call({"q": "x"}, context) for _ in range(4)))
        await target.close()

    asyncio.run(rounds())
    assert len(names) == 4


def test_a_function_that_hangs_holds_up_neither_the_others_nor_the_end(tmp_path: Path) -> None:
    script = """
import asyncio, threading
from evalloom.core.errors import CallError
from evalloom.targets import TargetOptions, build_callable
def hangs(q):
    return threading.Event().wait() if q == "hang" else q
target = build_callable(hangs, options=TargetOptions(timeout_s=0.2))
async def main():
    found = await asyncio.gather(*(target.call({"q": q}, None) for q in ("hang", "a", "b")), return_exceptions=True)
    print([str(one) if isinstance(one, CallError) else one.value for one in found])
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20)
    assert done.stdout == "['no answer within 0.2 s: hangs() still runs at <string>:6 [timeout]', 'a', 'b']\n", (
        done.stderr
    )
    assert done.returncode == 0


def test_an_async_function_is_cancelled(fault_of: FaultOf) -> None:
    ended: list[float] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(time.monotonic())

    assert fault_of(build_callable(slow, options=TargetOptions(timeout_s=0.05)), {}).code == "timeout"
    assert len(ended) == 1


def with_model(model: str) -> Callable[[str], str]:
    return lambda q: f"{q} {model}"


def test_a_callable_has_a_name_and_a_digest() -> None:
    one, other = build_callable(by_name), build_callable(whole)
    assert one.name == "python:by_name" and build_callable(by_name, "mine").name == "mine"
    assert one.digest == build_callable(by_name).digest != other.digest
    assert one.watch == (Path(__file__),)


def test_callables_of_one_name_are_told_apart() -> None:
    def digests() -> list[str]:
        functions: list[Callable[..., Any]] = [
            with_model("a"),
            with_model("b"),
            lambda q: 1,
            lambda q: 2,
            lambda q, m=3: 1,
        ]
        functions += [partial(by_name, tone="a"), partial(by_name, tone="b"), Bot()]
        return [build_callable(function).digest for function in functions]

    assert len(set(digests())) == 8
    assert digests() == digests()


def test_a_function_that_was_imported_is_read_again_too(tmp_path: Path, call: Call) -> None:
    write(tmp_path, "inner_g.py", "def f():\n    return 1\n")
    write(tmp_path, "outer_g.py", "from inner_g import f\n")
    before = build("python:outer_g:f", tmp_path)
    assert before.watch == (tmp_path / "outer_g.py", tmp_path / "inner_g.py")
    write(tmp_path, "inner_g.py", "def f():\n    return 22\n")
    after = build("python:outer_g:f", tmp_path)
    assert call(after, {}).value == 22 and after.digest != before.digest


def test_what_the_file_imports_from_its_folder_belongs_to_the_target(tmp_path: Path, call: Call) -> None:
    write(tmp_path, "pack_h/__init__.py", "")
    write(tmp_path, "pack_h/deep.py", "import os.path\nimport msgspec\nWORD = 'old'\n")
    write(tmp_path, "pack_h/words.py", "from .deep import WORD\nfrom . import missing_h as _\n")
    write(tmp_path, "pack_h/missing_h.py", "import app_h\n")
    write(tmp_path, "unused_h.py", "")
    write(tmp_path, "app_h.py", "def answer():\n    from pack_h.words import WORD\n    return WORD\n")
    before = build("python:app_h:answer", tmp_path)
    assert call(before, {}).value == "old"
    names = [file.relative_to(tmp_path).as_posix() for file in before.watch]
    assert sorted(names) == ["app_h.py", *(f"pack_h/{name}.py" for name in ("__init__", "deep", "missing_h", "words"))]
    write(tmp_path, "pack_h/deep.py", "WORD = 'newer'\n")
    after = build("python:app_h:answer", tmp_path)
    assert after.digest != before.digest and call(after, {}).value == "newer"


def test_what_is_imported_late_from_a_folder_without_init_is_read_again_too(tmp_path: Path, call: Call) -> None:
    write(tmp_path, "bare_i/words.py", "WORD = 'old'\n")
    write(tmp_path, "app_i.py", "def answer():\n    from bare_i import words\n    return words.WORD\n")
    assert call(build("python:app_i:answer", tmp_path), {}).value == "old"
    write(tmp_path, "bare_i/words.py", "WORD = 'newer'\n")
    assert call(build("python:app_i:answer", tmp_path), {}).value == "newer"


def test_what_is_installed_is_not_watched() -> None:
    assert len(build("python:json:loads").watch) <= 1


def test_a_fallback_of_the_function_does_not_make_a_result_of_a_spent_budget(call: Call) -> None:
    async def careful(context: Context) -> str:
        try:
            return (await context.llm(Request([]))).text
        except Exception:
            return "fallback"

    async def spent(request: Request) -> Response:
        raise BudgetSpent("spent")

    with pytest.raises(BudgetSpent):
        call(build_callable(careful), {}, spent)


def test_positions_are_not_mixed_up(fault_of: FaultOf) -> None:
    def function(a: int = 1, b: int = 2, /) -> list[int]:
        return [a, b]

    assert fault_of(build_callable(function), {"b": 3}).code == "target_raised"
