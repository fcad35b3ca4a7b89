"""Pipelines and testsets: everything that the system adds to evalloom, in one value."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from evalloom.core.model import Finding, Record
from evalloom.data.dialect import Rules
from evalloom.data.formats import Document
from evalloom.engine.system import Command, RuleFlag, System
from evalloom.pipeline.dialect import DIALECT
from evalloom.pipeline.example import EXAMPLE
from evalloom.targets.base import BuiltTarget, Kind, TargetOptions

if TYPE_CHECKING:
    import click

    from evalloom.engine.init import Starter


def is_pipeline(document: Record) -> bool:
    """Whether an object is a pipeline: it has steps."""
    steps = document.get("steps")
    return isinstance(steps, list) and all(isinstance(step, dict) for step in steps)


def _findings(path: Path) -> Iterable[Finding]:
    """What is wrong with a pipeline, its agents and prompts; its functions are not loaded."""
    from evalloom.pipeline.target import examine

    return examine(path).findings


def _pipeline(spec: Record, folder: Path, options: TargetOptions) -> BuiltTarget:
    from evalloom.pipeline.target import build

    return build(spec, folder, options)


def _check_fit(rules: Rules, file: str) -> Rules:
    from evalloom.pipeline.target import with_pipeline

    return with_pipeline(rules, file)


def _command() -> click.Command:
    from evalloom.pipeline.cli import command

    return command


def _starter() -> Starter:
    from evalloom.pipeline.starter import STARTER

    return STARTER


SYSTEM = System(
    name="pipeline",
    title="Pipelines and testsets",
    dialects=(DIALECT,),
    documents=(
        Document(
            "a pipeline",
            "it has steps",
            is_pipeline,
            _findings,
            refusal="is a pipeline, not a testset. Give it as --pipeline beside a testset",
            is_never_case=True,
        ),
    ),
    targets=(Kind("pipeline", "FILE.yaml", "steps that are prompts, functions and aggregators", _pipeline),),
    rule_flags=(RuleFlag("--pipeline", "Pipeline: check steps and inputs against this pipeline.", _check_fit, "FILE"),),
    commands=(Command("pipeline", "Show how data goes through a pipeline, and what is wrong with it.", _command),),
    starter=_starter,
    example=EXAMPLE,
)
