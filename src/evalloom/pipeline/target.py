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
from evalloom.pipeline.flow import Flow, WiredStep, wire
from evalloom.pipeline.prompts import agents_folder
from evalloom.pipeline.run import AssembledPipeline, PipelineRun, ReadyStep
from evalloom.pipeline.steps import StepRunner, options_of, runner_of, takes_anything
from evalloom.pipeline.trace import entry_head
from evalloom.settings import FILE_NAME
from evalloom.targets.base import BuiltTarget, TargetOptions, text_in, time_limit, within
from evalloom.targets.python import PythonTarget

_IRRELEVANT = ("name", "desc", "description", "notes", "metadata", "tags", "label", "version")
"""Keys of a step that do not change its digest."""


def build(spec: Record, folder: Path, options: TargetOptions) -> BuiltTarget:
    """Build the target of `{pipeline: FILE}`. Raises one error that lists all errors of the pipeline."""
    written = text_in(spec, "pipeline").strip()
    check = load_valid_pipeline(folder / written, with_functions=True)
    pipeline, flows = check.pipeline, check.flows
    assert pipeline is not None
    if not options.allow_code:
        _refuse_code(pipeline, [flows[name] for name in options.variants or ("",) if name in flows])
    target = PipelineTarget(flows, check.functions, options.allow_code)
    limit = time_limit(spec, options)
    testsets = _testset_places(pipeline)
    digests = {name: _digest(flow, check.functions) for name, flow in flows.items()}
    return BuiltTarget(
        name=text_in(spec, "name") or f"pipeline:{written}",
        kind="pipeline",
        digest=digests[""],
        call=within(target, limit) if limit else target,
        variables=pipeline.required,
        defaulted=pipeline.optional,
        watch=tuple(dict.fromkeys(_files(pipeline, flows, check.functions))),
        closing=target.close,
        needs_llm=any(wired.step.kind == "prompt" for flow in flows.values() for wired in flow.steps),
        notes=target.notes,
        variants={name: digest for name, digest in digests.items() if name},
        shape=shape_of(target),
        dataset=next((place for place in testsets if os.path.isfile(place)), testsets[-1] if testsets else None),
        warnings=tuple(
            f"{finding.origin}: {finding.message} [{finding.code}]"
            for finding in check.findings
            if finding.severity == "warning"
        ),
    )


def _refuse_code(pipeline: Pipeline, flows: list[Flow]) -> None:
    """Raise an error if one of the flows has a required step with code: no case could succeed in it (PIPE-12)."""
    for step in (wired.step for flow in flows for wired in flow.steps if _holds_code(wired.step)):
        where = f"{pipeline.path.as_posix()}: step {step.id!r}"
        advice = "To run it in the sandbox, pass --allow-code (pytest: --evalloom-allow-code, Python: allow_code=True)"
        advice += f", or set 'run: {{allow_code: true}}' in {FILE_NAME}"
        raise usage_error("code_not_allowed", f"{where}: has code, which is not trusted, so nothing was run. {advice}")


def _holds_code(step: Step) -> bool:
    strategy = step.spec.get("aggregation_strategy", step.spec.get("strategy"))
    return step.required and (strategy == "custom" if step.kind == "batch_aggregator" else "code" in step.spec)


class PipelineCheck(Struct, frozen=True):
    """A pipeline with the findings about it. `flows` are keyed by variant."""

    pipeline: Pipeline | None
    flows: dict[str, Flow] = {}
    findings: tuple[Finding, ...] = ()
    functions: dict[str, PythonTarget] = {}
    """The functions of code steps, by code_ref."""

    @property
    def has_errors(self) -> bool:
        return any(finding.severity == "error" for finding in self.findings)


