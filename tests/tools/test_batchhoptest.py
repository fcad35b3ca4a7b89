"""`batchhoptest` as people run it: a task, its cases, all profiles, and a result file to the letter."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from evalloom.hop import DataStore, inputs_of, normalize_audit

Record = dict[str, Any]
HOP = """
async def check_hop(session, input_data):
    if input_data["question"] == "raise":
        raise RuntimeError("broken inside")
    return await session.hop_get(input_data["question"], return_format={"answer": "string"})
"""
METAINFO = "## Input\n| f | type |\n|---|---|\n| question | string |\n## Output\n| f | type |\n|---|---|\n| answer | string |\n"
SETTINGS = """
defaults: {temperature: 0.1, max_tokens: 4000}
llms:
  good: {protocol: scripted, file: good.yaml, model: good-model}
  bad: {protocol: scripted, file: bad.yaml}
  checker: {protocol: scripted, file: checker.yaml, model: checker-model}
profiles:
  first: {run: good, verify: checker}
  second: {run: bad, verify: checker, params: {temperature: 0.5}}
"""
GOOD = """
rules:
  - {match: France, answer: {answer: Paris}}
  - {match: "it is Rome, not Milan", answer: {answer: Rome}}
  - {match: Italy, answer: {answer: Milan}}
default: {answer: unknown}
"""
CHECKER = """
rules:
  - {match: Milan, answer: {status: FAIL, reason: "it is Rome, not Milan"}}
  - {match: unknown, answer: {status: UNCERTAIN, reason: cannot tell}}
default: {status: OK, reason: fine}
"""
CASES: list[Record] = [
    {"id": 1, "tag": "eu", "difficulty": "easy", "question": "France?", "expected_answer": "Paris"},
    {"id": 2, "tag": "eu", "question": "Italy?", "expected_answer": "Rome"},
    {"id": 3, "tag": "odd", "question": "raise", "expected_answer": "x"},
    {"id": 4, "tag": "odd", "description": "nobody knows", "question": "Atlantis?", "expected_answer": "none"},
]


def write(file: Path, *records: Record) -> Path:
    file.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records), encoding="utf-8")
    return file


def read(file: Path) -> list[Record]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def task(tmp_path: Path) -> Path:
    folder = tmp_path / "my task"
    (folder / "Hoplet").mkdir(parents=True)
    (folder / "TestCases").mkdir()
    (folder / "Hoplet/Hop.py").write_text(HOP)
    (folder / "Hoplet/metainfo.md").write_text(METAINFO)
    (folder / "settings.yaml").write_text(SETTINGS)
    for name, text in (("good", GOOD), ("bad", "default: {answer: Paris}\n"), ("checker", CHECKER)):
        (folder / f"{name}.yaml").write_text(text)
    write(folder / "TestCases/cases.jsonl", *CASES)
    return folder


def start(cwd: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "evalloom.tools.batchhoptest", *arguments]
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "HOP_KEY_"))}
    return subprocess.Popen(
        command, cwd=cwd, env=plain, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    )


class Done:
    """What a command gave."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.out, self.err = process.communicate()
        self.code = process.returncode
        assert "Traceback" not in self.err and "internal_error" not in self.err, self.err

    def results(self, cwd: Path) -> list[Record]:
        found = re.search(r"^Next: evalloom stats (.+)$", self.out, re.MULTILINE)
        assert found, self.out + self.err
        return read(cwd / shlex.split(found[1])[0])


def run(cwd: Path, *arguments: str) -> Done:
    return Done(start(cwd, *arguments))


@pytest.mark.req("HOP-4", "HOP-6")
def test_all_profiles_over_all_cases_from_any_folder(task: Path) -> None:
    done = run(task.parent, "--task", "my task")
    rows = done.results(task.parent)
    assert done.code == 1 and len(list((task / "TestCases").glob("cases_results_*.jsonl"))) == 1
    assert [row["profile"] for row in rows] == ["first", "second"] + ["first"] * 4 + ["second"] * 4
    assert [row.get("id") for row in rows[2:]] == [1, 2, 3, 4] * 2
    elsewhere = run(Path(task.anchor), "--task", str(task), "--out", str(task / "out.jsonl"), "--max-time", "60")
    assert elsewhere.code == 1 and len(read(task / "out.jsonl")) == 10


