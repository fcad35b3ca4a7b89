"""The report of a RAG batch as one self-contained HTML file without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evalloom.core.model import Status
from evalloom.core.ranking import is_hit
from evalloom.core.text import pluralize, shorten
from evalloom.rag.reports import charts as rag_charts
from evalloom.rag.reports import content as shown
from evalloom.ui.charts import chance
from evalloom.ui.markup import Content, Markup, element, joined
from evalloom.ui.page import LONGEST_TEXT, page, said, section, table

if TYPE_CHECKING:
    from evalloom.rag.analysis.measures import CaseRow, Expected, Group, Measure, RagResults
    from evalloom.rag.analysis.pairs import Pair

name = "html"
suffix = ".html"

_STYLE = Path(__file__).with_name("report.css")
_LONGEST_ANSWER = 4_000
"""Most characters of an answer to show."""
_LISTS: tuple[tuple[str, dict[str, str], tuple[Status, ...]], ...] = (
    ("missed", {"retrieve": "Missed", "answer": "Failed"}, ("failed",)),
    ("errors", {"retrieve": "Errors", "answer": "Errors"}, ("error",)),
    ("apart", {"retrieve": "Not measured", "answer": "Not measured"}, ("unscored", "skipped", "blocked")),
    ("found", {"retrieve": "Found", "answer": "Passed"}, ("passed",)),
)
"""The lists of cases: anchor, title by purpose, and statuses."""


def render(results: Sequence[RagResults], root: Path, *, exit_code: int | None = None) -> str:
    """Render all profiles in order; `root` is the searched folder, and `exit_code` is not shown."""
    body = [_profile(result, place, is_only=len(results) == 1) for place, result in enumerate(results)]
    foot = element("p", "Made by evalloom. This file needs nothing else: keep it, send it, print it.")
    skip = element("a", "Skip to what was missed", class_="skip", href="#missed")
    whole = shown.title(results[0])
    return page(whole, skip, _head(results[0], root), element("main", body), element("footer", foot), style=_STYLE)


def _profile(results: RagResults, place: int, *, is_only: bool) -> Markup:
    # Only the first profile has plain anchors, because an id must be unique on a page.
    mark = f"-{place + 1}" if place else ""
    parts = [_tiles(results), _buckets(results, mark), _tags(results, mark), _wordings(results, mark)]
    lists = [_cases(results, f"{anchor}{mark}", words[results.purpose], of) for anchor, words, of in _LISTS]
    name = [] if is_only else [element("h2", "Profile ", said(results.profile), class_="profile")]
    return joined(name, parts, lists, _settings(results, mark))


# -- the head and the figures --------------------------------------------------------------------------


def _head(results: RagResults, root: Path) -> Markup:
    facts = [
        element("div", element("dt", what), element("dd", said(value))) for what, value in shown.facts(results, root)
    ]
    links = [("#buckets", "Buckets")]
    links += [("#tags", "Tags")] if results.tags else []
    links += [("#wordings", "Oral against official")] if _has_wordings(results) else []
    links += [(f"#{anchor}", words[results.purpose]) for anchor, words, of in _LISTS if _is_listed(results, of)]
    items = [element("li", element("a", text, href=href)) for href, text in [*links, ("#settings", "Configuration")]]
    beside = shown.apart(results)
    return element(
        "header",
        element("h1", shown.title(results)),
        element("p", shown.headline(results), class_="lead"),
        element("p", beside, class_="remark") if beside else "",
        element("dl", facts, class_="facts"),
        element("nav", element("ul", items), aria_label="Sections"),
    )


def _tiles(results: RagResults) -> Markup:
    tiles = [_tile(measure) for measure in results.overall.measures]
    if errors := results.apart["error"]:
        tiles.append(_plain_tile("Errors", f"{errors:,}", "in no rate"))
    return element("div", tiles, class_="tiles")


def _tile(measure: Measure) -> Markup:
    if measure.mean is None or measure.low is None or measure.high is None:
        return _plain_tile(measure.name, "–", "no case measured")
    return element(
        "div",
        element("span", measure.name, class_="label"),
        element("b", shown.figure(measure.name, measure.mean)),
        chance((measure.low, measure.high), measure.mean),
        element("span", f"{shown.bounds(measure)}, n {measure.cases:,}"),
        class_="tile",
    )


def _plain_tile(label: str, figure: str, note: str) -> Markup:
    return element(
        "div", element("span", label, class_="label"), element("b", figure), element("span", note), class_="tile"
    )


def _buckets(results: RagResults, mark: str) -> Markup:
    names = [measure.name for measure in results.overall.measures]
    title = f"{names[0]} by bucket"
    note = f"Bars are {names[0]}, the bands over them 95 % intervals; the table has those below each figure."
    return section(
        f"buckets{mark}",
        title,
        element("p", note, class_="soft"),
        element("div", rag_charts.by_group(shown.groups(results), names[0]), class_="chart"),
        _measures("bucket", shown.groups(results), names),
    )


def _tags(results: RagResults, mark: str) -> Markup:
    if not results.tags:
        return Markup("")
    names = [measure.name for measure in results.overall.measures]
    rows = _measures("tag", results.tags[: shown.MOST_ROWS], names)
    return section(f"tags{mark}", "By tag", rows, _rest(shown.more(results.tags, "tag")))


def _measures(kind: str, groups: Sequence[Group], names: Sequence[str]) -> Markup:
    rows = [
        element(
            "tr",
            element("th", said(group.name), scope="row", class_="wrap"),
            element("td", f"{group.cases:,}", class_="number"),
            [_measure_cell(group.measure(name)) for name in names],
        )
        for group in groups
    ]
    return table((kind, "cases", *names), ("", *("number",) * (len(names) + 1)), rows, "", f"Measures by {kind}")


def _measure_cell(measure: Measure) -> Markup:
    small = element("span", shown.bounds(measure), class_="small")
    return element("td", shown.figure(measure.name, measure.mean), small, class_="number")


# -- oral against official -----------------------------------------------------------------------------


def _has_wordings(results: RagResults) -> bool:
    pairs = results.pairs
    return bool(pairs.pairs or pairs.unpaired or pairs.not_comparable)


def _wordings(results: RagResults, mark: str) -> Markup:
    if not _has_wordings(results):
        return Markup("")
    only = shown.official_only(results)
    parts: list[Content] = [element("p", shown.wording_gap(results) or "No pair can be compared.")]
    if only:
        names = [joined(", " if place else "", said(concept)) for place, concept in enumerate(only[: shown.MOST_ROWS])]
        parts.append(element("p", element("b", "Only the official wording works: "), names))
    if results.pairs.pairs:
        parts += [_concepts(results), _pairs(results), _gaps(results)]
    parts += [_not_comparable(results), _unpaired(results)]
    return section(f"wordings{mark}", "Oral against official", joined(*parts))


def _concepts(results: RagResults) -> Markup:
    concepts = results.pairs.concepts
    rows = [
        _row(
            said(concept.id) if concept.id else "(none)",
            f"{concept.pairs:,}",
            shown.percent(concept.official),
            shown.percent(concept.oral),
            shown.points(concept.gap),
            is_alarm=concept.is_official_only,
        )
        for concept in concepts[: shown.MOST_ROWS]
    ]
    heads = ("concept", "pairs", "official", "oral", "gap in points")
    about = "Those for which only the official wording works come first and are set off."
    return joined(
        element("h3", "By concept"),
        element("p", about, class_="soft"),
        table(heads, ("", *("number",) * 4), rows, "", "Oral against official by concept"),
        _rest(shown.more(concepts, "concept")),
    )


def _pairs(results: RagResults) -> Markup:
    pairs = results.pairs.pairs
    rows = [_pair(pair) for pair in pairs[: shown.MOST_ROWS]]
    heads = ("pair", "concept", "works", "gap in points", "official", "oral")
    return joined(
        element("h3", "By pair"),
        element("p", f"{pluralize(len(pairs), 'pair')}: {shown.who_counts(results)}.", class_="soft"),
        table(heads, ("", "", "", "number", "", ""), rows, "", "Oral against official by pair"),
        _rest(shown.more(pairs, "pair")),
    )


def _pair(pair: Pair) -> Markup:
    return element(
        "tr",
        element("th", said(pair.id), scope="row", class_="wrap"),
        element("td", said(pair.concept_id), class_="wrap"),
        element("td", pair.who),
        element("td", shown.points(pair.gap), class_="number"),
        element("td", said(", ".join(pair.official_cases)), class_="wrap"),
        element("td", said(", ".join(pair.oral_cases)), class_="wrap"),
        class_="alarm" if pair.who == "official only" else None,
    )


def _gaps(results: RagResults) -> Markup:
    rows = [_row(*shown.gap_cells(gap)) for gap in results.pairs.gaps]
    heads = shown.GAP_HEADS
    return joined(
        element("h3", "By measure"), table(heads, ("", *("number",) * 5), rows, "", "Oral against official by measure")
    )


def _not_comparable(results: RagResults) -> Markup:
    excluded = results.pairs.not_comparable
    rows = [_words(pair.pair_id, pair.id, pair.reason) for pair in excluded[: shown.MOST_ROWS]]
    title = f"Pairs that cannot be compared ({len(excluded):,})"
    return _listed(title, ("pair", "case", "why"), rows, shown.more(excluded, "pair"))


def _unpaired(results: RagResults) -> Markup:
    excluded = results.pairs.unpaired
    rows = [_words(case.id, case.bucket, case.pair_id or "–", case.reason) for case in excluded[: shown.MOST_ROWS]]
    title = f"Cases in no pair ({len(excluded):,})"
    return _listed(title, ("case", "bucket", "pair", "why"), rows, shown.more(excluded, "case"))


def _listed(title: str, heads: tuple[str, ...], rows: Sequence[Markup], rest: str) -> Markup:
    """A collapsed table for details that most readers skip."""
    if not rows:
        return Markup("")
    summary = element("summary", title)
    return element("details", summary, table(heads, ("",) * len(heads), rows, "", title), _rest(rest), class_="aside")


def _words(first: str, *others: str) -> Markup:
    cells = [element("td", said(shorten(cell, LONGEST_TEXT)), class_="wrap") for cell in others]
    return element("tr", element("th", said(first), scope="row", class_="wrap"), cells)


def _row(first: str, *figures: str, is_alarm: bool = False) -> Markup:
    cells = [element("td", cell, class_="number") for cell in figures]
    kind = "alarm" if is_alarm else None
    return element("tr", element("th", first, scope="row", class_="wrap"), cells, class_=kind)


def _rest(text: str) -> Markup:
    return element("p", text, class_="soft") if text else Markup("")


# -- cases ---------------------------------------------------------------------------------------------


def _is_listed(results: RagResults, of: tuple[Status, ...]) -> bool:
    # Misses are listed even when there are none, since that is worth showing.
    return "failed" in of or bool(shown.of_status(results, *of))


def _cases(results: RagResults, anchor: str, title: str, of: tuple[Status, ...]) -> Markup:
    if not _is_listed(results, of):
        return Markup("")
    rows = shown.of_status(results, *of)
    parts = [_case(row) for row in rows[: shown.MOST_ROWS]] or [element("p", "None.", class_="soft")]
    return section(anchor, f"{title} ({len(rows):,})", *parts, _rest(shown.more(rows, "case")))


def _case(row: CaseRow) -> Markup:
    label = shown.STATUS_LABELS[row.status]
    kinds = {"PASS": "flag good", "FAIL": "flag bad", "ERROR": "flag bad"}
    summary = element(
        "summary",
        element("span", row.id, class_="id"),
        element("span", row.bucket, class_="kind"),
        element("span", said(shorten(row.query, LONGEST_TEXT)), class_="what"),
        element(
            "span",
            [_rank(expectation) for expectation in row.expected[:5]] if _is_searched(row) else [],
            class_="marks",
        ),
        element("span", element("span", label, class_=kinds.get(label, "flag")), class_="sum"),
    )
    return element("details", summary, element("div", *_inside(row), class_="inside"), class_="case")


def _is_searched(row: CaseRow) -> bool:
    """Whether there are retrieval results to show."""
    return bool(row.sources) or row.status in ("passed", "failed")


def _rank(expectation: Expected) -> Markup:
    words = f"{expectation.source} {shown.at_rank(expectation.rank)}"
    kind = "m3" if expectation.rank else "m0"
    return element(
        "span", str(expectation.rank or "–"), class_=f"mark {kind}", title=words, aria_label=words, role="img"
    )


def _inside(row: CaseRow) -> Iterator[Markup]:
    reason = row.error or ("" if row.missing else row.reason)
    if reason:
        yield element("p", said(shorten(reason, LONGEST_TEXT)), class_="wide")
    yield element("div", *_left(row))
    if _is_searched(row):
        yield element("div", element("h4", "Sources in the order they were found"), _ranked(row))


def _left(row: CaseRow) -> Iterator[Markup]:
    yield element("h4", "Expected")
    marks = [_rank(expectation) if _is_searched(row) else element("span") for expectation in row.expected]
    items = [
        element("li", mark, element("span", said(expectation.source)))
        for mark, expectation in zip(marks, row.expected, strict=True)
    ]
    yield element("ul", items, class_="sources") if items else element("p", "no source", class_="soft")
    if row.missing:
        yield element("h4", "Missing in the answer")
        yield element("p", [said(text) for text in row.missing], class_="missing")
    if row.answer:
        yield element("h4", "Answer")
        yield element(
            "div",
            said(shorten(row.answer, _LONGEST_ANSWER)),
            class_="output",
            tabindex="0",
            role="region",
            aria_label=f"Answer to {row.id}",
        )
    facts = [(what, value) for what, value in _facts(row) if value]
    pairs = [joined(element("dt", what), element("dd", said(value))) for what, value in facts]
    yield element("h4", "About the case")
    yield element("dl", pairs)


def _facts(row: CaseRow) -> Iterator[tuple[str, str]]:
    yield "at", str(row.origin)
    yield "pair", row.pair_id
    yield "concept", row.concept_id
    yield "tags", ", ".join(row.tags)
    yield "repeats", f"{row.repeats:,}" if row.repeats > 1 else ""
    yield "measures", ", ".join(f"{name} {shown.figure(name, value)}" for name, value in row.measures.items())


def _ranked(row: CaseRow) -> Markup:
    if not row.sources:
        return element("p", "Nothing was found.", class_="soft")
    items = []
    for place, source in enumerate(row.sources, 1):
        hit = any(is_hit(expectation.source, source) for expectation in row.expected)
        mark = element("span", str(place), class_="mark m3" if hit else "mark m0")
        words = [said(source), " ", element("span", "expected", class_="flag good")] if hit else [said(source)]
        items.append(element("li", mark, element("span", words), class_="hit" if hit else None))
    return element("ol", items, class_="sources")


def _settings(results: RagResults, mark: str) -> Markup:
    rows = [_words(what, value) for what, value in shown.settings(results)]
    return section(f"settings{mark}", "Configuration", table(("setting", "value"), ("", ""), rows, "", "Configuration"))
