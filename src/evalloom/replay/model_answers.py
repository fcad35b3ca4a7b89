"""Sends the contexts of a replay to a model and checks the answers against `_expected` (REPLAY-17)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from evalloom.core.digest import sha256_base64
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Case, Context, Output, Record, Request, Run, Scored
from evalloom.data.dialect import Rules
from evalloom.engine.run import Job, ProfileClients, Runner
from evalloom.engine.score import grade_now
from evalloom.llms import LlmOptions, Llms
from evalloom.matchers import Services
from evalloom.replay import dialect
from evalloom.replay.recipe.assemble import AssembledRow, RecipeNode, messages_of
from evalloom.replay.recipe.trace import Answered, CheckResult
from evalloom.replay.resolvers import clamp
from evalloom.settings import Settings, key_of, llm_of
from evalloom.settings import profile as find_profile

_RULES = Rules()
_NO_SERVICES = Services()
_AFTER_UNDERSCORE = lazy_pattern(r"_(\w)")


class ModelRunner:
    """Sends assembled contexts to the model of one profile, from one event loop."""

    def __init__(self, profile: str, settings: Settings, options: LlmOptions, redact: Callable[[str], str]) -> None:
        """Raise EvalloomError if the profile is unknown or its key is missing."""
        self._profile = find_profile(settings, profile)
        key_of(llm_of(settings, self._profile.run))
        self._redact = redact
        self._semaphore = asyncio.Semaphore(options.concurrency)
        self._llms = Llms(settings, options, redact=redact)
        client = self._llms.get(self._profile.run)
        self._runner = Runner(_send, {self._profile.name: ProfileClients(client, client)})

    async def answer_rows(
        self, nodes: Sequence[RecipeNode], rows: Sequence[Any], assembled: Sequence[AssembledRow]
    ) -> list[AssembledRow]:
        """Add the answers of the model to assembled rows; failed rows are not sent."""
        return await asyncio.gather(
            *(self._answer_row(nodes, row, context) for row, context in zip(rows, assembled, strict=True))
        )

    async def close(self) -> None:
        await self._llms.close()

    async def _answer_row(self, nodes: Sequence[RecipeNode], row: Any, assembled: AssembledRow) -> AssembledRow:
        if assembled.status == "failed":
            return assembled
        messages, unreadable = messages_of(nodes, assembled), list(_unreadable_checks(row))
        case = Case("", {"messages": messages}, dialect.checks_of(row))
        async with self._semaphore:
            run = await self._runner(Job("", case, self._profile, 0, 1))
        # In a thread: a regular expression may run for a second and would block the event loop.
        scored = await asyncio.to_thread(grade_now, case, run, _NO_SERVICES) if case.checks else None
        return msgspec.structs.replace(assembled, model=self._to_answered(messages, run, scored, unreadable))

    def _to_answered(
        self, messages: list[Record], run: Run, scored: Scored | None, unreadable: list[CheckResult]
    ) -> Answered:
        answer, is_cut = clamp(self._redact(run.output.value or ""))
        verdicts = scored.verdicts if scored else []
        usage: Record = msgspec.to_builtins(run.usage)
        checks = [CheckResult(verdict.name, verdict.status, self._redact(verdict.reason)) for verdict in verdicts]
        return Answered(
            self._profile.name,
            _status(run, scored, unreadable),
            messages,
            answer,
            "" if run.error else sha256_base64(answer),
            is_cut,
            self._redact(run.error),
            round(run.duration_s * 1000, 3),
            # In camelCase, as in the HTTP API.
            {_AFTER_UNDERSCORE.sub(lambda match: match[1].upper(), name): value for name, value in usage.items()},
            checks + unreadable,
        )


async def _send(inputs: Record, context: Context) -> Output:
    response = await context.llm(Request(inputs["messages"], context.profile.params))
    return Output(response.text)


def _unreadable_checks(row: Record) -> Iterator[CheckResult]:
    """Yield a result for each key of `_expected` that is invalid or unknown."""
    for remark in dialect.findings(row, _RULES):
        if remark.path[:1] == ("_expected",):
            name, message = str(remark.path[-1]), remark.message.partition(": ")[2]
            yield CheckResult(name, "error" if remark.severity == "error" else "unscored", message)


def _status(run: Run, scored: Scored | None, unreadable: list[CheckResult]) -> str:
    """Return the status of an answer; an expectation that is invalid or cannot be checked is an error."""
    if run.error or any(check.status == "error" for check in unreadable):
        return "error"
    if scored is None:
        return "unscored"
    return "error" if scored.status == "unscored" else scored.status
