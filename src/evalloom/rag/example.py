"""The RAG example files of the demo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evalloom.data.dialect import Rules
from evalloom.engine.example import DemoPart, DemoPartResult, Example, ExampleFile

if TYPE_CHECKING:
    from evalloom.engine.system import Catalog


def _with_sources(examples: Path) -> Rules:
    return Rules(root=examples / "rag", check_sources_exist=True, check_must_include_in_sources=True)


def _retrieve(catalog: Catalog, examples: Path, home: Path) -> DemoPartResult:
    from evalloom.rag.demo import retrieve

    return retrieve(catalog, examples, home)


EXAMPLE = Example(
    suites=("rag",),
    files=(
        ExampleFile("rag/eval_cases.jsonl", "rag", _with_sources),
        ExampleFile("elsewhere/faulty_eval_cases.jsonl", "rag", _with_sources, is_faulty=True),
    ),
    parts=(
        DemoPart(
            title="A handbook, searched by official and by oral wordings",
            heading="A handbook, searched by official and by oral wordings of the same questions",
            key="retrievals",
            run=_retrieve,
        ),
    ),
    commands=(
        "validate {examples}/elsewhere/faulty_eval_cases.jsonl --root {examples}/rag"
        " --check-sources-exist --check-must-include-in-sources",
    ),
    # A RAG case must name sources and anchors, and few other cases do.
    may_be_incomplete=True,
)
