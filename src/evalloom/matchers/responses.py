"""What an llm reports beside its text: why it stopped, and calls of tools, which must fit the tools of the request."""

from __future__ import annotations

from typing import Any

import msgspec

from evalloom.core.json_schema import first_line, validator
from evalloom.core.model import Check, Record
from evalloom.llms.answer_json import NO_JSON, loads
from evalloom.matchers.base import (
    PASSED,
    CheckResult,
    MatchContext,
    Matcher,
    bad_option,
    failed,
    show,
    text_of,
    threshold_of,
)

_MCP = "MCP Tool Result", "MCP Tool Error"


def last_call(trace: list[Record]) -> Record:
    """Return the last call of an llm in a trace, its `request` and `response` as objects; empty if there is none."""
    last: Record = {}
    for entry in trace:
        if entry.get("type") == "llm":
            last = entry
        elif isinstance(entry.get("calls"), list):
            last = last_call(entry["calls"]) or last
    # A run that was just made has structs in its trace; one that was read from the batch log has objects.
    return {
        name: msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value for name, value in last.items()
    }


def _response(context: MatchContext) -> Record:
    response = last_call(context.trace).get("response")
    return response if isinstance(response, dict) else {}


def _finish_reason(check: Check, context: MatchContext) -> CheckResult:
    if not isinstance(check.expected, str):
        return bad_option("expected", "stop, length, content_filter or tool_calls", check.expected)
    stop = _response(context).get("stop")
    if not stop:
        return failed("the llm gave no reason for the end of its answer")
    if check.expected.lower() == str(stop).lower():
        return PASSED
    return failed(f"expected the answer to end with {show(check.expected)}, got {show(stop)}")


def _guardrails(check: Check, context: MatchContext) -> CheckResult:
    if _response(context).get("stop") == "content_filter":
        return failed("the content filter of the llm stopped the answer")
    return PASSED


def _calls(context: MatchContext) -> Any:
    """Return the calls of tools as the run has them: the output itself, in its steps, or in the response."""
    value = context.value
    if isinstance(value, str) and (parsed := loads(value)) is not NO_JSON and isinstance(parsed, dict | list):
        value = parsed
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        return value["tool_calls"]
    if isinstance(value, list | dict) and value:
        return value
    return context.output.steps.get("tool_calls") or _response(context).get("tool_calls") or value


def _tools(context: MatchContext) -> list[Record]:
    """Return the functions that the request offered."""
    request = last_call(context.trace).get("request")
    offered = request.get("tools") if isinstance(request, dict) else None
    if not offered and isinstance(request, dict):
        params = request.get("params") or {}
        offered = params.get("tools") or params.get("functions")
    tools = [tool.get("function", tool) for tool in offered or [] if isinstance(tool, dict)]
    return [tool for tool in tools if isinstance(tool, dict) and isinstance(tool.get("name"), str)]


def _valid_tools_call(check: Check, context: MatchContext) -> CheckResult:
    text = context.value if isinstance(context.value, str) else ""
    if any(mark in text for mark in _MCP):
        return failed(f"a tool failed: {show(text, 200)}") if _MCP[1] in text else PASSED
    calls = _calls(context)
    if not isinstance(calls, list) or not calls or not all(map(_is_call, calls)):
        return failed(f"expected calls of tools, got {show(calls)}")
    tools = _tools(context)
    if not tools:
        return failed("the request offers no tools, and the answer calls some")
    reasons = [reason for call in calls if (reason := _why_invalid(call["function"], tools))]
    return failed(reasons[0]) if reasons else PASSED


def _valid_function_call(check: Check, context: MatchContext) -> CheckResult:
    calls = _calls(context)
    call = calls.get("function_call", calls) if isinstance(calls, dict) else calls
    # The older form has one function; a newer llm gives a list of calls, of which the first counts.
    if isinstance(call, list) and call and _is_call(call[0]):
        call = call[0]["function"]
    if not isinstance(call, dict) or not _is_function({"function": call}):
        return failed(f"expected the call of a function, got {show(calls)}")
    reason = _why_invalid(call, _tools(context))
    return failed(reason) if reason else PASSED


