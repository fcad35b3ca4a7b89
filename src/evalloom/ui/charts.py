"""Charts as inline SVG: positions are in percent, so that a chart fits any width without a script."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup, escape

from evalloom.ui.text import visible

_DIGIT_WIDTH = 2.5
"""Percent of a stacked bar that a digit needs; a narrower segment has its number only in the tooltip."""
_COLUMN_TOP, _COLUMN_BOTTOM = 12.0, 80.0
"""Top of the tallest column and bottom of all columns, in percent of the height."""
_BAR_HEIGHT, _SCALE_HEIGHT = 44, 26
"""Height of a bar with its name and of the scale below the bars, in pixels."""
_BAR_LEFT, _BAR_RIGHT = 22.0, 96.0
"""Positions of 0 and 100 % in a bar chart, in percent of the width."""
_LONGEST_NAME = 18
_CHART_LEFT, _CHART_RIGHT, _CHART_TOP, _CHART_BOTTOM = 5.0, 100.0, 6.0, 94.0
"""Edges of the area of rates over time, in percent."""
_MOST_LARGE_POINTS = 30


class BarSegment(NamedTuple):
    """A segment of a stacked bar; `fill` and `ink` are classes of its area and its number."""

    cases: int
    fill: str
    ink: str
    tooltip: str


class Column(NamedTuple):
    """A column of a column chart, with the labels below it."""

    cases: int
    fill: str
    labels: tuple[str, ...]


class Bar(NamedTuple):
    """A bar of a bar chart; `interval` is rate, low and high as shares, or None when nothing was measured."""

    name: str
    note: str
    tooltip: str
    interval: tuple[float, float, float] | None


class RatePoint(NamedTuple):
    """A rate of a series over time; `words` say it, and `href` leads to where it comes from."""

    words: str
    href: str
    rate: float | None
    low: float | None
    high: float | None
    is_marked: bool = False
    """Whether something changed before it."""


def interval(rate: float, low: float, high: float, description: str = "") -> Markup:
    """A rate on a line from 0 to 100 %, with its interval as a band."""
    return _svg(
        description or f"95 % interval {100 * low:.0f}–{100 * high:.0f} %",
        [
            element("rect", class_="track", x="0%", width="100%", y="5", height="4", rx="2"),
            element("rect", class_="band", x=_percent(low), width=_percent(high - low), y="2", height="10", rx="3"),
            element("circle", class_="dot", cx=_percent(rate), cy="7", r="5"),
        ],
    )


def stacked_bar(description: str, segments: Sequence[BarSegment]) -> Markup:
    """One bar, divided in proportion to the cases of its segments."""
    total = sum(segment.cases for segment in segments)
    shapes = []
    left = 0.0
    for segment in segments:
        if not segment.cases:
            continue
        width = segment.cases / total
        tooltip = element("title", segment.tooltip)
        shapes.append(
            element("rect", tooltip, class_=segment.fill, x=_percent(left), width=_percent(width), height="100%")
        )
        number = f"{segment.cases:,}"
        if 100 * width >= _DIGIT_WIDTH * len(number):
            shapes.append(_label(number, left + width / 2, "50.00%", segment.ink, dominant_baseline="central"))
        left += width
    return _svg(description, shapes)


def column_chart(description: str, columns: Sequence[Column]) -> Markup:
    """Columns as high as their numbers of cases, which stand above them."""
    most = max((column.cases for column in columns), default=0) or 1
    shapes = []
    for position, column in enumerate(columns):
        width = 1 / len(columns)
        middle = (position + 0.5) * width
        height = (_COLUMN_BOTTOM - _COLUMN_TOP) * column.cases / most
        top = _COLUMN_BOTTOM - height
        shapes.append(
            element(
                "rect",
                class_=column.fill,
                x=_percent(middle - 0.36 * width),
                width=_percent(0.72 * width),
                y=f"{top:.2f}%",
                height=f"{height:.2f}%",
                rx="3",
            )
        )
        shapes.append(_label(f"{column.cases:,}", middle, f"{top - 3:.2f}%", "ink" if column.cases else "light"))
        for line, text in enumerate(column.labels, 1):
            shapes.append(_label(text, middle, f"{_COLUMN_BOTTOM + 9 * line:.2f}%", "light"))
    bottom = f"{_COLUMN_BOTTOM:.2f}%"
    shapes.append(element("line", class_="axis", x1="0%", x2="100%", y1=bottom, y2=bottom))
    return _svg(description, shapes)


def bar_chart(description: str, bars: Sequence[Bar]) -> Markup:
    """A bar per row from 0 to its rate, with its interval as a band and a scale below all bars."""
    bottom = _BAR_HEIGHT * len(bars)
    shapes = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = _percent(_on_scale(share))
        shapes.append(element("line", class_="axis", x1=x, x2=x, y1="0", y2=str(bottom)))
        shapes.append(_label(f"{100 * share:.0f} %", _on_scale(share), str(bottom + 18), "light"))
    for position, bar in enumerate(bars):
        top = position * _BAR_HEIGHT
        name = bar.name if len(bar.name) <= _LONGEST_NAME else f"{bar.name[: _LONGEST_NAME - 1]}…"
        shapes.append(_label(name, 0, str(top + 19), "ink", text_anchor="start"))
        shapes.append(_label(bar.note, 0, str(top + 35), "light", text_anchor="start"))
        if bar.interval is None:
            continue
        start, (end, low, high) = _on_scale(0), map(_on_scale, bar.interval)
        tooltip = element("title", bar.tooltip)
        across = {"x": _percent(start), "width": _percent(end - start)}
        shapes.append(element("rect", tooltip, class_="rate", **across, y=str(top + 10), height="24", rx="3"))
        across = {"x": _percent(low), "width": _percent(high - low)}
        shapes.append(element("rect", class_="between", **across, y=str(top + 17), height="10", rx="5"))
        shapes.append(element("circle", class_="at", cx=_percent(end), cy=str(top + 22), r="5"))
    return _svg(description, shapes, height=str(bottom + _SCALE_HEIGHT))


def rate_chart(description: str, points: Sequence[RatePoint]) -> Markup:
    """Rates over time on a scale from 0 to 100 %, each with its interval as a bar; every point is a link."""

    def height(share: float) -> str:
        return _percent((_CHART_BOTTOM - (_CHART_BOTTOM - _CHART_TOP) * share) / 100)

    def across(position: int) -> str:
        return _percent((_CHART_LEFT + (_CHART_RIGHT - _CHART_LEFT) * (position + 0.5) / len(points)) / 100)

    shapes = []
    for share in (0.0, 0.5, 1.0):
        y = height(share)
        shapes.append(element("line", class_="axis", x1=f"{_CHART_LEFT}%", x2="100%", y1=y, y2=y))
        shapes.append(_label(f"{100 * share:.0f} %", 0, y, "light", "start", dominant_baseline="central"))
    places = [(across(at), height(point.rate)) for at, point in enumerate(points) if point.rate is not None]
    for (x1, y1), (x2, y2) in pairwise(places):
        shapes.append(element("line", class_="trend", x1=x1, y1=y1, x2=x2, y2=y2))
    for position, point in enumerate(points):
        x = across(position)
        if point.is_marked:
            ends = {"x1": x, "x2": x, "y1": f"{_CHART_TOP}%", "y2": f"{_CHART_BOTTOM}%"}
            shapes.append(element("line", class_="event", **ends))
        if point.rate is None:
            continue
        drawn = []
        if point.low is not None and point.high is not None:
            ends = {"x1": x, "x2": x, "y1": height(point.low), "y2": height(point.high)}
            drawn.append(element("line", class_="spread", **ends))
        radius = "5" if len(points) <= _MOST_LARGE_POINTS else "3"
        drawn.append(element("circle", class_="at", cx=x, cy=height(point.rate), r=radius))
        drawn.append(element("title", point.words))
        shapes.append(element("a", Markup("").join(drawn), href=point.href, aria_label=point.words))
    # Not an image: its points are links.
    return element("svg", Markup("").join(shapes), role="group", aria_label=description)


def _on_scale(share: float) -> float:
    return (_BAR_LEFT + (_BAR_RIGHT - _BAR_LEFT) * share) / 100


def _svg(description: str, shapes: Sequence[Markup], **attributes: str) -> Markup:
    """A chart with its description in words for screen readers."""
    return element("svg", Markup("").join(shapes), role="img", aria_label=description, **attributes)


def _label(text: str, x: float, y: str, kind: str, text_anchor: str = "middle", **attributes: str) -> Markup:
    return element("text", text, class_=kind, x=_percent(x), y=y, text_anchor=text_anchor, **attributes)


def element(name: str, content: str = "", **attributes: str) -> Markup:
    """Return an SVG element: in the name of an attribute a trailing `_` is dropped and `_` becomes `-`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(visible(value))}"' for key, value in attributes.items()
    )
    inside = content if isinstance(content, Markup) else escape(visible(content))
    return Markup(f"<{name}{written}>{inside}</{name}>")


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"
