"""Cases that wait, are skipped or multiply, through a whole batch: run, resumed, scored again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import evalloom
from evalloom import catalog
from evalloom.batchlog import pairs
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Status
from evalloom.data.mapping import parse_mapping
from evalloom.engine.dry_run import dry_run
from evalloom.engine.evaluate import InvalidData, evaluate
from evalloom.engine.plan import Reading
from evalloom.engine.prepare import RunRequest, prepare
from evalloom.engine.rescore import RescoreRequest, rescore
from evalloom.engine.results import Results
from evalloom.engine.resume import Resume

BOT = """
from pathlib import Path
from time import sleep

def answer(q):
    with open("calls.txt", "a") as stream:
        stream.write(q + " ")
    if Path("down.txt").exists() and q in Path("down.txt").read_text():
        raise ValueError("down")
    while q == "slow" and not Path("go.txt").exists():
        sleep(0.01)
    return q.upper()
"""
CHAIN: list[dict[str, Any]] = [
    {"id": "last", "q": "last", "expected": "LAST", "depends_on": ["middle", "first"]},
    {"id": "first", "q": "first", "expected": "FIRST"},
    {"id": "middle", "q": "middle", "expected": "MIDDLE", "depends_on": "first"},
    {"id": "alone", "q": "alone", "expected": "ALONE"},
]


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bot.py").write_text(BOT, encoding="utf-8")


def write(records: list[dict[str, Any]]) -> None:
    Path("cases.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")


def run(resume: Resume = Resume(), warned: list[str] | None = None, judge: str = "", **options: Any) -> Results:
    asked = RunRequest(
        ("cases.jsonl",), target="python:bot.py:answer", judge=judge, options={"concurrency": 2, **options}
    )
    return evaluate(prepare(asked, catalog.load()), resume=resume, warn=(warned if warned is not None else []).append)


def statuses(results: Results) -> dict[str, Status]:
    return {run.case_id: scored.status for run, scored in results}


def calls() -> list[str]:
    """What was sent since the last look."""
    file = Path("calls.txt")
    sent = file.read_text().split() if file.exists() else []
    file.unlink(missing_ok=True)
    return sent


@pytest.mark.req("PIPE-14")
@pytest.mark.parametrize("concurrency", [1, 8])
def test_cases_run_after_those_they_depend_on(concurrency: int) -> None:
    write(CHAIN)
    results = run(concurrency=concurrency)
    assert set(statuses(results).values()) == {"passed"}
    sent = calls()
    assert sent.index("first") < sent.index("middle") < sent.index("last") and len(sent) == 4


@pytest.mark.req("PIPE-14")
def test_what_depends_on_a_failure_is_blocked_and_does_not_fail() -> None:
    write([*CHAIN[:1], {**CHAIN[1], "expected": "else"}, *CHAIN[2:]])
    results = run()
    assert statuses(results) == {"last": "blocked", "first": "failed", "middle": "blocked", "alone": "passed"}
    assert (results.summary.blocked, results.summary.failed, results.summary.pass_rate) == (2, 1, 0.5)
    found = {
        run.case_id: (run.blocked, [(v.name, v.status, v.reason) for v in scored.verdicts]) for run, scored in results
    }
    reason = "depends on 'first', which failed"
    assert found["middle"] == (reason, [("depends_on", "blocked", reason)])
    assert sorted(calls()) == ["alone", "first"]


@pytest.mark.req("PIPE-14")
def test_a_case_waits_until_the_judge_has_spoken() -> None:
    write(
        [{"id": "a", "q": "a"}, {"id": "b", "q": "wrong", "depends_on": "a"}, {"id": "c", "q": "c", "depends_on": "b"}]
    )
    Path("evalloom.yaml").write_text("checks: [{kind: judge, expected: is it right}]\n", encoding="utf-8")
    rules = "rules: [{match: WRONG, answer: {pass: false, reason: no}}]\ndefault: {pass: true, reason: yes}\n"
    Path("judge.yaml").write_text(rules, encoding="utf-8")
    results = run(judge="scripted:judge.yaml", concurrency=1)
    assert statuses(results) == {"a": "passed", "b": "failed", "c": "blocked"}


@pytest.mark.req("PIPE-14")
def test_a_judge_who_spends_the_budget_holds_nobody_up() -> None:
    write([{"id": "a", "q": "a"}, {"id": "b", "q": "b", "depends_on": "a"}, {"id": "c", "q": "c", "depends_on": "b"}])
    Path("evalloom.yaml").write_text("checks: [{kind: judge, expected: is it right}]\n", encoding="utf-8")
    Path("judge.yaml").write_text("default: {pass: true, reason: yes}\n", encoding="utf-8")
    results = run(judge="scripted:judge.yaml", max_tokens=1)
    assert results.stopped and calls() == ["a", "b"] and "c" not in statuses(results)


@pytest.mark.req("PIPE-14")
def test_cases_that_are_not_chosen_block_nobody_and_that_is_said() -> None:
    write(CHAIN)
    warned: list[str] = []
    results = run(warned=warned, filter='id != "first"')
    assert set(statuses(results).values()) == {"passed"} and len(calls()) == 3
    assert [text for text in warned if "dependency_not_chosen" in text] == [
        "depends_on: 'first' is not selected in this run, so no case waits for it [dependency_not_chosen]"
    ]
    assert statuses(run(limit=1)) == {"last": "passed"}


@pytest.mark.req("PIPE-14")
@pytest.mark.parametrize("field", ["after", "depends\\u005fon"])
def test_dependencies_are_found_however_the_field_is_written(field: str) -> None:
    text = '{"id": "b", "q": "b", "FIELD": "a"}\n{"id": "a", "q": "a"}\n'.replace("FIELD", field)
    Path("cases.jsonl").write_text(text, encoding="utf-8")
    reading = Reading(mapping=parse_mapping("depends_on=after" if field == "after" else ""))
    asked = RunRequest(("cases.jsonl",), target="python:bot.py:answer", reading=reading, options={"concurrency": 1})
    evaluate(prepare(asked, catalog.load()), warn=print)
    assert calls() == ["a", "b"]


@pytest.mark.req("PIPE-14")
def test_statuses_of_earlier_runs_count_when_a_batch_is_gone_on_with() -> None:
    write([*CHAIN[:1], {**CHAIN[1], "expected": "else"}, *CHAIN[2:]])
    first = run(concurrency=1)
    lines = (first.path / "runs.jsonl").read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if b'"case_id":"first"' in line]
    (first.path / "runs.jsonl").write_bytes(b"".join(kept))
    (first.path / "verdicts.jsonl").write_bytes(b"")
    calls()
    again = run(Resume(newest=True))
    assert again.path == first.path and calls() == ["alone"]
    assert statuses(again) == {"last": "blocked", "first": "failed", "middle": "blocked", "alone": "passed"}


@pytest.mark.req("PIPE-14")
def test_blocked_runs_are_run_again_with_the_errors_that_blocked_them() -> None:
    write(CHAIN)
    Path("down.txt").write_text("first")
    assert statuses(run()) == {"last": "blocked", "first": "error", "middle": "blocked", "alone": "passed"}
    Path("down.txt").unlink()
    calls()
    assert run(Resume(newest=True)).summary.blocked == 2 and calls() == []
    again = run(Resume(newest=True, retry_errors=True))
    assert set(statuses(again).values()) == {"passed"} and calls() == ["first", "middle", "last"]
    assert again.summary.total == 4
    assert {scored.status for _, scored in pairs(again.path) if scored} == {"passed"}


@pytest.mark.req("PIPE-14")
def test_a_batch_that_is_killed_while_cases_wait_goes_on() -> None:
    slow = {"id": "slow", "q": "slow", "expected": "SLOW", "depends_on": "first"}
    write([{**CHAIN[3], "id": "end", "q": "end", "expected": "END", "depends_on": "slow"}, CHAIN[1], slow])
    command = [sys.executable, "-m", "evalloom", "run", "cases.jsonl", "--target", "python:bot.py:answer"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 30
    while not (Path("calls.txt").exists() and "slow" in Path("calls.txt").read_text()):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    Path("go.txt").touch()
    assert calls() == ["first", "slow"]
    again = run(Resume(newest=True))
    assert calls() == ["slow", "end"] and set(statuses(again).values()) == {"passed"}


@pytest.mark.req("PIPE-15")
def test_conditions_decide_for_each_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGE", "night")
    monkeypatch.setenv("MY_TOKEN", "sesame")
    write(
        [
            {"id": "q", "q": "a", "expected": "A", "conditions": 'profile == "q"'},
            {"id": "night", "q": "b", "expected": "B", "conditions": ['env.STAGE == "night"', "inputs.q"]},
            {"id": "secret", "q": "c", "expected": "C", "conditions": "exists(env.MY_TOKEN)"},
            {"id": "after", "q": "d", "expected": "D", "depends_on": "secret"},
        ]
    )
    settings = "llms: {one: {protocol: echo}}\nprofiles: {p: {run: one}, q: {run: one}}\n"
    Path("evalloom.yaml").write_text(settings, encoding="utf-8")
    results = run(profiles=["p", "q"])
    found = {(run.profile, run.case_id): scored.status for run, scored in results}
    assert found["p", "q"] == "skipped" and found["q", "q"] == "passed"
    assert found["p", "night"] == "passed" and found["p", "secret"] == "skipped" and found["p", "after"] == "blocked"
    assert sorted(calls()) == ["a", "b", "b"] and results.summary.skipped == 3
    (reason,) = {scored.verdicts[0].reason for run, scored in results if run.case_id == "secret"}
    assert reason == "exists(env.MY_TOKEN) does not hold (env.MY_TOKEN is null)"


@pytest.mark.req("PIPE-15")
@pytest.mark.parametrize(
    ("name", "value"),
    [("DB_PASS", "x"), ("LOGIN_PWD", "x"), ("MY_CREDENTIALS", "x"), ("AUTH", "x"), ("SENTRY_DSN", "x"), ("COOKIES", "x"),
     ("session", "x"), ("DATABASE", "postgres://me:sesame@host/db"), ("REDIS", "redis://:sesame@host")],
)  # fmt: skip
def test_conditions_cannot_ask_for_what_may_be_secret(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("SITE", "https://host/@me")
    write([{"id": "a", "q": "a", "conditions": f"env.{name}"}, {"id": "b", "q": "b", "conditions": "env.SITE"}])
    assert statuses(run()) == {"a": "skipped", "b": "unscored"}


@pytest.mark.req("PIPE-14", "PIPE-15")
def test_what_was_skipped_is_looked_at_again_with_what_it_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        [
            {"id": "a", "q": "a", "expected": "A", "conditions": "env.STAGE"},
            {"id": "b", "q": "b", "expected": "B", "depends_on": "a"},
            {"id": "c", "q": "c", "expected": "C"},
        ]
    )
    assert statuses(run()) == {"a": "skipped", "b": "blocked", "c": "passed"}
    again = run(Resume(newest=True))
    assert statuses(again) == {"a": "skipped", "b": "blocked", "c": "passed"} and calls() == ["c"]
    monkeypatch.setenv("STAGE", "night")
    again = run(Resume(newest=True))
    assert set(statuses(again).values()) == {"passed"} and calls() == ["a", "b"] and again.summary.total == 3


@pytest.mark.req("PIPE-15")
def test_what_was_skipped_or_blocked_stays_so_when_it_is_scored_again() -> None:
    write([{"id": "a", "q": "a", "expected": "A", "conditions": "false"}, {"id": "b", "q": "b", "depends_on": "a"}])
    first = run()
    assert statuses(first) == {"a": "skipped", "b": "blocked"} and first.passed
    Path("cases.jsonl").unlink()
    again = rescore(RescoreRequest(first.path.name), catalog.load(), warn=print)
    assert statuses(again) == {"a": "skipped", "b": "blocked"}
    assert (again.summary.skipped, again.summary.blocked, calls()) == (1, 1, [])


@pytest.mark.req("PIPE-15")
def test_another_batch_takes_over_neither_what_was_skipped_nor_what_is_now() -> None:
    write([{"id": "a", "q": "a", "conditions": "false"}, {"id": "b", "q": "b"}, {"id": "c", "q": "c"}])
    first = run()
    # Side by side, so in either order.
    assert sorted(calls()) == ["b", "c"]
    write([{"id": "a", "q": "a"}, {"id": "b", "q": "b", "conditions": "false"}, {"id": "c", "q": "c"}])
    again = run(Resume(source=first.path.name))
    assert calls() == ["a"] and statuses(again) == {"a": "unscored", "b": "skipped", "c": "unscored"}


@pytest.mark.req("PIPE-15")
def test_a_dry_run_counts_what_would_be_skipped() -> None:
    write([{"id": "a", "q": "a", "conditions": "false"}, {"id": "b", "q": "b"}])
    plan = prepare(RunRequest(("cases.jsonl",), target="python:bot.py:answer"), catalog.load())
    ahead = dry_run(plan, Resume())
    assert (ahead.total, ahead.skipped) == (2, 1)


@pytest.mark.req("PIPE-16")
def test_every_case_of_a_record_runs_and_can_be_scored_again() -> None:
    write(
        [
            {"id": "after", "q": "after", "expected": "AFTER", "depends_on": "t"},
            {
                "id": "t",
                "tags": ["{x}"],
                "q": "{x}",
                "expected": "{y}",
                "parameters": [{"x": "a", "y": "A"}, {"x": "b", "y": "B"}],
            },
        ]
    )
    results = run(concurrency=1)
    assert statuses(results) == {"after": "passed", "t[x=a,y=A]": "passed", "t[x=b,y=B]": "passed"}
    assert calls() == ["a", "b", "after"]
    raw = {run.case_id: run.raw for run, _ in results}
    assert raw["t[x=b,y=B]"] == {"id": "t[x=b,y=B]", "tags": ["b"], "q": "b", "expected": "B"}
    assert rescore(RescoreRequest(results.path.name), catalog.load(), warn=print).summary.passed == 3
    assert statuses(run(tags=["b"])) == {"t[x=b,y=B]": "passed"}


@pytest.mark.req("PIPE-16")
def test_a_record_with_faulty_parameters_is_one_error_where_faults_are_left_out() -> None:
    write([{"id": "a", "q": "{x}", "parameters": {"x": []}}, {"id": "b", "q": "{x}", "parameters": {"x": ["1", "2"]}}])
    with pytest.raises(InvalidData):
        run()
    assert statuses(run(skip_invalid=True)) == {"a": "error", "b[x=1]": "unscored", "b[x=2]": "unscored"}


@pytest.mark.req("PIPE-16")
def test_only_those_cases_of_a_record_are_errors_that_are_faulty() -> None:
    limits = {"max_latency_ms": "{m}"}
    record = {"id": "a", "q": "a", "expected": "A", "performance_baseline": limits}
    write([{**record, "parameters": {"m": [60_000, "fast"]}}])
    assert statuses(run(skip_invalid=True)) == {"a[m=60000]": "passed", "a[m=fast]": "error"}


@pytest.mark.req("PIPE-14")
def test_where_faults_are_left_out_dependencies_look_at_what_is_sound() -> None:
    write([CHAIN[1], {**CHAIN[1], "expected": "else"}, CHAIN[2], {**CHAIN[3], "depends_on": ["first", "frist"]}])
    warned: list[str] = []
    results = run(skip_invalid=True, warned=warned)
    assert [(run.case_id, scored.status) for run, scored in results] == [
        ("first", "passed"),
        ("first", "error"),
        ("middle", "passed"),
        ("alone", "error"),
    ]
    errors = [run.error for run, _ in results if run.error]
    assert "[duplicate_id]" in errors[0] and "has the id 'frist' [unknown_dependency]" in errors[1] and warned == []


@pytest.mark.req("PIPE-14", "PIPE-16")
def test_cases_from_python_wait_and_multiply_too() -> None:
    records: list[dict[str, Any]] = [
        {"id": "b", "q": "b", "expected": "B", "depends_on": "a"},
        {"id": "a", "q": "{x}", "expected": "{x}!", "parameters": {"x": [1, 2]}},
        {"id": "c", "q": "c", "expected": "C", "conditions": "false"},
    ]
    results = evalloom.evaluate(records, lambda q: f"{q}!")
    assert statuses(results) == {"b": "failed", "a[x=1]": "passed", "a[x=2]": "passed", "c": "skipped"}
    ring = [evalloom.Case("a", {"q": 1}, needs=("b",)), evalloom.Case("b", {"q": 1}, needs=("a",))]
    assert set(statuses(evalloom.evaluate(ring, lambda q: q)).values()) == {"blocked"}
    with pytest.raises(EvalloomError, match="bad_conditions"):
        evalloom.evaluate([{"id": "a", "q": 1, "expected": 1, "conditions": "1 +"}], lambda q: q)


@pytest.mark.req("PIPE-13")
def test_a_baseline_is_a_check_like_any_other() -> None:
    write(
        [
            {"id": "quick", "q": "a", "expected": "A", "performance_baseline": {"max_latency_ms": 60_000}},
            {"id": "never", "q": "b", "expected": "B", "performance_baseline": {"max_latency_ms": 0}},
        ]
    )
    results = run()
    assert statuses(results) == {"quick": "passed", "never": "failed"}
    assert ["performance_baseline.max_latency_ms" in [v.name for v in scored.verdicts] for _, scored in results] == [
        True
    ] * 2
