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
from evalloom.core.text import did_you_mean, quote

KEYS = ("profile", "tag")
_GROUPS = ("profiles", "tags")
"""What an expression may look into beside the metrics of all runs."""
RATES = ("pass_rate", "pass_rate_low")

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}


def _count(status: Status) -> Callable[[Group], float]:
    return lambda group: group.count(status)


def _latency(share: float) -> Callable[[Group], float | None]:
    return lambda group: group.latencies(share)[0]


METRICS: dict[str, Callable[[Group], float | None]] = {
    "pass_rate": lambda group: group.pass_rate,
    "pass_rate_low": lambda group: group.pass_rate_bounds[0],
    "total": lambda group: group.total,
    **{status: _count(status) for status in STATUSES},
    "mean_latency_s": lambda group: group.mean_latency_s,
    "p50_latency_s": _latency(0.5),
    "p95_latency_s": _latency(0.95),
    "p99_latency_s": _latency(0.99),
    "max_latency_s": _latency(1.0),
    "tokens": lambda group: group.spent.tokens,
    "cost": lambda group: group.spent.cost,
    "mean_score": lambda group: group.mean_score,
}

# What a claim about one metric has no words for.
_MORE = lazy_pattern(r"\b(and|or|not|in)\b|\b(profiles|tags)[.\[]|\(|^\s*[\d.]+\s*[<>=!]")
_NAME = lazy_pattern(r"\w+")
_VALUE = lazy_pattern(
    r""" "(?P<double>[^"]*)" | '(?P<single>[^']*)' | (?P<bare>[^\s,\]"'](?:[^,\]]*[^\s,\]])?) """, re.X
)
_OPERATOR = lazy_pattern(r"[<>=!≤≥＜＞＝]+")
_NUMBER = lazy_pattern(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")


class GateResult(Struct, frozen=True):
    """Whether a gate holds, and on which figure; `low` and `high` bound a pass rate with 95 % confidence."""

    text: str
    holds: bool
    actual: float | None
    reason: str
    low: float | None = None
    high: float | None = None


class Gate(Struct, frozen=True):
    """One claim; without a profile or a tag it is about all of them together."""

    text: str
    metric: str
    sign: str
    limit: float
    profile: str | None = None
    tag: str | None = None

    def check(self, tally: Tally) -> GateResult:
        """Holds the claim against what was counted. A claim about nothing does not hold."""
        group = tally.group(self.profile, self.tag)
        if not group.total:
            return GateResult(self.text, False, None, self._nothing(tally))
        actual = METRICS[self.metric](group)
        if actual is None:
            return GateResult(self.text, False, None, f"{self.metric} is unknown: {_missing(self.metric)}")
        if self.metric == "cost" and group.spent.unpriced:
            reason = f"cost is unknown: {group.spent.unpriced} calls have no price. Give their llm one in the settings"
            return GateResult(self.text, False, None, reason)
        return self._compared(actual, group)

    def _compared(self, actual: float, group: Group) -> GateResult:
        # The mean of ten scores of 0.9 is 0.8999999999999998, and nobody means that by `mean_score >= 0.9`.
        actual = round(actual, 9)
        holds = OPERATORS[self.sign](actual, self.limit)
        low, high = group.pass_rate_bounds if self.metric in RATES else (None, None)
        reason = f"{self.metric} is {actual:.6g}"
        if low is not None:
            reason += f" over {group.counted} runs (95 % CI {low:.3f}–{high:.3f})"
        return GateResult(self.text, holds, actual, reason if holds else f"{reason}, not {self._claim()}", low, high)

    def _claim(self) -> str:
        return f"{self.sign} {self.limit:g}"

    def _nothing(self, tally: Tally) -> str:
        for key, wanted, known in (("profile", self.profile, tally.profiles()), ("tag", self.tag, tally.tags())):
            if wanted is not None and wanted not in known:
                return f"no run has the {key} {quote(wanted)}{did_you_mean(wanted, known)}"
        if self.profile is None or self.tag is None:
            return "there are no runs"
        return f"no run of the profile {quote(self.profile)} has the tag {quote(self.tag)}"


class ExpressionGate(Struct, frozen=True):
    """Any expression over the metrics, of all runs and under `profiles` and `tags`."""

    text: str
    expression: Expression

    def check(self, tally: Tally) -> GateResult:
        """Whether it holds; what nobody counted is null, and nothing but `!=` holds of that."""
        named = self.expression.names
        names: dict[str, Any] = {metric: _figure(metric, tally.group()) for metric in METRICS if metric in named}
        if "profiles" in named:
            names["profiles"] = {name: _all_figures(tally.group(profile=name)) for name in tally.profiles()}
        if "tags" in named:
            names["tags"] = {name: _all_figures(tally.group(tag=name)) for name in tally.tags()}
        figures = {name: value for name, value in names.items() if name in METRICS}
        told = ", ".join(
            f"{name} is {'unknown' if value is None else f'{value:.6g}'}" for name, value in figures.items()
        )
        holds = self.expression.holds(names)
        return GateResult(self.text, holds, None, told or ("it holds" if holds else "it does not hold"))


def _all_figures(group: Group) -> dict[str, float | None]:
    return {metric: _figure(metric, group) for metric in METRICS}


def _figure(metric: str, group: Group) -> float | None:
    found = None if metric == "cost" and group.spent.unpriced else METRICS[metric](group)
    return None if found is None else round(found, 9)


def parse(text: str) -> Gate | ExpressionGate:
    """A claim `metric[key=value, …] sign number`, or an expression over metrics. Raises bad_gate, with the column."""
    try:
        return _claim(text)
    except EvalloomError:
        if not _MORE.search(text):
            raise
    try:
        expression = expressions.compile(text)
    except expressions.ExpressionError as fault:
        raise usage_error("bad_gate", f"gate {quote(text, 100)}: {fault}") from None
    for name in sorted(expression.names - {*METRICS, *_GROUPS}):
        hint = did_you_mean(name, METRICS) or f". There are {', '.join(METRICS)}"
        raise usage_error("bad_gate", f"gate {quote(text, 100)}: there is no metric {name!r}{hint}")
    return ExpressionGate(text.strip(), expression)


def _claim(text: str) -> Gate:
    reader = _Reader(text)
    metric = reader.one_of("a metric", METRICS)
    keys = _keys(reader) if reader.took("[") else {}
    sign = reader.take(_OPERATOR, f"one of {' '.join(OPERATORS)}")
    if sign not in OPERATORS:
        raise reader.fault(f"one of {' '.join(OPERATORS)}", sign)
    limit = _limit(reader, metric)
    if not reader.at_end():
        raise reader.fault("nothing more", reader.rest())
    return Gate(text.strip(), metric, sign, limit, keys.get("profile"), keys.get("tag"))


class _Reader:
    """Walks over the text of a gate, so that a fault can name its column."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.start = self.end = 0

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self._skip()
        found = pattern.match(self.text, self.start)
        if found:
            self.end = found.end()
        return found

    def take(self, pattern: re.Pattern[str], expected: str) -> str:
        found = self.match(pattern)
        if not found:
            raise self.fault(expected, self.rest())
        return found.group()

    def took(self, mark: str) -> bool:
        self._skip()
        if not self.text.startswith(mark, self.start):
            return False
        self.end = self.start + len(mark)
        return True

    def one_of(self, expected: str, names: Collection[str]) -> str:
        name = self.take(_NAME, expected)
        if name not in names:
            raise self.fault(expected, name, did_you_mean(name, list(names)) or f". There are {', '.join(names)}")
        return name

    def at_end(self) -> bool:
        self._skip()
        return self.start == len(self.text)

    def rest(self) -> str:
        return self.text[self.start :].strip()

    def fault(self, expected: str, got: str, hint: str = "") -> EvalloomError:
        """Something other than expected, where the reader stands."""
        shown = quote(got) if got else "the end"
        place = f"gate {quote(self.text, 100)}: column {self.start + 1}"
        return usage_error("bad_gate", f"{place}: expected {expected}, got {shown}{hint}")

    def _skip(self) -> None:
        self.start = len(self.text) - len(self.text[self.end :].lstrip())


def _keys(reader: _Reader) -> dict[str, str]:
    keys: dict[str, str] = {}
    while True:
        key = reader.one_of(" or ".join(KEYS), KEYS)
        if key in keys:
            raise reader.fault("each key once", key)
        if not reader.took("="):
            raise reader.fault(f"= after {key}", reader.rest())
        keys[key] = _value(reader, key)
        if reader.took("]"):
            return keys
        if not reader.took(","):
            raise reader.fault(", or ]", reader.rest())


def _value(reader: _Reader, key: str) -> str:
    found = reader.match(_VALUE)
    if not found:
        raise reader.fault(f"the {key}", reader.rest())
    return next(part for part in found.groups() if part is not None)


def _limit(reader: _Reader, metric: str) -> float:
    digits = reader.take(_NUMBER, "a number")
    start, limit = reader.start, float(digits)
    if reader.took("%"):
        if metric not in (*RATES, "mean_score"):
            raise reader.fault(f"a plain number for {metric}", "%")
        # Not `limit / 100`: 99.9 / 100 is more than 0.999.
        limit = float(f"{digits}e-2")
    if metric in RATES and not 0 <= limit <= 1:
        reader.start = start
        raise reader.fault("a rate from 0 to 1 or from 0% to 100%", reader.rest())
    return limit


def _missing(metric: str) -> str:
    if metric in RATES:
        return "no run passed, failed or met an error"
    return "no run has a score" if metric == "mean_score" else "no run gave an answer"
