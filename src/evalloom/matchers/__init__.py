"""Matchers: one check, one value, one grade."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from evalloom import moved
from evalloom.core.model import Check
from evalloom.core.text import did_you_mean
from evalloom.matchers import (
    json_values,
    judge,
    language,
    limits,
    nested,
    overlap,
    python_code,
    similarity,
    sources,
    structural,
    text,
    tool_calls,
)
from evalloom.matchers.base import CheckResult, Function, MatchContext, Matcher, Services
from evalloom.matchers.parse import parse

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

_PLAIN = (
    *structural.MATCHERS,
    *text.MATCHERS,
    *json_values.MATCHERS,
    *limits.MATCHERS,
    *overlap.MATCHERS,
    *language.MATCHERS,
    *sources.MATCHERS,
    *tool_calls.MATCHERS,
    *similarity.MATCHERS,
    *judge.MATCHERS,
    *python_code.MATCHERS,
)
_SAME = {"is_refusal": "refusal", "similar": "similarity", "rouge_n": "rouge", "llm_rubric": "judge"}
"""Names that other tools give to our kinds."""
_NOT_HERE = {
    "javascript": "JavaScript is not run here; write the check as a Python function",
    "ruby": "Ruby is not run here; write the check as a Python function",
    "webhook": "no webhook is called; write the check as a Python function",
    "assert_file": "a file of asserts is not read here",
    "human": "it waits for a person",
    "select_best": "it compares several outputs, and a check here sees one",
    "max_score": "it compares several outputs, and a check here sees one",
    "has_matching_span": "the run keeps no spans",
    "finish_reason": "the run keeps no finish reason",
}


class Matchers:
    """The matchers by kind of check: those of the engine, and `more` of systems."""

    def __init__(self, more: Iterable[Matcher] = ()) -> None:
        plain = (*_PLAIN, *more)
        inner = {matcher.kind: matcher for matcher in plain}
        self.all: tuple[Matcher, ...] = (*plain, nested.json_path(inner, self.parse))
        self._by_kind = {matcher.kind: matcher for matcher in self.all}
        self._by_kind.update({name: self._by_kind[kind] for name, kind in _SAME.items()})
        self.kinds = tuple(self._by_kind)
        self.by_kind = self._by_kind.get
        """Return the matcher of a kind, also by the name that other tools use; None if there is none."""

    def parse(self, written: Any) -> Check:
        """Parse a check of a user; an unknown kind or a wrong option is a usage error."""
        check = parse(written, self.kinds)
        options = dict(check.options)
        if check.kind == "json_path" and "check" in options:
            options["check"] = self.parse(options["check"])
        return Check(_SAME.get(check.kind, check.kind), check.expected, check.where, check.name, options)

    def functions_of(self, checks: Iterable[Check], folder: Path = Path()) -> dict[str, Function]:
        """Return the functions that trusted checks and their inner checks name, searched beside the file."""
        return python_code.functions_of(self._with_inner(checks), folder)

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
        known = f"; known are {', '.join(matcher.kind for matcher in self.all)}"
        # Peers have kinds of their own that only look like ours: contains_html is no slip of contains_all.
        return f"no matcher for {kind!r}{did_you_mean(kind, self.kinds, 0.85) or known}"


BUILT_IN = Matchers()
MATCHERS = BUILT_IN.all
by_kind = BUILT_IN.by_kind
parse_check = BUILT_IN.parse
functions_of = BUILT_IN.functions_of
why_unknown = BUILT_IN.why_unknown


def __getattr__(name: str) -> object:
    return moved.find_name(__name__, name)
