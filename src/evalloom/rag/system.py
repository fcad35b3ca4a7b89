"""The RAG system: everything that it adds to evalloom, in one value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evalloom.engine.system import Command, System

if TYPE_CHECKING:
    import click

    from evalloom.data.dialect import Rules
    from evalloom.engine.batch_kind import BatchKind
    from evalloom.engine.example import Example
    from evalloom.engine.init import Starter
    from evalloom.engine.parts import Parts
    from evalloom.pages.page import Section as PageSection
    from evalloom.reports import RunReporter
    from evalloom.settings.section import Section


def _command() -> click.Command:
    from evalloom.rag.cli import command

    return command


def _starter() -> Starter:
    from evalloom.rag.starter import STARTER

    return STARTER


def _check_sources(rules: Rules, value: str) -> Rules:
    from msgspec import structs

    return structs.replace(rules, check_sources_exist=True)


def _check_anchors(rules: Rules, value: str) -> Rules:
    from msgspec import structs

    return structs.replace(rules, check_must_include_in_sources=True)


def _example() -> Example:
    from evalloom.rag.example import EXAMPLE

    return EXAMPLE


def _pages() -> PageSection:
    from evalloom.rag.pages import SECTION

    return SECTION


def _sections() -> tuple[Section[Any], ...]:
    from evalloom.rag.settings import SECTION

    return (SECTION,)


def _batch_kinds() -> tuple[BatchKind, ...]:
    from evalloom.rag.batches import BATCH_KIND

    return (BATCH_KIND,)


def _report() -> RunReporter:
    from evalloom.rag.reports import batch

    return batch


def _parts() -> Parts:
    from evalloom.engine.parts import Parts, RuleFlag
    from evalloom.rag.dialect import BUCKETS, DIALECT
    from evalloom.reports.exporters import Exporter

    return Parts(
        dialects=(DIALECT,),
        rule_flags=(
            RuleFlag("--check-sources-exist", "RAG: every expected source must exist under --root.", _check_sources),
            RuleFlag("--check-must-include-in-sources", "RAG: look for must_include in the sources.", _check_anchors),
        ),
        exporters=(Exporter("rag", ".rag.json", _report, "report of 'evalloom rag', as JSON"),),
        sections=_sections,
        batch_kinds=_batch_kinds,
        buckets=BUCKETS,
        pages=_pages,
        starter=_starter,
        example=_example,
    )


SYSTEM = System(
    name="rag",
    title="RAG eval cases",
    parts=_parts,
    commands=(Command("rag", "Measure the retrieval and the answers of a RAG system.", _command),),
)
