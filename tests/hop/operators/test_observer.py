"""The observer's log: three kinds of lines, appended safely by many at once, and never in the way of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from evalloom.core.model import Record
from evalloom.hop import HopletObserver, Observer, Tracer

pytestmark = pytest.mark.req("HOP-13")


def lines(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


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


def test_a_line_that_a_crash_cut_off_spoils_no_other(tmp_path: Path) -> None:
    log = tmp_path / "observer.jsonl"
    log.write_text('{"type": "run_start", "run_id": "a", "ti', encoding="utf-8")
    HopletObserver(log).run_start("h", {})
    first, second = log.read_text(encoding="utf-8").splitlines()
    assert first.endswith('"ti') and json.loads(second)["hoplet"] == "h"


def test_what_cannot_be_written_is_told_once_and_breaks_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    observer = HopletObserver(tmp_path / "file" / "observer.jsonl")
    for _ in range(2):
        observer.run_end(observer.run_start("h", object()), "OK", 1.0)
    assert len(observer.errors) == 1 and "cannot be written" in observer.errors[0]


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


def test_secrets_are_hidden_and_what_hides_them_may_fail(tmp_path: Path) -> None:
    HopletObserver(tmp_path, hide=lambda text: text.replace("sk-secret", "[hidden]")).run_start("h", "sk-secret")
    failing = HopletObserver(tmp_path, hide=lambda text: {"known": text}["unknown"])
    failing.run_start("h", "sk-secret")
    assert [line["input"] for line in lines(failing.path)] == ["[hidden]"] and len(failing.errors) == 1


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


def test_it_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    observer = HopletObserver(tmp_path)
    seen = [observer.run_start("h", n) and len(lines(tmp_path / "observer.jsonl")) for n in range(5)]
    assert seen == [1, 2, 3, 4, 5]
    observer.close()
    observer.run_start("h", 6)
    assert len(lines(tmp_path / "observer.jsonl")) == 6 and os.path.getsize(observer.path)
