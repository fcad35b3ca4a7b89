"""Checks that are Python functions."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Case, Check, Origin, Output
from evalloom.core.sandbox import why_unavailable
from evalloom.matchers import CheckResult, MatchContext, Services, by_kind, functions_of, parse_check


def ask(check: Check, value: Any = "x", services: Services | None = None, file: str = "") -> CheckResult:
    async def run() -> CheckResult:
        matcher = by_kind("python")
        assert matcher is not None and matcher.ask is not None
        case = Case("c", {"q": 1}, origin=Origin(file))
        return await matcher.ask(check, MatchContext(value, Output(value), case), services or Services())

    return asyncio.run(run())


def refuse(value: Any) -> None:
    assert value == "y", "expected y"


async def slowly(value: Any) -> bool:
    return bool(value == "x")


def leave(value: Any) -> None:
    sys.exit("done")


class Puzzling:
    """Says of itself what cannot be computed, as annotations may from Python 3.14 on."""

    @property
    def __signature__(self) -> Any:
        raise NameError("Case")

    def __call__(self, value: Any) -> bool:
        return True


class Raising(Exception):
    """Raises whatever it is asked, as arrays do for their truth value."""

    def _raise(self) -> Any:
        raise ValueError("ambiguous")

    __bool__ = __str__ = __repr__ = _raise


def raise_raising(value: Any) -> None:
    raise Raising


@pytest.mark.parametrize(
    ("function", "passed", "score"),
    [
        (lambda value: value == "x", True, None),
        (lambda value, case: case.id == "other", False, None),
        (lambda value: 0.4, False, 0.4),
        (lambda value: {"pass": True, "score": 0.3, "reason": "why not"}, True, 0.3),
        (lambda value: {"score": 0.9}, True, 0.9),
        (lambda value: 7, None, None),
        (lambda value: "yes", None, None),
        (lambda value: value.nothing, None, None),
        (slowly, True, None),
        (refuse, False, None),
        (leave, None, None),
        (lambda value: slowly(value), True, None),
        (Puzzling(), True, None),
        (lambda value: numpy.float32(1) > 0.5, True, None),
        (lambda value: {"pass": numpy.bool_(False), "score": numpy.float32(0.5)}, False, 0.5),
        (lambda value: Raising(), None, None),
        (lambda value: {"pass": False, "reason": Raising()}, None, None),
        (raise_raising, None, None),
    ],
)
def test_what_functions_may_answer(function: Any, passed: bool | None, score: float | None) -> None:
    found = ask(parse_check({"python": function}))
    assert (found.passed, found.score) == (passed, score)


isolated = pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())


@isolated
def test_code_of_a_data_file_runs_only_when_allowed(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("WORD = 'x'\n")
    (tmp_path / "own_checks_a.py").write_text("from beside import WORD\ndef good(value):\n    return value == WORD\n")
    check = Check("python", "own_checks_a:good", options={"trusted": True})
    file = (tmp_path / "cases.jsonl").as_posix()
    refused = ask(check, file=file)
    assert refused.passed is None and "--allow-code" in refused.reason
    assert ask(check, file=file, services=Services(allow_code=True)).passed
    assert ask(check, services=Services(functions=functions_of([check], tmp_path))).passed


OWN = """
import resource, sys, time
def read(value): return open(value).read()
def together(value): return "pytest" in sys.modules
def about(value, case): return (value, case["id"], case["inputs"], case["tags"]) == ("x", "c", {"q": 1}, [])
def half(value, *rest): return {"score": len(rest) / 2}
def refuse(value): assert value == "y", "expected y"
def odd(value): return {1: 2}
def wait(value): time.sleep(600)
async def later(value): return value == "x"
def allowed(value): return resource.getrlimit(resource.RLIMIT_CPU)[0] <= 61
def talk(value): return {"pass": True, "reason": "z" * 3_000_000}
"""


@isolated
@pytest.mark.req("PIPE-12")
@pytest.mark.parametrize(
    ("name", "value", "passed", "said"),
    [
        ("read", __file__, None, "PermissionError"),
        ("together", "x", False, "gave false"),
        ("about", "x", True, ""),
        ("half", "x", True, ""),
        ("later", "x", True, ""),
        ("refuse", "x", False, "expected y (own.py:7)"),
        ("odd", "x", None, "not JSON"),
        ("wait", "x", None, "no answer within 0.3 s [code_timeout]; timeout_s sets"),
        ("nope", "x", None, "there is no 'nope' in own"),
    ],
)
def test_code_of_a_data_file_runs_in_the_sandbox(
    name: str, value: Any, passed: bool | None, said: str, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    check = Check("python", f"own:{name}", options={"timeout_s": 0.3} if name == "wait" else {})
    found = ask(check, value, Services(allow_code=True), f"{tmp_path.as_posix()}/cases.jsonl")
    assert found.passed is passed and said in found.reason


@isolated
@pytest.mark.parametrize("wanted", [100_000, 1e300])
def test_a_data_file_cannot_give_its_code_more_than_a_minute(wanted: float, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    check = Check("python", "own:allowed", options={"timeout_s": wanted})
    assert ask(check, services=Services(allow_code=True), file=f"{tmp_path.as_posix()}/cases.jsonl").passed


@isolated
def test_long_reasons_are_cut(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    trusted = ask(parse_check({"python": lambda value: CheckResult(True, 1, "z" * 5_000)}))
    file = f"{tmp_path.as_posix()}/cases.jsonl"
    foreign = ask(Check("python", "own:talk"), services=Services(allow_code=True), file=file)
    assert trusted.passed and foreign.passed
    assert trusted.reason == foreign.reason == "z" * 999 + "…"


def test_code_inside_a_file_never_runs() -> None:
    found = ask(Check("python", "__import__('os').getpid() > 0"), services=Services(allow_code=True))
    assert found.passed is None and "module:function" in found.reason


@isolated
def test_functions_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "own_checks_b.py").write_text("raise RuntimeError('boom')\n")
    for name, said in (("own_checks_b:f", "boom"), ("own_checks_c:f", "cannot import"), ("json:nope", "there is no")):
        with pytest.raises(EvalloomError, match=said):
            functions_of([Check("python", name)], tmp_path)
        found = ask(Check("python", name), services=Services(allow_code=True), file=f"{tmp_path.as_posix()}/c.jsonl")
        assert found.passed is None and said in found.reason


HANGS = """
import asyncio, time
from evalloom.matchers import Seen, Services, by_kind, parse_check
from evalloom.core.model import Case, Output
check = parse_check({"python": lambda value: time.sleep(600), "timeout_s": 0.05})
seen = Seen("x", Output("x"), Case("c", {}))
print(asyncio.run(by_kind("python").ask(check, seen, Services())).reason)
"""


def test_a_function_that_hangs_is_unscored_and_does_not_keep_us_from_ending() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=30)
    assert "within 0.05 s" in done.stdout and "timeout_s" in done.stdout

    async def wait(value: Any) -> None:
        await asyncio.sleep(600)

    assert "within 0.05 s" in ask(parse_check({"python": wait, "timeout_s": 0.05})).reason
    assert ask(parse_check({"python": wait, "timeout_s": "soon"})).passed is None


def test_a_function_gets_a_copy() -> None:
    value = {"items": [1, 2]}
    assert ask(parse_check({"python": lambda given: given["items"].pop() == 2}), value).passed
    assert value == {"items": [1, 2]}


def test_functions_of_checks_inside_checks_are_found() -> None:
    inside: Any = {"json_path": "$.a", "check": {"python": "json:dumps"}}
    assert list(functions_of([parse_check(inside)])) == ["json:dumps"]
    assert list(functions_of([Check("json_path", "$.a", options={"check": inside["check"]})])) == ["json:dumps"]


def test_files_of_promptfoo_are_not_run() -> None:
    found = ask(Check("python", "file://chk.py:get_assert"), services=Services(allow_code=True))
    assert found.passed is None and "promptfoo" in found.reason and "module:function" in found.reason
