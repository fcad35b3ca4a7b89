"""`kill -9` at any moment of any command that writes: started again, it completes as if nothing had happened."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.faults.harness import Trial, Units

# Of thirty kills, so many are for each command. EVALLOOM_KILLS=1000 has more rounds of them: see .ci/nightly.
SHARES = {
    "run": 5,
    "resume": 4,
    "score": 3,
    "baseline": 2,
    "prompt-eval": 4,
    "stats": 2,
    "index": 3,
    "replay": 3,
    "serve": 4,
}
KILLS = int(os.environ.get("EVALLOOM_KILLS", "30"))
SEED = os.environ.get("EVALLOOM_SEED", "2026")
ROUNDS = range(-(-KILLS // sum(SHARES.values())))


@pytest.mark.parametrize("round", ROUNDS)
@pytest.mark.parametrize("name", SHARES)
def test_killed_commands_complete_as_if_undisturbed(trial: Callable[[str], Trial], name: str, round: int) -> None:
    kill_at_random(trial(name), SHARES[name], f"{SEED} {name} {round}")


def kill_at_random(trial: Trial, kills: int, seed: str) -> None:
    """Kill a command so often, up to three times in a row, let it complete, and compare it with an undisturbed one."""
    chance = random.Random(seed)
    print(f"seed {seed!r}, undisturbed: {trial.undisturbed.seconds:.2f} s, {trial.undisturbed.operations} operations")
    while kills > 0:
        folder, finished = trial.new_folder(), dict[str, Any]()
        for number in range(min(kills, chance.randint(1, 3))):
            moment = trial.random_moment(chance)
            is_complete = trial.attempt(folder, moment, is_first=number == 0)
            print(f"{'again, ' if number else ''}{moment}{', too late' * is_complete}")
            finished = unchanged(finished, trial.command.finished(folder))
            if is_complete:
                break
            kills -= 1
        assert trial.complete(folder) == trial.undisturbed.result
        unchanged(finished, trial.command.finished(folder))


def unchanged(before: Units, after: Units) -> Units:
    """What is finished now: all that was, with the same evidence that it was done once, and perhaps more."""
    assert {unit: after.get(unit) for unit in before} == before
    return after
