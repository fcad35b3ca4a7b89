"""One case through a pipeline: every step as soon as its inputs are there, with a trace of each (PIPE-7, PIPE-8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any

import msgspec
import orjson
from msgspec import Struct

from evalloom.asking.json_text import NO_JSON, object_in
from evalloom.errors import CallError
from evalloom.model import NO_USAGE, Context, Output, Record, Response, Usage, quote
from evalloom.sandbox import Done
from evalloom.targets.pipeline_batch import failed_item, items_of, run_chunks, run_each
from evalloom.targets.pipeline_file import Step, with_options
from evalloom.targets.pipeline_flow import Flow, Source, Wired
from evalloom.targets.pipeline_parts import CodePart, CodeRefused, Part, checked_options, options_of
from evalloom.targets.target import CLAMP, listed
from evalloom.targets.template import MISSING, follow

MAX_OUTPUT = 4 * 1024 * 1024
"""How many bytes of JSON one output may have: a step's, or that of one item of a batch."""
MAX_BATCH_OUTPUT = 16 * 1024 * 1024
"""How many bytes all outputs of a batch may have together; a longer run could not be read back from the log."""
_TRACED_ITEMS = 50
"""Of how many items of a batch the calls are kept, and of how many that failed."""


class Ready(Struct, frozen=True):
    """A step that can be run: `make` gives its part for other options, `followers` wait for it."""

    wired: Wired
    part: Part | CallError
    make: Callable[[Step], Part]
    input_names: frozenset[str]
    """The inputs of the pipeline that go in by their names."""
    followers: tuple[int, ...]
    head: Record
    """How an entry of the trace begins that is about this step."""


class Assembled(Struct, frozen=True):
    """The steps of one variant, ready to be run."""

    flow: Flow
    steps: tuple[Ready, ...]


class NotAsked(Exception):
    """A step that the pipeline can do without has nothing to do: the case brings no input for it."""


