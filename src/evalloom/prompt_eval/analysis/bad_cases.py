"""Groups bad cases by the test point that fails, then by traits that the cases share."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from evalloom.core.model import Record
from evalloom.prompt_eval.analysis.wording import Wording
from evalloom.prompt_eval.plan import SAFETY, TestPoint
from evalloom.prompt_eval.scores import ScoredCase
from evalloom.ui.language import phrase

FAILED_RUNS = ""
"""The test point of groups of failed runs, which have no scores."""
NO_TRAIT = Wording(phrase("no shared trait"))
_MIN_CASES = 2
"""The minimum number of cases that share a trait."""
_LENGTH_FACTOR = 3
"""An output is much longer, or shorter, if its length differs from the median by this factor."""
_MAX_LANGUAGE_TEXT = 20_000
"""The number of characters of an input that the language is detected in."""
_LANGUAGES = {
    "han": phrase("input is in Chinese characters"),
    "kana": phrase("input is in Japanese"),
    "hangul": phrase("input is in Korean"),
    "latin": phrase("input is in Latin letters"),
    "cyrillic": phrase("input is in Cyrillic letters"),
    "arabic": phrase("input is in Arabic letters"),
    "hebrew": phrase("input is in Hebrew letters"),
    "greek": phrase("input is in Greek letters"),
    "thai": phrase("input is in Thai letters"),
    "devanagari": phrase("input is in Devanagari letters"),
}


class BadGroup(Struct, frozen=True):
    """Bad cases that fail on one test point and share one trait; with an empty point, failed runs of one reason."""

    point: str
    trait: Wording
    cases: tuple[ScoredCase, ...]
    also: tuple[Wording, ...] = ()
    """Further traits that all of them share, and that most other cases lack."""


class Trait(Wording, frozen=True):
    """A property of a case. A category separates cases even if it is not more frequent among the bad ones."""

    is_category: bool = False


class _Typical(Struct, frozen=True):
    """The properties that most cases share: the median length of outputs, JSON or not, and the fields of inputs."""

    length: int
    are_json: bool
    fields: frozenset[str]


def group_bad_cases(cases: Sequence[ScoredCase], points: tuple[TestPoint, ...]) -> tuple[BadGroup, ...]:
    """Put every bad case in one group: TP_safety first, then the points with most bad cases, failed runs last."""
    ran = [case for case in cases if not case.is_failed]
    bad = [number for number, case in enumerate(ran) if case.is_bad and case.scores]
    ranks = _ranks([ran[number] for number in bad], points)
    traits: list[list[Trait]] = []
    if bad:
        typical = _typical_of(ran)
        traits = [
            list(dict.fromkeys(trait for traits_of in _TRAITS for trait in traits_of(case, typical))) for case in ran
        ]
    by_point: dict[str, list[int]] = {}
    for number in bad:
        by_point.setdefault(min(_lowest(ran[number]), key=ranks.__getitem__), []).append(number)
    order = sorted(by_point, key=lambda point: (point != SAFETY, -len(by_point[point]), ranks[point]))
    groups = [
        BadGroup(point, trait, tuple(ran[number] for number in members), also)
        for point in order
        for trait, members, also in _partition(by_point[point], traits)
    ]
    return (*groups, *_failed_runs(cases))


def _lowest(case: ScoredCase) -> list[str]:
    """Return the test points with the lowest score of a case."""
    lowest = min(case.scores)
    return [point for point, mark in case.marks.items() if mark.score == lowest]


def _ranks(bad: Sequence[ScoredCase], points: tuple[TestPoint, ...]) -> dict[str, tuple[bool, int, int]]:
    """Rank the test points for cases with several lowest ones: core points first, then by frequency, then by order."""
    counts = Counter(point for case in bad for point in _lowest(case))
    core = {point.id for point in points if point.is_core}
    names = [point.id for point in points]
    names += [point for point in counts if point not in names]
    return {point: (point not in core, -counts[point], position) for position, point in enumerate(names)}


def _failed_runs(cases: Sequence[ScoredCase]) -> Iterator[BadGroup]:
    """Group failed runs by reason, the most frequent one first."""
    by_reason: dict[str, list[ScoredCase]] = {}
    for case in cases:
        if case.is_failed:
            by_reason.setdefault(" ".join(case.comment.split()), []).append(case)
    for reason in sorted(by_reason, key=lambda reason: (-len(by_reason[reason]), reason)):
        yield BadGroup(FAILED_RUNS, Wording("{reason}", (("reason", reason),)), tuple(by_reason[reason]))


def _partition(
    members: list[int], traits: list[list[Trait]]
) -> Iterator[tuple[Wording, list[int], tuple[Wording, ...]]]:
    """Split the cases of one test point repeatedly by the trait that best separates them from all other cases."""
    overall = Counter(trait for case_traits in traits for trait in case_traits)
    left = members
    while trait := _most_distinctive(left, traits, overall):
        matching = [number for number in left if trait in traits[number]]
        also = [
            other
            for other in traits[matching[0]]
            if other != trait
            and 2 * overall[other] < len(traits)
            and all(other in traits[number] for number in matching)
        ]
        yield trait, matching, tuple(also)
        left = [number for number in left if trait not in traits[number]]
    if left:
        yield NO_TRAIT, left, ()


def _most_distinctive(left: list[int], traits: list[list[Trait]], overall: Counter[Trait]) -> Trait | None:
    """Return the trait that exceeds its frequency in a random sample of this size by the largest margin."""
    counts = Counter(trait for number in left for trait in traits[number])

    def surplus(trait: Trait) -> int:
        # The excess times the number of all cases, to stay in integers.
        return counts[trait] * len(traits) - overall[trait] * len(left)

    shared = [trait for trait in counts if counts[trait] >= _MIN_CASES and (trait.is_category or surplus(trait) > 0)]
    # A counter keeps the order of appearance, and max returns the first of equals, so the result is stable.
    return max(shared, key=lambda trait: (surplus(trait), counts[trait]), default=None)


def _typical_of(cases: Sequence[ScoredCase]) -> _Typical:
    outputs = [output for case in cases if (output := _output(case)).strip()]
    lengths = sorted(map(len, outputs))
    fields = Counter(name for case in cases for name in _inputs(case))
    return _Typical(
        length=lengths[len(lengths) // 2] if lengths else 0,
        are_json=2 * sum(map(_is_json, outputs)) > len(outputs),
        fields=frozenset(name for name, count in fields.items() if 2 * count > len(cases)),
    )


def _output(case: ScoredCase) -> str:
    """Return the output as text; an object as JSON."""
    result = case.record.get("result_aftertest")
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


def _inputs(case: ScoredCase) -> Record:
    inputs = case.record.get("input")
    return inputs if isinstance(inputs, dict) else {}


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


# -- traits of a case, the most informative first ------------------------------------------------------


def _by_category(case: ScoredCase, typical: _Typical) -> Iterator[Trait]:
    for name in ("test_subcategory", "test_category"):
        value = case.record.get(name)
        if isinstance(value, str) and value:
            yield Trait(phrase("{name} is {value}"), (("name", name), ("value", value)), is_category=True)


def _by_output(case: ScoredCase, typical: _Typical) -> Iterator[Trait]:
    output = _output(case)
    if not output.strip():
        yield Trait(phrase("output is empty"))
        return
    if typical.are_json and not _is_json(output):
        yield Trait(phrase("output is not JSON, while most outputs are"))
    if len(output) >= _LENGTH_FACTOR * typical.length:
        yield Trait(phrase("output is much longer than the others"))
    elif len(output) * _LENGTH_FACTOR <= typical.length:
        yield Trait(phrase("output is much shorter than the others"))


def _by_fields(case: ScoredCase, typical: _Typical) -> Iterator[Trait]:
    inputs = _inputs(case)
    for name, value in inputs.items():
        if value is None or value in ([], {}) or (isinstance(value, str) and not value.strip()):
            yield Trait(phrase("input {name} is empty"), (("name", name),))
    for name in sorted(typical.fields - inputs.keys()):
        yield Trait(phrase("input {name} is missing"), (("name", name),))


def _by_language(case: ScoredCase, typical: _Typical) -> Iterator[Trait]:
    # The matchers take a tenth of a second to import, and only bad cases need them.
    from evalloom.matchers.language import is_in, main_script

    text = " ".join(_texts(_inputs(case)))[:_MAX_LANGUAGE_TEXT]
    script = "kana" if is_in(text, "ja") else main_script(text)
    if text.strip():
        yield Trait(_LANGUAGES[script] if script else phrase("input has no letters"))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


_TRAITS: tuple[Callable[[ScoredCase, _Typical], Iterator[Trait]], ...] = (
    _by_category,
    _by_output,
    _by_fields,
    _by_language,
)
