"""Runs a hoplet once, in a process of its own: a request on stdin, then steps and the result on stdout as JSON lines.

Users' code never runs in the server. The process ends with its stdin, so that it does not outlive the server.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from functools import partial
from pathlib import Path
from time import perf_counter
from traceback import print_exc
from typing import Any

import msgspec
from msgspec import Struct

from evalloom import settings
from evalloom.core.errors import CallError, EvalloomError
from evalloom.core.model import Case, Context, Outcome, Record, Usage
from evalloom.engine.run import Traced
from evalloom.hop.operators.observer import FILE_NAME as OBSERVER
from evalloom.hop.operators.session import FeedbackRound
from evalloom.hop.target import build
from evalloom.hop.task import find_settings
from evalloom.llms import LlmOptions, Llms
from evalloom.settings import keys
from evalloom.targets.base import TargetOptions

CASE_ID = "page"
"""The case of such a run in the observer's log."""


class TurnRequest(Struct, frozen=True):
    """One call of a hoplet."""

    task: str
    profile: str
    inputs: Record
    rounds: list[FeedbackRound] = []


class TurnResult(Struct, frozen=True):
    """What a call gave; `error` if its outcome is FAIL."""

    outcome: Outcome
    value: Any = None
    error: str = ""
    seconds: float = 0.0
    tokens: int = 0
    cost: float = 0.0


class TurnLine(Struct, frozen=True, omit_defaults=True):
    """A line of the answer: a step that has ended, or the result."""

    step: Record | None = None
    result: TurnResult | None = None


class _Trace(list[Record]):
    """The trace of the run; each step is reported as soon as it has ended."""

    def __init__(self, report: Any) -> None:
        super().__init__()
        self._report = report

    def append(self, entry: Record) -> None:
        super().append(entry)
        if entry.get("type") == "step":
            self._report(TurnLine(step=entry))


async def run_turn(request: TurnRequest, report: Any) -> TurnResult:
    """Call the hoplet of a task, and return its outcome."""
    folder = Path(request.task)
    config = find_settings(folder)
    project = settings.load(Path(config) if config else None)
    profile = settings.profile(project, request.profile) if request.profile else settings.first_profile(project)
    secrets = tuple(settings.secrets(project))
    hide = partial(keys.hidden, secrets=secrets)
    spec = {"hoplet": str(folder.resolve()), "observer": str((folder / "TestCases" / OBSERVER).resolve())}
    target = build(spec, Path(), TargetOptions(secrets=secrets, settings=project), request.rounds)
    # Whoever tries again wants another answer, not the one in the cache.
    llms = Llms(project, LlmOptions(use_cache=False), redact=hide)
    trace = _Trace(report)
    start = perf_counter()
    run, verify = (
        Traced(llms.get(name), name, profile.params, 0, trace) for name in (profile.run, profile.verify or profile.run)
    )
    try:
        context = Context(Case(CASE_ID, request.inputs), profile, run, verify, trace)
        output = await target.call(request.inputs, context)
        result = TurnResult(output.outcome, output.value)
    except CallError as error:
        result = TurnResult("FAIL", error=hide(str(error)))
    finally:
        await target.closing()
        await llms.close()
    usage: Usage = run.usage + verify.usage
    tokens = usage.input_tokens + usage.output_tokens
    return msgspec.structs.replace(result, seconds=perf_counter() - start, tokens=tokens, cost=usage.cost or 0.0)


def main() -> None:
    """Answer one request. What the hoplet prints goes to stderr, so that it cannot pass for an answer."""
    request = msgspec.json.decode(sys.stdin.buffer.readline(), type=TurnRequest)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def report(line: TurnLine) -> None:
        answers.write(msgspec.json.encode(line) + b"\n")
        answers.flush()

    def end_with_server() -> None:
        sys.stdin.buffer.read()
        os._exit(3)

    threading.Thread(target=end_with_server, daemon=True).start()
    try:
        result = asyncio.run(run_turn(request, report))
    except EvalloomError as error:
        result = TurnResult("FAIL", error=str(error))
    except BaseException as error:  # users' code: importing Hop.py may raise anything
        print_exc()
        result = TurnResult("FAIL", error=f"{type(error).__name__}: {error}")
    report(TurnLine(result=result))
    # A thread that the hoplet left behind must not hold the page up.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
