"""One job through the target: whatever happens inside, a run comes out."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from time import perf_counter

import msgspec
from msgspec import Struct

from evalloom.errors import BudgetSpent, CallError, EvalloomError
from evalloom.model import NO_USAGE, Context, Llm, Output, Profile, Record, Request, Response, Run, Target, Usage, quote
from evalloom.run.jobs import Job, run_of


class Voices(Struct, frozen=True):
    """The llms of one profile."""

    run: Llm
    verify: Llm


class Runner:
    """Runs jobs against one target; `voices` holds the llms of each profile."""

    def __init__(self, target: Target, voices: Mapping[str, Voices]) -> None:
        self._target = target
        self._voices = voices

    async def __call__(self, job: Job) -> Run:
        """The run of a job. A failing target is data; only BudgetSpent and our own bugs are raised."""
        if job.fault:
            return run_of(job, outcome="FAIL", error=job.fault)
        trace: list[Record] = []
        run_llm, verify_llm = self._traced(job.profile, trace)
        context = Context(job.case, job.profile, run_llm, verify_llm, trace, job.repeat)
        started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
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
        except (Exception, SystemExit) as fault:  # users' code: a target may be theirs, and may raise anything
            error = _raised(fault, trace)
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

    def _traced(self, profile: Profile, trace: list[Record]) -> tuple[Traced, Traced]:
        voices = self._voices[profile.name]
        return Traced(voices.run, profile.run, trace), Traced(voices.verify, profile.verify, trace)


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
    """An llm whose questions and answers go into the trace of one run."""

    def __init__(self, llm: Llm, name: str, trace: list[Record]) -> None:
        self._llm = llm
        self._name = name
        self._trace = trace
        self.usage: Usage = NO_USAGE

    async def __call__(self, request: Request) -> Response:
        """Asks, and takes down what was asked and answered."""
        start = perf_counter()
        # A target may go on writing to its list of messages; this is what it was when it was sent.
        sent = msgspec.structs.replace(request, messages=request.messages.copy())
        entry: Record = {"type": "llm", "llm": self._name, "request": sent}
        self._trace.append(entry)
        try:
            response = await self._llm(request)
        except CallError as fault:
            entry["error"] = str(fault)
            self.usage += Usage(calls=1)
            raise
        finally:
            entry["duration_s"] = round(perf_counter() - start, 6)
        entry["response"] = response
        self.usage = response.usage if self.usage is NO_USAGE else self.usage + response.usage
        return response
