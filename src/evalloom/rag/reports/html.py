"""The report of a RAG batch as one self-contained HTML file without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from evalloom.core.model import Status
from evalloom.core.ranking import is_hit
from evalloom.rag.reports import content
from evalloom.ui.language import Language, phrase

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
    ("missed", {"retrieve": phrase("Missed"), "answer": phrase("Failed")}, ("failed",)),
    ("errors", {"retrieve": phrase("Errors"), "answer": phrase("Errors")}, ("error",)),
    (
        "apart",
        {"retrieve": phrase("Not measured"), "answer": phrase("Not measured")},
        ("unscored", "skipped", "blocked"),
    ),
    ("found", {"retrieve": phrase("Found"), "answer": phrase("Passed")}, ("passed",)),
)
"""The lists of cases: anchor, title by purpose, and statuses."""


def render(results: Sequence[RagResults], root: Path, *, exit_code: int | None = None, language: str = "en") -> str:
    """Render all profiles in order; `root` is the searched folder, and `exit_code` is not shown."""
    from evalloom.ui import charts, html

    first, t = results[0], content.report_language(language)
    links = [("buckets", t("Buckets"))]
    links += [("tags", t("Tags"))] if first.tags else []
    links += [("wordings", t("Oral against official"))] if _has_wordings(first) else []
    links += [(anchor, t(title)) for anchor, title, _ in _case_lists(first)]
    links += [("settings", t("Configuration"))]
    return html.render(
        _TEMPLATES,
        "report.html",
        language=t,
        profiles=results,
        first=first,
        root=root,
        links=links,
        max_rows=content.MAX_ROWS,
        max_text=_MAX_TEXT,
        max_answer=_MAX_ANSWER,
        charts=charts,
        content=content,
        case_facts=partial(_case_facts, t),
        case_lists=_case_lists,
        chart_by_group=partial(chart_by_group, t),
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


def _case_facts(t: Language, row: CaseRow) -> Iterator[tuple[str, str]]:
    yield t("at"), str(row.origin)
    yield t("pair"), row.pair_id
    yield t("concept"), row.concept_id
    yield t("tags"), ", ".join(row.tags)
    yield t("repeats"), f"{row.repeats:,}" if row.repeats > 1 else ""
    yield t("measures"), ", ".join(f"{name} {content.figure(name, value, t)}" for name, value in row.measures.items())


def chart_by_group(t: Language, groups: Sequence[GroupMeasures], measure: str) -> Markup:
    """A bar per group from 0 to its rate, with its interval as a band."""
    from evalloom.ui.charts import Bar, bar_chart
    from evalloom.ui.html import sentence

    bars = []
    for group in groups:
        rate = group.measure(measure)
        name = sentence(t("overall")) if group.name == "overall" else group.name
        if rate.mean is None or rate.low is None or rate.high is None:
            bars.append(Bar(name, t("no case measured"), "", None))
            continue
        cases = t.count(rate.cases, "{n} case", "{n} cases")
        tooltip = f"{name}: {content.with_bounds(rate, t)}, {cases}"
        note = f"{t.percent(rate.mean)} · n {rate.cases:,}"
        bars.append(Bar(name, note, tooltip, (rate.mean, rate.low, rate.high)))
    words = "; ".join(
        f"{content.group_name(group, t)}: {content.with_bounds(group.measure(measure), t)}" for group in groups
    )
    return bar_chart(t("{name} by bucket. {list}", name=measure, list=words), bars)