@pytest.mark.req("HOP-6")
def test_the_result_file_is_to_the_letter(task: Path) -> None:
    run(task, "--task", ".", "--out", "out.jsonl")
    meta, other, *rows = read(task / "out.jsonl")
    assert list(meta) == ["_type", "profile", "run_llm", "verify_llm", "run_params", "timestamp"]
    assert (meta["run_llm"], meta["verify_llm"], other["run_llm"]) == ("good-model", "checker-model", "bad")
    assert meta["run_params"] == {"temperature": 0.1, "max_tokens": 4000} and other["run_params"]["temperature"] == 0.5
    assert datetime.fromisoformat(meta["timestamp"])
    first = rows[0]
    assert list(first) == [*CASES[0], "hop_result", "hop_stats", "profile"] and first.items() >= CASES[0].items()
    assert json.loads(first["hop_result"]) == {"answer": "Paris"}
    (step,) = first["hop_stats"].pop("execution_path")
    assert first["hop_stats"] == {"retry_count": 0, "status": "OK", "hop_status": "OK"}
    assert list(step) == ["step", "op", "task", "status", "retry_count", "duration"]


@pytest.mark.req("HOP-6", "HOP-9", "HOP-11")
def test_retries_uncertainty_and_errors_stand_in_the_rows(task: Path) -> None:
    run(task, "--task", ".", "--out", "out.jsonl", "--profiles", "first")
    _, _, retried, raised, uncertain = read(task / "out.jsonl")
    assert json.loads(retried["hop_result"]) == {"answer": "Rome"}
    assert (retried["hop_stats"]["retry_count"], retried["hop_stats"]["execution_path"][0]["retry_count"]) == (1, 1)
    assert raised["hop_result"] == "null" and raised["hop_stats"]["status"] == "ERROR"
    assert raised["hop_stats"]["error"] == "RuntimeError: broken inside [target_raised]"
    stats = uncertain["hop_stats"]
    assert (stats["status"], stats["hop_status"], stats["retry_count"]) == ("OK", "UNCERTAIN", 2)
    assert json.loads(uncertain["hop_result"]) == {"answer": "unknown"} and "error" not in stats


@pytest.mark.req("WORK-5", "HOP-16")
def test_its_table_and_the_statistics_of_its_file_show_the_same_rates(task: Path) -> None:
    done = run(task, "--task", ".", "--out", "out.jsonl", "--json")
    batch, stats = json.loads(done.out), DataStore(task / "out.jsonl").get_stats()
    assert batch["pass_rate"] == stats["pass_rate"] == 3 / 8
    for name, figures in stats["by_profile"].items():
        assert figures["pass_rate"] == batch["profiles"][name]["pass_rate"]
        assert figures["errors"] == batch["profiles"][name]["error"] == 1
    shown = run(task, "--task", ".").out
    mean = stats["retries"]["mean"]
    assert f"6 of 8 completed (75.0%); {8 * mean:.0f} retries after verification, {mean:.2f} per result" in shown


@pytest.mark.req("HOP-3", "HOP-6")
def test_its_own_output_is_the_same_input_again(task: Path) -> None:
    run(task, "--task", ".", "--out", "once.jsonl")
    again = run(task, "--task", ".", "--data", "once.jsonl", "--out", "twice.jsonl")
    once, twice = read(task / "once.jsonl")[2:], read(task / "twice.jsonl")[2:]
    assert again.code == 1 and [inputs_of(row) for row in once] == [inputs_of(row) for row in twice]
    assert [list(row) for row in once] == [list(row) for row in twice]
    assert [row["hop_result"] for row in once] == [row["hop_result"] for row in twice]


