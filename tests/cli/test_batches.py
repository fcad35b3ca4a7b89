"""`evalloom batches`: list, show, rm."""

from __future__ import annotations

import fcntl
import json
import re
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
    assert f"{whole}     2      50.0%  done        prompt:prompt.md  cases.jsonl  echo" in out
    assert any(line.startswith(stopped) and "  unfinished  " in line for line in out.splitlines())
    assert len(call("batches", "list", "--limit", "1").out.splitlines()) == 2
    listed = [json.loads(line) for line in call("batches", "list", "--json").out.splitlines()]
    assert {one["id"] for one in listed} == {whole, stopped} and all(Path(one["path"]).is_dir() for one in listed)


def test_list_tells_a_batch_that_is_being_written(call: Call) -> None:
    id = a_batch(call, "--max-time", "0")
    with Path(".evalloom/batches", id, "runs.jsonl").open("rb") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        out = call("batches", "list").out
    assert re.search(rf"^{id} +0 +- +running ", out, re.MULTILINE)


def test_show_tells_runs_and_one_case_with_its_trace(call: Call) -> None:
    id = a_batch(call)
    shown = call("batches", "show", id[:17]).out
    assert id in shown and re.search(r"^fr    passed      1 +[\d.]+ ms  -$", shown, re.MULTILINE)
    assert re.search(r"^it    failed      0 +[\d.]+ ms  structural: expected 'Rome', got 'Milan'$", shown, re.MULTILINE)
    assert shown.endswith(f"2 cases\nNext: evalloom batches show {id} --case it\n")
    failed = call("batches", "show", "latest", "--status", "failed").out
    assert "it    failed" in failed and "passed" not in failed and "\n1 case with a failed run\n" in failed
    one = call("batches", "show", "latest", "--case", "fr").out
    assert "user: Paris" in one and "answer: Paris" in one and "FAILED" not in one
    assert "1 to 1 of 2 cases; 1 more: --page 2" in call("batches", "show", "latest", "--limit", "1").out
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
    code = "[ambiguous_batch]" if name == "20" else "[no_batch]"
    assert (done.code, done.out) == (2, "") and code in done.err
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


UNNAMED = [
    {"vars": {"q": "Rome"}, "assert": [{"type": "equals", "value": "Rome"}], "metadata": {"tags": ["city", "it"]}},
    {"vars": {"q": "Milan"}, "assert": [{"type": "equals", "value": "Turin"}], "metadata": {"tags": ["city"]}},
    {"vars": {"q": "Elba"}, "assert": [{"type": "equals", "value": "Elba"}]},
]


def test_cases_without_an_id_are_shown_by_their_place(call: Call) -> None:
    Path("tests.json").write_text(json.dumps(UNNAMED, indent=1), encoding="utf-8")
    call("run", "tests.json", "--target", "prompt:prompt.md", "--profile", "echo")
    shown = call("batches", "show", "latest").out
    place = next(line.split()[0] for line in shown.splitlines() if "  failed  " in line)
    assert re.fullmatch(r"tests\.json:\d+", place) and shown.endswith(f" --case {place}\n")
    one = call("batches", "show", "latest", "--case", place).out
    assert "expected  Turin" not in one and "Milan" in one and "Elba" not in one


def test_filters_of_cases_combine_and_pages_say_what_is_left(call: Call) -> None:
    records = [
        {"id": f"c{n}", "q": f"Q{n}", "tags": ["even"] * (n % 2 == 0), "expected_output": "Q4"} for n in range(9)
    ]
    Path("cases.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    a_batch(call)

    def ids(*flags: str) -> list[str]:
        shown = call("batches", "show", "latest", *flags).out
        return re.findall(r"^(c\d) ", shown, re.MULTILINE)

    assert ids("--tag", "even") == ["c0", "c2", "c4", "c6", "c8"]
    assert ids("--tag", "even", "--status", "failed", "--search", "q6") == ["c6"]
    assert ids("--limit", "4", "--page", "3") == ["c8"] and ids("--limit", "4", "--page", "2")[0] == "c4"
    assert "5 to 8 of 9 cases; 1 more: --page 3" in call("batches", "show", "latest", "--limit", "4", "--page", "2").out
    assert "No case tagged 'odd', with 'x'" in call("batches", "show", "latest", "--tag", "odd", "--search", "x").out
    wrong = call("batches", "show", "latest", "--page", "2")
    assert wrong.code == 2 and "--page: expected a page from 1 to 1, got 2" in wrong.err
    page = call("batches", "show", "latest", "--json", "--tag", "even", "--limit", "2", "--page", "2").out
    assert [json.loads(line)["run"]["case_id"] for line in page.splitlines()] == ["c4", "c6"]


@pytest.mark.req("WORK-5", "WORK-7")
def test_a_flaky_case_is_no_case_that_passed_and_none_that_failed(in_process: Call) -> None:
    Path("cases.jsonl").write_text('{"id": "a", "q": "x", "expected_output": "y"}\n', encoding="utf-8")
    code = "from itertools import count\nTURN = count()\ndef answer(q):\n    return 'y' if next(TURN) else 'n'\n"
    Path("flaky.py").write_text(code, encoding="utf-8")
    in_process("run", "cases.jsonl", "--target", "python:flaky.py:answer", "--repeat", "3")
    for status in ("passed", "failed"):
        shown = in_process("batches", "show", "latest", "--status", status).out
        assert f"{status} (2 of 3)" in shown and f"\n1 case with a {status} run\n" in shown
    assert (
        "\nNo case with a run in error, tagged 'x'"
        in in_process("batches", "show", "latest", "--status", "error", "--tag", "x").out
    )
