"""`evalloom rag suggest` and `rag init`: eval cases from existing documents (RAG-11)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from msgspec import Struct

from evalloom.core.digest import digest_text
from evalloom.core.errors import usage_error
from evalloom.core.model import Record
from evalloom.core.ranking import Passage
from evalloom.files.write import write_text
from evalloom.rag.retrieval import Index
from evalloom.rag.retrieval.anchors import anchors
from evalloom.rag.retriever import Listener, SearchOptions, open_corpus

_CLOSE = 0.6
"""Minimum score of a further source, as a share of the best score."""
_MOST_SOURCES = 2


class Proposal(Struct, frozen=True):
    """A source for a query: its best passage, and anchor texts from it."""

    passage: Passage
    anchors: list[str]
    terms: list[str]
    """The query words that occur in the passage."""


class Suggestion(Struct, frozen=True):
    """The proposed sources for a query, and a case built from the best ones."""

    query: str
    proposals: list[Proposal]
    case: Record


def suggest(query: str, index: Index, k: int, bucket: str, pair_id: str) -> Suggestion:
    """Propose sources and anchors for a query, and a case to review."""
    if len(query.strip()) < 2:
        raise usage_error("bad_query", f"expected a query of 2 or more characters, got {query!r}")
    proposals = list(_proposals(query, index, k))
    least = _CLOSE * (proposals[0].passage.score or 0.0) if proposals else 0.0
    chosen = [proposal for proposal in proposals if (proposal.passage.score or 0.0) >= least][:_MOST_SOURCES]
    anchor_texts = [anchor for proposal in chosen[:1] for anchor in proposal.anchors]
    case: Record = {
        "id": _id(query, bucket),
        "query": query,
        "expected_sources": [proposal.passage.source for proposal in chosen],
        "must_include": anchor_texts,
        "bucket": bucket,
        **({"pair_id": pair_id} if pair_id else {}),
    }
    return Suggestion(query, proposals, case)


def _proposals(query: str, index: Index, k: int) -> Iterator[Proposal]:
    sources: set[str] = set()
    for passage in index.search(query, 4 * k):
        if passage.source in sources or len(sources) == k:
            continue
        sources.add(passage.source)
        terms = [term.text for term in index.explain(query, passage.source).terms if term.score > 0]
        yield Proposal(passage, anchors(query, passage.text), terms)


def _id(query: str, bucket: str) -> str:
    """A stable id: the words of a Latin query, or a digest of any other."""
    plain = "-".join(re.findall(r"[a-z0-9]+", query.casefold()))[:40].strip("-")
    name = plain if plain and query.isascii() else digest_text(query, 4)
    return f"{name}-{bucket}"


class StarterCases(Struct, frozen=True):
    """The written starter cases, the documents without any, and the number of cases left out."""

    file: Path
    cases: list[Record]
    without: list[str]
    more: int


def write_starter_cases(search: SearchOptions, file: Path, most: int, listener: Listener) -> StarterCases:
    """Write starter cases from headings as official queries, taking turns between documents."""
    if os.path.lexists(file):
        message = f"{file.as_posix()}: already there and not overwritten. Name another file with -o"
        raise usage_error("file_exists", message)
    index, _ = open_corpus(search, listener)
    names = _names(list(index.documents()))
    by_source = {source: list(_cases_of(source, names[source], index)) for source in index.documents()}
    in_turn = [case for turn in zip_longest(*by_source.values()) for case in turn if case is not None]
    if not in_turn:
        raise usage_error("empty_corpus", f"--root {search.root}: no document has a heading and a text to ask about")
    cases = in_turn[:most]
    write_text(file, "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases))
    without = [source for source, own in by_source.items() if not own]
    return StarterCases(file, cases, without, len(in_turn) - len(cases))


def _names(sources: list[str]) -> dict[str, str]:
    """A unique name for each document: of `zh/leave.md` and `zh/leave.html` the second gets a number."""
    names: dict[str, str] = {}
    for source in sources:
        plain = Path(source).with_suffix("").as_posix().replace("/", "-")
        taken = sum(name == plain or name.startswith(f"{plain}~") for name in names.values())
        names[source] = f"{plain}~{taken + 1}" if taken else plain
    return names


def _cases_of(source: str, own_name: str, index: Index) -> Iterator[Record]:
    queries: set[str] = set()
    for passage in index.passages(source):
        # With its parent heading: "Conditions" alone asks nothing.
        query = " ".join(passage.heading.split(" > ")[-2:]).strip()
        anchor_texts = anchors(query, passage.text, 1)
        if len(query) < 2 or not anchor_texts or query in queries:
            continue
        queries.add(query)
        name = f"{own_name}-{len(queries)}"
        yield {
            "id": f"{name}-official",
            "query": query,
            "expected_sources": [source],
            "must_include": anchor_texts,
            "bucket": "official",
            "pair_id": name,
            "concept_id": name,
        }
