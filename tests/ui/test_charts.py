"""Charts are SVG with their figures in words, and no text breaks them."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from evalloom.ui.charts import Bar, BarSegment, Column, bar_chart, column_chart, interval, stacked_bar

shares = st.floats(0, 1)
counts = st.lists(st.integers(0, 10**6), max_size=8)


@given(st.text(max_size=20), counts, st.lists(st.tuples(shares, shares, shares), max_size=5))
def test_any_text_and_any_figures_give_well_formed_svg(
    text: str, numbers: list[int], rates: list[tuple[float, float, float]]
) -> None:
    charts = (
        stacked_bar(text, [BarSegment(number, "s1", "t1", text) for number in numbers]),
        column_chart(text, [Column(number, "pass", (text, text)) for number in numbers]),
        bar_chart(text, [Bar(text, text, text, rate) for rate in rates] + [Bar(text, text, text, None)]),
        interval(*(rates[0] if rates else (0.5, 0.2, 0.8))),
    )
    for chart in charts:
        assert ElementTree.fromstring(chart).get("role") == "img"
        assert "nan" not in re.sub("<[^>]*label[^>]*>|<(title|text)[^>]*>[^<]*|dominant", "", chart)


@given(counts)
def test_the_parts_of_a_stacked_bar_fill_it(numbers: list[int]) -> None:
    chart = ElementTree.fromstring(stacked_bar("", [BarSegment(number, "s1", "t1", "") for number in numbers]))
    widths = [float(str(part.get("width")).rstrip("%")) for part in chart.iter("rect")]
    assert len(widths) == sum(number > 0 for number in numbers)
    assert not widths or abs(sum(widths) - 100) < 0.1


def test_an_interval_is_said_in_words() -> None:
    assert ElementTree.fromstring(interval(0.43, 0.16, 0.75)).get("aria-label") == "95 % interval 16–75 %"
