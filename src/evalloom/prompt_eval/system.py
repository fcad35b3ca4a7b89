"""The system `prompt_eval`: prompts scored 1 to 3 on test points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evalloom.engine.system import Command, System

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import click

    from evalloom.core.model import Finding, Record
    from evalloom.engine.example import Example
    from evalloom.engine.init import Starter
    from evalloom.engine.parts import Parts
    from evalloom.pages.page import Section as PageSection
    from evalloom.reports import RunReporter
    from evalloom.settings.section import Section


def is_plan(document: Record) -> bool:
    """Whether an object is a test plan: it has test points."""
    return isinstance(document.get("test_points"), list)


def _findings(path: Path) -> Iterable[Finding]:
    from evalloom.prompt_eval.plan import read_plan

    return read_plan(path)[1]


def _command() -> click.Command:
    from evalloom.prompt_eval.cli import command

    return command


def _starter() -> Starter:
    from evalloom.prompt_eval.starter import STARTER

    return STARTER


def _example() -> Example:
    from evalloom.prompt_eval.example import EXAMPLE

    return EXAMPLE


def _pages() -> PageSection:
    from evalloom.prompt_eval.pages import SECTION

    return SECTION


def _sections() -> tuple[Section[Any], ...]:
    from evalloom.prompt_eval.settings import SECTION

    return (SECTION,)


def _results() -> RunReporter:
    from evalloom.prompt_eval.reports import results

    return results


def _parts() -> Parts:
    from evalloom.data.formats import Document
    from evalloom.engine.parts import Parts
    from evalloom.prompt_eval.dialect import DIALECT
    from evalloom.reports.exporters import Exporter

    what = "prompt-eval results: test_cases_with_results.json, or with scores final_scored_results.json"

    return Parts(
        dialects=(DIALECT,),
        documents=(Document("a test plan", "it has test points", is_plan, _findings),),
        exporters=(Exporter("prompt-eval", ".prompt-eval.json", _results, what, needs_records=True),),
        sections=_sections,
        pages=_pages,
        starter=_starter,
        example=_example,
    )


SYSTEM = System(
    name="prompt-eval",
    title="Prompts scored 1 to 3 on test points",
    parts=_parts,
    commands=(Command("prompt-eval", "Score a prompt on test points and improve it.", _command),),
)