@pytest.mark.req("HOP-3")
def test_equal_and_corrected_cases_stay_what_they_are(task: Path) -> None:
    view = [{"input": {"question": "France?"}, "result": "1"}] * 2
    write(task / "TestCases/view.jsonl", *view)
    run(task, "--task", ".", "--data", "view.jsonl", "--out", "once.jsonl")
    run(task, "--task", ".", "--data", "once.jsonl", "--out", "twice.jsonl")
    assert len(read(task / "once.jsonl")) == len(read(task / "twice.jsonl")) == 2 + 4
    run(task, "--task", ".", "--data", "cases.jsonl", "--out", "own.jsonl")
    first, second, *rows = read(task / "own.jsonl")
    del rows[-1]["profile"]
    write(task / "own.jsonl", first, second, {**rows[0], "expected_answer": "Lutetia"}, *rows[1:])
    run(task, "--task", ".", "--data", "own.jsonl", "--out", "again.jsonl")
    assert len(read(task / "again.jsonl")) == 10 and read(task / "again.jsonl")[2]["expected_answer"] == "Lutetia"
    # Of two files put together, equal ids are other cases where the inputs differ.
    write(task / "own.jsonl", rows[0], {**rows[4], "question": "Spain?"})
    run(task, "--task", ".", "--data", "own.jsonl", "--profiles", "first", "--out", "merged.jsonl")
    assert [row["question"] for row in read(task / "merged.jsonl")[1:]] == ["France?", "Spain?"]


@pytest.mark.req("HOP-3", "HOP-7")
def test_view_rows_run_as_their_inputs(task: Path) -> None:
    view = [{"input": {"question": "France?"}, "result": "{}"}, {"input": {"question": "Italy?"}, "error": "timeout"}]
    write(task / "TestCases/view.jsonl", {"_type": "meta", "profile": "x"}, *view)
    run(task, "--task", ".", "--data", "view.jsonl", "--profiles", "first", "--out", "out.jsonl")
    rows = [normalize_audit(row) for row in read(task / "out.jsonl")[1:]]
    assert [row and row["case"] for row in rows] == [{"question": "France?"}, {"question": "Italy?"}]
    assert [row and row["result"] for row in rows] == [{"answer": "Paris"}, {"answer": "Rome"}]


@pytest.mark.req("HOP-7", "HOP-14")
def test_the_wrapper_of_the_page_gives_the_same_figures(task: Path) -> None:
    run(task, "--task", ".", "--out", "flat.jsonl")
    run(task, "--task", ".", "--out", "view.jsonl", "--wrapper", "view")
    rows = [row for row in read(task / "view.jsonl") if "_type" not in row]
    assert all(("result" in row) != ("error" in row) and "hop_result" not in row["input"] for row in rows)
    assert [row["input"]["id"] for row in rows] == [
        row["id"] for row in read(task / "flat.jsonl") if "_type" not in row
    ]
    flat, view = (DataStore(task / name).get_stats() for name in ("flat.jsonl", "view.jsonl"))
    assert flat == view


@pytest.mark.req("HOP-4")
@pytest.mark.parametrize(
    "profiles",
    [["--profiles", "first", "second"], ["--profiles=first,second"], ["--profiles=second", "first", "--limit", "2"]],
    ids=" ".join,
)
def test_profiles_are_parted_by_spaces_or_commas(profiles: list[str], task: Path) -> None:
    run(task, *profiles, "--task", ".", "--out", "out.jsonl", "--workers", "2")
    wanted = ["second", "first"] if "--limit" in profiles else ["first", "second"]
    assert [row["profile"] for row in read(task / "out.jsonl")[:2]] == wanted


@pytest.mark.req("HOP-4")
def test_a_function_by_its_name(task: Path) -> None:
    (task / "elsewhere.py").write_text(HOP)
    flags = ("--task", "elsewhere:check_hop", "--data", "TestCases/cases.jsonl", "--settings", "settings.yaml")
    done = run(task, *flags, "--profiles", "first")
    assert len(done.results(task)) == 5 and (task / "TestCases/observer.jsonl").is_file()


@pytest.mark.req("HOP-13")
def test_every_run_is_observed(task: Path) -> None:
    run(task, "--task", ".", "--out", "out.jsonl")
    log = read(task / "TestCases/observer.jsonl")
    assert [line["type"] for line in log].count("run_start") == [line["type"] for line in log].count("run_end") == 8
    assert {line["op"] for line in log if line["type"] == "step"} == {"hop_get"}


