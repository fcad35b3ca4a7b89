"""An llm that answers from a file of rules: offline, without a key, the same in every run.

The first rule that matches answers. Rules that depend on how often a request came count requests of the same content,
and a repetition starts at its own number, so that a run is the same at any concurrency.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
from msgspec import Struct

from evalloom.core.errors import CallError, usage_error
from evalloom.core.http import Reply, status_error
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import NO_USAGE, Origin, Record, Request, Response, Usage, show_path
from evalloom.core.model import Path as Where
from evalloom.core.patterns import BadPattern, PatternMatch, find, pattern_error
from evalloom.core.text import did_you_mean, quote, type_name
from evalloom.files.read import RowReader
from evalloom.files.rows import Row
from evalloom.files.source import source_of
from evalloom.llms.budget import estimate_tokens
from evalloom.llms.cache import digest
from evalloom.llms.echo import last_text, prompt_text

_HOLE = lazy_pattern(r"\{\{\s*(\w+)\s*\}\}")
_ROLES = ("any", "user", "system", "assistant", "tool", "last")
_FAULTS: dict[str, tuple[str, str, bool]] = {
    "timeout": ("timeout", "no answer in time, by the script", True),
    "drop": ("connection_broke", "the connection broke, by the script", True),
    "garbage": ("bad_answer", "expected JSON, got garbage, by the script", False),
}
_MOST = 2**31
_RULE_FIELDS = ("match", "answer", "answers", "template", "tool_calls", "fault", "times", "delay_s", "usage")


class Match(Struct, frozen=True):
    """The conditions of a rule on a prompt; all must hold."""

    contains: tuple[str, ...] = ()
    equals: str | None = None
    regex: re.Pattern[str] | None = None
    role: str = "any"


class Rule(Struct, frozen=True):
    """One rule, checked and ready to answer."""

    match: Match = Match()
    answers: tuple[str, ...] = ()
    template: Any = None
    tool_calls: tuple[Record, ...] = ()
    fault: CallError | None = None
    times: int = 0
    """How many times a request fails before it is answered; 0 with a fault: always."""
    delay_s: float = 0.0
    usage: Usage = NO_USAGE

    @property
    def counts(self) -> bool:
        """Whether the answer depends on how often the same request came before."""
        return len(self.answers) > 1 or self.times > 0


class Scripted:
    """Answers by the rules of a file, or by rules as the file would hold them."""

    def __init__(self, script: str | Path | Record | list[Any], name: str = "scripted") -> None:
        self._name = name
        self._where = Path(script).as_posix() if isinstance(script, str | Path) else "the script"
        self._rules = read(script)
        self._turns: dict[tuple[int, bytes], int] = {}

    async def __call__(self, request: Request) -> Response:
        """Return the answer of the first rule that matches."""
        texts: dict[str, str] = {}
        for number, rule in enumerate(self._rules):
            match = _match(rule.match, request, texts)
            if match is not None:
                return await self._answer(number, rule, request, match)
        said = quote(_text(request, "any", texts), 80)
        raise CallError("no_rule", f"{self._where}: no rule matches {said}. Add a rule for it, or a default answer")

    async def _answer(self, number: int, rule: Rule, request: Request, match: RuleMatch) -> Response:
        before = self._count(number, request) if rule.counts else 0
        if rule.delay_s:
            await asyncio.sleep(rule.delay_s)
        if rule.fault is not None and (not rule.times or before < rule.times):
            # A copy, because an exception that many tasks raise collects their tracebacks.
            fault = rule.fault
            raise CallError(fault.code, fault.message, fault.is_transient, fault.retry_after)
        text = _filled(rule.template, match, request) if rule.template is not None else ""
        if rule.answers:
            turn = request.repeat + before - rule.times
            text = rule.answers[min(turn, len(rule.answers) - 1)]
        stop = "tool_calls" if rule.tool_calls else "stop"
        return Response(text, list(rule.tool_calls), _usage(rule, request, text), self._name, stop)

    def _count(self, number: int, request: Request) -> int:
        """Return how often this rule got the same request before."""
        key = (number, digest(request))
        before = self._turns.get(key, 0)
        self._turns[key] = before + 1
        return before


class RuleMatch(Struct, frozen=True):
    """The text that a rule matched, and the groups of its regular expression."""

    text: str
    groups: PatternMatch | None = None


def _match(match: Match, request: Request, texts: dict[str, str]) -> RuleMatch | None:
    text = _text(request, match.role, texts)
    if match.equals is not None and match.equals != text.strip():
        return None
    for part in match.contains:
        if part not in text:
            return None
    if match.regex is None:
        return RuleMatch(text)
    try:
        groups = find(match.regex.pattern, text)
    except BadPattern as error:
        raise CallError("bad_regex", f"a rule cannot be checked: {error}") from None
    return RuleMatch(text, groups) if groups else None


def _text(request: Request, role: str, texts: dict[str, str]) -> str:
    """Return the text that a rule for this role reads; built once for all rules."""
    if role not in texts:
        by_role = last_text(request, "" if role == "last" else role)
        texts[role] = prompt_text(request) if role == "any" else by_role
    return texts[role]


def _filled(template: Any, match: RuleMatch, request: Request) -> str:
    def fill(hole: re.Match[str]) -> str:
        name = hole[1]
        if name == "prompt":
            return match.text
        if name == "user":
            return last_text(request, "user")
        if match.groups is None:
            return ""
        group = match.groups.by_number(int(name)) if name.isdigit() else match.groups.named[name]
        return group or ""

    return _as_text(_map_strings(template, lambda text: _HOLE.sub(fill, text)))


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """Return a value with all its strings changed, except the names of fields."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_strings(item, change) for item in value]
    if isinstance(value, dict):
        return {name: _map_strings(item, change) for name, item in value.items()}
    return value


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _usage(rule: Rule, request: Request, text: str) -> Usage:
    if rule.usage is not NO_USAGE:
        return rule.usage
    return Usage(estimate_tokens(prompt_text(request)), estimate_tokens(text), calls=1)


