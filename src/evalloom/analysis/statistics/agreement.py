"""Agreement of raters beyond chance: 1 is perfect, 0 is what chance gives, None where chance explains all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import accumulate, combinations
from math import fsum, isfinite
from typing import Any, Literal

from evalloom.analysis.statistics.arguments import check_count, check_table

Weights = Literal["linear", "quadratic"]
Level = Literal["nominal", "ordinal", "interval", "ratio"]

_WEIGHTS: dict[Weights | None, Callable[[int, int], int]] = {
    None: lambda i, j: int(i != j),
    "linear": lambda i, j: abs(i - j),
    "quadratic": lambda i, j: (i - j) ** 2,
}
_Distance = Callable[[Any, Any], float]


def cohen_kappa(table: Sequence[Sequence[float]], weights: Weights | None = None) -> float | None:
    """Cohen's kappa of two raters, from a square table: `table[i][j]` cases are i for the first and j for the second.

    Without `weights` all disagreements count the same; "linear" and "quadratic" count how far apart ordered categories
    are. None if there are no cases, or if both raters use one and the same category only: any two raters who do so
    agree by chance alone, and a number would claim more.
    """
    check_table(table)
    if len(table) != len(table[0]):
        raise ValueError(f"table: expected as many rows as columns, got {len(table)} and {len(table[0])}")
    if weights not in _WEIGHTS:
        raise ValueError(f"weights: expected None, 'linear' or 'quadratic', got {weights!r}")
    weight, places = _WEIGHTS[weights], range(len(table))
    rows, columns = [sum(row) for row in table], [sum(column) for column in zip(*table, strict=True)]
    # Integers up to the last division: perfect agreement is exactly 1, in either order of the raters.
    observed = sum(table[i][j] * weight(i, j) for i in places for j in places)
    by_chance = sum(rows[i] * columns[j] * weight(i, j) for i in places for j in places)
    return (by_chance - sum(rows) * observed) / by_chance if by_chance else None


def fleiss_kappa(table: Sequence[Sequence[int]]) -> float | None:
    """Fleiss' kappa of several raters: `table[i][j]` raters put subject i into category j.

    Every subject must have the same number of ratings, at least two. None if all ratings are in one category.
    """
    check_table(table)
    counts = [[check_count("table", count) for count in row] for row in table]
    ratings = {sum(row) for row in counts}
    if len(ratings) > 1:
        raise ValueError(f"table: expected the same number of ratings for each subject, got {sorted(ratings)}")
    raters = ratings.pop()
    if raters < 2:
        raise ValueError(f"table: expected at least two ratings for each subject, got {raters}")
    total = raters * len(counts)
    observed = raters * total - sum(count**2 for row in counts for count in row)
    by_chance = total**2 - sum(sum(column) ** 2 for column in zip(*counts, strict=True))
    return 1 - observed * total / ((raters - 1) * by_chance) if by_chance else None


def krippendorff_alpha(units: Sequence[Sequence[Any]], level: Level = "nominal") -> float | None:
    """Krippendorff's alpha of any number of raters: `units[i][j]` is what rater j says about unit i, None if nothing.

    `level` says what a disagreement is: values that differ ("nominal", any values), that are ranks apart ("ordinal"),
    or numbers whose difference ("interval") or relative difference ("ratio", from 0 on) counts. Units with fewer than
    two values are left out. None if no unit has two values, or if all values are the same.
    """
    rated = [Counter(value for value in unit if value is not None) for unit in units]
    rated = [values for values in rated if values.total() > 1]
    totals: Counter[Hashable] = sum(rated, Counter())
    _check_values(totals, level)
    if len(totals) < 2:
        return None
    distance = _distance(totals, level)
    observed = fsum(_disagreement(values, distance) / (values.total() - 1) for values in rated)
    return 1 - (totals.total() - 1) * observed / _disagreement(totals, distance)


def _disagreement(values: Mapping[Any, int], distance: _Distance) -> float:
    """The distances of all pairs of values; pairs of equal values have none."""
    return fsum(n * m * distance(a, b) for (a, n), (b, m) in combinations(values.items(), 2))


def _distance(totals: Mapping[Any, int], level: Level) -> _Distance:
    """The squared distance of two values."""
    if level == "nominal":
        return lambda a, b: 1.0
    if level == "ratio":
        return lambda a, b: ((a - b) / (a + b)) ** 2
    if level == "interval":
        return lambda a, b: (a - b) ** 2
    # How many values lie between two, half of each of the two included: the difference of their middle ranks.
    ordered = sorted(totals)
    ends = accumulate(totals[value] for value in ordered)
    ranks = {value: end - totals[value] / 2 for value, end in zip(ordered, ends, strict=True)}
    return lambda a, b: (ranks[a] - ranks[b]) ** 2


def _check_values(values: Mapping[Any, int], level: Level) -> None:
    from numbers import Real

    if level not in ("nominal", "ordinal", "interval", "ratio"):
        raise ValueError(f"level: expected 'nominal', 'ordinal', 'interval' or 'ratio', got {level!r}")
    for value in values:
        if not isinstance(value, Real):
            if level == "nominal":
                continue
            raise ValueError(f"units: expected numbers for the level {level!r}, got {value!r}")
        if not isfinite(value):
            raise ValueError(f"units: expected finite numbers, or None for a missing value, got {value!r}")
        if level == "ratio" and value < 0:
            raise ValueError(f"units: expected numbers from 0 on for the level 'ratio', got {value!r}")
