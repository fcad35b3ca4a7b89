"""Parses a pipeline file: inputs, steps, outputs and variants, with each finding at its line (PIPE-6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.model import Finding, Origin, Record, Severity
from evalloom.core.model import Path as Where
from evalloom.core.text import did_you_mean, quote, type_name
from evalloom.files.read import RowReader
from evalloom.files.rows import Row
from evalloom.files.source import source_of
from evalloom.pipeline.aggregate import read_options
from evalloom.pipeline.keys import (
    ABOUT,
    CODE_KEYS,
    KINDS,
    PIPELINE_KEYS,
    PROMPT_KEYS,
    STEP_KEYS,
    WORD,
    StepKind,
    without_alternatives,
)

BASELINE = "baseline"
"""The variant that every pipeline has: its `baseline:`, or the pipeline unchanged."""


class PipelineInput(Struct, frozen=True):
    """An input that a pipeline declares."""

    name: str
    required: bool = True
    default: Any = None
    has_default: bool = False


class Step(Struct, frozen=True):
    """A step of the file; `spec` contains all its keys."""

    id: str
    kind: StepKind
    output_key: str
    mapping: Record = {}
    required: bool = True
    timeout: float | None = None
    depends_on: tuple[str, ...] = ()
    batch_mode: bool = False
    batch_size: int = 10
    concurrent: bool = True
    max_workers: int = 4
    spec: Record = {}


class PipelineOutput(Struct, frozen=True):
    """An output of a pipeline, and the output key or path that it comes from."""

    key: str
    source: str


class Variant(Struct, frozen=True):
    """A pipeline with some keys of some steps changed."""

    name: str
    overrides: dict[str, Record]
    at: Where = ()


class Pipeline(Struct, frozen=True):
    """A parsed pipeline file; `steps` are those without a variant."""

    path: Path
    id: str
    name: str
    inputs: tuple[PipelineInput, ...]
    steps: tuple[Step, ...]
    outputs: tuple[PipelineOutput, ...]
    variants: dict[str, Variant]
    evaluation_target: str
    default_testset: str
    document: Record

    @property
    def input_names(self) -> frozenset[str]:
        return frozenset(declared.name for declared in self.inputs)

    @property
    def optional(self) -> frozenset[str]:
        """The declared inputs that a case may omit."""
        return self.input_names - self.required

    @property
    def required(self) -> frozenset[str]:
        """The inputs that every case must have."""
        return frozenset(declared.name for declared in self.inputs if declared.required)


class FindingCollector:
    """Collects findings about a pipeline, each at the position of its key."""

    def __init__(self, path: Path, row: Row | None = None) -> None:
        self._file = path.as_posix()
        self._row = row
        self.findings: list[Finding] = []
        self._reported: set[tuple[str, str]] = set()

    def report_finding(self, code: str, where: Where, message: str, severity: Severity = "error") -> None:
        origin = Origin(self._file, *(self._row.place_of(where) if self._row and where else ()))
        self.add(Finding(code, severity, message, origin, str(where[-1]) if where else ""))

    def add(self, finding: Finding) -> None:
        """Add a finding once, because the variants of a pipeline repeat it."""
        if (finding.code, finding.message) not in self._reported:
            self._reported.add((finding.code, finding.message))
            self.findings.append(finding)

    @property
    def has_errors(self) -> bool:
        return any(finding.severity == "error" for finding in self.findings)


def read_pipeline(path: Path) -> tuple[Pipeline | None, FindingCollector]:
    """Parse a pipeline file; return the pipeline, if readable, and its findings."""
    items = list(RowReader(source_of(path)))
    rows = [item for item in items if isinstance(item, Row)]
    row = rows[0] if len(rows) == 1 else None
    collector = FindingCollector(path, row)
    for problem in items:
        if not isinstance(problem, Row):
            origin = Origin(path.as_posix(), *problem.place)
            collector.add(Finding(problem.code, problem.severity, problem.message, origin))
    if row is None or not isinstance(row.value, dict) or not isinstance(row.value.get("steps"), list):
        if not collector.has_errors:
            collector.report_finding("pipeline_unreadable", (), "expected an object with a list 'steps'")
        return None, collector
    return _PipelineParser(path, row.value, collector).pipeline(), collector


def steps_of(pipeline: Pipeline, variant: str, collector: FindingCollector) -> tuple[Step, ...]:
    """Return the steps of a variant; an empty name means no variant."""
    if not variant:
        return pipeline.steps
    return tuple(_PipelineParser(pipeline.path, pipeline.document, collector).steps(pipeline.variants[variant]))


def place_in(pipeline: Pipeline, step_id: str, key: str, variant: str = "") -> Where:
    """Return the path of a step's key: in the overrides of the variant, or in the step."""
    chosen = pipeline.variants.get(variant)
    if chosen is not None and key in chosen.overrides.get(step_id, {}):
        return (*chosen.at, step_id, key)
    for number, written in enumerate(pipeline.document["steps"]):
        if isinstance(written, dict) and written.get("id") == step_id:
            return ("steps", number, key)
    return ("steps",)


