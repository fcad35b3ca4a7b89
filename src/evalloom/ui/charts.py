"""The pieces of charts as inline SVG: sizes in percent, so that they fit any width without a script."""

from __future__ import annotations

from evalloom.ui.markup import Markup, element


def chance(bounds: tuple[float, float], rate: float) -> Markup:
    """A rate on a line from 0 to 100 %, with its interval as a band."""
    low, high = 100 * bounds[0], 100 * bounds[1]
    return svg(
        f"95 % interval {low:.0f}–{high:.0f} %",
        element("rect", class_="track", x="0%", width="100%", y="5", height="4", rx="2"),
        element("rect", class_="band", x=percent(low), width=percent(high - low), y="2", height="10", rx="3"),
        element("circle", class_="dot", cx=percent(100 * rate), cy="7", r="5"),
    )


def svg(said: str, *content: Markup, height: str | None = None) -> Markup:
    """A chart, and what it shows in words for whoever does not see it."""
    return element("svg", *content, role="img", aria_label=said, height=height)


def label(text: str, x: float, y: float, kind: str, dominant_baseline: str | None = None) -> Markup:
    """A text in a chart, at a place in percent of its sides."""
    return element(
        "text",
        text,
        class_=kind,
        x=percent(x),
        y=percent(y),
        text_anchor="middle",
        dominant_baseline=dominant_baseline,
    )


def percent(number: float) -> str:
    """A place or a length in a chart."""
    return f"{number:.2f}%"
