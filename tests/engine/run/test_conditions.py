"""Conditions: whether a case runs, under which profile and in which environment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Case, Output, Profile, Record
from evalloom.engine.run import Conditions, Jobs, Keys, Runner, SelectedCase

pytestmark = pytest.mark.req("PIPE-15")
CONDITIONS = Conditions({"CI": "1"}, frozenset(["pipeline"]))


def why_not(conditions: Any, dialect: str = "pipeline") -> str:
    case = Case("a", {"n": 3}, tags=("smoke",), meta={"conditions": conditions})
    return CONDITIONS.why_not(case, Profile("fast", variant="v2"), dialect)


@pytest.mark.parametrize(
    "conditions",
    [
        'profile == "fast"',
        'variant == "v2" and "smoke" in tags',
        'env.CI == "1" and not env.NIGHTLY',
        ["inputs.n > 2", 'id == "a"'],
        None,
        [],
    ],
)
def test_a_case_runs_when_all_its_conditions_hold(conditions: Any) -> None:
    assert why_not(conditions) == ""


def test_the_first_condition_that_does_not_hold_is_the_reason() -> None:
    assert why_not('profile == "slow"') == 'conditions: profile == "slow" does not hold'
    assert why_not(["true", "inputs.n > 5", "false"]) == "conditions: inputs.n > 5 does not hold"


def test_in_other_dialects_the_word_means_something_else() -> None:
    assert why_not("false", dialect="hop") == "" and why_not("false", dialect="") != ""


def test_an_expression_that_is_none_ends_it_where_no_linter_looked() -> None:
    with pytest.raises(EvalloomError, match="case 'a': conditions: 'profile =': column 9"):
        why_not("profile =")


def test_conditions_are_asked_for_each_profile_and_nothing_is_called() -> None:
    meta: Record = {"conditions": 'profile != "q"'}
    cases = [
        SelectedCase(Case("a", {}, meta=meta), "pipeline"),
        SelectedCase(Case("b", {}, meta=meta), "pipeline", "is faulty"),
    ]
    profiles = (Profile("p"), Profile("q"))
    jobs = list(Jobs(cases, profiles, 1, Keys("t", {"p": "", "q": ""}), conditions=CONDITIONS))
    assert [bool(job.skipped) for job in jobs] == [False, True, False, False]

    async def never(inputs: Record, context: object) -> Output:
        raise AssertionError

    run = asyncio.run(Runner(never, {})(jobs[1]))
    assert (run.skipped, run.error) == ('conditions: profile != "q" does not hold', "")


def test_what_is_null_is_named_with_the_reason() -> None:
    assert why_not("inputs.m > 5") == "conditions: inputs.m > 5 does not hold (inputs.m is null)"
    assert why_not("inputs.n > 5 and env.X.y") == "conditions: inputs.n > 5 and env.X.y does not hold (env.X.y is null)"
    assert why_not('id == "env.X"') == 'conditions: id == "env.X" does not hold'
    assert why_not("env.A or inputs.b").endswith("(env.A, inputs.b are null)")
