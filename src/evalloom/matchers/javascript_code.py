"""Checks that are JavaScript, written in the check or in a file: `output.length < 80`, `file://check.js:short`.

The code runs in the engine of `core.javascript`, which has limits and reaches nothing, so it needs no permission. It
gets `output` and `context`, and returns what promptfoo takes: true or false, a score, or `{pass, score, reason}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from evalloom.core.errors import usage_error
from evalloom.core.javascript import (
    Code,
    JavaScriptError,
    SlowJavaScript,
    call_in_thread,
    call_quickly,
    why_unavailable,
)
from evalloom.core.model import Check, Record
from evalloom.core.process_state import absolute
from evalloom.core.text import shorten
from evalloom.matchers.base import (
    CheckResult,
    Function,
    MatchContext,
    Matcher,
    Services,
    bad_option,
    number_of,
    returned_scores,
    show,
    text_of,
    threshold_of,
    unscored,
)

_FILE = "file://"
_NAMED = re.compile(r"(?P<path>.+\.[cm]?[jt]s)(?::(?P<function>[\w$.]+))?", re.DOTALL)
_CONTEXT = re.compile(r"\b(context|arguments|function)\b|=>")
_LARGEST = 4 * 2**20
_REASON = 1_000


class _NoFile(Exception):
    """The file of a check cannot be read; the message says why."""


def files_of(checks: Iterable[Check], folder: Path) -> dict[str, Function]:
    """Return functions that give the code of the files that trusted checks name, relative to a folder."""
    files: dict[str, Function] = {}
    for check in checks:
        if check.kind == "javascript" and isinstance(check.expected, str) and check.expected.startswith(_FILE):
            try:
                files[check.expected] = partial(_returned, _code_in_file(check.expected, folder))
            except _NoFile as error:
                raise usage_error("no_such_function", f"check {check.expected!r}: {error}") from None
    return files


def _returned(code: Code) -> Code:
    return code


def _code_in_file(reference: str, folder: Path) -> Code:
    named = _NAMED.fullmatch(reference.removeprefix(_FILE))
    if named is None:
        raise _NoFile(f"expected a JavaScript file such as file://check.js or file://check.js:name, got {reference!r}")
    path = folder / named["path"]
    try:
        if path.stat().st_size > _LARGEST:
            raise _NoFile(f"{path.as_posix()} is larger than {_LARGEST // 2**20} MiB")
        source = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise _NoFile(f"{path.as_posix()} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return Code(source, path.as_posix(), named["function"] or "", folder.as_posix())


def _grade(check: Check, context: MatchContext) -> CheckResult | None:
    code = check.expected
    if not isinstance(code, str) or not code.strip():
        return bad_option("expected", "JavaScript, or a file as file://check.js", code)
    if code.startswith(_FILE) and not check.options.get("file"):
        # Which folder it is in depends on who names it, which only `ask` knows.
        return None
    try:
        return _result(check, call_quickly(_code(check), _names(check, context)))
    except SlowJavaScript:
        return None
    except JavaScriptError as error:
        return _not_returned(check, error)


async def _ask(check: Check, context: MatchContext, services: Services) -> CheckResult:
    try:
        code = _code(check, services, context)
    except _NoFile as error:
        return unscored(f"{show(check.expected)}: {error}")
    names = _names(check, context)
    try:
        try:
            return _result(check, call_quickly(code, names))
        except SlowJavaScript:
            return _result(check, await call_in_thread(code, names))
    except JavaScriptError as error:
        return _not_returned(check, error)


def _code(check: Check, services: Services | None = None, context: MatchContext | None = None) -> Code:
    source, options = check.expected, check.options
    if source.startswith(_FILE) and not options.get("file") and services is not None and context is not None:
        if given := services.functions.get(source):
            code: Code = given()
            return code
        folder = absolute(context.case.origin.file).parent
        code = _code_in_file(source, folder)
        if not Path(code.file).resolve().is_relative_to(folder.resolve()):
            raise _NoFile(f"the file is outside of {folder.as_posix()}, the folder of the file that names it")
        return code
    file, function, folder_ = (str(options.get(name) or "") for name in ("file", "function", "folder"))
    return Code(source, file, function, folder_)


# -- what the code gets ------------------------------------------------------------------------------------


def _names(check: Check, context: MatchContext) -> dict[str, Any]:
    # Most code only looks at the output, and writing the context costs more than running it.
    is_file = bool(check.options.get("file")) or check.expected.startswith(_FILE)
    wants_context = is_file or _CONTEXT.search(check.expected)
    return {"output": context.value, "context": _context(check, context) if wants_context else {}}


def _context(check: Check, context: MatchContext) -> Record:
    case, raw, usage = context.case, context.case.raw, context.usage
    call = _first_call(context.trace)
    response: Record = {
        "output": context.output.value,
        "tokenUsage": {
            "prompt": usage.input_tokens,
            "completion": usage.output_tokens,
            "total": usage.input_tokens + usage.output_tokens,
            "cached": usage.cached_input_tokens,
            "numRequests": usage.calls,
        },
        "cost": usage.cost,
        "latencyMs": round(context.duration_s * 1000),
        "cached": bool(usage.cached),
        "metadata": {},
    }
    if stop := _field(call.get("response"), "stop"):
        response["finishReason"] = stop
    test = {name: raw[name] for name in ("description", "assert", "metadata", "options", "threshold") if name in raw}
    return {
        "prompt": _prompt(call),
        "vars": case.inputs,
        "test": {"metadata": case.meta, **test, "vars": case.inputs},
        "config": check.options.get("config"),
        "provider": {"id": str(_field(call.get("response"), "model") or call.get("llm") or "")},
        "providerResponse": response,
        "metadata": test.get("metadata") or {},
        "logProbs": None,
        "trace": None,
    }


def _first_call(trace: list[Record]) -> Record:
    for entry in trace:
        if entry.get("type") == "step":
            entry = next((call for call in entry.get("calls") or () if call.get("type") == "llm"), {})
        if entry.get("type") == "llm":
            return entry
    return {}


def _prompt(call: Record) -> str:
    """Return the text of the first request, or a chat as JSON."""
    messages: list[Any] = list(_field(call.get("request"), "messages") or [])
    if len(messages) == 1:
        return text_of(_field(messages[0], "content"))
    return text_of([to_builtins(message) for message in messages]) if messages else ""


def _field(value: Any, name: str) -> Any:
    """Return a field of a request or response, which is an object in a run and a dict in a stored one."""
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


# -- what it returns ---------------------------------------------------------------------------------------


def _result(check: Check, returned: Any) -> CheckResult:
    """Convert a returned value as promptfoo does."""
    if isinstance(returned, bool):
        return CheckResult(returned, reason="" if returned else f"{_shown(check)} returned false")
    if isinstance(returned, dict):
        return _result_of_object(check, returned)
    score = number_of(returned)
    if score is None:
        got = "nothing; does it lack a return?" if returned is None else f"{show(returned)}"
        return _refused(check, f"{_shown(check)}: expected true, false, a number or {{pass, score, reason}}, got {got}")
    threshold = check.options.get("threshold")
    if threshold is None:
        return _scored(check, score > 0, score, f"{_shown(check)} returned {score:g}, needed more than 0")
    least = threshold_of(check, 0.0)
    if least is None:
        return bad_option("threshold", "a number", threshold)
    return _scored(check, score >= least, score, f"{_shown(check)} returned {score:g}, needed {least:g}")


def _result_of_object(check: Check, returned: Record) -> CheckResult:
    passed, score, reason = returned.get("pass"), number_of(returned.get("score")), returned.get("reason")
    if not isinstance(passed, bool) or score is None or not isinstance(reason, str):
        wrong = next(
            f"{name} {kind}"
            for name, kind, is_right in (
                ("pass", "as true or false", isinstance(passed, bool)),
                ("score", "as a number", score is not None),
                ("reason", "as a text", isinstance(reason, str)),
            )
            if not is_right
        )
        return _refused(check, f"{_shown(check)}: expected an object with {wrong}, got {show(returned, 200)}")
    result = _scored(check, passed, score, shorten(reason, _REASON))
    return replace(result, named_scores=named) if (named := returned_scores(returned)) else result


def _scored(check: Check, passed: bool, score: float, reason: str) -> CheckResult:
    """Return a result with the score that the code gave, which promptfoo keeps where a check is negated."""
    share = min(1.0, max(0.0, float(score)))
    if check.options.get("negate") is True:
        return CheckResult(passed, float(score), reason, share=1 - share)
    return CheckResult(passed, float(score), reason, share=None if share == score else share)


def _not_returned(check: Check, error: JavaScriptError) -> CheckResult:
    if error.kind in ("unavailable", "engine"):
        return unscored(str(error))
    return _refused(check, f"{_shown(check)}: {error}")


def _refused(check: Check, reason: str) -> CheckResult:
    """Return a failure, also where the check is negated: code that fails says nothing about the output."""
    return CheckResult(check.options.get("negate") is True, reason=shorten(reason, _REASON))


def _shown(check: Check) -> str:
    file, function = check.options.get("file"), check.options.get("function")
    if file:
        return f"{file}:{function}" if function else str(file)
    return show(str(check.expected).strip(), 80)


def _refuses(check: Check) -> str:
    if not isinstance(check.expected, str) or not check.expected.strip():
        return bad_option("expected", "JavaScript, or a file as file://check.js", check.expected).reason
    return why_unavailable()


MATCHERS = (Matcher("javascript", "JavaScript that you write says so", _grade, _ask, refuses=_refuses),)
