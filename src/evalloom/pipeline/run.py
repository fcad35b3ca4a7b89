"""One case through a pipeline: every step as soon as its inputs are there, with a trace of each (PIPE-7, PIPE-8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.errors import CallError
from evalloom.core.model import Context, Output, Record, quote
from evalloom.core.sandbox import Done
from evalloom.core.text import listed
from evalloom.llms.json_text import NO_JSON, object_in
from evalloom.pipeline.aggregate import FailedItem
from evalloom.pipeline.batch_step import WHOLE, rows_of, run_chunks, run_each, spread_of
from evalloom.pipeline.file import Step, with_options
from evalloom.pipeline.flow import Flow, Source, Wired
from evalloom.pipeline.steps import MAX_OUTPUT, CodePart, CodeRefused, Part, checked_options, options_of
from evalloom.pipeline.trace import MAX_BATCH_OUTPUT, MAX_OUTPUTS, StepEntry, measured, refuse_large
from evalloom.targets.template import MISSING, follow

_ITEMS = Source("items", is_each=True)
_PLAIN = ("structural", "equals", "contains", "regex")
"""The checks that an expected output without a name may become."""


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


class _Asked(Struct, frozen=True):
    """A step as one case asks for it: with its options, and what goes in.

    Fields of a batch item take the place of `weak` inputs, which go in by their names only; `strong` ones are mapped,
    or given by the case.
    """

    step: Step
    part: Part
    weak: Record
    strong: Record
    given: frozenset[str]
    """The names of those that the case gives to this step itself."""


class Walk:
    """One case on its way; `note` is told what the user should hear of when the batch is over."""

    def __init__(self, assembled: Assembled, inputs: Record, context: Context, note: Callable[[str], None]) -> None:
        self._steps = assembled.steps
        self._flow = assembled.flow
        self._context = context
        self._note = note
        meta = context.case.meta
        self._given: Record = meta.get("step_inputs") or {}
        self._items: list[Any] | None = meta.get("batch_items")
        self._inputs = self._checked(inputs)
        self._outputs: Record = {}
        self._size = 0
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
        if self._items:
            missing = [name for name in missing if name in self._flow.unbatched_inputs]
        if missing:
            has = f"the case has {listed(inputs)}"
            raise CallError("missing_input", f"{self._flow.pipeline.path.name}: needs the input {missing[0]!r}; {has}")
        defaults = {one.name: one.default for one in declared if one.has_default and one.name not in inputs}
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
                    reason = f"needs step {self._skipped[follower]!r}, which gave nothing"
                    StepEntry(self._steps[follower].head, self._context.trace).end("skipped", reason=reason)
                    ended.append((follower, False))
                else:
                    free.append(follower)
        return free

    # -- one step -------------------------------------------------------------------------------------

    async def _run(self, number: int) -> bool:
        """Runs a step; whether something came of it. Raises CallError where the pipeline cannot do without."""
        ready = self._steps[number]
        step = ready.wired.step
        entry = StepEntry(ready.head, self._context.trace)
        is_required = step.required
        status: str = "given up"
        told: Record = {}
        try:
            asked = self._as_asked(ready)
            is_required = asked.step.required
            output = await (self._batch(ready.wired, asked, entry) if step.batch_mode else self._one(asked, entry))
            shown, size = measured(output)
            refuse_large(size, MAX_BATCH_OUTPUT if step.batch_mode else MAX_OUTPUT, step)
            self._size += size
            refuse_large(self._size, MAX_OUTPUTS, step, " of all steps together")
        except CallError as fault:
            status, told = "failed", {"error": str(fault)}
            if isinstance(fault, CodeRefused):
                self._note(f"step {step.id!r}: its code was not run. Say --allow-code to run it in the sandbox")
            # What the case itself asks for and cannot have is never passed over.
            if is_required or fault.code in ("code_not_allowed", "bad_step_option"):
                told["ended_case"] = True
                where = f"{self._flow.pipeline.path.name}: step {step.id!r}"
                raise CallError(fault.code, f"{where}: {fault.message}") from None
            return False
        except NotAsked as fault:
            status, told = "skipped", {"reason": str(fault)}
            return False
        else:
            self._outputs[step.id] = output
            status, told = "ok", {"output": shown}
            return True
        finally:
            entry.end(status, **told)

    async def _one(self, asked: _Asked, entry: StepEntry) -> Any:
        values = {**asked.weak, **asked.strong}
        calls = entry.begin(values)
        return await _timed(asked.part, values, self._apart(calls), asked.step)

    def _as_asked(self, ready: Ready) -> _Asked:
        """The step with the options that the case sets, what it does then, and what goes in."""
        step, part = ready.wired.step, ready.part
        given = self._given_to(step)
        options = self._options(step, part, given)
        if options:
            step = with_options(step, checked_options(step, options))
            part = ready.make(step)
        if isinstance(part, CallError):
            raise type(part)(part.code, part.message)
        known = None if part.takes is None else {*part.takes, *step.mapping, *(WHOLE if step.batch_mode else ())}
        extra = {key: value for key, value in given.items() if key not in options and (known is None or key in known)}
        if ready.wired.takes_inputs:
            weak = dict(self._inputs)
        else:
            weak = {name: self._inputs[name] for name in ready.input_names if name in self._inputs}
        strong: Record = {}
        for name, found in self._mapped(ready.wired, step, extra).items():
            (strong if name in step.mapping else weak)[name] = found
        return _Asked(step, part, weak, {**strong, **extra}, frozenset(extra))

    def _given_to(self, step: Step) -> Record:
        """What the case gives to a step under its id; under its output key too, as expectations may be."""
        if not self._given:
            return {}
        by_key = {} if step.output_key in self._flow.ids else self._given.get(step.output_key, {})
        return {**by_key, **self._given.get(step.id, {})}

    def _options(self, step: Step, part: Part | CallError, given: Record) -> Record:
        takes = part.takes if not isinstance(part, CallError) else None
        named = {*step.mapping, *(takes or ())}
        return {key: given[key] for key in options_of(step, given) if key in given and key not in named}

    def _mapped(self, wired: Wired, step: Step, extra: Record) -> Record:
        """What is mapped to the parameters of a step, but for what the case gives itself."""
        values: Record = {}
        for name, source in wired.sources.items():
            if name in extra:
                continue
            found = self._reach(source)
            is_there = found is not MISSING and not (source.kind == "items" and found is None)
            if is_there:
                values[name] = found
            elif name not in step.mapping:
                continue
            elif not step.required:
                raise NotAsked(f"the case has no {source}")
            elif source.kind == "input" and source.name not in self._flow.pipeline.optional:
                has = f"the case has {listed(self._inputs)}"
                raise CallError("missing_input", f"input_mapping.{name}: there is no input {source.name!r}; {has}")
            elif source.kind == "input" and wired.prompt is not None and name not in wired.prompt.prompt.defaults:
                values[name] = ""  # an optional input that the case does not have leaves its hole empty
        return values

    def _reach(self, source: Source) -> Any:
        """What a source gives in this case, or MISSING."""
        if source.kind == "constant":
            return source.value
        if source.kind == "inputs":
            return self._inputs
        if source.kind == "items":
            value: Any = self._items
        else:
            value = (self._inputs if source.kind == "input" else self._outputs).get(source.name, MISSING)
        if not source.path or value is MISSING:
            return value
        if source.is_each and isinstance(value, list):
            return [self._of_item(one, source) for one in value]
        return self._inside(value, source)

    def _of_item(self, item: Any, source: Source) -> Any:
        """A part of one item; one that does not have it fails by itself."""
        if isinstance(item, FailedItem):
            return item
        try:
            found = self._inside(item, source)
        except CallError as fault:
            return FailedItem(str(fault))
        return FailedItem(f"the item has nothing at {source.path!r}: {quote(item, 200)}") if found is MISSING else found

    def _inside(self, value: Any, source: Source) -> Any:
        if isinstance(value, str) and (read := object_in(value)) is not NO_JSON:
            value = read
        found = follow(value, source.path)
        if found is MISSING and source.kind == "step":
            message = f"step {source.name!r} gave nothing at {source.path!r}: {quote(value, 200)}"
            raise CallError("missing_part", message)
        return found

    def _apart(self, trace: list[Record]) -> Context:
        context = self._context
        return context.apart(trace) if context.apart else msgspec.structs.replace(context, trace=trace)

    # -- many items -----------------------------------------------------------------------------------

    async def _batch(self, wired: Wired, asked: _Asked, entry: StepEntry) -> list[Any]:
        step, part = asked.step, asked.part
        inputs = self._item_inputs(wired, asked, entry)
        size = 0

        def fitted(result: Any) -> Any:
            nonlocal size
            size += measured(result)[1]
            refuse_large(size, MAX_BATCH_OUTPUT, step, " of all items together")
            return result

        async def each(number: int, item: Record) -> Any:
            calls: list[Record] = []
            result: Any = FailedItem("given up")
            try:
                result = await _timed(part, item, self._apart(calls), step)
                refuse_large(measured(result)[1], MAX_OUTPUT, step)
            except CallError as fault:
                result = FailedItem(str(fault))
            finally:
                entry.end_item(number, calls, isinstance(result, FailedItem))
            return fitted(result)

        async def chunk(some: list[tuple[int, Record]]) -> list[Any]:
            assert isinstance(part, CodePart)
            calls: list[Record] = []
            done = await _in_one_process(part, [item for _, item in some], self._apart(calls))
            entry.end_item(some[0][0], calls, has_failed=False)
            for (number, _), one in zip(some, done, strict=True):
                entry.end_item(number, [], bool(one.error))
            return [fitted(FailedItem(one.error) if one.error else one.value) for one in done]

        # A time limit is for each item, so then each has a process of its own.
        if isinstance(part, CodePart) and step.timeout is None:
            results = await run_chunks(inputs, chunk, step)
        else:
            results = await run_each(inputs, each, step)
        self._tell_failed(step, results)
        return results

    def _item_inputs(self, wired: Wired, asked: _Asked, entry: StepEntry) -> list[Any]:
        """The inputs of each item, or the item itself where it failed in a step before."""
        lists = self._lists(wired, asked)
        strong = {name: value for name, value in asked.strong.items() if name not in lists}
        spread = {name for name in lists if name in WHOLE or wired.sources[name] == _ITEMS}
        inputs: list[Any] = []
        for row in rows_of(lists):
            if failed := next((one for one in row if isinstance(one, FailedItem)), None):
                inputs.append(failed)
                entry.failed_items += 1
                continue
            brought = spread_of(zip(lists, row, strict=True), spread, asked.part, asked.weak, strong)
            inputs.append({**asked.weak, **brought, **strong})
        entry.begin_batch({**asked.weak, **strong}, inputs)
        return inputs

    def _lists(self, wired: Wired, asked: _Asked) -> Record:
        """What goes through item by item; what the case gives itself, and is no list, goes to every item."""
        strong = {
            name: value
            for name, value in asked.strong.items()
            if name in WHOLE or isinstance(value, list) or name not in asked.given
        }
        lists = {
            name: value
            for name, value in strong.items()
            if name in WHOLE or (name in wired.sources and wired.sources[name].is_each)
        }
        if not lists and wired.is_fed_items and self._items is not None:
            lists = {"items": self._items}
        lists = lists or {name: value for name, value in strong.items() if self._may_go_through(wired, name, value)}
        if not lists:
            message = "there is no list to go through. Give the case batch_items, or map a list to 'items'"
            raise CallError("bad_items", message)
        return lists

    def _may_go_through(self, wired: Wired, name: str, value: Any) -> bool:
        """Whether a list that nobody calls items is to be gone through: one from elsewhere, no constant."""
        return isinstance(value, list) and name in wired.sources and wired.sources[name].kind != "constant"

    def _tell_failed(self, step: Step, results: list[Any]) -> None:
        """A batch of which nothing came has failed; where some items failed here, the user hears of it at the end."""
        failed = [one for one in results if isinstance(one, FailedItem)]
        lists = [output for output in self._outputs.values() if isinstance(output, list)]
        told = {id(one) for output in lists for one in output if isinstance(one, FailedItem)} if failed else ()
        own = [one for one in failed if id(one) not in told]
        for first in (own or failed)[:1]:
            if len(failed) == len(results):
                raise CallError("batch_failed", f"all of its {len(failed)} items failed; the first: {first['error']}")
            if own:
                self._note(f"step {step.id!r}: {len(own)} of {len(results)} items failed, such as: {first['error']}")

    # -- the end --------------------------------------------------------------------------------------

    def _output(self) -> Output:
        reached = {key: self._out(key, source) for key, source in self._flow.outputs.items()}
        value = {key: found for key, found in reached.items() if found is not MISSING}
        if "output" not in value and (plain := self._plain(value)) is not MISSING:
            value["output"] = plain
        steps = [ready.wired.step for ready in self._steps]
        totals = [one.id for one in steps if one.kind == "batch_aggregator" and one.id in self._outputs]
        return Output(value, self._outputs, self._outputs[totals[-1]] if totals else None)

    def _plain(self, value: Record) -> Any:
        """What a plain `expected_output` means: the evaluation target, or the only output there is."""
        target = self._flow.pipeline.evaluation_target
        if target:
            step = self._flow.makers.get(target, target)
            return value.get(target, self._outputs.get(step, MISSING))
        is_asked = any(check.where == "output" and check.kind in _PLAIN for check in self._context.case.checks)
        return next(iter(value.values())) if is_asked and len(value) == 1 else MISSING

    def _out(self, key: str, source: Source) -> Any:
        try:
            return self._reach(source)
        except CallError as fault:
            message = f"{self._flow.pipeline.path.name}: outputs: {key}: {fault.message}"
            raise CallError(fault.code, message) from None


async def _in_one_process(part: CodePart, items: list[Record], context: Context) -> list[Done]:
    try:
        return await part.many(items, context)
    except CallError:
        # One of them used too much, or ended the process; the others are not to suffer for it.
        return [await _alone(part, item, context) for item in items]


async def _alone(part: CodePart, item: Record, context: Context) -> Done:
    try:
        return Done(await part(item, context))
    except CallError as fault:
        return Done(error=str(fault))


async def _timed(part: Part, values: Record, context: Context, step: Step) -> Any:
    """What a step, or one item of a batch, gives within the time that the step allows."""
    # Code has its own clock, which does not run while it waits for a place in the sandbox.
    if step.timeout is None or part.keeps_time:
        return await part(values, context)
    start = perf_counter()
    try:
        async with asyncio.timeout(step.timeout) as limit:
            result = await part(values, context)
    except TimeoutError:
        if not limit.expired():
            raise
    else:
        # Users' code may block, or go on when it is told to stop: then it answers, but too late.
        if perf_counter() - start <= step.timeout and not limit.expired():
            return result
    raise CallError("timeout", f"no answer within {step.timeout:g} s") from None
