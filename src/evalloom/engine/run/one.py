"""One job through the target: whatever happens inside, a run comes out."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Mapping
from time import perf_counter

from msgspec import Struct

from evalloom.core.clock import utc_now
from evalloom.core.errors import BudgetSpent, CallError, EvalloomError
from evalloom.core.model import NO_USAGE, Context, Llm, Output, Record, Request, Response, Run, Target, Usage
from evalloom.core.text import quote
from evalloom.engine.run.jobs import Job, run_of


class ProfileClients(Struct, frozen=True):
    """The llm that answers and the one that verifies, under one profile."""

    run: Llm
    verify: Llm


class Runner:
    """Runs jobs against one target; `clients` has the llms of each profile."""

    def __init__(self, target: Target, clients: Mapping[str, ProfileClients]) -> None:
        self._target = target
        self._clients = clients

    async def __call__(self, job: Job) -> Run:
        """The run of a job. A failing target is data; only BudgetSpent and our own bugs are raised."""
        if job.error:
            return run_of(job, outcome="FAIL", error=job.error)
        if job.skipped or job.blocked:
            return run_of(job, skipped=job.skipped, blocked=job.blocked)
        trace: list[Record] = []
        run_llm, verify_llm = self._traced(job, trace)

        def context_with(trace: list[Record]) -> Context:
            asked = run_llm.apart(trace), verify_llm.apart(trace)
            return Context(job.case, job.profile, *asked, trace, job.repeat, context_with)

        context = Context(job.case, job.profile, run_llm, verify_llm, trace, job.repeat, context_with)
        started_at = utc_now("milliseconds")
        start = perf_counter()
        output, error = Output(outcome="FAIL"), ""
        try:
            output = _checked(await self._target(job.case.inputs, context))
        except CallError as fault:
            error = str(fault)
        except (EvalloomError, BudgetSpent):
            raise
        except asyncio.CancelledError as fault:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody gave this run up: the target let something through that was cancelled inside it.
            error = _raised(fault, trace)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as fault:  # users' code: a target may be theirs, and may raise anything
            error = _raised(fault, trace)
        # Also where the target did not let it through: what it made without an answer is no result.
        for spent in filter(None, (run_llm.spent, verify_llm.spent)):
            raise spent
        return run_of(
            job,
            outcome=output.outcome,
            output=output,
            error=error,
            started_at=started_at,
            duration_s=round(perf_counter() - start, 6),
            usage=run_llm.usage + verify_llm.usage if verify_llm.usage is not NO_USAGE else run_llm.usage,
            trace=trace,
        )

    def _traced(self, job: Job, trace: list[Record]) -> tuple[Traced, Traced]:
        profile, clients = job.profile, self._clients[job.profile.name]
        return (
            Traced(clients.run, profile.run, profile.params, job.repeat, trace),
            Traced(clients.verify, profile.verify, profile.params, job.repeat, trace),
        )


def _checked(output: object) -> Output:
    if not isinstance(output, Output):
        raise CallError("bad_output", f"expected an Output from the target, got {quote(output)}")
    return output


def _raised(fault: BaseException, trace: list[Record]) -> str:
    """What a run says about an exception of a target; the traceback goes into the trace."""
    trace.append({"type": "traceback", "text": traceback.format_exc()})
    try:
        return f"{type(fault).__name__}: {fault} [target_raised]"
    except Exception:  # users' code: their exception may fail to say what it is
        return f"{type(fault).__name__} [target_raised]"


class Traced:
    """An llm as one run asks it: by the parameters of the profile, and with a trace of questions and answers."""

    def __init__(self, llm: Llm, name: str, params: Record, repeat: int, trace: list[Record]) -> None:
        self._llm = llm
        self._name = name
        self._params = params
        self._repeat = repeat
        self._trace = trace
        self.usage: Usage = NO_USAGE
        self.spent: BudgetSpent | None = None
        """What a call met when the budget was used up."""

    def __call__(self, request: Request) -> Awaitable[Response]:
        """Asks, and takes down what was asked and answered."""
        return self._ask(request, self._trace)

    def apart(self, trace: list[Record]) -> Llm:
        """The same, taken down elsewhere; what it takes still counts here."""
        return lambda request: self._ask(request, trace)

    async def _ask(self, request: Request, trace: list[Record]) -> Response:
        start = perf_counter()
        params = {**request.params, **self._params} if self._params else request.params
        # A target may go on writing to its list of messages; this is what it was when it was sent.
        sent = Request(request.messages.copy(), params, request.answer, request.tools, self._repeat, request.pinned)
        entry: Record = {"type": "llm", "llm": self._name, "request": sent}
        trace.append(entry)
        try:
            response = await self._llm(sent)
        except CallError as fault:
            entry["error"] = str(fault)
            self.usage += Usage(calls=1)
            raise
        except BudgetSpent as fault:
            self.spent = fault
            raise
        finally:
            entry["duration_s"] = round(perf_counter() - start, 6)
        entry["response"] = response
        self.usage = response.usage if self.usage is NO_USAGE else self.usage + response.usage
        return response