def check_pipeline(path: Path, with_functions: bool = False) -> PipelineCheck:
    """Read a pipeline, its agents and prompts; `with_functions` also imports its modules, which runs them."""
    if not os.path.isfile(path):  # Path.is_file raises for a name that is too long
        beside = (
            [entry.name for entry in path.parent.iterdir() if entry.is_file()] if os.path.isdir(path.parent) else []
        )
        hint = did_you_mean(path.name, beside)
        raise usage_error("pipeline_missing", f"pipeline: there is no file {quote(path.as_posix(), 200)}{hint}")
    pipeline, collector = read_pipeline(path)
    if pipeline is None:
        return PipelineCheck(None, {}, tuple(collector.findings))
    if (places := _testset_places(pipeline)) and not any(map(os.path.isfile, places)):
        looked = ", ".join(quote(place.as_posix(), 200) for place in places)
        message = f"default_testset: {pipeline.default_testset!r} does not exist; searched {looked}"
        collector.report_finding("testset_missing", ("default_testset",), message, "warning")
    flows = {name: wire(pipeline, collector, name) for name in ("", *pipeline.variants)}
    functions: dict[str, PythonTarget] = {}
    for name, flow in flows.items() if with_functions else ():
        for wired in flow.steps:
            _find_function(wired, flow, name, functions, collector)
    findings = sorted(collector.findings, key=lambda finding: (finding.origin.line, finding.origin.column))
    return PipelineCheck(pipeline, flows, tuple(findings), functions)


def load_valid_pipeline(path: Path, with_functions: bool = False) -> PipelineCheck:
    """Read a pipeline. Raises one error that lists all its errors."""
    check = check_pipeline(path, with_functions)
    if check.has_errors:
        errors = "".join(f"\n  {finding}" for finding in check.findings if finding.severity == "error")
        raise usage_error("invalid_pipeline", f"{path.as_posix()}: cannot be run. Fix these errors:{errors}\n ")
    return check


def flow_of(check: PipelineCheck, name: str) -> Flow:
    """Return the flow of a variant; an empty name means the pipeline without a variant."""
    if name not in check.flows:
        variants = [variant for variant in check.flows if variant]
        hint = did_you_mean(name, variants) or f"; there are {list_names(variants)}"
        raise usage_error("no_variants", f"the pipeline has no variant {name!r}{hint}")
    return check.flows[name]


def _find_function(
    wired: WiredStep, flow: Flow, variant: str, functions: dict[str, PythonTarget], collector: FindingCollector
) -> None:
    step, pipeline = wired.step, flow.pipeline
    reference = step.spec.get("code_ref")
    if step.kind != "code_node" or reference is None:
        return

    def report_finding(code: str, key: str, message: str) -> None:
        collector.report_finding(code, place_in(pipeline, step.id, key, variant), f"step {step.id!r}: {message}")

    if reference not in functions:
        try:
            functions[reference] = PythonTarget(_load_function(reference, pipeline.path.parent))
        except NoFunction as error:
            report_finding("target_missing", "code_ref", f"code_ref: {reference}: {error}")
            return
    function = functions[reference]
    for name in sorted(step.mapping.keys() - function.names) if not takes_anything(function, step) else ():
        hint = did_you_mean(name, function.names) or f"; it takes {list_names(sorted(function.names))}"
        if name not in ("items", "item") or not step.batch_mode:
            report_finding(
                "unknown_parameter", "input_mapping", f"input_mapping.{name}: {reference} takes no {name!r}{hint}"
            )


def _load_function(reference: str, folder: Path) -> Callable[..., Any]:
    """Load a function from the pipeline's folder, or from the project folder with `agents` or `pipelines`."""
    agents = agents_folder(folder)
    project = agents.parent if agents else folder.parent if folder.name == "pipelines" else folder
    place = reference.rpartition(":")[0]
    file = place if place.endswith(".py") else f"{place.replace('.', '/')}.py"
    is_in_project = os.path.isfile(project / file) and not os.path.isfile(folder / file)
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
        return await PipelineRun(assembled, inputs, context, self._add_note).run()

    def notes(self) -> Iterable[str]:
        for note, times in self._notes.items():
            yield note if times == 1 else f"{note} ({times} times)"

    async def close(self) -> None:
        for function in self._functions.values():
            await function.close()

    def _add_note(self, note: str) -> None:
        self._notes[note] += 1

    def _assemble(self, flow: Flow) -> AssembledPipeline:
        numbers = {wired.step.id: number for number, wired in enumerate(flow.steps)}
        followers: list[list[int]] = [[] for _ in flow.steps]
        for number, wired in enumerate(flow.steps):
            for needed in wired.needs:
                followers[numbers[needed]].append(number)
        steps = (self._ready(wired, flow, tuple(after)) for wired, after in zip(flow.steps, followers, strict=True))
        return AssembledPipeline(flow, tuple(steps))

    def _ready(self, wired: WiredStep, flow: Flow, followers: tuple[int, ...]) -> ReadyStep:
        function = self._functions.get(wired.step.spec.get("code_ref", ""))
        make = partial(runner_of, step_prompt=wired.prompt, function=function, may_run_code=self._may_run_code)
        runner: StepRunner | CallError
        try:
            runner = make(wired.step)
        except CallError as error:
            runner = error  # a case may set the missing option, or the step may never run
        names = function.names if function else frozenset[str]()
        return ReadyStep(wired, runner, make, names, followers, entry_head(wired, flow))


