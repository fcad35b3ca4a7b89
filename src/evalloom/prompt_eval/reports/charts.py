"""The charts of the HTML report as inline SVG: sizes in percent, so that they fit any width without a script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from evalloom.core.text import pluralize
from evalloom.prompt_eval.reports import content as shown
from evalloom.ui.charts import chance, label, percent, svg
from evalloom.ui.markup import Markup, element

if TYPE_CHECKING:
    from evalloom.prompt_eval.analysis.scorecard import Bucket, Tally

__all__ = ["chance", "distribution", "histogram"]

_DIGIT = 2.5
"""Percent of a bar that a digit takes; where a part has no room for its number, the title has it."""
_TOP, _BOTTOM = 12.0, 80.0
"""Where the tallest bar of the histogram begins and where all end, in percent of its height."""


def distribution(tally: Tally) -> Markup:
    """One bar parted by how many cases got 1, 2 and 3."""
    counts = dict(enumerate(tally.counts, 1))
    said = ", ".join(f"{pluralize(count, 'case')} with {score}" for score, count in counts.items())
    return svg(said, *_parts(counts, tally.cases))


def _parts(counts: dict[int, int], total: int) -> Iterator[Markup]:
    left = 0.0
    for score, count in counts.items():
        width = 100 * count / total if total else 0.0
        if count:
            title = element("title", f"{pluralize(count, 'case')} with {score}: {shown.rate(count, total)}")
            yield element("rect", title, class_=f"s{score}", x=percent(left), width=percent(width), height="100%")
        if count and width >= _DIGIT * len(f"{count:,}"):
            yield label(f"{count:,}", left + width / 2, 50, f"t{score}", dominant_baseline="central")
        left += width


def histogram(buckets: tuple[Bucket, ...]) -> Markup:
    """Bars for the shares of the most that cases got; those that pass are set off by colour and by a word."""
    most = max((one.cases for one in buckets), default=0) or 1
    said = "; ".join(f"{shown.bucket(one)}: {pluralize(one.cases, 'case')}" for one in buckets)
    bars = [piece for place, one in enumerate(buckets) for piece in _column(one, place, len(buckets), most)]
    ground = element("line", class_="axis", x1="0%", x2="100%", y1=percent(_BOTTOM), y2=percent(_BOTTOM))
    return svg(said, *bars, ground)


def _column(one: Bucket, place: int, places: int, most: int) -> Iterator[Markup]:
    wide = 100 / places
    middle, height = (place + 0.5) * wide, (_BOTTOM - _TOP) * one.cases / most
    kind = "pass" if one.is_passing else "below"
    top = _BOTTOM - height
    yield element(
        "rect",
        class_=kind,
        x=percent(middle - 0.36 * wide),
        width=percent(0.72 * wide),
        y=percent(top),
        height=percent(height),
        rx="3",
    )
    yield label(f"{one.cases:,}", middle, top - 3, "ink" if one.cases else "light")
    yield label(shown.bucket(one).removesuffix(" %"), middle, _BOTTOM + 9, "light")
    if one.is_passing:
        yield label("pass", middle, _BOTTOM + 18, "light")
