"""Simulate `--until-sure`: how often its conclusion is wrong, and how many cases it saves.

.venv/bin/python benchmarks/until_sure.py [--samples 1000] [--cases 1000]

Ends with 1 if a conclusion is wrong in more than 5 % of the samples, beyond two standard errors of the simulation.
"""

from __future__ import annotations

import argparse
import sys
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalloom.analysis.sequence import ConfidenceSequence
from evalloom.engine.until_sure import Conclusion, Question

_ERROR = 0.05


class Setting(NamedTuple):
    """A true state of things, and the conclusions that are wrong in it."""

    name: str
    question: Question
    shares: dict[float, float]
    """How often each value of a case occurs: its result, or its difference to the baseline."""
    wrong: tuple[Conclusion, ...]


def _rate(rate: float) -> dict[float, float]:
    return {1.0: rate, 0.0: 1 - rate}


def _flips(lost: float, won: float) -> dict[float, float]:
    return {-1.0: lost, 0.0: 1 - lost - won, 1.0: won}


AT_90, AGAINST = Question(threshold=0.9), Question(baseline="before")
SETTINGS = (
    Setting("rate 97 %, threshold 90 %", AT_90, _rate(0.97), ("below",)),
    Setting("rate 90 %, threshold 90 %", AT_90, _rate(0.90), ("below",)),
    Setting("rate 85 %, threshold 90 %", AT_90, _rate(0.85), ("at_least",)),
    Setting("rate 75 %, threshold 90 %", AT_90, _rate(0.75), ("at_least",)),
    Setting("baseline, nothing changed, 4 % flip", AGAINST, _flips(0.02, 0.02), ("worse",)),
    Setting("baseline, nothing changed, 20 % flip", AGAINST, _flips(0.10, 0.10), ("worse",)),
    Setting("baseline, 5 points worse", AGAINST, _flips(0.08, 0.03), ("not_worse",)),
    Setting("baseline, 15 points worse", AGAINST, _flips(0.18, 0.03), ("not_worse",)),
    Setting("baseline, 5 points better", AGAINST, _flips(0.03, 0.08), ("worse",)),
)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--samples", type=int, default=1000)
    options.add_argument("--cases", type=int, default=1000)
    arguments = options.parse_args()
    print(f"{'of the samples:':38} {'wrong':>7} {'open':>7} {'cases run':>10} {'saved':>7}")
    most_wrong = _ERROR + 2 * sqrt(_ERROR * (1 - _ERROR) / arguments.samples)
    failed = False
    for number, setting in enumerate(SETTINGS):
        draw = np.random.default_rng(number)
        ended = [_simulate(setting, arguments.cases, draw) for _ in range(arguments.samples)]
        wrong = sum(conclusion in setting.wrong for conclusion, _ in ended) / arguments.samples
        undecided = sum(conclusion == "open" for conclusion, _ in ended) / arguments.samples
        ran = sum(cases for _, cases in ended) / arguments.samples
        failed |= wrong > most_wrong
        print(f"{setting.name:38} {wrong:7.1%} {undecided:7.1%} {ran:10.0f} {1 - ran / arguments.cases:7.0%}")
    return int(failed)


def _simulate(setting: Setting, cases: int, draw: np.random.Generator) -> tuple[Conclusion, int]:
    """Return the conclusion of one batch, and after how many cases it stopped."""
    values: NDArray[np.float64] = draw.choice(list(setting.shares), p=list(setting.shares.values()), size=cases)
    sequence = ConfidenceSequence(-1.0 if setting.question.baseline else 0.0, 1.0)
    for value in values:
        sequence.add(float(value))
        conclusion = setting.question.answer(*sequence.interval)
        if conclusion != "open":
            return conclusion, sequence.count
    return "open", cases


if __name__ == "__main__":
    sys.exit(main())
