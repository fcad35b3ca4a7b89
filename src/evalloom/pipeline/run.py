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
from evalloom.pipeline.file import Step, with_options
from evalloom.pipeline.flow import Flow, ValueSource, WiredStep
from evalloom.pipeline.record import expects_plain_output, has_implied_inputs
from evalloom.pipeline.steps import (
    MAX_OUTPUT,
    WHOLE,
    CodeRefused,
    CodeRunner,
    StepRunner,
    checked_options,
    options_of,
    rows_of,
    run_chunks,
    run_each,
    spread_of,
)
from evalloom.pipeline.trace import MAX_BATCH_OUTPUT, MAX_OUTPUTS, StepEntry, check_size, measured
from evalloom.targets.template import MISSING, follow

_ITEMS = ValueSource("items", is_each=True)
_PLAIN_OUTPUT_CHECKS = ("structural", "equals", "contains", "regex")
"""The kinds of checks that apply to the plain output."""


class ReadyStep(Struct, frozen=True):
    """A step that can be run: `make` rebuilds its runner with other options, `followers` depend on it."""

    wired: WiredStep
    runner: StepRunner | CallError
    make: Callable[[Step], StepRunner]
    input_names: frozenset[str]
    """The inputs of the pipeline that are passed by name."""
    followers: tuple[int, ...]
    head: Record
    """The constant fields of its trace entries."""


class AssembledPipeline(Struct, frozen=True):
    """The steps of one variant, ready to be run."""

    flow: Flow
    steps: tuple[ReadyStep, ...]


class StepSkipped(Exception):
    """Raised to skip an optional step when the case has no input for it."""


class _StepCall(Struct, frozen=True):
    """A step with the options and inputs of one case.

    Fields of a batch item override `weak` inputs, which match by name only, but not `strong` inputs, which are mapped
    or set by the case.
    """

    step: Step
    runner: StepRunner
    weak: Record
    strong: Record
    set_by_case: frozenset[str]
    """The names of the inputs that the case sets for this step."""


