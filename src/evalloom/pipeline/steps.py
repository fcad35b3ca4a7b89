"""Runs one step: prompts an llm, calls a function, runs code in the sandbox, or aggregates; once or for each item."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Protocol

import msgspec

from evalloom.core import sandbox
from evalloom.core.errors import CallError
from evalloom.core.model import Context, Record
from evalloom.core.text import did_you_mean, list_names, type_name
from evalloom.pipeline.aggregate import FailedItem, aggregate, read_options, renamed
from evalloom.pipeline.file import Step
from evalloom.pipeline.keys import AGGREGATOR_KEYS, STEP_KEYS
from evalloom.pipeline.prompts import StepPrompt
from evalloom.targets.python import PythonTarget

MAX_OUTPUT = 4 * 1024 * 1024
"""The maximum size in bytes of the JSON output of a step, or of one batch item."""
_PINNED = ("temperature", "max_tokens", "top_p")
_OPTIONS: dict[str, tuple[str, ...]] = {
    "prompt": ("model", "model_override", *_PINNED),
    "code_node": ("code", "language"),
    "batch_aggregator": AGGREGATOR_KEYS,
}
_COMMON_OPTIONS = ("timeout", "required", "batch_size", "concurrent", "max_workers")
_ENTRIES = ("process", "transform", "run", "main", "execute", "handler")
_AGGREGATE = ("aggregate", *_ENTRIES)
_NO_CODE = "its code is not run without --allow-code"
WHOLE = ("items", "item")
"""The parameters that receive whole items."""
_Each = Callable[[int, Record], Awaitable[Any]]
_Chunk = Callable[[list[tuple[int, Record]]], Awaitable[list[Any]]]


class StepRunner(Protocol):
    """The executable part of a step. `takes` are its inputs (None accepts any), `needs` the required ones."""

    takes: frozenset[str] | None
    needs: frozenset[str]
    enforces_timeout: bool
    """Whether it enforces the time limit of its step itself."""

    async def __call__(self, values: Record, context: Context) -> Any:
        """Return the output of the step. Raises CallError."""


def options_of(step: Step, step_inputs: Record) -> tuple[str, ...]:
    """Return the options of a step that step_inputs may set (PIPE-8)."""
    # Without code, `language` is an input like any other.
    has_code = "code" in step.spec or "code" in step_inputs or step.kind != "code_node"
    own = _OPTIONS[step.kind] if has_code else ("code",)
    return (*own, *_COMMON_OPTIONS)


def checked_options(step: Step, options: Record) -> Record:
    """Check the types of the options that a case sets."""
    for key, value in options.items():
        expected, is_good = STEP_KEYS.get(key, ("", lambda value: True))
        if not is_good(value):
            raise CallError("bad_step_option", f"step_inputs.{step.id}.{key}: expected {expected}, got {value!r}")
    return options


class PromptRunner:
    """Prompts an llm."""

    enforces_timeout = False

    def __init__(self, step_prompt: StepPrompt, step: Step) -> None:
        self._prompt = step_prompt.prompt
        spec = step.spec
        model = spec.get("model_override") or spec.get("model")
        # The model of a step overrides the profile.
        self._pinned = {**({"model": model} if model else {}), **{n: spec[n] for n in _PINNED if n in spec}}
        self.takes: frozenset[str] | None = step_prompt.prompt.names | step.mapping.keys()
        self.needs = step_prompt.prompt.variables | step_prompt.prompt.optional

    async def __call__(self, values: Record, context: Context) -> Any:
        value, _ = await self._prompt.ask(values, context, self._pinned)
        return value


def takes_anything(target: PythonTarget, step: Step) -> bool:
    """Return whether a function accepts any input: as keyword arguments or, without a mapping, as one object."""
    return target.takes_any or (len(target.required) == 1 and not step.mapping)


class FunctionRunner:
    """Calls the user's function named by `code_ref`."""

    enforces_timeout = True

    def __init__(self, target: PythonTarget, step: Step) -> None:
        self._target = target
        self._timeout = step.timeout
        self._is_mapped = bool(step.mapping) or step.batch_mode
        self.takes: frozenset[str] | None = None if takes_anything(target, step) else target.names
        self.needs = target.required

    async def __call__(self, values: Record, context: Context) -> Any:
        lacking = sorted(self.needs - values.keys())
        if lacking and (self._is_mapped or not values):
            has = f"its inputs are {list_names(values)}{did_you_mean(lacking[0], values)}"
            raise CallError("missing_argument", f"its function needs {lacking[0]!r}; {has}")
        return (await self._target(values, context, self._timeout)).value


