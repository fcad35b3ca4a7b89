"""`--dry-run`: what a plan would run, what is there already, and what the rest may cost."""

from __future__ import annotations

from msgspec import Struct

from evalloom import settings
from evalloom.core.model import Request, Response, Usage
from evalloom.engine.evaluate import refuse_invalid
from evalloom.engine.loop import run_loop
from evalloom.engine.plan import Plan
from evalloom.engine.resume import Resume, look_back
from evalloom.engine.run import ProfileClients, Runner
from evalloom.llms import estimate_tokens
from evalloom.settings import LlmSettings

_USUAL_ANSWER = 1000
"""Tokens of an answer when no parameter bounds it."""


class Ahead(Struct, frozen=True):
    """What would be run. Tokens and cost are ranges: the prompts are known, the answers are not."""

    target: str
    profiles: list[str]
    total: int
    there: int
    to_run: int
    batch: str = ""
    tokens_low: int | None = None
    tokens_high: int | None = None
    cost_low: float | None = None
    cost_high: float | None = None
    errors: int = 0
    """How many would end in an error before anything is sent: a prompt asks for what the case does not have."""
    first_error: str = ""
    skipped: int = 0
    """How many would not be run, by their conditions."""


def look_ahead(plan: Plan, resume: Resume) -> Ahead:
    """Goes through everything but the calls."""
    refuse_invalid(plan)
    return run_loop(_look_ahead(plan, resume))


async def _look_ahead(plan: Plan, resume: Resume) -> Ahead:
    path, done = look_back(plan, resume)
    jobs = plan.jobs(done)
    # Only a prompt can be filled without doing anything; other targets may act.
    can_estimate = plan.target.kind == "prompt"
    meters = {profile.name: _Meter(plan, profile.run) for profile in plan.profiles if can_estimate}
    runner = Runner(plan.target.call, {name: ProfileClients(meter, meter) for name, meter in meters.items()})
    errors, skipped = [], 0
    for job in jobs:
        skipped += bool(job.skipped)
        if can_estimate and (run := await runner(job)).error:
            errors.append(run.error)
    tokens_low, tokens_high, cost_low, cost_high = _totals(list(meters.values())) if can_estimate else [None] * 4
    return Ahead(
        plan.target.name,
        [profile.name for profile in plan.profiles],
        jobs.total,
        jobs.done_before,
        jobs.total - jobs.done_before,
        path.name if path else "",
        tokens_low,
        tokens_high,
        cost_low,
        cost_high,
        len(errors),
        errors[0] if errors else "",
        skipped,
    )


def _totals(meters: list[_Meter]) -> tuple[int, int, float | None, float | None]:
    sent, got = sum(meter.sent for meter in meters), sum(meter.got for meter in meters)
    costs = [meter.cost() for meter in meters]
    low = sum(cost[0] for cost in costs if cost)
    high = sum(cost[1] for cost in costs if cost)
    return (sent, sent + got, round(low, 6), round(high, 6)) if all(costs) else (sent, sent + got, None, None)


class _Meter:
    """In the place of an llm: takes down how much would be sent, and answers nothing."""

    def __init__(self, plan: Plan, name: str) -> None:
        self._llm: LlmSettings = settings.llm_of(plan.known, name)
        self._price = self._llm.price or plan.known.prices.get(self._llm.model)
        self.sent = 0
        self.got = 0

    async def __call__(self, request: Request) -> Response:
        self.sent += sum(estimate_tokens(str(message.get("content") or "")) for message in request.messages)
        most = {**self._llm.params, **request.params}.get("max_tokens")
        self.got += most if isinstance(most, int) else _USUAL_ANSWER
        return Response("", usage=Usage(calls=1))

    def cost(self) -> tuple[float, float] | None:
        """The least and the most that it may cost; None where nobody told the price."""
        if self._llm.protocol in ("echo", "scripted"):
            return 0.0, 0.0
        if self._price is None:
            return None
        low = self.sent * self._price.input / 1_000_000
        return low, low + self.got * self._price.output / 1_000_000
