"""The clock of the machine goes back an hour in the middle: no duration is negative, and the order stays right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.faults.harness import Trial


def negative_durations(value: Any, name: str = "") -> list[str]:
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in negative_durations(item, key)]
    if isinstance(value, list):
        return [found for item in value for found in negative_durations(item, name)]
    is_duration = name.endswith(("_s", "Ms", "duration")) and isinstance(value, int | float)
    return [f"{name} {value}"] if is_duration and value < 0 else []


def json_values(folder: Path) -> list[Any]:
    lines = [line for path in folder.rglob("*.jsonl") for line in path.read_text("utf-8").splitlines()]
    return [json.loads(text) for text in (*lines, *(path.read_text("utf-8") for path in folder.rglob("batch.json")))]


@pytest.mark.parametrize("name", ["run", "score", "prompt-eval", "stats", "index", "replay"])
def test_commands_complete_as_if_undisturbed(trial: Callable[[str], Trial], name: str) -> None:
    command = trial(name)
    folder = command.new_folder()
    assert command.attempt(folder, is_first=True, back_at=command.undisturbed.operations // 2)
    assert command.command.result(folder) == command.undisturbed.result
    assert negative_durations(json_values(folder)) == []


def test_a_batch_is_resumed_before_it_began(harness: Any, trial: Callable[[str], Trial]) -> None:
    run = trial("run")
    folder = run.new_folder()
    half = run.undisturbed.operations // 2
    assert not run.attempt(folder, harness.Moment(operation=half), is_first=True)
    # Limits are of time that has passed, not of the clock.
    code, err = run.run(folder, f"{harness.RUN} --resume --max-time 50 --timeout 20", back_at=-1)
    assert code == 0 and harness.batch_result(folder) == run.undisturbed.result, err
    assert len(harness.batches(folder)) == 1 and negative_durations(json_values(folder)) == []


def test_a_batch_after_the_clock_went_back_is_the_latest(harness: Any, trial: Callable[[str], Trial]) -> None:
    run = trial("run")
    folder = run.new_folder()
    assert run.run(folder, harness.RUN)[0] == 0
    (first,) = harness.batches(folder)
    assert run.run(folder, harness.RUN, back_at=-1)[0] == 0
    assert harness.batches(folder)[0] == first
    listed = [json.loads(line) for line in harness.call(folder, "batches list --json").splitlines()]
    assert [batch["id"] for batch in listed] == [path.name for path in reversed(harness.batches(folder))]
    assert listed[0]["created_at"] < listed[1]["created_at"]