class CodeRunner:
    """Runs code from a pipeline or a case in the sandbox (PIPE-12)."""

    takes: frozenset[str] | None = None
    needs: frozenset[str] = frozenset()
    enforces_timeout = True

    def __init__(self, step: Step) -> None:
        language = step.spec.get("language", "python")
        if language != "python":
            raise CallError("bad_step_option", f"language: only Python code is run, got {language!r}")
        self._code = sandbox.Code(text=step.spec["code"], entry=_ENTRIES)
        self._step = step

    async def __call__(self, values: Record, context: Context) -> Any:
        [done] = await self.many([values], context)
        if done.error:
            raise CallError("code_failed", done.error)
        return done.value

    async def many(self, values: list[Record], context: Context) -> list[sandbox.Done]:
        """Run the code on several inputs in one process."""
        limits = _limits(self._step, len(values))
        return await run_code(self._code, [sandbox.Call(inputs, inputs) for inputs in values], limits, context)


class AggregateRunner:
    """Aggregates the items of a list (PIPE-9)."""

    takes: frozenset[str] | None = frozenset({"items"})
    needs: frozenset[str] = frozenset({"items"})
    enforces_timeout = True

    def __init__(self, step: Step) -> None:
        self._step = step
        self._options, errors = read_options(step.spec)
        if errors:
            raise CallError("bad_aggregator", "; ".join(f"{key}: {error}" for key, error in errors))

    @property
    def runs_code(self) -> bool:
        return self._options.strategy == "custom"

    async def __call__(self, values: Record, context: Context) -> Any:
        items = values.get("items")
        items = [] if items is None else items
        if not isinstance(items, list):
            raise CallError("bad_items", f"items: expected a list to aggregate, got {type_name(items)}")
        result = await self._custom(items, values, context) if self.runs_code else aggregate(items, self._options)
        return renamed(result, self._options.output) if self._options.output else result

    async def _custom(self, items: list[Any], values: Record, context: Context) -> Any:
        code = sandbox.Code(text=self._options.code, entry=_AGGREGATE)
        call = sandbox.Call({**values, "items": items}, items)
        [done] = await run_code(code, [call], _limits(self._step), context)
        if done.error:
            raise CallError("code_failed", done.error)
        return done.value


def _limits(step: Step, calls: int = 1) -> sandbox.Limits:
    """Return the sandbox limits for the code of a step, within its timeout and output size."""
    usual = sandbox.DEFAULT_LIMITS
    wall_s = usual.wall_s if step.timeout is None else min(usual.wall_s, step.timeout * calls)
    output_bytes = min(usual.output_bytes, MAX_OUTPUT * calls)
    return msgspec.structs.replace(usual, wall_s=wall_s, cpu_s=min(usual.cpu_s, wall_s), output_bytes=output_bytes)


async def run_code(
    code: sandbox.Code, calls: list[sandbox.Call], limits: sandbox.Limits, context: Context
) -> list[sandbox.Done]:
    """Run code in the sandbox, and add its printed output to the trace."""
    done = await sandbox.run_code(code, calls, limits)
    printed = "".join(call.printed for call in done)
    if printed:
        context.trace.append({"type": "printed", "text": printed})
    return done


