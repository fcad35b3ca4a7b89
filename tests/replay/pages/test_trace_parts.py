"""What came from which variable in a rendered segment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from evalloom.replay.pages.trace_parts import filled_parts, value_sizes
from evalloom.replay.recipe.assemble import trace_of
from evalloom.replay.recipe.parse import read_recipe
from evalloom.replay.recipe.trace import Segment

pytestmark = pytest.mark.req("REPLAY-19")


@given(
    some.lists(some.sampled_from(["{{a}}", "{{ b }}", "{{c}}", "{{}}", "{{", "日", " ", "x"]), max_size=12),
    some.dictionaries(some.sampled_from("ab"), some.text(max_size=5)),
)
def test_the_parts_are_the_rendered_text(pieces: list[str], row: dict[str, str]) -> None:
    state = {"nodes": [{"id": "n", "data": {"label": "N", "content": "".join(pieces)}}]}
    recipe = read_recipe(state)
    trace = trace_of(recipe.nodes, recipe.assemble(row), "r-0", "")
    parts = filled_parts(trace.segments[0], value_sizes(trace))
    assert "".join(part.text for part in parts) == trace.segments[0].rendered
    assert all(part.text == row[part.name] for part in parts if part.kind == "value")
    assert {part.name for part in parts if part.kind == "missing"} == set(trace.segments[0].missing_variables)


def test_a_text_that_does_not_fit_stays_whole() -> None:
    segment = Segment("n", "N", "text", "key {{a}}!", "key [hidden]", [], [])
    assert [part.kind for part in filled_parts(segment, {"a": 40})] == ["text"]
