"""Context recipes and run records: the parts that this system adds to evalloom."""

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
    from evalloom.settings.section import Section
    from evalloom.targets.base import BuiltTarget, TargetOptions


def is_recipe(document: Record) -> bool:
    """Return whether this is a project or its state; nodes of other graphs have no `data`."""
    state = document.get("state")
    if isinstance(state, dict):
        return isinstance(state.get("nodes"), list)
    nodes = document.get("nodes")
    return isinstance(nodes, list) and any(isinstance(node, dict) and "data" in node for node in nodes)


def _findings(path: Path) -> Iterable[Finding]:
    from evalloom.replay.recipe.document import RecipeFile

    return RecipeFile(path).findings()


def _recipe(spec: Record, folder: Path, options: TargetOptions) -> BuiltTarget:
    from evalloom.replay.recipe.target import build

    return build(spec, folder, options)


def _replay() -> click.Command:
    from evalloom.replay.cli import command

    return command


def _starter() -> Starter:
    from evalloom.replay.starter import STARTER

    return STARTER


def _example() -> Example:
    from evalloom.replay.example import EXAMPLE

    return EXAMPLE


def _pages() -> PageSection:
    from evalloom.replay.pages import SECTION

    return SECTION


def _sections() -> tuple[Section[Any], ...]:
    from evalloom.replay.settings import SECTION

    return (SECTION,)


def _parts() -> Parts:
    from evalloom.data.formats import Document
    from evalloom.engine.parts import Parts
    from evalloom.replay.dialect import DIALECT
    from evalloom.targets.base import Kind

    what = "a context of nodes and variables, sent to the llm of the profile"
    return Parts(
        dialects=(DIALECT,),
        documents=(Document("a context recipe", "it has nodes", is_recipe, _findings),),
        targets=(Kind("recipe", "FILE.json", what, _recipe),),
        sections=_sections,
        pages=_pages,
        starter=_starter,
        example=_example,
    )


SYSTEM = System(
    name="replay",
    title="Context recipes and run records",
    parts=_parts,
    commands=(Command("replay", "Build a context for each dataset row, and report changes.", _replay),),
)
