"""`evalloom batches`: list, show, rm."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CASES = """\
{"id": "fr", "q": "Paris", "expected_output": "Paris"}
{"id": "it", "q": "Milan", "expected_output": "Rome"}
"""


Call = Callable[..., Any]


@pytest.fixture
def call(in_process: Call) -> Call:
    """In a folder with a dataset and a prompt."""
    Path("cases.jsonl").write_text(CASES, encoding="utf-8")
    Path("prompt.md").write_text("{{q}}", encoding="utf-8")
    return in_process


def a_batch(call: Call, *more: str) -> str:
    done = call("run", "cases.jsonl", "--target", "prompt:prompt.md", "--profile", "echo", "--json", *more)
    return str(json.loads(done.out)["batch"])


def test_no_batch_yet(call: Call) -> None:
    done = call("batches", "list")
    assert done.code == 0 and "No batches yet. 'evalloom run' creates one." in done.out
    assert call("batches", "show", "latest").code == 2


def test_list_tells_each_batch(call: Call) -> None:
    whole, stopped = a_batch(call), a_batch(call, "--max-time", "0")
    out = call("batches", "list").out
    assert f"{whole}  prompt:prompt.md  cases.jsonl  echo         2      50.0%  done" in out
    assert any(line.startswith(stopped) and line.endswith("unfinished") for line in out.splitlines())
    assert len(call("batches", "list", "--limit", "1").out.splitlines()) == 2
    listed = [json.loads(line) for line in call("batches", "list", "--json").out.splitlines()]
    assert {one["id"] for one in listed} == {whole, stopped} and all(Path(one["path"]).is_dir() for one in listed)


def test_show_tells_runs_and_one_case_with_its_trace(call: Call) -> None:
    id = a_batch(call)
    shown = call("batches", "show", id[:17]).out
    assert id in shown and "PASSED fr" in shown and "FAILED it" in shown and "expected 'Rome', got 'Milan'" in shown
    failed = call("batches", "show", "latest", "--status", "failed").out
    assert "FAILED it" in failed and "PASSED" not in failed
    one = call("batches", "show", "latest", "--case", "fr").out
    assert "user: Paris" in one and "answer: Paris" in one and "FAILED" not in one
    assert "… and 1 more; --limit shows more" in call("batches", "show", "latest", "--limit", "1").out
    lines = [json.loads(line) for line in call("batches", "show", "latest", "--json").out.splitlines()]
    assert [(line["run"]["case_id"], line["scored"]["status"]) for line in lines] == [
        ("fr", "passed"),
        ("it", "failed"),
    ]


def test_rm_asks_first(evalloom: Callable[..., subprocess.CompletedProcess[str]], call: Call) -> None:
    id = a_batch(call)
    assert evalloom("batches", "rm", id, stdin="n\n").returncode == 3 and Path(".evalloom/batches", id).exists()
    done = evalloom("batches", "rm", id, stdin="y\n")
    assert done.returncode == 0 and "Remove 1 batch?" in done.stdout and not Path(".evalloom/batches", id).exists()


def test_rm_removes_what_was_named_and_nothing_else(call: Call) -> None:
    ids = [a_batch(call) for _ in range(3)]
    done = call("batches", "rm", ids[0], ids[1], ids[0], "--yes")
    assert done.code == 0 and done.out.count("removed ") == 2
    assert [path.name for path in Path(".evalloom/batches").iterdir()] == [ids[2]]


@pytest.mark.parametrize("command", [("show",), ("rm", "--yes")], ids=" ".join)
@pytest.mark.parametrize("name", ["../x", "../../cases.jsonl", ".", "..", "/", "", "20", "nothing", "*", "a/../../.."])
def test_names_that_are_no_batch_are_refused(call: Call, command: tuple[str, ...], name: str) -> None:
    a_batch(call)
    a_batch(call)
    done = call("batches", *command, name)
    assert (done.code, done.out) == (2, "") and "[no_batch]" in done.err
    assert Path("cases.jsonl").exists() and len(list(Path(".evalloom/batches").iterdir())) == 2


def test_rm_touches_no_other_folder(call: Call) -> None:
    a_batch(call)
    Path("mine").mkdir()
    Path("mine/batch.json").write_text('{"format": 1, "id": "x", "created_at": ""}')
    Path("batch.json").write_text("{}")
    for name in ("mine", ".", "mine/../mine", str(Path("mine").absolute())):
        done = call("batches", "rm", name, "--yes")
        assert done.code == 2 and "expected a batch in .evalloom/batches" in done.err
    assert Path("mine/batch.json").exists() and Path("cases.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("show", "latest", "--case", "none"), "there is no run of the case 'none'"),
        (("show", "latest", "--status", "odd"), "'odd' is not one of"),
        (("list", "--limit", "0"), "0 is not in the range"),
        (("rm",), "Missing argument 'BATCH"),
    ],
)
def test_wrong_usage(call: Call, arguments: tuple[str, ...], told: str) -> None:
    a_batch(call)
    done = call("batches", *arguments)
    assert done.code == 2 and told in done.err


def test_broken_batch_is_told_and_the_others_are_listed(call: Call) -> None:
    id = a_batch(call)
    broken = Path(".evalloom/batches/20200101-000000-dead")
    broken.mkdir()
    (broken / "batch.json").write_text("{half")
    done = call("batches", "list")
    assert done.code == 0 and id in done.out and "[bad_batch]" in done.err
    assert call("batches", "show", broken.name).code == 2


def test_a_target_may_write_steps_of_its_own_into_the_trace(call: Call) -> None:
    Path("own.py").write_text(
        "def f(q, context):\n    context.trace.append({'type': 'step', 'name': 'mine'})\n    return q\n",
        encoding="utf-8",
    )
    call("run", "cases.jsonl", "--target", "python:own:f", "--json")
    shown = call("batches", "show", "latest", "--case", "it")
    assert shown.code == 0 and "    steps\n      step\n        name  mine" in shown.out
