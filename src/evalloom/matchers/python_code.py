"""Checks that are Python functions of the user: `module:function`, called with the value and the case.

Code that a data file names is not ours to run. A function runs when the user named it in a trusted place (the
`functions` of the services), handed it over in Python (`options["function"]`: no file can hold a function), or said
`--allow-code`. A text that is code itself is never run.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from evalloom.errors import usage_error
from evalloom.functions import NoFunction, find_function
from evalloom.matchers.matcher import (
    Function,
    Grade,
    Matcher,
    Seen,
    Services,
    bad_option,
    failed,
    number_of,
    show,
    threshold_of,
    unscored,
)
from evalloom.model import Case, Check

_NAME = re.compile(r"[^\W\d]\w*(?:\.\w+)*:[^\W\d]\w*(?:\.\w+)*")


def functions_of(checks: Iterable[Check], folder: Path = Path()) -> dict[str, Function]:
    """The functions that trusted checks name, by that name, looked up beside the file that names them."""
    found: dict[str, Function] = {}
    for check in checks:
        if check.kind == "python" and isinstance(check.expected, str) and _NAME.fullmatch(check.expected):
            try:
                found[check.expected] = find_function(check.expected, folder)[0]
            except NoFunction as fault:
                raise usage_error("no_such_function", f"check {check.expected!r}: {fault}") from None
    return found


@lru_cache(maxsize=256)
def _looked_up(name: str, folder: Path) -> Function:
    function: Function = find_function(name, folder)[0]
    return function


async def _python(check: Check, seen: Seen, services: Services) -> Grade:
    function = _allowed(check, seen.case, services)
    if isinstance(function, Grade):
        return function
    try:
        given = (seen.value, seen.case) if takes_case(function) else (seen.value,)
        if inspect.iscoroutinefunction(function):
            answer = await function(*given)
        else:
            # A slow function must not hold up the other runs.
            answer = await asyncio.to_thread(function, *given)
    except AssertionError as fault:
        return failed(f"{_shown(check)}: {show(str(fault), 200)}" if str(fault) else f"{_shown(check)} refused it")
    except Exception as fault:  # the user's code may raise anything
        return unscored(f"{_shown(check)} raised {type(fault).__name__}: {show(str(fault), 200)}")
    return _grade_of(answer, check)


def _allowed(check: Check, case: Case, services: Services) -> Function | Grade:
    given = check.options.get("function")
    if callable(given):
        function: Function = given
        return function
    name = check.expected
    if not isinstance(name, str):
        return bad_option("expected", "a function as module:function", name)
    if name in services.functions:
        return services.functions[name]
    if not _NAME.fullmatch(name):
        return unscored(f"code inside a data file is not run: {show(name)}; name a function as module:function")
    if not services.allow_code:
        return unscored(f"{name}: code that a data file names is not run unless you say --allow-code")
    try:
        return _looked_up(name, Path(case.origin.file).parent)
    except NoFunction as fault:
        return unscored(str(fault))


def takes_case(function: Function) -> bool:
    """Whether a function takes the case beside the value."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return len(positional) > 1 or any(one.kind == one.VAR_POSITIONAL for one in parameters)


def _grade_of(answer: Any, check: Check) -> Grade:
    """A function's answer: true or false, a number from 0 to 1, or an object with pass, score and reason."""
    if isinstance(answer, Grade):
        return answer
    if isinstance(answer, bool):
        return Grade(answer, reason="" if answer else f"{_shown(check)} gave false")
    threshold = threshold_of(check, 0.5)
    if threshold is None:
        return bad_option("threshold", "a number", check.options.get("threshold"))
    if isinstance(answer, dict):
        return _grade_of_object(answer, check, threshold)
    score = number_of(answer)
    if score is None or not 0 <= score <= 1:
        return unscored(f"{_shown(check)}: expected true, false, a number from 0 to 1 or an object, got {show(answer)}")
    return Grade(score >= threshold, float(score), f"{_shown(check)} gave {score:g}, needed {threshold:g}")


def _grade_of_object(answer: dict[str, Any], check: Check, threshold: float) -> Grade:
    passed, score = answer.get("pass", answer.get("passed")), number_of(answer.get("score"))
    if not isinstance(passed, bool) and score is None:
        return unscored(f"{_shown(check)}: expected an object with pass or score, got {show(answer)}")
    if score is not None and not 0 <= score <= 1:
        return unscored(f"{_shown(check)}: score: expected a number from 0 to 1, got {show(score)}")
    is_passed = passed if isinstance(passed, bool) else score is not None and score >= threshold
    return Grade(is_passed, None if score is None else float(score), str(answer.get("reason") or ""))


def _shown(check: Check) -> str:
    function = check.options.get("function")
    return str(getattr(function, "__qualname__", function)) if callable(function) else str(check.expected)


MATCHERS = (Matcher("python", "a Python function of yours says so", ask=_python),)
