"""Tells before a run which checks it will not score and what they need, and reads lists of checks in data."""

from __future__ import annotations

from typing import Any

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Case, Check, Need, Output, Usage
from evalloom.core.text import did_you_mean
from evalloom.data.checks import CheckList, CheckRules
from evalloom.matchers import Matcher, Matchers
from evalloom.matchers.base import MatchContext
from evalloom.matchers.where import Missing, find

_VALUES: tuple[Any, ...] = ("a", {"a": "a"}, ["a"], 1)
_USAGE = Usage(1, 1, 1.0, 1)
_ALIKE = 0.75
"""How alike a misspelled kind must be."""


def check_rules(matchers: Matchers) -> CheckRules:
    """Return what these matchers tell about checks."""

    def read_list(written: list[Any]) -> CheckList:
        checks, wrong = [], []
        for number, item in enumerate(written):
            try:
                checks.append(matchers.parse(item))
            except EvalloomError as error:
                wrong.append((number, error.args[0].removeprefix("check: ")))
        is_meant = bool(checks) or any(names_kind(item) for item in written)
        return CheckList(tuple(checks), tuple(wrong), is_meant)

    def names_kind(item: Any) -> bool:
        names = [name for name in item if isinstance(name, str)] if isinstance(item, dict) else []
        return any(name in matchers.kinds or did_you_mean(name, matchers.kinds, _ALIKE) for name in names)

    def why_unscored(check: Check) -> str:
        if check.options.get("unsupported"):
            return ""  # the dialect that set it has its own finding
        matcher = matchers.by_kind(check.kind)
        if matcher is None:
            return matchers.why_unknown(check.kind)
        place = find(check.where, Output("a"))
        if isinstance(place, Missing) and place.is_misplaced:
            return place.reason
        return matcher.refuses(check) or _why_never_scored(matcher, check)

    def needs(check: Check) -> Need:
        matcher = matchers.by_kind(check.kind)
        inner = check.options.get("check")
        if isinstance(inner, Check) and check.kind == "json_path":
            return needs(inner)
        return matcher.needs(check) if matcher and not check.options.get("unsupported") else ""

    return CheckRules(read_list, why_unscored, needs)


def _why_never_scored(matcher: Matcher, check: Check) -> str:
    """Apply a check to a few outputs: what is scored for none of them has an option that it cannot have."""
    if matcher.grade is None:
        return ""
    reason = ""
    for value in _VALUES:
        context = MatchContext(value, Output(value, sources=["a"]), Case("", {"q": "a"}), 0.1, _USAGE)
        try:
            result = matcher.grade(check, context)
        except Exception:  # a matcher of another package may raise anything; a run reports it
            return ""
        if result is None or result.passed is not None:
            return ""
        reason = reason or result.reason
    return reason
