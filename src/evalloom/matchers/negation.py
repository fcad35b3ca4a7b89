"""Negates the result of a check, and says what was not expected."""

from __future__ import annotations

from typing import Any

from evalloom.core.model import NO_USAGE, Check
from evalloom.matchers.base import PASSED, CheckResult, show

_PHRASES = {
    **dict.fromkeys(("equals", "normalised", "language"), "{expected}, got {value}"),
    "iequals": "{expected} in any case, got {value}",
    "one_of": "one of {expected}, got {value}",
    "contains": "{expected} in {value}",
    "icontains": "{expected} in {value}, in any case",
    "contains_all": "all of {expected} in {value}",
    "contains_any": "any of {expected} in {value}",
    "icontains_all": "all of {expected} in {value}, in any case",
    "icontains_any": "any of {expected} in {value}, in any case",
    "starts_with": "{expected} at the beginning of {value}",
    "ends_with": "{expected} at the end of {value}",
    "regex": "a match of {expected} in {value}",
    "is_json": "JSON, got {value}",
    "contains_json": "JSON in {value}",
    "json_schema": "JSON that fits the schema, got {value}",
    "json_path": "{expected} in {value}",
    "refusal": "a refusal, got {value}",
}
_EXPLAINED = ("judge", "semantic", "similarity", "python", "javascript")
"""Kinds whose reasons explain a result either way; a reason of the others says why the check failed."""


def negate(check: Check, value: Any, grade: CheckResult) -> CheckResult:
    """Return the result of a check for a value, inverted if the check is negated."""
    if check.options.get("negate") is not True:
        return grade
    if grade.passed:
        return negated(grade, f"expected not {_unexpected(check, value, grade.reason)}")
    return negated(grade, grade.reason if check.kind in _EXPLAINED else "")


def negated(grade: CheckResult, reason: str = "") -> CheckResult:
    """Return the opposite result, with its reason; an unscored one stays unscored."""
    if grade.passed is None:
        return grade
    if not grade.passed and not reason and grade.score is None and grade.share is None and grade.usage is NO_USAGE:
        return CheckResult(True, named_scores=grade.named_scores) if grade.named_scores else PASSED
    return CheckResult(
        not grade.passed,
        # A score with its own scale stays as the judge gave it; only its share is inverted.
        grade.score if grade.score is None or grade.share is not None else 1 - grade.score,
        reason,
        share=None if grade.share is None else 1 - grade.share,
        usage=grade.usage,
        named_scores=grade.named_scores,
    )


def _unexpected(check: Check, value: Any, reason: str) -> str:
    """Return what a negated check has found, after `expected not`."""
    expected = show(check.expected, 120)
    if phrase := _PHRASES.get(check.kind):
        return phrase.format(expected=expected, value=show(value)) + (f" ({reason})" if reason else "")
    bounds = {name: check.options[name] for name in ("min", "max") if name in check.options}
    what = " ".join([check.kind, *([show(bounds)] if bounds else [] if check.expected is None else [expected])])
    return f"{what}: {reason}" if reason else f"{what}, got {show(value)}"
