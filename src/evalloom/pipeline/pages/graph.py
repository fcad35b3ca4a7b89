"""Draws the steps of a pipeline as SVG: a column for each level of steps that can run at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from urllib.parse import quote

from markupsafe import Markup
from msgspec import Struct

from evalloom.core.text import shorten
from evalloom.ui.charts import element

_WIDTH, _HEIGHT = 210, 72
"""The size of a node, in pixels."""
_MOST_SHRUNK = 1_700
"""The width of a graph that still can be read when it is shrunk to a page; a wider one scrolls."""
_ACROSS, _DOWN = 60, 22
"""The space between nodes."""
_PASSING = 8
"""The height of an edge that passes by a column."""
_MARGIN = 6
_LONGEST = 26
"""Characters of a line in a node."""


class GraphStep(Struct, frozen=True):
    """A step in a graph: the steps that it needs, its two lines of text below its name, and its state."""

    id: str
    needs: list[str]
    line: str
    note: str
    state: str
    """`passed`, `failed`, `skipped`, `worst` or empty: the class of its node."""
    words: str
    """What the node says, for those who do not see it."""


def levels(steps: Sequence[GraphStep]) -> list[list[GraphStep]]:
    """Group steps by how many others they have to wait for; those of a cycle come last."""
    known = {step.id for step in steps}
    depth: dict[str, int] = {}
    waiting = list(steps)
    while waiting:
        ready = [step for step in waiting if all(need in depth for need in step.needs if need in known)]
        # A trace that was written by hand may have a cycle.
        last = max(depth.values(), default=-1)
        for step in ready or waiting:
            own = [depth[need] for need in step.needs if need in depth]
            depth[step.id] = 1 + (max(own, default=-1) if ready else last)
        waiting = [step for step in waiting if step.id not in depth]
    grouped: list[list[GraphStep]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for step in steps:
        grouped[depth[step.id]].append(step)
    return grouped


def anchor(id: str) -> str:
    """Return the anchor of a step on its page."""
    return f"step-{quote(id, safe='')}"


Place = tuple[int, int]
_Slot = tuple[str, str]
"""What takes place in a column: a step (`("", id)`), or an edge that passes by (`(from, to)`)."""


def _columns(steps: Sequence[GraphStep]) -> list[list[_Slot]]:
    """Return the slots of each column, from top to bottom: each near the middle of what leads to it."""
    grouped = levels(steps)
    level = {step.id: number for number, members in enumerate(grouped) for step in members}
    needs = {step.id: step.needs for step in steps}
    columns: list[list[_Slot]] = [[("", step.id) for step in members] for members in grouped]
    for step in steps:
        for need in step.needs:
            for number in range(level.get(need, level[step.id]) + 1, level[step.id]):
                columns[number].append((need, step.id))
    for before, column in pairwise(columns):
        rows = {slot: row for row, slot in enumerate(before)}
        column.sort(key=partial(_middle, rows, needs))
    return columns


def _middle(rows: dict[_Slot, int], needs: dict[str, list[str]], slot: _Slot) -> float:
    """Return the mean row of what leads to a slot from the column before."""
    start, end = slot
    sources = [(need, end) if (need, end) in rows else ("", need) for need in ([start] if start else needs[end])]
    known = [rows[source] for source in sources if source in rows]
    return sum(known) / len(known) if known else float(len(rows))


def draw(steps: Sequence[GraphStep], title: str) -> Markup:
    """Return the graph; every node leads to its step further down on the page."""
    columns = _columns(steps)
    heights = [sum(_height(slot) + _DOWN for slot in column) - _DOWN for column in columns]
    places: dict[tuple[int, _Slot], Place] = {}
    for number, column in enumerate(columns):
        # Columns with fewer steps stand in the middle.
        y = _MARGIN + (max(heights) - heights[number]) // 2
        for slot in column:
            places[number, slot] = (_MARGIN + number * (_WIDTH + _ACROSS), y)
            y += _height(slot) + _DOWN
    level = {slot[1]: number for number, slot in places if not slot[0]}
    shapes = []
    for step in steps:
        for need in step.needs:
            if need in level and level[need] < level[step.id]:
                passed = [places[number, (need, step.id)] for number in range(level[need] + 1, level[step.id])]
                ends = places[level[need], ("", need)], places[level[step.id], ("", step.id)]
                shapes.append(_edge(ends[0], passed, ends[1], step.state))
    shapes += [_node(step, places[level[step.id], ("", step.id)]) for step in steps]
    words = f"{title}: " + "; ".join(step.words for step in steps)
    width = max(1, 2 * _MARGIN + len(columns) * (_WIDTH + _ACROSS) - _ACROSS)
    height = max(1, 2 * _MARGIN + max(heights, default=0))
    size = {"width": str(width), "height": str(height), "viewBox": f"0 0 {width} {height}"}
    kind = "graph is-wide" if width > _MOST_SHRUNK else "graph"
    return element("svg", element("title", words) + Markup("").join(shapes), class_=kind, role="group", **size)


def _height(slot: _Slot) -> int:
    return _PASSING if slot[0] else _HEIGHT


def _edge(start: Place, passed: Sequence[Place], end: Place, state: str) -> Markup:
    """Draw an edge from one node to another, through the places where it passes by other columns."""
    x, y = start[0] + _WIDTH, start[1] + _HEIGHT // 2
    path = f"M{x} {y}"
    for place_x, place_y, width in (
        *((place[0], place[1] + _PASSING // 2, _WIDTH) for place in passed),
        (end[0], end[1] + _HEIGHT // 2, 0),
    ):
        middle = (x + place_x) // 2
        path += f" C{middle} {y} {middle} {place_y} {place_x} {place_y} h{width}"
        x, y = place_x + width, place_y
    return element("path", class_="edge skipped" if state == "skipped" else "edge", d=path)


def _node(step: GraphStep, place: tuple[int, int]) -> Markup:
    x, y = place
    box = {"x": str(x), "y": str(y), "width": str(_WIDTH), "height": str(_HEIGHT), "rx": "9"}
    texts = (("name", step.id, 22), ("line", step.line, 42), ("note", step.note, 60))
    lines = [
        element("text", shorten(text, _LONGEST), class_=kind, x=str(x + 12), y=str(y + down))
        for kind, text, down in texts
        if text
    ]
    inside = element("title", step.words) + element("rect", **box) + Markup("").join(lines)
    kind = f"node {step.state}".rstrip()
    return element("a", element("g", inside, class_=kind), href=f"#{anchor(step.id)}", aria_label=step.words)
