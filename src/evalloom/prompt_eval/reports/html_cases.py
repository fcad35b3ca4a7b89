"""Every case of the HTML report with its input, output, scores and reasons, and the filter above them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from evalloom.core.text import shorten
from evalloom.prompt_eval.reports import content as shown
from evalloom.prompt_eval.reports.content import PromptEvalReport
from evalloom.prompt_eval.scores import ScoredCase
from evalloom.ui.markdown import as_text
from evalloom.ui.markup import Markup, element, joined
from evalloom.ui.page import LONGEST_TEXT, said, section

LONGEST_OUTPUT = 4_000
"""Characters of an output that are shown; a thousand long ones would make a page that no phone opens."""
_SAFE_ANCHOR = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_SECTIONS = frozenset(
    {"safety", "points", "categories", "scores", "bad", "trust", "next", "cases", "filter", "count", "none"}
)
_STATES = {
    "": "all cases",
    "bad": "bad only",
    "below": "not passed",
    "failed": "failed runs",
    "incomplete": "scoring incomplete",
    "good": "passed and not bad",
}


def anchors_of(cases: Iterable[ScoredCase]) -> dict[str, str]:
    """Where each case stands on the page, by its id: under that id where it can be one."""
    found: dict[str, str] = {}
    for number, case in enumerate(cases, 1):
        is_safe = _SAFE_ANCHOR.fullmatch(case.id) and case.id not in _SECTIONS
        found.setdefault(case.id, case.id if is_safe else f"case:{number}")
    return found


def description(case: ScoredCase) -> str:
    return as_text(case.record.get("test_description"))


def all_cases(report: PromptEvalReport, anchors: dict[str, str]) -> Markup:
    taken: set[str] = set()
    parts = []
    for case in report.cases:
        # Where an id stands twice, the first case keeps the anchor: a page must not have the same one again.
        anchor = None if case.id in taken else anchors[case.id]
        taken.add(case.id)
        parts.append(_case(case, anchor, report))
    nothing = element("p", "No case fits the filter.", id="none", hidden=True)
    return section("cases", "All cases", _filter(report), *parts, nothing)


def _filter(report: PromptEvalReport) -> Markup:
    categories = [element("option", "all categories", value="")]
    categories += [
        element("option", row.category, value=row.category) for row in report.scorecard.categories if row.category
    ]
    states = [element("option", text, value=state) for state, text in _STATES.items()]
    return element(
        "form",
        element("label", "Category", element("select", categories, name_="category")),
        element("label", "Show", element("select", states, name_="show")),
        element("label", "Text", element("input", type="search", name_="text", placeholder="input, output, reason …")),
        element("button", "Reset", type="reset"),
        element("span", id="count", aria_live="polite"),
        id="filter",
        hidden=True,
        autocomplete="off",
    )


def _case(case: ScoredCase, anchor: str | None, report: PromptEvalReport) -> Markup:
    kind = as_text(case.record.get("test_subcategory")) or case.category
    summary = element(
        "summary",
        element("span", case.id or "(no id)", class_="id"),
        element("span", kind, class_="kind"),
        element("span", said(description(case)), class_="what"),
        element(
            "span",
            [_mark(point, mark.score) for point, mark in case.marks.items()] if not case.is_failed else [],
            class_="marks",
        ),
        element("span", *_sum(case), class_="sum"),
    )
    inside = element("div", *_inside(case, report), class_="inside")
    return element(
        "details", summary, inside, class_="case", id=anchor, data_category=case.category, data_state=_state(case)
    )


def _sum(case: ScoredCase) -> Iterator[str]:
    if not case.is_failed:
        yield f"{shown.score(case)} "
    if case.is_bad:
        yield element("span", shown.score(case) if case.is_failed else "bad", class_="flag bad")


def _state(case: ScoredCase) -> str:
    """The words that the filter knows a case by."""
    states = {
        "bad": case.is_bad is True,
        "below": case.is_failed or case.is_passed is False,
        "failed": case.is_failed,
        "incomplete": bool(case.missing),
        "good": not case.is_failed and case.is_passed is True and case.is_bad is False,
    }
    return " ".join(word for word, holds in states.items() if holds)


def _mark(point: str, score: int | None) -> Markup:
    words = f"{point}: {score or 'no score'}"
    return element("span", str(score or "–"), class_=f"mark m{score or 0}", title=words, aria_label=words, role="img")


def _inside(case: ScoredCase, report: PromptEvalReport) -> Iterator[Markup]:
    if case.comment:
        yield element("p", said(shorten(case.comment, LONGEST_TEXT)), class_="wide")
    fields = [
        joined(element("dt", name or "input"), element("dd", _long(value, LONGEST_TEXT, case, report)))
        for name, value in shown.inputs(case)
    ]
    yield element("div", element("h4", "Input"), element("dl", fields), element("h4", "Output"), _output(case, report))
    names = {point.id: point.name for point in report.points}
    if not case.is_failed:
        reasons = [
            element("li", _mark(point, mark.score), _reason(point, names.get(point, ""), mark.reason, case, report))
            for point, mark in case.marks.items()
        ]
        yield element("div", element("h4", "Scores and reasons"), element("ul", reasons, class_="reasons"))


def _output(case: ScoredCase, report: PromptEvalReport) -> Markup:
    if case.is_failed:
        return element("p", "The run gave no output.", class_="soft")
    text = shown.result(case)
    if not text.strip():
        return element("p", "The output is empty.", class_="soft")
    return element(
        "div",
        _long(text, LONGEST_OUTPUT, case, report),
        class_="output",
        tabindex="0",
        role="region",
        aria_label=f"Output of {case.id}",
    )


def _reason(point: str, called: str, text: str, case: ScoredCase, report: PromptEvalReport) -> Markup:
    head = element("b", point, f" · {called}" if called else "")
    return element("div", head, element("div", _long(text, LONGEST_TEXT, case, report) if text else "no reason given"))


def _long(text: str, limit: int, case: ScoredCase, report: PromptEvalReport) -> Markup:
    """A text that may be very long: what is cut off is counted, and where it stands is said."""
    if len(text) <= limit:
        return said(text)
    note = f"{len(text) - limit:,} more characters in {report.source}, case {case.id}"
    return joined(said(shorten(text, limit)), element("span", note, class_="cut"))
