"""The tracer: the steps of one run, in the order in which they end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalloom.hop import HopletObserver, Tracer


@pytest.mark.req("HOP-12")
def test_steps_are_numbered_and_have_six_fields() -> None:
    tracer = Tracer()
    tracer.trace_step("retrieve", "find pages", duration=0.25)
    tracer.trace_step("hop_get", "answer", "UNCERTAIN", 1.5, retry_count=2)
    assert tracer.steps == [
        {"step": 1, "op": "retrieve", "task": "find pages", "status": "OK", "retry_count": 0, "duration": 0.25},
        {"step": 2, "op": "hop_get", "task": "answer", "status": "UNCERTAIN", "retry_count": 2, "duration": 1.5},
    ]


@pytest.mark.req("HOP-12")
def test_metadata_goes_to_the_trace_and_not_into_the_path() -> None:
    trace: list[dict[str, Any]] = []
    tracer = Tracer(trace)
    tracer.trace_step("rank", metadata={"kept": 3})
    assert trace == [{"type": "step", **tracer.steps[0], "metadata": {"kept": 3}}]


def test_a_long_task_is_cut_and_a_step_may_have_a_name() -> None:
    tracer = Tracer()
    tracer.trace_step("hop_get", "x" * 1000, step="first")
    assert len(tracer.steps[0]["task"]) == 200 and tracer.steps[0]["step"] == "first"


@pytest.mark.req("HOP-13")
def test_steps_stand_in_the_observers_log(tmp_path: Path) -> None:
    observer = HopletObserver(tmp_path)
    run_id = observer.run_start("hoplet", {"text": "x"})
    Tracer(observer=observer, run_id=run_id).trace_step("rank", "sort", metadata={"kept": 3})
    observer.close()
    step = json.loads(observer.path.read_text(encoding="utf-8").splitlines()[1])
    assert step["type"] == "step" and step["run_id"] == run_id
    assert (step["op"], step["task"], step["metadata"]) == ("rank", "sort", {"kept": 3})


@pytest.mark.req("HOP-13")
@pytest.mark.parametrize(
    ("given", "taken"), [(None, None), ("soon", None), (float("nan"), None), ("1.5", 1.5), (10**400, None), ([], None)]
)
def test_a_duration_that_is_no_number_is_not_known(given: Any, taken: float | None) -> None:
    tracer = Tracer()
    tracer.trace_step("rank", duration=given, retry_count=given)
    assert tracer.steps[0]["duration"] == taken and tracer.steps[0]["retry_count"] == int(taken or 0)


@pytest.mark.req("HOP-13")
def test_what_is_taken_down_is_json_whatever_was_given(untold: Any) -> None:
    trace: list[dict[str, Any]] = []
    metadata = {"o": untold, "set": {1}, "text": "\ud800"}
    Tracer(trace).trace_step(untold, untold, untold, untold, untold, metadata, untold)
    (step,) = json.loads(msgspec.json.encode(trace))
    assert step.pop("metadata") == {"o": "<Untold>", "set": [1], "text": "?"}
    told = dict.fromkeys(("step", "op", "task", "status"), "<Untold>")
    assert step == {"type": "step", **told, "retry_count": 0, "duration": None}


def test_a_step_that_is_changed_later_was_taken_down_as_it_was() -> None:
    trace: list[dict[str, Any]] = []
    kept = [1]
    Tracer(trace).trace_step("rank", metadata={"kept": kept})
    kept.append(2)
    assert trace[0]["metadata"] == {"kept": [1]}


@pytest.mark.req("HOP-13")
def test_a_tracer_that_was_closed_writes_nothing(tmp_path: Path) -> None:
    trace: list[dict[str, Any]] = []
    tracer = Tracer(trace, HopletObserver(tmp_path))
    tracer.close()
    tracer.trace_step("rank")
    assert tracer.steps == trace == [] and not list(tmp_path.iterdir())
