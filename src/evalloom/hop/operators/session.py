"""The session that a hoplet gets: operators that ask, verify and try again, and that never raise (HOP-9, HOP-11)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from time import perf_counter
from typing import Any

from msgspec import Struct

from evalloom.core.errors import CallError
from evalloom.core.model import Llm, Outcome, Record, Request, Response
from evalloom.hop.operators import prompts
from evalloom.hop.operators.formats import format_of
from evalloom.hop.operators.parse import JUDGEMENT, Format, Misfit, spoken
from evalloom.hop.operators.to_json import fault_in_words, quoted, text_of
from evalloom.hop.operators.tools import Tool, choice_format, tools_of
from evalloom.hop.operators.tracer import Tracer
from evalloom.hop.operators.verifiers import (
    CROSS_TEMPERATURE,
    Attempt,
    Verified,
    Verifier,
    reverse_verify,
    tool_use_verifier,
    verified_by,
)
from evalloom.llms.delimiters import mostly_chinese

ATTEMPTS = 3
_LONGEST_ANSWER = 1000
_NO_REASON = "no reason was given"
_OVER: tuple[Outcome, str] = ("FAIL", "the run is over, so nothing more is asked")


class _RunOver(Exception):
    """Nothing more is asked, since nobody waits for it."""


class _Question(Struct, frozen=True):
    """What an operator asks, ready to be sent; `outcome` is that of an answer which nothing speaks against."""

    task: str
    context: str
    messages: list[Record]
    format: Format
    is_chinese: bool
    outcome: Callable[[Any], Outcome]
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
    - `"LACK_OF_INFO"`, `"UNCERTAIN"`: the value is of the right form, but it, or the verifier of it, says no more;
    - `"FAIL"`: there is no value; in its place stands the reason, as text.

    An answer that does not pass is asked for again with the verifier's reason, three times in all. A call that fails
    was already tried again by the llm's client, and ends the operator. `tracer` takes down one step per operator.
    """

    def __init__(self, run: Llm, verify: Llm | None = None, tracer: Tracer | None = None) -> None:
        self.tracer = tracer if tracer is not None else Tracer()
        self._run = run
        self._verify = verify if verify is not None else run
        self._loop = _running_loop()
        self._is_over = False
        self._sent_home: set[Future[tuple[Outcome, Any]]] = set()

    def close(self) -> None:
        """Says that the run is over: whatever is asked from now on fails, and nothing is sent for it.

        A sync hoplet that was given up goes on in its thread. What it has asked is cancelled, and its tracer takes down
        nothing more.
        """
        self._is_over = True
        self.tracer.close()
        for sent in tuple(self._sent_home):
            sent.cancel()

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
            return _question(prompts.DO, task, context, format_of(return_format), _always_ok)

        return await self._operate("hop_get", task, ask, verifier)

    async def hop_judge(
        self, task: str = "", context: Any = "", verifier: Verifier | None = reverse_verify
    ) -> tuple[Outcome, Any]:
        """Asks whether something is so: `("OK", True)`, `("OK", False)`, or `("UNCERTAIN", "Uncertain")`.

        `task`, `context` and `verifier` are as in `hop_get`.
        """

        def ask() -> _Question:
            return _question(prompts.JUDGE, task, context, JUDGEMENT, _judged)

        return await self._operate("hop_judge", task, ask, verifier)

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
            known = tools_of(tools)
            return _question(prompts.CHOOSE, task, context, choice_format(known), _chosen, known)

        return await self._operate("hop_tool_use", task, ask, verifier)

    async def _operate(
        self, op: str, task: Any, ask: Callable[[], _Question], verifier: Verifier | None
    ) -> tuple[Outcome, Any]:
        """One operator, in the loop that the session was made in, also when a sync hoplet's thread has one of its own.

        The llms live there: connections, limits and locks belong to one loop.
        """
        if self._is_over:
            return _OVER
        work = self._traced(op, task, ask, verifier)
        home = self._loop
        if home is None or home is asyncio.get_running_loop() or not home.is_running():
            return await work
        return await self._from_afar(asyncio.run_coroutine_threadsafe(work, home))

    async def _from_afar(self, sent: Future[tuple[Outcome, Any]]) -> tuple[Outcome, Any]:
        self._sent_home.add(sent)
        sent.add_done_callback(self._sent_home.discard)
        if self._is_over:
            # The session may have been closed before it knew of this.
            sent.cancel()
        try:
            return await asyncio.wrap_future(sent)
        except asyncio.CancelledError:
            here = asyncio.current_task()
            if not self._is_over or (here and here.cancelling()):
                raise
            return _OVER

    async def _traced(
        self, op: str, task: Any, ask: Callable[[], _Question], verifier: Verifier | None
    ) -> tuple[Outcome, Any]:
        """The attempts of one operator, and the step that tells of them."""
        start = perf_counter()
        tries: list[Record] = []
        status: Outcome
        try:
            status, value = await self._attempts(ask(), verifier, tries)
        except CallError as fault:
            status, value = _gone_wrong(str(fault), tries)
        except Exception as fault:  # users' code: what a hoplet passes in is theirs, down to the llm and the types
            status, value = _gone_wrong(fault_in_words(fault), tries)
        if self._is_over:
            return _OVER
        failed = [one for one in tries if one["status"] != "OK"]
        self.tracer.trace_step(
            op, task, status, perf_counter() - start, len(tries) - 1, {"attempts": failed} if failed else None
        )
        return status, value

    async def _attempts(
        self, question: _Question, verifier: Verifier | None, tries: list[Record]
    ) -> tuple[Outcome, Any]:
        if verifier is not None and not callable(verifier):
            raise TypeError(f"verifier: expected a function such as reverse_verify, or None, got {quoted(verifier)}")
        messages = question.messages
        while True:
            response = await self._ask(self._run, question.request(messages))
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
                return question.outcome(value), value
            if len(tries) == ATTEMPTS:
                return said.outcome, (said.reason or _NO_REASON) if said.outcome == "FAIL" else value
            messages = messages + prompts.feedback(text, said.reason or _NO_REASON, told, question.is_chinese)

    async def _verified(self, question: _Question, text: str, value: Any, verifier: Verifier | None) -> Verified:
        if verifier is None:
            return Verified("OK")
        verify = partial(self._ask, self._verify)

        async def ask_again() -> Any:
            return question.read(await verify(question.request(question.messages, temperature=CROSS_TEMPERATURE)))

        attempt = Attempt(
            task=question.task,
            context=question.context,
            value=value,
            text=text,
            format=question.format,
            verify=verify,
            ask_again=ask_again,
            tools=question.tools,
            is_chinese=question.is_chinese,
        )
        return await verified_by(verifier, attempt)

    async def _ask(self, llm: Llm, request: Request) -> Response:
        """The one way to an llm."""
        if self._is_over:
            raise _RunOver
        return await llm(request)


def _gone_wrong(reason: str, tries: list[Record]) -> tuple[Outcome, str]:
    """An attempt that no answer came of, and that is not repeated."""
    tries.append({"status": "FAIL", "reason": reason})
    return "FAIL", reason


def _question(
    role: prompts.Sentence,
    task: Any,
    context: Any,
    form: Format,
    outcome: Callable[[Any], Outcome],
    tools: tuple[Tool, ...] = (),
) -> _Question:
    if not isinstance(task, str) or not task.strip():
        raise ValueError(f"task: expected a text that is not empty, got {quoted(task)}")
    is_chinese = mostly_chinese(task)
    shown = "" if context is None else text_of(context)
    messages = prompts.question(role, task, shown, form, is_chinese, tools)
    return _Question(task, shown, messages, form, is_chinese, outcome, tools)


def _always_ok(value: Any) -> Outcome:
    return "OK"


def _judged(value: Any) -> Outcome:
    return "UNCERTAIN" if value == "Uncertain" else "OK"


def _chosen(value: Any) -> Outcome:
    return "LACK_OF_INFO" if value["tool"] is None else "OK"


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
