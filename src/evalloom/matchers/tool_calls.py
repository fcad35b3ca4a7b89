"""The check `tool_calls`: expected tools and their arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from evalloom.core.model import Check
from evalloom.llms.answer_json import NO_JSON, loads
from evalloom.matchers.base import CheckResult, MatchContext, Matcher, bad_option, show, threshold_of, unscored
from evalloom.matchers.structural import CompareRules, compare

_LISTS = ("tool_calls", "tools_called", "calls")
_ARGUMENTS = ("arguments", "args", "input_parameters", "inputParameters", "parameters", "input")
_LENIENT = CompareRules(has_patterns=False)


class ToolCall(NamedTuple):
    """One call: the tool's name, and its arguments where they are known."""

    name: str
    arguments: Any


def read_call(written: Any) -> ToolCall | None:
    """Parse a call as users write it: a name, `{name, arguments}`, or the form of the chat API."""
    if isinstance(written, str):
        return ToolCall(written, None) if written else None
    if not isinstance(written, dict):
        return None
    if isinstance(written.get("function"), dict):
        written = written["function"]
    name = next((written[key] for key in ("name", "tool", "function") if isinstance(written.get(key), str)), None)
    if name is None:
        return None
    arguments = next((written[key] for key in _ARGUMENTS if written.get(key) is not None), None)
    if isinstance(arguments, str):
        parsed = loads(arguments)
        arguments = arguments if parsed is NO_JSON else parsed
    return ToolCall(name, arguments)


def _calls_in(value: Any) -> Iterator[ToolCall]:
    """Yield the calls in a list, in the lists of calls of an object, or else in those of its steps."""
    if isinstance(value, list | tuple):
        yield from (call for item in value if (call := read_call(item)) is not None)
    elif isinstance(value, dict):
        for holders in ([value], [step for step in value.values() if isinstance(step, dict)]):
            lists = [holder[name] for holder in holders for name in _LISTS if isinstance(holder.get(name), list)]
            if lists:
                for calls in lists:
                    yield from _calls_in(calls)
                return


def _tool_calls(check: Check, context: MatchContext) -> CheckResult:
    written = check.expected if isinstance(check.expected, list | tuple) else [check.expected]
    expected = [call for item in written if (call := read_call(item)) is not None]
    if not expected or len(expected) < len(written):
        return bad_option("expected", "a list of tool calls", check.expected)
    threshold = threshold_of(check, 1.0)
    if threshold is None:
        return bad_option("threshold", "a share between 0 and 1", check.options.get("threshold"))
    places = (context.value, context.output.value, context.output.steps)
    actual = next((calls for place in places if (calls := list(_calls_in(place)))), [])
    if not actual and not _reports_calls(context):
        return unscored("the run reports no tool calls; return them as 'tool_calls' of the output or of a step")
    missing, extra = _unmatched(expected, actual, check.options.get("ordered") is True)
    return _graded(check, expected, missing, extra, threshold)


def _reports_calls(context: MatchContext) -> bool:
    places = [context.value, context.output.value, context.output.steps, *context.output.steps.values()]
    return any(
        isinstance(place, list) or (isinstance(place, dict) and any(name in place for name in _LISTS))
        for place in places
    )


def _graded(
    check: Check, expected: list[ToolCall], missing: list[ToolCall], extra: list[ToolCall], threshold: float
) -> CheckResult:
    score = 1 - len(missing) / len(expected)
    if missing and score < threshold - 1e-9:
        return CheckResult(False, score, f"missing the calls {_shown(missing)}; other calls: {_shown(extra)}")
    if extra and check.options.get("exact") is True:
        return CheckResult(False, score, f"unexpected calls: {_shown(extra)}")
    return CheckResult(True, score, f"made {len(expected) - len(missing)} of {len(expected)} expected calls")


def _unmatched(
    expected: list[ToolCall], actual: list[ToolCall], ordered: bool
) -> tuple[list[ToolCall], list[ToolCall]]:
    """Return the expected calls that are missing, and the calls that were not expected."""
    missing, extra = [], list(actual)
    start = 0
    # Calls with arguments choose first, so that a bare name does not take their match.
    for call in expected if ordered else sorted(expected, key=lambda call: call.arguments is None):
        at = next((at for at in range(start, len(extra)) if _matches(call, extra[at])), None)
        if at is None:
            missing.append(call)
        else:
            del extra[at]
            start = at if ordered else 0
    return missing, extra


def _matches(expected: ToolCall, actual: ToolCall) -> bool:
    if expected.name != actual.name:
        return False
    return expected.arguments is None or not compare(expected.arguments, actual.arguments, _LENIENT).mismatches


def _shown(calls: list[ToolCall]) -> str:
    return (
        ", ".join(call.name if call.arguments is None else f"{call.name}({show(call.arguments)})" for call in calls[:8])
        or "none"
    )


MATCHERS = (Matcher("tool_calls", "the expected tools were called, with the expected arguments", _tool_calls),)