class _PipelineParser:
    """Parses one document and collects its findings."""

    def __init__(self, path: Path, document: Record, collector: FindingCollector) -> None:
        self._path = path
        self._document = document
        self._collector = collector

    def pipeline(self) -> Pipeline:
        document = self._document
        for key in document:
            if key not in PIPELINE_KEYS:
                self._report_unknown_key((key,), key, PIPELINE_KEYS)
        pipeline = Pipeline(
            path=self._path,
            id=self._text("id") or self._path.stem,
            name=self._text("name"),
            inputs=tuple(self._inputs()),
            steps=tuple(self.steps(Variant("", {}))),
            outputs=tuple(self._outputs()),
            variants={variant.name: variant for variant in self._variants()},
            evaluation_target=self._text("evaluation_target"),
            default_testset=self._text("default_testset"),
            document=document,
        )
        if not document["steps"]:
            self._collector.report_finding(
                "bad_pipeline", ("steps",), "steps: is empty; a pipeline needs at least one step"
            )
        for variant in pipeline.variants.values():
            if variant.at[:1] == ("variants",) and not self._changes(variant):
                message = f"variant {variant.name!r}: changes nothing, so its results equal those of the pipeline"
                self._collector.report_finding("bad_variant", variant.at, message, "warning")
            for step_id in variant.overrides.keys() - {step.id for step in pipeline.steps}:
                hint = did_you_mean(step_id, [step.id for step in pipeline.steps])
                message = f"variant {variant.name!r}: the pipeline has no step {step_id!r}{hint}"
                self._collector.report_finding("bad_variant", (*variant.at, step_id), message)
        return pipeline

    def _changes(self, variant: Variant) -> bool:
        """Return whether a variant differs from the steps."""
        written = [step for step in self._document["steps"] if isinstance(step, dict)]
        steps = {id: step for step in written if isinstance(id := step.get("id"), str)}
        return any(
            steps.get(step_id, {}).get(key) != value
            for step_id, changed in variant.overrides.items()
            for key, value in changed.items()
        )

    def _text(self, key: str) -> str:
        value = self._document.get(key)
        if value is None or isinstance(value, str):
            return value or ""
        self._report_wrong_value((key,), key, "a string", value)
        return ""

    def _inputs(self) -> Iterator[PipelineInput]:
        for number, entry in enumerate(self._list("inputs")):
            where = ("inputs", number)
            written = {"name": entry} if isinstance(entry, str) else entry
            if not isinstance(written, dict) or not isinstance(written.get("name"), str):
                self._report_wrong_value(where, f"inputs[{number}]", "a name, or an object with one", entry)
                continue
            self._check_keys(written, where, f"inputs[{number}]", ("name", "required", "default", "type", *ABOUT))
            required = written.get("required", True)
            if not isinstance(required, bool):
                self._report_wrong_value((*where, "required"), f"inputs[{number}].required", "true or false", required)
            has_default = "default" in written
            yield PipelineInput(
                written["name"], required is True and not has_default, written.get("default"), has_default
            )

    def _outputs(self) -> Iterator[PipelineOutput]:
        keys: set[str] = set()
        for number, entry in enumerate(self._list("outputs")):
            written = entry if isinstance(entry, dict) else {"key": entry}
            key = written.get("key", written.get("name"))
            source = written.get("source", key)
            if isinstance(key, str) and key and isinstance(source, str):
                where = ("outputs", number)
                self._check_keys(written, where, f"outputs[{number}]", ("key", "source", "type", *ABOUT))
                if key in keys:
                    self._collector.report_finding(
                        "bad_pipeline", where, f"outputs[{number}]: {key!r} is already an output"
                    )
                keys.add(key)
                yield PipelineOutput(key, source)
            else:
                self._report_wrong_value(
                    ("outputs", number), f"outputs[{number}]", "a key, or an object with one", entry
                )

    def _list(self, key: str) -> list[Any]:
        value = self._document.get(key)
        if value is None or isinstance(value, list):
            return value or []
        self._report_wrong_value((key,), key, "a list", value)
        return []

    def _variants(self) -> Iterator[Variant]:
        baseline = self._document.get("baseline")
        if isinstance(baseline, dict):
            self._check_keys(baseline, ("baseline",), "baseline", ("steps", *ABOUT))
            yield from self._variant(BASELINE, baseline.get("steps") or {}, ("baseline", "steps"))
            if isinstance(name := baseline.get("name"), str) and name != BASELINE:
                yield from self._variant(name, baseline.get("steps") or {}, ("baseline", "steps"))
        else:
            if baseline is not None:
                self._report_wrong_value(("baseline",), "baseline", "an object with steps", baseline)
            yield Variant(BASELINE, {})
        variants = self._document.get("variants") or {}
        if not isinstance(variants, dict):
            self._report_wrong_value(("variants",), "variants", "an object by name", variants)
            return
        for name, written in variants.items():
            fields = written if isinstance(written, dict) else {}
            key = "overrides" if "overrides" in fields or "steps" not in fields else "steps"
            if isinstance(written, dict):
                self._check_keys(fields, ("variants", name), f"variants.{name}", ("overrides", "steps", *ABOUT))
            else:
                self._report_wrong_value(("variants", name), f"variants.{name}", "an object with overrides", written)
            yield from self._variant(name, fields.get(key) or {}, ("variants", name, key))

    def _variant(self, name: str, overrides: Any, at: Where) -> Iterator[Variant]:
        if not isinstance(overrides, dict):
            self._report_wrong_value(at, ".".join(map(str, at)), "an object of keys by step id", overrides)
            return
        for step_id, changed in overrides.items():
            if not isinstance(changed, dict):
                self._report_wrong_value(
                    (*at, step_id), ".".join(map(str, (*at, step_id))), "an object of keys", changed
                )
        overrides = {step_id: changed for step_id, changed in overrides.items() if isinstance(changed, dict)}
        for step_id, changed in overrides.items():
            for key in {"id", "output_key"} & changed.keys():
                message = f"variant {name!r}: step {step_id!r}: {key}: cannot be changed by a variant"
                self._collector.report_finding("bad_variant", (*at, step_id, key), message)
        yield Variant(name, overrides, at)

    # -- steps ----------------------------------------------------------------------------------------

    def steps(self, variant: Variant) -> Iterator[Step]:
        """Yield the steps of a variant; entries that are not steps get a finding and are skipped."""
        lines: dict[str, int] = {}
        for number, written in enumerate(self._document["steps"]):
            where: Where = ("steps", number)
            if not isinstance(written, dict) or not WORD[1](written.get("id")):
                got = written if not isinstance(written, dict) else written.get("id")
                self._report_wrong_value(where, f"steps[{number}].id", "a string that is not empty", got)
                continue
            step_id = written["id"]
            if step_id in lines:
                message = f"step {step_id!r}: steps[{number}] has the id of steps[{lines[step_id]}]; ids must be unique"
                self._collector.report_finding("duplicate_step", (*where, "id"), message)
                continue
            lines[step_id] = number
            changed = variant.overrides.get(step_id, {})
            place_of = partial(_step_place, where, (*variant.at, step_id), changed)
            yield self._step(step_id, {**without_alternatives(written, changed), **changed}, place_of)

    def _step(self, step_id: str, spec: Record, place_of: Callable[[str], Where]) -> Step:
        valid: Record = {}
        for key, value in spec.items():
            if key not in STEP_KEYS:
                self._report_unknown_key(place_of(key), f"step {step_id!r}: {key}", STEP_KEYS)
            elif value is not None and not STEP_KEYS[key][1](value):
                self._report_wrong_value(place_of(key), f"step {step_id!r}: {key}", STEP_KEYS[key][0], value)
            elif value is not None:
                valid[key] = value
        if "code_file" in valid:
            self._read_code(step_id, valid, place_of)
        kind = self._kind(step_id, valid, place_of)
        if kind == "batch_aggregator":
            self._check_aggregator(step_id, valid, place_of)
        waits = valid.get("depends_on", ())
        timeout = valid.get("timeout")
        return Step(
            id=step_id,
            kind=kind,
            output_key=valid.get("output_key", step_id),
            mapping=valid.get("input_mapping", {}),
            required=valid.get("required", True),
            timeout=None if timeout is None else float(timeout),
            depends_on=(waits,) if isinstance(waits, str) else tuple(waits),
            batch_mode=valid.get("batch_mode", False),
            batch_size=valid.get("batch_size", 10),
            concurrent=valid.get("concurrent", True),
            max_workers=valid.get("max_workers", 4),
            spec=valid,
        )

    def _read_code(self, step_id: str, valid: Record, place_of: Callable[[str], Where]) -> None:
        """Load `code` from a step's `code_file`, which must be inside the pipeline's folder."""
        file, folder = self._path.parent / valid["code_file"], self._path.parent
        try:
            if not file.resolve().is_relative_to(folder.resolve()):
                raise OSError("it is outside the folder of the pipeline")
            valid["code"] = file.read_text("utf-8")
        except (OSError, ValueError) as error:  # not UTF-8, or a name that no file can have
            reason = (getattr(error, "strerror", "") or str(error)).lower()
            message = f"step {step_id!r}: code_file: {quote(valid['code_file'])} cannot be read: {reason}"
            self._collector.report_finding("bad_step", place_of("code_file"), message)

    def _kind(self, step_id: str, spec: Record, place_of: Callable[[str], Where]) -> StepKind:
        written_type = spec.get("type")
        if written_type is not None:
            if written_type in KINDS:
                return self._checked_kind(step_id, KINDS[written_type], spec, place_of)
            expected = "prompt, code_node or batch_aggregator"
            self._report_wrong_value(
                place_of("type"), f"step {step_id!r}: type", expected, written_type, did_you_mean(written_type, KINDS)
            )
        if "strategy" in spec or "aggregation_strategy" in spec:
            return "batch_aggregator"
        if any(key in spec for key in PROMPT_KEYS):
            return self._checked_kind(step_id, "prompt", spec, place_of)
        if any(key in spec for key in CODE_KEYS):
            return "code_node"
        if written_type is None:
            message = f"step {step_id!r}: does nothing. Add agent and flow, prompt, code_ref, or a strategy"
            self._collector.report_finding("bad_step", place_of("id"), message)
        return "prompt"

    def _checked_kind(self, step_id: str, kind: StepKind, spec: Record, place_of: Callable[[str], Where]) -> StepKind:
        sources = [
            alternative
            for alternative in (("agent", "flow"), ("prompt", "prompt_file"))
            if any(key in spec for key in alternative)
        ]
        if kind == "prompt" and len(sources) > 1:
            self._collector.report_finding(
                "bad_step", place_of("prompt"), f"step {step_id!r}: has an agent and a prompt. Keep one of them"
            )
        wanted = {"prompt": PROMPT_KEYS, "code_node": CODE_KEYS}.get(kind, ())
        if wanted and not any(key in spec for key in wanted):
            message = f"step {step_id!r}: a step of type {kind} needs one of {', '.join(wanted)}"
            self._collector.report_finding("bad_step", place_of("type"), message)
        return kind

    def _check_aggregator(self, step_id: str, spec: Record, place_of: Callable[[str], Where]) -> None:
        if "strategy" not in spec and "aggregation_strategy" not in spec:
            message = f"step {step_id!r}: aggregation_strategy: missing. Set it here or in the step_inputs of each case"
            self._collector.report_finding("bad_aggregator", place_of("type"), message, "warning")
            return
        strategy_key = "strategy" if "strategy" in spec else "aggregation_strategy"
        for key, error in read_options(spec)[1]:
            self._collector.report_finding(
                "bad_aggregator", place_of(key if key in spec else strategy_key), f"step {step_id!r}: {key}: {error}"
            )

    def _check_keys(self, written: Record, where: Where, shown: str, allowed: tuple[str, ...]) -> None:
        for key in written:
            if key not in allowed:
                self._report_unknown_key((*where, key), f"{shown}.{key}", allowed)

    def _report_unknown_key(self, where: Where, shown: str, allowed: Any) -> None:
        message = f"{shown}: is not known and has no effect{did_you_mean(str(where[-1]), allowed)}"
        self._collector.report_finding("unknown_pipeline_key", where, message, "warning")

    def _report_wrong_value(self, where: Where, shown: str, expected: str, got: Any, hint: str = "") -> None:
        value = quote(got) if isinstance(got, str | int | float) and not isinstance(got, bool) else type_name(got)
        self._collector.report_finding("bad_pipeline", where, f"{shown}: expected {expected}, got {value}{hint}")


def _step_place(step: Where, overrides: Where, changed: Record, key: str) -> Where:
    """Return the path of a step's key: in the overrides of a variant, or in the step."""
    return (*overrides, key) if key in changed else (*step, key)


def with_options(step: Step, options: Record) -> Step:
    """Return a step with the options that one case sets."""
    own = {name: value for name, value in options.items() if name in Step.__struct_fields__ and name != "spec"}
    return msgspec.structs.replace(step, **own, spec={**without_alternatives(step.spec, options), **options})
