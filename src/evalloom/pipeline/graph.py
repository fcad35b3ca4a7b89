"""A pipeline as a picture: its steps in the order in which they can run, and what goes from one to another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from evalloom.pipeline.flow import ITEMS, Flow, Source, Wired

_WHAT = {"prompt": "prompt", "code_node": "code", "batch_aggregator": "aggregator"}
_PLAIN = re.compile(r"[^\w .:,/()·-]")


def levels(flow: Flow) -> list[list[Wired]]:
    """The steps by when they can run: those of one level side by side."""
    depth: dict[str, int] = {}
    waiting = list(flow.steps)
    while waiting:
        for wired in [one for one in waiting if all(need in depth for need in one.needs)]:
            depth[wired.step.id] = 1 + max((depth[need] for need in wired.needs), default=-1)
            waiting.remove(wired)
    found: list[list[Wired]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for wired in flow.steps:
        found[depth[wired.step.id]].append(wired)
    return found


def as_text(flow: Flow) -> Iterator[str]:
    """The graph for a terminal: one block a step, with what goes in and what comes out."""
    pipeline = flow.pipeline
    yield f"{pipeline.id}{f' · {pipeline.name}' if pipeline.name else ''}"
    optional = (f"{one.name}{'' if one.required else '?'}" for one in pipeline.inputs)
    yield f"inputs: {', '.join(optional) or 'whatever the cases have'}"
    for number, level in enumerate(levels(flow), 1):
        beside = " (side by side)" if len(level) > 1 else ""
        yield ""
        yield f"{number}.{beside}"
        for wired in level:
            yield from _block(wired)
    yield ""
    made = (f"{key} ← {source}" for key, source in flow.outputs.items())
    yield f"outputs: {', '.join(made)}"


def _block(wired: Wired) -> Iterator[str]:
    step = wired.step
    yield f"   {step.id} [{_told(wired)}] → {step.output_key}"
    for name, source in _shown_sources(wired):
        yield f"      {name} ← {_origin(source)}"
    waited = [name for name in step.depends_on if name in wired.needs]
    if waited:
        yield f"      after {', '.join(waited)}"


def _told(wired: Wired) -> str:
    """A step in a few words."""
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
    is_told = wired.step.mapping if wired.step.batch_mode else wired.sources
    yield from ((name, source) for name, source in wired.sources.items() if name in is_told)


def _origin(source: Source) -> str:
    if source.kind == "step":
        return f"{source.name}{source.path} (step)"
    return f"{source} (input)" if source.kind == "input" else str(source)


def as_mermaid(flow: Flow) -> Iterator[str]:
    """The graph in Mermaid's words, for a page that draws it."""
    numbers = {wired.step.id: f"s{number}" for number, wired in enumerate(flow.steps)}
    yield "flowchart TD"
    yield '  in(["inputs"])'
    if any(source.kind == "items" for wired in flow.steps for _, source in _shown_sources(wired)):
        yield f'  items(["{ITEMS}"])'
    for wired in flow.steps:
        shape = '{{"', '"}}'
        left, right = shape if wired.step.kind == "batch_aggregator" else ('["', '"]')
        yield f"  {numbers[wired.step.id]}{left}{_plain(wired.step.id)}<br/>{_plain(_told(wired))}{right}"
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
    """A text that Mermaid takes for nothing but a text."""
    return _PLAIN.sub(" ", text).strip() or "-"
