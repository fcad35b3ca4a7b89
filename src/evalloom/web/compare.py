"""Compare: what two batches conclude, what changed between them, and the cases that flipped."""

from __future__ import annotations

from itertools import islice
from typing import Any

from msgspec import Struct

from evalloom.analysis.compare import By, Comparison
from evalloom.analysis.compare_figures import Medians, RateComparison
from evalloom.analysis.compare_measures import Measured
from evalloom.batchlog import BASELINES, baselines
from evalloom.core.errors import EvalloomError
from evalloom.pages.errors import RequestError
from evalloom.pages.library import BatchSummary, LogLosses, losses_of, other_warnings
from evalloom.pages.page import Page, PageRequest, Redirect, View
from evalloom.web.compare_cases import TABS, ChangedCase, ShownCase, Tab, matching, shown_cases
from evalloom.web.compare_run import show_run
from evalloom.web.compare_sides import GROUPS, Compared, Side, compare_sides, find_side
from evalloom.web.compare_words import ChangedFact, Conclusion, changed_fact, conclude

_PAGE_SIZE = 25
_CHOICES = 200
"""The batches that can be chosen; older ones by their address."""
_SUGGESTED = 10


class Suite(Struct, frozen=True):
    """The batches of one target and dataset, newest first."""

    target: str
    datasets: list[str]
    batches: list[BatchSummary]


class Chooser(Struct, frozen=True):
    """What can be compared: the suites with the newest batches first, and the saved baselines."""

    suites: list[Suite]
    baselines: list[str]
    a: str
    b: str
    problem: str = ""
    code: str = ""


class ProfileFigures(Struct, frozen=True):
    """The figures of one profile: of all cases, and of groups of them."""

    profile: str
    base_profile: str
    figures: RateComparison
    buckets: list[RateComparison]
    tags: list[RateComparison]
    measures: list[Measured]
    latency_s: Medians | None
    tokens: Medians | None
    cost_before: float
    cost: float


class ComparePage(Struct, frozen=True):
    """A comparison: the conclusion, then the cases by what happened to them."""

    a: Side
    b: Side
    conclusions: list[Conclusion]
    warnings: list[str]
    losses: list[LogLosses]
    """What the logs of the two lost."""
    changed: list[ChangedFact]
    profiles: list[ProfileFigures]
    by: list[By]
    groups: list[By]
    """By what the cases could be grouped, too."""
    counts: dict[Tab, int]
    show: Tab
    cases: list[ShownCase]
    total: int
    page: int
    pages: int
    search: str
    tag: str
    profile: str
    any_config: bool
    command: str
    """The same on the command line."""


def _show(request: PageRequest) -> View | Redirect:
    query = request.query
    chosen = query.getlist("b")
    if "a" not in query and len(set(chosen)) == 2:
        pair = sorted(
            (request.site.library.summary(id) for id in set(chosen)), key=lambda one: (one.created_at, one.id)
        )
        return Redirect(request.url("/compare", a=pair[0].id, b=pair[1].id))
    if not (query.get("a") and query.get("b")):
        return View("compare_choose.html", _chooser(request, query.get("a", ""), query.get("b", "")))
    a, b = find_side(request, query["a"], True), find_side(request, query["b"], False)
    by = tuple(name for name in GROUPS if name in query.getlist("by"))
    try:
        compared = compare_sides(request, a, b, by, query.get("any") == "1")
    except EvalloomError as error:
        message = str(error).rpartition(" [")[0]
        return View("compare_choose.html", _chooser(request, a.text, b.text, message, error.code))
    return View("compare.html", _page(request, a, b, by, compared))


