"""The output of `evalloom rag`: measures, oral against official, misses, and the next command."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from evalloom.console.layout import Line, Verbatim, command_lines, percent_interval, table_lines, unbroken
from evalloom.core.model import Batch
from evalloom.core.text import one_line, percent, pluralize, printable
from evalloom.engine.results import BatchProblem, Results
from evalloom.rag.analysis.measures import CaseRow, GroupMeasures, RagResults
from evalloom.rag.explain import Expectation, Explanation
from evalloom.rag.reports.content import (
    gap_cells,
    gap_heads,
    has_own_pass_rate,
    official_only,
    pass_rate,
    pass_rate_heads,
    smaller_denominators,
    wording_gap,
)
from evalloom.rag.retrieval import Explained, Refreshed
from evalloom.rag.retriever import Retriever
from evalloom.rag.suggest import StarterCases, Suggestion

_SHOWN = 10
_ERRORS = 3
_DEEP = 1000
"""Passages searched for a source that was missed."""
_APART = {
    "error": "ended in an error",
    "part_error": "had a repeat that ended in an error; the others count",
    "no_expected": "without expectations",
    "unscored": "not scored",
    "skipped": "skipped",
    "blocked": "blocked",
}


def index_line(retriever: Retriever, vectors: int) -> str:
    """The size of the index, and what the refresh changed."""
    if retriever.index is None:
        return ""
    return _corpus(retriever.refreshed, len(retriever.documents)) + (
        f"; {pluralize(vectors, 'vector')} made" if vectors else ""
    )


def _corpus(refreshed: Refreshed | None, documents: int) -> str:
    if refreshed is None:
        return f"index: {pluralize(documents, 'document')}, as stored"
    parts = [("new", refreshed.added), ("changed", refreshed.changed), ("gone", refreshed.removed)]
    changes = ", ".join(f"{number:,} {word}" for word, number in parts if number) or "up to date"
    unread = f", {len(refreshed.unread):,} not read" if refreshed.unread else ""
    size = f"{pluralize(refreshed.documents, 'document')}, {pluralize(refreshed.chunks, 'passage')}"
    return f"index: {size} ({changes}{unread})"


def refreshed_lines(root: str, refreshed: Refreshed) -> Iterator[Line]:
    """The output of `evalloom rag index`."""
    yield f"{printable(root)}: {_corpus(refreshed, refreshed.documents).removeprefix('index: ')}", "bold"
    for document in refreshed.unread:
        yield f"  {printable(document.path)}: {printable(document.reason)}", "yellow"
    if refreshed.passed_over:
        yield f"{pluralize(refreshed.passed_over, 'file')} of other kinds skipped", "dim"


# -- results ------------------------------------------------------------------------------------------


def result_lines(
    profiles: Sequence[RagResults], results: Results, retriever: Retriever, files: list[str]
) -> Iterator[Line]:
    """The results of a run, and the next command."""
    for result in profiles:
        yield from _profile_lines(result, retriever, len(profiles) > 1)
    for gate in results.gates:
        word, style = ("holds", "green") if gate.holds else ("does not hold", "bold red")
        yield printable(f"gate {gate.text}: {word} ({gate.reason})"), style
    yield from _files(files, results.path)
    if results.stopped:
        yield f"Stopped: {results.stopped}. Finished runs are stored; --resume continues with the others", "bold"
        return
    missed = [row for result in profiles for row in result.cases if row.status == "failed"]
    if missed:
        show = "rag explain" if profiles[0].purpose == "retrieve" else f"batches show {results.path.name} --case"
        yield from command_lines(f"evalloom {show} {shlex.quote(printable(missed[0].id))}", "Next: ")
    save, compare = unbroken("evalloom baseline save NAME"), unbroken("evalloom compare latest --against NAME")
    yield f"Next: {save}; after a change, {compare}", ""


def report_lines(profiles: Sequence[RagResults], path: Path, files: list[str]) -> Iterator[Line]:
    """The results of a stored batch."""
    for result in profiles:
        yield from _profile_lines(result, None, len(profiles) > 1)
    yield from _files(files, path)


def _files(files: list[str], record: Path) -> Iterator[Line]:
    for file in files:
        yield f"The report: {printable(file)}", ""
    yield f"Batch: {record.as_posix()}", ""


def _profile_lines(result: RagResults, retriever: Retriever | None, is_named: bool) -> Iterator[Line]:
    if is_named:
        yield f"profile {printable(result.profile)}", "bold"
    yield from _table(result)
    yield from _apart(result)
    yield from _wordings(result)
    yield from _misses(result, retriever)


def _table(result: RagResults) -> Iterator[Line]:
    names = [measure.name for measure in result.overall.measures]
    header = [
        "",
        "measured",
        *(part for name in names for part in ([name, "95 % CI"] if name == result.deciding else [name])),
        *pass_rate_heads(result),
    ]
    groups = [result.overall, *result.buckets]
    tags = result.tags if len(result.tags) <= _SHOWN else []
    rows = [_row(group, result.deciding, has_own_pass_rate(result)) for group in [*groups, *tags]]
    # The report has all measures.
    yield from table_lines(header, rows, spare=[name for name in reversed(names) if name != result.deciding])
    if result.tags and not tags:
        yield f"({pluralize(len(result.tags), 'tag')}: the report shows them)", "dim"


def _row(group: GroupMeasures, deciding: str, with_pass_rate: bool) -> list[str]:
    cells = [printable(group.name), f"{group.cases:,}"]
    for measure in group.measures:
        if measure.name != deciding:
            cells.append("-" if measure.mean is None else f"{measure.mean:.3f}")
        elif measure.mean is None:
            cells += ["-", "-"]
        else:
            cells += [percent(measure.mean), percent_interval(measure.low, measure.high)]
    if with_pass_rate:
        rate = group.pass_rate.mean
        cells += [f"{group.errors:,}", "-" if rate is None else percent(rate)]
    return cells


def _apart(result: RagResults) -> Iterator[Line]:
    for name, number in result.apart.items():
        if number:
            yield f"counted separately: {pluralize(number, 'case')} {_APART[name]}", "yellow"
    errors = Counter(row.error for row in result.cases if row.status == "error")
    for text, number in errors.most_common(_ERRORS):
        yield f"    {number:,} × {one_line(text, 300)}", "yellow"
    for sentence in filter(None, (*smaller_denominators(result), pass_rate(result))):
        yield sentence, "yellow"
    for measure, number in result.unjudged.items():
        yield f"{measure}: {pluralize(number, 'case')} could not be judged; 'evalloom batches show' shows why", "yellow"


def _wordings(result: RagResults) -> Iterator[Line]:
    """Oral against official in a sentence, then the concepts where only the official wording works."""
    pairs = result.pairs
    if not pairs.gaps:
        if pairs.unpaired:
            yield (
                f"oral against official: no pair; {pluralize(len(pairs.unpaired), 'case')} without a counterpart",
                "dim",
            )
        return
    yield wording_gap(result), "bold"
    # The sentence above has the pairs, and the test of the measure that decides.
    yield from table_lines(
        list(gap_heads()), [list(gap_cells(gap)) for gap in pairs.gaps], spare=("exact McNemar", "pairs")
    )
    if only := official_only(result):
        names = ", ".join(map(printable, only[:_SHOWN]))
        more = f" and {len(only) - _SHOWN} more" if len(only) > _SHOWN else ""
        yield f"only the official wording works for: {names}{more}", ""
    if pairs.unpaired:
        yield f"not among the pairs: {pluralize(len(pairs.unpaired), 'case')} without a counterpart", "dim"
    if pairs.not_comparable:
        reason = one_line(pairs.not_comparable[0].reason)
        yield f"{pluralize(len(pairs.not_comparable), 'pair')} not comparable: {reason}", "dim"


def _misses(result: RagResults, retriever: Retriever | None) -> Iterator[Line]:
    missed = [row for row in result.cases if row.status == "failed"]
    for row in missed[:_SHOWN]:
        status = "MISSED" if result.purpose == "retrieve" else "FAILED"
        yield f"{status} {printable(row.id)}   {one_line(row.query, 60)}", "red"
        yield f"    {_why(row, result, retriever)}", ""
    if len(missed) > _SHOWN:
        yield f"… and {len(missed) - _SHOWN} more", "dim"


def _why(row: CaseRow, result: RagResults, retriever: Retriever | None) -> str:
    if result.purpose == "answer":
        why = f"not in the answer: {', '.join(map(repr, row.missing))}" if row.missing else row.reason
        return one_line(f"{why}; it says: {row.answer}", 160)
    lacking = [expected.source for expected in row.expected if not expected.rank]
    missed = [f"{source} {_place(source, row, result, retriever)}".strip() for source in lacking]
    return one_line(f"expected {', '.join(missed)}; found {', '.join(row.sources) or 'nothing'}", 200)


def _place(source: str, row: CaseRow, result: RagResults, retriever: Retriever | None) -> str:
    """The place of a missed source further down, when the index can give it without embeddings."""
    if (
        retriever is None
        or retriever.index is None
        or result.config.get("mode") != "bm25"
        or source not in retriever.documents
    ):
        return ""
    passages = enumerate(retriever.index.search(row.query, _DEEP), 1)
    place = next((place for place, passage in passages if passage.source == source), 0)
    return f"(its first passage is at place {place})" if place else "(no word of the query is in it)"


def as_json(
    batch: Batch, profiles: Sequence[RagResults], results: Results | None = None, problem: BatchProblem | None = None
) -> str:
    """All figures as one JSON object; cases are in the batch log and in reports."""
    figures: dict[str, Any] = {"batch": batch.id, "config": batch.config, "profiles": []}
    for result in profiles:
        whole = msgspec.to_builtins(result)
        whole["pairs"]["gaps"] = [
            msgspec.to_builtins(gap) | {"conclusion": gap.conclusion} for gap in result.pairs.gaps
        ]
        figures["profiles"].append({name: value for name, value in whole.items() if name not in ("cases", "config")})
    if results is not None:
        figures |= {"path": results.path.as_posix(), "stopped": results.stopped}
        figures["problem"] = msgspec.to_builtins(problem)
        figures["gates"] = [msgspec.to_builtins(gate) for gate in results.gates]
    return json.dumps(figures, ensure_ascii=False)


# -- one case -----------------------------------------------------------------------------------------


def explanation_lines(explanation: Explanation) -> Iterator[Line]:
    """Why a case was found or missed."""
    yield f"{printable(explanation.case_id)}: {explanation.status}   {one_line(explanation.query)}", "bold"
    if explanation.status == "error":
        yield f"it ended in an error: {one_line(explanation.reason, 400)}", "red"
    if explanation.has_changed:
        yield f"the documents have changed since {explanation.batch}; this is how they are now", "yellow"
    if explanation.error:
        yield f"the retriever fails for this query: {one_line(explanation.error, 400)}", "red"
        return
    for expectation in explanation.expected:
        yield from _expectation_lines(expectation, explanation)
    if not explanation.expected:
        yield "no source is expected of it", ""
    first = (
        f"the first {explanation.k} of {pluralize(explanation.passages, 'passage')}:"
        if explanation.passages > explanation.k
        else "found:"
    )
    yield first if explanation.retrieved else "nothing is found", ""
    for retrieved_source in explanation.retrieved:
        matched = f"   {_terms(retrieved_source.explained)[0]}" if retrieved_source.explained else ""
        yield f"  {', '.join(map(str, retrieved_source.places))}  {printable(retrieved_source.source)}{matched}", ""


def _expectation_lines(expectation: Expectation, explanation: Explanation) -> Iterator[Line]:
    place = (
        f"its first passage is at place {expectation.place}, k is {explanation.k}" if expectation.place else "not found"
    )
    if expectation.unread and not expectation.documents:
        reason = printable(expectation.unread)
        yield f"expected {printable(expectation.source)}: could not be read, so it is not indexed: {reason}", "red"
        return
    if expectation.explained is None:
        is_ours = explanation.retriever == "builtin"
        yield f"expected {printable(expectation.source)}: {'no document of the index' if is_ours else place}", "red"
        return
    is_among = 0 < expectation.place <= explanation.k
    named = (
        f" ({printable(expectation.explained.source)})" if expectation.explained.source != expectation.source else ""
    )
    yield f"expected {printable(expectation.source)}{named}: indexed, {place}", "green" if is_among else "red"
    passage = expectation.explained.passage
    if passage is not None:
        where = f", page {passage.page}" if passage.page else f", line {passage.line}" if passage.line else ""
        heading = f" ({printable(passage.heading)})" if passage.heading else ""
        yield f"  its best passage{where}{heading}: {one_line(passage.text)}", "dim"
    for line in _terms(expectation.explained):
        yield f"  {line}", ""


def _terms(explained: Explained) -> list[str]:
    """The query words that match a passage with their scores, and those that do not."""
    there = [
        f"{term.text} {term.score:.2f}" for term in sorted(explained.terms, key=lambda term: -term.score) if term.score
    ]
    lacking = [f"{term.text}{'' if term.chunks else ' (in no document)'}" for term in explained.terms if not term.score]
    lines = [f"matched: {printable(', '.join(there)) or 'no word of the query'}"]
    return [*lines, f"not in it: {printable(', '.join(lacking))}"] if lacking else lines


def suggestion_lines(suggestion: Suggestion) -> Iterator[Line]:
    """The proposed sources and anchors, and the case built from them."""
    if not suggestion.proposals:
        yield "no document has a word of this query. Try other words, or look at 'evalloom rag index'", "yellow"
        return
    for place, proposal in enumerate(suggestion.proposals, 1):
        passage = proposal.passage
        where = f":{passage.line}" if passage.line else f" page {passage.page}" if passage.page else ""
        score = f"   {passage.score:.2f}" if passage.score is not None else ""
        yield f"{place}  {printable(passage.source)}{where}{score}   {printable(passage.heading)}", "bold"
        yield f"     {one_line(passage.text)}", "dim"
        yield f"     words: {printable(', '.join(proposal.terms))}", ""
        yield f"     anchors: {printable(', '.join(map(repr, proposal.anchors))) or 'none'}", ""
    yield "A case to start from; --json prints it alone:", ""
    yield Verbatim(printable(json.dumps(suggestion.case, ensure_ascii=False))), ""


def starter_lines(starter: StarterCases, root: str) -> Iterator[Line]:
    """The output of `evalloom rag init`."""
    yield f"wrote {starter.file.as_posix()}: {pluralize(len(starter.cases), 'case')}", ""
    if starter.more:
        more = pluralize(starter.more, "more heading")
        yield f"{more} could be asked about: --cases {len(starter.cases) + starter.more}", "dim"
    if starter.without:
        yield f"no heading to ask about in: {printable(', '.join(starter.without[:_SHOWN]))}", "dim"
    yield from command_lines(f"evalloom rag retrieve {starter.file.as_posix()} --root {printable(root)}", "Next: ")
