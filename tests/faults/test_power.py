"""A loss of power: what a command said to be done is there, and what it was doing can go on."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalloom.batchlog.read import RUNS, VERDICTS, in_order

pytestmark = pytest.mark.slow

LOSSES = max(2, int(os.environ.get("EVALLOOM_KILLS", "30")) // 8)
"""How often each command loses its power."""
SEED = os.environ.get("EVALLOOM_SEED", "2026")
COMMANDS = ("run", "resume", "score", "baseline", "prompt-eval", "index", "replay", "serve")


@pytest.mark.parametrize("name", COMMANDS)
def test_what_was_acknowledged_survives_a_loss_of_power(
    name: str, powered_trial: Callable[[str], Any], power: Any
) -> None:
    trial = powered_trial(name)
    folder = trial.new_folder()
    disk = power.Disk(folder)
    assert trial.attempt(folder, is_first=True)
    disk.play(folder.with_suffix(".journal"))
    disk.lose_power()
    assert trial.command.result(folder) == trial.undisturbed.result


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_goes_on_after_a_loss_of_power(name: str, powered_trial: Callable[[str], Any], power: Any) -> None:
    trial, chance = powered_trial(name), random.Random(f"{SEED} {name} power")
    for number in range(LOSSES):
        folder, moment = trial.new_folder(), trial.random_moment(chance)
        disk = power.Disk(folder)
        trial.attempt(folder, moment, is_first=True)
        disk.play(folder.with_suffix(".journal"))
        disk.lose_power(chance if number % 2 else None)
        assert trial.attempt(folder), "the command was killed, though nobody killed it"
        clean_logs(folder)
        assert trial.command.result(folder) == trial.undisturbed.result, moment


def clean_logs(folder: Path) -> None:
    """Leave the runs and verdicts that evalloom reads: not what the disk lost of a line, nor what was made up for."""
    for batch in folder.glob(".evalloom/batches/*"):
        lines = list(in_order(batch, []))
        for name, values in ((RUNS, [run for run, _ in lines]), (VERDICTS, [scored for _, scored in lines if scored])):
            (batch / name).write_bytes(b"".join(msgspec.json.encode(value) + b"\n" for value in values))
