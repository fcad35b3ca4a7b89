"""Counts how often each case passed over its repeats. Every pass rate and its interval come from here (WORK-4)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from math import fsum

from evalloom.analysis.statistics import mean_interval, pass_at_k, pass_hat_k
from evalloom.core.repeats import Count, meets

_MOST_K = 10
"""Beyond this k, pass@k and pass^k are given for the number of repeats only."""
_BLOCK_BITS = 12
_EMPTY_BLOCK = bytes(8 << _BLOCK_BITS)


class CaseCounts:
    """The counts of each case, by its number. Memory is eight bytes a case, however many repeats it has."""

    def __init__(self) -> None:
        # In blocks, so that the numbers need not be dense.
        self._blocks: dict[int, array[int]] = {}

    def get(self, number: int) -> Count:
        block = self._blocks.get(number >> _BLOCK_BITS)
        return divmod(block[number & (1 << _BLOCK_BITS) - 1], 1 << 32) if block else (0, 0)

    def set(self, number: int, count: Count) -> None:
        block = self._blocks.get(number >> _BLOCK_BITS)
        if block is None:
            block = self._blocks[number >> _BLOCK_BITS] = array("Q", _EMPTY_BLOCK)
        block[number & (1 << _BLOCK_BITS) - 1] = count[0] << 32 | count[1]


class Shares:
    """How many cases have each count. The figures do not depend on the order in which runs finish.

    With `pass_if`, a case passes when that share of its runs does; without, a case counts by its share.
    """

    __slots__ = ("counts", "pass_if")

    def __init__(self, pass_if: float | None = None) -> None:
        self.counts: dict[Count, int] = {}
        self.pass_if = pass_if

    def move(self, old: Count, new: Count) -> None:
        """Count a case whose runs were `old` as `new`."""
        # It is in another group when its tags were edited between two repeats.
        if (number := self.counts.pop(old, 0)) > 1:
            self.counts[old] = number - 1
        if new[1]:
            self.counts[new] = self.counts.get(new, 0) + 1

    def merge(self, shares: Shares) -> None:
        """Add the cases of others."""
        for count, number in shares.counts.items():
            self.counts[count] = self.counts.get(count, 0) + number

    @property
    def cases(self) -> int:
        """The denominator of the pass rate."""
        return sum(self.counts.values())

    @property
    def pass_rate(self) -> float | None:
        cases = self.cases
        return fsum(share * number for share, number in self._shares()) / cases if cases else None

    @property
    def bounds(self) -> tuple[float, float] | tuple[None, None]:
        """The 95 % interval of the pass rate, over cases."""
        cases = self.cases
        if not cases:
            return None, None
        total = fsum(share * number for share, number in self._shares())
        squares = fsum(share * share * number for share, number in self._shares())
        runs = sum(counted * number for (_, counted), number in self.counts.items())
        return mean_interval(total, squares, cases, runs)

    @property
    def failing(self) -> int:
        """How many cases do not meet the pass rule; without one, how many have a run that did not pass."""
        needed = 1.0 if self.pass_if is None else self.pass_if
        return sum(number for count, number in self.counts.items() if not meets(count, needed))

    @property
    def flaky(self) -> int:
        """How many cases passed in some of their repeats and not in others."""
        return sum(number for (passed, counted), number in self.counts.items() if 0 < passed < counted)

    @property
    def repeats(self) -> int:
        """How many counted runs every case has at least."""
        return min((counted for _, counted in self.counts), default=0)

    def pass_at(self) -> dict[int, float]:
        """pass@k: the chance that at least one of k runs of a case passes, averaged over the cases."""
        return self._over_cases(pass_at_k)

    def pass_hat(self) -> dict[int, float]:
        """pass^k: the chance that all of k runs of a case pass, averaged over the cases."""
        return self._over_cases(pass_hat_k)

    def _over_cases(self, chance: Callable[[int, int, int], float]) -> dict[int, float]:
        """Return the mean chance by k, up to the repeats that every case has; empty without repeats."""
        repeats, cases = self.repeats, self.cases
        if repeats < 2:
            return {}
        return {
            k: fsum(chance(counted, passed, k) * number for (passed, counted), number in self.counts.items()) / cases
            for k in sorted({*range(1, min(repeats, _MOST_K) + 1), repeats})
        }

    def _shares(self) -> Iterator[tuple[float, int]]:
        """Yield the share of each count, and its number of cases."""
        for count, number in self.counts.items():
            share = count[0] / count[1] if self.pass_if is None else float(meets(count, self.pass_if))
            yield share, number
