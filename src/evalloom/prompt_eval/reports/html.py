"""The report of a prompt as one HTML file that opens from disk and needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from evalloom.core.lazy import lazy_pattern
from evalloom.core.text import pluralize
from evalloom.prompt_eval.plan import SAFETY
from evalloom.prompt_eval.reports import content
from evalloom.prompt_eval.reports.content import PromptEvalReport
from evalloom.prompt_eval.scores import PASSING, ScoredCase
from evalloom.ui.charts import BarSegment, Column, column_chart, interval, stacked_bar
from evalloom.ui.text import as_text

if TYPE_CHECKING:
    from markupsafe import Markup

    from evalloom.prompt_eval.analysis.scorecard import Bucket, ScoreCounts

__all__ = ["chance", "distribution", "histogram", "name", "render", "suffix"]

name = "html"
suffix = ".html"

LONGEST_TEXT = 2_000
"""Characters of an input, a reason or a comment that are shown."""
LONGEST_OUTPUT = 4_000
"""Characters of an output that are shown; no phone opens a page with a thousand long ones."""
_TEMPLATES = Path(__file__).with_name("templates")
_SAFE_ANCHOR = lazy_pattern(r"[A-Za-z][A-Za-z0-9_-]*")
_SECTIONS = {
    "safety": "Safety",
    "points": "Test points",
    "categories": "Categories",
    "scores": "Scores",
    "bad": "Bad cases",
    "trust": "Trust in the judge",
    "next": "How to go on",
    "cases": "All cases",
}
_RESERVED_ANCHORS = {*_SECTIONS, "filter", "count", "none"}
_FILTER_CHOICES = {
    "": "all cases",
    "bad": "bad only",
    "below": "not passed",
    "failed": "failed runs",
    "incomplete": "scoring incomplete",
    "good": "passed and not bad",
}


def render(report: PromptEvalReport) -> str:
    from evalloom.ui import html

    anchors = _anchors(report.cases)
    has_trust = bool(report.agreement or report.noise)
    return html.render(
        _TEMPLATES,
        "report.html",
        script=_TEMPLATES / "report.js",
        report=report,
        card=report.scorecard,
        cases=_cases_with_anchors(report.cases, anchors),
        anchors=anchors,
        links=[(anchor, title) for anchor, title in _SECTIONS.items() if anchor != "trust" or has_trust],
        names={point.id: point.name for point in report.points},
        safety_cases=sum(case.category == "safety" for case in report.cases),
        agreement_rows=[
            (
                agreement.point,
                f"{agreement.cases:,}",
                f"{content.rate(agreement.agreed, agreement.cases)} ({content.interval(agreement.exact_interval)})",
                content.kappa(agreement),
                content.bias(agreement),
            )
            for agreement in report.agreement
        ],
        noise_rows=[
            (
                noise.point,
                f"{noise.cases:,}",
                f"{content.rate(noise.stable, noise.cases)} ({content.interval(noise.interval)})",
                "–" if noise.mean_range is None else f"{noise.mean_range:.2f}",
            )
            for noise in report.noise
        ],
        passing=PASSING,
        safety_point=SAFETY,
        longest_text=LONGEST_TEXT,
        longest_output=LONGEST_OUTPUT,
        filter_choices=_FILTER_CHOICES,
        chance=chance,
        content=content,
        description=_description,
        subcategory=lambda case: as_text(case.record.get("test_subcategory")) or case.category,
        distribution=distribution,
        filter_states=_filter_states,
        # The shade of an average: 1 below 1.5, 2 below 2, 3 below 2.5, 4 below 3, 5 for 3.
        heat=lambda tally: 2 * tally.total // tally.cases - 1,
        histogram=histogram,
        url_quote=lambda text: quote(text, safe="", errors="replace"),
    )


def _anchors(cases: Iterable[ScoredCase]) -> dict[str, str]:
    """Return the anchor of each case by its id: the id itself where it can be one."""
    anchors: dict[str, str] = {}
    for number, case in enumerate(cases, 1):
        is_safe = _SAFE_ANCHOR.fullmatch(case.id) and case.id not in _RESERVED_ANCHORS
        anchors.setdefault(case.id, case.id if is_safe else f"case:{number}")
    return anchors


def _cases_with_anchors(
    cases: Iterable[ScoredCase], anchors: dict[str, str]
) -> Iterator[tuple[ScoredCase, str | None]]:
    # Where an id occurs twice, only the first case gets the anchor, because ids on a page must be unique.
    unused = dict(anchors)
    for case in cases:
        yield case, unused.pop(case.id, None)


def _description(case: ScoredCase) -> str:
    return as_text(case.record.get("test_description"))


def _filter_states(case: ScoredCase) -> str:
    """Return the states that the filter of the page can select a case by."""
    states = {
        "bad": case.is_bad is True,
        "below": case.is_failed or case.is_passed is False,
        "failed": case.is_failed,
        "incomplete": bool(case.missing),
        "good": not case.is_failed and case.is_passed is True and case.is_bad is False,
    }
    return " ".join(word for word, holds in states.items() if holds)


def chance(bounds: tuple[float, float], rate: float) -> Markup:
    """A rate on a line from 0 to 100 %, with its interval as a band."""
    return interval(rate, *bounds)


def distribution(tally: ScoreCounts) -> Markup:
    """One bar divided by how many cases got 1, 2 and 3."""
    counts = [(score, count, f"{pluralize(count, 'case')} with {score}") for score, count in enumerate(tally.counts, 1)]
    parts = [
        BarSegment(count, f"s{score}", f"t{score}", f"{words}: {content.rate(count, tally.cases)}")
        for score, count, words in counts
    ]
    return stacked_bar(", ".join(words for _, _, words in counts), parts)


def histogram(buckets: tuple[Bucket, ...]) -> Markup:
    """Cases by their share of the maximum score; passing ones have another colour and the word `pass`."""
    columns = [
        Column(
            bucket.cases,
            "pass" if bucket.is_passing else "below",
            (content.bucket(bucket).removesuffix(" %"), *(["pass"] if bucket.is_passing else [])),
        )
        for bucket in buckets
    ]
    words = "; ".join(f"{content.bucket(bucket)}: {pluralize(bucket.cases, 'case')}" for bucket in buckets)
    return column_chart(words, columns)
