"""Formats one run for reading: input, output, checks with a diff of expected and actual, steps and messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from evalloom.console.layout import Line, cell_len, seconds
from evalloom.console.run_text import STYLES, head_line, verdict_line
from evalloom.core.model import ABSENT, Case, Check, Record, Run, Scored, Verdict
from evalloom.core.text import pluralize, printable
from evalloom.ui.diff import DiffLine, diff_lines

_INDENT = "    "
_LONGEST_NAME = 30
_SHORT = 60
"""A value of up to this many characters stays on the line of its name."""
_LONGEST_TEXT = 10_000
_CONTEXT = 2
"""Equal lines that a diff shows around a difference."""
_SHOWN_SOURCES = 20
_HIDDEN_FIELDS = frozenset(("type", "llm", "request", "response", "duration_s", "duration", "error", "status", "calls"))
_STEP_FIELDS = frozenset(
    (
        "step",
        "op",
        "kind",
        "output_key",
        "needs",
        "outputs",
        "tokens",
        "llm_calls",
        "items",
        "failed_items",
        "retry_count",
    )
)
"""Fields of a trace entry that its title tells, or that only a program needs."""
_CALL_FIELDS = frozenset(("type", "text", "method", "url", "status", "duration_s", "error"))


def case_lines(run: Run, scored: Scored, case: Case | None, repeats: int = 1) -> Iterator[Line]:
    """Yield everything about one run; `repeats` is how many its case has. `--json` has what is cut here."""
    repeat = f" · repeat {run.repeat + 1} of {repeats}" if repeats > 1 or run.repeat else ""
    yield head_line(run, scored, repeat)
    yield f"{_INDENT}{_spent(run, scored)}", "dim"
    if run.outcome != "OK":
        yield f"{_INDENT}the target's own outcome: {printable(run.outcome)}", ""
    for word, reason in (("error", run.error), ("skipped", run.skipped), ("blocked", run.blocked)):
        if reason:
            yield from _section(word, _text_lines(reason))
    if run.error and scored.step:
        yield f"{_INDENT}first failing step: {printable(repr(scored.step))}", "bold"
    yield from _section("input", _fields(list((case.inputs if case is not None else run.raw).items())))
    if case is not None:
        yield from _section("expected", _fields([(_check_name(check), check.expected) for check in case.checks]))
    if not (run.error or run.skipped or run.blocked):
        yield from _section("output", _value_lines(run.output.value))
    if run.output.sources:
        yield from _section("sources", _source_lines(run.output.sources))
    yield from _check_lines(run, scored)
    yield from _section("steps" if any(map(_is_step, run.trace)) else "calls", _trace_lines(run.trace))
    yield "", ""


def _section(title: str, lines: Iterable[Line]) -> Iterator[Line]:
    """Yield a heading and its lines, or nothing if there are none."""
    for number, (text, style) in enumerate(lines):
        if not number:
            yield f"{_INDENT}{title}", "bold"
        yield f"{_INDENT}  {text}" if text.strip() else "", style


def _spent(run: Run, scored: Scored) -> str:
    usage = run.usage
    parts = [f"took {seconds(run.duration_s)}"]
    if usage.calls:
        parts += [pluralize(usage.calls, "llm call"), f"{usage.input_tokens:,} + {usage.output_tokens:,} tokens"]
    parts += [f"cost {usage.cost:.4g}"] if usage.cost else []
    parts += [f"{usage.cached} from the cache"] if usage.cached else []
    parts += [pluralize(usage.retries, "retried call")] if usage.retries else []
    parts += [f"judged with {scored.usage.tokens:,} tokens"] if scored.usage.tokens else []
    parts += [f"score {scored.score:.3g}"] if scored.score not in (None, 0, 1) else []
    return " · ".join(parts)


# -- values ------------------------------------------------------------------------------------------------


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHORT else json.dumps(value, ensure_ascii=False, indent=2, default=str)


def _text_lines(text: str, style: str = "") -> Iterator[Line]:
    """Yield the lines of a text, the beginning of a very long one."""
    for line in text[:_LONGEST_TEXT].split("\n"):
        yield printable(line), style
    if len(text) > _LONGEST_TEXT:
        yield f"… {len(text) - _LONGEST_TEXT:,} more characters; --json shows all", "dim"


def _value_lines(value: Any) -> Iterator[Line]:
    if value == "":
        yield "(an empty text)", "dim"
    else:
        yield from _text_lines(_as_text(value))


def _fields(fields: Sequence[tuple[str, Any]]) -> Iterator[Line]:
    """Yield fields: a short value beside its name, a long one below it."""
    width = max((cell_len(name) for name, _ in fields if cell_len(name) <= _LONGEST_NAME), default=0)
    for name, value in fields:
        text = _as_text(value)
        if len(text) <= _SHORT and "\n" not in text:
            shown = printable(name)
            yield f"{shown}{' ' * (width - cell_len(shown))}  {printable(text)}", ""
        else:
            yield f"{printable(name)}", ""
            yield from _indented(_text_lines(text))


def _check_name(check: Check) -> str:
    """Return the name of a check as its verdict has it."""
    kind = f"not_{check.kind}" if check.options.get("negate") is True else check.kind
    where = check.where.removeprefix("output").lstrip(".")
    return check.name or " ".join(filter(None, [kind, where]))


def _source_lines(sources: Any) -> Iterator[Line]:
    for number, source in enumerate(sources[:_SHOWN_SOURCES] if isinstance(sources, list) else [sources], 1):
        if isinstance(source, dict) and isinstance(source.get("source"), str):
            score = f" ({source['score']:.3g})" if isinstance(source.get("score"), int | float) else ""
            yield f"{number} {printable(source['source'])}{score}", ""
            yield from ((f"  {line}", "dim") for line, _ in _text_lines(str(source.get("text") or "").strip()) if line)
        else:
            yield from ((f"{number} {line}", "") for line, _ in _value_lines(source))
    if isinstance(sources, list) and len(sources) > _SHOWN_SOURCES:
        yield f"… and {len(sources) - _SHOWN_SOURCES} more", "dim"


# -- checks ------------------------------------------------------------------------------------------------


def _check_lines(run: Run, scored: Scored) -> Iterator[Line]:
    lines: list[Line] = []
    if scored.step and not run.error:
        lines.append((f"first failing step: {printable(repr(scored.step))}", "bold"))
    for verdict in scored.verdicts:
        lines.append((verdict_line(verdict, always_says_status=True), STYLES.get(verdict.status, "yellow")))
        lines += _mismatch_lines(verdict) if verdict.status != "passed" else []
    if scored.status == "failed" and scored.score is not None and all(v.status != "failed" for v in scored.verdicts):
        lines.append((f"the score of the case, {scored.score:.3g}, is below its threshold", ""))
    has_diff = any(verdict.mismatches for verdict in scored.verdicts if verdict.status != "passed")
    yield from _section("checks (- expected, + actual)" if has_diff else "checks", lines)


def _mismatch_lines(verdict: Verdict) -> Iterator[Line]:
    for mismatch in verdict.mismatches:
        if mismatch.path and len(verdict.mismatches) > 1:
            yield f"  {printable(mismatch.path)}", ""
        expected, actual = (
            "" if value == ABSENT else _as_text(value)[:_LONGEST_TEXT] for value in (mismatch.expected, mismatch.actual)
        )
        yield from _shown_diff(diff_lines(expected, actual))


def _shown_diff(lines: Iterable[DiffLine]) -> Iterator[Line]:
    """Yield a diff; of many equal lines only those next to a difference."""
    signs = {"same": (" ", "dim"), "removed": ("-", "red"), "added": ("+", "green")}
    groups = [(kind, list(group)) for kind, group in groupby(lines, lambda line: line.kind)]
    for number, (kind, group) in enumerate(groups):
        texts = [line.text.rstrip("\n") for line in group]
        if kind == "same" and len(texts) > 2 * _CONTEXT + 1:
            before = texts[:_CONTEXT] if number else []
            after = texts[-_CONTEXT:] if number < len(groups) - 1 else []
            hidden = len(texts) - len(before) - len(after)
            texts = [*before, f"… {pluralize(hidden, 'equal line')}", *after]
        sign, style = signs[kind]
        yield from ((f"    {sign} {printable(text)}", style) for text in texts)


# -- the trace ---------------------------------------------------------------------------------------------


def _is_step(entry: Record) -> bool:
    return entry.get("type") == "step"


def _trace_lines(trace: list[Record]) -> Iterator[Line]:
    """Yield steps with their calls. A hoplet's calls come before the entry of their step, a pipeline's are in it."""
    calls: list[Record] = []
    for entry in trace:
        if not _is_step(entry):
            calls.append(entry)
        elif isinstance(entry.get("calls"), list):
            yield from _call_lines(calls)
            yield from _step_lines(entry, entry["calls"])
            calls = []
        else:
            yield from _step_lines(entry, calls)
            calls = []
    yield from _call_lines(calls)


def _step_lines(entry: Record, calls: list[Any]) -> Iterator[Line]:
    name = " ".join(str(entry[key]) for key in ("step", "op") if entry.get(key) is not None) or "step"
    kind = f" ({entry['kind']})" if entry.get("kind") else ""
    yield printable(f"{name}{kind}: {', '.join(_step_facts(entry, calls))}".removesuffix(": ")), "bold"
    yield from _indented(_error_lines(entry))
    rest = [(key, value) for key, value in entry.items() if key not in _HIDDEN_FIELDS | _STEP_FIELDS]
    yield from _indented(_fields(rest))
    yield from _indented(_call_lines([call for call in calls if isinstance(call, dict)]))


def _step_facts(entry: Record, calls: list[Any]) -> Iterator[str]:
    if entry.get("status") is not None:
        yield str(entry["status"])
    yield from _time(entry)
    tokens = entry.get("tokens") or sum(sum(_tokens(call)) for call in calls if isinstance(call, dict))
    if tokens:
        yield f"{tokens:,} tokens" if isinstance(tokens, int) else f"{tokens} tokens"
    for key, noun in (
        ("items", "item"),
        ("failed_items", "failed item"),
        ("llm_calls", "llm call"),
        ("retry_count", ""),
    ):
        count = entry.get(key)
        if isinstance(count, int) and count:
            yield pluralize(count, noun) if noun else "1 retry" if count == 1 else f"{count} retries"


def _call_lines(calls: Iterable[Record]) -> Iterator[Line]:
    for entry in calls:
        kind = str(entry.get("type"))
        if kind == "llm":
            yield from _llm_lines(entry)
            continue
        facts = [*(str(entry[key]) for key in ("method", "url", "status") if entry.get(key) is not None), *_time(entry)]
        yield printable(f"{kind}: {', '.join(facts)}".removesuffix(": ")), "bold"
        yield from _indented(_error_lines(entry))
        if isinstance(entry.get("text"), str):
            yield from _indented(_text_lines(entry["text"].rstrip("\n")))
        rest = [(key, value) for key, value in entry.items() if key not in _CALL_FIELDS]
        yield from _indented(_fields(rest))


def _llm_lines(entry: Record) -> Iterator[Line]:
    """Yield one request to an llm and its answer, message by message."""
    request, response = _object(entry.get("request")), _object(entry.get("response"))
    sent, received = _tokens(entry)
    facts = [*_time(entry), *([f"{sent:,} + {received:,} tokens"] if sent or received else [])]
    facts += ["from the cache"] if _object(response.get("usage")).get("cached") else []
    facts += [f"stopped: {response['stop']}"] if response.get("stop") not in (None, "", "stop") else []
    yield printable(f"llm {entry.get('llm')}: {', '.join(facts)}".removesuffix(": ")), "bold"
    settings = {name: value for name, value in request.items() if name not in ("messages", "tools")}
    if settings:
        shown = ", ".join(f"{name} {_as_text(value)}" for name, value in settings.items())
        yield from _indented([(printable(f"with {shown}"), "dim")])
    messages = request.get("messages")
    for message in messages if isinstance(messages, list) else []:
        role, content = (message.get("role"), message.get("content")) if isinstance(message, dict) else ("", message)
        yield from _indented(_message_lines(str(role), content))
        if isinstance(message, dict) and message.get("tool_calls"):
            yield from _indented(_message_lines(f"{role} calls", message["tool_calls"]))
    if response.get("text"):
        yield from _indented(_message_lines("answer", response["text"], "cyan"))
    if response.get("tool_calls"):
        yield from _indented(_message_lines("answer calls", response["tool_calls"], "cyan"))
    yield from _indented(_error_lines(entry))


def _message_lines(role: str, content: Any, style: str = "") -> Iterator[Line]:
    lines = [line for line, _ in _text_lines(_as_text(content))]
    if len(lines) == 1:
        yield f"{printable(role)}: {lines[0]}", style
    else:
        yield f"{printable(role)}:", style
        yield from _indented((line, style) for line in lines)


def _error_lines(entry: Record) -> Iterator[Line]:
    if entry.get("error"):
        yield from _text_lines(f"error: {entry['error']}", "magenta")


def _time(entry: Record) -> Iterator[str]:
    value = entry.get("duration_s", entry.get("duration"))
    if isinstance(value, int | float):
        yield seconds(value)


def _object(value: Any) -> Record:
    """Return an object; an empty one for a trace that another program wrote differently."""
    return value if isinstance(value, dict) else {}


def _tokens(entry: Record) -> tuple[int, int]:
    usage = _object(_object(entry.get("response")).get("usage"))
    sent, received = (usage.get(part) for part in ("input_tokens", "output_tokens"))
    return sent if isinstance(sent, int) else 0, received if isinstance(received, int) else 0


def _indented(lines: Iterable[Line]) -> Iterator[Line]:
    return ((f"  {text}" if text.strip() else "", style) for text, style in lines)
