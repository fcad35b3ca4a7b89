"""Registers pipelines and testsets with evalloom: dialect, target and commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalloom.engine.system import Command, System

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import click

    from evalloom.core.model import Finding, Record
    from evalloom.data.dialect import Rules
    from evalloom.engine.example import Example
    from evalloom.engine.init import Starter
    from evalloom.engine.parts import Parts
    from evalloom.pages.page import Section
    from evalloom.targets.base import BuiltTarget, TargetOptions


def is_pipeline(document: Record) -> bool:
    """Return whether an object is a pipeline: it has steps."""
    steps = document.get("steps")
    return isinstance(steps, list) and all(isinstance(step, dict) for step in steps)


def _findings(path: Path) -> Iterable[Finding]:
    """Check a pipeline, its agents and prompts, without importing its functions."""
    from evalloom.pipeline.target import check_pipeline

    return check_pipeline(path).findings


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


def _example() -> Example:
    from evalloom.pipeline.example import EXAMPLE

    return EXAMPLE


def _pages() -> Section:
    from evalloom.pipeline.pages import SECTION

    return SECTION


def _parts() -> Parts:
    from evalloom.data.formats import Document
    from evalloom.engine.parts import Parts, RuleFlag
    from evalloom.pipeline.dialect import DIALECT
    from evalloom.targets.base import Kind

    refusal = "is a pipeline, not a testset. Give it as --pipeline beside a testset"
    help_text = "Pipeline: check steps and inputs against this pipeline."
    return Parts(
        dialects=(DIALECT,),
        documents=(Document("a pipeline", "it has steps", is_pipeline, _findings, refusal, is_never_case=True),),
        targets=(Kind("pipeline", "FILE.yaml", "steps that are prompts, functions and aggregators", _pipeline),),
        rule_flags=(RuleFlag("--pipeline", help_text, _check_fit, "FILE"),),
        pages=_pages,
        starter=_starter,
        example=_example,
    )


SYSTEM = System(
    name="pipeline",
    title="Pipelines and testsets",
    parts=_parts,
    commands=(Command("pipeline", "Show the data flow of a pipeline, and check it for errors.", _command),),
)
