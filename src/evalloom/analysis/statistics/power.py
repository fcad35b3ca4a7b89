"""The cases that a paired comparison needs, and what it can show: two-sided at 5 %, by the normal approximation."""

from __future__ import annotations

from math import ceil, sqrt

from evalloom.analysis.statistics.arguments import check_share
from evalloom.analysis.statistics.distributions import Z_80, Z_95, normal_quantile
from evalloom.analysis.statistics.paired import paired_moments


def required_cases(p: float, effect: float, power: float = 0.8, discordant: float | None = None) -> int:
    """How many cases a paired comparison needs to show that a pass rate `p` changes by `effect`; a drop is negative.

    `power` is the share of comparisons that show it, by a two-sided test at 5 %. `discordant` is the share of cases
    that pass on one side only, for example in a pilot run. Without it the two results of a case count as independent,
    which needs the most cases; then the number is also that of each group in a comparison of two groups of different
    cases. Below about 30 the exact test needs a few more: at least six cases must turn.
    """
    # Rounded, so that the digits which 0.7 and 0.3 lack do not carry their sum past 1.
    after = round(check_share("p", p) + effect, 12)
    if not effect or not 0 <= after <= 1:
        raise ValueError(
            f"effect: expected a change, not 0, that keeps the rate from 0 to 1, got {effect!r} from {p!r}"
        )
    check_share("power", power, is_open=True)
    if discordant is None:
        variance = p * (1 - p) + after * (1 - after)
    else:
        if check_share("discordant", discordant) < abs(effect):
            raise ValueError(f"discordant: expected at least the change of {abs(effect)!r}, got {discordant!r}")
        variance = discordant - effect**2
    return max(1, _cases(effect, variance, power))


def cases_to_detect(effect: float, total: float, squares: float, cases: int) -> int:
    """How many cases show a paired difference of `effect` in 80 of 100 comparisons, at the variance of these cases.

    The cases that the effect turns add to the variance, even where nothing varies yet.
    """
    _, variance = paired_moments(total, squares, cases)
    return _cases(effect, variance + effect - effect**2, 0.8)


def _cases(effect: float, variance: float, power: float) -> int:
    """Cases at which a mean of differences with this variance is `effect` away from 0, for the level and the power."""
    return ceil((Z_95 + normal_quantile(power)) ** 2 * variance / effect**2)


def detectable_drop(variance: float, cases: int) -> float:
    """The drop that 80 of 100 paired comparisons of these cases show, if it comes from cases that pass no more.

    `variance` is that of the difference of a case by chance alone. A case that passes no more adds to it: however often
    cases are repeated, some of them must break before it shows.
    """
    size = cases + 2
    spread = (Z_95 + Z_80) ** 2 / size
    # With one gain and one loss added, as in `paired_moments`, the mean of the differences solves
    # centre² = spread · (noise + centre − centre²).
    noise = (cases * variance + 2) / size
    centre = (spread + sqrt(spread**2 + 4 * (1 + spread) * spread * noise)) / (2 * (1 + spread))
    return min(1.0, centre * size / cases)
