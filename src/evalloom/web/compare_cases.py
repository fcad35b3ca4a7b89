"""The cases of a comparison, sorted by what happened to them, and the rows of one page of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from evalloom.analysis.compare import Change, Comparison
from evalloom.analysis.compare_figures import GRADES
from evalloom.pages.library import Library
from evalloom.ui.diff import TextDiff
from evalloom.ui.json_diff import JsonDiff, compare_values

Tab = Literal["lost", "gained", "failing", "output", "incomparable", "same"]
TABS: tuple[Tab, ...] = ("lost", "gained", "failing", "output", "incomparable", "same")
"""Every case is in one of them. `failing` did not pass on both sides; `output` passed on both with another output."""
_KINDS: dict[str, Tab] = {
    "lost": "lost",
    "gained": "gained",
    "new": "incomparable",
    "gone": "incomparable",
    "not comparable": "incomparable",
}
_LONGEST = 20_000
"""Characters of an output that are compared in a row."""
_LINES, _LONGEST_LINE, _CHANGES = 6, 240, 4
_RUNS = """
    SELECT number, key, repeat, status, "check", reason, coalesce(length(output::VARCHAR), 0),
        left(output ->> '$', ?)
    FROM runs WHERE coalesce(profile, '') = ? AND list_contains(?, number)
    QUALIFY row_number() OVER (PARTITION BY number ORDER BY (coalesce(passed, false) = ?) DESC, repeat) = 1
"""
"""The run of each case that shows the change: of a lost case, one that passed before and one that does not now."""
_MATCHING = """
    SELECT DISTINCT coalesce(profile, ''), number FROM runs
    WHERE (? = '' OR list_contains(tags, ?)) AND (? = '' OR contains(lower(case_id), ?)
        OR contains(lower(coalesce(output ->> '$', '')), ?) OR contains(lower(coalesce(reason, '')), ?))
"""


class CaseSide(NamedTuple):
    """A case on one side. `output` is a digest of its outputs, None if it has none."""

    number: int | None
    is_passed: bool
    output: int | None


class ChangedCase(Struct, frozen=True, gc=False):
    """A case of a comparison; `before` and `now` are its numbers in the two batches."""

    comparison: int
    case_id: str
    occurrence: int
    before: int | None
    now: int | None
    change: Change | None = None


class ShownRun(Struct, frozen=True):
    """A run of one side in a row."""

    run: str
    repeat: int
    status: str
    check: str | None
    reason: str | None
    size: int
    """The characters of the whole output, as JSON."""
    output: str | None
    """The beginning of the output; None if there is none."""


class ShownCase(Struct, frozen=True):
    """A row: one case with both outputs and their difference."""

    case_id: str
    occurrence: int
    profile: str
    base_profile: str
    before_status: str
    status: str
    before: ShownRun | None
    now: ShownRun | None
    diff: TextDiff | JsonDiff | None
    severity: str = ""
    repeats_before: tuple[int, int] = (0, 0)
    repeats: tuple[int, int] = (0, 0)
    is_edited: bool = False
    reason: str = ""
    notes: tuple[str, ...] = ()


_Cases = Mapping[str, Mapping[tuple[str, int], CaseSide]]


def sort_cases(comparisons: Sequence[Comparison], before: _Cases, now: _Cases) -> dict[Tab, list[ChangedCase]]:
    """Sort all cases by what happened to them: lost ones the worst first, others in the order of the dataset."""
    tabs: dict[Tab, list[ChangedCase]] = {tab: [] for tab in TABS}
    nothing = CaseSide(None, False, None)
    for at, comparison in enumerate(comparisons):
        old, new = before.get(comparison.base_profile, {}), now.get(comparison.profile, {})
        changes = {(change.case_id, change.occurrence): change for change in comparison.changes}
        for key in [*new, *(key for key in changes if key not in new)]:
            change, was, has_become = changes.get(key), old.get(key, nothing), new.get(key, nothing)
            tab = _KINDS.get(change.change) if change else None
            if tab is None:
                tab = _tab_of_same(was, has_become)
            tabs[tab].append(ChangedCase(at, *key, was.number, has_become.number, change))
    # Stable, so that equally bad ones stay in the order of the dataset.
    tabs["lost"].sort(key=lambda case: -GRADES.index(case.change.severity) if case.change else 0)
    return tabs


def _tab_of_same(before: CaseSide, now: CaseSide) -> Tab:
    if not before.is_passed and not now.is_passed:
        return "failing"
    is_other = before.output is not None and now.output is not None and before.output != now.output
    return "output" if is_other else "same"


def matching(
    library: Library, sides: tuple[str, str], comparisons: Sequence[Comparison], tag: str, search: str
) -> set[tuple[int, int, int]]:
    """Return the side, the comparison and the number of each case that has a tag and contains a text."""
    text = search.lower()
    found = set()
    for side, batch in enumerate(sides):
        if not batch:
            continue
        rows = library.rows(batch, _MATCHING, [tag, tag, text, text, text, text])
        for at, comparison in enumerate(comparisons):
            profile = comparison.profile if side else comparison.base_profile
            found |= {(side, at, number) for name, number in rows if name == profile}
    return found


def shown_cases(
    library: Library, sides: tuple[str, str], comparisons: Sequence[Comparison], tab: Tab, cases: Sequence[ChangedCase]
) -> list[ShownCase]:
    """Return some cases with their outputs; `sides` are the batches before and now, empty if there is none."""
    befores = _runs(library, sides[0], cases, 0, [one.base_profile for one in comparisons], tab != "gained")
    nows = _runs(library, sides[1], cases, 1, [one.profile for one in comparisons], tab == "gained")
    shown = []
    for case in cases:
        comparison, change = comparisons[case.comparison], case.change
        before, now = befores.get((case.comparison, case.before)), nows.get((case.comparison, case.now))
        shown.append(
            ShownCase(
                case.case_id,
                case.occurrence,
                comparison.profile,
                comparison.base_profile,
                (change.before if change else before.status if before else None) or "",
                (change.now if change else now.status if now else None) or "",
                before,
                now,
                _difference(before, now),
                change.severity if change else "",
                change.repeats_before if change else (0, 0),
                change.repeats if change else (0, 0),
                bool(change and change.is_edited),
                (change.reason if change else "") or "",
                change.notes if change else (),
            )
        )
    return shown


def _runs(
    library: Library, batch: str, cases: Iterable[ChangedCase], side: int, profiles: Sequence[str], prefer_passed: bool
) -> dict[tuple[int, int | None], ShownRun]:
    """Return a run of each case, by comparison and number."""
    numbers: dict[int, list[int]] = {}
    for case in cases:
        number = case.now if side else case.before
        if number is not None:
            numbers.setdefault(case.comparison, []).append(number)
    runs: dict[tuple[int, int | None], ShownRun] = {}
    for comparison, wanted in numbers.items():
        values: list[Any] = [_LONGEST, profiles[comparison], wanted, prefer_passed]
        for number, *fields in library.rows(batch, _RUNS, values) if batch else ():
            runs[comparison, number] = ShownRun(*fields)
    return runs


def _difference(before: ShownRun | None, now: ShownRun | None) -> TextDiff | JsonDiff | None:
    """Compare two outputs around their first difference; None if a side has none, or both are equal."""
    if before is None or now is None or before.output is None or now.output is None or before.output == now.output:
        return None
    diff = compare_values(before.output, now.output)
    if isinstance(diff, TextDiff):
        return diff.clamped(_LINES, _LONGEST_LINE)
    return JsonDiff(diff.changes[:_CHANGES], diff.hidden + max(0, len(diff.changes) - _CHANGES))