class PipelineRun:
    """Runs one case through a pipeline; `note` receives messages to show when the batch ends."""

    def __init__(
        self, assembled: AssembledPipeline, inputs: Record, context: Context, note: Callable[[str], None]
    ) -> None:
        self._steps = assembled.steps
        self._flow = assembled.flow
        self._context = context
        self._note = note
        meta = context.case.meta
        self._step_inputs: Record = meta.get("step_inputs") or {}
        self._items: list[Any] | None = meta.get("batch_items")
        self._inputs = self._with_defaults(inputs)
        self._outputs: Record = {}
        self._size = 0
        self._waiting = [len(ready.wired.needs) for ready in self._steps]
        self._skipped: dict[int, str] = {}

    async def run(self) -> Output:
        """Run every step and return the output. Raises CallError, which names the failed step."""
        tasks: dict[asyncio.Task[bool], int] = {}
        # The numbers of the steps whose inputs are ready.
        ready = [number for number, left in enumerate(self._waiting) if not left]
        try:
            while ready or tasks:
                if len(ready) == 1 and not tasks:
                    # A chain of steps, the usual pipeline, needs no tasks.
                    number = ready.pop()
                    ready += self._steps_after(number, await self._run_step(number))
                    continue
                tasks |= {asyncio.ensure_future(self._run_step(number)): number for number in ready}
                ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                # In file order, so that the same step is reported when two fail.
                ordered = sorted(ended, key=tasks.__getitem__)
                ready = [follower for task in ordered for follower in self._steps_after(tasks.pop(task), task.result())]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._output()

    def _with_defaults(self, inputs: Record) -> Record:
        """Add the defaults of the pipeline to the inputs. Raises CallError for a missing input."""
        declared = self._flow.pipeline.inputs
        if declared and has_implied_inputs(self._context.case.raw):
            # PIPE-3: of the fields beside those of v2.0, only the declared inputs are inputs.
            names = self._flow.pipeline.input_names
            inputs = {name: value for name, value in inputs.items() if name in names}
        available = {*inputs, *(name for step_inputs in self._step_inputs.values() for name in step_inputs)}
        missing = [
            declaration.name for declaration in declared if declaration.required and declaration.name not in available
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

    def _steps_after(self, number: int, has_output: bool) -> list[int]:
        """Return the steps that can run now; skip those whose inputs will never exist, and their followers."""
        startable: list[int] = []
        ended = [(number, has_output)]
        while ended:
            ended_step, has_output = ended.pop()
            for follower in self._steps[ended_step].followers:
                if not has_output:
                    self._skipped.setdefault(follower, self._steps[ended_step].wired.step.id)
                self._waiting[follower] -= 1
                if self._waiting[follower]:
                    continue
                if follower in self._skipped:
                    reason = f"needs step {self._skipped[follower]!r}, which has no output"
                    StepEntry(self._steps[follower].head, self._context.trace).end("skipped", reason=reason)
                    ended.append((follower, False))
                else:
                    startable.append(follower)
        return startable

    # -- one step -------------------------------------------------------------------------------------

    async def _run_step(self, number: int) -> bool:
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
            if step.batch_mode:
                output: Any = await self._run_batch(ready.wired, call, entry)
            else:
                values = {**call.weak, **call.strong}
                output = await _run_timed(call.runner, values, self._with_trace(entry.begin(values)), call.step)
            shown, size = measured(output)
            check_size(size, MAX_BATCH_OUTPUT if step.batch_mode else MAX_OUTPUT, step)
            self._size += size
            check_size(self._size, MAX_OUTPUTS, step, " of all steps together")
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

    def _step_call(self, ready: ReadyStep) -> _StepCall:
        """Apply the options and inputs that the case sets for a step."""
        step, runner = ready.wired.step, ready.runner
        # A case may name a step by its id or by its output key; the id wins.
        by_key = {} if step.output_key in self._flow.ids else self._step_inputs.get(step.output_key, {})
        step_inputs = {**by_key, **self._step_inputs.get(step.id, {})}
        takes = None if isinstance(runner, CallError) else runner.takes
        named = {*step.mapping, *(takes or ())}
        # A key that the step also takes as an input is an input, not an option.
        options = {
            key: step_inputs[key] for key in options_of(step, step_inputs) if key in step_inputs and key not in named
        }
        if options:
            step = with_options(step, checked_options(step, options))
            runner = ready.make(step)
        if isinstance(runner, CallError):
            raise type(runner)(runner.code, runner.message)
        accepted = None if runner.takes is None else {*runner.takes, *step.mapping, *(WHOLE if step.batch_mode else ())}
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
        return _StepCall(step, runner, weak, {**strong, **extra}, frozenset(extra))

    def _mapped(self, wired: WiredStep, step: Step, extra: Record) -> Record:
        """Return the mapped inputs of a step, except those that the case sets."""
        values: Record = {}
        for name, source in wired.sources.items():
            if name in extra:
                continue
            value = self._value_of(source)
            if value is not MISSING and not (source.kind == "items" and value is None):
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

    def _value_of(self, source: ValueSource) -> Any:
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
            return [self._item_part(item, source) for item in value]
        return self._part_of(value, source)

    def _item_part(self, item: Any, source: ValueSource) -> Any:
        """Return a part of one item, or a FailedItem if it has none."""
        if isinstance(item, FailedItem):
            return item
        try:
            part = self._part_of(item, source)
        except CallError as error:
            return FailedItem(str(error))
        return FailedItem(f"the item has nothing at {source.path!r}: {quote(item, 200)}") if part is MISSING else part

    def _part_of(self, value: Any, source: ValueSource) -> Any:
        """Follow the path of a source into a value; a text that contains a JSON object is parsed first."""
        if isinstance(value, str) and (parsed := object_in(value)) is not NO_JSON:
            value = parsed
        part = follow(value, source.path)
        if part is MISSING and source.kind == "step":
            message = f"step {source.name!r} returned nothing at {source.path!r}: {quote(value, 200)}"
            raise CallError("missing_part", message)
        return part

    def _with_trace(self, trace: list[Record]) -> Context:
        """Return the context with a trace of its own, so that concurrent calls do not mix."""
        context = self._context
        return context.apart(trace) if context.apart else msgspec.structs.replace(context, trace=trace)

    # -- many items -----------------------------------------------------------------------------------

    async def _run_batch(self, wired: WiredStep, call: _StepCall, entry: StepEntry) -> list[Any]:
        step, runner = call.step, call.runner
        inputs = self._item_inputs(wired, call, entry)
        size = 0

        def within_limit(result: Any) -> Any:
            nonlocal size
            size += measured(result)[1]
            check_size(size, MAX_BATCH_OUTPUT, step, " of all items together")
            return result

        async def each(number: int, item: Record) -> Any:
            calls: list[Record] = []
            result: Any = FailedItem("given up")
            try:
                result = await _run_timed(runner, item, self._with_trace(calls), step)
                check_size(measured(result)[1], MAX_OUTPUT, step)
            except CallError as error:
                result = FailedItem(str(error))
            finally:
                entry.end_item(number, calls, isinstance(result, FailedItem))
            return within_limit(result)

        async def chunk(items: list[tuple[int, Record]]) -> list[Any]:
            assert isinstance(runner, CodeRunner)
            calls: list[Record] = []
            outcomes = await _run_together(runner, [item for _, item in items], self._with_trace(calls))
            entry.end_item(items[0][0], calls, has_failed=False)
            for (number, _), outcome in zip(items, outcomes, strict=True):
                entry.end_item(number, [], bool(outcome.error))
            results = (FailedItem(outcome.error) if outcome.error else outcome.value for outcome in outcomes)
            return [within_limit(result) for result in results]

        # A time limit applies to each item, so each item then gets its own process.
        if isinstance(runner, CodeRunner) and step.timeout is None:
            results = await run_chunks(inputs, chunk, step)
        else:
            results = await run_each(inputs, each, step)
        self._report_failed_items(step, results)
        return results

    def _item_inputs(self, wired: WiredStep, call: _StepCall, entry: StepEntry) -> list[Any]:
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
            item_inputs = spread_of(zip(lists, row, strict=True), spread, call.runner, call.weak, strong)
            inputs.append({**call.weak, **item_inputs, **strong})
        entry.begin_batch({**call.weak, **strong}, inputs)
        return inputs

    def _lists(self, wired: WiredStep, call: _StepCall) -> Record:
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
        # Without a list named `items`, iterate over every mapped list that is not a constant.
        lists = lists or {
            name: value
            for name, value in strong.items()
            if isinstance(value, list) and name in wired.sources and wired.sources[name].kind != "constant"
        }
        if not lists:
            message = "there is no list to iterate over. Give the case batch_items, or map a list to 'items'"
            raise CallError("bad_items", message)
        return lists

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

    # -- output ---------------------------------------------------------------------------------------

    def _output(self) -> Output:
        value: Record = {}
        for key, source in self._flow.outputs.items():
            try:
                output = self._value_of(source)
            except CallError as error:
                message = f"{self._flow.pipeline.path.name}: outputs: {key}: {error.message}"
                raise CallError(error.code, message) from None
            if output is not MISSING:
                value[key] = output
        steps = [ready.wired.step for ready in self._steps]
        aggregators = [step.id for step in steps if step.kind == "batch_aggregator" and step.id in self._outputs]
        aggregation = self._outputs[aggregators[-1]] if aggregators else None
        return Output(value, self._outputs, aggregation, plain=self._plain_output(value))

    def _plain_output(self, value: Record) -> str:
        """Return where the plain output is, if the case or the pipeline asks for one (PIPE-3)."""
        where, case = self._flow.plain_output, self._context.case
        checks = [check for check in case.checks if check.where == "output"]
        if not self._flow.pipeline.evaluation_target:
            if len(self._flow.outputs) == 1:
                is_wanted = any(check.kind in _PLAIN_OUTPUT_CHECKS for check in checks)
            else:
                # Other checks on `output` mean the whole object.
                is_wanted = expects_plain_output(case.raw) or any(
                    check.kind in ("structural", "equals") and not isinstance(check.expected, dict) for check in checks
                )
            if not is_wanted:
                return ""
        root, _, name = where.partition(".")
        return where if name in (value if root == "output" else self._outputs) else ""


async def _run_together(runner: CodeRunner, items: list[Record], context: Context) -> list[Done]:
    try:
        return await runner.many(items, context)
    except CallError:
        # One item exceeded a limit or ended the process; run each item alone to isolate it.
        results = []
        for item in items:
            try:
                results.append(Done(await runner(item, context)))
            except CallError as error:
                results.append(Done(error=str(error)))
        return results


async def _run_timed(runner: StepRunner, values: Record, context: Context, step: Step) -> Any:
    """Run a step within its time limit."""
    # Code measures its own time, excluding the wait for a sandbox.
    if step.timeout is None or runner.enforces_timeout:
        return await runner(values, context)
    start = perf_counter()
    try:
        async with asyncio.timeout(step.timeout) as limit:
            result = await runner(values, context)
    except TimeoutError:
        if not limit.expired():
            raise
    else:
        # Users' code may block or ignore cancellation, and then return too late.
        if perf_counter() - start <= step.timeout and not limit.expired():
            return result
    raise CallError("timeout", f"no answer within {step.timeout:g} s") from None
