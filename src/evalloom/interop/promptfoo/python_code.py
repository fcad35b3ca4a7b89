"""The asserts of promptfoo that are Python: inline code, or a function in a file, in the sandbox.

The function gets the output and promptfoo's `context`, and returns true or false, a score, or an object with `pass`,
`score` and `reason`. It runs only with `--allow-code`, because it comes with the data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evalloom.core.errors import CallError
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Case, Check, Record
from evalloom.core.text import shorten
from evalloom.llms.answer_json import NO_JSON, loads
from evalloom.matchers.base import (
    CheckResult,
    MatchContext,
    Services,
    bad_option,
    failed,
    number_of,
    returned_scores,
    show,
    unscored,
)
from evalloom.matchers.responses import last_call

ENTRY = "get_assert"
_LIMIT_S = 60.0
_REASON = 1_000
_NAME = lazy_pattern(r"[^\W\d]\w*")
_INDENTED = lazy_pattern(r"(?m)^(?!\s*$)[ \t]+")
_NUMBER = lazy_pattern(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def inline(source: str) -> str:
    """Return inline code as a module with the function `main`: one line is what it returns, several are its body."""
    if "\n" not in source.rstrip():
        return f"import json\n\ndef main(output, context):\n    return {source.strip()}\n"
    # The indentation that the code itself uses, so that tabs and spaces do not mix.
    indent = match[0] if (match := _INDENTED.search(source)) else "    "
    body = "\n".join(f"{indent}{line}" for line in source.split("\n"))
    return f"import json\n\ndef main(output, context):\n{body}\n"


def context_of(case: Case, check: Check, value: Any, trace: list[Record]) -> Record:
    """Return promptfoo's `context` of an assert."""
    call = last_call(trace)
    request = call.get("request") or {}
    messages = request.get("messages") or []
    prompt = messages[0].get("content") if len(messages) == 1 else messages or None
    response = call.get("response") or {}
    test = {name: case.raw[name] for name in case.raw if name not in ("defaultTest", "basePath")}
    context: Record = {
        "vars": case.inputs,
        "prompt": prompt,
        "test": {**test, "vars": case.inputs, "metadata": case.meta.get("metadata") or {}},
        "providerResponse": {"output": value, **({"finishReason": response["stop"]} if response.get("stop") else {})},
        "provider": {"id": call.get("llm", "")},
    }
    return {**context, "config": check.options["config"]} if check.options.get("config") else context


async def ask(check: Check, context: MatchContext, services: Services) -> CheckResult:
    """Return the result of the code of a check; unscored if it may not run."""
    if not isinstance(check.expected, str):
        return bad_option("expected", "Python code", check.expected)
    if not services.allow_code:
        return unscored(f"{_shown(check)}: code of a data file is not run unless you say --allow-code")
    try:
        value = await run(check, context)
    except CallError as error:
        return unscored(f"{_shown(check)}: {error}")
    except _Raised as error:
        return failed(shorten(f"{_shown(check)} raised {error}", _REASON))
    return result_of(value, check)


class _Raised(Exception):
    """What the code raised."""


async def run(check: Check, context: MatchContext, entry: str = ENTRY) -> Any:
    """Return what the code of a check returns. Raises CallError, and _Raised for an exception of the code."""
    from evalloom.core.sandbox import Call, Code, Limits, run_code

    arguments = (context.value, context_of(context.case, check, context.output.value, context.trace))
    limits = Limits(cpu_s=_LIMIT_S, wall_s=_LIMIT_S)
    (done,) = await run_code(_code(check, entry, Code), [Call(ordered=arguments)], limits)
    if done.error:
        raise _Raised(done.error)
    return done.value


def _code(check: Check, entry: str, make: Any) -> Any:
    """Return the code of a check: by reference if it is in a file, so that it can import what is beside it."""
    file, function = check.options.get("file"), check.options.get("entry") or entry
    if not isinstance(file, str) or not file:
        return make(text=inline(check.expected), entry=("main",))
    path = Path(file)
    if _NAME.fullmatch(path.stem) and _NAME.fullmatch(str(function)):
        return make(reference=f"{path.stem}:{function}", folder=path.parent)
    return make(text=check.expected, entry=(str(function),))


def result_of(value: Any, check: Check) -> CheckResult:
    """Convert what the code returned, as promptfoo does: without a threshold, a score above 0 passes."""
    if isinstance(value, str):
        word = value.lower()
        parsed = loads(value) if value.startswith("{") else NO_JSON
        number = _NUMBER.match(value)
        if word in ("true", "false"):
            value = word == "true"
        elif parsed is not NO_JSON:
            value = parsed
        elif number:
            value = float(number[0])
    if isinstance(value, bool):
        return CheckResult(value, float(value), "" if value else f"{_shown(check)} gave false")
    threshold = number_of(check.options.get("threshold"))
    if isinstance(value, dict):
        return _result_of_object(value, check, threshold)
    score = number_of(value)
    if score is None:
        return failed(f"{_shown(check)}: expected true, false, a number or an object, got {show(value)}")
    passed = score > 0 if threshold is None else score >= threshold
    needed = "more than 0" if threshold is None else f"{threshold:g}"
    return CheckResult(passed, float(score), f"{_shown(check)} gave {score:g}, needed {needed}")


def _result_of_object(value: Record, check: Check, threshold: float | None) -> CheckResult:
    passed = value.get("pass", value.get("pass_"))
    score, reason = number_of(value.get("score")), value.get("reason")
    if not isinstance(passed, bool) or score is None or not isinstance(reason, str):
        return failed(f"{_shown(check)}: expected an object with pass, score and reason, got {show(value)}")
    reason = shorten(reason, _REASON)
    if threshold is not None and score < threshold:
        passed, reason = False, f"score {score:g}, needed {threshold:g}: {reason}"
    reason = reason or ("" if passed else _shown(check))
    return CheckResult(passed, float(score), reason, named_scores=returned_scores(value))


def _shown(check: Check) -> str:
    file = check.options.get("file")
    if isinstance(file, str) and file:
        return f"{Path(file).name}:{check.options.get('entry') or ENTRY}"
    return f"the Python code {show(' '.join(str(check.expected).split()))}"