def runner_of(
    step: Step, step_prompt: StepPrompt | None, function: PythonTarget | None, may_run_code: bool
) -> StepRunner:
    """Build the executable part of a step. Raises CallError for invalid options."""
    if step.kind == "batch_aggregator":
        runner = AggregateRunner(step)
        if runner.runs_code and not may_run_code:
            raise CodeRefused("code_not_allowed", _NO_CODE)
        return runner
    if "code" in step.spec:
        if not may_run_code:
            raise CodeRefused("code_not_allowed", _NO_CODE)
        return CodeRunner(step)
    if function is not None:
        return FunctionRunner(function, step)
    if step_prompt is None:
        raise CallError("bad_step", "it has no prompt, function or code")
    return PromptRunner(step_prompt, step)


class CodeRefused(CallError):
    """Code in a data file is not allowed to run."""


# -- batch steps (PIPE-8) ---------------------------------------------------------------------------


def rows_of(lists: Record) -> Iterator[tuple[Any, ...]]:
    """Yield rows with one item from each list."""
    for name, values in lists.items():
        if not isinstance(values, list):
            raise CallError("bad_items", f"{name}: expected a list to iterate over, got {type_name(values)}")
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        sizes = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise CallError("bad_items", f"expected lists of the same length to iterate over together; {sizes}")
    return zip(*lists.values(), strict=True)


def spread_of(
    named: Iterable[tuple[str, Any]], spread: set[str], runner: StepRunner, weak: Record, strong: Record
) -> Record:
    """Return the inputs from the items of one row. Items of the lists in `spread` are spread into fields.

    Such an item is also passed whole as `item`, or as its own parameter.
    """
    fields: Record = {}
    mapped: Record = {}
    for name, item in named:
        if name not in spread:
            mapped[name] = item
            continue
        fields |= {("item" if name in WHOLE else name): item, **(item if isinstance(item, dict) else {})}
        if name in WHOLE and (parameter := _item_parameter(item, runner, weak, strong)):
            fields[parameter] = item
    return {**fields, **mapped}


def _item_parameter(item: Any, runner: StepRunner, weak: Record, strong: Record) -> str:
    """Return the only parameter that a whole item can fill, or an empty string."""
    if "item" in runner.needs:
        return ""
    open_names = [name for name in runner.needs if name not in strong]
    if isinstance(item, dict):
        # An object with some of the names provides all of them.
        if not runner.needs.isdisjoint(item):
            return ""
        open_names = [name for name in open_names if name not in weak]
    elif len(open_names) > 1:
        open_names = [name for name in open_names if name not in weak]
    return open_names[0] if len(open_names) == 1 else ""


async def run_each(inputs: list[Record | FailedItem], each: _Each, step: Step) -> list[Any]:
    """Run `each` for every item, with the concurrency of the step; `each` does not raise for a failed item.

    Items that failed in an earlier step are passed through.
    """
    results: list[Any] = list(inputs)
    waiting = [number for number, item in enumerate(inputs) if not isinstance(item, FailedItem)]
    for start in range(0, len(waiting), step.batch_size):
        chunk = waiting[start : start + step.batch_size]
        numbers = iter(chunk)

        async def work(numbers: Iterator[int] = numbers) -> None:
            for number in numbers:
                results[number] = await each(number, inputs[number])

        workers = min(step.max_workers, len(chunk)) if step.concurrent else 1
        if workers == 1:
            await work()
        else:
            await _all_of(work() for _ in range(workers))
    return results


async def run_chunks(inputs: list[Record | FailedItem], run: _Chunk, step: Step) -> list[Any]:
    """Run whole chunks, for code that is expensive to start."""
    results: list[Any] = list(inputs)
    waiting = [(number, item) for number, item in enumerate(inputs) if not isinstance(item, FailedItem)]
    for start in range(0, len(waiting), step.batch_size):
        chunk = waiting[start : start + step.batch_size]
        for (number, _), result in zip(chunk, await run(chunk), strict=True):
            results[number] = result
    return results


async def _all_of(calls: Iterable[Awaitable[Any]]) -> None:
    """Wait for all calls; if one raises, cancel the others."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
