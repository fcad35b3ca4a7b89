"""The session of a hoplet: operators that call an llm, verify and retry, and never raise (HOP-9, HOP-11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from msgspec import Struct

from evalloom.core.bridge import Bridge
from evalloom.core.errors import CallError
from evalloom.core.model import Llm, Outcome, Record, Request, Response
from evalloom.hop.operators import prompts
from evalloom.hop.operators.formats import format_of
from evalloom.hop.operators.observer import Tracer
from evalloom.hop.operators.parse import JUDGEMENT, Format
from evalloom.hop.operators.to_json import describe_error, quoted, text_of
from evalloom.hop.operators.tools import Tool, choice_format, tools_of
from evalloom.hop.operators.verifiers import (
    CROSS_TEMPERATURE,
    Attempt,
    Verified,
    Verifier,
    reverse_verify,
    tool_use_verifier,
    verified_by,
)
from evalloom.llms.answer_json import AnswerError, strip_reasoning
from evalloom.llms.delimiters import mostly_chinese

ATTEMPTS = 3
_LONGEST_ANSWER = 1000
_NO_REASON = "no reason was given"
_ENDED: tuple[Outcome, str] = ("FAIL", "the run has ended, so no further request is sent")


class FeedbackRound(Struct, frozen=True):
    """An earlier result of the hoplet, and what the user replied to it."""

    result: Any
    feedback: str


class _Question(Struct, frozen=True):
    """A question of an operator, ready to send; `outcome` returns the outcome of a verified answer."""

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
        """Parse the value of an answer. Raises AnswerError."""
        try:
            return self.format.read(strip_reasoning(response.text))
        except AnswerError as error:
            if response.stop == "length":
                raise AnswerError(f"{error} (the answer was cut off at max_tokens)") from None
            raise


class HopSession:
    """Gives a hoplet access to llms: `run` answers, `verify` checks (by default the same llm).

    Each operator is async, returns `(status, value)` and never raises. The status is one of

    - `"OK"`: the value has the right format and was verified;
    - `"LACK_OF_INFO"`, `"UNCERTAIN"`: the value has the right format, but it could not be confirmed;
    - `"FAIL"`: there is no value; the reason takes its place, as text.

    A rejected answer is requested again with the verifier's reason, up to three attempts in all. A failed call has
    already been retried by the llm's client and ends the operator. `tracer` records one step per operator.

    `rounds` are earlier results of this hoplet on the same inputs, with what the user replied to them: every operator
    and every verifier sees them.
    """

    def __init__(
        self,
        run: Llm,
        verify: Llm | None = None,
        tracer: Tracer | None = None,
        rounds: Sequence[FeedbackRound] = (),
    ) -> None:
        self.rounds = tuple(rounds)
        self.tracer = tracer if tracer is not None else Tracer()
        self._run = run
        self._verify = verify if verify is not None else run
        self.bridge = Bridge()
        self.cached_calls = 0
        """The number of answers from the cache so far."""

    @property
    def has_ended(self) -> bool:
        return self.bridge.is_closed

    def close(self) -> None:
        """End the run: later calls of operators fail without sending a request.

        A sync hoplet that timed out may continue in its thread; its pending calls are cancelled, and its tracer
        records nothing more.
        """
        self.bridge.close()
        self.tracer.close()

    async def hop_get(
        self,
        task: str = "",
        context: Any = "",
        return_format: Any = str,
        verifier: Verifier | None = reverse_verify,
    ) -> tuple[Outcome, Any]:
        """Ask for a value: `status, score = await session.hop_get("Rate the tone", text, int)`.

        `task` is the instruction. `context` is material for it, as text or JSON; the llm is told never to follow
        instructions in it. `return_format` is the type of the value:

        - a type: `str`, `int`, `list[str]`, `Literal["a", "b"]`, a TypedDict, a dataclass, an Enum, `int | None`, …;
        - fields by name: `{"score": "int", "reason": "string", "sources": ["string"], "note": "string?"}`;
        - a JSON Schema, or a pydantic model;
        - a description in words: "three city names".

        `verifier` is `reverse_verify`, `forward_cross_verify`, your own function that takes the `Attempt` and returns
        True, False or `(status, reason)`, or None to check the format only.
        """

        def ask() -> _Question:
            return self._question(prompts.DO, task, context, format_of(return_format), lambda value: "OK")

        return await self._operate("hop_get", task, ask, verifier)

    async def hop_judge(
        self, task: str = "", context: Any = "", verifier: Verifier | None = reverse_verify
    ) -> tuple[Outcome, Any]:
        """Ask whether a statement holds: `("OK", True)`, `("OK", False)`, or `("UNCERTAIN", "Uncertain")`.

        `task`, `context` and `verifier` are as in `hop_get`.
        """

        def outcome(value: Any) -> Outcome:
            return "UNCERTAIN" if value == "Uncertain" else "OK"

        def ask() -> _Question:
            return self._question(prompts.JUDGE, task, context, JUDGEMENT, outcome)

        return await self._operate("hop_judge", task, ask, verifier)

    async def hop_tool_use(
        self,
        task: str = "",
        context: Any = "",
        tools: Sequence[Any] = (),
        verifier: Verifier | None = tool_use_verifier,
    ) -> tuple[Outcome, Any]:
        """Choose a tool without calling it: `("OK", {"tool": "search", "parameters": {"query": "…"}})`.

        `tools` are Python functions, tools as OpenAI writes them, or `{"name", "description", "parameters"}` with a
        JSON Schema or `{name: type}`. If no tool fits the task, the status is LACK_OF_INFO and the tool is None.
        `task`, `context` and `verifier` are as in `hop_get`.
        """

        def outcome(value: Any) -> Outcome:
            return "LACK_OF_INFO" if value["tool"] is None else "OK"

        def ask() -> _Question:
            parsed_tools = tools_of(tools)
            return self._question(prompts.CHOOSE, task, context, choice_format(parsed_tools), outcome, parsed_tools)

        return await self._operate("hop_tool_use", task, ask, verifier)

    def _question(
        self,
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
        if self.rounds:
            results = [round.result for round in self.rounds]
            task, shown = prompts.with_replies(task, shown, results, [r.feedback for r in self.rounds], is_chinese)
        messages = prompts.question(role, task, shown, form, is_chinese, tools)
        return _Question(task, shown, messages, form, is_chinese, outcome, tools)

    async def _operate(
        self, op: str, task: Any, ask: Callable[[], _Question], verifier: Verifier | None
    ) -> tuple[Outcome, Any]:
        """Run the attempts of one operator, and trace them as one step.

        It runs where the hoplet runs, as verifiers and types are users' code; only requests to an llm go elsewhere.
        """
        if self.has_ended:
            return _ENDED
        start = perf_counter()
        attempts: list[Record] = []
        calls = _Calls(self)
        status: Outcome
        try:
            status, value = await self._run_attempts(ask(), verifier, attempts, calls)
        except CallError as error:
            status, value = _record_failure(str(error), attempts)
        except Exception as error:  # users' code: the llm, the types and the values come from the hoplet
            status, value = _record_failure(describe_error(error), attempts)
        if self.has_ended:
            return _ENDED
        failed = [attempt for attempt in attempts if attempt["status"] != "OK"]
        metadata = {**({"attempts": failed} if failed else {}), **({"cached": calls.cached} if calls.cached else {})}
        self.tracer.trace_step(
            op=op,
            task=task,
            status=status,
            duration=perf_counter() - start,
            retry_count=len(attempts) - 1,
            metadata=metadata or None,
        )
        return status, value

    async def _run_attempts(
        self, question: _Question, verifier: Verifier | None, attempts: list[Record], calls: _Calls
    ) -> tuple[Outcome, Any]:
        if verifier is not None and not callable(verifier):
            raise TypeError(f"verifier: expected a function such as reverse_verify, or None, got {quoted(verifier)}")
        messages = question.messages
        while True:
            response = await calls.ask(self._run, question.request(messages))
            text = strip_reasoning(response.text)
            try:
                value = question.read(response)
            except AnswerError as error:
                value, verified, status = None, Verified("FAIL", str(error)), ""
            else:
                verified = await self._run_verifier(question, text, value, verifier, calls)
                status = verified.outcome
            attempts.append({"answer": text[:_LONGEST_ANSWER], "status": verified.outcome, "reason": verified.reason})
            if verified.outcome == "OK":
                return question.outcome(value), value
            if len(attempts) == ATTEMPTS:
                return verified.outcome, (verified.reason or _NO_REASON) if verified.outcome == "FAIL" else value
            messages = messages + prompts.feedback(text, verified.reason or _NO_REASON, status, question.is_chinese)

    async def _run_verifier(
        self, question: _Question, text: str, value: Any, verifier: Verifier | None, calls: _Calls
    ) -> Verified:
        if verifier is None:
            return Verified("OK")
        verify = partial(calls.ask, self._verify)

        async def repeat_question() -> Any:
            return question.read(await verify(question.request(question.messages, temperature=CROSS_TEMPERATURE)))

        attempt = Attempt(
            task=question.task,
            context=question.context,
            value=value,
            text=text,
            format=question.format,
            verify=verify,
            ask_again=repeat_question,
            tools=question.tools,
            is_chinese=question.is_chinese,
        )
        return await verified_by(verifier, attempt)


class _Calls:
    """The calls of one operator; every request of the session goes through `ask`."""

    def __init__(self, session: HopSession) -> None:
        self._session = session
        self.cached = 0
        """The number of answers from the cache."""

    async def ask(self, llm: Llm, request: Request) -> Response:
        response = await self._session.bridge.ask(llm, request)
        self.cached += response.usage.cached
        self._session.cached_calls += response.usage.cached
        return response


def _record_failure(reason: str, attempts: list[Record]) -> tuple[Outcome, str]:
    """Record a failed attempt that is not retried."""
    attempts.append({"status": "FAIL", "reason": reason})
    return "FAIL", reason