def _page(request: PageRequest, a: Side, b: Side, by: tuple[By, ...], compared: Compared) -> ComparePage:
    t, result = request.t, compared.result
    profile, tag = request.query.get("profile", ""), request.query.get("tag", "")
    search = request.query.get("q", "").strip()
    found = filtered(request, a, b, compared)
    counts: dict[Tab, int] = {tab: len(cases) for tab, cases in found.items()}
    show: Tab = request.choice("show", TABS) or next((tab for tab in TABS if counts[tab]), "lost")  # type: ignore[assignment]
    cases, page = found[show], request.number("page", 1)
    shown = cases[(page - 1) * _PAGE_SIZE : page * _PAGE_SIZE]
    return ComparePage(
        a,
        b,
        [conclude(t, comparison, result) for comparison in result.comparisons],
        other_warnings(compared.warnings),
        losses_of(request.site.library, (side.batch for side in (a, b))),
        [changed_fact(t, difference) for difference in result.differences],
        [_profile_figures(comparison) for comparison in result.comparisons],
        list(by),
        _groups(request, b, result.comparisons),
        counts,
        show,
        shown_cases(request.site.library, (a.batch, b.batch), result.comparisons, show, shown),
        sum(map(len, compared.cases.values())),
        page,
        max(1, -(-len(cases) // _PAGE_SIZE)),
        search,
        tag,
        profile,
        request.query.get("any") == "1",
        _command(a, b, by, request.query.get("any") == "1"),
    )


def filtered(request: PageRequest, a: Side, b: Side, compared: Compared) -> dict[Tab, list[ChangedCase]]:
    """Return the cases of each tab that the profile, the tag and the search of the address leave."""
    profile, tag = request.query.get("profile", ""), request.query.get("tag", "")
    search, comparisons = request.query.get("q", "").strip(), compared.result.comparisons
    cases = compared.cases
    if profile:
        wanted = {at for at, one in enumerate(comparisons) if one.profile == profile}
        cases = {tab: [case for case in found if case.comparison in wanted] for tab, found in cases.items()}
    if tag or search:
        numbers = matching(request.site.library, (a.batch, b.batch), comparisons, tag, search)
        cases = {
            tab: [
                case
                for case in found
                if (0, case.comparison, case.before) in numbers or (1, case.comparison, case.now) in numbers
            ]
            for tab, found in cases.items()
        }
    return cases


def _profile_figures(comparison: Comparison) -> ProfileFigures:
    def worst_first(groups: list[RateComparison]) -> list[RateComparison]:
        return sorted(groups, key=lambda group: (group.difference or 0.0, group.name))

    return ProfileFigures(
        comparison.profile,
        comparison.base_profile,
        comparison.figures,
        worst_first(comparison.buckets),
        worst_first(comparison.tags),
        comparison.measures,
        comparison.latency_s,
        comparison.tokens,
        comparison.cost_before,
        comparison.cost,
    )


def _groups(request: PageRequest, b: Side, comparisons: list[Comparison]) -> list[By]:
    """Return by what the cases of a batch can be grouped: those of some systems always are."""
    query = "SELECT count(*) FILTER (len(tags) > 0), count(bucket) FROM runs"
    tags, buckets = request.site.library.rows(b.batch, query)[0]
    is_by_bucket = any(comparison.buckets for comparison in comparisons)
    found: list[By] = []
    return found + (["tag"] if tags else []) + (["bucket"] if buckets or is_by_bucket else [])


def _command(a: Side, b: Side, by: tuple[By, ...], any_config: bool) -> str:
    words = ["evalloom compare", b.name]
    words += [] if a.name == b.name and not a.is_baseline else ["--against", a.name]
    words += ["--profile", b.profile] if b.profile else []
    words += ["--baseline-profile", a.profile] if a.profile else []
    words += [word for name in by for word in ("--by", name)]
    return " ".join([*words, *(["--any-config"] if any_config else [])])


# -- what can be compared ----------------------------------------------------------------------------------


def _chooser(request: PageRequest, a: str, b: str, problem: str = "", code: str = "") -> Chooser:
    site = request.site
    suites: dict[tuple[str, tuple[str, ...]], list[BatchSummary]] = {}
    listed = (summary for summary in site.library.summaries() if not summary.is_try)
    for summary in islice(listed, _CHOICES):
        suites.setdefault((summary.target, tuple(summary.datasets)), []).append(summary)
    found = [Suite(target, list(datasets), members) for (target, datasets), members in suites.items()]
    # What was asked about comes first, with the others of its suite.
    names = {text.partition(":")[0] for text in (b, a)}
    found.sort(key=lambda suite: not any(batch.id in names for batch in suite.batches))
    if not b and not a:
        a, b = _first_pair(found)
    if b and not a:
        a = next(
            (
                older.id
                for suite in found
                for newer, older in zip(suite.batches, suite.batches[1:], strict=False)
                if newer.id == b
            ),
            "",
        )
    saved = [head.name for _, head in baselines(site.home / BASELINES)]
    return Chooser(found, saved, a, b, problem, code)


def _first_pair(suites: list[Suite]) -> tuple[str, str]:
    """Return the newest batch that has one before it, after that one; or else two profiles of one batch."""
    for suite in suites:
        if len(suite.batches) > 1:
            return suite.batches[1].id, suite.batches[0].id
    for suite in suites:
        for batch in suite.batches:
            if len(batch.profiles) > 1:
                return f"{batch.id}:{batch.profiles[0]}", f"{batch.id}:{batch.profiles[1]}"
    return "", ""


def _show_run(request: PageRequest) -> View:
    query: Any = request.query
    for name in ("a", "b", "case"):
        if not query.get(name):
            raise RequestError("validation_failed", f"{name}: expected one, got none. /compare leads to the cases")
    a, b = find_side(request, query["a"], True), find_side(request, query["b"], False)
    by = tuple(name for name in GROUPS if name in query.getlist("by"))
    compared = compare_sides(request, a, b, by, query.get("any") == "1")
    return show_run(request, a, b, compared, filtered(request, a, b, compared))


PAGES = (Page("/compare", _show), Page("/compare/run", _show_run))
