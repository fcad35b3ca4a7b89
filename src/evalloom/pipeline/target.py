"""A pipeline as a target: prompts, functions and aggregators declared in a YAML file (PIPE-6)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from evalloom.core.contract import Shape
from evalloom.core.digest import digest_of
from evalloom.core.errors import CallError, usage_error
from evalloom.core.functions import NoFunction, find_function, sources_of
from evalloom.core.model import Context, Finding, Output, Record
from evalloom.core.text import did_you_mean, list_names, quote
from evalloom.data.dialect import Rules
from evalloom.pipeline.file import FindingCollector, Pipeline, Step, place_in, read_pipeline
from evalloom.pipeline.flow import Flow, Wired, wire
from evalloom.pipeline.prompts import agents_folder
from evalloom.pipeline.run import Assembled, Ready, Walk
from evalloom.pipeline.steps import Part, options_of, part_of, takes_anything
from evalloom.pipeline.trace import head_of
from evalloom.targets.base import BuiltTarget, TargetOptions, text_in, time_limit, within
from evalloom.targets.python import PythonTarget

_IRRELEVANT = ("name", "desc", "description", "notes", "metadata", "tags", "label", "version")
"""Keys of a step that do not change its digest."""


def build(spec: Record, folder: Path, options: TargetOptions) -> BuiltTarget:
    """Build the target of `{pipeline: FILE}`. Raises one error that lists all errors of the pipeline."""
    written = text_in(spec, "pipeline").strip()
    examined = sound(folder / written, with_functions=True)
    pipeline, flows = examined.pipeline, examined.flows
    assert pipeline is not None
    target = PipelineTarget(flows, examined.functions, options.allow_code)
    limit = time_limit(spec, options)
    digests = {name: _digest(flow, examined.functions) for name, flow in flows.items()}
    return BuiltTarget(
        name=text_in(spec, "name") or f"pipeline:{written}",
        kind="pipeline",
        digest=digests[""],
        call=within(target, limit) if limit else target,
        variables=pipeline.required,
        watch=tuple(dict.fromkeys(_files(pipeline, flows, examined.functions))),
        closing=target.close,
        needs_llm=any(wired.step.kind == "prompt" for flow in flows.values() for wired in flow.steps),
        remarks=target.remarks,
        variants={name: digest for name, digest in digests.items() if name},
        shape=shape_of(target),
        dataset=_default_dataset(pipeline),
        warnings=tuple(
            f"{finding.origin}: {finding.message} [{finding.code}]"
            for finding in examined.findings
            if finding.severity == "warning"
        ),
    )


class Examined(Struct, frozen=True):
    """A pipeline file with its findings. `flows` are keyed by variant."""

    pipeline: Pipeline | None
    flows: dict[str, Flow] = {}
    findings: tuple[Finding, ...] = ()
    functions: dict[str, PythonTarget] = {}
    """The functions of code steps, by code_ref."""

    @property
    def has_errors(self) -> bool:
        return any(finding.severity == "error" for finding in self.findings)


def examine(path: Path, with_functions: bool = False) -> Examined:
    """Read a pipeline, its agents and prompts; `with_functions` also imports its modules, which runs them."""
    if not path.is_file():
        beside = [entry.name for entry in path.parent.iterdir() if entry.is_file()] if path.parent.is_dir() else []
        hint = did_you_mean(path.name, beside)
        raise usage_error("pipeline_missing", f"pipeline: there is no file {quote(path.as_posix(), 200)}{hint}")
    pipeline, collector = read_pipeline(path)
    if pipeline is None:
        return Examined(None, {}, tuple(collector.findings))
    if (places := _testset_places(pipeline)) and not any(place.is_file() for place in places):
        looked = ", ".join(quote(place.as_posix(), 200) for place in places)
        message = f"default_testset: {pipeline.default_testset!r} is not there; looked for {looked}"
        collector.report_finding("testset_missing", ("default_testset",), message, "warning")
    flows = {name: wire(pipeline, collector, name) for name in ("", *pipeline.variants)}
    functions: dict[str, PythonTarget] = {}
    for name, flow in flows.items() if with_functions else ():
        for wired in flow.steps:
            _find_function(wired, flow, name, functions, collector)
    findings = sorted(collector.findings, key=lambda finding: (finding.origin.line, finding.origin.column))
    return Examined(pipeline, flows, tuple(findings), functions)


def sound(path: Path, with_functions: bool = False) -> Examined:
    """Read a pipeline. Raises one error that lists all its errors."""
    examined = examine(path, with_functions)
    if examined.has_errors:
        errors = "".join(f"\n  {finding}" for finding in examined.findings if finding.severity == "error")
        raise usage_error("invalid_pipeline", f"{path.as_posix()}: cannot be run. Fix these errors:{errors}\n ")
    return examined


def chosen_variant(examined: Examined, name: str) -> Flow:
    """Return the flow of a variant; an empty name means the pipeline without a variant."""
    if name not in examined.flows:
        variants = [variant for variant in examined.flows if variant]
        hint = did_you_mean(name, variants) or f"; there are {list_names(variants)}"
        raise usage_error("no_variants", f"the pipeline has no variant {name!r}{hint}")
    return examined.flows[name]


def _find_function(
    wired: Wired, flow: Flow, variant: str, functions: dict[str, PythonTarget], collector: FindingCollector
) -> None:
    step, pipeline = wired.step, flow.pipeline
    reference = step.spec.get("code_ref")
    if step.kind != "code_node" or reference is None:
        return
    report_finding = partial(_add_step_finding, pipeline, collector, variant, step)
    if reference not in functions:
        try:
            functions[reference] = PythonTarget(_load_function(reference, pipeline.path.parent))
        except NoFunction as why:
            report_finding("target_missing", "code_ref", f"code_ref: {reference}: {why}")
            return
    function = functions[reference]
    for name in sorted(step.mapping.keys() - function.names) if not takes_anything(function, step) else ():
        hint = did_you_mean(name, function.names) or f"; it takes {list_names(sorted(function.names))}"
        if name not in ("items", "item") or not step.batch_mode:
            report_finding(
                "unknown_parameter", "input_mapping", f"input_mapping.{name}: {reference} takes no {name!r}{hint}"
            )


def _add_step_finding(
    pipeline: Pipeline, collector: FindingCollector, variant: str, step: Step, code: str, key: str, message: str
) -> None:
    collector.report_finding(code, place_in(pipeline, step.id, key, variant), f"step {step.id!r}: {message}")


def _load_function(reference: str, folder: Path) -> Callable[..., Any]:
    """Load a function from the pipeline's folder, or from the project folder with `agents` or `pipelines`."""
    agents = agents_folder(folder)
    project = agents.parent if agents else folder.parent if folder.name == "pipelines" else folder
    place = reference.rpartition(":")[0]
    file = place if place.endswith(".py") else f"{place.replace('.', '/')}.py"
    is_in_project = (project / file).is_file() and not (folder / file).is_file()
    function: Callable[..., Any] = find_function(reference, project if is_in_project else folder)[0]
    return function


