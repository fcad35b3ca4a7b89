"""Runs one job against the target; any failure of the target becomes part of the run."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Mapping
from functools import partial
from time import perf_counter

from msgspec import Struct

from evalloom.core.clock import utc_now
from evalloom.core.errors import BatchStop, CallError, EvalloomError
from evalloom.core.model import NO_USAGE, Context, Llm, Output, Record, Request, Response, Run, Target, Usage
from evalloom.core.text import quote
from evalloom.engine.run.jobs import Job, run_of


class ProfileClients(Struct, frozen=True):
    """The llm that answers and the llm that verifies, for one profile."""

    run: Llm
    verify: Llm


_NO_OUTPUT = Output(outcome="FAIL")


class Runner:
    """Runs jobs against one target; `clients` has the llms of each profile."""

    def __init__(self, target: Target, clients: Mapping[str, ProfileClients]) -> None:
        self._target = target
        self._clients = clients

    async def __call__(self, job: Job) -> Run:
        """Return the run of a job. A failing target is data; only BatchStop and bugs of evalloom are raised."""
        if job.error:
            return run_of(job, outcome="FAIL", error=job.error)
        if job.skipped or job.blocked:
            return run_of(job)
        trace: list[Record] = []
        profile, clients = job.profile, self._clients[job.profile.name]
        run_llm = Traced(clients.run, profile.run, profile.params, job.repeat, trace)
        verify_llm = Traced(clients.verify, profile.verify, profile.params, job.repeat, trace)
        # Not a function inside this one, which would refer to itself: only the garbage collector would free the run.
        apart = partial(_context_apart, job, run_llm, verify_llm)
        context = Context(job.case, profile, run_llm, verify_llm, trace, job.repeat, apart)
        started_at = utc_now("milliseconds")
        start = perf_counter()
        output, error = _NO_OUTPUT, ""
        try:
            answer: object = await self._target(job.case.inputs, context)
            if not isinstance(answer, Output):
                raise CallError("bad_output", f"expected an Output from the target, got {quote(answer)}")
            output = answer
        except CallError as failure:
            error = str(failure)
        except (EvalloomError, BatchStop):
            raise
        except asyncio.CancelledError as failure:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The run itself was not cancelled: the target raised the error of something that it cancelled.
            error = _raised(failure, trace)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as failure:  # users' code: a target may be theirs, and may raise anything
            error = _raised(failure, trace)
        # Also if the target caught it: an output without the answer of the llm is not a result.
        for stop in filter(None, (run_llm.stop, verify_llm.stop)):
            raise stop
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


def _context_apart(job: Job, run_llm: Traced, verify_llm: Traced, trace: list[Record]) -> Context:
    """Return the context of a job with another list for the trace."""
    llms = run_llm.with_trace(trace), verify_llm.with_trace(trace)
    apart = partial(_context_apart, job, run_llm, verify_llm)
    return Context(job.case, job.profile, *llms, trace, job.repeat, apart)


def _raised(failure: BaseException, trace: list[Record]) -> str:
    """Return the error of a run whose target raised an exception; add the traceback to the trace."""
    trace.append({"type": "traceback", "text": traceback.format_exc()})
    try:
        return f"{type(failure).__name__}: {failure} [target_raised]"
    except Exception:  # users' code: formatting their exception may fail
        return f"{type(failure).__name__} [target_raised]"


class Traced:
    """An llm for one run: applies the parameters of the profile, and traces requests and answers."""

    __slots__ = ("_llm", "_name", "_params", "_repeat", "_trace", "stop", "usage")

    def __init__(self, llm: Llm, name: str, params: Record, repeat: int, trace: list[Record]) -> None:
        self._llm = llm
        self._name = name
        self._params = params
        self._repeat = repeat
        self._trace = trace
        self.usage: Usage = NO_USAGE
        self.stop: BatchStop | None = None
        """Why a call ends the batch: the budget is spent, or the llm does not answer."""

    def __call__(self, request: Request) -> Awaitable[Response]:
        """Send a request, and trace it."""
        return self._send(request, self._trace)

    def with_trace(self, trace: list[Record]) -> Llm:
        """Return the same llm with another trace; its usage still counts here."""
        return lambda request: self._send(request, trace)

    async def _send(self, request: Request, trace: list[Record]) -> Response:
        start = perf_counter()
        params = {**request.params, **self._params} if self._params else request.params
        # Copied, because a target may extend its list of messages after the request.
        sent = Request(request.messages.copy(), params, request.answer, request.tools, self._repeat, request.pinned)
        entry: Record = {"type": "llm", "llm": self._name, "request": sent}
        trace.append(entry)
        try:
            response = await self._llm(sent)
        except CallError as failure:
            entry["error"] = str(failure)
            self.usage += Usage(calls=1)
            raise
        except BatchStop as failure:
            self.stop = failure
            raise
        finally:
            entry["duration_s"] = round(perf_counter() - start, 6)
        entry["response"] = response
        self.usage = response.usage if self.usage is NO_USAGE else self.usage + response.usage
        return response