def _is_call(call: Any) -> bool:
    return isinstance(call, dict) and _is_function(call)


def _is_function(call: Record) -> bool:
    function = call.get("function")
    return (
        isinstance(function, dict)
        and isinstance(function.get("name"), str)
        and isinstance(function.get("arguments"), str)
    )


def _why_invalid(call: Record, tools: list[Record]) -> str:
    """Return why a call does not fit the tools that the request offered; empty if it does."""
    schema = next((tool.get("parameters") for tool in tools if tool["name"] == call["name"]), None)
    if schema is None:
        names = ", ".join(tool["name"] for tool in tools) or "none"
        return f"calls {show(call['name'])}, which is not offered; offered are {names}"
    arguments = loads(call["arguments"])
    if arguments is NO_JSON:
        return f"calls {call['name']} with arguments that are not JSON: {show(call['arguments'])}"
    try:
        problem = next(iter(validator(schema).iter_errors(arguments)), None)
    except (ValueError, TypeError, RecursionError) as error:
        return f"the parameters of {call['name']} are not a JSON Schema: {first_line(error)}"
    return f"calls {call['name']} with wrong arguments: {problem.message}" if problem else ""


def _tool_call_f1(check: Check, context: MatchContext) -> CheckResult:
    written = check.expected.split(",") if isinstance(check.expected, str) else check.expected
    if not isinstance(written, list) or not written:
        return bad_option("expected", "a list of names of tools", check.expected)
    threshold = threshold_of(check, 1.0)
    if threshold is None:
        return bad_option("threshold", "a number", check.options.get("threshold"))
    expected = {text_of(name).strip() for name in written}
    called = _called_names(context)
    hits = len(expected & called)
    score = 2 * hits / (len(expected) + len(called))
    shown = f"F1 {score:.3g} of the calls: expected {', '.join(sorted(expected))}; called {', '.join(sorted(called))}"
    passed = score >= threshold - 1e-9
    # The score is that of the calls, also where the check is negated.
    share = 1 - score if check.options.get("negate") is True else None
    return CheckResult(passed, score, shown if called else f"{shown}none", share=share)


def _called_names(context: MatchContext) -> set[str]:
    text = context.value
    if not isinstance(text, str):
        names = _names_in(text)
    elif (parsed := loads(text)) is not NO_JSON:
        names = _names_in(parsed)
    else:
        # Calls among prose stand on lines of their own.
        lines = [loads(line) for line in text.split("\n") if line.strip()[:1] in ("{", "[")]
        names = {name for line in lines if line is not NO_JSON for name in _names_in(line)}
    return names or _names_in(context.output.steps.get("tool_calls") or _response(context).get("tool_calls"))


def _names_in(value: Any) -> set[str]:
    """Return the tools that a value calls, in the forms of OpenAI, Anthropic and Google."""
    if isinstance(value, list):
        return {name for item in value for name in _names_in_item(item)}
    if isinstance(value, dict):
        if isinstance(value.get("tool_calls"), list):
            return _names_in(value["tool_calls"])
        live = value.get("toolCall")
        if isinstance(live, dict) and isinstance(live.get("functionCalls"), list):
            return _names_in(live["functionCalls"])
        if value.get("type") == "tool_use" or "functionCall" in value:
            return _names_in_item(value)
    return set()


def _names_in_item(item: Any) -> set[str]:
    if not isinstance(item, dict):
        return set()
    inner = next((item[key] for key in ("functionCall", "function") if isinstance(item.get(key), dict)), item)
    if inner is item and item.get("type") not in (None, "tool_use", "function"):
        return set()
    return {inner["name"]} if isinstance(inner.get("name"), str) else set()


MATCHERS = (
    Matcher("finish_reason", "the answer of the llm ended for the expected reason", _finish_reason),
    Matcher("guardrails", "no content filter of the llm stopped the answer", _guardrails),
    Matcher("valid_tools_call", "the calls of tools fit the tools of the request", _valid_tools_call),
    Matcher("valid_function_call", "the call of a function fits the functions of the request", _valid_function_call),
    Matcher("tool_call_f1", "F1 over the names of the tools that were called", _tool_call_f1),
)
