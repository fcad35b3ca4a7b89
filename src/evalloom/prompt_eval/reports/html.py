"""The report of a prompt as one HTML file that opens from disk and needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from evalloom.core.lazy import lazy_pattern
from evalloom.prompt_eval.plan import SAFETY
from evalloom.prompt_eval.reports import content
from evalloom.prompt_eval.reports.content import PromptEvalReport
from evalloom.prompt_eval.scores import PASSING, ScoredCase
from evalloom.ui.charts import BarSegment, Column, column_chart, interval, stacked_bar
from evalloom.ui.language import ENGLISH, Language, phrase
from evalloom.ui.text import as_text

if TYPE_CHECKING:
    from markupsafe import Markup

    from evalloom.prompt_eval.analysis.scorecard import Bucket, Scorecard, ScoreCounts

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
    "safety": phrase("Safety"),
    "points": phrase("Test points"),
    "categories": phrase("Categories"),
    "scores": phrase("Scores"),
    "bad": phrase("Bad cases"),
    "trust": phrase("Trust in the judge"),
    "next": phrase("How to go on"),
    "cases": phrase("All cases"),
}
_RESERVED_ANCHORS = {*_SECTIONS, "filter", "count", "none"}
FILTER_CHOICES = {
    "": phrase("all cases"),
    "bad": phrase("bad only"),
    "below": phrase("not passed"),
    "failed": phrase("failed runs"),
    "incomplete": phrase("scoring incomplete"),
    "good": phrase("passed and not bad"),
}


def render(report: PromptEvalReport, language: str = "en") -> str:
    from evalloom.ui import html

    t = content.report_language(language)
    anchors = _anchors(report.cases)
    has_trust = bool(report.agreement or report.noise)
    return html.render(
        _TEMPLATES,
        "report.html",
        script=_script(t),
        language=t,
        report=report,
        card=report.scorecard,
        cases=_cases_with_anchors(report.cases, anchors),
        anchors=anchors,
        links=[(anchor, t(title)) for anchor, title in _SECTIONS.items() if anchor != "trust" or has_trust],
        names={point.id: point.name for point in report.points},
        safety_cases=sum(case.category == "safety" for case in report.cases),
        agreement_rows=[
            (
                agreement.point,
                f"{agreement.cases:,}",
                rate_with_interval(agreement.agreed, agreement.cases, agreement.exact_interval, t),
                content.kappa(agreement, t),
                content.bias(agreement, t),
            )
            for agreement in report.agreement
        ],
        noise_rows=[
            (
                noise.point,
                f"{noise.cases:,}",
                rate_with_interval(noise.stable, noise.cases, noise.interval, t),
                "–" if noise.mean_range is None else f"{noise.mean_range:.2f}",
            )
            for noise in report.noise
        ],
        not_shown=_not_shown(report.scorecard, t),
        passing=PASSING,
        safety_point=SAFETY,
        longest_text=LONGEST_TEXT,
        longest_output=LONGEST_OUTPUT,
        filter_choices=FILTER_CHOICES,
        chance=partial(chance, t=t),
        content=content,
        description=description,
        subcategory=lambda case: as_text(case.record.get("test_subcategory")) or case.category,
        distribution=partial(distribution, t=t),
        filter_states=filter_states,
        heat=heat,
        histogram=partial(histogram, t=t),
        url_quote=lambda text: quote(text, safe="", errors="replace"),
    )


def _script(t: Language) -> str:
    """Return the script of the page, with its only phrase translated."""
    count = phrase("{shown} of {total} cases")
    places = {"shown": "${shown}", "total": "${cases.length}"}
    return (_TEMPLATES / "report.js").read_text("utf-8").replace(ENGLISH(count, **places), t(count, **places))


def rate_with_interval(part: int, total: int, bounds: tuple[float, float] | None, t: Language) -> str:
    return f"{content.rate(part, total, t)} ({content.interval(bounds, t)})"


def _not_shown(card: Scorecard, t: Language) -> list[str]:
    """Return what the histogram lacks."""
    runs = [t.count(card.failed, "{n} failed run", "{n} failed runs")] if card.failed else []
    return runs + ([t("{n} incomplete", n=f"{card.incomplete:,}")] if card.incomplete else [])


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


def heat(tally: ScoreCounts) -> int:
    """Return the shade of an average: 1 below 1.5, 2 below 2, 3 below 2.5, 4 below 3, 5 for 3."""
    return 2 * tally.total // tally.cases - 1


def description(case: ScoredCase) -> str:
    return as_text(case.record.get("test_description"))


def filter_states(case: ScoredCase) -> str:
    """Return the states that the filter of a page can select a case by."""
    states = {
        "bad": case.is_bad is True,
        "below": case.is_failed or case.is_passed is False,
        "failed": case.is_failed,
        "incomplete": bool(case.missing),
        "good": not case.is_failed and case.is_passed is True and case.is_bad is False,
    }
    return " ".join(word for word, holds in states.items() if holds)


def chance(bounds: tuple[float, float], rate: float, t: Language = ENGLISH) -> Markup:
    """A rate on a line from 0 to 100 %, with its interval as a band."""
    return interval(rate, *bounds, t("95 % interval {interval}", interval=content.interval(bounds, t)))


def distribution(tally: ScoreCounts, t: Language = ENGLISH) -> Markup:
    """One bar divided by how many cases got 1, 2 and 3."""
    counts = [
        (score, count, t.count(count, "{n} case with {score}", "{n} cases with {score}", score=score))
        for score, count in enumerate(tally.counts, 1)
    ]
    parts = [
        BarSegment(
            count, f"s{score}", f"t{score}", t("{name}: {value}", name=words, value=content.rate(count, tally.cases, t))
        )
        for score, count, words in counts
    ]
    return stacked_bar(t(", ").join(words for _, _, words in counts), parts)


def histogram(buckets: tuple[Bucket, ...], t: Language = ENGLISH) -> Markup:
    """Cases by their share of the maximum score; passing ones have another colour and the word `pass`."""
    columns = [
        Column(
            bucket.cases,
            "pass" if bucket.is_passing else "below",
            (content.bucket_range(bucket), *([t("pass")] if bucket.is_passing else [])),
        )
        for bucket in buckets
    ]
    words = (
        t("{name}: {value}", name=content.bucket(bucket, t), value=t.count(bucket.cases, "{n} case", "{n} cases"))
        for bucket in buckets
    )
    return column_chart(t("; ").join(words), columns)