class Walk:
    """One case on its way. `on_refused_code` is told of each step whose code was not run."""

    def __init__(
        self, assembled: Assembled, inputs: Record, context: Context, on_refused_code: Callable[[str], None]
    ) -> None:
        self._steps = assembled.steps
        self._flow = assembled.flow
        self._context = context
        self._on_refused_code = on_refused_code
        meta = context.case.meta
        self._given: Record = meta.get("step_inputs") or {}
        self._items: list[Any] | None = meta.get("batch_items")
        self._inputs = self._checked(inputs)
        self._outputs: Record = {}
        self._waiting = [len(ready.wired.needs) for ready in self._steps]
        self._skipped: dict[int, str] = {}

    async def go(self) -> Output:
        """Runs every step, and puts the output together. Raises CallError, which names the step that failed."""
        tasks: dict[asyncio.Task[bool], int] = {}
        ready = [number for number, left in enumerate(self._waiting) if not left]
        try:
            while ready or tasks:
                if len(ready) == 1 and not tasks:
                    # A chain of steps, the usual pipeline, needs no tasks.
                    number = ready.pop()
                    ready += self._after(number, await self._run(number))
                    continue
                tasks |= {asyncio.ensure_future(self._run(number)): number for number in ready}
                ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                # In the order of the file, so that of two steps that fail always the same is named.
                ordered = sorted(ended, key=tasks.__getitem__)
                ready = [after for task in ordered for after in self._after(tasks.pop(task), task.result())]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._output()

    def _checked(self, inputs: Record) -> Record:
        """The inputs with the defaults of the pipeline."""
        declared = self._flow.pipeline.inputs
        brought = {*inputs, *(name for given in self._given.values() for name in given)}
        missing = [one.name for one in declared if one.required and one.name not in brought]
        if missing and not self._items:
            has = f"the case has {listed(inputs)}"
            raise CallError("missing_input", f"{self._flow.pipeline.path.name}: needs the input {missing[0]!r}; {has}")
        defaults = {one.name: one.default for one in declared if one.default is not None and one.name not in inputs}
        return {**defaults, **inputs} if defaults else inputs

    def _after(self, number: int, is_made: bool) -> list[int]:
        """The steps that can run now; those that cannot any more are skipped, and those that wait for them."""
        free: list[int] = []
        ended = [(number, is_made)]
        while ended:
            at, made = ended.pop()
            for follower in self._steps[at].followers:
                if not made:
                    self._skipped.setdefault(follower, self._steps[at].wired.step.id)
                self._waiting[follower] -= 1
                if self._waiting[follower]:
                    continue
                if follower in self._skipped:
                    self._skip(follower)
                    ended.append((follower, False))
                else:
                    free.append(follower)
        return free

    def _skip(self, number: int) -> None:
        reason = f"needs step {self._skipped[number]!r}, which gave nothing"
        self._context.trace.append({**self._steps[number].head, "status": "skipped", "reason": reason})

    # -- one step -------------------------------------------------------------------------------------

    async def _run(self, number: int) -> bool:
        """Runs a step; whether something came of it. Raises CallError where the pipeline cannot do without."""
        ready = self._steps[number]
        step = ready.wired.step
        entry = dict(ready.head)
        self._context.trace.append(entry)
        start = perf_counter()
        try:
            self._outputs[step.id] = await self._made(ready, entry)
        except CallError as fault:
            entry |= {"status": "failed", "error": str(fault)}
            if isinstance(fault, CodeRefused):
                self._on_refused_code(step.id)
            # A case may set whether it can do without.
            if self._given.get(step.id, {}).get("required", step.required) is not False:
                where = f"{self._flow.pipeline.path.name}: step {step.id!r}"
                raise CallError(fault.code, f"{where}: {fault.message}") from None
            return False
        except NotAsked as fault:
            entry |= {"status": "skipped", "reason": str(fault)}
            return False
        else:
            entry["status"] = "ok"
            return True
        finally:
            entry.setdefault("status", "given up")
            entry["duration_s"] = round(perf_counter() - start, 6)

    async def _made(self, ready: Ready, entry: Record) -> Any:
        step, part, extra = self._as_asked(ready)
        values = self._values(ready, part, extra)
        calls: list[Record] = []
        entry["calls"] = calls
        usage = _Sum()
        if step.batch_mode:
            output = await self._batch(ready, step, part, values, entry, usage)
        else:
            entry["inputs"] = clamped(values)
            try:
                output = await _timed(part(values, self._apart(calls)), step)
            finally:
                _note(entry, calls, usage)
        entry["output"] = clamped(_fitting(output, step, MAX_BATCH_OUTPUT if step.batch_mode else MAX_OUTPUT))
        return output

    def _as_asked(self, ready: Ready) -> tuple[Step, Part, Record]:
        """The step with the options that the case sets, what it does then, and the inputs that the case adds."""
        step, part = ready.wired.step, ready.part
        given = self._given.get(step.id) or {}
        if given:
            takes = part.takes if not isinstance(part, CallError) else None
            named = {*step.mapping, *(takes or ())}
            options = {key: given[key] for key in options_of(step) if key in given and key not in named}
            if options:
                step = with_options(step, checked_options(step, options))
                part = ready.make(step)
            given = {key: value for key, value in given.items() if key not in options}
        if isinstance(part, CallError):
            raise type(part)(part.code, part.message)
        if part.takes is not None and given:
            given = {key: value for key, value in given.items() if key in part.takes or key in step.mapping}
        return step, part, given

    def _values(self, ready: Ready, part: Part, extra: Record) -> Record:
        wired = ready.wired
        if wired.takes_inputs:
            values = dict(self._inputs)
        else:
            values = {name: self._inputs[name] for name in ready.input_names if name in self._inputs}
        for name, source in wired.sources.items():
            found = self._reach(source)
            is_there = found is not MISSING and not (source.kind == "items" and found is None)
            if not is_there and name in wired.step.mapping and name not in extra and not wired.step.required:
                raise NotAsked(f"the case has no {source}")
            if found is not MISSING:
                values[name] = found
            elif wired.prompt is not None and name in wired.step.mapping and name not in wired.prompt.prompt.defaults:
                values[name] = ""  # an optional input that the case does not have leaves its hole empty
        return {**values, **extra} if extra else values

    def _reach(self, source: Source, is_needed: bool = True) -> Any:
        if source.kind == "constant":
            return source.value
        if source.kind == "inputs":
            return self._inputs
        if source.kind == "items":
            value: Any = self._items
        elif source.kind == "input":
            value = self._inputs.get(source.name, MISSING)
        else:
            value = self._outputs.get(source.name, MISSING)
        if not source.path or value is MISSING:
            return value
        if isinstance(value, str) and (read := object_in(value)) is not NO_JSON:
            value = read
        found = follow(value, source.path)
        if found is MISSING and source.kind == "step" and is_needed:
            message = f"step {source.name!r} gave nothing at {source.path!r}: {quote(value, 200)}"
            raise CallError("missing_part", message)
        return found

    def _apart(self, trace: list[Record]) -> Context:
        context = self._context
        return context.apart(trace) if context.apart else msgspec.structs.replace(context, trace=trace)

    # -- many items -----------------------------------------------------------------------------------

    async def _batch(
        self, ready: Ready, step: Step, part: Part, values: Record, entry: Record, usage: _Sum
    ) -> list[Any]:
        lists, shared = self._lists(ready.wired, values)
        filled = {*shared, *lists}
        open_names = [name for name in part.takes or () if name not in filled]
        sources = ready.wired.sources
        spread = {name for name in lists if name in ("items", "item") or sources[name] == Source("items")}
        inputs = list(items_of(lists, shared, spread, open_names[0] if len(open_names) == 1 else ""))
        entry |= {"inputs": clamped(shared), "items": len(inputs), "first_item": clamped(inputs[0]) if inputs else None}
        kept = _Kept(entry)

        async def each(number: int, item: Record) -> Any:
            calls: list[Record] = []
            try:
                return _fitting(await _timed(part(item, self._apart(calls)), step), step, MAX_OUTPUT)
            except CallError as fault:
                kept.failed += 1
                return failed_item(str(fault))
            finally:
                kept.add(number, calls, usage)

        async def chunk(start: int, some: list[Record]) -> list[Any]:
            calls: list[Record] = []
            assert isinstance(part, CodePart)
            try:
                done = await _timed(part.many(some, self._apart(calls)), step)
            except CallError:
                # One of them used too much, or ended the process; the others are not to suffer for it.
                done = [await _alone(part, one, self._apart(calls), step) for one in some]
            kept.add(start, calls, usage)
            kept.failed += sum(bool(one.error) for one in done)
            return [failed_item(one.error) if one.error else one.value for one in done]

        results = await (
            run_chunks(inputs, chunk, step) if isinstance(part, CodePart) else run_each(inputs, each, step)
        )
        kept.close(usage)
        return results

    def _lists(self, wired: Wired, values: Record) -> tuple[Record, Record]:
        """What goes through item by item, and what is the same for every item."""
        by_id = self._flow.by_id()
        lists = {
            name: values[name]
            for name, source in wired.sources.items()
            if name in values and (name in ("items", "item") or _is_list_of(source, by_id))
        }
        if wired.is_fed_items and self._items is not None and "items" not in lists and "item" not in lists:
            lists["items"] = self._items
        if not lists:
            lists = {name: value for name, value in values.items() if isinstance(value, list) and name in wired.sources}
        lists = {name: [] if found is None else found for name, found in lists.items()}
        return lists or {"items": []}, {name: value for name, value in values.items() if name not in lists}

    # -- the end --------------------------------------------------------------------------------------

    def _output(self) -> Output:
        outputs = self._outputs
        reached = {key: self._reach(source, is_needed=False) for key, source in self._flow.outputs.items()}
        value = {key: found for key, found in reached.items() if found is not MISSING}
        if (target := self._flow.pipeline.evaluation_target) and "output" not in value:
            meant = {**outputs, **{key: outputs.get(id) for key, id in self._flow.makers.items()}, **value}
            value |= {"output": meant[target]} if meant.get(target) is not None else {}
        totals = [outputs[one.wired.step.id] for one in self._steps if self._is_total(one.wired.step)]
        return Output(value, self._named_steps(), totals[-1] if totals else None)

    def _is_total(self, step: Step) -> bool:
        return step.kind == "batch_aggregator" and step.id in self._outputs

    def _named_steps(self) -> Record:
        """The outputs by step id, and by the output keys that the case speaks of (PIPE-11)."""
        makers, outputs = self._flow.makers, self._outputs
        asked = (check.where[6:] for check in self._context.case.checks if check.where.startswith("steps."))
        by_key = {key: outputs[makers[key]] for key in asked if makers.get(key) in outputs}
        return {**by_key, **outputs}


