"""The sentences of a comparison, in the words of `evalloom compare` and in the language of the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from evalloom.analysis.compare import FEWEST_REPEATS, Comparison
from evalloom.analysis.compare_config import Difference
from evalloom.analysis.compare_figures import DETECTED, FEWEST_FLIPS, Grade, Judgement, RateComparison
from evalloom.core.text import shorten
from evalloom.engine.compare import ComparisonResult
from evalloom.ui.language import Language, phrase

_NAMES_SHOWN = 5
_LONGEST_VALUE = 200
_JUDGEMENTS: dict[Judgement, str] = {
    "better": phrase("better"),
    "worse": phrase("worse"),
    "no difference shown": phrase("no difference shown"),
}
_GRADES: dict[Grade, str] = {
    "": "",
    "minor": phrase("minor"),
    "major": phrase("major"),
    "critical": phrase("critical"),
}
_LABELS = {
    "target": phrase("Target"),
    "target_digest": phrase("Target changed"),
    "datasets": phrase("Dataset changed"),
    "documents": phrase("Documents"),
    "profiles": phrase("Profiles that are not compared"),
    "identity": phrase("Model behind a profile: its address, or the file of a scripted one"),
    "repeat": phrase("Repeats"),
    "variant": phrase("variant"),
    "llm": phrase("llm"),
    "model": phrase("model"),
    "verify": phrase("judge"),
    "params": phrase("parameters"),
    "profile": phrase("Profile"),
}


class Conclusion(Struct, frozen=True):
    """What one comparison concludes."""

    profile: str
    base_profile: str
    kind: str
    """`regression`, `not comparable`, `better` or `same`: decides the colour."""
    word: str
    main: str
    """What is concluded, with the interval."""
    rest: list[str]
    """What could not be compared, the flips, what is not excluded, and the cases needed."""
    notes: list[str]
    sentence: str
    """All of it in one sentence, as the command line prints it."""


class ChangedFact(Struct, frozen=True):
    """One difference between the two configurations."""

    label: str
    before: str
    now: str


def conclude(t: Language, comparison: Comparison, compared: ComparisonResult) -> Conclusion:
    """Say what a comparison concludes, how certain it is, and what the data could not show."""
    figures, name = comparison.figures, comparison.profile or t("the batch")
    base = compared.baseline if comparison.profile == comparison.base_profile else comparison.base_profile
    names = (comparison.profile, comparison.base_profile)
    if figures.difference is None or figures.low is None or figures.high is None:
        text = t("no case of {name} has a result on both sides", name=name)
        word = t("Nothing to compare")
        return Conclusion(*names, "not comparable", word, text, [], [], f"{word}: {text}")
    if comparison.is_regression:
        kind, word = "regression", t("Regression ({grade})", grade=t(_GRADES[comparison.severity]))
    elif not comparison.is_comparable:
        kind, word = "not comparable", t("Not comparable")
    else:
        kind = "better" if figures.judgement == "better" else "same"
        is_open = figures.judgement == "no difference shown"
        word = t("No regression shown") if is_open else t("No regression")
    main = t(
        "{judgement}, {points} points (95 % CI {low} to {high})",
        judgement=t(_JUDGEMENTS[figures.judgement]),
        points=signed(figures.difference),
        low=signed(figures.low),
        high=signed(figures.high),
    )
    rest = list(_rest(t, comparison, figures, figures.low))
    # As on the command line, what is missing comes first.
    parts = [*rest[:1], main, *rest[1:]] if comparison.missing else [main, *rest]
    sentence = t("{word}: {name} against {base}: {list}", word=word, name=name, base=base, list=t("; ").join(parts))
    return Conclusion(*names, kind, word, main, rest, list(_notes(t, comparison, compared)), sentence)


def _rest(t: Language, comparison: Comparison, figures: RateComparison, low: float) -> Iterator[str]:
    if comparison.missing:
        counted = t.count(comparison.counted_before, "{n} case", "{n} cases")
        missing = t.number(comparison.missing)
        if comparison.is_selection:
            yield t("{missing} of {cases} were not selected", missing=missing, cases=counted)
        else:
            yield t("{missing} of {cases} cannot be compared", missing=missing, cases=counted)
    flips, cases = t.number(figures.gained + figures.lost), t.count(figures.cases, "{n} case", "{n} cases")
    if any(change.repeats[1] > 1 for change in comparison.changes):
        yield t("{n} of {cases} changed", n=flips, cases=cases)
    else:
        yield t("{n} of {cases} flipped", n=flips, cases=cases)
    if low < 0:
        yield t("a drop of up to {points} points is not excluded", points=f"{-100 * low:.3g}")
    else:
        yield t("a drop is excluded")
    detected = f"{100 * DETECTED:.3g}"
    if figures.more_cases:
        needed = t.number(figures.more_cases)
        yield t("about {n} more cases would show a change of {points} points", n=needed, points=detected)
    else:
        yield t("enough cases to show a change of {points} points", points=detected)


def _notes(t: Language, comparison: Comparison, compared: ComparisonResult) -> Iterator[str]:
    """Explain why it is a regression or is not comparable, and what limits the comparison."""
    if comparison.is_regression:
        yield t("It is a regression because {list}.", list=t(", and ").join(_reasons(t, comparison)))
    if not comparison.is_comparable and comparison.figures.cases:
        yield t("More than half of what passed has no result now.")
    counts = ((change.repeats_before[1], change.repeats[1]) for change in comparison.changes)
    if any(before and now and (before == 1) != (now == 1) for before, now in counts):
        yield t("The sides have different numbers of repeats. Rates can be compared; 1 of 1 → 4 of 5 is no loss.")
    if comparison.critical_lost and not comparison.is_critical_shown:
        lost = t.count(
            comparison.critical_lost,
            "{n} critical case passed before, and not once now.",
            "{n} critical cases passed before, and not once now.",
        )
        if comparison.critical_shown:
            why = t("So many critical cases pass only sometimes that this may be chance: more repeats would show it.")
        else:
            why = t("It takes {n} repeats on both sides to show that.", n=FEWEST_REPEATS)
        yield f"{lost}{'' if t.code == 'zh' else ' '}{why}"
    if 0 < comparison.figures.cases < FEWEST_FLIPS:
        yield t.count(
            comparison.figures.cases,
            "{n} case can never show a difference: it takes {flips} that change the same way.",
            "{n} cases can never show a difference: it takes {flips} that change the same way.",
            flips=FEWEST_FLIPS,
        )
    if comparison.edited:
        yield t.count(comparison.edited, "{n} case was edited in between.", "{n} cases were edited in between.")
    if compared.is_same_batch:
        yield t("Both sides are the same batch: only what was run or scored again can differ.")


def _reasons(t: Language, comparison: Comparison) -> Iterator[str]:
    if comparison.figures.regression:
        yield t("worse is shown")
    for groups, text in (
        (comparison.buckets, phrase("these buckets fell: {names}")),
        (comparison.tags, phrase("these tags fell: {names}")),
    ):
        if fallen := [group.name for group in groups if group.regression]:
            more = t("and {n} more", n=t.number(len(fallen) - _NAMES_SHOWN)) if len(fallen) > _NAMES_SHOWN else ""
            yield t(text, names=t(", ").join([*fallen[:_NAMES_SHOWN], *filter(None, [more])]))
    if comparison.is_critical_shown:
        yield t.count(
            comparison.critical_shown,
            "{n} critical case passed in all repeats before, and in none now",
            "{n} critical cases passed in all repeats before, and in none now",
        )


def signed(share: float) -> str:
    """Format a difference in points; a difference other than zero is never shown as zero."""
    points = round(100 * share, 9) + 0.0  # without the rounding error of a mean, and without "-0.0"
    return (f"{points:+.1f}" if not points or abs(points) >= 0.05 else f"{points:+.1g}").replace("-", "−")


def changed_fact(t: Language, difference: Difference) -> ChangedFact:
    """Return a difference in the language of the page."""
    what, before, now = difference.what, difference.before, difference.now
    if what == "datasets":
        return ChangedFact(t(_LABELS[what]), _dataset_names(before), _dataset_names(now))
    if what == "documents":
        return ChangedFact(t(_LABELS[what]), "", difference.text)
    if what == "identity":
        return ChangedFact(t(_LABELS[what]), "", "")
    if what == "target_digest":
        before, now = (str(digest)[:12] for digest in (before, now))
    if what.startswith("config."):
        return ChangedFact(what.removeprefix("config."), _shown(before), _shown(now))
    head, _, rest = what.partition(".")
    name, _, fact = rest.rpartition(".")
    if head == "profiles" and rest:
        label = t(_LABELS[fact]) if fact in _LABELS else fact
        return ChangedFact(f"{name}: {label}", _shown(before), _shown(now))
    return ChangedFact(t(_LABELS[what]) if what in _LABELS else what, _shown(before), _shown(now))


def _dataset_names(datasets: Any) -> str:
    """Return the files of a side with the beginnings of their digests."""
    return ", ".join(f"{path} ({str(digest)[:8]})" for path, digest, *_ in datasets)


def _shown(value: Any) -> str:
    if value in ("", None) or value == {} or value == []:
        return "–"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return shorten(text, _LONGEST_VALUE)
