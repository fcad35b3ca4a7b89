"""Exit codes: a pass rate that is exactly what --fail-under asks for is enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalloom.analysis.tally import Tally
from evalloom.console.outcome import exit_code
from evalloom.console.run_options import pass_rule, rate
from evalloom.core.model import Run, Scored
from evalloom.engine.results import Results


# As floats, 99.9 / 100 is more than 999 / 1000.
def test_a_percentage_is_the_number_it_says() -> None:
    assert [rate("--fail-under", text) for text in ("99.9%", "66 %", "100%", "0.9")] == [0.999, 0.66, 1.0, 0.9]
    assert pass_rule("99.9%") == (0.999, None)


@pytest.mark.parametrize(("fail_under", "code"), [(0.4, 0), (0.41, 1)])
def test_the_mean_of_shares_may_be_exactly_the_lowest_rate(fail_under: float, code: int) -> None:
    tally = Tally()
    for number, passed in enumerate((1, 7)):
        for repeat in range(10):
            run = Run(f"{number}-{repeat}", str(number), number=number, repeat=repeat)
            tally.add(run, Scored(run.key, "passed" if repeat < passed else "failed"))
    results = Results(Path("b"), tally.summary(), tally, [])
    assert results.pass_rate == pytest.approx(0.4) and exit_code(results, fail_under) == code
