"""Computes the measures of a RAG batch overall, by bucket and by tag, and one row per case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct, structs

from evalloom.analysis.repeats import Shares
from evalloom.analysis.statistics import mean, mean_interval
from evalloom.core.model import UNREAD, Batch, Origin, Record, Run, Scored, Status
from evalloom.core.phrases import contains_phrase
from evalloom.core.ranking import Passage, names_at, rank, sources_in_order
from evalloom.core.repeats import Count
from evalloom.matchers.normalise import normalise
from evalloom.rag.analysis.pairs import Pairs, compare_wordings, is_rate
from evalloom.rag.dialect import BUCKETS

Purpose = Literal["retrieve", "answer"]

APART = ("error", "part_error", "no_expected", "unscored", "skipped", "blocked")
"""Cases counted outside the measures; of a `part_error` case only some repeats failed, and the others count."""
_NOTHING_EXPECTED = {
    "retrieve": "no expected source, so there is nothing to measure",
    "answer": "nothing that must be in the answer, so there is nothing to measure",
}


class Measure(Struct, frozen=True):
    """The mean of a measure over the cases that have it, with its 95 % interval; None when no case has it."""

    name: str
    mean: float | None
    low: float | None
    high: float | None
    cases: int


class GroupMeasures(Struct, frozen=True):
    """The measures of a group of cases; `cases` counts those that passed or failed, and no others.

    `pass_rate` is the rate of gates and of `evalloom batches show`: an error counts as not passed there, while it is in
    no measure (RAG-7).
    """

    name: str
    measures: list[Measure]
    cases: int
    passed: int
    errors: int
    """Number of cases that ended in an error."""
    pass_rate: Measure
    failing: int
    """Number of cases that do not meet the pass rule; without one, those with a repeat that did not pass."""

    def measure(self, name: str) -> Measure:
        """The measure of this name; an empty one when there is none."""
        return next((measure for measure in self.measures if measure.name == name), Measure(name, None, None, None, 0))


class Expected(Struct, frozen=True):
    """An expected source and its rank among the retrieved sources; 0 when it was not retrieved."""

    source: str
    rank: int


class CaseRow(Struct, frozen=True, kw_only=True):
    """One case with all its repeats: measures are means, other fields come from the first repeat that failed."""

    id: str
    query: str
    bucket: str
    pair_id: str
    concept_id: str
    tags: list[str]
    status: Status
    expected: list[Expected]
    sources: list[str]
    measures: dict[str, float]
    counted: Count
    """How many of its repeats passed, and how many passed, failed or ended in an error."""
    reason: str
    answer: str
    missing: list[str]
    """Texts of `must_include` that the answer lacks."""
    origin: Origin
    error: str
    """The message of the first repeat that ended in an error."""
    number: int
    """The position of the case in its dataset."""
    repeats: int
    key: str = ""
    """The run that the other fields come from."""


class RagResults(Struct, frozen=True, kw_only=True):
    """All figures of one profile of a RAG batch."""

    batch: str
    created_at: str
    purpose: Purpose
    k: int
    profile: str
    config: Record
    pass_if: float | None
    """The share of its repeats that a case needs to pass; None without a pass rule."""
    deciding: str
    """The measure that decides whether a case passes: `hit@5` or `must_include`."""
    overall: GroupMeasures
    buckets: list[GroupMeasures]
    tags: list[GroupMeasures]
    pairs: Pairs
    cases: list[CaseRow]
    apart: dict[str, int]
    unjudged: dict[str, int]
    """Number of cases by measure that could not be judged: no answer of the judge, or an unreadable one."""
    documents: int | None
    """Number of searched documents; None when unknown."""


def analyse(batch: Batch, runs: Iterable[tuple[Run, Scored]]) -> RagResults:
    """Analyse a batch of a single profile."""
    return analyse_all(batch, runs)[0]


def analyse_all(batch: Batch, runs: Iterable[tuple[Run, Scored]]) -> list[RagResults]:
    """Analyse each profile in the order of the batch; an empty batch gives one result without cases."""
    by_profile: dict[str, _CaseRows] = {}
    for run, scored in runs:
        if run.profile not in by_profile:
            by_profile[run.profile] = _CaseRows(batch.config)
        by_profile[run.profile].add(run, scored)
    requested = [profile.name for profile in batch.profiles]
    names = [name for name in dict.fromkeys([*requested, *by_profile]) if name in by_profile] or [*requested, ""][:1]
    return [_results(batch, name, by_profile.get(name) or _CaseRows(batch.config)) for name in names]


def _results(batch: Batch, profile: str, collected: _CaseRows) -> RagResults:
    rows = collected.rows()
    deciding = collected.names[0]
    names = [
        name for name in collected.names if name in collected.requested or any(name in row.measures for row in rows)
    ]
    buckets = dict.fromkeys([*BUCKETS, *(row.bucket for row in rows)])
    by_bucket = {name: [row for row in rows if row.bucket == name] for name in buckets}
    by_tag: dict[str, list[CaseRow]] = {}
    for row in rows:
        for tag in row.tags:
            by_tag.setdefault(tag, []).append(row)
    # A batch over very many documents records one digest under no name instead of each document.
    pass_if = batch.options.get("pass_if")
    has_names = bool(batch.documents) and "" not in batch.documents
    return RagResults(
        batch=batch.id,
        created_at=batch.created_at,
        purpose=collected.purpose,
        k=collected.k,
        profile=profile,
        config=batch.config,
        pass_if=pass_if,
        deciding=deciding,
        overall=_group("overall", rows, names, pass_if),
        buckets=[_group(name, own, names, pass_if) for name, own in by_bucket.items() if own],
        tags=[_group(tag, own, names, pass_if) for tag, own in sorted(by_tag.items())],
        pairs=compare_wordings(rows, names),
        cases=rows,
        apart=_apart(rows, collected.purpose),
        unjudged=collected.unjudged(),
        documents=sum(digest != UNREAD for digest in batch.documents.values()) if has_names else None,
    )


def _group(name: str, rows: Sequence[CaseRow], names: Sequence[str], pass_if: float | None) -> GroupMeasures:
    statuses = [row.status for row in rows]
    passed = statuses.count("passed")
    # A case that is not measured as a whole is in none of its measures either.
    measured = [row.measures for row in rows if row.status in _MEASURED]
    shares = Shares(pass_if)
    for row in rows:
        shares.move((0, 0), row.counted)
    low, high = shares.bounds
    return GroupMeasures(
        name,
        [_measure(measure, [values[measure] for values in measured if measure in values]) for measure in names],
        passed + statuses.count("failed"),
        passed,
        statuses.count("error"),
        Measure("pass_rate", shares.pass_rate, low, high, shares.cases),
        shares.failing,
    )


def _measure(name: str, values: Sequence[float]) -> Measure:
    """The mean over cases and its interval; each value is the mean of a case over its repeats."""
    if not values:
        return Measure(name, None, None, None, 0)
    low, high = mean_interval(sum(values), sum(value * value for value in values), len(values))
    return Measure(name, mean(values), low, high, len(values))


def _apart(rows: Iterable[CaseRow], purpose: Purpose) -> dict[str, int]:
    counts = dict.fromkeys(APART, 0)
    for row in rows:
        if row.status == "unscored":
            counts["no_expected" if row.reason == _NOTHING_EXPECTED[purpose] else "unscored"] += 1
        elif row.status in counts:
            counts[row.status] += 1
        elif row.error:
            counts["part_error"] += 1
    return counts


# -- cases ---------------------------------------------------------------------------------------------


class _CaseRows:
    """Collects runs in any order, and returns one row per case."""

    def __init__(self, config: Record) -> None:
        self.purpose: Purpose = "answer" if config.get("purpose") == "answer" else "retrieve"
        self.k = int(config.get("k", 5))
        self.is_normalised = bool(config.get("normalise"))
        self.names = names_at(self.k) if self.purpose == "retrieve" else _answer_names(config, self.k)
        # A requested measure is shown even when no case has it.
        self.requested = {self.names[0], *(["faithfulness"] if config.get("faithfulness") else [])}
        self._repeats: dict[tuple[int, str], _Repeats] = {}

    def add(self, run: Run, scored: Scored) -> None:
        place = (run.number, run.case_id)
        repeats = self._repeats.get(place)
        if repeats is None:
            repeats = self._repeats[place] = _Repeats()
        if repeats.add(run, scored, self.names):
            repeats.row = self._row(run, scored)

    def unjudged(self) -> dict[str, int]:
        """Number of cases by requested measure that no repeat could judge."""
        counts = Counter(name for repeats in self._repeats.values() for name in repeats.unjudged - repeats.sums.keys())
        return {name: counts[name] for name in self.names if counts[name]}

    def rows(self) -> list[CaseRow]:
        return [self._repeats[place].row_with_means() for place in sorted(self._repeats)]

    def _row(self, run: Run, scored: Scored) -> CaseRow:
        raw = run.raw
        records = [
            item for item in run.output.sources if isinstance(item, dict) and isinstance(item.get("source"), str)
        ]
        sources = sources_in_order([Passage(item["source"], score=item.get("score")) for item in records])
        expected = _texts(raw.get("expected_sources"))
        ranking = rank(expected, sources) if expected else None
        bucket = _text(raw.get("bucket")) or next((tag for tag in run.tags if tag in BUCKETS), BUCKETS[0])
        answer = _text(run.output.value) if self.purpose == "answer" else ""
        return CaseRow(
            id=run.case_id,
            query=_text(raw.get("query")),
            bucket=bucket,
            pair_id=_text(raw.get("pair_id")).strip(),
            concept_id=_text(raw.get("concept_id")).strip(),
            tags=[tag for tag in dict.fromkeys(run.tags) if tag not in BUCKETS and tag != bucket],
            status=scored.status,
            expected=[Expected(source, place) for source, place in ranking.ranks] if ranking else [],
            sources=sources,
            measures={},
            counted=(0, 0),
            reason=self._reason(run, scored),
            answer=answer,
            missing=self._missing(run, scored, answer),
            origin=run.origin,
            error=run.error,
            number=run.number,
            repeats=0,
            key=run.key,
        )

    def _reason(self, run: Run, scored: Scored) -> str:
        """Why the case has its status; empty when it passed."""
        if scored.status == "passed":
            return ""
        wanted = _texts(run.raw.get("must_include" if self.purpose == "answer" else "expected_sources"))
        if scored.status == "unscored" and not wanted:
            return _NOTHING_EXPECTED[self.purpose]
        reasons = [
            verdict.reason
            for verdict in scored.verdicts
            if verdict.status == scored.status and verdict.weight and verdict.reason
        ]
        return run.error or run.skipped or run.blocked or "; ".join(reasons)

    def _missing(self, run: Run, scored: Scored, answer: str) -> list[str]:
        if not any(verdict.name == "must_include" and verdict.status == "failed" for verdict in scored.verdicts):
            return []
        wanted = _texts(run.raw.get("must_include"))
        if self.is_normalised:
            plain = normalise(answer)
            return [text for text in wanted if not contains_phrase(plain, normalise(text))]
        return [text for text in wanted if not contains_phrase(answer, text)]


def _answer_names(config: Record, k: int) -> tuple[str, ...]:
    """The measures of answers; when more than `must_include` decides, `passed` is a measure of its own."""
    names = ("must_include", "citations", "faithfulness", f"hit@{k}")
    return ("passed", *names) if config.get("require") or config.get("checks") else names


_MEASURED: tuple[Status, ...] = ("passed", "failed")
_WORST_FIRST: tuple[Status, ...] = ("failed", "passed", "unscored", "blocked", "skipped", "error")
"""Which repeat represents a case: the first that failed, else one that was measured, else any."""


class _Repeats:
    """The runs of one case so far."""

    __slots__ = ("counted", "error", "first", "number", "passed", "row", "shown", "sums", "unjudged")

    def __init__(self) -> None:
        self.row: CaseRow | None = None
        self.shown = (len(_WORST_FIRST), 0)
        self.number = self.counted = self.passed = 0
        self.error, self.first = "", 0
        self.sums: dict[str, tuple[float, int]] = {}
        self.unjudged: set[str] = set()

    def add(self, run: Run, scored: Scored, names: Sequence[str]) -> bool:
        """Count a run; return whether it now represents the case."""
        self.number += 1
        self.counted += scored.status in (*_MEASURED, "error")
        self.passed += scored.status == "passed"
        if run.error and (not self.error or run.repeat < self.first):
            self.error, self.first = run.error, run.repeat
        for name, value in _values(scored, names):
            total, number = self.sums.get(name, (0.0, 0))
            self.sums[name] = (total + value, number + 1)
        # Only a judge can leave a case unjudged; citations are unscored when there is no source to cite.
        self.unjudged.update(
            verdict.name for verdict in scored.verdicts if verdict.kind == "judge" and verdict.status == "unscored"
        )
        place = (_WORST_FIRST.index(scored.status), run.repeat)
        if self.row is not None and place >= self.shown:
            return False
        self.shown = place
        return True

    def row_with_means(self) -> CaseRow:
        """The row of the shown repeat, with the means of its measures over all repeats."""
        assert self.row is not None
        measures = {name: total / number for name, (total, number) in self.sums.items()}
        counted = (self.passed, self.counted)
        return structs.replace(self.row, measures=measures, counted=counted, repeats=self.number, error=self.error)


def _values(scored: Scored, names: Sequence[str]) -> Iterable[tuple[str, float]]:
    """The measures of one run: yes or no as 1 or 0, others by score."""
    if "passed" in names and scored.status in _MEASURED:
        yield "passed", float(scored.status == "passed")
    for verdict in scored.verdicts:
        if verdict.name in names and verdict.status in ("passed", "failed"):
            is_plain = verdict.score is None or is_rate(verdict.name)
            yield verdict.name, float(verdict.status == "passed") if is_plain else float(verdict.score or 0)


def _texts(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str) and text.strip()] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