class PipelineTarget:
    """Runs each case with the variant of its profile."""

    def __init__(self, flows: dict[str, Flow], functions: dict[str, PythonTarget], may_run_code: bool) -> None:
        self._functions = functions
        self._may_run_code = may_run_code
        self._notes: Counter[str] = Counter()
        self.assembled = {name: self._assemble(flow) for name, flow in flows.items()}

    async def __call__(self, inputs: Record, context: Context) -> Output:
        assembled = self.assembled[context.profile.variant]
        return await Walk(assembled, inputs, context, self._note).go()

    def remarks(self) -> Iterable[str]:
        for note, times in self._notes.items():
            yield note if times == 1 else f"{note} ({times} times)"

    async def close(self) -> None:
        for function in self._functions.values():
            await function.close()

    def _note(self, remark: str) -> None:
        self._notes[remark] += 1

    def _assemble(self, flow: Flow) -> Assembled:
        numbers = {wired.step.id: number for number, wired in enumerate(flow.steps)}
        followers: list[list[int]] = [[] for _ in flow.steps]
        for number, wired in enumerate(flow.steps):
            for needed in wired.needs:
                followers[numbers[needed]].append(number)
        steps = (self._ready(wired, flow, tuple(after)) for wired, after in zip(flow.steps, followers, strict=True))
        return Assembled(flow, tuple(steps))

    def _ready(self, wired: Wired, flow: Flow, followers: tuple[int, ...]) -> Ready:
        function = self._functions.get(wired.step.spec.get("code_ref", ""))
        make = partial(part_of, step_prompt=wired.prompt, function=function, may_run_code=self._may_run_code)
        part: Part | CallError
        try:
            part = make(wired.step)
        except CallError as error:
            part = error  # a case may set the missing option, or the step may never run
        names = function.names if function else frozenset[str]()
        return Ready(wired, part, make, names, followers, head_of(wired, flow))


