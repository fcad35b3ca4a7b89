"""`kill -9` at any moment: nothing that was written is lost or sent again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faults.conftest import Suite
    from tests.llms.serving import Server

pytestmark = pytest.mark.slow

CASES, KILLS, CONCURRENCY = 5000, 10, 32


def prompt(number: int) -> str:
    return f"{number} say: {number}"


def test_ten_kills_lose_nothing_and_send_nothing_twice(suite: Suite, serve: Callable[..., Server]) -> None:
    server = serve(latency_ms=5)
    suite.settings(server.url)
    suite.cases(map(prompt, range(CASES)))
    chance, answered = random.Random(2024), dict[str, int]()
    for number in range(KILLS):
        more = chance.randrange(1, CASES // KILLS - 200)
        process = suite.start("run", "-j", str(CONCURRENCY), *["--resume"] * (number > 0))
        suite.wait_for_runs(len(answered) + more, process)
        process.kill()
        process.communicate()
        numbers, sent = [run["number"] for run in suite.lines()], server.log()
        written = {prompt(number - 1) for number in numbers}
        assert len(numbers) == len(written) and len(sent.keys() - written) <= CONCURRENCY
        answered |= {one: sent[one] for one in written - answered.keys()}
    found = suite.summary("-j", str(CONCURRENCY), "--resume")
    assert (found["total"], found["passed"]) == (CASES, CASES)
    assert Counter(run["case_id"] for run in suite.lines()) == Counter(f"c{number}" for number in range(CASES))
    assert set(Counter(scored["key"] for scored in suite.lines("verdicts.jsonl")).values()) == {1}
    sent = server.log()
    assert {one: sent[one] for one in answered} == answered
    assert server.stats()["resent"] <= KILLS * CONCURRENCY and len(suite.batches()) == 1


def test_torn_lines_are_mended_and_said(suite: Suite, serve: Callable[..., Server]) -> None:
    server = serve()
    suite.settings(server.url)
    suite.cases(map(prompt, range(20)))
    suite.run("run")
    runs, verdicts = (suite.batches()[0] / name for name in ("runs.jsonl", "verdicts.jsonl"))
    runs.write_bytes(runs.read_bytes()[:-30])
    verdicts.write_bytes(verdicts.read_bytes()[:-300])
    shown = suite.run("batches", "show", "latest")
    done = suite.run("run", "--resume")
    assert shown.returncode == 0 and done.returncode == 0 and done.stderr.count("[log_mended]") == 2
    assert server.stats()["requests"] == 21
    assert len(suite.lines()) == len({run["key"] for run in suite.lines()}) == 20
    assert len({scored["key"] for scored in suite.lines("verdicts.jsonl")}) == 20


def test_verdicts_that_a_crash_took_are_made_up_for(suite: Suite, serve: Callable[..., Server]) -> None:
    server = serve()
    suite.settings(server.url)
    suite.cases(map(prompt, range(20)))
    suite.run("run")
    (suite.batches()[0] / "verdicts.jsonl").write_bytes(b"")
    found = suite.summary("--resume")
    assert found["passed"] == 20 and server.stats()["requests"] == 20
    assert len(suite.lines("verdicts.jsonl")) == 20
