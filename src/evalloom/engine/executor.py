"""Where the jobs of a batch run and are scored: in this process, or on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from evalloom.core.errors import CallError
from evalloom.core.model import Check, Request, Response, Run
from evalloom.engine.plan import Plan
from evalloom.engine.run import Job, ProfileClients, Runner
from evalloom.engine.scoring import Grader, LocalGrader, services
from evalloom.llms import LlmOptions, Llms
from evalloom.llms.budget import Budget
from evalloom.llms.clients import WHOLE, Share
from evalloom.settings import keys
from evalloom.settings import secrets as secrets_of

Checks = tuple[tuple[Path, tuple[Check, ...]], ...]
"""Checks, with the folder of the file that names them."""


class Executor(Grader, Protocol):
    """Runs jobs and scores their runs. The batch log, the queue of jobs and the figures are not its business."""

    concurrency: int
    """The number of jobs that it takes at once."""

    async def open(self) -> None:
        """Get ready. What is missing, such as a key, is reported here, before the batch is created."""
        ...

    def run(self, job: Job) -> Awaitable[Run]:
        """Return the run of a job; raise BatchStop where the batch has to end."""
        ...

    def in_outage(self) -> list[str]:
        """Return the names of the llms that do not answer now."""
        ...

    async def close(self) -> Iterable[str]:
        """Free everything; return notes of the target for the user."""
        ...


def executor_of(plan: Plan, warn: Callable[[str], None]) -> Executor:
    """Return what the options of a plan name."""
    if plan.options.executor == "dask":
        from evalloom.engine.cluster.executor import DaskExecutor  # deferred: importing Dask takes half a second

        return DaskExecutor(plan, warn)
    return LocalExecutor(plan, warn)


def scoring_executor(plan: Plan, checks: Checks, warn: Callable[[str], None]) -> Executor:
    """Return an executor for a plan without a target, which only scores; `checks` have the folders of their files."""
    # The budget is that of the runs.
    options = msgspec.structs.replace(plan.options, max_cost=None, max_tokens=None)
    plan = msgspec.structs.replace(plan, options=options)
    if options.executor == "dask":
        from evalloom.engine.cluster.executor import DaskExecutor  # deferred, as above

        return DaskExecutor(plan, warn, checks)
    return LocalExecutor(plan, warn)


class LocalExecutor:
    """Runs and scores in this process, on its event loop."""

    def __init__(
        self, plan: Plan, warn: Callable[[str], None], budget: Budget | None = None, share: Share = WHOLE
    ) -> None:
        """`budget` and `share` are for one of several processes that run a batch together."""
        options = plan.options
        self.concurrency = share.of(options.concurrency)
        self._plan = plan
        llm_options = LlmOptions(
            options.concurrency,
            options.cache,
            plan.record,
            plan.replay,
            options.max_cost,
            options.max_tokens,
            plan.home,
            ends_on_outage=True,
        )
        secrets = [*secrets_of(plan.settings), *plan.target.secrets]
        self.llms = Llms(plan.settings, llm_options, warn, partial(keys.hidden, secrets=secrets), budget, share)

    async def open(self) -> None:
        plan, llms = self._plan, self.llms
        clients = {name: llms.get(name) for name in plan.llm_names()} | {"": _no_client}
        self.run = Runner(
            plan.target.call,
            {
                profile.name: ProfileClients(clients[profile.run], clients[profile.verify or profile.run])
                for profile in plan.profiles
            },
        )
        grader = LocalGrader(
            services(plan.settings, llms, plan.judge, plan.options.allow_code, plan.functions, plan.catalog.matchers)
        )
        self.score_now, self.score = grader.score_now, grader.score

    def in_outage(self) -> list[str]:
        return self.llms.in_outage()

    async def close(self) -> Iterable[str]:
        await self.llms.close()
        return ()


async def _no_client(request: Request) -> Response:
    raise CallError("no_llm", "the target calls an llm, but the profile names none. Name one in the settings")
