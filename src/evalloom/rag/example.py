"""The RAG example files of the demo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evalloom.data.dialect import Rules
from evalloom.engine.example import Example, ExampleFile, Part, PartResult, Suite

if TYPE_CHECKING:
    from evalloom.engine.system import Catalog

FAULTY_FILE_CODES = (
    "json_parse_error",
    "json_not_object",
    "missing_field",
    "empty_id",
    "duplicate_id",
    "bad_query",
    "bad_expected_sources",
    "bad_must_include",
    "invalid_bucket",
    "expected_file_missing",
    "expected_dir_missing",
    "source_outside_root",
    "missing_bucket_default",
    "missing_pair_id",
    "empty_pair_id",
    "empty_concept_id",
    "must_include_duplicates",
    "must_include_too_short",
    "must_include_not_in_expected_sources",
    "unpaired_pair_id",
    "blank_must_include_entry",
)
"""The codes that the faulty example shows: every error and warning of RAG-2 and RAG-3 about a line of a file."""


def _with_sources(examples: Path) -> Rules:
    return Rules(root=examples / "rag", check_sources_exist=True, check_must_include_in_sources=True)


def _retrieve(catalog: Catalog, examples: Path, home: Path) -> PartResult:
    from evalloom.rag.demo import retrieve

    return retrieve(catalog, examples, home)


EXAMPLE = Example(
    suites=(Suite("rag", passed=40, failed=16),),
    files=(
        ExampleFile("rag/eval_cases.jsonl", "rag", _with_sources),
        ExampleFile("elsewhere/faulty_eval_cases.jsonl", "rag", _with_sources, FAULTY_FILE_CODES),
    ),
    parts=(
        Part(
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