@pytest.mark.req("HOP-4")
@pytest.mark.parametrize(
    ("change", "flags", "message"),
    [
        ("", ["--profiles", "frist"], "Did you mean 'first'?"),
        ("", ["--data", "nowhere.jsonl"], "nowhere.jsonl: "),
        ("", ["--settings", "nowhere.yaml"], "nowhere.yaml: "),
        ("", ["--workers", "0"], "--workers"),
        ("", ["--profiles", ","], "--profiles: expected names of profiles, got none"),
        ("", ["--out", "x.jsonl.gz"], "a file name ending in .jsonl"),
        ("", ["--out", "TestCases/observer.jsonl"], "not the observer's log"),
        ("", ["--data", "observer.jsonl"], "is the observer's log"),
        ("rm Hoplet/Hop.py", [], "expected a task folder with Hoplet/Hop.py"),
        (
            "cp TestCases/cases.jsonl TestCases/more.jsonl",
            [],
            "expected one file of cases, got cases.jsonl, more.jsonl",
        ),
        ("rm TestCases/cases.jsonl", [], "expected one file of cases, found none"),
        ("printf 'llms: {a: {api_key: sk-1234567890abcdef}}' > settings.yaml", [], "api_key"),
        ("printf 'def b_hop(): 1' >> Hoplet/Hop.py", [], "got check_hop, b_hop"),
        ("", ["--out", "TestCases/cases.jsonl"], "is an input file"),
    ],
)
def test_wrong_usage_is_told_before_anything_runs(change: str, flags: list[str], message: str, task: Path) -> None:
    subprocess.run(change, shell=True, cwd=task, check=True)
    done = run(task, "--task", ".", *flags)
    assert done.code == 2 and message in done.err and "sk-1234567890abcdef" not in done.err
    assert not (task / "TestCases/observer.jsonl").exists()


@pytest.mark.req("HOP-4")
def test_nothing_runs_where_nobody_can_answer(task: Path) -> None:
    (task / "settings.yaml").unlink()
    done = run(task, "--task", ".")
    assert done.code == 2 and "[no_profile]" in done.err and not (task / "TestCases/observer.jsonl").exists()
    assert "there is no such folder" in run(task, "--task", "nowhere").err


@pytest.mark.req("HOP-1", "HOP-4")
def test_a_case_without_a_contract_field_is_told_with_its_line(task: Path) -> None:
    write(task / "TestCases/cases.jsonl", CASES[0], {"id": 2, "tag": "x", "text": "?"})
    done = run(task, "--task", ".")
    assert done.code == 2 and "cases.jsonl:2:1: question: missing; the contract requires string" in done.err
    skipped = run(task, "--task", ".", "--skip-invalid", "--profiles", "first")
    stats = [row["hop_stats"]["status"] for row in skipped.results(task)[1:]]
    assert skipped.code == 1 and stats == ["OK", "ERROR"]


@pytest.mark.req("HOP-3")
def test_a_result_file_that_was_cut_is_told_and_the_rest_runs(task: Path) -> None:
    run(task, "--task", ".", "--out", "TestCases/cut.jsonl", "--profiles", "first")
    cut = task / "TestCases/cut.jsonl"
    cut.write_text(cut.read_text()[:-40])
    done = run(task, "--task", ".", "--data", "cut.jsonl")
    assert done.code == 2 and re.search(r"cut\.jsonl:5:\d+: ", done.err)
    rest = run(task, "--task", ".", "--data", "cut.jsonl", "--skip-invalid", "--profiles", "first")
    assert [row["hop_stats"]["status"] for row in rest.results(task)[1:]] == ["OK", "OK", "ERROR"]
    assert "cut.jsonl:5" in rest.out


@pytest.fixture
def slow_task(task: Path) -> Path:
    """A task of forty cases, each of which takes a tenth of a second."""
    (task / "good.yaml").write_text(
        "default: {answer: Paris}\nrules:\n  - {match: q, answer: {answer: x}, delay_s: 0.1}\n"
    )
    write(task / "TestCases/cases.jsonl", *({"id": n, "tag": "t", "question": f"q{n}"} for n in range(1, 41)))
    return task


