"""Ctrl-C, SIGTERM and limits: what is finished is kept, and --resume does the rest."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faults.conftest import Suite
    from tests.llms.serving import Server

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_signals_keep_what_is_finished(suite: Suite, serve: Callable[..., Server], number: signal.Signals) -> None:
    server = serve(latency_ms=30)
    suite.settings(server.url)
    suite.cases(f"{case} say: {case}" for case in range(600))
    process = suite.start("run", "-j", "8")
    suite.wait_for_runs(30, process)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 3 and "Stopped: interrupted" in out and "--resume" in out and "Traceback" not in err
    kept = len(suite.lines())
    assert 30 <= kept < 600 and '"finished_at": ""' in (suite.batches()[0] / "batch.json").read_text()
    found = suite.summary("--resume", "-j", "64")
    assert (found["total"], found["passed"]) == (600, 600) and len(suite.batches()) == 1
    assert server.stats()["requests"] <= 600 + 8


def test_ctrl_c_does_not_wait_for_who_never_answers(suite: Suite, serve: Callable[..., Server]) -> None:
    suite.settings(serve().url)
    suite.cases(["say: quick", "[[hang]]", "[[hang]]"])
    process = suite.start("run", "-j", "2")
    suite.wait_for_runs(1, process)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=10)
    assert process.returncode == 3 and [run["case_id"] for run in suite.lines()] == ["c0"]
    assert "Stopped: interrupted" in out


def test_ctrl_c_does_not_wait_for_a_retry(suite: Suite, serve: Callable[..., Server]) -> None:
    suite.settings(serve(retry_after=60).url)
    suite.cases(["say: quick", "[[status-429]]"])
    process = suite.start("run")
    suite.wait_for_runs(1, process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert process.returncode == 3 and len(suite.lines()) == 1


@pytest.mark.parametrize(
    ("flag", "value", "told"),
    [
        ("--max-tokens", "200", "--max-tokens 200 is reached"),
        ("--max-cost", "0.0024", "--max-cost 0.0024 is reached"),
        ("--max-time", "0.3", "--max-time 0.3 is over"),
    ],
)
def test_limits_stop_cleanly_and_can_be_resumed(
    suite: Suite, serve: Callable[..., Server], flag: str, value: str, told: str
) -> None:
    server = serve(latency_ms=40)
    suite.settings(server.url, "price: {input: 0, output: 10}")
    suite.cases(f"{case} say: {case}" for case in range(100))
    done = suite.run("run", "-j", "4", flag, value)
    kept = len(suite.lines())
    assert done.returncode == 3 and told in done.stdout and "--resume" in done.stdout
    assert kept < 60 and (kept or flag == "--max-time")
    found = suite.summary("--resume", "-j", "16")
    assert (found["total"], found["passed"]) == (100, 100)
    assert server.stats()["answered"] <= 100 + 4 * (flag == "--max-time")
    assert found["cost"] == pytest.approx(100 * 12 * 10 / 1e6)


def test_second_process_on_the_same_batch_is_refused(suite: Suite, serve: Callable[..., Server]) -> None:
    suite.settings(serve().url)
    suite.cases(["say: quick", "[[hang]]"])
    process = suite.start("run")
    suite.wait_for_runs(1, process)
    try:
        for command in (["run", "--resume"], ["score", "latest"], ["batches", "rm", "latest", "--yes"]):
            refused = suite.run(*command)
            assert refused.returncode == 3 and "[batch_in_use]" in refused.stderr, command
            assert "another process" in refused.stderr and refused.stdout == ""
        assert suite.run("batches", "show", "latest").returncode == 0
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
    assert suite.run("batches", "rm", "latest", "--yes").returncode == 0 and not suite.batches()


def test_reader_that_goes_away_is_no_fault(suite: Suite, serve: Callable[..., Server]) -> None:
    suite.settings(serve().url)
    suite.cases(f"{case} say: {'x' * 2000}" for case in range(100))
    suite.run("run")
    process = suite.start("batches", "show", "latest", "--json", "--limit", "100")
    assert process.stdout and process.stderr
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait(timeout=20) == 141
