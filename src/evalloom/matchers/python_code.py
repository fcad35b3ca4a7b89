"""Checks that are Python functions of the user: `module:function`, called with the value and the case.

Code that a data file names is not ours to run. A function runs in this process when the user named it in a trusted
place (the `functions` of the services) or handed it over in Python (`options["function"]`: no file can hold a
function). One that only a data file names runs when the user said `--allow-code`, in the sandbox, where it gets the
case as a plain dict and has a minute at most, whatever its file says. A text that is code itself is never run.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from evalloom.core.errors import CallError, usage_error
from evalloom.core.functions import NoFunction, copied, find_function
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Check, Need
from evalloom.core.process_state import absolute
from evalloom.core.text import shorten
from evalloom.core.threads import Threads
from evalloom.core.user_loop import run_on_user_loop
from evalloom.core.value import plain
from evalloom.matchers.base import (
    CheckResult,
    Function,
    MatchContext,
    Matcher,
    Services,
    bad_option,
    failed,
    number_of,
    show,
    threshold_of,
    unscored,
)

_NAME = lazy_pattern(r"[^\W\d]\w*(?:\.\w+)*:[^\W\d]\w*(?:\.\w+)*")
_TIMEOUT_S = 60
_MAX_SANDBOXED_S = 60
_REASON = 1_000
"""The maximum length of a reason, which is written for each run."""
# Not the pool of the standard library, which waits at exit for a function that hangs.
_THREADS = Threads()


def functions_of(checks: Iterable[Check], folder: Path = Path()) -> dict[str, Function]:
    """Return the functions that trusted checks name, by name, searched beside the file that names them."""
    functions: dict[str, Function] = {}
    for check in checks:
        if check.kind == "python" and isinstance(check.expected, str) and _NAME.fullmatch(check.expected):
            try:
                functions[check.expected] = find_function(check.expected, folder)[0]
            except NoFunction as error:
                raise usage_error("no_such_function", f"check {check.expected!r}: {error}") from None
    return functions


async def _python(check: Check, context: MatchContext, services: Services) -> CheckResult:
    grade = await _grade(check, context, services)
    return structs.replace(grade, reason=shorten(grade.reason, _REASON))


async def _grade(check: Check, context: MatchContext, services: Services) -> CheckResult:
    function = _allowed(check, services)
    if isinstance(function, CheckResult):
        return function
    limit = number_of(check.options.get("timeout_s", _TIMEOUT_S))
    if limit is None or limit <= 0:
        return bad_option("timeout_s", "a number of seconds", check.options["timeout_s"])
    if function is None:
        return await _grade_in_sandbox(check, context, min(limit, _MAX_SANDBOXED_S))
    try:
        # Here too, because what the user's code returns may raise when it is looked at, as an array does.
        return _grade_of(await _called(function, context, limit), check)
    except AssertionError as error:
        text = _text_of(error)
        return failed(f"{_shown(check)}: {show(text, 200)}" if text else f"{_shown(check)} refused it")
    except CallError as error:
        if error.code == "timeout":
            late = error.message.partition(": ")[2]
            reason = f"{_shown(check)} gave no answer within {limit:g} s; timeout_s sets how long it may take"
            return unscored(f"{reason}: {late}" if late else reason)
        return unscored(f"{_shown(check)}: {error}")
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return unscored(f"{_shown(check)} was cancelled from inside")
    except BaseException as error:  # the user's code may raise anything
        return unscored(f"{_shown(check)} raised {type(error).__name__}: {show(_text_of(error), 200)}")


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the user's code: an exception may compute its text
        return "its text cannot be shown"


async def _grade_in_sandbox(check: Check, context: MatchContext, limit: float) -> CheckResult:
    """Call a function that only a data file names, searched beside that file or among the installed packages."""
    from evalloom.core.sandbox import Call, Code, Limits, run_code

    case = context.case
    described = {"id": case.id, "inputs": case.inputs, "tags": case.tags, "meta": case.meta, "raw": case.raw}
    code = Code(reference=check.expected, folder=absolute(case.origin.file).parent)
    try:
        (done,) = await run_code(code, [Call(ordered=(context.value, described))], Limits(cpu_s=limit, wall_s=limit))
    except CallError as error:
        most = f"; timeout_s sets how long it may take, {_MAX_SANDBOXED_S} s at most"
        hint = most if error.code == "code_timeout" else ""
        return unscored(f"{_shown(check)}: {error}{hint}")
    if done.error.startswith("AssertionError"):
        return failed(f"{_shown(check)}: {show(done.error.removeprefix('AssertionError').lstrip(': '), 200)}")
    if done.error:
        return unscored(f"{_shown(check)} raised {done.error}")
    return _grade_of(done.value, check)


async def _called(function: Function, context: MatchContext, limit: float) -> Any:
    """Call a function where it cannot block other runs: on the loop of users' code, or in a thread."""
    value = copied(context.value)
    call = partial(function, value, context.case) if takes_case(function) else partial(function, value)
    name = str(getattr(function, "__qualname__", type(function).__qualname__))
    if inspect.iscoroutinefunction(function):
        return await run_on_user_loop(call, name, limit)
    answer = await _THREADS.run(call, name, limit)
    return await run_on_user_loop(lambda: answer, name, limit) if inspect.isawaitable(answer) else answer


