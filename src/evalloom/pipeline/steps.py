"""What a step does with its inputs: it asks a prompt, calls a function, runs code in the sandbox, or aggregates."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from evalloom.core import sandbox
from evalloom.core.errors import CallError, did_you_mean
from evalloom.core.model import Context, Record, type_name
from evalloom.core.text import listed
from evalloom.pipeline.aggregate import aggregate, read_options, renamed
from evalloom.pipeline.file import Step
from evalloom.pipeline.keys import AGGREGATOR_KEYS, STEP_KEYS
from evalloom.pipeline.prompts import StepPrompt
from evalloom.targets.python import PythonTarget

MAX_OUTPUT = 4 * 1024 * 1024
"""How much JSON one output may be: a step's, or that of one item of a batch."""
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
    """What a step does. `takes` are the inputs that it knows, None when it takes any; `needs` those it must have."""

    takes: frozenset[str] | None
    needs: frozenset[str]
    keeps_time: bool
    """Whether it sees to the time limit of its step itself."""

    async def __call__(self, values: Record, context: Context) -> Any:
        """The output of the step. Raises CallError."""


def options_of(step: Step, given: Record) -> tuple[str, ...]:
    """The options that the step inputs of a case may set for this step (PIPE-8)."""
    # A language is that of the code; where there is none, it is an input like any other.
    has_code = "code" in step.spec or "code" in given or step.kind != "code_node"
    own = _OPTIONS[step.kind] if has_code else ("code",)
    return (*own, *_COMMON_OPTIONS)


def checked_options(step: Step, options: Record) -> Record:
    """Options that a case sets, each of its type."""
    for key, value in options.items():
        expected, is_good = STEP_KEYS.get(key, ("", lambda value: True))
        if not is_good(value):
            raise CallError("bad_step_option", f"step_inputs.{step.id}.{key}: expected {expected}, got {value!r}")
    return options


class PromptPart:
    """Asks an llm."""

    keeps_time = False

    def __init__(self, asked: StepPrompt, step: Step) -> None:
        self._prompt = asked.prompt
        spec = step.spec
        model = spec.get("model_override") or spec.get("model")
        # A step's own choice of model holds whatever the profile says.
        self._pinned = {**({"model": model} if model else {}), **{n: spec[n] for n in _PINNED if n in spec}}
        self.takes: frozenset[str] | None = asked.prompt.names | step.mapping.keys()
        self.needs = asked.prompt.variables | asked.prompt.optional

    async def __call__(self, values: Record, context: Context) -> Any:
        value, _ = await self._prompt.ask(values, context, self._pinned)
        return value


def takes_anything(target: PythonTarget, step: Step) -> bool:
    """Whether a function takes whatever goes into its step: by any name, or, unmapped, all of it as one object."""
    return target.takes_any or (len(target.required) == 1 and not step.mapping)


class FunctionPart:
    """Calls a function of the user's, named by `code_ref` in the pipeline."""

    keeps_time = False

    def __init__(self, target: PythonTarget, step: Step) -> None:
        self._target = target
        self._is_mapped = bool(step.mapping) or step.batch_mode
        self.takes: frozenset[str] | None = None if takes_anything(target, step) else target.names
        self.needs = target.required

    async def __call__(self, values: Record, context: Context) -> Any:
        lacking = sorted(self.needs - values.keys())
        if lacking and (self._is_mapped or not values):
            has = f"what goes in is {listed(values)}{did_you_mean(lacking[0], values)}"
            raise CallError("missing_argument", f"its function needs {lacking[0]!r}; {has}")
        return (await self._target(values, context)).value


class CodePart:
    """Runs code that stands in a pipeline or a case, in the sandbox (PIPE-12)."""

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
        """The same for several, in one process."""
        limits = _limits(self._step, len(values))
        return await run_code(self._code, [sandbox.Call(one, one) for one in values], limits, context)


class AggregatePart:
    """Puts the items of a list together (PIPE-9)."""

    takes: frozenset[str] | None = frozenset({"items"})
    needs: frozenset[str] = frozenset({"items"})
    keeps_time = True

    def __init__(self, step: Step) -> None:
        self._step = step
        self._options, faults = read_options(step.spec)
        if faults:
            raise CallError("bad_aggregator", "; ".join(f"{key}: {fault}" for key, fault in faults))

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
    """What the code of a step may use: no more time than the step has, and no larger answer than it may give."""
    usual = sandbox.DEFAULT_LIMITS
    wall_s = usual.wall_s if step.timeout is None else min(usual.wall_s, step.timeout * calls)
    output_bytes = min(usual.output_bytes, MAX_OUTPUT * calls)
    return msgspec.structs.replace(usual, wall_s=wall_s, cpu_s=min(usual.cpu_s, wall_s), output_bytes=output_bytes)


async def run_code(
    code: sandbox.Code, calls: list[sandbox.Call], limits: sandbox.Limits, context: Context
) -> list[sandbox.Done]:
    """Runs code in the sandbox; what it printed goes into the trace."""
    done = await sandbox.run_code(code, calls, limits)
    printed = "".join(one.printed for one in done)
    if printed:
        context.trace.append({"type": "printed", "text": printed})
    return done


def part_of(step: Step, asked: StepPrompt | None, function: PythonTarget | None, may_run_code: bool) -> Part:
    """What a step does, with the options that hold for it now. Raises CallError where they make no sense."""
    if step.kind == "batch_aggregator":
        part = AggregatePart(step)
        _refuse_code(part.runs_code and not may_run_code)
        return part
    if "code" in step.spec:
        _refuse_code(not may_run_code)
        return CodePart(step)
    if function is not None:
        return FunctionPart(function, step)
    if asked is None:
        raise CallError("bad_step", "there is nothing to do")
    return PromptPart(asked, step)


class CodeRefused(CallError):
    """Code in a data file that the user did not allow to run."""


def _refuse_code(is_refused: bool) -> None:
    if is_refused:
        raise CodeRefused("code_not_allowed", "its code is not run unless you say --allow-code")
