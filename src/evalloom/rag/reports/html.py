"""The report of a RAG batch as one self-contained HTML file without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evalloom.core.model import Status
from evalloom.core.ranking import is_hit
from evalloom.rag.reports import content

if TYPE_CHECKING:
    from markupsafe import Markup

    from evalloom.rag.analysis.measures import CaseRow, GroupMeasures, RagResults
    from evalloom.rag.analysis.pairs import Pairs

name = "html"
suffix = ".html"

_TEMPLATES = Path(__file__).with_name("templates")
_MAX_TEXT = 2_000
"""Maximum number of characters of a query, a reason or a setting."""
_MAX_ANSWER = 4_000
_CASE_LISTS: tuple[tuple[str, dict[str, str], tuple[Status, ...]], ...] = (
    ("missed", {"retrieve": "Missed", "answer": "Failed"}, ("failed",)),
    ("errors", {"retrieve": "Errors", "answer": "Errors"}, ("error",)),
    ("apart", {"retrieve": "Not measured", "answer": "Not measured"}, ("unscored", "skipped", "blocked")),
    ("found", {"retrieve": "Found", "answer": "Passed"}, ("passed",)),
)
"""The lists of cases: anchor, title by purpose, and statuses."""


def render(results: Sequence[RagResults], root: Path, *, exit_code: int | None = None) -> str:
    """Render all profiles in order; `root` is the searched folder, and `exit_code` is not shown."""
    from evalloom.ui import charts, html

    first = results[0]
    links = [("buckets", "Buckets")]
    links += [("tags", "Tags")] if first.tags else []
    links += [("wordings", "Oral against official")] if _has_wordings(first) else []
    links += [(anchor, title) for anchor, title, _ in _case_lists(first)]
    links += [("settings", "Configuration")]
    return html.render(
        _TEMPLATES,
        "report.html",
        profiles=results,
        first=first,
        root=root,
        links=links,
        max_rows=content.MAX_ROWS,
        max_text=_MAX_TEXT,
        max_answer=_MAX_ANSWER,
        charts=charts,
        content=content,
        case_facts=_case_facts,
        case_lists=_case_lists,
        chart_by_group=_chart_by_group,
        has_wordings=_has_wordings,
        is_expected=lambda row, source: any(is_hit(expectation.source, source) for expectation in row.expected),
        not_comparable_rows=_not_comparable_rows,
        unpaired_rows=_unpaired_rows,
    )


def _has_wordings(results: RagResults) -> bool:
    pairs = results.pairs
    return bool(pairs.pairs or pairs.unpaired or pairs.not_comparable)


def _not_comparable_rows(pairs: Pairs) -> list[tuple[str, ...]]:
    return [(pair.pair_id, pair.id, pair.reason) for pair in pairs.not_comparable]


def _unpaired_rows(pairs: Pairs) -> list[tuple[str, ...]]:
    return [(case.id, case.bucket, case.pair_id or "–", case.reason) for case in pairs.unpaired]


def _case_lists(results: RagResults) -> Iterator[tuple[str, str, list[CaseRow]]]:
    """Yield anchor, title and cases of each list that the page has."""
    for anchor, titles, statuses in _CASE_LISTS:
        rows = content.cases_with_status(results, *statuses)
        # The list of misses is shown even when it is empty: no miss is a result too.
        if rows or anchor == "missed":
            yield anchor, titles[results.purpose], rows


def _case_facts(row: CaseRow) -> Iterator[tuple[str, str]]:
    yield "at", str(row.origin)
    yield "pair", row.pair_id
    yield "concept", row.concept_id
    yield "tags", ", ".join(row.tags)
    yield "repeats", f"{row.repeats:,}" if row.repeats > 1 else ""
    yield "measures", ", ".join(f"{name} {content.figure(name, value)}" for name, value in row.measures.items())


def _chart_by_group(groups: Sequence[GroupMeasures], measure: str) -> Markup:
    """A bar per group from 0 to its rate, with its interval as a band."""
    from evalloom.ui.charts import Bar, bar_chart

    bars = []
    for group in groups:
        rate = group.measure(measure)
        if rate.mean is None or rate.low is None or rate.high is None:
            bars.append(Bar(group.name, "no case measured", "", None))
            continue
        tooltip = f"{group.name}: {content.with_bounds(rate)}, {rate.cases:,} cases"
        note = f"{content.percent(rate.mean)} · n {rate.cases:,}"
        bars.append(Bar(group.name, note, tooltip, (rate.mean, rate.low, rate.high)))
    words = "; ".join(f"{group.name}: {content.with_bounds(group.measure(measure))}" for group in groups)
    return bar_chart(f"{measure} by bucket. {words}", bars)