def shape_of(target: PipelineTarget) -> Shape:
    """Return the shape that cases must match under every variant."""
    flows = [assembled.flow for assembled in target.assembled.values()]
    steps = [wired.step for flow in flows for wired in flow.steps]
    named = {name for flow in flows for name in flow.unbatched_inputs}
    required = flows[0].pipeline.required
    return Shape(
        steps=_steps_taken(target),
        inputs=required,
        batch_inputs=required & named,
        outputs=frozenset(flows[0].outputs),
        reads_items=any(step.batch_mode or step.kind == "batch_aggregator" for step in steps)
        or any(source.kind == "items" for flow in flows for wired in flow.steps for source in wired.sources.values()),
        aggregates=any(step.kind == "batch_aggregator" for step in steps),
    )


def with_pipeline(rules: Rules, file: str) -> Rules:
    """Add a pipeline to the rules; its functions are not imported, so they accept any input."""
    shape = shape_of(PipelineTarget(sound(Path(file)).flows, {}, may_run_code=False))
    return structs.replace(rules, shape=shape)


def _steps_taken(target: PipelineTarget) -> dict[str, frozenset[str] | None]:
    """Return the accepted step_inputs by step id and output key; None accepts any."""
    taken: dict[str, frozenset[str] | None] = {}
    for assembled in target.assembled.values():
        for ready in assembled.steps:
            step = ready.wired.step
            known = taken.get(step.id, frozenset[str]())
            own = None if isinstance(ready.part, CallError) else ready.part.takes
            if own is None or known is None:
                taken[step.id] = None
            else:
                taken[step.id] = known | own | step.mapping.keys() | {*options_of(step, {})}
    steps = [one.wired.step for assembled in target.assembled.values() for one in assembled.steps]
    return {**{step.output_key: taken[step.id] for step in steps}, **taken}


def _digest(flow: Flow, functions: dict[str, PythonTarget]) -> str:
    steps = [
        [
            {key: value for key, value in wired.step.spec.items() if key not in _IRRELEVANT},
            wired.prompt.prompt.digest if wired.prompt else "",
            _texts(functions.get(wired.step.spec.get("code_ref", ""))),
        ]
        for wired in flow.steps
    ]
    inputs = [[one.name, one.default] for one in flow.pipeline.inputs]
    outputs = [[one.key, one.source] for one in flow.pipeline.outputs]
    return digest_of("pipeline", inputs, steps, outputs, flow.pipeline.evaluation_target)


def _texts(function: PythonTarget | None) -> list[str]:
    files = sources_of(function.function) if function else ()
    return [file.read_bytes().decode("utf-8", "replace") for file in files]


def _files(pipeline: Pipeline, flows: dict[str, Flow], functions: dict[str, PythonTarget]) -> Iterable[Path]:
    yield pipeline.path
    for flow in flows.values():
        for wired in flow.steps:
            yield from wired.prompt.files if wired.prompt else ()
    for function in functions.values():
        yield from sources_of(function.function)


def _default_dataset(pipeline: Pipeline) -> Path | None:
    """Find the default testset: beside the pipeline, or in the `testsets` folder of its project."""
    places = _testset_places(pipeline)
    return next((path for path in places if path.is_file()), places[-1] if places else None)


def _testset_places(pipeline: Pipeline) -> list[Path]:
    name, folder = pipeline.default_testset, pipeline.path.parent
    places = (folder / name, folder / "testsets" / name, folder.parent / "testsets" / name)
    return [Path(os.path.normpath(place)) for place in places] if name else []
