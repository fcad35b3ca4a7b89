"""The data flow of a pipeline: the source of each parameter and the dependencies between steps (PIPE-7)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

from msgspec import Struct, structs

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Severity
from evalloom.core.text import did_you_mean, list_names, quote
from evalloom.pipeline.file import FindingCollector, Pipeline, Step, place_in, steps_of
from evalloom.pipeline.prompts import StepPrompt, prompt_of

ITEMS = "batch_items"
_ROOT = lazy_pattern(r"[^.\[\]]+")
_BRACES = lazy_pattern(r"\{\{\s*(.*?)\s*\}\}")


class ValueSource(Struct, frozen=True):
    """The source of a value: an input by name, all inputs, the batch items, a step by id, or a constant."""

    kind: Literal["input", "inputs", "items", "step", "constant"]
    name: str = ""
    path: str = ""
    value: Any = None
    is_each: bool = False
    """Whether a batch step iterates over this list."""

    def __str__(self) -> str:
        if self.kind == "constant":
            return quote(self.value)
        return f"{ {'items': ITEMS, 'inputs': 'inputs'}.get(self.kind, self.name) }{self.path}"


class WiredStep(Struct, frozen=True):
    """A step with its sources. `needs` are the steps that it depends on."""

    step: Step
    sources: dict[str, ValueSource]
    needs: tuple[str, ...]
    prompt: StepPrompt | None = None
    takes_inputs: bool = False
    """Whether it receives all inputs of the pipeline: it is the first step and has no mapping."""
    is_fed_items: bool = False
    """Whether it iterates over the batch items of the case without a mapping."""


class Flow(Struct, frozen=True):
    """The steps of one variant in file order, and the sources of its outputs."""

    pipeline: Pipeline
    steps: tuple[WiredStep, ...]
    producers: dict[str, str]
    """The id of the step for each output key."""
    outputs: dict[str, ValueSource]
    """The sources of the outputs, by key."""

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(wired.step.id for wired in self.steps)

    @property
    def plain_output(self) -> str:
        """Where the output that a plain `expected_output` refers to is (PIPE-3); empty if there is none."""
        target = self.pipeline.evaluation_target
        if not target and len(self.outputs) == 1:
            return f"output.{next(iter(self.outputs))}"
        step = self.producers.get(target, target) if target else self.steps[-1].step.id if self.steps else ""
        keys = [key for key, source in self.outputs.items() if source == ValueSource("step", step)]
        if target in self.outputs or keys:
            return f"output.{target if target in self.outputs else keys[0]}"
        return f"steps.{step}" if step in self.ids else ""

    @property
    def unbatched_inputs(self) -> frozenset[str]:
        """The inputs that batch items cannot provide, because a step outside the batch reads them."""
        mapped = [(wired, source) for wired in self.steps for source in wired.sources.values()]
        return frozenset(
            source.name for wired, source in mapped if source.kind == "input" and not wired.step.batch_mode
        )


def wire(pipeline: Pipeline, collector: FindingCollector, variant: str = "") -> Flow:
    """Resolve the flow of a variant, and collect findings."""
    return _FlowBuilder(pipeline, collector, variant).flow()


class _FlowBuilder:
    """Resolves the flow of one variant."""

    def __init__(self, pipeline: Pipeline, collector: FindingCollector, variant: str) -> None:
        self._pipeline = pipeline
        self._collector = collector
        self._variant = variant
        self._steps = steps_of(pipeline, variant, collector)
        self._ids = [step.id for step in self._steps]
        self._producers = self._find_producers()
        self._are_items_named = any(
            isinstance(text, str) and _root_of(text) == ITEMS
            for step in self._steps
            for text in (step.mapping.values() if step.batch_mode else ())
        )

    def flow(self) -> Flow:
        first_batch = next((step.id for step in self._steps if step.batch_mode), "")
        wired = []
        for number, step in enumerate(self._steps):
            prompt = None
            if step.kind == "prompt":
                prompt = prompt_of(step, self._pipeline.path.parent, partial(self._report_step_finding, step))
            sources = dict(self._sources(step, number))
            if step.kind == "batch_aggregator":
                sources = self._items_of(step, number, sources)
            has_items = any(name in ("items", "item") or source.kind == "items" for name, source in sources.items())
            is_fed = step.id == first_batch and not has_items and not (self._are_items_named and step.mapping)
            if prompt is not None:
                sources |= self._implied(step, number, prompt, sources)
                self._warn_unused_names(step, prompt, sources)
            needs = self._needs(step, sources)
            wired.append(WiredStep(step, sources, needs, prompt, number == 0 and not step.mapping, is_fed))
        self._report_cycles(wired)
        return Flow(self._pipeline, tuple(wired), self._producers, self._outputs())

    # -- names ----------------------------------------------------------------------------------------

    def _find_producers(self) -> dict[str, str]:
        producers: dict[str, str] = {}
        for step in self._steps:
            other = producers.setdefault(step.output_key, step.id)
            if other != step.id:
                message = f"output_key: {step.output_key!r} is already the output key of step {other!r}"
                self._report_step_finding(step, "duplicate_output_key", "output_key", message)
        return producers

    def _sources(self, step: Step, number: int) -> Iterator[tuple[str, ValueSource]]:
        for param, written in step.mapping.items():
            if not isinstance(written, str):
                yield param, ValueSource("constant", value=written)
                continue
            source = self._resolve(written, number)
            if source is not None:
                yield param, self._mark_each(source, step)
                # A pipeline that declares no inputs accepts any name, so a misspelled output looks like an input.
                hint = did_you_mean(source.name, self._producers, cutoff=0.8)
                if source.kind == "input" and not self._pipeline.inputs and hint:
                    message = (
                        f"input_mapping.{param}: no step outputs {source.name!r}, so it is an input of the case{hint}"
                    )
                    self._report_step_finding(step, "unknown_source", "input_mapping", message, "warning")
                continue
            others = [*self._pipeline.input_names, *self._producers, *self._ids, ITEMS]
            names = [name for name in dict.fromkeys(others) if name not in (step.id, step.output_key)]
            hint = did_you_mean(_root_of(written), names) or f"; there are {list_names(names)}"
            message = f"input_mapping.{param}: no input or step provides {written!r}{hint}"
            self._report_step_finding(step, "unknown_source", "input_mapping", message)

    def _mark_each(self, source: ValueSource, step: Step) -> ValueSource:
        """Mark a source that a batch step iterates over: the batch items, or the output of a batch step."""
        is_list = source.kind == "items"
        if source.kind == "step":
            is_list = next(candidate for candidate in self._steps if candidate.id == source.name).batch_mode
        is_list = is_list and not source.path.startswith("[")
        return structs.replace(source, is_each=True) if step.batch_mode and is_list else source

    def _resolve(self, written: str, number: int) -> ValueSource | None:
        """Resolve a name in a mapping: outputs of earlier steps, then inputs, then outputs of later steps."""
        text = match[1] if (match := _BRACES.fullmatch(written)) else written.removeprefix("$")
        root, path = _root_of(text), text[len(_root_of(text)) :]
        inputs = self._pipeline.input_names
        if root in ("inputs", "steps") and root not in inputs and path[:1] == ".":
            return self._resolve_in(root, path[1:])
        producer = self._producers.get(text) or self._producers.get(root)
        path = "" if text in self._producers or text in inputs or text in self._ids else path
        if producer is not None and self._ids.index(producer) < number:
            return ValueSource("step", producer, path)
        if root in inputs or text in inputs:
            return ValueSource("input", text if text in inputs else root, path)
        if producer is not None and self._ids.index(producer) != number:
            return ValueSource("step", producer, path)
        others = self._ids[:number] + self._ids[number + 1 :]
        if text in others or root in others:
            return ValueSource("step", text if text in others else root, path)
        if root == ITEMS:
            return ValueSource("items", path=path)
        # A pipeline without declared inputs accepts any input; the step's own output is not an input.
        is_own = number < len(self._ids) and root in (self._ids[number], self._steps[number].output_key)
        return None if inputs or not root or is_own else ValueSource("input", root, path)

    def _resolve_in(self, root: str, rest: str) -> ValueSource | None:
        name, path = _root_of(rest), rest[len(_root_of(rest)) :]
        if root == "inputs":
            is_declared = not self._pipeline.inputs or name in self._pipeline.input_names
            return ValueSource("input", name, path) if is_declared else None
        step = name if name in self._ids else self._producers.get(name)
        return ValueSource("step", step, path) if step else None

    def _implied(
        self, step: Step, number: int, prompt: StepPrompt, sources: dict[str, ValueSource]
    ) -> dict[str, ValueSource]:
        """Resolve unmapped names in a prompt to inputs or outputs of earlier steps."""
        implied: dict[str, ValueSource] = {}
        for name in sorted(prompt.prompt.names - sources.keys()):
            producer = self._producers.get(name)
            if producer is not None and self._ids.index(producer) < number:
                implied[name] = ValueSource("step", producer)
            elif name in self._pipeline.input_names or not self._pipeline.inputs:
                implied[name] = ValueSource("input", name)
        return implied

    def _warn_unused_names(self, step: Step, prompt: StepPrompt, sources: dict[str, ValueSource]) -> None:
        """Warn about mappings that the prompt does not use, and placeholders that nothing fills."""
        names = prompt.prompt.names
        for name in step.mapping:
            if name not in names and not (step.batch_mode and name in ("items", "item")):
                hint = did_you_mean(name, sorted(names))
                message = f"input_mapping.{name}: the prompt has no placeholder {{{name}}}, so it has no effect{hint}"
                self._report_step_finding(step, "unknown_parameter", "input_mapping", message, "warning")
        if step.batch_mode:
            return  # items have fields of their own
        for name in sorted((prompt.prompt.variables | prompt.prompt.optional) - sources.keys()):
            hint = did_you_mean(name, [*sources, *self._pipeline.input_names, *self._producers])
            message = f"the prompt names {name!r}, but no mapping, input or default provides it{hint}"
            key = next((key for key in ("prompt", "flow", "agent") if key in step.spec), "id")
            self._report_step_finding(step, "unfilled_name", key, message, "warning")

    def _items_of(self, step: Step, number: int, sources: dict[str, ValueSource]) -> dict[str, ValueSource]:
        """Return the sources of an aggregator: mapped `items`, the previous batch step, or the batch items."""
        if "items" in sources:
            return sources
        if len(sources) == 1:
            return {"items": next(iter(sources.values()))}
        if sources or step.mapping:
            self._report_step_finding(
                step, "bad_aggregator", "input_mapping", "input_mapping: expected 'items', the list to aggregate"
            )
            return sources
        before = [earlier.id for earlier in self._steps[:number] if earlier.batch_mode]
        return {"items": ValueSource("step", before[-1]) if before else ValueSource("items")}

    # -- order ----------------------------------------------------------------------------------------

    def _needs(self, step: Step, sources: dict[str, ValueSource]) -> tuple[str, ...]:
        needs = [source.name for source in sources.values() if source.kind == "step"]
        for waited in step.depends_on:
            other = waited if waited in self._ids else self._producers.get(waited, "")
            if not other:
                message = f"depends_on: the pipeline has no step {waited!r}{did_you_mean(waited, self._ids)}"
                self._report_step_finding(step, "unknown_step", "depends_on", message)
            needs.append(other)
        return tuple(dict.fromkeys(filter(None, needs)))

    def _report_cycles(self, wired: list[WiredStep]) -> None:
        needs = {wired_step.step.id: set(wired_step.needs) for wired_step in wired}
        while free := [name for name, waited in needs.items() if not waited & needs.keys()]:
            for name in free:
                del needs[name]
        while needs:
            loop = _loop(needs)
            for name in loop:
                needs.pop(name, None)
            chain = " → ".join((*loop, loop[0]))
            step = next(candidate for candidate in self._steps if candidate.id == loop[0])
            message = f"waits for itself: {chain} (each needs the output of the next)"
            self._report_step_finding(step, "pipeline_cycle", "input_mapping", message)
            # A step that only depends on this cycle is not part of a cycle.
            while stuck := [name for name, waited in needs.items() if not waited & needs.keys()]:
                for name in stuck:
                    del needs[name]

    def _outputs(self) -> dict[str, ValueSource]:
        """Return the outputs of the pipeline; by default the outputs of all steps."""
        end = len(self._steps)
        names = [*self._producers, *self._pipeline.input_names]
        outputs: dict[str, ValueSource] = {}
        for number, out in enumerate(self._pipeline.outputs):
            source = self._resolve(out.source, end)
            if source is None or (source.kind == "input" and source.name not in self._pipeline.input_names):
                hint = did_you_mean(_root_of(out.source), names) or f"; there are {list_names(names)}"
                self._collector.report_finding(
                    "unknown_output", ("outputs", number), f"outputs: no step outputs {out.source!r}{hint}"
                )
            else:
                outputs[out.key] = source
        target = self._pipeline.evaluation_target
        if target and target not in (*self._producers, *outputs, *self._ids):
            message = (
                f"evaluation_target: no step outputs {target!r}{did_you_mean(target, [*self._producers, *outputs])}"
            )
            self._collector.report_finding("unknown_output", ("evaluation_target",), message)
        return (
            outputs if self._pipeline.outputs else {key: ValueSource("step", id) for key, id in self._producers.items()}
        )

    # -- findings -------------------------------------------------------------------------------------

    def _report_step_finding(self, step: Step, code: str, key: str, message: str, severity: Severity = "error") -> None:
        where = place_in(self._pipeline, step.id, key, self._variant)
        self._collector.report_finding(code, where, f"step {step.id!r}: {message}", severity)


def _root_of(text: str) -> str:
    match = _ROOT.match(text)
    return match[0] if match else ""


def _loop(needs: dict[str, set[str]]) -> list[str]:
    """Return the steps of one cycle, each of which depends on the next."""
    name = next(iter(needs))
    chain: list[str] = []
    while name not in chain:
        chain.append(name)
        name = next(other for other in sorted(needs[name]) if other in needs)
    return chain[chain.index(name) :]
