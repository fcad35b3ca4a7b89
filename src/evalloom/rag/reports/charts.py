"""The chart of a RAG report: a rate by bucket with its interval, as inline SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from evalloom.core.text import shorten
from evalloom.rag.reports import content as shown
from evalloom.ui.charts import percent, svg
from evalloom.ui.markup import Markup, element

if TYPE_CHECKING:
    from evalloom.rag.analysis.measures import Group

_ROW, _FOOT = 44, 26
"""Height in pixels of a group, and of the scale below."""
_LEFT, _RIGHT = 22.0, 96.0
"""Positions of 0 and 100 %, in percent of the width."""
_LONGEST_NAME = 18


def by_group(groups: Sequence[Group], measure: str) -> Markup:
    """A bar per group from 0 to its rate, with its interval as a band."""
    description = "; ".join(f"{group.name}: {shown.with_bounds(group.measure(measure))}" for group in groups)
    bottom = _ROW * len(groups)
    rows = [piece for place, group in enumerate(groups) for piece in _row(group, measure, place * _ROW)]
    return svg(f"{measure} by bucket. {description}", *_scale(bottom), *rows, height=str(bottom + _FOOT))


def _scale(bottom: int) -> Iterator[Markup]:
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = percent(_place(share))
        yield element("line", class_="axis", x1=x, x2=x, y1="0", y2=str(bottom))
        yield _text(f"{share:.0%}".replace("%", " %"), _place(share), bottom + 18, "light", "middle")


def _row(group: Group, measure: str, top: int) -> Iterator[Markup]:
    rate = group.measure(measure)
    name = shorten(group.name, _LONGEST_NAME)
    yield _text(name, 0, top + 19, "ink", "start")
    if rate.mean is None or rate.low is None or rate.high is None:
        yield _text("no case measured", 0, top + 35, "light", "start")
        return
    yield _text(f"{shown.percent(rate.mean)} · n {rate.cases:,}", 0, top + 35, "light", "start")
    start, end = _place(0), _place(rate.mean)
    title = element("title", f"{group.name}: {shown.with_bounds(rate)}, {rate.cases:,} cases")
    bar = {"x": percent(start), "width": percent(end - start), "y": str(top + 10), "height": "24", "rx": "3"}
    yield element("rect", title, class_="rate", **bar)
    low, high = _place(rate.low), _place(rate.high)
    yield element(
        "rect", class_="between", x=percent(low), width=percent(high - low), y=str(top + 17), height="10", rx="5"
    )
    yield element("circle", class_="at", cx=percent(end), cy=str(top + 22), r="5")


def _place(share: float) -> float:
    return _LEFT + (_RIGHT - _LEFT) * share


def _text(text: str, x: float, y: float, kind: str, anchor: str) -> Markup:
    return element("text", text, class_=kind, x=percent(x), y=f"{y:g}", text_anchor=anchor)
