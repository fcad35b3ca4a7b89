"""Users' code that blocks, prints, leaves the folder or ends the process cannot stop, blind or move the engine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faults.conftest import Suite

pytestmark = [pytest.mark.slow, pytest.mark.req("WORK-42")]

CODE = """
import asyncio, os, socket, sys, threading, time

HERE, THERE = socket.socketpair()
BAD = {
    "time.sleep": lambda: time.sleep(60),
    "socket": lambda: HERE.recv(1),
    "event": lambda: threading.Event().wait(),
    "keyboard": lambda: (_ for _ in ()).throw(KeyboardInterrupt),
    "exit": lambda: sys.exit(5),
    "os._exit": lambda: os.path.exists("fixed") or os._exit(0),
}

def spin():
    while True:
        pass

BAD["spin"] = spin

async def waits(q):
    if q in BAD:
        BAD[q]()
    await asyncio.sleep(0.2)
    return q

async def answers(q):
    if q in BAD:
        BAD[q]()
    return q

def in_thread(q):
    if q in BAD:
        BAD[q]()
    return q

async def starts_a_task(q):
    async def inner():
        BAD[q]()
    if q in BAD:
        await asyncio.gather(inner(), asyncio.sleep(1))
    await asyncio.sleep(0.2)
    return q
"""


def write(suite: Suite, inputs: Iterable[str], code: str = CODE) -> None:
    suite.write("own.py", code)
    lines = [json.dumps({"id": f"c{number}", "q": q, "expected_output": q}) for number, q in enumerate(inputs)]
    suite.write("cases.jsonl", "\n".join(lines) + "\n")


def errors(suite: Suite) -> dict[str, str]:
    return {run["case_id"]: run["error"] for run in suite.lines() if run.get("error")}


@pytest.mark.parametrize("function", ["answers", "waits", "in_thread", "starts_a_task"])
def test_code_that_computes_forever_ends_alone(suite: Suite, function: str) -> None:
    write(suite, ["a", "b", "spin", "c", "d"])
    done = suite.run("run", "cases.jsonl", "--target", f"python:own:{function}", "--timeout", "0.5")
    name = "starts_a_task.<locals>.inner" if function == "starts_a_task" else function
    assert done.returncode == 1 and list(errors(suite)) == ["c2"], done.stdout
    message = errors(suite)["c2"]
    assert message.startswith("no answer within 0.5 s: ") and message.endswith("[timeout]")
    assert ("spin() " in message or f"{name}() " in message) and "own.py:" in message
    assert "threads_left" not in done.stderr


@pytest.mark.parametrize("way", ["time.sleep", "socket"])
def test_code_that_blocks_in_c_loses_only_what_had_begun_beside_it(suite: Suite, way: str) -> None:
    write(suite, ["a", "b", way, *"cdefgh"])
    done = suite.run("run", "cases.jsonl", "--target", "python:own:waits", "--timeout", "0.5", "-j", "3")
    found = errors(suite)
    assert done.returncode == 1 and found.keys() == {"c0", "c1", "c2"} and len(suite.lines()) == 9
    assert "waits() blocks its event loop at own.py:" in found["c2"] and found["c2"].endswith("[timeout]")
    assert all("waits() blocks" in found[id] and found[id].endswith("[loop_blocked]") for id in ("c0", "c1"))
    assert "1 thread of users' code could not be ended: waits()" in done.stderr and "[threads_left]" in done.stderr


def test_code_that_blocks_in_a_thread_is_counted(suite: Suite) -> None:
    write(suite, ["a", "event", "time.sleep", "b"])
    done = suite.run("run", "cases.jsonl", "--target", "python:own:in_thread", "--timeout", "0.3")
    assert errors(suite).keys() == {"c1", "c2"} and "in_thread() still runs at own.py:" in errors(suite)["c1"]
    assert "2 threads of users' code could not be ended: in_thread()" in done.stderr


@pytest.mark.parametrize("function", ["answers", "in_thread"])
@pytest.mark.parametrize("way", ["spin", "time.sleep"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_signals_get_through_and_the_rest_can_be_resumed(
    suite: Suite, function: str, way: str, number: signal.Signals
) -> None:
    write(suite, ["a", "b", way, "c"])
    process = suite.start("run", "cases.jsonl", "--target", f"python:own:{function}")
    suite.wait_for_runs(2, process)
    process.send_signal(number)
    out, err = process.communicate(timeout=10)
    assert process.returncode == 3 and "Stopped: interrupted" in out and "--resume" in out and "Traceback" not in err
    assert 2 <= len(suite.lines()) <= 3


def test_max_time_and_progress_do_not_depend_on_users_code(suite: Suite) -> None:
    write(suite, ["a", "time.sleep", "b"])
    start = time.monotonic()
    done = suite.run("run", "cases.jsonl", "--target", "python:own:answers", "--max-time", "1.5")
    assert time.monotonic() - start < 10 and done.returncode == 3 and "--max-time 1.5 is over" in done.stdout
    said = [line for line in done.stderr.splitlines() if "[loop_blocking]" in line]
    assert len(said) == 1 and "answers() blocks its event loop at own.py:" in said[0]


def test_second_ctrl_c_ends_at_once(suite: Suite) -> None:
    code = "import asyncio, time\nasync def hangs(q):\n    await asyncio.to_thread(time.sleep, 60 * (q == 'x'))\n"
    write(suite, ["a", "x"], code)
    process = suite.start("run", "cases.jsonl", "--target", "python:own:hangs")
    suite.wait_for_runs(1, process)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    start = time.monotonic()
    _, err = process.communicate(timeout=10)
    assert process.returncode == 3 and time.monotonic() - start < 2 and "Traceback" not in err


def test_threads_of_users_code_do_not_keep_the_process(suite: Suite) -> None:
    code = "import asyncio, time\nasync def hangs(q):\n    await asyncio.to_thread(time.sleep, 60)\n"
    write(suite, ["a"], code)
    done = suite.run("run", "cases.jsonl", "--target", "python:own:hangs", "--timeout", "0.2")
    assert done.returncode == 1 and "[threads_left]" in done.stderr and "no answer within 0.2 s" in done.stdout


@pytest.mark.parametrize("function", ["answers", "in_thread", "starts_a_task"])
def test_interrupts_and_exits_of_users_code_are_errors_of_one_run(suite: Suite, function: str) -> None:
    write(suite, ["a", "keyboard", "exit", "b"])
    done = suite.run("run", "cases.jsonl", "--target", f"python:own:{function}")
    assert done.returncode == 1 and errors(suite) == {
        "c1": "KeyboardInterrupt [target_raised]",
        "c2": "SystemExit: 5 [target_raised]",
    }


def test_process_that_users_code_ends_can_be_resumed(suite: Suite) -> None:
    write(suite, ["a", "b", "c", "os._exit", "d"])
    command = ("run", "cases.jsonl", "--target", "python:own:answers", "-j", "1")
    done = suite.run(*command)
    assert done.returncode == 3 and "os._exit(0)" in done.stderr and "[process_ended]" in done.stderr
    suite.write("fixed", "")
    resumed = suite.run(*command, "--resume")
    assert resumed.returncode == 0 and len(suite.batches()) == 1 and len(suite.lines()) == 5
    assert "3 finished runs are kept" in resumed.stderr and "[process_ended]" in resumed.stderr


def test_signals_of_processes_that_users_code_forks_do_not_stop_the_batch(suite: Suite) -> None:
    code = """
