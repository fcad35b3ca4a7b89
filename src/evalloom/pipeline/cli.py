"""`evalloom pipeline`: inspects a pipeline without running it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import msgspec

from evalloom.console.layout import Line, Verbatim, print_lines
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.lazy import lazy_pattern
from evalloom.core.text import pluralize, printable
from evalloom.pipeline.flow import ITEMS, Flow, ValueSource, WiredStep
from evalloom.pipeline.target import PipelineCheck, check_pipeline, flow_of

_STYLES = {"error": "red", "warning": "yellow", "info": "dim"}
_WHAT = {"prompt": "prompt", "code_node": "code", "batch_aggregator": "aggregator"}
_PLAIN = lazy_pattern(r"[^\w .:,/()·-]")


@click.group("pipeline")
def command() -> None:
    """Inspect a pipeline: show its data flow and check it for errors."""


@command.command("graph")
@click.argument("file", metavar="FILE")
@click.option("--variant", default="", metavar="V", help="Show the pipeline with this variant applied.")
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flowchart.")
def graph_command(file: str, variant: str, mermaid: bool) -> int:
    """Print the steps of a pipeline and the data flow between them."""
    check = check_pipeline(Path(file))
    if check.has_errors:
        print_lines(_findings(check))
        raise usage_error("invalid_pipeline", f"{file}: has errors. Fix the errors listed above")
    flow = flow_of(check, variant)
    lines = map(printable, _as_mermaid(flow) if mermaid else _as_text(flow))
    print_lines((Verbatim(line) if mermaid else line, "") for line in lines)
    return 0


@command.command("check")
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@click.option("--no-import", is_flag=True, help="Do not import the modules named by code_ref.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per finding.")
def check_command(files: tuple[str, ...], no_import: bool, as_json: bool) -> int:
    """Check pipelines, their agents, prompts and functions for errors.

    Exit codes: 0 no errors; 2 errors.
    """
    has_errors = False
    for file in files:
        try:
            check = check_pipeline(Path(file), with_functions=not no_import)
        except EvalloomError as error:
            if len(files) == 1:
                raise
            click.echo(f"evalloom: {error}", err=True)
            has_errors = True
            continue
        has_errors |= check.has_errors
        if as_json:
            for finding in check.findings:
                click.echo(msgspec.json.encode(finding))
        else:
            print_lines([*_findings(check), *_closing(file, check)])
    return 2 if has_errors else 0


def _findings(check: PipelineCheck) -> Iterator[Line]:
    for finding in check.findings:
        yield printable(str(finding)), _STYLES[finding.severity]


def _closing(file: str, check: PipelineCheck) -> Iterator[Line]:
    counts = [sum(finding.severity == word for finding in check.findings) for word in ("error", "warning")]
    totals = f"{pluralize(counts[0], 'error')}, {pluralize(counts[1], 'warning')}"
    steps = len(check.flows[""].steps) if check.flows else 0
    declared = check.pipeline.variants if check.pipeline else {}
    variants = [name for name, variant in declared.items() if variant.at]
    more = f", variants {', '.join(variants)}" if variants else ""
    yield f"{printable(file)}: {pluralize(steps, 'step')}{printable(more)}, {totals}", "bold"


# -- the graph, in execution order --------------------------------------------------------------------


def _levels(flow: Flow) -> list[list[WiredStep]]:
    """Group the steps into levels that can run concurrently."""
    depth: dict[str, int] = {}
    waiting = list(flow.steps)
    while waiting:
        for wired in [candidate for candidate in waiting if all(need in depth for need in candidate.needs)]:
            depth[wired.step.id] = 1 + max((depth[need] for need in wired.needs), default=-1)
            waiting.remove(wired)
    by_depth: list[list[WiredStep]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for wired in flow.steps:
        by_depth[depth[wired.step.id]].append(wired)
    return by_depth


def _as_text(flow: Flow) -> Iterator[str]:
    """Render the graph for a terminal: one block per step with its sources and output."""
    pipeline = flow.pipeline
    yield f"{pipeline.id}{f' · {pipeline.name}' if pipeline.name else ''}"
    optional = (f"{declared.name}{'' if declared.required else '?'}" for declared in pipeline.inputs)
    yield f"inputs: {', '.join(optional) or 'all inputs of the case'}"
    for number, level in enumerate(_levels(flow), 1):
        beside = " (concurrent)" if len(level) > 1 else ""
        yield ""
        yield f"{number}.{beside}"
        for wired in level:
            yield from _block(wired)
    yield ""
    outputs = (f"{key} ← {source}" for key, source in flow.outputs.items())
    yield f"outputs: {', '.join(outputs)}"


def _block(wired: WiredStep) -> Iterator[str]:
    step = wired.step
    yield f"   {step.id} [{_step_label(wired)}] → {step.output_key}"
    for name, source in _shown_sources(wired):
        kind = f" ({source.kind})" if source.kind in ("step", "input") else ""
        yield f"      {name} ← {source}{kind}"
    waited = [name for name in step.depends_on if name in wired.needs]
    if waited:
        yield f"      after {', '.join(waited)}"


def _step_label(wired: WiredStep) -> str:
    """Return a short label of a step."""
    step, spec = wired.step, wired.step.spec
    about = [_WHAT[step.kind]]
    if "agent" in spec:
        about.append(f"{spec['agent']}/{spec.get('flow', '')}".rstrip("/"))
    about += [str(spec[key]) for key in ("code_ref", "aggregation_strategy", "strategy") if key in spec][:1]
    if step.batch_mode:
        about.append(f"batch of {step.batch_size}" + (f", {step.max_workers} at once" if step.concurrent else ""))
    if not step.required:
        about.append("optional")
    if model := spec.get("model_override") or spec.get("model"):
        about.append(f"model {model}")
    return " · ".join(about)


def _shown_sources(wired: WiredStep) -> Iterable[tuple[str, ValueSource]]:
    if wired.takes_inputs:
        yield "*", ValueSource("inputs")
    if wired.is_fed_items:
        yield "items", ValueSource("items")
    shown_names = wired.step.mapping if wired.step.batch_mode else wired.sources
    yield from ((name, source) for name, source in wired.sources.items() if name in shown_names)


def _as_mermaid(flow: Flow) -> Iterator[str]:
    """Render the graph as a Mermaid flowchart."""
    numbers = {wired.step.id: f"s{number}" for number, wired in enumerate(flow.steps)}
    yield "flowchart TD"
    yield '  in(["inputs"])'
    if any(source.kind == "items" for wired in flow.steps for _, source in _shown_sources(wired)):
        yield f'  items(["{ITEMS}"])'
    for wired in flow.steps:
        shape = '{{"', '"}}'
        left, right = shape if wired.step.kind == "batch_aggregator" else ('["', '"]')
        yield f"  {numbers[wired.step.id]}{left}{_plain(wired.step.id)}<br/>{_plain(_step_label(wired))}{right}"
    for wired in flow.steps:
        yield from _edges(wired, numbers)
    yield '  out(["outputs"])'
    for key, source in flow.outputs.items():
        yield f"  {_start(source, numbers)} -->|{_plain(key)}| out"


def _edges(wired: WiredStep, numbers: dict[str, str]) -> Iterator[str]:
    own = numbers[wired.step.id]
    fed: set[str] = set()
    for name, source in _shown_sources(wired):
        if start := _start(source, numbers):
            fed.add(source.name)
            yield f"  {start} -->|{_plain(name)}| {own}"
    for need in wired.needs:
        if need not in fed:
            yield f"  {numbers[need]} -.-> {own}"


def _start(source: ValueSource, numbers: dict[str, str]) -> str:
    return {"input": "in", "inputs": "in", "items": "items"}.get(source.kind) or numbers.get(source.name, "")


def _plain(text: str) -> str:
    """Remove the characters that have a meaning in Mermaid."""
    return _PLAIN.sub(" ", text).strip() or "-"
