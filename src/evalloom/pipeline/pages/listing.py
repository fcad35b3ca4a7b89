"""The pipelines below a project with what is wrong with them, the graph of one, and batches of pipelines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from markupsafe import Markup
from msgspec import Struct

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch, Finding
from evalloom.pages.errors import RequestError
from evalloom.pages.library import BatchSummary
from evalloom.pages.page import Page, PageRequest, View
from evalloom.pipeline.flow import Flow
from evalloom.pipeline.pages.graph import GraphStep, draw
from evalloom.pipeline.target import PipelineCheck, check_pipeline, flow_of
from evalloom.ui.language import Language

_DEEPEST = 6
_MOST_FILES = 5_000
_LARGEST = 1_000_000
"""Bytes of a file that may be a pipeline."""
_SHOWN = 100
_BATCHES_SHOWN = 50
_PASSED_OVER = {"node_modules", "__pycache__", "venv"}


class ListedPipeline(Struct, frozen=True):
    """A pipeline in the list."""

    file: str
    id: str
    name: str
    steps: list[str]
    variants: list[str]
    errors: int
    warnings: int


class Pipelines(Struct, frozen=True):
    """The pipelines and their batches."""

    pipelines: list[ListedPipeline]
    batches: list[BatchSummary]


class StepSource(Struct, frozen=True):
    """A parameter of a step and where its value comes from."""

    name: str
    source: str


class FlowStep(Struct, frozen=True):
    """A step of a pipeline file."""

    id: str
    kind: str
    needs: list[str]
    output_key: str
    is_required: bool
    is_batch: bool
    sources: list[StepSource]


class PipelinePage(Struct, frozen=True):
    """One pipeline file."""

    file: str
    id: str
    name: str
    inputs: list[str]
    outputs: dict[str, str]
    variant: str
    variants: list[str]
    steps: list[FlowStep]
    findings: list[Finding]

    def graph(self, t: Language) -> Markup:
        """Return the graph of the steps."""
        steps = [
            GraphStep(
                step.id, step.needs, kind_word(step.kind, t), f"→ {step.output_key}", "", f"{step.id}, {step.kind}"
            )
            for step in self.steps
        ]
        return draw(steps, self.id)


def kind_word(kind: str, t: Language) -> str:
    """Return the kind of a step in words."""
    words = {"prompt": t("prompt"), "code_node": t("function"), "batch_aggregator": t("aggregator")}
    return words.get(kind, kind)


def _show(request: PageRequest) -> View:
    found = []
    for path in _pipeline_files(request.site.home):
        check = check_pipeline(path)
        if check.pipeline is not None:
            found.append(_listed(path.relative_to(request.site.home).as_posix(), check))
        if len(found) >= _SHOWN:
            break
    batches = [summary for summary in request.site.library.summaries() if is_pipeline_batch(summary)]
    return View("pipelines.html", Pipelines(found, batches[:_BATCHES_SHOWN]))


def is_pipeline_batch(batch: Batch | BatchSummary) -> bool:
    """Whether the target of a batch is a pipeline."""
    return batch.target.startswith("pipeline:")


def _listed(file: str, check: PipelineCheck) -> ListedPipeline:
    pipeline = check.pipeline
    assert pipeline is not None
    severities = [finding.severity for finding in check.findings]
    variants = [name for name, variant in pipeline.variants.items() if variant.at]
    steps = [step.id for step in pipeline.steps]
    return ListedPipeline(
        file, pipeline.id, pipeline.name, steps, variants, severities.count("error"), severities.count("warning")
    )


def _pipeline_files(home: Path) -> Iterator[Path]:
    """Yield the YAML files below a folder that may be a pipeline; links are not followed."""
    seen = 0
    for name, folders, files in os.walk(home):
        depth = len(Path(name).relative_to(home).parts)
        folders[:] = sorted(one for one in folders if one[0] != "." and one not in _PASSED_OVER and depth < _DEEPEST)
        for file in sorted(files):
            path = Path(name, file)
            seen += 1
            if seen > _MOST_FILES:
                return
            if path.suffix in (".yaml", ".yml") and not path.is_symlink() and _has_steps(path):
                yield path


def _has_steps(path: Path) -> bool:
    try:
        if path.stat().st_size > _LARGEST:
            return False
        lines = path.read_bytes().splitlines()
    except OSError:
        return False
    return any(line.startswith((b"steps:", b'"steps":')) for line in lines)


def _show_file(request: PageRequest) -> View:
    name, home = request.query.get("file", ""), request.site.home
    try:
        is_inside = (home / name).resolve().is_relative_to(home.resolve()) and (home / name).is_file()
        check = check_pipeline(home / name) if is_inside and Path(name).suffix in (".yaml", ".yml") else None
    except (OSError, ValueError, EvalloomError):
        check = None
    if check is None or check.pipeline is None:
        message = f"file: expected a pipeline below the project, got {name[:80]!r}"
        raise RequestError("pipeline_not_found", message)
    variant = request.query.get("variant", "")
    pipeline, flow = check.pipeline, flow_of(check, variant)
    data = PipelinePage(
        name,
        pipeline.id,
        pipeline.name,
        [f"{declared.name}{'' if declared.required else '?'}" for declared in pipeline.inputs],
        {key: str(source) for key, source in flow.outputs.items()},
        variant,
        [name for name, own in pipeline.variants.items() if own.at],
        list(_flow_steps(flow)),
        list(check.findings),
    )
    return View("pipeline_file.html", data)


def _flow_steps(flow: Flow) -> Iterator[FlowStep]:
    for wired in flow.steps:
        step = wired.step
        sources = [StepSource(name, str(source)) for name, source in wired.sources.items()]
        yield FlowStep(step.id, step.kind, list(wired.needs), step.output_key, step.required, step.batch_mode, sources)


PAGES = (Page("/pipeline", _show), Page("/pipeline/file", _show_file))
