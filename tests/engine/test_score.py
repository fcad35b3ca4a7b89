"""What becomes of a case."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.errors import BudgetSpent
from evalloom.core.model import Case, Check, Origin, Output, Request, Response, Run, Scored, Status, Usage, Verdict
from evalloom.engine.score import grade_now, score
from evalloom.interop.promptfoo.dialect import DIALECT as PROMPTFOO
from evalloom.matchers import Services

YES, NO, UNSURE = Check("contains", "y"), Check("contains", "n"), Check("meteor", "y")


def weighted(check: Check, **options: Any) -> Check:
    return Check(check.kind, check.expected, check.where, check.name, {**check.options, **options})


def scored(*checks: Check, value: Any = "yes", **meta: Any) -> Scored:
    found = grade_now(Case("c", {}, checks, meta=meta), Run("k", "c", output=Output(value)), Services())
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("checks", "status", "mean"),
    [
        ((), "unscored", None),
        ((YES,), "passed", 1),
        ((YES, YES), "passed", 1),
        ((YES, NO), "failed", 0.5),
        ((YES, UNSURE), "unscored", 1),
        ((NO, UNSURE), "failed", 0),
        ((UNSURE,), "unscored", None),
        ((YES, weighted(NO, weight=3)), "failed", 0.25),
        ((YES, weighted(NO, weight=0)), "passed", 1),
    ],
)
def test_status_and_score(checks: tuple[Check, ...], status: str, mean: float | None) -> None:
    found = scored(*checks)
    assert (found.status, found.score) == (status, mean)
    assert len(found.verdicts) == len(checks)


@pytest.mark.req("WORK-1")
@given(
    st.lists(st.tuples(st.sampled_from("ynu"), st.sampled_from([0, 1, 3]), st.sampled_from([None, 1, 2])), max_size=5),
    st.sampled_from([None, 0, 0.5, 0.8]),
    st.sampled_from([None, 0.5, 1]),
)
def test_a_case_passes_or_fails_only_if_no_result_of_an_unscored_check_could_change_it(
    written: list[tuple[str, int, int | None]], threshold: float | None, of_set: float | None
) -> None:
    def status(unsure: Check) -> Status:
        checks = []
        for letter, weight, group in sorted(written, key=lambda check: check[2] or 0):
            grouped = {"set_id": group, "set_threshold": of_set} if group else {}
            checks.append(weighted({"y": YES, "n": NO, "u": unsure}[letter], weight=weight, **grouped))
        return scored(*checks, threshold=threshold).status

    if (decided := status(UNSURE)) != "unscored":
        assert {status(YES), status(NO)} == {decided}


@pytest.mark.parametrize(
    ("checks", "threshold", "status"),
    [
        ((YES, NO), 0.5, "passed"),
        ((YES, NO), 0.6, "failed"),
        ((YES, UNSURE), 0.5, "passed"),
        ((YES, UNSURE), 0.6, "unscored"),
        ((NO, UNSURE), 0.6, "failed"),
        ((YES, YES), 1, "passed"),
        ((UNSURE,), 0, "unscored"),
    ],
)
@pytest.mark.req("WORK-1")
def test_a_case_with_a_threshold(checks: tuple[Check, ...], threshold: float, status: str) -> None:
    assert scored(*checks, threshold=threshold).status == status


def test_a_run_that_failed_has_no_verdicts() -> None:
    case, run = Case("c", {}, (YES,)), Run("k", "c", error="no answer")
    assert grade_now(case, run, Services()) == Scored("k", "error")
    assert asyncio.run(score(case, run, Services())) == Scored("k", "error")


def test_names_of_verdicts() -> None:
    checks = (YES, Check("equals", 1, "output.a"), weighted(YES, negate=True), Check("contains", "y", name="mine"))
    names = [verdict.name for verdict in scored(*checks, value={"a": 1}).verdicts]
    assert names == ["contains", "equals a", "not_contains", "mine"]


def test_negation() -> None:
    found = scored(weighted(YES, negate=True), weighted(NO, negate=True), weighted(UNSURE, negate=True))
    assert [verdict.status for verdict in found.verdicts] == ["failed", "passed", "unscored"]
    assert found.verdicts[0].reason == "expected not 'y' in 'yes'"
    assert found.verdicts[1].reason == ""


def test_what_is_not_there_fails_also_when_negated() -> None:
    for negate in (False, True):
        found = scored(Check("contains", "x", "output.b", options={"negate": negate}), value={"a": "x"})
        assert found.status == "failed" and "has the fields a" in found.verdicts[0].reason
    assert scored(Check("contains", "x", "answer")).status == "unscored"


def test_a_set_of_asserts_is_one_part_of_the_case() -> None:
    asserts = [
        {
            "type": "assert-set",
            "threshold": 0.5,
            "weight": 2,
            "metric": "style",
            "assert": [{"type": "contains", "value": "y"}, {"type": "contains", "value": "n"}],
        },
        {"type": "not-contains", "value": "z"},
    ]
    case = PROMPTFOO.to_case({"vars": {"q": "x"}, "assert": asserts}, Origin("p.yaml"))
    found = scored(*case.checks)
    assert found.status == "passed" and found.score == pytest.approx(2 / 3)
    assert [(verdict.kind, verdict.status) for verdict in found.verdicts] == [
        ("contains", "passed"),
        ("contains", "failed"),
        ("contains", "passed"),
        ("assert_set", "passed"),
    ]
    assert found.verdicts[-1].name == "style" and found.verdicts[-1].weight == 2


def test_scores_of_judges_keep_their_scale_and_weigh_by_share() -> None:
    async def judge(request: Request) -> Response:
        return Response('{"reason": "fair", "score": 2}', usage=Usage(3, 4, calls=1))

    case = Case(
        "c", {}, (Check("judge", "a", options={"scale": [1, 3]}), Check("judge", "b", options={"scale": [1, 5]}), YES)
    )
    run = Run("k", "c", output=Output("yes"))
    assert grade_now(case, run, Services(judge)) is None
    found = asyncio.run(score(case, run, Services(judge)))
    assert [verdict.score for verdict in found.verdicts] == [2, 2, 1]
    assert found.score == pytest.approx((0.5 + 0.25 + 1) / 3)
    assert found.usage == Usage(6, 8, calls=2)


def test_judges_are_asked_side_by_side() -> None:
    async def both() -> Scored:
        arrived = asyncio.Barrier(2)

        async def judge(request: Request) -> Response:
            await arrived.wait()
            return Response('{"reason": "fine", "pass": true}')

        case = Case("c", {}, (Check("judge", "a"), Check("judge", "b")))
        return await asyncio.wait_for(score(case, Run("k", "c"), Services(judge)), 5)

    assert asyncio.run(both()).status == "passed"


def test_a_spent_budget_stops_scoring() -> None:
    async def judge(request: Request) -> Response:
        raise BudgetSpent

    case = Case("c", {}, (Check("judge", "a"), Check("judge", "b")))
    with pytest.raises(BudgetSpent):
        asyncio.run(score(case, Run("k", "c"), Services(judge)))


@pytest.mark.req("PIPE-14", "PIPE-15")
@pytest.mark.parametrize(
    ("run", "status", "name"),
    [(Run("k", "c", skipped="why"), "skipped", "conditions"), (Run("k", "c", blocked="why"), "blocked", "depends_on")],
)
def test_a_run_that_did_not_take_place_is_held_to_nothing(run: Run, status: Status, name: str) -> None:
    case = Case("c", {}, (YES, Check("judge", "is it right")))
    expected = Scored("k", status, verdicts=[Verdict(name, name, "", status, reason="why")])
    assert grade_now(case, run, Services()) == expected == asyncio.run(score(case, run, Services()))


STEP = {"type": "step", "step": "judge", "kind": "prompt", "output_key": "verdict", "needs": [], "outputs": ["verdict"]}


@pytest.mark.req("PIPE-11")
@pytest.mark.parametrize(
    ("where", "passed"), [("steps.judge", True), ("steps.verdict", True), ("steps.verdict.a", None)]
)
def test_a_step_is_found_by_its_id_and_then_by_its_output_key(where: str, passed: bool | None) -> None:
    run = Run("k", "c", output=Output(None, {"judge": {"a": 1}}), trace=[STEP])
    expected = 1 if passed is None else {"a": 1}
    found = grade_now(Case("c", {}, (Check("structural", expected, where),)), run, Services())
    assert found is not None and found.status == "passed"


def test_a_run_that_failed_in_a_step_names_it() -> None:
    run = Run(
        "k", "c", error="no answer", trace=[STEP, {**STEP, "step": "sum", "status": "failed", "ended_case": True}]
    )
    found = grade_now(Case("c", {}), run, Services())
    assert found is not None and (found.status, found.step) == ("error", "sum")
