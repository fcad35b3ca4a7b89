"""The first step that went wrong, and what only follows from it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.model import Record, Status, Verdict
from evalloom.matchers.blame import blamed


def step(name: str, *needs: str, **more: Any) -> Record:
    made = {"kind": "prompt", "output_key": f"{name}_key", "outputs": [f"{name}_key"]}
    return {"type": "step", "step": name, **made, "needs": list(needs), **more}


def verdict(where: str, status: Status = "failed") -> Verdict:
    return Verdict(where, "structural", where, status)


CHAIN = [step("a"), step("b", "a"), step("c", "b", outputs=["label"]), step("total", "c", kind="batch_aggregator")]


@pytest.mark.req("PIPE-11")
@pytest.mark.parametrize(
    ("failed", "first", "follows"),
    [
        (["steps.a"], "a", [""]),
        (["output.label", "steps.b"], "b", ["b", ""]),
        (["steps.a", "steps.b", "output.label", "aggregation.mean"], "a", ["", "a", "a", "a"]),
        (["steps.b.text[0]", "output.b_key"], "b", ["", "b"]),
        (["steps.b_key"], "b", [""]),
        (["output.label.deep"], "c", [""]),
        (["aggregation"], "total", [""]),
        (["output", "latency"], "", ["", ""]),
        (["output.b_key", "output.label"], "b", ["", "b"]),
        (["steps.nobody"], "", [""]),
    ],
)
def test_what_failed_first_is_named(failed: list[str], first: str, follows: list[str]) -> None:
    marked, named = blamed(CHAIN, [verdict("steps.a", "passed"), *map(verdict, failed)])
    assert named == first
    assert [one.follows for one in marked[1:]] == follows


def test_a_step_that_failed_itself_is_to_blame() -> None:
    trace = [step("a", status="failed"), step("b", "a", status="skipped"), step("c")]
    marked, first = blamed(trace, [verdict("output.b_key"), verdict("output.c_key")])
    assert first == "a" and [one.follows for one in marked] == ["a", ""]
    assert blamed([step("a", failed_items=2), step("b", "a")], [verdict("steps.b")])[1] == "a"


def test_a_broken_step_that_nothing_came_from_is_not_to_blame() -> None:
    trace = [step("a", status="failed"), step("b")]
    assert blamed(trace, [verdict("output.b_key")])[1] == "b"
    assert blamed(trace, [verdict("output")])[1] == "a"


def test_the_step_that_makes_an_output_is_meant_and_no_namesake() -> None:
    trace = [step("draft", output_key="summary", outputs=[]), step("polish", "draft", outputs=["summary", "output"])]
    assert blamed(trace, [verdict("output.summary")])[1] == "polish"
    assert blamed(trace, [verdict("output")])[1] == "polish"


def test_without_steps_nobody_is_to_blame() -> None:
    verdicts = [verdict("output.a")]
    assert blamed([{"type": "llm"}], verdicts) == (verdicts, "")
    assert blamed([{"type": "step", "name": "somebody else's"}], verdicts) == (verdicts, "")


@given(st.lists(st.sets(st.integers(0, 7)), min_size=1, max_size=8), st.sets(st.integers(0, 7), min_size=1))
def test_only_what_stands_behind_a_failure_follows_from_it(needs: list[set[int]], wrong: set[int]) -> None:
    graph = [{need for need in found if need < number} for number, found in enumerate(needs)]
    trace = [step(f"s{number}", *(f"s{need}" for need in found)) for number, found in enumerate(graph)]
    before: list[set[int]] = []
    for found in graph:
        before.append(found.union(*(before[need] for need in found)))
    failed = sorted(number for number in wrong if number < len(graph))
    marked, first = blamed(trace, [verdict(f"steps.s{number}") for number in failed])
    assert [bool(one.follows) for one in marked] == [bool(before[number] & {*failed}) for number in failed]
    assert first == (f"s{failed[0]}" if failed else "")
