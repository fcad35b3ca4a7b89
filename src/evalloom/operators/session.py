"""The session that a hoplet gets: operators that ask, verify and try again, and that never raise (HOP-9, HOP-11)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from time import perf_counter
from typing import Any

from msgspec import Struct

from evalloom.asking import mostly_chinese
from evalloom.errors import CallError
from evalloom.model import Llm, Outcome, Record, Request, Response, quote
from evalloom.operators import prompts
from evalloom.operators.formats import format_of
from evalloom.operators.reading import JUDGEMENT, Format, Misfit, spoken
from evalloom.operators.tools import CHOICE, Tool, tools_of
from evalloom.operators.tracer import Tracer
from evalloom.operators.verifiers import (
    CROSS_TEMPERATURE,
    Attempt,
    Verified,
    Verifier,
    reverse_verify,
    tool_use_verifier,
    verified_by,
)

ATTEMPTS = 3
_LONGEST_ANSWER = 1000
_NO_REASON = "no reason was given"
_OK = Verified("OK")


class _Question(Struct, frozen=True):
    """What an operator asks, ready to be sent; `settle` says what needs no verifier."""

    task: str
    context: str
    messages: list[Record]
    format: Format
    is_chinese: bool
    settle: Callable[[Any], Verified]
    tools: tuple[Tool, ...] = ()

    def request(self, messages: list[Record], **pinned: Any) -> Request:
        return Request(messages, answer="json" if self.format.is_object else "", pinned=pinned)

    def read(self, response: Response) -> Any:
        """The value of an answer. Raises Misfit."""
        try:
            return self.format.read(spoken(response.text))
        except Misfit as fault:
            if response.stop == "length":
                raise Misfit(f"{fault} (the answer was cut off at max_tokens)") from None
            raise


class HopSession:
    """What a hoplet asks llms through: `run` answers, `verify` checks (the same llm when there is no other).

    Each operator is async, returns `(status, value)` and never raises. The status is one of

    - `"OK"`: the value is of the right form and was verified;
    - `"LACK_OF_INFO"`, `"UNCERTAIN"`: the value is of the right form, but this is all the verifier would say of it;
    - `"FAIL"`: there is no value; in its place stands the reason, as text.

    An answer that does not pass is asked for again with the verifier's reason, three times in all. A call that fails
    was already tried again by the llm's client, and ends the operator. `tracer` takes down one step per operator.
    """

    def __init__(self, run: Llm, verify: Llm | None = None, tracer: Tracer | None = None) -> None:
        self.tracer = tracer if tracer is not None else Tracer()
        self._run = run
        self._verify = verify if verify is not None else run
        self._loop = _running_loop()

    async def hop_get(
        self,
        task: str = "",
        context: Any = "",
        return_format: Any = str,
        verifier: Verifier | None = reverse_verify,
    ) -> tuple[Outcome, Any]:
        """Asks for a value: `status, score = await session.hop_get("Rate the tone", text, int)`.

        `task` is the instruction. `context` is material for it, a text or anything that JSON can say; what stands in
        it is never taken for an instruction. `return_format` is what the value comes back as:

        - a type: `str`, `int`, `list[str]`, `Literal["a", "b"]`, a TypedDict, a dataclass, an Enum, `int | None`, …;
        - fields by name: `{"score": "int", "reason": "string", "sources": ["string"], "note": "string?"}`;
        - a JSON Schema, or a pydantic model;
        - a description in words: "three city names".

        `verifier` is `reverse_verify`, `forward_cross_verify`, a function of your own that takes the `Attempt` and
        gives True, False or `(status, reason)`, or None: then only the format is checked.
        """

        def ask() -> _Question:
            return _question(prompts.DO, task, context, format_of(return_format), _settle_nothing)

        return await self._at_home(self._operate("hop_get", task, ask, verifier))

    async def hop_judge(
        self, task: str = "", context: Any = "", verifier: Verifier | None = reverse_verify
    ) -> tuple[Outcome, Any]:
        """Asks whether something is so: `("OK", True)`, `("OK", False)`, or `("UNCERTAIN", "Uncertain")`.

        `task`, `context` and `verifier` are as in `hop_get`.
        """

        def ask() -> _Question:
            return _question(prompts.JUDGE, task, context, JUDGEMENT, _settle_judgement)

        return await self._at_home(self._operate("hop_judge", task, ask, verifier))

    async def hop_tool_use(
        self,
        task: str = "",
        context: Any = "",
        tools: Sequence[Any] = (),
        verifier: Verifier | None = tool_use_verifier,
    ) -> tuple[Outcome, Any]:
        """Chooses a tool, and does not call it: `("OK", {"tool": "search", "parameters": {"query": "…"}})`.

        `tools` are Python functions, tools as OpenAI writes them, or `{"name", "description", "parameters"}` with a
        JSON Schema or `{name: type}`. When no tool serves the task, the status is LACK_OF_INFO and the tool is None.
        `task`, `context` and `verifier` are as in `hop_get`.
        """

        def ask() -> _Question:
            return _question(prompts.CHOOSE, task, context, CHOICE, _settle_choice, tools_of(tools))

        return await self._at_home(self._operate("hop_tool_use", task, ask, verifier))

    async def _at_home(self, work: Coroutine[Any, Any, tuple[Outcome, Any]]) -> tuple[Outcome, Any]:
        """Runs in the loop that the session was made in, also for a sync hoplet whose thread has a loop of its own.

        The llms live there: connections, limits and locks belong to one loop.
        """
        home = self._loop
        if home is None or home is asyncio.get_running_loop() or not home.is_running():
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, home))

    async def _operate(
        self, op: str, task: str, ask: Callable[[], _Question], verifier: Verifier | None
    ) -> tuple[Outcome, Any]:
        """One operator: its attempts, and the step that tells of them."""
        start = perf_counter()
        tries: list[Record] = []
        status: Outcome
        try:
            status, value = await self._attempts(ask(), verifier, tries)
        except CallError as fault:
            status, value = _gone_wrong(str(fault), tries)
        except Exception as fault:  # users' code: what a hoplet passes in is theirs, down to the llm and the types
            status, value = _gone_wrong(f"{type(fault).__name__}: {fault}", tries)
        failed = [one for one in tries if one["status"] != "OK"]
        self.tracer.trace_step(
            op, task, status, perf_counter() - start, len(tries) - 1, {"attempts": failed} if failed else None
        )
        return status, value

    async def _attempts(
        self, question: _Question, verifier: Verifier | None, tries: list[Record]
    ) -> tuple[Outcome, Any]:
        messages = question.messages
        while True:
            response = await self._run(question.request(messages))
            text = spoken(response.text)
            try:
                value = question.read(response)
            except Misfit as fault:
                value, said, told = None, Verified("FAIL", str(fault)), ""
            else:
                said = await self._verified(question, text, value, verifier)
                told = said.outcome
            tries.append({"answer": text[:_LONGEST_ANSWER], "status": said.outcome, "reason": said.reason})
            if said.outcome == "OK":
                return "OK", value
            if len(tries) == ATTEMPTS:
                return said.outcome, (said.reason or _NO_REASON) if said.outcome == "FAIL" else value
            messages = messages + prompts.feedback(text, said.reason or _NO_REASON, told, question.is_chinese)

    async def _verified(self, question: _Question, text: str, value: Any, verifier: Verifier | None) -> Verified:
        settled = question.settle(value)
        if settled.outcome != "OK" or verifier is None:
            return settled

        async def ask_again() -> Any:
            request = question.request(question.messages, temperature=CROSS_TEMPERATURE)
            return question.read(await self._verify(request))

        attempt = Attempt(
            task=question.task,
            context=question.context,
            value=value,
            text=text,
            format=question.format,
            verify=self._verify,
            ask_again=ask_again,
            tools=question.tools,
            is_chinese=question.is_chinese,
        )
        return await verified_by(verifier, attempt)


def _gone_wrong(reason: str, tries: list[Record]) -> tuple[Outcome, str]:
    """An attempt that no answer came of, and that is not repeated."""
    tries.append({"status": "FAIL", "reason": reason})
    return "FAIL", reason


def _question(
    role: prompts.Sentence,
    task: Any,
    context: Any,
    form: Format,
    settle: Callable[[Any], Verified],
    tools: tuple[Tool, ...] = (),
) -> _Question:
    if not isinstance(task, str) or not task.strip():
        raise ValueError(f"task: expected a text that is not empty, got {quote(task)}")
    is_chinese = mostly_chinese(task)
    shown = "" if context is None else prompts.text_of(context)
    messages = prompts.question(role, task, shown, form, is_chinese, tools)
    return _Question(task, shown, messages, form, is_chinese, settle, tools)


def _settle_nothing(value: Any) -> Verified:
    return _OK


def _settle_judgement(value: Any) -> Verified:
    return Verified("UNCERTAIN", "the answer is Uncertain") if value == "Uncertain" else _OK


def _settle_choice(value: Any) -> Verified:
    return Verified("LACK_OF_INFO", "no tool was chosen") if value["tool"] is None else _OK


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