def shape_of(target: PipelineTarget) -> Shape:
    """Return the shape that cases must match under every variant."""
    flows = [assembled.flow for assembled in target.assembled.values()]
    steps = [wired.step for flow in flows for wired in flow.steps]
    unbatched = {name for flow in flows for name in flow.unbatched_inputs}
    required = flows[0].pipeline.required
    return Shape(
        steps=_accepted_inputs(target),
        inputs=required,
        batch_inputs=required & unbatched,
        accepts=flows[0].pipeline.input_names or None,
        outputs=frozenset(flows[0].outputs),
        reads_items=any(step.batch_mode or step.kind == "batch_aggregator" for step in steps)
        or any(source.kind == "items" for flow in flows for wired in flow.steps for source in wired.sources.values()),
        aggregates=any(step.kind == "batch_aggregator" for step in steps),
    )


def with_pipeline(rules: Rules, file: str) -> Rules:
    """Add a pipeline to the rules; its functions are not imported, so they accept any input."""
    shape = shape_of(PipelineTarget(load_valid_pipeline(Path(file)).flows, {}, may_run_code=False))
    return structs.replace(rules, shape=shape)


def _accepted_inputs(target: PipelineTarget) -> dict[str, frozenset[str] | None]:
    """Return the accepted step_inputs by step id and output key; None accepts any."""
    accepted: dict[str, frozenset[str] | None] = {}
    for assembled in target.assembled.values():
        for ready in assembled.steps:
            step = ready.wired.step
            # Variants may accept different inputs; a case may use those of any variant.
            other_variants = accepted.get(step.id, frozenset[str]())
            own = None if isinstance(ready.runner, CallError) else ready.runner.takes
            if own is None or other_variants is None:
                accepted[step.id] = None
            else:
                accepted[step.id] = other_variants | own | step.mapping.keys() | {*options_of(step, {})}
    steps = [ready.wired.step for assembled in target.assembled.values() for ready in assembled.steps]
    return {**{step.output_key: accepted[step.id] for step in steps}, **accepted}


def _digest(flow: Flow, functions: dict[str, PythonTarget]) -> str:
    steps = []
    for wired in flow.steps:
        spec = {key: value for key, value in wired.step.spec.items() if key not in _IRRELEVANT}
        function = functions.get(wired.step.spec.get("code_ref", ""))
        files = sources_of(function.function) if function else ()
        code = [file.read_bytes().decode("utf-8", "replace") for file in files]
        steps.append([spec, wired.prompt.prompt.digest if wired.prompt else "", code])
    inputs = [[declared.name, declared.default] for declared in flow.pipeline.inputs]
    outputs = [[output.key, output.source] for output in flow.pipeline.outputs]
    return digest_of("pipeline", inputs, steps, outputs, flow.pipeline.evaluation_target)


def _files(pipeline: Pipeline, flows: dict[str, Flow], functions: dict[str, PythonTarget]) -> Iterable[Path]:
    yield pipeline.path
    for flow in flows.values():
        for wired in flow.steps:
            yield from wired.prompt.files if wired.prompt else ()
    for function in functions.values():
        yield from sources_of(function.function)


def _testset_places(pipeline: Pipeline) -> list[Path]:
    """Return where the default testset may be: beside the pipeline, or in the `testsets` folder of its project."""
    name, folder = pipeline.default_testset, pipeline.path.parent
    places = (folder / name, folder / "testsets" / name, folder.parent / "testsets" / name)
    return [Path(os.path.normpath(place)) for place in places] if name else []
