"""Matchers: one check, one value, one grade."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from evalloom import moved
from evalloom.core.model import Check
from evalloom.core.text import did_you_mean
from evalloom.matchers.base import CheckResult, Function, MatchContext, Matcher, Services
from evalloom.matchers.parse import Kinds, parse

__all__ = [
    "BUILT_IN",
    "MATCHERS",
    "CheckResult",
    "MatchContext",
    "Matcher",
    "Matchers",
    "Services",
    "by_kind",
    "functions_of",
    "parse_check",
    "why_unknown",
]


def _structural() -> tuple[Matcher, ...]:
    from evalloom.matchers.structural import MATCHERS

    return MATCHERS


def _text() -> tuple[Matcher, ...]:
    from evalloom.matchers.text import MATCHERS

    return MATCHERS


def _json_values() -> tuple[Matcher, ...]:
    from evalloom.matchers.json_values import MATCHERS

    return MATCHERS


def _limits() -> tuple[Matcher, ...]:
    from evalloom.matchers.limits import MATCHERS

    return MATCHERS


def _overlap() -> tuple[Matcher, ...]:
    from evalloom.matchers.overlap import MATCHERS

    return MATCHERS


def _language() -> tuple[Matcher, ...]:
    from evalloom.matchers.language import MATCHERS

    return MATCHERS


def _sources() -> tuple[Matcher, ...]:
    from evalloom.matchers.sources import MATCHERS

    return MATCHERS


def _tool_calls() -> tuple[Matcher, ...]:
    from evalloom.matchers.tool_calls import MATCHERS

    return MATCHERS


def _markup() -> tuple[Matcher, ...]:
    from evalloom.matchers.markup import MATCHERS

    return MATCHERS


def _sql() -> tuple[Matcher, ...]:
    from evalloom.matchers.sql import MATCHERS

    return MATCHERS


def _responses() -> tuple[Matcher, ...]:
    from evalloom.matchers.responses import MATCHERS

    return MATCHERS


def _similarity() -> tuple[Matcher, ...]:
    from evalloom.matchers.similarity import MATCHERS

    return MATCHERS


def _judge() -> tuple[Matcher, ...]:
    from evalloom.matchers.judge import MATCHERS

    return MATCHERS


def _python_code() -> tuple[Matcher, ...]:
    from evalloom.matchers.python_code import MATCHERS

    return MATCHERS


def _javascript_code() -> tuple[Matcher, ...]:
    from evalloom.matchers.javascript_code import MATCHERS

    return MATCHERS


_LOADERS: dict[str, Callable[[], tuple[Matcher, ...]]] = {
    **dict.fromkeys(("equals", "iequals", "one_of", "only_fields", "structural"), _structural),
    **dict.fromkeys(("contains", "icontains", "contains_all", "contains_any", "icontains_all", "icontains_any"), _text),
    **dict.fromkeys(("starts_with", "ends_with", "regex", "normalised"), _text),
    **dict.fromkeys(("is_json", "contains_json", "json_schema", "is_instance"), _json_values),
    **dict.fromkeys(("numeric", "length", "word_count", "latency", "tokens", "cost"), _limits),
    **dict.fromkeys(("levenshtein", "bleu", "gleu", "rouge", "f1"), _overlap),
    **dict.fromkeys(("language", "refusal"), _language),
    **dict.fromkeys(("source_hit", "ranking", "citations", "context_recall"), _sources),
    **dict.fromkeys(("tool_calls",), _tool_calls),
    **dict.fromkeys(("is_html", "contains_html", "is_xml", "contains_xml"), _markup),
    **dict.fromkeys(("is_sql", "contains_sql"), _sql),
    **dict.fromkeys(("finish_reason", "guardrails"), _responses),
    **dict.fromkeys(("valid_tools_call", "valid_function_call", "tool_call_f1"), _responses),
    **dict.fromkeys(("similarity", "semantic"), _similarity),
    **dict.fromkeys(("judge",), _judge),
    **dict.fromkeys(("python",), _python_code),
    **dict.fromkeys(("javascript",), _javascript_code),
}
"""The kinds of the engine. The module of a kind is imported when a check of it is first scored."""
_SAME = {"is_refusal": "refusal", "similar": "similarity", "rouge_n": "rouge", "llm_rubric": "judge"}
"""Names that other tools give to our kinds."""
_FUNCTION = "write the check as a Python function"
_TOOLS = "write tool_calls, which compares the calls of tools"
_NOT_HERE = {
    "ruby": f"Ruby is not run here; {_FUNCTION}",
    "webhook": f"no webhook is called; {_FUNCTION}",
    "assert_file": "a file of asserts is not read here; write the asserts into this one",
    "human": "it waits for a person; write judge, with what the person looks at as the criterion",
    **dict.fromkeys(
        ("select_best", "max_score"),
        "it compares several outputs, and a check here sees one; run several profiles, and compare their scores",
    ),
    "has_matching_span": f"the run keeps no spans; write latency or tool_calls, or {_FUNCTION}",
    **dict.fromkeys(
        ("trace_error_spans", "trace_span_count", "trace_span_duration"),
        "the run keeps no spans; write latency for the time that it takes",
    ),
    **dict.fromkeys(
        ("perplexity", "perplexity_score"),
        "the run keeps no log probabilities; write judge, or similarity to a good answer",
    ),
    **dict.fromkeys(
        ("skill_used", "trajectory_step_count", "trajectory_tool_args_match"),
        f"it reads the trace of another tool; {_TOOLS}",
    ),
    **dict.fromkeys(
        ("trajectory_tool_sequence", "trajectory_tool_used"), f"it reads the trace of another tool; {_TOOLS}"
    ),
    "meteor": "it needs WordNet, which is not here; write rouge, bleu, gleu or f1",
    "rouge_s": "it is not computed here; write rouge, bleu, gleu or f1",
    "classifier": "no classifier is called; write judge, with the class as the criterion",
    "moderation": "no moderation service is called; write judge, with the policy as the criterion",
    "search_rubric": "the judge cannot search the web; write judge, with the facts in the criterion",
    "video_rubric": "videos are not read here",
}
_RED_TEAM = "promptfoo_redteam"


class Matchers:
    """The matchers by kind of check: those of the engine, and `more` of systems."""

    def __init__(self, more: Iterable[Matcher] = ()) -> None:
        self._more = tuple(more)
        self._own_kinds = (*_LOADERS, *(matcher.kind for matcher in self._more), "json_path")
        self._loaded = {matcher.kind: matcher for matcher in self._more}
        self.kinds = (*dict.fromkeys(self._own_kinds), *_SAME)
        self._written_kinds = Kinds(self.kinds)

    @property
    def all(self) -> tuple[Matcher, ...]:
        """The matchers of all kinds, which imports their modules."""
        return tuple(matcher for kind in self._own_kinds if (matcher := self.by_kind(kind)))

    def by_kind(self, kind: str) -> Matcher | None:
        """Return the matcher of a kind, also by the name that other tools use; None if there is none."""
        return self._loaded.get(kind) or self._load(kind)

    def _load(self, kind: str) -> Matcher | None:
        own_kind = _SAME.get(kind, kind)
        if own_kind == "json_path":
            from evalloom.matchers.nested import json_path

            self._loaded.setdefault(own_kind, json_path(self._inner, self.parse))
        elif own_kind in _LOADERS:
            for matcher in _LOADERS[own_kind]():
                self._loaded.setdefault(matcher.kind, matcher)
        else:
            return None
        matcher = self._loaded[kind] = self._loaded[own_kind]
        return matcher

    def _inner(self, kind: str) -> Matcher | None:
        """Return the matcher of a check inside a `json_path`, which cannot be another `json_path`."""
        return None if kind == "json_path" or kind in _SAME else self.by_kind(kind)

    def parse(self, written: Any) -> Check:
        """Parse a check of a user; an unknown kind or a wrong option is a usage error."""
        check = parse(written, self._written_kinds)
        if check.kind not in _SAME and check.kind != "json_path":
            return check
        options = dict(check.options)
        if check.kind == "json_path" and "check" in options:
            options["check"] = self.parse(options["check"])
        return Check(_SAME.get(check.kind, check.kind), check.expected, check.where, check.name, options)

    def functions_of(self, checks: Iterable[Check], folder: Path = Path()) -> dict[str, Function]:
        """Return the functions that trusted checks and their inner checks name, searched beside the file."""
        named = list(self._with_inner(checks))
        functions: dict[str, Function] = {}
        if any(check.kind == "python" for check in named):
            from evalloom.matchers.python_code import functions_of

            functions |= functions_of(named, folder)
        if any(check.kind == "javascript" for check in named):
            from evalloom.matchers.javascript_code import files_of

            functions |= files_of(named, folder)
        return functions

    def _with_inner(self, checks: Iterable[Check]) -> Iterator[Check]:
        for check in checks:
            yield check
            inner = check.options.get("check")
            if inner is not None:
                yield from self._with_inner([inner if isinstance(inner, Check) else self.parse(inner)])

    def why_unknown(self, kind: str) -> str:
        """Why a check of a kind without a matcher is not scored."""
        if kind in _NOT_HERE:
            return f"no matcher for {kind!r}: {_NOT_HERE[kind]}"
        if kind.startswith(_RED_TEAM):
            return (
                f"no matcher for {kind!r}: red-team graders are not here; write judge, with the policy as the criterion"
            )
        known = f"; known are {', '.join(self._own_kinds)}"
        # Peers have kinds of their own that only look like ours: contains_html is no slip of contains_all.
        return f"no matcher for {kind!r}{did_you_mean(kind, self.kinds, 0.85) or known}"


BUILT_IN = Matchers()
MATCHERS: tuple[Matcher, ...]
by_kind = BUILT_IN.by_kind
parse_check = BUILT_IN.parse
functions_of = BUILT_IN.functions_of
why_unknown = BUILT_IN.why_unknown


def __getattr__(name: str) -> object:
    return BUILT_IN.all if name == "MATCHERS" else moved.find_name(__name__, name)