def wait_for_runs(task: Path, number: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        if sum(len(log.read_bytes().splitlines()) for log in task.glob(".evalloom/batches/*/runs.jsonl")) >= number:
            return
        time.sleep(0.02)
    raise AssertionError("too few runs")


@pytest.mark.req("HOP-4")
def test_ctrl_c_keeps_what_was_finished_and_resume_completes_the_same_file(slow_task: Path) -> None:
    flags = ("--task", ".", "--profiles", "first", "--workers", "2")
    process = start(slow_task, *flags)
    wait_for_runs(slow_task, 6, process)
    process.send_signal(signal.SIGINT)
    done = Done(process)
    (file,) = slow_task.glob("TestCases/*_results_*")
    kept = read(file)[1:]
    assert done.code == 3 and 6 <= len(kept) < 40 and [row["id"] for row in kept] == sorted(row["id"] for row in kept)
    run(slow_task, *flags, "--resume")
    assert list(slow_task.glob("TestCases/*_results_*")) == [file] and len(read(file)) == 41


@pytest.mark.req("HOP-4")
def test_a_killed_batch_goes_on_where_it_was(slow_task: Path) -> None:
    flags = ("--task", ".", "--profiles", "first", "--workers", "4", "--out", "out.jsonl")
    process = start(slow_task, *flags)
    wait_for_runs(slow_task, 8, process)
    process.kill()
    process.communicate()
    done = run(slow_task, *flags, "--resume")
    started = [line for line in read(slow_task / "TestCases/observer.jsonl") if line["type"] == "run_start"]
    assert len(read(slow_task / "out.jsonl")) == 41 and done.code in (0, 3)
    assert 40 <= len(started) <= 44


@pytest.mark.req("HOP-4")
def test_two_at_once_and_from_elsewhere_lose_nothing(task: Path) -> None:
    (task.parent / "settings.yaml").write_text((task / "settings.yaml").read_text().replace("file: ", "file: my task/"))
    (task / "settings.yaml").unlink()
    (task.parent / "elsewhere").mkdir()
    both = [start(task.parent / "elsewhere", "--task", str(task), "--profiles", name) for name in ("first", "second")]
    results = [Done(process).results(task.parent) for process in both]
    assert [rows[0]["profile"] for rows in results] == ["first", "second"]
    assert len(list(task.glob("TestCases/*_results_*"))) == 2


BUDGET = """
import asyncio
async def check_hop(session, input_data):
    asked = [session.hop_get(input_data["question"] + str(n), verifier=None) for n in range(3)]
    %s
    return {"answer": "made without an answer"}
"""


@pytest.mark.parametrize(
    "body",
    [
        "await asyncio.gather(*asked, return_exceptions=True)",
        "async with asyncio.TaskGroup() as group: [group.create_task(one) for one in asked]",
        "try: await asyncio.gather(*asked)\n    except BaseException: pass",
    ],
    ids=["gather", "group", "bare except"],
)
def test_a_spent_budget_stops_the_batch_whatever_the_hoplet_does(body: str, task: Path) -> None:
    (task / "Hoplet/Hop.py").write_text(BUDGET % body)
    flags = ("--task", ".", "--profiles", "first", "--workers", "1", "--out", "out.jsonl")
    done = run(task, *flags, "--max-tokens", "250")
    kept = read(task / "out.jsonl")[1:]
    assert done.code == 3 and "--resume" in done.out and 1 <= len(kept) < 4
    assert run(task, *flags, "--resume").code == 1 and len(read(task / "out.jsonl")) == 5


def test_the_door_shows_what_it_can_do(task: Path) -> None:
    shown = run(task, "--help").out
    for flag in ("--task", "--data", "--workers", "--profiles", "--settings", "--out", "--resume", "--max-cost"):
        assert flag in shown
    ahead = run(task, "--task", ".", "--dry-run")
    assert ahead.code == 0 and "8 to run" in ahead.out and not list(task.glob("TestCases/*results*"))


@pytest.mark.req("WORK-42", "HOP-6")
def test_results_of_another_batch_are_replaced_only_by_force(task: Path) -> None:
    command = ("--task", ".", "--out", "out.jsonl")
    assert run(task, *command).code == 1 and run(task, *command, "--resume").code == 1
    before = read(task / "out.jsonl")
    refused = run(task, *command, "--limit", "1")
    assert refused.code == 2 and "[would_overwrite]" in refused.err and "another batch" in refused.err
    assert read(task / "out.jsonl") == before and len(before) == 10
    assert run(task, *command, "--limit", "1", "--force").code == 0 and len(read(task / "out.jsonl")) == 4
    write(task / "mine.jsonl", {"precious": True})
    assert "no HOP results" in run(task, "--task", ".", "--out", "mine.jsonl").err
