"""Nothing is asked that need not be: invalid data, dry runs, the cache, recordings, judges."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faults.conftest import Suite
    from tests.llms.serving import Server

pytestmark = pytest.mark.slow


def test_invalid_data_and_dry_runs_send_nothing(suite: Suite, serve: Callable[..., Server]) -> None:
    server = serve()
    suite.settings(server.url)
    suite.cases(["say: a", "say: b"])
    assert suite.run("run", "--dry-run").returncode == 0
    with (suite.folder / "cases.jsonl").open("a") as stream:
        stream.write("{broken\n")
    refused = suite.run("run")
    assert refused.returncode == 2 and "cases.jsonl:3" in refused.stderr
    assert server.stats()["requests"] == 0
    assert suite.summary("--skip-invalid")["error"] == 1 and server.stats()["requests"] == 2


def test_cache_answers_the_second_time_at_temperature_0(suite: Suite, serve: Callable[..., Server]) -> None:
    server = serve()
    suite.settings(server.url, "temperature: 0, price: {input: 1, output: 1}")
    suite.cases(f"{case} say: {case}" for case in range(10))
    first = suite.summary()
    shown = suite.run("run")
    assert (first["cached"], server.stats()["requests"]) == (0, 10)
    assert "10 from the cache" in shown.stdout and "0 tokens" in shown.stdout and shown.returncode == 0
    asked_again = suite.summary("--no-cache")
    assert (asked_again["cached"], server.stats()["requests"]) == (0, 20) and asked_again["cost"] == first["cost"] > 0


def test_what_is_drawn_at_random_is_drawn_again(suite: Suite, serve: Callable[..., Server]) -> None:
    server = serve()
    suite.settings(server.url, "temperature: 0.7")
    suite.cases(["say: a"])
    assert (suite.summary()["cached"], suite.summary()["cached"], server.stats()["requests"]) == (0, 0, 2)


def test_recording_is_replayed_offline_and_without_a_key(
    suite: Suite, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    monkeypatch.setenv("FAR_KEY", "sk-0123456789abcdef")
    suite.settings(server.url, "key_env: FAR_KEY, retries: 0")
    suite.cases(["say: a", "no expectation", "[[status-400]]", "say: b"])
    first = suite.run("run", "--record", "tape.jsonl", "-o", "first.jsonl")
    monkeypatch.delenv("FAR_KEY")
    suite.settings("https://llm.invalid/v1", "key_env: FAR_KEY, retries: 0")
    assert "[key_missing]" in suite.run("run").stderr
    second = suite.run("run", "--replay", "tape.jsonl", "-o", "second.jsonl")
    assert first.returncode == second.returncode == 1 and server.stats()["requests"] == 4
    told = [
        [
            (line["status"], line["output"], line["error"], line["verdicts"])
            for line in map(json.loads, text.splitlines())
        ]
        for text in ((suite.folder / name).read_text() for name in ("first.jsonl", "second.jsonl"))
    ]
    assert told[0] == told[1] and [status for status, *_ in told[0]] == ["passed", "unscored", "error", "passed"]


def test_judge_is_not_asked_twice_about_the_same_answer(suite: Suite, serve: Callable[..., Server]) -> None:
    server = serve()
    told = 'say: {"pass": true, "reason": "fine"}'
    suite.settings(server.url, "temperature: 1", f"judge: far\nchecks: [{{kind: judge, expected: '{told}'}}]\n")
    suite.cases(["one", "two"])
    suite.run("run")
    asked = server.stats()["requests"]
    scored = suite.run("score", "latest", "--json")
    assert asked > 2 and server.stats()["requests"] == asked
    assert json.loads(scored.stdout)["total"] == 2


def test_judge_that_hangs_does_not_hold_ctrl_c(suite: Suite, serve: Callable[..., Server]) -> None:
    server = serve()
    suite.settings(server.url, "temperature: 1", "judge: far\nchecks: [{kind: judge, expected: '[[hang]]'}]\n")
    suite.cases(["one", "two"])
    process = suite.start("run")
    suite.wait_for_runs(2, process)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=10)
    assert process.returncode == 3 and "--resume" in out and len(suite.lines()) == 2
    assert server.stats()["answered"] == 2
