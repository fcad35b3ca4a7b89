"""Gates: claims about a whole batch that must hold, such as `pass_rate[tag=safety] >= 95%`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection
from typing import Any

from msgspec import Struct

from evalloom.analysis.tally import STATUSES, Group, Tally
from evalloom.core import expressions
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.expressions import Expression
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Status
from evalloom.core.text import did_you_mean, pluralize, quote

KEYS = ("profile", "tag")
_GROUPS = ("profiles", "tags")
"""The names that an expression may use in addition to the metrics of all runs."""
RATES = ("pass_rate", "pass_rate_low")

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}


def _count_of(status: Status) -> Callable[[Group], float]:
    return lambda group: group.count(status)


def _latency(share: float) -> Callable[[Group], float | None]:
    return lambda group: group.latencies(share)[0]


METRICS: dict[str, Callable[[Group], float | None]] = {
    "pass_rate": lambda group: group.pooled.pass_rate,
    "pass_rate_low": lambda group: group.pooled.bounds[0],
    "total": lambda group: group.total,
    "cases": lambda group: group.pooled.cases,
    "failing": lambda group: group.shares.failing,
    "flaky": lambda group: group.shares.flaky,
    **{status: _count_of(status) for status in STATUSES},
    "mean_latency_s": lambda group: group.mean_latency_s,
    "p50_latency_s": _latency(0.5),
    "p95_latency_s": _latency(0.95),
    "p99_latency_s": _latency(0.99),
    "max_latency_s": _latency(1.0),
    "tokens": lambda group: group.spent.tokens,
    "cost": lambda group: group.spent.cost,
    "mean_score": lambda group: group.mean_score,
}

# Marks of an expression that a claim about one metric cannot have.
_EXPRESSION_MARKS = lazy_pattern(r"\b(and|or|not|in)\b|\b(profiles|tags)[.\[]|\(|^\s*[\d.]+\s*[<>=!]")
_NAME = lazy_pattern(r"\w+")
_VALUE = lazy_pattern(
    r""" "(?P<double>[^"]*)" | '(?P<single>[^']*)' | (?P<bare>[^\s,\]"'](?:[^,\]]*[^\s,\]])?) """, re.X
)
_OPERATOR = lazy_pattern(r"[<>=!≤≥＜＞＝]+")
_NUMBER = lazy_pattern(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")


class GateResult(Struct, frozen=True):
    """Whether a gate holds, and for which figure; `low` and `high` are the 95 % confidence interval of a pass rate."""

    text: str
    holds: bool
    actual: float | None
    reason: str
    low: float | None = None
    high: float | None = None


def figure_text(value: float) -> str:
    """Return a figure with enough digits that it cannot look equal to a limit that it misses."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.6g}"


class Gate(Struct, frozen=True):
    """A claim about one metric, of all runs or of those of a profile or tag."""

    text: str
    metric: str
    sign: str
    limit: float
    profile: str | None = None
    tag: str | None = None

    def check(self, tally: Tally) -> GateResult:
        """Check the claim against the counted runs. A claim about no runs does not hold."""
        group = tally.group(self.profile, self.tag)
        if not group.total:
            return GateResult(self.text, False, None, self._why_no_runs(tally))
        actual = METRICS[self.metric](group)
        if actual is None:
            return GateResult(self.text, False, None, f"{self.metric} is unknown: {_why_unknown(self.metric)}")
        if self.metric == "cost" and group.spent.unpriced:
            reason = (
                f"cost is unknown: {group.spent.unpriced} calls have no price. Set one for their llm in the settings"
            )
            return GateResult(self.text, False, None, reason)
        return self._compare(actual, group)

    def _compare(self, actual: float, group: Group) -> GateResult:
        # The mean of ten scores of 0.9 is 0.8999999999999998, which should meet `mean_score >= 0.9`.
        actual = round(actual, 9)
        holds = OPERATORS[self.sign](actual, self.limit)
        low, high = group.pooled.bounds if self.metric in RATES else (None, None)
        reason = f"{self.metric} is {figure_text(actual)}"
        if low is not None:
            reason += f" over {pluralize(group.pooled.cases, 'case')} (95 % CI {low:.3f}–{high:.3f})"
        if not holds:
            reason += f", not {self.sign} {figure_text(self.limit)}"
        return GateResult(self.text, holds, actual, reason + _estimate_note([self.metric], group), low, high)

    def _why_no_runs(self, tally: Tally) -> str:
        for key, name, names in (("profile", self.profile, tally.profiles()), ("tag", self.tag, tally.tags())):
            if name is not None and name not in names:
                return f"no run has the {key} {quote(name)}{did_you_mean(name, names)}"
        if self.profile is None or self.tag is None:
            return "there are no runs"
        return f"no run of the profile {quote(self.profile)} has the tag {quote(self.tag)}"


class ExpressionGate(Struct, frozen=True):
    """Any expression over the metrics, of all runs and under `profiles` and `tags`."""

    text: str
    expression: Expression

    def check(self, tally: Tally) -> GateResult:
        """Check the expression against the counted runs. An unknown figure is null, for which only `!=` holds."""
        named = self.expression.names
        names: dict[str, Any] = {metric: _figure(metric, tally.group()) for metric in METRICS if metric in named}
        if "profiles" in named:
            names["profiles"] = {name: _all_figures(tally.group(profile=name)) for name in tally.profiles()}
        if "tags" in named:
            names["tags"] = {name: _all_figures(group) for name, group in tally.by_tag().items()}
        figures = {name: value for name, value in names.items() if name in METRICS}
        reason = ", ".join(
            f"{name} is {'unknown' if value is None else figure_text(value)}" for name, value in figures.items()
        )
        reason += _estimate_note(self.expression.names & {*figures, *_GROUPS}, tally.group())
        holds = self.expression.holds(names)
        return GateResult(self.text, holds, None, reason or ("it holds" if holds else "it does not hold"))


def _estimate_note(metrics: Collection[str], group: Group) -> str:
    """Say that tokens and cost are estimated, if they are and a claim is about them."""
    calls = group.spent.estimated
    if not calls or not {"cost", "tokens", *_GROUPS} & {*metrics}:
        return ""
    return f"; estimated for {pluralize(calls, 'call')} whose server sent no usage"


def _all_figures(group: Group) -> dict[str, float | None]:
    return {metric: _figure(metric, group) for metric in METRICS}


def _figure(metric: str, group: Group) -> float | None:
    figure = None if metric == "cost" and group.spent.unpriced else METRICS[metric](group)
    return None if figure is None else round(figure, 9)


def parse(text: str) -> Gate | ExpressionGate:
    """Parse a claim `metric[key=value, …] sign number`, or an expression over metrics. Raises bad_gate."""
    try:
        return _claim(text)
    except EvalloomError:
        if not _EXPRESSION_MARKS.search(text):
            raise
    try:
        expression = expressions.compile(text)
    except expressions.ExpressionError as error:
        raise usage_error("bad_gate", f"gate {quote(text, 100)}: {error}") from None
    for name in sorted(expression.names - {*METRICS, *_GROUPS}):
        hint = did_you_mean(name, METRICS) or f". There are {', '.join(METRICS)}"
        raise usage_error("bad_gate", f"gate {quote(text, 100)}: there is no metric {name!r}{hint}")
    return ExpressionGate(text.strip(), expression)


def _claim(text: str) -> Gate:
    scanner = _Scanner(text)
    metric = scanner.take_name("a metric", METRICS)
    keys = _keys(scanner) if scanner.skip_mark("[") else {}
    sign = scanner.take(_OPERATOR, f"one of {' '.join(OPERATORS)}")
    if sign not in OPERATORS:
        raise scanner.unexpected(f"one of {' '.join(OPERATORS)}", sign)
    limit = _limit(scanner, metric)
    if not scanner.at_end():
        raise scanner.unexpected("nothing more", scanner.rest())
    return Gate(text.strip(), metric, sign, limit, keys.get("profile"), keys.get("tag"))


class _Scanner:
    """Scans the text of a gate; its errors name the column."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.start = self.end = 0

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self._skip_space()
        match = pattern.match(self.text, self.start)
        if match:
            self.end = match.end()
        return match

    def take(self, pattern: re.Pattern[str], expected: str) -> str:
        match = self.match(pattern)
        if not match:
            raise self.unexpected(expected, self.rest())
        return match.group()

    def skip_mark(self, mark: str) -> bool:
        self._skip_space()
        if not self.text.startswith(mark, self.start):
            return False
        self.end = self.start + len(mark)
        return True

    def take_name(self, expected: str, names: Collection[str]) -> str:
        name = self.take(_NAME, expected)
        if name not in names:
            raise self.unexpected(expected, name, did_you_mean(name, list(names)) or f". There are {', '.join(names)}")
        return name

    def at_end(self) -> bool:
        self._skip_space()
        return self.start == len(self.text)

    def rest(self) -> str:
        return self.text[self.start :].strip()

    def unexpected(self, expected: str, got: str, hint: str = "") -> EvalloomError:
        """Return the error for an unexpected text at the current position."""
        shown = quote(got) if got else "the end"
        place = f"gate {quote(self.text, 100)}: column {self.start + 1}"
        return usage_error("bad_gate", f"{place}: expected {expected}, got {shown}{hint}")

    def _skip_space(self) -> None:
        self.start = len(self.text) - len(self.text[self.end :].lstrip())


def _keys(scanner: _Scanner) -> dict[str, str]:
    keys: dict[str, str] = {}
    while True:
        key = scanner.take_name(" or ".join(KEYS), KEYS)
        if key in keys:
            raise scanner.unexpected("each key once", key)
        if not scanner.skip_mark("="):
            raise scanner.unexpected(f"= after {key}", scanner.rest())
        value = scanner.match(_VALUE)
        if not value:
            raise scanner.unexpected(f"the {key}", scanner.rest())
        keys[key] = next(part for part in value.groups() if part is not None)
        if scanner.skip_mark("]"):
            return keys
        if not scanner.skip_mark(","):
            raise scanner.unexpected(", or ]", scanner.rest())


def _limit(scanner: _Scanner, metric: str) -> float:
    digits = scanner.take(_NUMBER, "a number")
    start, limit = scanner.start, float(digits)
    if scanner.skip_mark("%"):
        if metric not in (*RATES, "mean_score"):
            raise scanner.unexpected(f"a plain number for {metric}", "%")
        # Not `limit / 100`: 99.9 / 100 is more than 0.999.
        limit = float(f"{digits}e-2")
    if metric in RATES and not 0 <= limit <= 1:
        scanner.start = start
        raise scanner.unexpected("a rate from 0 to 1 or from 0% to 100%", scanner.rest())
    return limit


def _why_unknown(metric: str) -> str:
    if metric in RATES:
        return "no run passed, failed or met an error"
    return "no run has a score" if metric == "mean_score" else "no run gave an answer"
