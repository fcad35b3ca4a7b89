"""Compares oral with official wordings of the same question: outcomes, gap and confidence (RAG-9)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from evalloom.analysis.statistics import mcnemar_exact, mean, paired_mean_interval

if TYPE_CHECKING:
    from evalloom.rag.analysis.measures import CaseRow

Who = Literal["both", "official only", "oral only", "neither", "oral more", "oral less", "alike"]
"""Which wording works; the last three when the cases or repeats of a side disagree."""

OFFICIAL, ORAL = "official", "oral"


class WordingPair(Struct, frozen=True):
    """The two wordings of a question, each with its share of passed cases; `gap` is oral minus official."""

    id: str
    concept_id: str
    who: Who
    official: float
    oral: float
    gap: float
    official_cases: list[str]
    oral_cases: list[str]


class Concept(Struct, frozen=True):
    """The pairs of one concept; a pair without a concept forms its own, under its id."""

    id: str
    pairs: int
    official: float
    oral: float
    gap: float

    @property
    def is_official_only(self) -> bool:
        """Whether the official wording works and the oral one never does."""
        return self.official > 0 and self.oral == 0


Conclusion = Literal["oral lower", "oral higher", "no difference shown"]


class Gap(Struct, frozen=True):
    """A measure on both sides of the pairs; those that are yes or no have the p-value of McNemar's exact test."""

    measure: str
    pairs: int
    official: float
    oral: float
    gap: float
    low: float
    high: float
    p_value: float | None = None

    @property
    def is_outside(self) -> bool:
        """Whether the interval does not contain zero."""
        return not self.low <= 0 <= self.high

    @property
    def is_shown(self) -> bool:
        """Whether the interval shows a difference, and the exact test agrees if there is one."""
        return self.is_outside and (self.p_value is None or self.p_value < 0.05)

    @property
    def conclusion(self) -> Conclusion:
        if not self.is_shown:
            return "no difference shown"
        return "oral lower" if self.gap < 0 else "oral higher"


class ExcludedCase(Struct, frozen=True):
    """A case, or a pair of cases, that cannot be compared, and why."""

    id: str
    bucket: str
    pair_id: str
    reason: str


class Pairs(Struct, frozen=True):
    """All pairs, worst gap first; `gaps` starts with the deciding measure, and is empty without pairs."""

    pairs: list[WordingPair]
    concepts: list[Concept]
    gaps: list[Gap]
    unpaired: list[ExcludedCase]
    not_comparable: list[ExcludedCase]

    def count(self, who: Who) -> int:
        return sum(pair.who == who for pair in self.pairs)


_Sides = dict[str, list["CaseRow"]]


def compare_wordings(rows: Iterable[CaseRow], names: Sequence[str]) -> Pairs:
    """Compare the wordings of each pair; the first measure decides whether a case passed."""
    by_pair: dict[str, _Sides] = {}
    unpaired = []
    for row in rows:
        if row.bucket not in (OFFICIAL, ORAL):
            continue
        if row.pair_id:
            by_pair.setdefault(row.pair_id, {OFFICIAL: [], ORAL: []})[row.bucket].append(row)
        else:
            unpaired.append(ExcludedCase(row.id, row.bucket, "", "it has no pair_id"))
    whole = {pair: wordings for pair, wordings in by_pair.items() if wordings[OFFICIAL] and wordings[ORAL]}
    for pair, wordings in by_pair.items():
        if pair not in whole:
            reason = f"no {ORAL if wordings[OFFICIAL] else OFFICIAL} case has its pair_id"
            alone = [*wordings[OFFICIAL], *wordings[ORAL]]
            unpaired += [ExcludedCase(row.id, row.bucket, pair, reason) for row in alone]
    measured = {pair: wordings for pair, wordings in whole.items() if not _unmeasured(wordings, names[0])}
    pairs = [_pair(pair, wordings, names[0]) for pair, wordings in measured.items()]
    gaps = [_gap(name, measured.values()) for name in names]
    return Pairs(
        sorted(pairs, key=lambda pair: (pair.gap, pair.id)),
        _concepts(pairs),
        [gap for gap in gaps if gap],
        unpaired,
        [_not_comparable(pair, wordings, names[0]) for pair, wordings in whole.items() if pair not in measured],
    )


def _unmeasured(wordings: _Sides, name: str) -> list[str]:
    """The sides on which no case has the measure."""
    return [side for side, rows in wordings.items() if not any(name in row.measures for row in rows)]


def _not_comparable(pair: str, wordings: _Sides, name: str) -> ExcludedCase:
    sides = _unmeasured(wordings, name)
    reasons = []
    for side in sides:
        distinct = dict.fromkeys(row.error or row.reason or row.status for row in wordings[side])
        reasons.append(f"{side}: {', '.join(distinct)}")
    ids = ", ".join(row.id for side in sides for row in wordings[side])
    return ExcludedCase(ids, " and ".join(sides), pair, "; ".join(reasons))


def _share(rows: Iterable[CaseRow], name: str) -> float | None:
    values = [row.measures[name] for row in rows if name in row.measures]
    return mean(values) if values else None


def _pair(pair: str, wordings: _Sides, name: str) -> WordingPair:
    official, oral = _share(wordings[OFFICIAL], name) or 0.0, _share(wordings[ORAL], name) or 0.0
    concepts = (row.concept_id for rows in wordings.values() for row in rows if row.concept_id)
    return WordingPair(
        pair,
        next(concepts, ""),
        _who(official, oral),
        official,
        oral,
        oral - official,
        [row.id for row in wordings[OFFICIAL]],
        [row.id for row in wordings[ORAL]],
    )


def _who(official: float, oral: float) -> Who:
    plain: dict[tuple[float, float], Who] = {
        (1, 1): "both",
        (1, 0): "official only",
        (0, 1): "oral only",
        (0, 0): "neither",
    }
    if (official, oral) in plain:
        return plain[official, oral]
    return "alike" if official == oral else "oral more" if oral > official else "oral less"


def _concepts(pairs: Iterable[WordingPair]) -> list[Concept]:
    """Concepts for which only the official wording works, then the others by gap."""
    grouped: dict[str, list[WordingPair]] = {}
    for pair in pairs:
        # A pair without a concept is its own group: such pairs have nothing in common.
        grouped.setdefault(pair.concept_id or pair.id, []).append(pair)
    concepts = []
    for name, own in grouped.items():
        official, oral = mean([pair.official for pair in own]), mean([pair.oral for pair in own])
        concepts.append(Concept(name, len(own), official, oral, oral - official))
    return sorted(concepts, key=lambda concept: (not concept.is_official_only, concept.gap, concept.id))


def _gap(name: str, pairs: Iterable[_Sides]) -> Gap | None:
    """The gap over pairs: a pair is one unit, whatever its cases and their repeats are."""
    shares = [(_share(wordings[OFFICIAL], name), _share(wordings[ORAL], name)) for wordings in pairs]
    both = [(official, oral) for official, oral in shares if official is not None and oral is not None]
    if not both:
        return None
    gaps = [oral - official for official, oral in both]
    low, high = paired_mean_interval(sum(gaps), sum(gap * gap for gap in gaps), len(gaps))
    p_value = mcnemar_exact(sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)) if is_rate(name) else None
    official, oral = mean([official for official, _ in both]), mean([oral for _, oral in both])
    return Gap(name, len(gaps), official, oral, oral - official, low, high, p_value)


def is_rate(name: str) -> bool:
    """Whether a measure is yes or no for each run."""
    return name.startswith("hit@") or name in ("passed", "must_include")
