"""One RAG batch: its measures by bucket, oral against official wordings, and the cases that failed, by why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import ClassVar

from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace

from evalloom.core.model import Record
from evalloom.pages.page import Page, PageRequest, View
from evalloom.rag.analysis.measures import CaseRow, GroupMeasures, Purpose, RagResults
from evalloom.rag.analysis.pairs import Concept, ExcludedCase, Gap, WordingPair
from evalloom.rag.pages.results import profile_results, rag_batch, why
from evalloom.rag.reports import content
from evalloom.rag.reports.html import chart_by_group
from evalloom.ui import charts
from evalloom.ui.language import Language

_PAGE_SIZE = 50
_DOCUMENTS_SHOWN = 8
_PAIRS_SHOWN = 200
FAILING = ("failed", "error")
STATUSES = ("failing", "passed", "apart", "all")
"""The lists of cases: `apart` are those that no measure counts."""


class ListedCase(Struct, frozen=True):
    """A case in the list, and why it did not pass."""

    case: CaseRow
    why: str


class MissedDocument(Struct, frozen=True):
    """An expected source: how many cases expect it, and how many of them did not find it."""

    source: str
    cases: int
    missed: int


class RagBatchPage(Struct, frozen=True, kw_only=True):
    """The page of one profile of a RAG batch."""

    batch: str
    target: str
    created_at: str
    is_finished: bool
    profile: str
    profiles: list[str]
    purpose: Purpose
    k: int
    deciding: str
    headline: str
    not_measured: str
    wording_gap: str
    overall: GroupMeasures
    buckets: list[GroupMeasures]
    tags: list[GroupMeasures]
    has_pass_rate: bool
    """Whether the pass rate is another number than the deciding measure, so that it is shown too."""
    gaps: list[Gap]
    pairs: list[WordingPair]
    """Those whose wordings differ, or all."""
    pair_counts: dict[str, int]
    concepts: list[Concept]
    unpaired: list[ExcludedCase]
    not_comparable: list[ExcludedCase]
    runs: dict[str, str]
    """The run of each case of a shown pair."""
    causes: dict[str, int]
    """The failing cases by why, the most frequent first."""
    documents: list[MissedDocument]
    cases: list[ListedCase]
    counts: dict[str, int]
    """The number of cases in each list."""
    shown: str
    total: int
    page: int
    pages: int
    config: Record
    content: ClassVar[ModuleType] = content
    charts: ClassVar[ModuleType] = charts

    def bucket_chart(self, t: Language, names: Mapping[str, str]) -> Markup:
        """Return the deciding measure by bucket as a chart; `names` are those of buckets in the language."""
        buckets = [replace(group, name=str(names.get(group.name, group.name)).strip()) for group in self.buckets]
        return chart_by_group(t, [self.overall, *buckets], self.deciding)


def chosen_cases(request: PageRequest, results: RagResults) -> tuple[str, list[CaseRow]]:
    """Return the cases that the filters of a request choose, and which list they are of."""
    counts = _counts(results.cases)
    shown = request.choice("show", STATUSES, "failing" if counts["failing"] else "all")
    cause, bucket, document = (request.query.get(name, "") for name in ("why", "bucket", "document"))
    search = request.query.get("q", "").strip().lower()
    rows = [
        row
        for row in results.cases
        if (shown == "all" or _list_of(row) == shown)
        and (not cause or why(row) == cause)
        and (not bucket or row.bucket == bucket)
        and (not document or any(expected.source == document for expected in row.expected))
        and (not search or search in row.id.lower() or search in row.query.lower() or search in row.answer.lower())
    ]
    return shown, rows


def _show(request: PageRequest) -> View:
    path, batch = rag_batch(request)
    results, profiles = profile_results(request, path)
    t = content.report_language(request.t.code)
    shown, rows = chosen_cases(request, results)
    page, pages = request.number("page", 1), max(1, -(-len(rows) // _PAGE_SIZE))
    failing = [row for row in results.cases if row.status in FAILING]
    pairs = results.pairs
    listed = [pair for pair in pairs.pairs if pair.gap] if request.query.get("pairs") != "all" else pairs.pairs
    in_pairs = {id for pair in listed for id in (*pair.official_cases, *pair.oral_cases)}
    data = RagBatchPage(
        batch=path.name,
        target=batch.target,
        created_at=batch.created_at,
        is_finished=bool(batch.finished_at),
        profile=results.profile,
        profiles=profiles,
        purpose=results.purpose,
        k=results.k,
        deciding=results.deciding,
        headline=content.headline(results, t),
        not_measured=content.not_measured(results, t),
        wording_gap=content.wording_gap(results, t),
        overall=results.overall,
        buckets=results.buckets,
        tags=results.tags[: content.MAX_ROWS],
        has_pass_rate=content.has_own_pass_rate(results),
        gaps=pairs.gaps,
        pairs=listed[:_PAIRS_SHOWN],
        pair_counts=dict(Counter(pair.who for pair in pairs.pairs)),
        concepts=[concept for concept in pairs.concepts if concept.is_official_only][:_PAIRS_SHOWN],
        unpaired=pairs.unpaired[:_PAIRS_SHOWN],
        not_comparable=pairs.not_comparable[:_PAIRS_SHOWN],
        runs={row.id: row.key for row in results.cases if row.id in in_pairs},
        causes=dict(Counter(why(row) for row in failing).most_common()),
        documents=_missed_documents(results.cases),
        cases=[ListedCase(row, why(row)) for row in rows[(page - 1) * _PAGE_SIZE : page * _PAGE_SIZE]],
        counts=_counts(results.cases),
        shown=shown,
        total=len(rows),
        page=page,
        pages=pages,
        config=results.config,
    )
    return View("rag_batch.html", data)


def _list_of(row: CaseRow) -> str:
    return "failing" if row.status in FAILING else "passed" if row.status == "passed" else "apart"


def _counts(rows: Sequence[CaseRow]) -> dict[str, int]:
    counts = Counter(map(_list_of, rows))
    return {name: len(rows) if name == "all" else counts[name] for name in STATUSES}


def _missed_documents(rows: Sequence[CaseRow]) -> list[MissedDocument]:
    """Return the expected sources that were missed, the most often missed first."""
    expected: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for row in rows:
        if row.status in ("passed", "failed"):
            expected.update({item.source for item in row.expected})
            missed.update({item.source for item in row.expected if not item.rank})
    return [MissedDocument(name, expected[name], number) for name, number in missed.most_common(_DOCUMENTS_SHOWN)]


PAGES = (Page("/rag/b/{batch}", _show),)
