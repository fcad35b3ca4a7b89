"""Several targets and several values of a parameter in one run: each is a column."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evalloom

pytestmark = pytest.mark.req("WORK-30")
Run = Callable[..., Any]
CASES = '{"id": "a", "q": "x", "expected_output": "Say x"}\n{"id": "b", "q": "y", "expected_output": "Say y"}\n'


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "cases.jsonl").write_text(CASES)
    (tmp_path / "say.md").write_text("Say {{q}}")
    (tmp_path / "ask.md").write_text("Please say {{q}}")
    (tmp_path / "mine.py").write_text("def say(q):\n    return f'Say {q}'\n")
    return tmp_path


def rates(done: Any) -> dict[str, float]:
    return {name: figures["pass_rate"] for name, figures in done.summary["profiles"].items()}


def starts(batch: Path) -> dict[str, str]:
    """When each run of a batch began, by its key."""
    runs = map(json.loads, (batch / "runs.jsonl").read_text().splitlines())
    return {run["key"]: run["started_at"] for run in runs}


def test_targets_run_beside_each_other(suite: Path, in_process: Run) -> None:
    targets = ("--target", "prompt:say.md", "--target", "prompt:ask.md", "--target", "python:mine:say")
    done = in_process("run", "cases.jsonl", *targets, "--profile", "echo", "--json")
    assert done.code == 1 and rates(done) == {"say.md": 1, "ask.md": 0, "mine:say": 1}
    two = in_process("run", "cases.jsonl", *targets[:4], "--profile", "echo", "--profile", "echo", "--json")
    assert rates(two) == {"say.md": 1, "ask.md": 0}


def test_a_further_target_leaves_the_runs_of_the_others(suite: Path, in_process: Run) -> None:
    command = ("run", "cases.jsonl", "--profile", "echo", "--target", "prompt:say.md", "--target")
    in_process(*command, "python:mine:say")
    again = (*command, "python:mine:say", "--target", "prompt:ask.md", "--resume-from", "latest")
    assert len(in_process(*again, "--json").summary["profiles"]) == 3
    first, second = sorted((suite / ".evalloom/batches").iterdir())
    assert starts(first).items() <= starts(second).items() and len(starts(second)) == 6


def test_targets_of_the_settings_have_names(suite: Path, in_process: Run) -> None:
    targets = {"plain": "prompt:say.md", "polite": {"prompt": "ask.md"}}
    (suite / "evalloom.yaml").write_text(json.dumps({"targets": targets, "datasets": ["cases.jsonl"]}))
    assert rates(in_process("run", "--profile", "echo", "--json")) == {"plain": 1, "polite": 0}
    # One target of the command line comes before those of the settings.
    assert rates(in_process("run", "--target", "prompt:say.md", "--profile", "echo", "--json")) == {"echo": 1}


def test_values_of_parameters_are_columns(suite: Path, in_process: Run, tmp_path: Path) -> None:
    flags = ("--vary", "temperature=0,0.7", "--vary", "style=plain")
    done = in_process("run", "cases.jsonl", "--target", "prompt:say.md", "--profile", "echo", *flags, "--json")
    assert list(rates(done)) == ["echo temperature=0 style=plain", "echo temperature=0.7 style=plain"]
    (batch,) = (tmp_path / ".evalloom/batches").iterdir()
    profiles = json.loads((batch / "batch.json").read_text())["profiles"]
    assert [profile["params"] for profile in profiles] == [
        {"temperature": 0, "style": "plain"},
        {"temperature": 0.7, "style": "plain"},
    ]


def test_values_in_the_settings(suite: Path, in_process: Run) -> None:
    settings = {"target": "prompt:say.md", "run": {"vary": {"seed": [1, 2]}}, "datasets": ["cases.jsonl"]}
    (suite / "evalloom.yaml").write_text(json.dumps(settings))
    assert list(rates(in_process("run", "--profile", "echo", "--json"))) == ["echo seed=1", "echo seed=2"]


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--target", "prompt:say.md", "--target", "prompt:say.md"], "several_targets"),
        (["--target", "prompt:say.md", "--target", "prompt:ask.md", "--variants", "x"], "no_variants"),
        (["--target", "prompt:say.md", "--vary", "temperature"], "bad_option"),
        (["--target", "prompt:say.md", "--vary", "temperature=0,,1"], "bad_option"),
        (["--target", "prompt:say.md", "--vary", "t=0", "--vary", "t=1"], "bad_option"),
        (["--target", "prompt:say.md", "--vary", "model=a,b"], "bad_option"),
    ],
)
def test_what_cannot_be_combined(suite: Path, in_process: Run, flags: list[str], code: str) -> None:
    done = in_process("run", "cases.jsonl", "--profile", "echo", *flags)
    assert done.code == 2 and f"[{code}]" in done.err


@pytest.mark.req("WORK-15")
def test_python_has_them_too(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(suite)

    def shout(q: str) -> str:
        return f"SAY {q}"

    both = evalloom.evaluate("cases.jsonl", ["prompt:say.md", shout], profiles="echo")
    assert len(both.to_pandas()) == 4 and len(both.failures) == 2
    varied = evalloom.evaluate("cases.jsonl", "prompt:say.md", profiles="echo", vary={"temperature": [0, 1]})
    assert varied.passed and set(varied.to_pandas()["profile"]) == {"echo temperature=0", "echo temperature=1"}
