"""Asks a model with the contexts of a replay, and holds its answers against `_expected` (REPLAY-17)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from evalloom import settings
from evalloom.dialects import replay as dialect
from evalloom.llms import LlmOptions, Llms
from evalloom.matchers import Services
from evalloom.model import Case, Context, Origin, Output, Profile, Record, Request, Run, Scored
from evalloom.resolvers import clamp
from evalloom.run import Job, Runner, Voices
from evalloom.score import score
from evalloom.settings import Settings
from evalloom.targets.recipe import Assembled, Part, digest_of, messages_of
from evalloom.targets.recipe_trace import Answered, CheckResult


class Asker:
    """A model under one profile, asked with assembled contexts. It serves one event loop."""

    def __init__(self, profile: str, known: Settings, options: LlmOptions, hide: Callable[[str], str]) -> None:
        """Raises EvalloomError where the profile is unknown, or its key missing."""
        self._profile = settings.profile(known, profile)
        settings.key_of(settings.llm_of(known, self._profile.run))
        self._hide = hide
        self._at_once = asyncio.Semaphore(options.concurrency)
        self._llms = Llms(known, options, redact=hide)
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
        messages = messages_of(parts, made)
        case = msgspec.structs.replace(dialect.to_case(row, Origin("")), inputs={"messages": messages})
        async with self._at_once:
            run = await self._runner(Job("", case, self._profile, 0, 1))
        scored = await score(case, run, Services())
        return msgspec.structs.replace(made, model=_answered(self._profile, messages, run, scored, case, self._hide))


async def _send(inputs: Record, context: Context) -> Output:
    response = await context.llm(Request(inputs["messages"], context.profile.params))
    return Output(response.text)


def _answered(
    profile: Profile, messages: list[Record], run: Run, scored: Scored, case: Case, hide: Callable[[str], str]
) -> Answered:
    answer, is_cut = clamp(hide(run.output.value or ""))
    return Answered(
        profile.name,
        messages,
        answer,
        "" if run.error else digest_of(answer),
        is_cut,
        hide(run.error),
        round(run.duration_s * 1000, 3),
        msgspec.to_builtins(run.usage),
        scored.status if case.checks or run.error else "unscored",
        [CheckResult(verdict.name, verdict.status, hide(verdict.reason)) for verdict in scored.verdicts],
    )
