"""RAG eval cases: everything that the system adds to evalloom, in one value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalloom.engine.system import Command, System
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


SYSTEM = System(
    name="rag",
    title="RAG eval cases",
    dialects=(DIALECT,),
    sections=(SECTION,),
    batch_kinds=(BATCH_KIND,),
    buckets=BUCKETS,
    commands=(Command("rag", "Measure what a RAG system finds and answers, oral against official.", _command),),
    starter=_starter,
    example=EXAMPLE,
)
