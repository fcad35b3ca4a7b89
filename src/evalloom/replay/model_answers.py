"""Asks a model with the contexts of a replay, and holds its answers against `_expected` (REPLAY-17)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from evalloom.core.model import Case, Context, Output, Record, Request, Run, Scored
from evalloom.data.dialect import Rules
from evalloom.engine.run import Job, Runner, Voices
from evalloom.engine.score import grade_now
from evalloom.llms import LlmOptions, Llms
from evalloom.matchers import Services
from evalloom.replay import dialect
from evalloom.replay.recipe.assemble import Assembled, Part, digest_of, messages_of
from evalloom.replay.recipe.trace import Answered, CheckResult
from evalloom.replay.resolvers import clamp
from evalloom.settings import Settings, key_of, llm_of
from evalloom.settings import profile as find_profile

_RULES = Rules()
_NOBODY = Services()


class Asker:
    """A model under one profile, asked with assembled contexts. It serves one event loop."""

    def __init__(self, profile: str, settings: Settings, options: LlmOptions, hide: Callable[[str], str]) -> None:
        """Raises EvalloomError where the profile is unknown, or its key missing."""
        self._profile = find_profile(settings, profile)
        key_of(llm_of(settings, self._profile.run))
        self._hide = hide
        self._at_once = asyncio.Semaphore(options.concurrency)
        self._llms = Llms(settings, options, redact=hide)
        voice = self._llms.get(self._profile.run)
        self._runner = Runner(_send, {self._profile.name: Voices(voice, voice)})

    async def ask(self, parts: Sequence[Part], rows: Sequence[Any], made: Sequence[Assembled]) -> list[Assembled]:
        """The same rows with what the model said; a row that failed is not sent."""
        return await asyncio.gather(*(self._ask(parts, row, one) for row, one in zip(rows, made, strict=True)))

    async def close(self) -> None:
        await self._llms.close()

    async def _ask(self, parts: Sequence[Part], row: Any, made: Assembled) -> Assembled:
        if made.status == "failed":
            return made
        messages, unread = messages_of(parts, made), list(_unread(row))
        case = Case("", {"messages": messages}, dialect.checks_of(row))
        async with self._at_once:
            run = await self._runner(Job("", case, self._profile, 0, 1))
        # In a thread: a pattern may search for a second, and nobody else would be answered meanwhile.
        scored = await asyncio.to_thread(grade_now, case, run, _NOBODY) if case.checks else None
        return msgspec.structs.replace(made, model=self._answered(messages, run, scored, unread))

    def _answered(self, messages: list[Record], run: Run, scored: Scored | None, unread: list[CheckResult]) -> Answered:
        answer, is_cut = clamp(self._hide(run.output.value or ""))
        verdicts = scored.verdicts if scored else []
        checks = [CheckResult(one.name, one.status, self._hide(one.reason)) for one in verdicts]
        return Answered(
            self._profile.name,
            _status(run, scored, unread),
            messages,
            answer,
            "" if run.error else digest_of(answer),
            is_cut,
            self._hide(run.error),
            round(run.duration_s * 1000, 3),
            _camel(msgspec.to_builtins(run.usage)),
            checks + unread,
        )


async def _send(inputs: Record, context: Context) -> Output:
    response = await context.llm(Request(inputs["messages"], context.profile.params))
    return Output(response.text)


def _camel(fields: Record) -> Record:
    """Fields under the names that they have on the wire."""
    return {re.sub(r"_(\w)", lambda letter: letter[1].upper(), name): value for name, value in fields.items()}


def _unread(row: Record) -> Iterator[CheckResult]:
    """What cannot be read in `_expected`, or is not known there."""
    for remark in dialect.findings(row, _RULES):
        if remark.path[:1] == ("_expected",):
            name, message = str(remark.path[-1]), remark.message.partition(": ")[2]
            yield CheckResult(name, "error" if remark.severity == "error" else "unscored", message)


def _status(run: Run, scored: Scored | None, unread: list[CheckResult]) -> str:
    """What an answer comes to; an expectation that cannot be read, or held against it, is not met."""
    if run.error or any(check.status == "error" for check in unread):
        return "error"
    if scored is None:
        return "unscored"
    return "error" if scored.status == "unscored" else scored.status
