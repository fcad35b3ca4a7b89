"""The report of a prompt as one HTML file that opens from disk and needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from evalloom.core.text import pluralize, shorten
from evalloom.prompt_eval.plan import SAFETY, SCORES, TestPoint
from evalloom.prompt_eval.reports import charts
from evalloom.prompt_eval.reports import content as shown
from evalloom.prompt_eval.reports.content import PromptEvalReport
from evalloom.prompt_eval.reports.html_cases import all_cases, anchors_of, description
from evalloom.prompt_eval.scores import PASSING, ScoredCase
from evalloom.ui.markup import Markup, element, joined
from evalloom.ui.page import LONGEST_TEXT, figures, page, said, section, table

if TYPE_CHECKING:
    from evalloom.prompt_eval.analysis.agreement import PointAgreement
    from evalloom.prompt_eval.analysis.bad_cases import BadGroup
    from evalloom.prompt_eval.analysis.scorecard import CategoryFigures, PointFigures, Tally

name = "html"
suffix = ".html"
_SCRIPT = Path(__file__).with_name("report.js")


def render(report: PromptEvalReport) -> str:
    anchors = anchors_of(report.cases)
    body = [
        _safety(report, anchors),
        _points(report),
        _categories(report),
        _scores(report),
        _bad(report, anchors),
        _trust(report),
        _next(report),
        all_cases(report, anchors),
    ]
    skip = element("a", "Skip to all cases", class_="skip", href="#cases")
    foot = element(
        "footer", element("p", "Made by evalloom. This file needs nothing else: keep it, send it, print it.")
    )
    whole = (skip, _head(report), element("main", _tiles(report), *body), foot)
    return page(report.title, *whole, script=_SCRIPT)


# -- the head and the figures --------------------------------------------------------------------------


def _head(report: PromptEvalReport) -> Markup:
    facts = [element("div", element("dt", what), element("dd", said(value))) for what, value in shown.facts(report)]
    links = [("#safety", "Safety"), ("#points", "Test points"), ("#categories", "Categories"), ("#scores", "Scores")]
    links += [("#bad", "Bad cases")]
    links += [("#trust", "Trust in the judge")] if report.agreement or report.noise else []
    links += [("#next", "How to go on"), ("#cases", "All cases")]
    items = [element("li", element("a", text, href=href)) for href, text in links]
    return element(
        "header",
        element("h1", said(report.title)),
        element("p", shown.headline(report.scorecard), class_="lead"),
        element("dl", facts, class_="facts") if facts else "",
        element("nav", element("ul", items), aria_label="Sections"),
    )


def _tiles(report: PromptEvalReport) -> Markup:
    card = report.scorecard
    core = f"; core test points {shown.average(card.core)}" if card.core.cases else ""
    tiles = [
        _pass_rate(report),
        _tile("Bad cases", f"{card.bad:,}", f"{shown.rate(card.bad, card.cases)} of all", show="bad"),
        _tile("Safety failures", f"{len(card.safety):,}", _safety_note(report), is_alarm=bool(card.safety)),
        _tile("Average score", shown.average(card.all_scores), f"of 3{core}"),
        _tile(
            "Failed runs", f"{card.failed:,}", "no output; left out of averages", show="failed" if card.failed else ""
        ),
    ]
    if card.incomplete:
        note = "left out of the pass rate"
        tiles.append(_tile("Scoring incomplete", f"{card.incomplete:,}", note, show="incomplete"))
    remarks = [element("p", said(remark), class_="remark") for remark in shown.remarks(report)]
    return joined(element("div", tiles, class_="tiles"), remarks)


def _pass_rate(report: PromptEvalReport) -> Markup:
    card = report.scorecard
    bounds, rate = card.pass_interval, card.pass_rate
    note = f"{card.passed:,} of {card.rated:,}; likely {shown.interval(bounds)}" if bounds else "nothing scored yet"
    return element(
        "div",
        element("span", f"Passed (≥ {PASSING} %)", class_="label"),
        element("b", shown.rate(card.passed, card.rated)),
        charts.chance(bounds, rate) if bounds and rate is not None else "",
        element("span", note),
        class_="tile",
    )


def _tile(label: str, figure: str, note: str, *, is_alarm: bool = False, show: str = "") -> Markup:
    title = element("a", label, href=f"#show={show}") if show else label
    return element(
        "div",
        element("span", title, class_="label"),
        element("b", figure),
        element("span", note),
        class_="tile alarm" if is_alarm else "tile",
    )


def _safety_note(report: PromptEvalReport) -> str:
    tried = sum(case.category == "safety" for case in report.cases)
    return f"{pluralize(tried, 'case')} there to test safety"


def _safety(report: PromptEvalReport, anchors: dict[str, str]) -> Markup:
    failures = report.scorecard.safety
    if not failures:
        return section(
            "safety",
            "No safety failures",
            element("p", f"No case has 1 on {SAFETY}, and no safety case is bad.", class_="soft"),
        )
    items = [_entry(one.case, one.point, anchors, one.why) for one in failures]
    title = f"Safety failures ({len(failures):,})"
    return section("safety", title, element("ul", items, class_="group"), kind="alarm")


def _points(report: PromptEvalReport) -> Markup:
    heads = ("Test point", "Status", "Average", "How many got 1, 2 and 3", "Cases", "Incomplete")
    kinds = ("", "", "number", "bar", "number", "number")
    body = [_point_row(one) for one in report.scorecard.points]
    card = report.scorecard
    furthest = f"Weakest: {', '.join(card.weakest)}. Strongest: {', '.join(card.strongest)}." if card.weakest else ""
    legend = [element("span", _badge(status), f"({rule})") for status, rule in shown.STATUS_RULES.items()]
    return section(
        "points",
        "Test points",
        element("p", furthest, class_="soft") if furthest else "",
        table(heads, kinds, body, "points", "Test points"),
        element("p", [_mark_key(score) for score in SCORES], legend, class_="legend"),
    )


def _point_row(one: PointFigures) -> Markup:
    about = [element("span", said(one.point.name), class_="name")] if one.point.name else []
    core = [" ", element("span", "core", class_="flag")] if one.point.is_core else []
    return element(
        "tr",
        element("th", one.id, core, about, _meanings(one.point), scope="row"),
        element("td", _badge(one.status)),
        element("td", element("b", shown.average(one.tally)), class_="number"),
        element("td", charts.distribution(one.tally), class_="bar"),
        element("td", f"{one.tally.cases:,}", class_="number extra"),
        element("td", f"{one.missing:,}" if one.missing else "–", class_="number extra"),
    )


def _meanings(point: TestPoint) -> Markup:
    """What the scores of a test point mean, where the plan says it."""
    if not point.anchors:
        return Markup("")
    items = [element("li", f"{score}: ", said(text)) for score, text in sorted(point.anchors.items())]
    return element("details", element("summary", "what 1, 2 and 3 mean"), element("ul", items), class_="anchors")


def _badge(status: str) -> Markup:
    return element("span", shown.STATUS_WORDS[status], class_=f"badge {status}", title=shown.STATUS_SIGNS[status])


def _mark_key(score: int) -> Markup:
    word = {SCORES[0]: "worst", SCORES[-1]: "best"}.get(score, "")
    return element("span", element("span", str(score), class_=f"mark m{score}"), word)


def _categories(report: PromptEvalReport) -> Markup:
    points = [one.id for one in report.scorecard.points]
    heads = ("Category", *points, "Cases", "Passed", "Bad")
    rows = [_heat_row(row) for row in report.scorecard.categories]
    keys = (
        ("h1", "below 1.5"),
        ("h2", "below 2"),
        ("h3", "below 2.5"),
        ("h4", "below 3"),
        ("h5", "3"),
        ("h0", "no score"),
    )
    legend = [element("span", element("span", class_=f"key {kind}"), text) for kind, text in keys]
    return section(
        "categories",
        "Category × test point",
        element(
            "p", "Average score, and the number of cases that it is of. A category leads to its cases.", class_="soft"
        ),
        table(heads, ("",) * len(heads), rows, "heat", "Averages by category and test point"),
        element("p", legend, class_="legend"),
    )


def _heat_row(row: CategoryFigures) -> Markup:
    href = f"#category={quote(row.category, safe='', errors='replace')}"
    link = element("a", row.category, href=href) if row.category else "(none)"
    cells = [_heat_cell(tally) for tally in row.tallies]
    counts = [element("td", f"{number:,}", class_="count") for number in (row.cases, row.passed, row.bad)]
    return element("tr", element("th", link, scope="row"), cells, counts)


def _heat_cell(tally: Tally) -> Markup:
    if not tally.cases:
        return element("td", "–", class_="h0")
    return element("td", shown.average(tally), element("small", f"n {tally.cases:,}"), class_=f"h{_heat(tally)}")


def _heat(tally: Tally) -> int:
    """The shade of an average: 1 below 1.5, 2 below 2, 3 below 2.5, 4 below 3, 5 for 3."""
    return 2 * tally.total // tally.cases - 1


def _scores(report: PromptEvalReport) -> Markup:
    card = report.scorecard
    beside = [
        pluralize(card.failed, "failed run") if card.failed else "",
        f"{card.incomplete:,} incomplete" if card.incomplete else "",
    ]
    note = f" Not shown: {' and '.join(filter(None, beside))}." if any(beside) else ""
    about = f"Percent of the most that a case can get; a case passes from {PASSING}.{note}"
    chart = element("div", charts.histogram(card.buckets), class_="histogram")
    return section("scores", "Scores of the cases", element("p", about, class_="soft"), chart)


# -- bad cases ----------------------------------------------------------------------------------------


def _bad(report: PromptEvalReport, anchors: dict[str, str]) -> Markup:
    parts: list[Markup] = []
    for point, called, groups in shown.groups_by_point(report):
        number = sum(len(group.cases) for group in groups)
        title = " · ".join(filter(None, (point, called)))
        parts.append(element("h3", said(title), " ", element("span", f"({number:,})", class_="count-of")))
        parts += [_group(group, anchors) for group in groups]
    about = (
        "Each bad case once, under the test point that it fails worst and the trait that it shares with others. "
        f"Any 1 makes a case bad, also where it has {PASSING} % of the most and passes."
    )
    intro = about if parts else "No case is bad: none has half of the most or less, and none has a 1."
    return section("bad", f"Bad cases ({report.scorecard.bad:,})", element("p", intro, class_="soft"), *parts)


def _group(group: BadGroup, anchors: dict[str, str]) -> Markup:
    number = element("span", f"({pluralize(len(group.cases), 'case')})", class_="count-of")
    items = [_entry(case, group.point, anchors) for case in group.cases]
    return joined(element("h4", said(shown.group_title(group)), " ", number), element("ul", items, class_="group"))


def _entry(case: ScoredCase, point: str, anchors: dict[str, str], why: str = "") -> Markup:
    """A line that leads to a case, and why it stands here."""
    text = f"{why}. {shown.reason(case, point)}" if why else shown.reason(case, point)
    return element(
        "li",
        element("a", case.id or "(no id)", href=f"#{anchors[case.id]}"),
        said(description(case)),
        element("span", shown.score(case), class_="sum"),
        element("span", said(shorten(text, LONGEST_TEXT)), class_="why") if point or why else "",
    )


# -- trust in the judge -------------------------------------------------------------------------------


def _trust(report: PromptEvalReport) -> Markup:
    if not report.agreement and not report.noise:
        return Markup("")
    return section("trust", "Trust in the judge", *_agreement(report), *_noise(report))


def _agreement(report: PromptEvalReport) -> Iterator[Markup]:
    if not report.agreement:
        return
    yield element("h3", "Agreement with people")
    yield element("p", "Weighted kappa: 1 is perfect, 0 is no better than chance; intervals are 95 %.", class_="soft")
    rows = [
        (
            one.point,
            f"{one.cases:,}",
            f"{shown.rate(one.agreed, one.cases)} ({shown.interval(one.exact_interval)})",
            shown.kappa(one),
            shown.bias(one),
        )
        for one in report.agreement
    ]
    heads = ("Test point", "Cases", "Same score", "Weighted kappa", "Judge is")
    yield figures(heads, rows, "Agreement with people")
    yield element("div", map(_confusion, report.agreement), class_="confusions")


def _confusion(one: PointAgreement) -> Markup:
    head = element("tr", element("th", "people ↓ judge →"), [element("th", score, scope="col") for score in "123"])
    rows = [
        element(
            "tr",
            element("th", str(human), scope="row"),
            [element("td", f"{count:,}", class_=_apart(count, human, judge)) for judge, count in enumerate(row, 1)],
        )
        for human, row in enumerate(one.confusion, 1)
    ]
    return element("table", element("caption", one.point), element("thead", head), element("tbody", rows))


def _apart(count: int, human: int, judge: int) -> str:
    return ("same", "near", "far")[abs(human - judge)] if count else "nothing"


def _noise(report: PromptEvalReport) -> Iterator[Markup]:
    if not report.noise:
        return
    yield element("h3", "Noise when it scores again")
    yield element(
        "p",
        "Always the same: cases to which every repeat gave one score. Mean range: highest less lowest.",
        class_="soft",
    )
    rows = [
        (
            one.point,
            f"{one.cases:,}",
            f"{shown.rate(one.stable, one.cases)} ({shown.interval(one.interval)})",
            "–" if one.mean_range is None else f"{one.mean_range:.2f}",
        )
        for one in report.noise
    ]
    yield figures(("Test point", "Cases", "Always the same", "Mean range"), rows, "Noise of the judge")


def _next(report: PromptEvalReport) -> Markup:
    steps = [element("li", said(step.why), element("code", step.command)) for step in shown.next_steps(report)]
    whole = element("li", "Everything in full", element("code", f"{report.folder}/{report.source}"))
    return section("next", "How to go on", element("ul", steps, whole, class_="steps"))
