"""One run for the page that shows it: input, expectations, output, checks, steps and messages, long texts cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from evalloom.core.model import Case, Check, Record, Run, Scored, Verdict
from evalloom.core.text import shorten
from evalloom.reports.run_report import encode, label, origin

LONGEST = 20_000
"""Characters of one value that are shown; the batch has the rest."""
_SHORTEST = 150
_LEFT_OUT_FIRST = ("steps", "sources", "expected")
_MOST = {"verdicts": 200, "mismatches": 30, "trace": 100, "messages": 60, "inputs": 100, "sources": 50}
_STEP_FACTS = ("kind", "status", "tokens", "items", "failed_items", "retry_count")


def detail(run: Run, scored: Scored, case: Case | None, before: list[Record], room: int) -> bytes:
    """Return a run as JSON of about `room` bytes; where it needs more, values are cut further, then parts left out."""
    limit = LONGEST
    written = encode(_record(run, scored, case, before, limit))
    while len(written) > room and limit > _SHORTEST:
        limit = max(_SHORTEST, min(limit // 4, room // 8))
        written = encode(_record(run, scored, case, before, limit))
    if len(written) > room:
        record = _record(run, scored, case, before, limit)
        record["dropped"] = [name for name in _LEFT_OUT_FIRST if record.pop(name, None)]
        written = encode(record)
    return written


def _record(run: Run, scored: Scored, case: Case | None, before: list[Record], limit: int) -> Record:
    """Leave out what is empty: the page knows what is absent."""
    inputs = case.inputs if case is not None else run.raw
    usage = run.usage
    record: Record = {
        "input": [[name, value(item, limit)] for name, item in _first(inputs.items(), "inputs")],
        "expected": [[check_name(check), value(check.expected, limit)] for check in case.checks] if case else [],
        "output": None if run.error or run.skipped or run.blocked else value(run.output.value, limit),
        "error": run.error[:limit],
        "skipped": run.skipped[:limit],
        "blocked": run.blocked[:limit],
        "outcome": "" if run.outcome == "OK" else run.outcome,
        "step": scored.step,
        "sources": [value(source, limit // 4) for source in _first(run.output.sources, "sources")]
        if isinstance(run.output.sources, list)
        else [],
        "checks": [_check(verdict, limit) for verdict in _first(scored.verdicts, "verdicts")],
        "steps": list(_steps(run, limit)),
        "started": run.started_at,
        "seconds": run.duration_s,
        "usage": [usage.calls, usage.input_tokens, usage.output_tokens, usage.cached, usage.retries],
        "judged": scored.usage.tokens,
        "origin": origin(run),
        "before": before,
    }
    return {name: item for name, item in record.items() if item or name in ("output", "seconds")}


def value(item: Any, limit: int) -> Record:
    """Return a value as it is, or the beginning of its text with the number of characters that are left out."""
    if isinstance(item, str):
        return {"v": item} if len(item) <= limit else {"t": item[:limit], "more": len(item) - limit}
    written = encode(item)
    if len(written) <= limit:
        return {"v": msgspec.Raw(written)}
    text = written.decode()
    return {"t": text[:limit], "more": len(text) - limit} if len(text) > limit else {"v": msgspec.Raw(written)}


def check_name(check: Check) -> str:
    """Return the name of a check as its verdict has it."""
    kind = f"not_{check.kind}" if check.options.get("negate") is True else check.kind
    where = check.where.removeprefix("output").lstrip(".")
    return check.name or " ".join(filter(None, [kind, where]))


def snippet(item: Any, length: int) -> str:
    """Return the beginning of a value on one line, for the table of runs; the page escapes what is not visible."""
    parts, size = [], 0
    for text in _texts(item):
        # Cut before it is split: an output may have millions of words.
        parts += text[: 2 * length].split()
        size += len(text) + 3
        if size > length:
            break
        parts.append("·")
    return shorten(" ".join(parts).removesuffix(" ·"), length)


def _texts(item: Any, depth: int = 20) -> Iterator[str]:
    """Yield the texts of a value, down to a depth; numbers and the like as JSON."""
    if isinstance(item, str):
        yield item
    elif isinstance(item, dict | list):
        for inner in (item.values() if isinstance(item, dict) else item) if depth else ():
            yield from _texts(inner, depth - 1)
    elif item is not None:
        yield encode(item).decode()


def _first(items: Iterable[Any], what: str) -> Iterator[Any]:
    for number, item in enumerate(items):
        if number == _MOST[what]:
            return
        yield item


def _check(verdict: Verdict, limit: int) -> Record:
    record = {
        "name": label(verdict),
        "kind": verdict.kind,
        "where": "" if verdict.where == "output" else verdict.where,
        "status": verdict.status,
        "score": verdict.score,
        "reason": verdict.reason[:limit],
        "follows": verdict.follows,
        "counts": "" if verdict.weight else "0",
        "differences": [
            [mismatch.path, value(mismatch.expected, limit), value(mismatch.actual, limit)]
            for mismatch in _first(verdict.mismatches, "mismatches")
            if verdict.status != "passed"
        ],
    }
    return {name: item for name, item in record.items() if item or item == 0}


def _steps(run: Run, limit: int) -> Iterator[Record]:
    """Yield the steps with their calls. A hoplet's calls come before their step, a pipeline's are in it."""
    calls: list[Record] = []
    for entry in _first(run.trace, "trace"):
        if entry.get("type") != "step":
            calls.append(_call(entry, limit))
        elif isinstance(entry.get("calls"), list):
            yield from calls
            calls = []
            inner = [_call(call, limit) for call in _first(entry["calls"], "trace") if isinstance(call, dict)]
            yield _step(entry, inner, run.output.steps, limit)
        else:
            yield _step(entry, calls, run.output.steps, limit)
            calls = []
    yield from calls


def _step(entry: Record, calls: list[Record], outputs: Record, limit: int) -> Record:
    name = " ".join(str(entry[key]) for key in ("step", "op") if entry.get(key) is not None)
    facts = {key: entry[key] for key in _STEP_FACTS if isinstance(entry.get(key), str | int) and entry[key]}
    output = outputs.get(str(entry.get("step"))) if isinstance(outputs, dict) else None
    shown = {} if output is None else {"output": value(output, limit)}
    return {
        "name": name,
        **facts,
        **_time(entry),
        **_error(entry, limit),
        **shown,
        **({"calls": calls} if calls else {}),
    }


def _call(entry: Record, limit: int) -> Record:
    """Return one call: of an llm with its messages, or whatever else a target recorded."""
    kind = str(entry.get("type"))
    if kind != "llm":
        rest = {key: item for key, item in entry.items() if key not in ("type", "duration_s", "duration", "error")}
        return {"call": kind, **_time(entry), **_error(entry, limit), "fields": value(rest, limit)}
    request, response = _object(entry.get("request")), _object(entry.get("response"))
    usage = _object(response.get("usage"))
    messages = request.get("messages")
    said = [_message(message, limit) for message in _first(messages if isinstance(messages, list) else [], "messages")]
    for name in ("text", "tool_calls"):
        if response.get(name):
            said.append(["answer", value(response[name], limit)])
    return {
        "call": "llm",
        "llm": str(entry.get("llm") or ""),
        **_time(entry),
        **_error(entry, limit),
        **{name: usage[name] for name in ("input_tokens", "output_tokens", "cached") if usage.get(name)},
        **({"stop": response["stop"]} if response.get("stop") not in (None, "", "stop") else {}),
        "messages": said,
    }


def _message(message: Any, limit: int) -> list[Any]:
    if not isinstance(message, dict):
        return ["", value(message, limit)]
    content = message.get("content")
    if message.get("tool_calls"):
        content = message["tool_calls"] if not content else {"content": content, "tool_calls": message["tool_calls"]}
    return [str(message.get("role") or ""), value(content, limit)]


def _time(entry: Record) -> Record:
    seconds = entry.get("duration_s", entry.get("duration"))
    return {"seconds": seconds} if isinstance(seconds, int | float) else {}


def _error(entry: Record, limit: int) -> Record:
    return {"error": str(entry["error"])[:limit]} if entry.get("error") else {}


def _object(item: Any) -> Record:
    """Return an object; an empty one for a trace that another program wrote differently."""
    return item if isinstance(item, dict) else {}
