"""A confidence sequence: intervals for a mean that all hold at once, so that a run may stop by looking at them."""

from __future__ import annotations

from math import log

_CELLS = 1000
_LARGEST_BET = 0.5
"""The part of its capital that a bet may lose at most."""


class ConfidenceSequence:
    """An interval for the mean of values from `low` to `high` that holds after every value, with one confidence.

    Each candidate for the mean is bet against; no strategy gains from bets on the true mean, so a candidate is excluded
    when its bets have multiplied the capital by 1 / (1 - confidence) (Waudby-Smith and Ramdas 2024, the betting
    strategy aGRAPA). It knows the mean to a thousandth of the range.
    """

    def __init__(self, low: float = 0.0, high: float = 1.0, confidence: float = 0.95) -> None:
        import numpy  # deferred: few runs have a sequence

        self._numpy = numpy
        self._low, self._range = low, high - low
        self._means = numpy.arange(1, _CELLS) / _CELLS
        self._capital = numpy.zeros(_CELLS - 1)
        self._open = numpy.ones(_CELLS - 1, dtype=bool)
        self._limit = -log(1 - confidence)
        # One value in the middle and a variance of 1/4 before the first value.
        self.count = 0
        self._sum, self._squares = 0.5, 0.25

    def add(self, value: float) -> None:
        """Take the next value."""
        numpy, means = self._numpy, self._means
        scaled = (value - self._low) / self._range
        known = self.count + 1
        distance = self._sum / known - means
        bets = distance / (self._squares / known + distance * distance)
        bets = numpy.clip(bets, -_LARGEST_BET / (1 - means), _LARGEST_BET / means)
        self._capital += numpy.log1p(bets * (scaled - means))
        # A candidate that was excluded once stays excluded.
        self._open &= self._capital < self._limit
        self.count += 1
        self._sum += scaled
        self._squares += (scaled - self._sum / (self.count + 1)) ** 2

    @property
    def mean(self) -> float | None:
        """The mean so far."""
        return self._low + self._range * (self._sum - 0.5) / self.count if self.count else None

    @property
    def interval(self) -> tuple[float, float]:
        """The lowest and the highest mean that is not excluded, and the mean so far, which may be since then."""
        still = self._numpy.flatnonzero(self._open)
        if not still.size:
            # The mean is between two candidates, or it is one of the few sequences that miss it.
            still = self._numpy.array([self._numpy.argmin(self._capital)])
        low = self._low + self._range * float(still[0]) / _CELLS
        high = self._low + self._range * (float(still[-1]) + 2) / _CELLS
        mean = self.mean
        return (low, high) if mean is None else (min(low, mean), max(high, mean))
