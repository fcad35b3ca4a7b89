"""RAG eval cases: everything that the system adds to evalloom, in one value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from evalloom.data.dialect import Rules
from evalloom.engine.system import Command, RuleFlag, System
from evalloom.rag.batches import BATCH_KIND
from evalloom.rag.dialect import BUCKETS, DIALECT
from evalloom.rag.example import EXAMPLE
from evalloom.rag.settings import SECTION

if TYPE_CHECKING:
    import click

    from evalloom.engine.init import Starter


def _command() -> click.Command:
    from evalloom.rag.cli import command

    return command


def _starter() -> Starter:
    from evalloom.rag.starter import STARTER

    return STARTER


def _check_sources(rules: Rules, value: str) -> Rules:
    return structs.replace(rules, check_sources_exist=True)


def _check_anchors(rules: Rules, value: str) -> Rules:
    return structs.replace(rules, check_must_include_in_sources=True)


SYSTEM = System(
    name="rag",
    title="RAG eval cases",
    dialects=(DIALECT,),
    rule_flags=(
        RuleFlag("--check-sources-exist", "RAG: every expected source must exist under --root.", _check_sources),
        RuleFlag("--check-must-include-in-sources", "RAG: look for must_include in the sources.", _check_anchors),
    ),
    sections=(SECTION,),
    batch_kinds=(BATCH_KIND,),
    buckets=BUCKETS,
    commands=(Command("rag", "Measure what a RAG system finds and answers, oral against official.", _command),),
    starter=_starter,
    example=EXAMPLE,
)