def read(script: str | Path | Record | list[Any]) -> tuple[Rule, ...]:
    """Return the rules of a file, or of a value like the one in it. Raises bad_script with all errors in it."""
    if isinstance(script, str | Path):
        file, row, problems = _load(script)
    else:
        file, row, problems = "the script", Row(script, 0, places={}), []
    check = _Check()
    rules = check.script(row.value) if row else ()
    for path, message in check.errors:
        place = row.place_of(path) if row else (0, 0)
        where = show_path(path)
        problems.append(f"{Origin(file, *place)}: {where}{': ' if where else ''}{message}")
    if problems:
        raise usage_error("bad_script", "\n".join(problems))
    return rules


def _load(path: str | Path) -> tuple[str, Row | None, list[str]]:
    """Return the single value of a file, and the errors of the file."""
    source = source_of(path)
    items = list(RowReader(source))
    problems = [
        f"{Origin(source.name, *item.place)}: {item.message}"
        for item in items
        if not isinstance(item, Row) and item.severity == "error"
    ]
    rows = [item for item in items if isinstance(item, Row)]
    if len(rows) != 1 and not problems:
        problems.append(f"{source.name}: expected one object with 'rules', got {len(rows)} records")
    return source.name, rows[0] if rows and not problems else None, problems


class _Check:
    """Parses rules and collects their errors, so that all are reported at once."""

    def __init__(self) -> None:
        self.errors: list[tuple[Where, str]] = []

    def add_error(self, path: Where, message: str) -> None:
        self.errors.append((path, message))

    def script(self, value: Any) -> tuple[Rule, ...]:
        script = {"rules": value} if isinstance(value, list) else value
        if not isinstance(script, dict) or not script.keys() & {"rules", "default"}:
            self.add_error((), f"expected an object with 'rules' or 'default', got {quote(value)}")
            return ()
        self._check_keys((), script, ("rules", "default"))
        written = script.get("rules", [])
        if not isinstance(written, list):
            self.add_error(("rules",), f"expected a list of rules, got {type_name(written)}")
            written = []
        rules = [self._rule(("rules", number), rule) for number, rule in enumerate(written)]
        if "default" in script:
            rules.append(Rule(answers=self._answer(("default",), script["default"])))
        return tuple(rules)

    def _rule(self, path: Where, rule: Any) -> Rule:
        if not isinstance(rule, dict):
            self.add_error(path, f"expected a rule such as {{match: hello, answer: hi}}, got {quote(rule)}")
            return Rule()
        self._check_keys(path, rule, _RULE_FIELDS)
        match = self._match((*path, "match"), rule["match"]) if "match" in rule else Match()
        self._check_answers(path, rule)
        return Rule(
            match=match,
            answers=self._answers(path, rule),
            template=self._template((*path, "template"), rule["template"], match) if "template" in rule else None,
            tool_calls=self._tool_calls((*path, "tool_calls"), rule.get("tool_calls", [])),
            fault=self._fault((*path, "fault"), rule["fault"]) if "fault" in rule else None,
            times=self._count((*path, "times"), rule["times"], least=1) if "times" in rule else 0,
            delay_s=self._number((*path, "delay_s"), rule.get("delay_s", 0)),
            usage=self._usage((*path, "usage"), rule["usage"]) if "usage" in rule else NO_USAGE,
        )

    def _check_answers(self, path: Where, rule: Record) -> None:
        """Check that a rule has one kind of answer, a fault, or a number of faults and then an answer."""
        kinds = [name for name in ("answer", "answers", "template") if name in rule]
        has_answer = bool(kinds) or "tool_calls" in rule
        if len(kinds) > 1:
            self.add_error(
                (*path, kinds[1]), f"expected one of answer, answers and template, got {' and '.join(kinds)}"
            )
        if "times" in rule and "fault" not in rule:
            self.add_error((*path, "times"), "expected a fault beside times: it says how often the fault comes")
        if "fault" in rule and has_answer != ("times" in rule):
            missing = "times, or the answer is never given" if has_answer else "an answer for when the fault is over"
            self.add_error((*path, "fault"), f"expected {missing}")
        if not has_answer and "fault" not in rule:
            self.add_error(path, "expected answer, answers, template, tool_calls or fault")

    def _match(self, path: Where, match: Any) -> Match:
        if isinstance(match, str):
            return Match(contains=(match,))
        if not isinstance(match, dict):
            self.add_error(path, f"expected a text or an object such as {{regex: '^hi'}}, got {quote(match)}")
            return Match()
        self._check_keys(path, match, Match.__struct_fields__)
        contains = match.get("contains", [])
        parts = contains if isinstance(contains, list) else [contains]
        role = match.get("role", "any")
        if role not in _ROLES:
            self.add_error((*path, "role"), f"expected {', '.join(_ROLES)}, got {quote(role)}")
        return Match(
            contains=tuple(self._string((*path, "contains"), part) for part in parts),
            equals=self._string((*path, "equals"), match["equals"]).strip() if "equals" in match else None,
            regex=self._regex((*path, "regex"), match["regex"]) if "regex" in match else None,
            role=str(role),
        )

    def _regex(self, path: Where, written: Any) -> re.Pattern[str]:
        pattern = self._string(path, written)
        if reason := pattern_error(pattern):
            self.add_error(path, f"expected a regular expression, got {quote(written)}: {reason}")
            return re.compile("")
        return re.compile(pattern)

    def _answers(self, path: Where, rule: Record) -> tuple[str, ...]:
        if "answer" in rule:
            return self._answer((*path, "answer"), rule["answer"])
        if "answers" not in rule:
            return ()
        written = rule["answers"]
        if not isinstance(written, list) or not written:
            self.add_error((*path, "answers"), f"expected a list of answers, got {quote(written)}")
            return ()
        answers = [self._answer((*path, "answers", number), answer) for number, answer in enumerate(written)]
        return tuple(text for texts in answers for text in texts)

    def _answer(self, path: Where, answer: Any) -> tuple[str]:
        if answer is None:
            self.add_error(path, "expected an answer, got null. Write '' for an empty answer")
        return (self._json_text(path, answer),)

    def _json_text(self, path: Where, value: Any) -> str:
        try:
            return _as_text(value)
        except (TypeError, ValueError) as error:
            self.add_error(path, f"expected JSON, got {quote(value)}: {error}")
            return ""

    def _template(self, path: Where, template: Any, match: Match) -> Any:
        if template is None:
            self.add_error(path, "expected a text or an object with {{holes}}, got null")
        groups = match.regex.groups if match.regex else -1
        names = {"prompt", "user", *map(str, range(groups + 1)), *(match.regex.groupindex if match.regex else ())}

        def check(text: str) -> str:
            for name in _HOLE.findall(text):
                if name not in names:
                    allowed = ", ".join(f"{{{{{name}}}}}" for name in sorted(names))
                    self.add_error(path, f"expected one of {allowed}, got {{{{{name}}}}}")
            return text

        self._json_text(path, template)
        return _map_strings(template, check)

    def _tool_calls(self, path: Where, calls: Any) -> tuple[Record, ...]:
        if not isinstance(calls, list):
            self.add_error(path, f"expected a list of tool calls, got {type_name(calls)}")
            return ()
        return tuple(self._tool_call((*path, number), number, call) for number, call in enumerate(calls))

    def _tool_call(self, path: Where, number: int, call: Any) -> Record:
        """Return a call in OpenAI's format, from that or from `{name, arguments}`."""
        inner = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
            self.add_error(path, f"expected a tool call such as {{name: search, arguments: {{}}}}, got {quote(call)}")
            return {}
        arguments = self._json_text((*path, "arguments"), inner.get("arguments", {}))
        function = {"name": inner["name"], "arguments": arguments}
        return {"id": str(call.get("id", f"call_{number}")), "type": "function", "function": function}

    def _fault(self, path: Where, fault: Any) -> CallError | None:
        if isinstance(fault, str) and fault in _FAULTS:
            return CallError(*_FAULTS[fault])
        if not isinstance(fault, dict) or "status" not in fault:
            self.add_error(path, f"expected {', '.join(_FAULTS)} or an object with a status, got {quote(fault)}")
            return None
        self._check_keys(path, fault, ("status", "retry_after", "message"))
        status = self._count((*path, "status"), fault["status"])
        if not 400 <= status <= 599:
            self.add_error((*path, "status"), f"expected a status from 400 to 599, got {quote(fault['status'])}")
        wait = self._number((*path, "retry_after"), fault.get("retry_after", 0))
        headers = {"retry-after": f"{wait:g}"} if "retry_after" in fault else {}
        said = self._string((*path, "message"), fault.get("message", "by the script"))
        return status_error(Reply(status, headers, b""), said)

    def _usage(self, path: Where, usage: Any) -> Usage:
        if not isinstance(usage, dict):
            self.add_error(path, f"expected an object with input_tokens and output_tokens, got {quote(usage)}")
            return NO_USAGE
        self._check_keys(path, usage, ("input_tokens", "output_tokens"))
        read, written = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
        return Usage(
            self._count((*path, "input_tokens"), read), self._count((*path, "output_tokens"), written), calls=1
        )

    def _string(self, path: Where, value: Any) -> str:
        if not isinstance(value, str):
            self.add_error(path, f"expected a string, got {quote(value)}. Put it in quotes")
            return ""
        return value

    def _number(self, path: Where, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
            self.add_error(path, f"expected a number from 0 on, got {quote(value)}")
            return 0.0
        return float(value)

    def _count(self, path: Where, value: Any, least: int = 0) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
            self.add_error(path, f"expected a whole number from {least} on, got {quote(value)}")
            return least
        return value

    def _check_keys(self, path: Where, fields: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
        for name in fields:
            if name not in allowed:
                hint = did_you_mean(str(name), allowed) or f". There are {', '.join(allowed)}"
                self.add_error((*path, name), f"unknown field{hint}")
