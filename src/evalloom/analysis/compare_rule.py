"""Concludes from the figures of comparisons: better, worse or no difference shown, and whether it is a regression."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from evalloom.analysis.compare import Comparison, ComparisonRules
from evalloom.analysis.compare_figures import Grade, RateComparison, corrected, drop_grade, worst

MOST_CHANCE = 0.025
"""Lost critical cases decide unless more than this many are expected by chance. The tests call an unchanged system
worse as rarely, since the other half of their 5 % is `better`: together they keep the 5 % of WORK-7."""


def conclude(comparisons: Sequence[Comparison], rules: ComparisonRules) -> list[Comparison]:
    """Conclude from comparisons that are looked at together: the more there are, the more evidence each needs."""
    figures = [one for item in comparisons for one in (item.figures, *item.buckets, *item.tags)]
    graded = iter([_graded(one, rules) for one in corrected(figures)])
    has_repeats_enough = sum(item.critical_chance for item in comparisons) <= MOST_CHANCE
    concluded = []
    for item in comparisons:
        overall = next(graded)
        buckets, tags = [next(graded) for _ in item.buckets], [next(graded) for _ in item.tags]
        drop = worst([overall.regression, *(group.regression for group in buckets + tags)])
        case = worst([change.severity for change in item.changes])
        is_critical = (item.critical_shown > 0 and has_repeats_enough) or (rules.is_strict and case == "critical")
        concluded.append(
            structs.replace(
                item,
                figures=overall,
                buckets=buckets,
                tags=tags,
                severity=worst([drop, case]),
                is_regression=bool(drop) or is_critical,
                is_critical_shown=item.critical_shown > 0 and has_repeats_enough,
            )
        )
    return concluded


def _graded(figures: RateComparison, rules: ComparisonRules) -> RateComparison:
    """Grade the drop of a rate, if it is a regression by the rules."""
    if figures.difference is None:
        return figures
    allowed = rules.allowed_drops.get(figures.name, rules.allowed_drop) if figures.name else rules.allowed_drop
    grade: Grade = ""
    if allowed is not None or rules.is_strict:
        grade = drop_grade(figures.difference, allowed or 0.0)
    elif figures.judgement == "worse":
        grade = drop_grade(figures.difference)
    return structs.replace(figures, regression=grade)
