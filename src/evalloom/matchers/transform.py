"""Transforms: steps in the options of a check that change the value before it is checked.

A step is an object with `language` (`javascript` or `python`) and `source`; code of a file also has `file`, `folder`
and `function`. The language `text` makes JSON of the value. Code gets the value as `output`, and a `context` with the
`vars` of the case. Steps run when a run is scored, so rescoring applies them without calling the target. JavaScript
reaches nothing and always runs; Python only with `--allow-code`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from evalloom.core.errors import CallError
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Check, Record
from evalloom.core.text import shorten
from evalloom.matchers.base import CheckResult, MatchContext, Services, failed, show, text_of, unscored

if TYPE_CHECKING:
    from evalloom.core.javascript import Code

_OPTIONS = ("transform", "sources_transform")
_LANGUAGES = ("javascript", "python", "text")
_LIMIT_S = 60.0
_REASON = 500
_NAME = lazy_pattern(r"[^\W\d]\w*")


def has_transforms(check: Check) -> bool:
    """Whether a check changes the value, or the sources, before it looks at them."""
    return "transform" in check.options or "sources_transform" in check.options


def transform_now(check: Check, context: MatchContext) -> MatchContext | CheckResult | None:
    """Return the context after the transforms of a check, or why there is none; None if it takes `transform`."""
    from evalloom.core.javascript import JavaScriptError, SlowJavaScript, call_quickly

    for option, step in _steps(check):
        if isinstance(step, str):
            return unscored(step)
        if step["language"] == "text":
            context = _changed(context, option, text_of(context.value))
            continue
        if step["language"] != "javascript":
            return None
        try:
            value = call_quickly(_javascript(step), _arguments(option, context))
        except SlowJavaScript:
            return None
        except JavaScriptError as error:
            return _failure(step, str(error), error.kind == "unavailable")
        if value is None:
            return _failure(step, "it returned nothing")
        context = _changed(context, option, value)
    return context


async def transform(check: Check, context: MatchContext, services: Services) -> MatchContext | CheckResult:
    """Return the context after the transforms of a check, or why there is none."""
    for option, step in _steps(check):
        if isinstance(step, str):
            return unscored(step)
        if step["language"] == "text":
            value: Any = text_of(context.value)
        else:
            try:
                value = await call_step(step, _arguments(option, context), services)
            except StepFailed as failure:
                return unscored(str(failure)) if failure.is_ours else failed(str(failure))
        if value is None:
            return _failure(step, "it returned nothing")
        context = _changed(context, option, value)
    return context


class StepFailed(Exception):
    """Why a step gave no value; `is_ours` if its code did not run: it is not allowed, or something is not installed."""

    def __init__(self, step: Any, reason: str, is_ours: bool = False) -> None:
        super().__init__(shorten(f"{_shown(step)}: {reason}", _REASON))
        self.is_ours = is_ours


async def call_step(step: Any, arguments: Record, services: Services) -> Any:
    """Return what the code of a step returns: inline code gets the arguments by name. Raises StepFailed."""
    from evalloom.core.javascript import JavaScriptError, call_in_thread

    if not _is_step(step):
        raise StepFailed({}, f"expected a step with language and source, got {show(step)}", is_ours=True)
    if step["language"] == "python" and not services.allow_code:
        raise StepFailed(step, "Python that a data file names is not run unless you say --allow-code", is_ours=True)
    try:
        if step["language"] == "javascript":
            return await call_in_thread(_javascript(step), arguments)
        return await _python(step, arguments)
    except JavaScriptError as error:
        raise StepFailed(step, str(error), error.kind == "unavailable") from None
    except CallError as error:
        raise StepFailed(step, str(error), is_ours=True) from None


def _is_step(step: Any) -> bool:
    if not isinstance(step, dict) or step.get("language") not in _LANGUAGES:
        return False
    return all(isinstance(step.get(name, ""), str) for name in ("source", "file", "folder", "function"))


def _steps(check: Check) -> Iterator[tuple[str, Record | str]]:
    """Yield the option and the step of each transform; a text says why it is not one."""
    for option in _OPTIONS:
        steps = check.options.get(option, ())
        for step in steps if isinstance(steps, list | tuple) else [steps]:
            if not _is_step(step):
                yield option, f"{option}: expected a step with language and source, got {show(step)}"
            else:
                yield option, step


def _arguments(option: str, context: MatchContext) -> Record:
    return {"output": context.value, "context": {"vars": context.case.inputs, "prompt": {}, "metadata": {}}}


def _javascript(step: Record) -> Code:
    from evalloom.core.javascript import Code

    return Code(step.get("source", ""), step.get("file", ""), step.get("function", ""), step.get("folder", ""))


async def _python(step: Record, arguments: Record) -> Any:
    from evalloom.core.sandbox import Call, Code, Limits, run_code

    path, function = Path(step.get("file", "")), step.get("function", "")
    if path.name and _NAME.fullmatch(path.stem) and _NAME.fullmatch(function):
        code = Code(reference=f"{path.stem}:{function}", folder=path.parent)
    else:
        code = Code(text=step.get("source", ""), entry=(function,) if function else ())
    call = Call(ordered=tuple(arguments.values()))
    (done,) = await run_code(code, [call], Limits(cpu_s=_LIMIT_S, wall_s=_LIMIT_S))
    if done.error:
        raise StepFailed(step, f"it raised {done.error}")
    return done.value


def _changed(context: MatchContext, option: str, value: Any) -> MatchContext:
    if option == "transform":
        return structs.replace(context, value=value)
    sources = value if isinstance(value, list) else [value]
    return structs.replace(context, output=structs.replace(context.output, sources=sources))


def _failure(step: Record, reason: str, is_ours: bool = False) -> CheckResult:
    """The code failed, so nothing can be expected of its value; what only we lack leaves the check unscored."""
    text = shorten(f"{_shown(step)}: {reason}", _REASON)
    return unscored(text) if is_ours else failed(text)


def _shown(step: Record) -> str:
    file = step.get("file")
    return f"transform {Path(file).name if file else show(step.get('source', ''))}"
