"""The target of a promptfoo config: fills in the prompt of a column, and asks its provider."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.errors import CallError
from evalloom.core.model import Case, Context, Output, Profile, Record, Request, Response
from evalloom.core.text import describe
from evalloom.data.cells import text_list
from evalloom.interop.promptfoo import files, prompts, templates
from evalloom.interop.promptfoo.code import Scripts
from evalloom.interop.promptfoo.options import OPTIONS, RequestOptions, request_options
from evalloom.interop.promptfoo.prompts import CONVERSATION, Prompt
from evalloom.interop.promptfoo.providers import ECHO, Provider

Answer = Callable[[str, Record, Context], Awaitable[Any]]
"""What a provider that is no llm answers to a prompt, with the variables of the test."""


class Column(Struct, frozen=True):
    """One prompt, and the provider that gets it; None for an llm that replaces those of the config."""

    prompt: Prompt
    provider: Provider | None = None
    answer: Answer | None = None
    """Answers for a provider that is no llm."""
    config: RequestOptions = RequestOptions()
    """What its own settings add to each request."""


class ConfigTarget:
    """Runs the tests of a config. Columns are found by the variant of the profile."""

    def __init__(
        self,
        columns: Mapping[str, Column],
        scripts: Scripts,
        environment: Mapping[str, str],
        filters: Mapping[str, Callable[..., Any]] = {},
    ) -> None:
        self._columns = columns
        self._filters = filters
        self._scripts = scripts
        self._environment = environment
        self._memory: dict[tuple[str, int], _Memory] = {}
        """What a later test may use of earlier ones: only when tests run one after the other."""

    async def __call__(self, inputs: Record, context: Context) -> Output:
        column = self._columns[context.profile.variant]
        meta = context.case.meta
        if ("prompts" in meta or "providers" in meta) and (why := self._unknown(context.case)):
            raise CallError("runs_nowhere", why)
        if self._filters:
            templates.own_filters.set(self._filters)
        options = request_options(meta.get(OPTIONS))
        memory = self._memory.setdefault((context.profile.name, context.repeat), _Memory())
        variables = await self._variables(inputs, column.prompt, memory, context)
        text, config = await self._fill(column, variables, options)
        if column.answer is not None:
            output = Output(await _answered(column, text, variables, context))
        else:
            output = await self._ask(column, text, config, context)
        if column.provider is not None and column.provider.transform:
            value = await self._scripts.transform(column.provider.transform, output.value, variables, text)
            output = msgspec.structs.replace(output, value=value)
        if output.value is None:
            raise CallError("no_output", "expected an output, got none")
        if options.store_as or column.prompt.uses_conversation:
            await self._remember(memory, text, output, options, variables, context)
        return output

    def excludes(self, case: Case, profile: Profile) -> str:
        """Return why a test does not run in a column: it names the prompts or providers that it is for."""
        column = self._columns[profile.variant]
        for field, part in (("prompts", column.prompt), ("providers", column.provider)):
            wanted = text_list(case.meta.get(field))
            if wanted and part is not None and not _is_called(part, wanted) and not self._unknown(case):
                return f"{field}: the test is for {', '.join(wanted)}"
        return ""

    def _unknown(self, case: Case) -> str:
        """Return which of the prompts or providers that a test names is none of the config; it would run nowhere."""
        for field in ("prompts", "providers"):
            wanted = text_list(case.meta.get(field))
            parts = [column.prompt if field == "prompts" else column.provider for column in self._columns.values()]
            known = [part for part in parts if part is not None]
            if wanted and known and not any(_is_called(part, wanted) for part in known):
                names = ", ".join(dict.fromkeys(part.name for part in known))
                return f"{field}: the test is for {', '.join(wanted)}, and the config has {names}"
        return ""

    async def _variables(self, inputs: Record, prompt: Prompt, memory: _Memory, context: Context) -> Record:
        variables = {**inputs, **memory.stored}
        if CONVERSATION not in variables and prompt.uses_conversation:
            variables[CONVERSATION] = memory.conversations.get(_conversation_id(context), [])
        variables["env"] = self._environment
        if any(map(files.is_file, variables.values())):
            return await self._scripts.file_variables(variables, prompt.text)
        return variables

    async def _fill(self, column: Column, variables: Record, options: RequestOptions) -> tuple[str, RequestOptions]:
        """Return the prompt of a test, and what its request adds to that of the provider."""
        prompt, config = column.prompt, column.config.with_config(column.prompt.config)
        if prompt.code is not None:
            made = await self._scripts.prompt(prompt.code, variables, column.provider, prompt.config)
            if isinstance(made, dict) and "prompt" in made:
                config = config.with_config(made.get("config"))
                made = made["prompt"]
            text = made if isinstance(made, str) else json.dumps(made, ensure_ascii=False)
            prompt = prompts.with_text(prompt, text)
        if options.prefix or options.suffix:
            prompt = prompts.with_text(prompt, f"{options.prefix}{prompt.text}{options.suffix}")
        try:
            return prompts.fill(prompt, variables), config.over(options)
        except templates.TemplateError as error:
            raise CallError("bad_template", f"prompt {column.prompt.name}: {error}") from None

    async def _ask(self, column: Column, text: str, config: RequestOptions, context: Context) -> Output:
        is_echo = column.provider is not None and column.provider.kind == ECHO
        # promptfoo's echo repeats a chat as its text.
        messages = [{"role": "user", "content": text}] if is_echo else prompts.messages_of(text)
        if config.system:
            messages = [{"role": "system", "content": config.system}, *messages]
        params = {**config.params, **context.profile.params}
        response = await context.llm(Request(messages, params, config.answer, config.tools, context.repeat))
        return _output(response, config)

    async def _remember(
        self, memory: _Memory, text: str, output: Output, options: RequestOptions, variables: Record, context: Context
    ) -> None:
        if options.store_as:
            value = output.value
            for transform in options.transforms:
                value = await self._scripts.transform(transform, value, variables, text)
            memory.stored[options.store_as] = value
        messages = prompts.messages_of(text)
        is_chat = len(messages) > 1 or messages[0].get("content") != text
        turn = {
            "prompt": messages if is_chat else text,
            "input": messages[-1].get("content") if is_chat else text,
            "output": output.value,
        }
        memory.conversations.setdefault(_conversation_id(context), []).append(turn)


def _is_called(part: Prompt | Provider, names: list[str]) -> bool:
    return any(map(part.is_called, names))


async def _answered(column: Column, text: str, variables: Record, context: Context) -> Any:
    """Ask a provider that is no llm; its call stands in the trace as that of an llm would."""
    assert column.answer is not None and column.provider is not None
    entry: Record = {"type": "llm", "llm": column.provider.name}
    entry["request"] = Request(prompts.messages_of(text))
    context.trace.append(entry)
    started = perf_counter()
    try:
        value = await column.answer(text, variables, context)
    except CallError as failure:
        entry["error"] = str(failure)
        raise
    finally:
        entry["duration_s"] = round(perf_counter() - started, 6)
    entry["response"] = Response(templates.text_of(value), model=column.provider.id)
    return value


class _Memory:
    """The outputs of earlier tests of one column: stored ones by name, and the turns of conversations."""

    def __init__(self) -> None:
        self.stored: Record = {}
        self.conversations: dict[str, list[Record]] = {}


def _conversation_id(context: Context) -> str:
    metadata = context.case.meta.get("metadata")
    return str(metadata.get("conversationId", "")) if isinstance(metadata, dict) else ""


def _output(response: Response, config: RequestOptions) -> Output:
    """Return what promptfoo takes for the output: a text, parsed JSON where a schema is asked for, or tool calls."""
    text, calls = response.text, response.tool_calls
    if calls:
        value: Any = {"role": "assistant", "content": text, "tool_calls": calls} if text else calls
        return Output(value, {"tool_calls": calls})
    if config.is_json:
        try:
            return Output(json.loads(text))
        except ValueError:
            return Output(text)
    return Output(text)


def output_of(answer: Any, what: str) -> Any:
    """Return the output in the answer of a program or a function: `{output}`, `{error}`, or the value itself."""
    if isinstance(answer, dict) and answer.get("error"):
        raise CallError("provider_failed", f"{what}: {answer['error']}")
    if isinstance(answer, dict) and "output" in answer:
        return answer["output"]
    if answer is None:
        raise CallError("provider_failed", f"{what}: expected an object with output or error, got {describe(answer)}")
    return answer
