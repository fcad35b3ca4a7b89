"""Runs one case through a pipeline: starts each step when its inputs are ready, and traces it (PIPE-7, PIPE-8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.errors import CallError
from evalloom.core.model import Context, Output, Record
from evalloom.core.sandbox import Done
from evalloom.core.text import list_names, quote
from evalloom.llms.answer_json import NO_JSON, object_in
from evalloom.pipeline.aggregate import FailedItem
from evalloom.pipeline.batch_step import WHOLE, rows_of, run_chunks, run_each, spread_of
from evalloom.pipeline.file import Step, with_options
from evalloom.pipeline.flow import Flow, Source, Wired
from evalloom.pipeline.steps import MAX_OUTPUT, CodePart, CodeRefused, Part, checked_options, options_of
from evalloom.pipeline.trace import MAX_BATCH_OUTPUT, MAX_OUTPUTS, StepEntry, measured, refuse_large
from evalloom.targets.template import MISSING, follow

_ITEMS = Source("items", is_each=True)
_PLAIN = ("structural", "equals", "contains", "regex")
"""The kinds of checks that apply to the plain output."""


class Ready(Struct, frozen=True):
    """A step that can be run: `make` rebuilds its part with other options, `followers` depend on it."""

    wired: Wired
    part: Part | CallError
    make: Callable[[Step], Part]
    input_names: frozenset[str]
    """The inputs of the pipeline that are passed by name."""
    followers: tuple[int, ...]
    head: Record
    """The constant fields of its trace entries."""


class Assembled(Struct, frozen=True):
    """The steps of one variant, ready to be run."""

    flow: Flow
    steps: tuple[Ready, ...]


class StepSkipped(Exception):
    """An optional step is skipped, because the case has no input for it."""


class _StepCall(Struct, frozen=True):
    """A step with the options and inputs of one case.

    Fields of a batch item override `weak` inputs, which match by name only, but not `strong` inputs, which are mapped
    or set by the case.
    """

    step: Step
    part: Part
    weak: Record
    strong: Record
    set_by_case: frozenset[str]
    """The names of the inputs that the case sets for this step."""


class Walk:
    """Runs one case; `note` receives messages to show when the batch ends."""

    def __init__(self, assembled: Assembled, inputs: Record, context: Context, note: Callable[[str], None]) -> None:
        self._steps = assembled.steps
        self._flow = assembled.flow
        self._context = context
        self._note = note
        meta = context.case.meta
        self._step_inputs: Record = meta.get("step_inputs") or {}
        self._items: list[Any] | None = meta.get("batch_items")
        self._inputs = self._checked(inputs)
        self._outputs: Record = {}
        self._size = 0
        self._waiting = [len(ready.wired.needs) for ready in self._steps]
        self._skipped: dict[int, str] = {}

    async def go(self) -> Output:
        """Run every step and return the output. Raises CallError, which names the failed step."""
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
                # In file order, so that the same step is reported when two fail.
                ordered = sorted(ended, key=tasks.__getitem__)
                ready = [after for task in ordered for after in self._after(tasks.pop(task), task.result())]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._output()

    def _checked(self, inputs: Record) -> Record:
        """Return the inputs with the defaults of the pipeline. Raises CallError for a missing input."""
        declared = self._flow.pipeline.inputs
        brought = {*inputs, *(name for step_inputs in self._step_inputs.values() for name in step_inputs)}
        missing = [
            declaration.name for declaration in declared if declaration.required and declaration.name not in brought
        ]
        if self._items:
            missing = [name for name in missing if name in self._flow.unbatched_inputs]
        if missing:
            has = f"the case has {list_names(inputs)}"
            raise CallError("missing_input", f"{self._flow.pipeline.path.name}: needs the input {missing[0]!r}; {has}")
        defaults = {
            declaration.name: declaration.default
            for declaration in declared
            if declaration.has_default and declaration.name not in inputs
        }
        return {**defaults, **inputs} if defaults else inputs

    def _after(self, number: int, has_output: bool) -> list[int]:
        """Return the steps that can run now; skip those whose inputs will never exist, and their followers."""
        free: list[int] = []
        ended = [(number, has_output)]
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
        """Run a step and return whether it has an output. Raises CallError if a required step fails."""
        ready = self._steps[number]
        step = ready.wired.step
        entry = StepEntry(ready.head, self._context.trace)
        is_required = step.required
        status: str = "given up"
        details: Record = {}
        try:
            call = self._step_call(ready)
            is_required = call.step.required
            output = await (self._batch(ready.wired, call, entry) if step.batch_mode else self._single(call, entry))
            shown, size = measured(output)
            refuse_large(size, MAX_BATCH_OUTPUT if step.batch_mode else MAX_OUTPUT, step)
            self._size += size
            refuse_large(self._size, MAX_OUTPUTS, step, " of all steps together")
        except CallError as error:
            status, details = "failed", {"error": str(error)}
            if isinstance(error, CodeRefused):
                self._note(f"step {step.id!r}: its code was not run. Pass --allow-code to run it in the sandbox")
            # An option that the case sets and that cannot be applied always fails the case.
            if is_required or error.code in ("code_not_allowed", "bad_step_option"):
                details["ended_case"] = True
                where = f"{self._flow.pipeline.path.name}: step {step.id!r}"
                raise CallError(error.code, f"{where}: {error.message}") from None
            return False
        except StepSkipped as error:
            status, details = "skipped", {"reason": str(error)}
            return False
        else:
            self._outputs[step.id] = output
            status, details = "ok", {"output": shown}
            return True
        finally:
            entry.end(status, **details)

    async def _single(self, call: _StepCall, entry: StepEntry) -> Any:
        values = {**call.weak, **call.strong}
        calls = entry.begin(values)
        return await _timed(call.part, values, self._apart(calls), call.step)

    def _step_call(self, ready: Ready) -> _StepCall:
        """Apply the options and inputs that the case sets for a step."""
        step, part = ready.wired.step, ready.part
        step_inputs = self._step_inputs_of(step)
        options = self._options(step, part, step_inputs)
        if options:
            step = with_options(step, checked_options(step, options))
            part = ready.make(step)
        if isinstance(part, CallError):
            raise type(part)(part.code, part.message)
        accepted = None if part.takes is None else {*part.takes, *step.mapping, *(WHOLE if step.batch_mode else ())}
        extra = {
            key: value
            for key, value in step_inputs.items()
            if key not in options and (accepted is None or key in accepted)
        }
        if ready.wired.takes_inputs:
            weak = dict(self._inputs)
        else:
            weak = {name: self._inputs[name] for name in ready.input_names if name in self._inputs}
        strong: Record = {}
        for name, value in self._mapped(ready.wired, step, extra).items():
            (strong if name in step.mapping else weak)[name] = value
        return _StepCall(step, part, weak, {**strong, **extra}, frozenset(extra))

    def _step_inputs_of(self, step: Step) -> Record:
        """Return the step_inputs of a case for a step, by id or by output key."""
        if not self._step_inputs:
            return {}
        by_key = {} if step.output_key in self._flow.ids else self._step_inputs.get(step.output_key, {})
        return {**by_key, **self._step_inputs.get(step.id, {})}

    def _options(self, step: Step, part: Part | CallError, step_inputs: Record) -> Record:
        takes = part.takes if not isinstance(part, CallError) else None
        named = {*step.mapping, *(takes or ())}
        return {
            key: step_inputs[key] for key in options_of(step, step_inputs) if key in step_inputs and key not in named
        }

    def _mapped(self, wired: Wired, step: Step, extra: Record) -> Record:
        """Return the mapped inputs of a step, except those that the case sets."""
        values: Record = {}
        for name, source in wired.sources.items():
            if name in extra:
                continue
            value = self._reach(source)
            is_there = value is not MISSING and not (source.kind == "items" and value is None)
            if is_there:
                values[name] = value
            elif name not in step.mapping:
                continue
            elif not step.required:
                raise StepSkipped(f"the case has no {source}")
            elif source.kind == "input" and source.name not in self._flow.pipeline.optional:
                has = f"the case has {list_names(self._inputs)}"
                raise CallError("missing_input", f"input_mapping.{name}: there is no input {source.name!r}; {has}")
            elif source.kind == "input" and wired.prompt is not None and name not in wired.prompt.prompt.defaults:
                values[name] = ""  # a missing optional input renders as an empty text
        return values

    def _reach(self, source: Source) -> Any:
        """Return the value of a source in this case, or MISSING."""
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
            return [self._of_item(item, source) for item in value]
        return self._inside(value, source)

    def _of_item(self, item: Any, source: Source) -> Any:
        """Return a part of one item, or a FailedItem if it has none."""
        if isinstance(item, FailedItem):
            return item
        try:
            part = self._inside(item, source)
        except CallError as error:
            return FailedItem(str(error))
        return FailedItem(f"the item has nothing at {source.path!r}: {quote(item, 200)}") if part is MISSING else part

    def _inside(self, value: Any, source: Source) -> Any:
        if isinstance(value, str) and (read := object_in(value)) is not NO_JSON:
            value = read
        part = follow(value, source.path)
        if part is MISSING and source.kind == "step":
            message = f"step {source.name!r} returned nothing at {source.path!r}: {quote(value, 200)}"
            raise CallError("missing_part", message)
        return part

    def _apart(self, trace: list[Record]) -> Context:
        context = self._context
        return context.apart(trace) if context.apart else msgspec.structs.replace(context, trace=trace)

    # -- many items -----------------------------------------------------------------------------------

    async def _batch(self, wired: Wired, call: _StepCall, entry: StepEntry) -> list[Any]:
        step, part = call.step, call.part
        inputs = self._item_inputs(wired, call, entry)
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
            except CallError as error:
                result = FailedItem(str(error))
            finally:
                entry.end_item(number, calls, isinstance(result, FailedItem))
            return fitted(result)

        async def chunk(some: list[tuple[int, Record]]) -> list[Any]:
            assert isinstance(part, CodePart)
            calls: list[Record] = []
            done = await _run_together(part, [item for _, item in some], self._apart(calls))
            entry.end_item(some[0][0], calls, has_failed=False)
            for (number, _), done_item in zip(some, done, strict=True):
                entry.end_item(number, [], bool(done_item.error))
            return [fitted(FailedItem(done_item.error) if done_item.error else done_item.value) for done_item in done]

        # A time limit applies to each item, so each item then gets its own process.
        if isinstance(part, CodePart) and step.timeout is None:
            results = await run_chunks(inputs, chunk, step)
        else:
            results = await run_each(inputs, each, step)
        self._report_failed_items(step, results)
        return results

    def _item_inputs(self, wired: Wired, call: _StepCall, entry: StepEntry) -> list[Any]:
        """Return the inputs of each item, or the FailedItem of an earlier step."""
        lists = self._lists(wired, call)
        strong = {name: value for name, value in call.strong.items() if name not in lists}
        spread = {name for name in lists if name in WHOLE or wired.sources[name] == _ITEMS}
        inputs: list[Any] = []
        for row in rows_of(lists):
            if failed := next((item for item in row if isinstance(item, FailedItem)), None):
                inputs.append(failed)
                entry.failed_items += 1
                continue
            brought = spread_of(zip(lists, row, strict=True), spread, call.part, call.weak, strong)
            inputs.append({**call.weak, **brought, **strong})
        entry.begin_batch({**call.weak, **strong}, inputs)
        return inputs

    def _lists(self, wired: Wired, call: _StepCall) -> Record:
        """Return the lists to iterate over; values that the case sets and that are not lists go to every item."""
        strong = {
            name: value
            for name, value in call.strong.items()
            if name in WHOLE or isinstance(value, list) or name not in call.set_by_case
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
            message = "there is no list to iterate over. Give the case batch_items, or map a list to 'items'"
            raise CallError("bad_items", message)
        return lists

    def _may_go_through(self, wired: Wired, name: str, value: Any) -> bool:
        """Return whether to iterate over a list that is not named `items`: a mapped list, not a constant."""
        return isinstance(value, list) and name in wired.sources and wired.sources[name].kind != "constant"

    def _report_failed_items(self, step: Step, results: list[Any]) -> None:
        """Raise CallError if all items failed; note the failures of this step otherwise."""
        failed = [item for item in results if isinstance(item, FailedItem)]
        lists = [output for output in self._outputs.values() if isinstance(output, list)]
        reported = {id(item) for output in lists for item in output if isinstance(item, FailedItem)} if failed else ()
        own = [item for item in failed if id(item) not in reported]
        for first in (own or failed)[:1]:
            if len(failed) == len(results):
                raise CallError("batch_failed", f"all of its {len(failed)} items failed; the first: {first['error']}")
            if own:
                self._note(f"step {step.id!r}: {len(own)} of {len(results)} items failed, such as: {first['error']}")

    # -- the end --------------------------------------------------------------------------------------

    def _output(self) -> Output:
        reached = {key: self._out(key, source) for key, source in self._flow.outputs.items()}
        value = {key: output for key, output in reached.items() if output is not MISSING}
        if "output" not in value and (plain := self._plain(value)) is not MISSING:
            value["output"] = plain
        steps = [ready.wired.step for ready in self._steps]
        totals = [step.id for step in steps if step.kind == "batch_aggregator" and step.id in self._outputs]
        return Output(value, self._outputs, self._outputs[totals[-1]] if totals else None)

    def _plain(self, value: Record) -> Any:
        """Return the plain output: the evaluation target, or the only output."""
        target = self._flow.pipeline.evaluation_target
        if target:
            step = self._flow.makers.get(target, target)
            return value.get(target, self._outputs.get(step, MISSING))
        is_checked = any(check.where == "output" and check.kind in _PLAIN for check in self._context.case.checks)
        return next(iter(value.values())) if is_checked and len(value) == 1 else MISSING

    def _out(self, key: str, source: Source) -> Any:
        try:
            return self._reach(source)
        except CallError as error:
            message = f"{self._flow.pipeline.path.name}: outputs: {key}: {error.message}"
            raise CallError(error.code, message) from None


async def _run_together(part: CodePart, items: list[Record], context: Context) -> list[Done]:
    try:
        return await part.many(items, context)
    except CallError:
        # One item exceeded a limit or ended the process; run each item alone to isolate it.
        return [await _run_alone(part, item, context) for item in items]


async def _run_alone(part: CodePart, item: Record, context: Context) -> Done:
    try:
        return Done(await part(item, context))
    except CallError as error:
        return Done(error=str(error))


async def _timed(part: Part, values: Record, context: Context, step: Step) -> Any:
    """Run a part within the time limit of its step."""
    # Code measures its own time, excluding the wait for a sandbox.
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
        # Users' code may block or ignore cancellation, and then return too late.
        if perf_counter() - start <= step.timeout and not limit.expired():
            return result
    raise CallError("timeout", f"no answer within {step.timeout:g} s") from None