class _Sum:
    """What the calls of a step took."""

    def __init__(self) -> None:
        self.usage: Usage = NO_USAGE

    def add(self, calls: list[Record]) -> None:
        for call in calls:
            if isinstance(response := call.get("response"), Response):
                self.usage += response.usage


class _Kept:
    """Keeps the calls of the first items of a batch and of the first that failed: memory stays bounded."""

    def __init__(self, entry: Record) -> None:
        self._entry = entry
        self._failed_kept = 0
        self._repaired = 0
        self.failed = 0

    def add(self, number: int, calls: list[Record], usage: _Sum) -> None:
        usage.add(calls)
        self._repaired += any(call["type"] == "repair" for call in calls)
        has_failed = any("error" in call or call["type"] == "traceback" for call in calls)
        if number >= _TRACED_ITEMS and not (has_failed and self._failed_kept < _TRACED_ITEMS):
            return
        self._failed_kept += has_failed
        self._entry["calls"] += [{**call, "item": number} for call in calls]

    def close(self, usage: _Sum) -> None:
        self._entry |= {"failed_items": self.failed} if self.failed else {}
        self._entry |= {"repaired_items": self._repaired} if self._repaired else {}
        self._entry |= {"tokens": usage.usage.tokens, "llm_calls": usage.usage.calls} if usage.usage.calls else {}


