"""One run of a RAG batch: why it missed, the retrieved passages with the expected texts marked, and its checks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.batchlog import find_run
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch, Run, Scored, Status, Verdict
from evalloom.core.phrases import contains_phrase, phrase_places
from evalloom.core.ranking import Passage, is_hit
from evalloom.pages.errors import RequestError
from evalloom.pages.page import Page, PageRequest, View
from evalloom.rag.analysis.measures import CaseRow, Expected, Purpose, RagResults, analyse
from evalloom.rag.explain import Explanation, explain_from_index
from evalloom.rag.pages.batch import chosen_cases
from evalloom.rag.pages.results import profile_results, rag_batch, why
from evalloom.ui.text import as_text

_LONGEST = 20_000
"""Characters of a passage or an answer that are shown; more on request."""
_LONGEST_OF_ALL = 1_000_000
_REPEATS = """
    SELECT key, repeat, status FROM runs WHERE number = ? AND case_id = ? AND profile = ? ORDER BY repeat LIMIT 200
"""


class Piece(Struct, frozen=True):
    """A part of a text: one of the expected texts, or what is between them."""

    text: str
    is_expected: bool


class RetrievedPassage(Struct, frozen=True):
    """A passage, at its place in the order of the retriever; `rank` is that of its source."""

    place: int
    rank: int
    source: str
    is_expected: bool
    heading: str
    line: int
    page: int
    score: float | None
    text: list[Piece]
    cut: int
    """How many characters are not shown."""


class FoundSource(Struct, frozen=True):
    """A retrieved source at its rank."""

    rank: int
    source: str
    is_expected: bool


class ExpectedText(Struct, frozen=True):
    """A text that the answer must contain: which passages have it, and whether the answer does."""

    text: str
    passages: list[int]
    is_in_answer: bool | None
    """None without an answer."""


class OtherRun(Struct, frozen=True):
    """Another run of the same case, or of the other wording of its question."""

    run: str
    case: str
    bucket: str
    query: str
    status: Status
    rank: int
    """The rank of the first expected source; 0 when it has none."""
    repeat: int = 0


class RagRunPage(Struct, frozen=True, kw_only=True):
    """The page of one run."""

    batch: str
    run: str
    purpose: Purpose
    k: int
    case: CaseRow
    """The case, as this run alone gives it."""
    why: str
    profile: str
    repeat: int
    duration_s: float
    first_hit: int
    """The rank of the first expected source; 0 when none was found."""
    expected: list[Expected]
    found: list[FoundSource]
    texts: list[ExpectedText]
    passages: list[RetrievedPassage]
    answer: list[Piece]
    answer_cut: int
    checks: list[Verdict]
    explanation: Explanation | None
    explanation_error: str
    best_passages: dict[str, list[Piece]]
    """The passage of each expected source that matches best, now."""
    wordings: list[OtherRun]
    repeats: list[OtherRun]
    previous: str
    next: str
    position: int
    """The number of the case in the list that it was opened from; 0 if it is not in it."""
    total: int


def _show(request: PageRequest) -> View:
    path, batch = rag_batch(request)
    run, scored = _find(path, request.ids["run"])
    results, _ = profile_results(request, path, run.profile)
    own = analyse(msgspec.structs.replace(batch, profiles=[]), [(run, scored)])
    case = own.cases[0]
    limit = _LONGEST_OF_ALL if request.query.get("full") else _LONGEST
    wanted = [text for text in run.raw.get("must_include") or () if isinstance(text, str) and text.strip()]
    passages = _passages(run, case, wanted, limit)
    full_texts = [_text_of(source) for source in run.output.sources]
    explanation, error = _explain(batch, run, scored, request.site.home)
    position, total, before, after = _neighbours(request, results, case)
    data = RagRunPage(
        batch=path.name,
        run=run.key,
        purpose=own.purpose,
        k=own.k,
        case=case,
        why=why(case),
        profile=run.profile,
        repeat=run.repeat,
        duration_s=run.duration_s,
        first_hit=min((expected.rank for expected in case.expected if expected.rank), default=0),
        expected=case.expected,
        found=[FoundSource(rank, name, _is_expected(case, name)) for rank, name in enumerate(case.sources, 1)],
        texts=[
            ExpectedText(
                text,
                [place for place, passage in enumerate(full_texts, 1) if contains_phrase(passage, text)],
                text not in case.missing if own.purpose == "answer" and not run.error else None,
            )
            for text in wanted
        ],
        passages=passages,
        answer=pieces(case.answer[:limit], wanted),
        answer_cut=max(0, len(case.answer) - limit),
        checks=scored.verdicts,
        explanation=explanation,
        explanation_error=error,
        best_passages=_best_passages(explanation, wanted),
        wordings=_wordings(results, case),
        repeats=_repeats(request, path, run),
        previous=before,
        next=after,
        position=position,
        total=total,
    )
    return View("rag_run.html", data)


def _find(path: Path, key: str) -> tuple[Run, Scored]:
    found = find_run(path, key)
    if found is None:
        raise RequestError("run_not_found", f"{path.name} has no run {key[:80]!r}")
    return found


def _explain(batch: Batch, run: Run, scored: Scored, home: Path) -> tuple[Explanation | None, str]:
    """Return how the words of the query match; what stands in the way is a message, not an error of the page."""
    try:
        return explain_from_index(batch, run, scored, home), ""
    except (EvalloomError, msgspec.ValidationError, KeyError, OSError) as error:
        return None, str(error)


def _best_passages(explanation: Explanation | None, wanted: list[str]) -> dict[str, list[Piece]]:
    return {
        expected.source: pieces(expected.explained.passage.text[:_LONGEST], wanted)
        for expected in (explanation.expected if explanation else ())
        if expected.explained and expected.explained.passage
    }


def _text_of(source: Any) -> str:
    return as_text(source.get("text")) if isinstance(source, dict) else ""


def _passages(run: Run, case: CaseRow, wanted: list[str], limit: int) -> list[RetrievedPassage]:
    ranks = {source: rank for rank, source in enumerate(case.sources, 1)}
    passages = []
    for place, record in enumerate(run.output.sources, 1):
        try:
            passage = msgspec.convert(record, Passage)
        except msgspec.ValidationError:
            # A user's retriever may give anything; what has no source has no rank either.
            passage = Passage("", as_text(record))
        rank = next((ranks[name] for name in ranks if is_hit(name, passage.source)), 0)
        passages.append(
            RetrievedPassage(
                place,
                ranks.get(passage.source, rank),
                passage.source,
                _is_expected(case, passage.source),
                passage.heading,
                passage.line,
                passage.page,
                passage.score,
                pieces(passage.text[:limit], wanted),
                max(0, len(passage.text) - limit),
            )
        )
    return passages


def _is_expected(case: CaseRow, source: str) -> bool:
    return any(is_hit(expected.source, source) for expected in case.expected)


def pieces(text: str, wanted: Iterable[str]) -> list[Piece]:
    """Divide a text at the expected texts in it; those that overlap become one piece."""
    places = sorted(place for phrase in wanted for place in phrase_places(text, phrase))
    result: list[Piece] = []
    at = 0
    for start, end in places:
        if start < at and result:
            end = max(end, at)
            last = result.pop()
            result.append(Piece(last.text + text[at:end], True))
        else:
            if start > at:
                result.append(Piece(text[at:start], False))
            result.append(Piece(text[start:end], True))
        at = end
    return [*result, Piece(text[at:], False)] if at < len(text) else result


def _wordings(results: RagResults, case: CaseRow) -> list[OtherRun]:
    """Return the other wordings of the same question."""
    if not case.pair_id:
        return []
    return [
        OtherRun(
            row.key,
            row.id,
            row.bucket,
            row.query,
            row.status,
            min((expected.rank for expected in row.expected if expected.rank), default=0),
        )
        for row in results.cases
        if row.pair_id == case.pair_id and row.id != case.id
    ]


def _repeats(request: PageRequest, path: Path, run: Run) -> list[OtherRun]:
    rows = request.site.library.rows(path.name, _REPEATS, [run.number, run.case_id, run.profile])
    return [OtherRun(key, run.case_id, "", "", status, 0, repeat) for key, repeat, status in rows if len(rows) > 1]


def _neighbours(request: PageRequest, results: RagResults, case: CaseRow) -> tuple[int, int, str, str]:
    """Return the place of a case in the chosen list and the length of it, and the runs before and after it."""
    _, rows = chosen_cases(request, results)
    position = next((at for at, row in enumerate(rows) if (row.number, row.id) == (case.number, case.id)), -1)
    if position < 0:
        return 0, len(rows), "", ""
    before = rows[position - 1].key if position else ""
    return position + 1, len(rows), before, rows[position + 1].key if position + 1 < len(rows) else ""


PAGES = (Page("/rag/b/{batch}/r/{run}", _show),)
