"""Checks the arguments of the statistics: what they cannot mean is a ValueError that says so."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite


def check_count(name: str, value: float) -> int:
    """Return a count as an integer; 5.0 is one, 2.5 and -1 are not."""
    if not isfinite(value) or value < 0 or value != int(value):
        raise ValueError(f"{name}: expected a whole number from 0 on, got {value!r}")
    return int(value)


def check_share(name: str, value: float, *, is_open: bool = False) -> float:
    """Return a number from 0 to 1; with `is_open`, neither of the two."""
    if not (0 < value < 1 if is_open else 0 <= value <= 1):
        raise ValueError(f"{name}: expected a number {'between 0 and' if is_open else 'from 0 to'} 1, got {value!r}")
    return value


def check_successes(k: float, n: float) -> tuple[int, int]:
    """Return `k` of `n` as integers."""
    k, n = check_count("k", k), check_count("n", n)
    if k > n:
        raise ValueError(f"k: expected at most n, which is {n}, got {k}")
    return k, n


def check_finite(name: str, values: Sequence[float], least: int = 1) -> list[float]:
    """Return numbers as a list, of which there must be at least `least`."""
    checked = [float(value) for value in values]
    if len(checked) < least:
        raise ValueError(f"{name}: expected at least {least} value{'s' * (least > 1)}, got {len(checked)}")
    for value in checked:
        if not isfinite(value):
            raise ValueError(f"{name}: expected finite numbers, got {value!r}")
    return checked


def check_table(table: Sequence[Sequence[float]]) -> None:
    """Check that a table has rows of equal length, with finite numbers from 0 on."""
    if not len(table) or not len(table[0]):
        raise ValueError("table: expected at least one row and one column, got none")
    for number, row in enumerate(table, 1):
        if len(row) != len(table[0]):
            raise ValueError(f"table: expected {len(table[0])} columns in row {number}, as in row 1, got {len(row)}")
        for value in row:
            if not isfinite(value) or value < 0:
                raise ValueError(f"table: expected finite numbers from 0 on, got {value!r} in row {number}")