import os, signal, time

def forks(q):
    child = os.fork()
    if not child:
        time.sleep(5)
        os._exit(0)
    os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)
    return q
"""
    write(suite, "abcdefgh", code)
    done = suite.run("run", "cases.jsonl", "--target", "python:own:forks", "-j", "2")
    assert done.returncode == 0 and len(suite.lines()) == 8, done.stdout


PRINTS = """
import atexit, logging, os, sys, threading
print("AT IMPORT")
os.system("echo AT IMPORT")
atexit.register(print, "AT EXIT")
logging.basicConfig(stream=sys.stdout, level="INFO")

def prints():
    print("PRINTED")
    sys.stdout.write("WRITTEN\\n")
    sys.stdout.buffer.write(b"BYTES\\n")
    os.write(1, b"DESCRIPTOR\\n")
    os.system("echo PROCESS")
    logging.info("LOGGED")
    thread = threading.Thread(target=print, args=["THREAD"])
    thread.start()
    thread.join()

def sync(q):
    prints()
    return q

async def not_sync(q):
    prints()
    return q
"""


@pytest.mark.parametrize("function", ["sync", "not_sync"])
@pytest.mark.parametrize("flags", [["--json"], []], ids=["json", "table"])
def test_what_users_code_prints_goes_to_stderr(suite: Suite, function: str, flags: list[str]) -> None:
    write(suite, ["a"], PRINTS)
    done = suite.run("run", "cases.jsonl", "--target", f"python:own:{function}", *flags)
    words = ["AT IMPORT", "PRINTED", "WRITTEN", "BYTES", "DESCRIPTOR", "PROCESS", "LOGGED", "THREAD", "AT EXIT"]
    assert done.returncode == 0 and [word for word in words if word in done.stdout] == []
    assert [word for word in words if word not in done.stderr] == [] and done.stderr.count("AT IMPORT") == 2
    assert json.loads(done.stdout)["passed"] == 1 if flags else done.stdout.startswith("profile ")


REPLACES = """
import contextlib, io, sys, time
sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8")

def replaces(q):
    sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8")
    print("PRINTED", flush=True)
    return q

def redirects(q):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        time.sleep(60 if q == "hang" else 0)
    return q
