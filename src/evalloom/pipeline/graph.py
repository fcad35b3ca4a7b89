"""Renders the graph of a pipeline as text or Mermaid, in execution order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from evalloom.core.lazy import lazy_pattern
from evalloom.pipeline.flow import ITEMS, Flow, Source, Wired

_WHAT = {"prompt": "prompt", "code_node": "code", "batch_aggregator": "aggregator"}
_PLAIN = lazy_pattern(r"[^\w .:,/()·-]")


def levels(flow: Flow) -> list[list[Wired]]:
    """Group the steps into levels that can run concurrently."""
    depth: dict[str, int] = {}
    waiting = list(flow.steps)
    while waiting:
        for wired in [candidate for candidate in waiting if all(need in depth for need in candidate.needs)]:
            depth[wired.step.id] = 1 + max((depth[need] for need in wired.needs), default=-1)
            waiting.remove(wired)
    by_depth: list[list[Wired]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for wired in flow.steps:
        by_depth[depth[wired.step.id]].append(wired)
    return by_depth


def as_text(flow: Flow) -> Iterator[str]:
    """Render the graph for a terminal: one block per step with its sources and output."""
    pipeline = flow.pipeline
    yield f"{pipeline.id}{f' · {pipeline.name}' if pipeline.name else ''}"
    optional = (f"{declared.name}{'' if declared.required else '?'}" for declared in pipeline.inputs)
    yield f"inputs: {', '.join(optional) or 'whatever the cases have'}"
    for number, level in enumerate(levels(flow), 1):
        beside = " (side by side)" if len(level) > 1 else ""
        yield ""
        yield f"{number}.{beside}"
        for wired in level:
            yield from _block(wired)
    yield ""
    outputs = (f"{key} ← {source}" for key, source in flow.outputs.items())
    yield f"outputs: {', '.join(outputs)}"


def _block(wired: Wired) -> Iterator[str]:
    step = wired.step
    yield f"   {step.id} [{_step_label(wired)}] → {step.output_key}"
    for name, source in _shown_sources(wired):
        yield f"      {name} ← {_origin(source)}"
    waited = [name for name in step.depends_on if name in wired.needs]
    if waited:
        yield f"      after {', '.join(waited)}"


def _step_label(wired: Wired) -> str:
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


def _shown_sources(wired: Wired) -> Iterable[tuple[str, Source]]:
    if wired.takes_inputs:
        yield "*", Source("inputs")
    if wired.is_fed_items:
        yield "items", Source("items")
    shown_names = wired.step.mapping if wired.step.batch_mode else wired.sources
    yield from ((name, source) for name, source in wired.sources.items() if name in shown_names)


def _origin(source: Source) -> str:
    if source.kind == "step":
        return f"{source.name}{source.path} (step)"
    return f"{source} (input)" if source.kind == "input" else str(source)


def as_mermaid(flow: Flow) -> Iterator[str]:
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


def _edges(wired: Wired, numbers: dict[str, str]) -> Iterator[str]:
    own = numbers[wired.step.id]
    fed: set[str] = set()
    for name, source in _shown_sources(wired):
        if start := _start(source, numbers):
            fed.add(source.name)
            yield f"  {start} -->|{_plain(name)}| {own}"
    for need in wired.needs:
        if need not in fed:
            yield f"  {numbers[need]} -.-> {own}"


def _start(source: Source, numbers: dict[str, str]) -> str:
    return {"input": "in", "inputs": "in", "items": "items"}.get(source.kind) or numbers.get(source.name, "")


def _plain(text: str) -> str:
    """Remove the characters that have a meaning in Mermaid."""
    return _PLAIN.sub(" ", text).strip() or "-"
