"""`--dry-run`: what a plan would run, what is done already, and what the rest may cost."""

from __future__ import annotations

from msgspec import Struct

from evalloom.batchlog import manifest
from evalloom.core.model import Request, Response, Usage
from evalloom.engine.evaluate import refuse_invalid
from evalloom.engine.loop import run_loop
from evalloom.engine.plan import Plan
from evalloom.engine.resume import Resume, batch_to_resume
from evalloom.engine.run import ProfileClients, Runner
from evalloom.llms import OFFLINE, estimate_tokens
from evalloom.settings import LlmSettings, llm_of

_USUAL_ANSWER = 1000
"""Tokens of an answer when `max_tokens` does not bound it."""


class DryRun(Struct, frozen=True, rename={"done_before": "there"}):
    """What a plan would run. Tokens and cost are ranges: the prompts are settings, the answers are not."""

    target: str
    profiles: list[str]
    total: int
    done_before: int
    to_run: int
    batch: str = ""
    tokens_low: int | None = None
    tokens_high: int | None = None
    cost_low: float | None = None
    cost_high: float | None = None
    errors: int = 0
    """How many fail before anything is sent: the prompt has a variable that the case has not."""
    first_error: str = ""
    skipped: int = 0
    """How many their conditions skip."""


def dry_run(plan: Plan, resume: Resume) -> DryRun:
    """Do everything that a run does, except the calls."""
    refuse_invalid(plan)
    return run_loop(_dry_run(plan, resume))


async def _dry_run(plan: Plan, resume: Resume) -> DryRun:
    path, done = batch_to_resume(plan, resume)
    jobs = plan.jobs(done, by_number=path is not None and manifest(path).has_numbered_cases)
    # Rendering a prompt has no side effects; calling another target may have.
    can_estimate = plan.target.kind == "prompt"
    meters = {profile.name: _Meter(plan, profile.run) for profile in plan.profiles if can_estimate}
    runner = Runner(plan.target.call, {name: ProfileClients(meter, meter) for name, meter in meters.items()})
    errors, skipped = [], 0
    for job in jobs:
        skipped += bool(job.skipped)
        if can_estimate and (run := await runner(job)).error:
            errors.append(run.error)
    tokens_low = tokens_high = cost_low = cost_high = None
    if can_estimate:
        tokens_low = sum(meter.sent for meter in meters.values())
        tokens_high = tokens_low + sum(meter.answered for meter in meters.values())
        costs = [cost for meter in meters.values() if (cost := meter.cost()) is not None]
        if len(costs) == len(meters):
            cost_low, cost_high = (round(sum(side), 6) for side in zip((0.0, 0.0), *costs, strict=True))
    return DryRun(
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


class _Meter:
    """An llm that estimates the tokens of each request, and sends nothing."""

    def __init__(self, plan: Plan, name: str) -> None:
        self._llm: LlmSettings = llm_of(plan.settings, name)
        self._price = self._llm.price or plan.settings.prices.get(self._llm.model)
        self.sent = 0
        self.answered = 0

    async def __call__(self, request: Request) -> Response:
        self.sent += sum(estimate_tokens(str(message.get("content") or "")) for message in request.messages)
        most = {**self._llm.params, **request.params}.get("max_tokens")
        self.answered += most if isinstance(most, int) else _USUAL_ANSWER
        return Response("", usage=Usage(calls=1))

    def cost(self) -> tuple[float, float] | None:
        """Return the lowest and the highest cost; None when the price is unknown."""
        if self._price is None:
            return (0.0, 0.0) if self._llm.protocol in OFFLINE else None
        low = self.sent * self._price.input / 1_000_000
        return low, low + self.answered * self._price.output / 1_000_000
