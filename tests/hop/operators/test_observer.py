"""The observer's log: three kinds of lines, appended safely by many at once, and never in the way of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest

from evalloom.core.model import Record
from evalloom.hop import HopletObserver, Observer, Tracer


def lines(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


@pytest.mark.req("HOP-13")
def test_a_run_has_its_three_kinds_of_lines(tmp_path: Path) -> None:
    observer = HopletObserver(tmp_path)
    run_id = observer.run_start("check_hop", {"q": "为什么"})
    Tracer(observer=observer, run_id=run_id).trace_step("retrieve", "find", "OK", 0.25, metadata={"k": 3})
    observer.run_end(run_id, "OK", 1.5, {"answer": 1}, {"profile": "p"})
    start, step, end = lines(tmp_path / "observer.jsonl")
    assert start.keys() == {"type", "run_id", "timestamp", "hoplet", "input"} and start["input"] == {"q": "为什么"}
    told = {"step": 1, "op": "retrieve", "task": "find", "status": "OK", "retry_count": 0, "duration": 0.25}
    assert step.items() >= {"type": "step", "run_id": run_id, **told}.items() and step["metadata"] == {"k": 3}
    assert (end["type"], end["duration"], end["status"], end["result"]) == ("run_end", 1.5, "OK", {"answer": 1})
    assert Observer is HopletObserver and "T" in start["timestamp"]


@pytest.mark.req("HOP-13")
def test_many_threads_and_processes_write_whole_lines(tmp_path: Path) -> None:
    code = (
        "import sys; from evalloom.hop import Observer; o = Observer(sys.argv[1])\n"
        "for n in range(200): o.run_end(o.run_start('h', 'x' * 5000), 'OK', 0.1)"
    )
    others = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(2)]
    observer = HopletObserver(tmp_path)
    threads = [Thread(target=lambda: [observer.run_start("t", n) for n in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [other.wait() for other in others] == [0, 0]
    found = lines(tmp_path / "observer.jsonl")
    assert len(found) == 2 * 400 + 400 and not observer.errors


@pytest.mark.req("HOP-13")
def test_a_line_that_a_crash_cut_off_spoils_no_other(tmp_path: Path) -> None:
    log = tmp_path / "observer.jsonl"
    log.write_text('{"type": "run_start", "run_id": "a", "ti', encoding="utf-8")
    HopletObserver(log).run_start("h", {})
    first, second = log.read_text(encoding="utf-8").splitlines()
    assert first.endswith('"ti') and json.loads(second)["hoplet"] == "h"


@pytest.mark.req("HOP-13")
def test_what_cannot_be_written_is_told_once_and_breaks_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    observer = HopletObserver(tmp_path / "file" / "observer.jsonl")
    for _ in range(2):
        observer.run_end(observer.run_start("h", object()), "OK", 1.0)
    assert len(observer.errors) == 1 and "cannot be written" in observer.errors[0]


@pytest.mark.req("HOP-13")
@pytest.mark.parametrize(
    "make", [lambda one: one, lambda one: {"o": one}, lambda one: {one: [one]}, lambda one: "\ud800"]
)
def test_whatever_it_is_given_a_line_is_written(tmp_path: Path, untold: Any, make: Callable[[Any], Any]) -> None:
    observer, odd = HopletObserver(tmp_path), make(untold)
    run_id = observer.run_start(odd, odd)
    observer.step(odd, odd, odd)
    observer.run_end(run_id, odd, odd, odd, odd)
    start, step, end = lines(observer.path)
    assert start["hoplet"] == start["input"] == step["metadata"] == end["result"] == end["duration"] is not None
    assert not observer.errors


@pytest.mark.req("HOP-13")
def test_secrets_are_hidden_and_what_hides_them_may_fail(tmp_path: Path) -> None:
    HopletObserver(tmp_path, hide=lambda text: text.replace("sk-secret", "[hidden]")).run_start("h", "sk-secret")
    failing = HopletObserver(tmp_path, hide=lambda text: {"known": text}["unknown"])
    failing.run_start("h", "sk-secret")
    assert [line["input"] for line in lines(failing.path)] == ["[hidden]"] and len(failing.errors) == 1


@pytest.mark.req("HOP-13")
def test_a_line_that_a_full_disk_cut_off_spoils_no_other(tmp_path: Path) -> None:
    # A limit on the size of files does what a full disk does: it takes a part of a line, and then refuses.
    code = """
import resource, sys; from evalloom.hop import Observer; o = Observer(sys.argv[1])
o.run_start("first", {})
for size in (300, 300, resource.RLIM_INFINITY):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    o.run_start("later", "x" * 300)
print(*o.errors)"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    first, cut, last = (tmp_path / "observer.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(first) + 1 + len(cut) == 300
    assert json.loads(first)["hoplet"] == "first" and json.loads(last)["hoplet"] == "later"
    assert "cannot be written" in done.stdout


@pytest.mark.req("HOP-13")
def test_it_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    observer = HopletObserver(tmp_path)
    seen = [observer.run_start("h", n) and len(lines(tmp_path / "observer.jsonl")) for n in range(5)]
    assert seen == [1, 2, 3, 4, 5]
    observer.close()
    observer.run_start("h", 6)
    assert len(lines(tmp_path / "observer.jsonl")) == 6 and os.path.getsize(observer.path)


# -- the tracer: the steps of one run, in the order in which they end


@pytest.mark.req("HOP-12")
def test_steps_are_numbered_and_have_six_fields() -> None:
    tracer = Tracer()
    tracer.trace_step("retrieve", "find pages", duration=0.25)
    tracer.trace_step("hop_get", "answer", "UNCERTAIN", 1.5, retry_count=2)
    assert tracer.steps == [
        {"step": 1, "op": "retrieve", "task": "find pages", "status": "OK", "retry_count": 0, "duration": 0.25},
        {"step": 2, "op": "hop_get", "task": "answer", "status": "UNCERTAIN", "retry_count": 2, "duration": 1.5},
    ]


Status = Enum("Status", "FAIL OK")


@pytest.mark.req("HOP-12", "HOP-13")
@pytest.mark.parametrize(
    ("positional", "named"),
    [
        ((3, "hop_get", "task", "OK", 3.45, 1), {}),
        ((3, "hop_get", "task", "ok", 3.45, 1, None), {}),
        ((3, "hop_get"), {"task": "task", "status": Status.OK, "duration": 3.45, "retry_count": 1}),
        ((3,), {"op": "hop_get", "task": "task", "duration": 3.45, "retry_count": 1}),
        (("hop_get", "task", "OK", 3.45, 1, None, 3), {}),
        ((), {"step": 3, "op": "hop_get", "task": "task", "status": "OK", "duration": 3.45, "retry_count": 1}),
    ],
)
def test_the_number_of_a_step_may_stand_in_front(positional: Any, named: Any) -> None:
    tracer = Tracer()
    tracer.trace_step(*positional, **named)
    told = {"step": 3, "op": "hop_get", "task": "task", "status": "OK", "retry_count": 1, "duration": 3.45}
    assert tracer.steps == [told]


@pytest.mark.req("HOP-13")
def test_a_step_may_have_a_name_in_front_and_fields_of_its_own() -> None:
    trace: list[dict[str, Any]] = []
    record: Any = Tracer(trace).trace_step
    record("first", "rank", "sort", "FAIL", 0.5, kept=3, metadata={"k": 1})
    assert (trace[0]["step"], trace[0]["op"], trace[0]["status"]) == ("first", "rank", "FAIL")
    assert trace[0]["metadata"] == {"k": 1, "kept": 3}


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