def _allowed(check: Check, services: Services) -> Function | CheckResult | None:
    """Return the function to call; None if it runs in the sandbox; or why there is none."""
    function: Function | None = check.options.get("function")
    if callable(function):
        return function
    name = check.expected
    if not isinstance(name, str):
        return bad_option("expected", "a function as module:function", name)
    if name in services.functions:
        return services.functions[name]
    if name.startswith("file://"):
        return unscored(f"{show(name)}: promptfoo's Python files are not run; name a function as module:function")
    if not _NAME.fullmatch(name):
        return unscored(f"code inside a data file is not run: {show(name)}; name a function as module:function")
    if not services.allow_code:
        return unscored(f"{name}: code that a data file names is not run unless you say --allow-code")
    return None


def takes_case(function: Function) -> bool:
    """Return whether a function takes the case in addition to the value."""
    try:
        parameters = _signature(function).parameters.values()
    except Exception:  # the user's code: what a function says of itself may be computed
        return False
    kinds = [parameter.kind for parameter in parameters]
    positional = kinds.count(inspect.Parameter.POSITIONAL_ONLY) + kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return positional > 1 or inspect.Parameter.VAR_POSITIONAL in kinds


def _signature(function: Function) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        # Annotations are evaluated late there, and may name what is not imported at run time.
        return inspect.signature(function, annotation_format=Format.STRING)
    return inspect.signature(function)


def _grade_of(answer: Any, check: Check) -> CheckResult:
    """Convert a return value: true or false, a number from 0 to 1, or an object with pass, score and reason."""
    if isinstance(answer, CheckResult):
        return answer
    answer = _without_numpy(answer)
    if isinstance(answer, bool):
        return CheckResult(answer, reason="" if answer else f"{_shown(check)} gave false")
    threshold = threshold_of(check, 0.5)
    if threshold is None:
        return bad_option("threshold", "a number", check.options.get("threshold"))
    if isinstance(answer, dict):
        return _grade_of_object(answer, check, threshold)
    score = number_of(answer)
    if score is None or not 0 <= score <= 1:
        return unscored(f"{_shown(check)}: expected true, false, a number from 0 to 1 or an object, got {show(answer)}")
    return CheckResult(score >= threshold, float(score), f"{_shown(check)} gave {score:g}, needed {threshold:g}")


def _without_numpy(value: Any) -> Any:
    """A comparison of numpy numbers is no bool."""
    return plain(value) if type(value).__module__ == "numpy" else value


def _grade_of_object(answer: dict[str, Any], check: Check, threshold: float) -> CheckResult:
    answer = {name: _without_numpy(value) for name, value in answer.items()}
    passed, score = answer.get("pass", answer.get("passed")), number_of(answer.get("score"))
    if not isinstance(passed, bool) and score is None:
        return unscored(f"{_shown(check)}: expected an object with pass or score, got {show(answer)}")
    if score is not None and not 0 <= score <= 1:
        return unscored(f"{_shown(check)}: score: expected a number from 0 to 1, got {show(score)}")
    is_passed = passed if isinstance(passed, bool) else score is not None and score >= threshold
    return CheckResult(is_passed, None if score is None else float(score), str(answer.get("reason") or ""))


def _shown(check: Check) -> str:
    function = check.options.get("function")
    return str(getattr(function, "__qualname__", function)) if callable(function) else str(check.expected)


def _refuses(check: Check) -> str:
    result = _allowed(check, Services(allow_code=True))
    return result.reason if isinstance(result, CheckResult) else ""


def _needs(check: Check) -> Need:
    return "" if callable(check.options.get("function")) else "code"


MATCHERS = (Matcher("python", "a Python function of yours says so", ask=_python, needs=_needs, refuses=_refuses),)