"""


@pytest.mark.parametrize("function", ["replaces", "redirects"])
def test_streams_that_users_code_replaces_stay_ours(suite: Suite, function: str) -> None:
    write(suite, ["a", "hang", "b"], REPLACES)
    # One at a time: Python itself may crash in print() while another thread replaces sys.stdout.
    flags = ("-j", "1", "--timeout", "0.3", "--json")
    done = suite.run("run", "cases.jsonl", "--target", f"python:own:{function}", *flags)
    assert json.loads(done.stdout)["total"] == 3 and "PRINTED" not in done.stdout
    assert ("PRINTED" if function == "replaces" else "[threads_left]") in done.stderr


MOVES = """
import os
from pathlib import Path
ELSEWHERE = Path(__file__).parent / "elsewhere"
ELSEWHERE.mkdir(exist_ok=True)
(ELSEWHERE / "word.txt").write_text("hi")

def moves(q):
    os.chdir(ELSEWHERE)
    return q

async def moves_too(q):
    os.chdir(ELSEWHERE)
    return q

def check(value):
    os.chdir(ELSEWHERE)
    return True
"""


def files_of(folder: Path) -> list[str]:
    """Every file below a folder, except modules and caches."""
    parts = ("__pycache__", "own.py")
    found = [path for path in folder.rglob("*") if path.is_file() and not set(parts) & set(path.parts)]
    return sorted(path.relative_to(folder).as_posix() for path in found)


@pytest.mark.parametrize("target", ["python:own:moves", "python:own:moves_too", "python:moved:reads"])
def test_our_files_stay_where_they_are(suite: Suite, target: str) -> None:
    write(suite, ["a", "b"], MOVES)
    # A module that leaves the folder when it is imported finds its files there when it is called.
    suite.write(
        "moved.py", "import os, own\nos.chdir(own.ELSEWHERE)\ndef reads(q):\n    open('word.txt')\n    return q\n"
    )
    suite.write("evalloom.yaml", "checks: [{kind: python, expected: 'own:check'}]\n")
    done = suite.run("run", "cases.jsonl", "--target", target, "-o", "out.csv", "-j", "1")
    assert done.returncode == 0 and (suite.folder / "out.csv").is_file()
    assert files_of(suite.folder / "elsewhere") == ["word.txt"]
    assert suite.run("run", "cases.jsonl", "--target", target, "--resume").returncode == 0
    assert suite.run("score", "latest").returncode == 0 and len(suite.batches()) == 1
    assert json.loads((suite.batches()[0] / "batch.json").read_text())["finished_at"]


def test_a_hoplet_that_moves_keeps_its_results_and_its_log(suite: Suite) -> None:
    for folder in ("Hoplet", "TestCases"):
        (suite.folder / "task" / folder).mkdir(parents=True)
    suite.write("task/Hoplet/Hop.py", "import os\ndef my_hop(q):\n    os.chdir('/')\n    return {'a': q}\n")
    suite.write("task/TestCases/cases.jsonl", '{"id": 1, "tag": "t", "q": "x"}\n')
    command = [sys.executable, "-m", "evalloom.tools.batchhoptest", "--task", "task", "--out", "rows.jsonl"]
    done = subprocess.run(command, cwd=suite.folder, capture_output=True, encoding="utf-8", timeout=60)
    assert done.returncode == 0 and len((suite.folder / "rows.jsonl").read_text().splitlines()) >= 1, done.stderr
    assert (suite.folder / "task/TestCases/observer.jsonl").is_file()


DOORS = {
    "step": ("pipeline:p.yaml", "steps: [{id: one, code_ref: 'own.py:answers'}]"),
    "step with a limit": ("pipeline:p.yaml", "steps: [{id: one, code_ref: 'own.py:answers', timeout: 0.5}]"),
    "hoplet": ("hoplet:own.py:answers", ""),
    "verifier": ("hoplet:hop.py:verifies", ""),
}
VERIFIES = """
from own import spin

def verifier(attempt):
    return "spin" not in attempt.task or spin()

async def verifies(session, q):
    return await session.hop_get(q, verifier=verifier)
"""


@pytest.mark.parametrize("door", list(DOORS))
def test_every_kind_of_users_code_is_kept_off_the_engine(suite: Suite, door: str) -> None:
    target, pipeline = DOORS[door]
    write(suite, ["a", "spin", "b"])
    suite.write("p.yaml", pipeline)
    suite.write("hop.py", VERIFIES)
    limit = [] if door == "step with a limit" else ["--timeout", "0.5"]
    suite.run("run", "cases.jsonl", "--target", target, "--profile", "echo", *limit)
    found = errors(suite)
    assert list(found) == ["c1"] and "no answer within 0.5 s: " in found["c1"] and "own.py:" in found["c1"]


def test_checks_and_retrievers_that_block_lose_their_own_result_only(suite: Suite) -> None:
    write(suite, ["a", "spin", "b"])
    suite.write("evalloom.yaml", "checks: [{kind: python, expected: 'own:answers', timeout_s: 0.5}]\n")
    done = suite.run("run", "cases.jsonl", "--target", "command:echo {{q}}", "--json")
    reasons = [verdict.get("reason", "") for line in suite.lines("verdicts.jsonl") for verdict in line["verdicts"]]
    assert json.loads(done.stdout)["unscored"] >= 1 and done.stderr.count("[loop_blocking]") <= 1
    assert any(
        "own:answers gave no answer within 0.5 s" in reason and "answers() blocks" in reason for reason in reasons
    )
