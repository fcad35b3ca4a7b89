"""Executes one step: prompts an llm, calls a function, runs code in the sandbox, or aggregates."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from evalloom.core import sandbox
from evalloom.core.errors import CallError
from evalloom.core.model import Context, Record
from evalloom.core.text import did_you_mean, list_names, type_name
from evalloom.pipeline.aggregate import aggregate, read_options, renamed
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


class Part(Protocol):
    """The executable part of a step. `takes` are its inputs (None accepts any), `needs` the required ones."""

    takes: frozenset[str] | None
    needs: frozenset[str]
    keeps_time: bool
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


class PromptPart:
    """Prompts an llm."""

    keeps_time = False

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


class FunctionPart:
    """Calls the user's function named by `code_ref`."""

    keeps_time = False

    def __init__(self, target: PythonTarget, step: Step) -> None:
        self._target = target
        self._is_mapped = bool(step.mapping) or step.batch_mode
        self.takes: frozenset[str] | None = None if takes_anything(target, step) else target.names
        self.needs = target.required

    async def __call__(self, values: Record, context: Context) -> Any:
        lacking = sorted(self.needs - values.keys())
        if lacking and (self._is_mapped or not values):
            has = f"what goes in is {list_names(values)}{did_you_mean(lacking[0], values)}"
            raise CallError("missing_argument", f"its function needs {lacking[0]!r}; {has}")
        return (await self._target(values, context)).value


class CodePart:
    """Runs code from a pipeline or a case in the sandbox (PIPE-12)."""

    takes: frozenset[str] | None = None
    needs: frozenset[str] = frozenset()
    keeps_time = True

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


class AggregatePart:
    """Aggregates the items of a list (PIPE-9)."""

    takes: frozenset[str] | None = frozenset({"items"})
    needs: frozenset[str] = frozenset({"items"})
    keeps_time = True

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
        if not items:
            return {}
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


def part_of(step: Step, step_prompt: StepPrompt | None, function: PythonTarget | None, may_run_code: bool) -> Part:
    """Build the executable part of a step. Raises CallError for invalid options."""
    if step.kind == "batch_aggregator":
        part = AggregatePart(step)
        _refuse_code(part.runs_code and not may_run_code)
        return part
    if "code" in step.spec:
        _refuse_code(not may_run_code)
        return CodePart(step)
    if function is not None:
        return FunctionPart(function, step)
    if step_prompt is None:
        raise CallError("bad_step", "there is nothing to do")
    return PromptPart(step_prompt, step)


class CodeRefused(CallError):
    """Code in a data file is not allowed to run."""


def _refuse_code(is_refused: bool) -> None:
    if is_refused:
        raise CodeRefused("code_not_allowed", "its code is not run unless you say --allow-code")