def _note(entry: Record, calls: list[Record], usage: _Sum) -> None:
    usage.add(calls)
    if repairs := [call["text"] for call in calls if call["type"] == "repair"]:
        entry["repairs"] = repairs
    if usage.usage.calls:
        entry |= {"tokens": usage.usage.tokens, "llm_calls": usage.usage.calls}


def _is_list_of(source: Source, by_id: dict[str, Wired]) -> bool:
    """Whether a source is the batch items, or what another batch step made of them."""
    if source.path:
        return False
    return source.kind == "items" or (source.kind == "step" and by_id[source.name].step.batch_mode)


def head_of(wired: Wired, flow: Flow) -> Record:
    """What the trace says of a step whatever comes of it."""
    step = wired.step
    outputs = [key for key, source in flow.outputs.items() if source.kind == "step" and source.name == step.id]
    return {
        "type": "step",
        "step": step.id,
        "kind": step.kind,
        "output_key": step.output_key,
        "needs": list(wired.needs),
        **({"outputs": outputs} if outputs and outputs != [step.output_key] else {}),
    }


async def _alone(part: CodePart, item: Record, context: Context, step: Step) -> Done:
    try:
        return Done(await _timed(part(item, context), step))
    except CallError as fault:
        return Done(error=str(fault))


async def _timed(call: Any, step: Step) -> Any:
    """Waits for a step, or for one item of a batch, no longer than the step allows."""
    if step.timeout is None:
        return await call
    try:
        async with asyncio.timeout(step.timeout) as limit:
            return await call
    except TimeoutError:
        if not limit.expired():
            raise
        raise CallError("timeout", f"no answer within {step.timeout:g} s") from None


def _fitting(output: Any, step: Step, most: int) -> Any:
    size = len(output) if isinstance(output, str) else _size(output)
    if size <= most // 4 or (size := _size(output)) <= most:
        return output
    told = f"output {step.output_key!r}: expected at most {most // 1024**2} MiB of JSON, got {size / 1024**2:.1f} MiB"
    raise CallError("output_too_large", f"{told}. Give back less, or a path to a file")


def _size(value: Any) -> int:
    try:
        return len(orjson.dumps(value))
    except TypeError:
        return len(str(value))


def clamped(value: Any) -> Any:
    """A value for the trace: itself when it is small, else the beginning of its JSON."""
    if isinstance(value, str):
        return value if len(value) <= CLAMP else f"{value[:CLAMP]}… ({len(value) - CLAMP} characters more)"
    try:
        text = orjson.dumps(value)
    except TypeError:
        return value
    if len(text) <= CLAMP:
        return value
    return f"{text[:CLAMP].decode('utf-8', 'ignore')}… ({len(text) - CLAMP} bytes more)"
