"""The data flow of a pipeline: the source of each parameter and the dependencies between steps (PIPE-7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


class Source(Struct, frozen=True):
    """The source of a parameter: an input by name, all inputs, the batch items, a step by id, or a constant."""

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


class Wired(Struct, frozen=True):
    """A step with its sources. `needs` are the steps that it depends on."""

    step: Step
    sources: dict[str, Source]
    needs: tuple[str, ...]
    prompt: StepPrompt | None = None
    takes_inputs: bool = False
    """Whether it receives all inputs of the pipeline: it is the first step and has no mapping."""
    is_fed_items: bool = False
    """Whether it iterates over the batch items of the case without a mapping."""


class Flow(Struct, frozen=True):
    """The steps of one variant in file order, and the sources of its outputs."""

    pipeline: Pipeline
    steps: tuple[Wired, ...]
    makers: dict[str, str]
    """The id of the step for each output key."""
    outputs: dict[str, Source]
    """The sources of the outputs, by key."""

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(wired.step.id for wired in self.steps)

    @property
    def unbatched_inputs(self) -> frozenset[str]:
        """The inputs that batch items cannot provide, because a step outside the batch reads them."""
        mapped = [(wired, source) for wired in self.steps for source in wired.sources.values()]
        return frozenset(
            source.name for wired, source in mapped if source.kind == "input" and not wired.step.batch_mode
        )


def wire(pipeline: Pipeline, collector: FindingCollector, variant: str = "") -> Flow:
    """Resolve the flow of a variant, and collect findings."""
    return _Wiring(pipeline, collector, variant).flow()


class _Wiring:
    """Resolves the flow of one variant."""

    def __init__(self, pipeline: Pipeline, collector: FindingCollector, variant: str) -> None:
        self._pipeline = pipeline
        self._collector = collector
        self._variant = variant
        self._steps = steps_of(pipeline, variant, collector)
        self._ids = [step.id for step in self._steps]
        self._makers = self._find_makers()
        self._are_items_named = any(
            isinstance(text, str) and _root_of(text) == ITEMS
            for step in self._steps
            for text in (step.mapping.values() if step.batch_mode else ())
        )

    def flow(self) -> Flow:
        first_batch = next((step.id for step in self._steps if step.batch_mode), "")
        wired = []
        for number, step in enumerate(self._steps):
            prompt = (
                prompt_of(step, self._pipeline.path.parent, self._finding_adder(step))
                if step.kind == "prompt"
                else None
            )
            sources = dict(self._sources(step, number))
            if step.kind == "batch_aggregator":
                sources = self._items_of(step, number, sources)
            has_items = any(name in ("items", "item") or source.kind == "items" for name, source in sources.items())
            is_fed = step.id == first_batch and not has_items and not (self._are_items_named and step.mapping)
            if prompt is not None:
                sources |= self._implied(step, number, prompt, sources)
                self._doubt_holes(step, prompt, sources)
            needs = self._needs(step, sources)
            wired.append(Wired(step, sources, needs, prompt, number == 0 and not step.mapping, is_fed))
        self._refuse_cycles(wired)
        return Flow(self._pipeline, tuple(wired), self._makers, self._outputs())

    # -- names ----------------------------------------------------------------------------------------

    def _find_makers(self) -> dict[str, str]:
        makers: dict[str, str] = {}
        for step in self._steps:
            other = makers.setdefault(step.output_key, step.id)
            if other != step.id:
                message = f"output_key: {step.output_key!r} is already the output key of step {other!r}"
                self._report_finding("duplicate_output_key", step, "output_key", message)
        return makers

    def _sources(self, step: Step, number: int) -> Iterator[tuple[str, Source]]:
        for param, written in step.mapping.items():
            if not isinstance(written, str):
                yield param, Source("constant", value=written)
                continue
            source = self._resolve(written, number)
            if source is not None:
                yield param, self._marked(source, step)
                self._doubt_undeclared(source, param, step)
                continue
            others = [*self._pipeline.input_names, *self._makers, *self._ids, ITEMS]
            names = [name for name in dict.fromkeys(others) if name not in (step.id, step.output_key)]
            hint = did_you_mean(_root_of(written), names) or f"; there are {list_names(names)}"
            message = f"input_mapping.{param}: no input and no step gives {written!r}{hint}"
            self._report_finding("unknown_source", step, "input_mapping", message)

    def _marked(self, source: Source, step: Step) -> Source:
        """Mark a source that a batch step iterates over: the batch items, or the output of a batch step."""
        is_list = source.kind == "items"
        if source.kind == "step":
            is_list = next(candidate for candidate in self._steps if candidate.id == source.name).batch_mode
        is_list = is_list and not source.path.startswith("[")
        return structs.replace(source, is_each=True) if step.batch_mode and is_list else source

    def _doubt_undeclared(self, source: Source, param: str, step: Step) -> None:
        """Warn if a pipeline declares no inputs and a name resembles an output."""
        hint = did_you_mean(source.name, self._makers, cutoff=0.8)
        if source.kind == "input" and not self._pipeline.inputs and hint:
            message = f"input_mapping.{param}: no step gives {source.name!r}, so it is an input of the case{hint}"
            self._report_finding("unknown_source", step, "input_mapping", message, "warning")

    def _resolve(self, written: str, number: int) -> Source | None:
        """Resolve a name in a mapping: outputs of earlier steps, then inputs, then outputs of later steps."""
        text = match[1] if (match := _BRACES.fullmatch(written)) else written.removeprefix("$")
        root, path = _root_of(text), text[len(_root_of(text)) :]
        inputs = self._pipeline.input_names
        if root in ("inputs", "steps") and root not in inputs and path[:1] == ".":
            return self._resolve_in(root, path[1:])
        maker = self._makers.get(text) or self._makers.get(root)
        path = "" if text in self._makers or text in inputs or text in self._ids else path
        if maker is not None and self._ids.index(maker) < number:
            return Source("step", maker, path)
        if root in inputs or text in inputs:
            return Source("input", text if text in inputs else root, path)
        if maker is not None and self._ids.index(maker) != number:
            return Source("step", maker, path)
        others = self._ids[:number] + self._ids[number + 1 :]
        if text in others or root in others:
            return Source("step", text if text in others else root, path)
        if root == ITEMS:
            return Source("items", path=path)
        # A pipeline without declared inputs accepts any input; the step's own output is not an input.
        is_own = number < len(self._ids) and root in (self._ids[number], self._steps[number].output_key)
        return None if inputs or not root or is_own else Source("input", root, path)

    def _resolve_in(self, root: str, rest: str) -> Source | None:
        name, path = _root_of(rest), rest[len(_root_of(rest)) :]
        if root == "inputs":
            is_declared = not self._pipeline.inputs or name in self._pipeline.input_names
            return Source("input", name, path) if is_declared else None
        step = name if name in self._ids else self._makers.get(name)
        return Source("step", step, path) if step else None

    def _implied(self, step: Step, number: int, prompt: StepPrompt, sources: dict[str, Source]) -> dict[str, Source]:
        """Resolve unmapped names in a prompt to inputs or outputs of earlier steps."""
        implied: dict[str, Source] = {}
        for name in sorted(prompt.prompt.names - sources.keys()):
            maker = self._makers.get(name)
            if maker is not None and self._ids.index(maker) < number:
                implied[name] = Source("step", maker)
            elif name in self._pipeline.input_names or not self._pipeline.inputs:
                implied[name] = Source("input", name)
        return implied

    def _doubt_holes(self, step: Step, prompt: StepPrompt, sources: dict[str, Source]) -> None:
        """Warn about mappings that the prompt does not use, and placeholders that nothing fills."""
        names = prompt.prompt.names
        for name in step.mapping:
            if name not in names and not (step.batch_mode and name in ("items", "item")):
                hint = did_you_mean(name, sorted(names))
                message = f"input_mapping.{name}: the prompt has no placeholder {{{name}}}, so it is not used{hint}"
                self._report_finding("unknown_parameter", step, "input_mapping", message, "warning")
        if step.batch_mode:
            return  # items bring fields of their own
        for name in sorted((prompt.prompt.variables | prompt.prompt.optional) - sources.keys()):
            hint = did_you_mean(name, [*sources, *self._pipeline.input_names, *self._makers])
            message = f"the prompt names {name!r}, and no mapping, input or default gives it{hint}"
            key = next((key for key in ("prompt", "flow", "agent") if key in step.spec), "id")
            self._report_finding("unfilled_name", step, key, message, "warning")

    def _items_of(self, step: Step, number: int, sources: dict[str, Source]) -> dict[str, Source]:
        """Return the sources of an aggregator: mapped `items`, the previous batch step, or the batch items."""
        if "items" in sources:
            return sources
        if len(sources) == 1:
            return {"items": next(iter(sources.values()))}
        if sources or step.mapping:
            self._report_finding(
                "bad_aggregator", step, "input_mapping", "input_mapping: expected 'items', the list to aggregate"
            )
            return sources
        before = [one.id for one in self._steps[:number] if one.batch_mode]
        return {"items": Source("step", before[-1]) if before else Source("items")}

    # -- order ----------------------------------------------------------------------------------------

    def _needs(self, step: Step, sources: dict[str, Source]) -> tuple[str, ...]:
        needs = [source.name for source in sources.values() if source.kind == "step"]
        for waited in step.depends_on:
            other = waited if waited in self._ids else self._makers.get(waited, "")
            if not other:
                message = f"depends_on: the pipeline has no step {waited!r}{did_you_mean(waited, self._ids)}"
                self._report_finding("unknown_step", step, "depends_on", message)
            needs.append(other)
        return tuple(dict.fromkeys(filter(None, needs)))

    def _refuse_cycles(self, wired: list[Wired]) -> None:
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
            self._report_finding("pipeline_cycle", step, "input_mapping", message)
            # A step that only depends on this cycle is not part of a cycle.
            while stuck := [name for name, waited in needs.items() if not waited & needs.keys()]:
                for name in stuck:
                    del needs[name]

    def _outputs(self) -> dict[str, Source]:
        """Return the outputs of the pipeline; by default the outputs of all steps."""
        end = len(self._steps)
        names = [*self._makers, *self._pipeline.input_names]
        outputs: dict[str, Source] = {}
        for number, out in enumerate(self._pipeline.outputs):
            source = self._resolve(out.source, end)
            if source is None or (source.kind == "input" and source.name not in self._pipeline.input_names):
                hint = did_you_mean(_root_of(out.source), names) or f"; there are {list_names(names)}"
                self._collector.report_finding(
                    "unknown_output", ("outputs", number), f"outputs: no step makes {out.source!r}{hint}"
                )
            else:
                outputs[out.key] = source
        target = self._pipeline.evaluation_target
        if target and target not in (*names, *outputs, *self._ids):
            message = f"evaluation_target: no step makes {target!r}{did_you_mean(target, names)}"
            self._collector.report_finding("unknown_output", ("evaluation_target",), message)
        return outputs if self._pipeline.outputs else {key: Source("step", id) for key, id in self._makers.items()}

    # -- findings -------------------------------------------------------------------------------------

    def _report_finding(self, code: str, step: Step, key: str, message: str, severity: Severity = "error") -> None:
        where = place_in(self._pipeline, step.id, key, self._variant)
        self._collector.report_finding(code, where, f"step {step.id!r}: {message}", severity)

    def _finding_adder(self, step: Step) -> Callable[[str, str, str, Severity], None]:
        return lambda code, key, message, severity: self._report_finding(code, step, key, message, severity)


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
