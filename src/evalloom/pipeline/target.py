"""A pipeline as a target: steps that are prompts, functions and aggregators, in a YAML file (PIPE-6)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from evalloom.core.contract import Shape
from evalloom.core.errors import CallError, did_you_mean, usage_error
from evalloom.core.functions import NoFunction, find_function, sources_of
from evalloom.core.model import Context, Finding, Output, Record, quote
from evalloom.core.text import listed
from evalloom.data.dialect import Rules
from evalloom.pipeline.file import Faults, Pipeline, Step, place_in, read_pipeline
from evalloom.pipeline.flow import Flow, Wired, wire
from evalloom.pipeline.prompts import agents_folder
from evalloom.pipeline.run import Assembled, Ready, Walk
from evalloom.pipeline.steps import Part, options_of, part_of, takes_anything
from evalloom.pipeline.trace import head_of
from evalloom.targets.base import BuiltTarget, TargetOptions, digest_of, text_in, time_limit, within
from evalloom.targets.python import PythonTarget

_IRRELEVANT = ("name", "desc", "description", "notes", "metadata", "tags", "label", "version")
"""What a step may say of itself without being another one for it."""


def build(spec: Record, folder: Path, options: TargetOptions) -> BuiltTarget:
    """The target of `{pipeline: FILE}`. Raises with everything that is wrong with the pipeline, all at once."""
    written = text_in(spec, "pipeline").strip()
    found = sound(folder / written, with_functions=True)
    pipeline, flows = found.pipeline, found.flows
    assert pipeline is not None
    target = PipelineTarget(flows, found.functions, options.allow_code)
    limit = time_limit(spec, options)
    digests = {name: _digest(flow, found.functions) for name, flow in flows.items()}
    return BuiltTarget(
        name=text_in(spec, "name") or f"pipeline:{written}",
        kind="pipeline",
        digest=digests[""],
        call=within(target, limit) if limit else target,
        variables=pipeline.required,
        watch=tuple(dict.fromkeys(_files(pipeline, flows, found.functions))),
        closing=target.close,
        needs_llm=any(wired.step.kind == "prompt" for flow in flows.values() for wired in flow.steps),
        remarks=target.remarks,
        variants={name: digest for name, digest in digests.items() if name},
        shape=shape_of(target),
        dataset=_default_dataset(pipeline),
        doubts=tuple(
            f"{one.origin}: {one.message} [{one.code}]" for one in found.findings if one.severity == "warning"
        ),
    )


class Examined(Struct, frozen=True):
    """A pipeline file and everything that there is to say about it. `flows` go by variant."""

    pipeline: Pipeline | None
    flows: dict[str, Flow] = {}
    findings: tuple[Finding, ...] = ()
    functions: dict[str, PythonTarget] = {}
    """The functions that steps name, by that name."""

    @property
    def has_errors(self) -> bool:
        return any(finding.severity == "error" for finding in self.findings)


def examine(path: Path, with_functions: bool = False) -> Examined:
    """A pipeline file, its agents and prompts; with its functions only when asked, since that runs their modules."""
    if not path.is_file():
        beside = [one.name for one in path.parent.iterdir() if one.is_file()] if path.parent.is_dir() else []
        hint = did_you_mean(path.name, beside)
        raise usage_error("pipeline_missing", f"pipeline: there is no file {quote(path.as_posix(), 200)}{hint}")
    pipeline, faults = read_pipeline(path)
    if pipeline is None:
        return Examined(None, {}, tuple(faults.findings))
    if (places := _testset_places(pipeline)) and not any(place.is_file() for place in places):
        looked = ", ".join(quote(place.as_posix(), 200) for place in places)
        message = f"default_testset: {pipeline.default_testset!r} is not there; looked for {looked}"
        faults.complain("testset_missing", ("default_testset",), message, "warning")
    flows = {name: wire(pipeline, faults, name) for name in ("", *pipeline.variants)}
    functions: dict[str, PythonTarget] = {}
    for name, flow in flows.items() if with_functions else ():
        for wired in flow.steps:
            _find_function(wired, flow, name, functions, faults)
    findings = sorted(faults.findings, key=lambda one: (one.origin.line, one.origin.column))
    return Examined(pipeline, flows, tuple(findings), functions)


def sound(path: Path, with_functions: bool = False) -> Examined:
    """A pipeline without errors. Raises with everything that is wrong with it, all at once."""
    found = examine(path, with_functions)
    if found.has_errors:
        errors = "".join(f"\n  {finding}" for finding in found.findings if finding.severity == "error")
        raise usage_error("invalid_pipeline", f"{path.as_posix()}: is no pipeline that can be run:{errors}\n ")
    return found


def chosen_variant(found: Examined, name: str) -> Flow:
    """The flow of a variant by name; the pipeline as it is written under an empty one."""
    if name not in found.flows:
        known = [one for one in found.flows if one]
        hint = did_you_mean(name, known) or f"; there are {listed(known)}"
        raise usage_error("no_variants", f"the pipeline has no variant {name!r}{hint}")
    return found.flows[name]


def _find_function(wired: Wired, flow: Flow, variant: str, functions: dict[str, PythonTarget], faults: Faults) -> None:
    step, pipeline = wired.step, flow.pipeline
    reference = step.spec.get("code_ref")
    if step.kind != "code_node" or reference is None:
        return
    complain = partial(_complain, pipeline, faults, variant, step)
    if reference not in functions:
        try:
            functions[reference] = PythonTarget(_look_up(reference, pipeline.path.parent))
        except NoFunction as why:
            complain("target_missing", "code_ref", f"code_ref: {reference}: {why}")
            return
    function = functions[reference]
    for name in sorted(step.mapping.keys() - function.names) if not takes_anything(function, step) else ():
        hint = did_you_mean(name, function.names) or f"; it takes {listed(sorted(function.names))}"
        if name not in ("items", "item") or not step.batch_mode:
            complain("unknown_parameter", "input_mapping", f"input_mapping.{name}: {reference} takes no {name!r}{hint}")


def _complain(pipeline: Pipeline, faults: Faults, variant: str, step: Step, code: str, key: str, message: str) -> None:
    faults.complain(code, place_in(pipeline, step.id, key, variant), f"step {step.id!r}: {message}")


def _look_up(reference: str, folder: Path) -> Callable[..., Any]:
    """A function beside the pipeline, or else in the folder of its project, which holds `agents` or `pipelines`."""
    agents = agents_folder(folder)
    project = agents.parent if agents else folder.parent if folder.name == "pipelines" else folder
    place = reference.rpartition(":")[0]
    file = place if place.endswith(".py") else f"{place.replace('.', '/')}.py"
    is_in_project = (project / file).is_file() and not (folder / file).is_file()
    function: Callable[..., Any] = find_function(reference, project if is_in_project else folder)[0]
    return function


class PipelineTarget:
    """Runs each case through the variant that its profile names."""

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
        make = partial(part_of, asked=wired.prompt, function=function, may_run_code=self._may_run_code)
        part: Part | CallError
        try:
            part = make(wired.step)
        except CallError as fault:
            part = fault  # a case may set what is missing, or the step may never be reached
        names = function.names if function else frozenset[str]()
        return Ready(wired, part, make, names, followers, head_of(wired, flow))


def shape_of(target: PipelineTarget) -> Shape:
    """What the cases of a pipeline must fit, whichever variant they run under."""
    flows = [one.flow for one in target.assembled.values()]
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
    """Rules that also check a testset against a pipeline; its functions are not loaded, so they may take anything."""
    shape = shape_of(PipelineTarget(sound(Path(file)).flows, {}, may_run_code=False))
    return structs.replace(rules, shape=shape)


def _steps_taken(target: PipelineTarget) -> dict[str, frozenset[str] | None]:
    """What the step inputs of a case may hold, by step id and by output key; None where anything may."""
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
    """The testset that a pipeline names: beside it, or in the `testsets` folder of its project."""
    places = _testset_places(pipeline)
    return next((path for path in places if path.is_file()), places[-1] if places else None)


def _testset_places(pipeline: Pipeline) -> list[Path]:
    name, folder = pipeline.default_testset, pipeline.path.parent
    places = (folder / name, folder / "testsets" / name, folder.parent / "testsets" / name)
    return [Path(os.path.normpath(place)) for place in places] if name else []
