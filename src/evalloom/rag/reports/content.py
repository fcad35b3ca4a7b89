"""Texts that the reports of a RAG batch share: figures, the wording gap, and cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evalloom.core.model import Status
from evalloom.core.text import pluralize
from evalloom.reports.run_report import cell

if TYPE_CHECKING:
    # Stages do not import one another; a report only shows figures.
    from evalloom.rag.analysis.measures import CaseRow, GroupMeasures, Measure, RagResults
    from evalloom.rag.analysis.pairs import Gap

STATUS_LABELS: dict[Status, str] = {
    "passed": "PASS",
    "failed": "FAIL",
    "error": "ERROR",
    "unscored": "WARN",
    "blocked": "WARN",
    "skipped": "INFO",
}
MAX_ROWS = 500
"""Maximum number of cases or pairs in a list; the JSON report lists all."""
_SHARES = ("hit@", "recall@", "precision@", "pass_rate", "passed", "must_include", "citations", "faithfulness")
"""Prefixes of the measures that are shares, shown in percent."""
_SIGNIFICANT = 0.05
_NOT_MEASURED_PHRASES = {
    "error": ("ended in an error", "ended in an error"),
    "no_expected": ("expects nothing", "expect nothing"),
    "unscored": ("could not be scored", "could not be scored"),
    "skipped": ("was skipped", "were skipped"),
    "blocked": ("was blocked", "were blocked"),
}
"""Singular and plural, by reason."""


# -- figures -------------------------------------------------------------------------------------------


def percent(share: float) -> str:
    """Format a share as `66.7 %`; a share that only rounds to 0 or 100 % gives `< 0.1 %` or `> 99.9 %`."""
    shown = f"{100 * share:.1f} %"
    if share > 0 and shown == "0.0 %":
        return "< 0.1 %"
    return "> 99.9 %" if share < 1 and shown == "100.0 %" else shown


def figure(name: str, value: float | None) -> str:
    """A formatted measure: shares in percent, others with three decimals."""
    if value is None:
        return "–"
    return percent(value) if name.startswith(_SHARES) else f"{value:.3f}"


def bounds(measure: Measure) -> str:
    """The interval: `43.7–97.0 %` or `0.412–0.903`; empty when there is none."""
    if measure.low is None or measure.high is None:
        return ""
    if measure.name.startswith(_SHARES):
        return f"{100 * measure.low:.1f}–{100 * measure.high:.1f} %"
    return f"{measure.low:.3f}–{measure.high:.3f}"


def with_bounds(measure: Measure) -> str:
    """`83.3 % (43.7–97.0 %)`."""
    interval = bounds(measure)
    return f"{figure(measure.name, measure.mean)} ({interval})" if interval else "–"


def points(gap: float) -> str:
    """A difference of shares in percentage points, with a typographic minus sign; zero is `0.0`."""
    return _with_sign(100 * gap, 1)


def signed(name: str, gap: float) -> str:
    """A difference of a measure, in points or with three decimals."""
    return f"{points(gap)} points" if name.startswith(_SHARES) else _with_sign(gap, 3)


def _with_sign(number: float, digits: int) -> str:
    rounded = round(number, digits)
    return f"{rounded:+.{digits}f}".replace("-", "−") if rounded else f"{0:.{digits}f}"


def gap_bounds(gap: Gap) -> str:
    """`−70.1 to +15.2 points`."""
    low = signed(gap.measure, gap.low).removesuffix(" points")
    return f"{low} to {signed(gap.measure, gap.high)}"


def p_value(value: float) -> str:
    """`p = 0.031`, or `p < 0.001`."""
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


# -- sentences -----------------------------------------------------------------------------------------


def title(results: RagResults) -> str:
    return "RAG answers" if results.purpose == "answer" else "RAG retrieval"


def headline(results: RagResults) -> str:
    """The main result in one sentence."""
    deciding = results.overall.measure(results.deciding)
    if deciding.mean is None:
        return "No case could be measured."
    share = f"{percent(deciding.mean)} of {pluralize(deciding.cases, 'case')}"
    if results.purpose == "answer":
        required = [str(name) for name in results.config.get("require") or ()]
        required_text = f", with good {' and '.join(required)}," if required else ""
        sentence = f"The answer contains everything it must{required_text} in {share}"
    else:
        sentence = f"An expected source is among the first {pluralize(results.k, 'passage')} in {share}"
    return f"{sentence} (95 % CI {bounds(deciding)})."


def not_measured(results: RagResults) -> str:
    """The cases that no rate counts, in one sentence; empty when all cases were measured."""
    counts = [
        f"{pluralize(number, 'case')} {phrases[number != 1]}"
        for name, phrases in _NOT_MEASURED_PHRASES.items()
        if (number := results.apart.get(name, 0))
    ]
    excluded = f"Not measured: {', '.join(counts)}." if counts else ""
    partial = results.apart.get("part_error", 0)
    partial_text = (
        f"{pluralize(partial, 'case')} with an error in some repeats: measured on the others." if partial else ""
    )
    unjudged = [
        f"{name}: {pluralize(number, 'case')} could not be judged." for name, number in results.unjudged.items()
    ]
    return " ".join(
        filter(None, (excluded, partial_text, *unjudged, *smaller_denominators(results), pass_rate(results)))
    )


def smaller_denominators(results: RagResults) -> list[str]:
    """The measures that fewer cases have than the group counts, in a sentence each."""
    overall = results.overall
    total = pluralize(overall.cases, "case")
    return [
        f"{measure.name} is over {measure.cases:,} of {total}: the others cannot be scored on it."
        for measure in overall.measures
        if 0 < measure.cases < overall.cases
    ]


def pass_rate(results: RagResults) -> str:
    """The pass rate in one sentence, where it may be another number than the measure that decides; otherwise empty."""
    rate = results.overall.pass_rate
    if not has_own_pass_rate(results) or rate.mean is None:
        return ""
    rule = "" if results.pass_if is None else f" and a case as passed if {percent(results.pass_if)} of its repeats pass"
    share = f"{percent(rate.mean)} of {pluralize(rate.cases, 'case')} (95 % CI {bounds(rate)})"
    return f"pass_rate, which counts an error as not passed{rule}, is {share}; no measure counts errors."


def pass_rate_heads(results: RagResults) -> tuple[str, ...]:
    """The further columns of a table of measures: errors and the pass rate, where it may be another number."""
    return ("errors", "pass_rate") if has_own_pass_rate(results) else ()


def has_own_pass_rate(results: RagResults) -> bool:
    """Whether the pass rate may be another number than the measure that decides: after errors, and by a pass rule."""
    return results.pass_if is not None or any(row.error for row in results.cases)


def wording_gap(results: RagResults) -> str:
    """Oral against official in one sentence; empty when there are no pairs."""
    if not results.pairs.gaps:
        return ""
    gap = results.pairs.gaps[0]
    word = "answered" if results.purpose == "answer" else "found"
    size = f"{abs(100 * gap.gap):.1f} points"
    if round(abs(100 * gap.gap), 1) == 0:
        sentence = f"Oral wordings are {word} as often as official ones"
    else:
        sentence = f"Oral wordings are {word} {size} {'less' if gap.gap < 0 else 'more'} often than official ones"
    sentence += f": {percent(gap.oral)} against {percent(gap.official)}"
    test = f"; exact McNemar {p_value(gap.p_value)}" if gap.p_value is not None else ""
    figures = f"95 % CI {gap_bounds(gap)}{test}; {pluralize(gap.pairs, 'pair')}"
    return " ".join(filter(None, (f"{sentence} ({figures}).", _doubt(gap), _shown_by_others(results.pairs.gaps[1:]))))


def _doubt(gap: Gap) -> str:
    """Why no difference is shown; empty when one is."""
    if gap.is_shown:
        return ""
    if gap.is_outside or (gap.p_value is not None and gap.p_value < _SIGNIFICANT):
        return f"No difference shown by {gap.measure}: the interval and the exact test do not agree."
    return f"No difference shown by {gap.measure}{'' if gap.gap == 0 else ': this may be chance'}."


def _shown_by_others(gaps: Sequence[Gap]) -> str:
    """The other measures that show a difference; empty when none does."""
    shown = [
        f"{gap.measure} ({figure(gap.measure, gap.oral)} against {figure(gap.measure, gap.official)})"
        for gap in gaps
        if gap.is_shown
    ]
    return f"A difference is shown by {', '.join(shown)}." if shown else ""


GAP_HEADS = ("measure", "pairs", "official", "oral", "gap", "95 % CI", "exact McNemar", "conclusion")


def gap_cells(gap: Gap) -> tuple[str, ...]:
    """The cells of one measure, in the order of GAP_HEADS."""
    return (
        gap.measure,
        f"{gap.pairs:,}",
        figure(gap.measure, gap.official),
        figure(gap.measure, gap.oral),
        signed(gap.measure, gap.gap),
        gap_bounds(gap),
        "–" if gap.p_value is None else p_value(gap.p_value),
        gap.conclusion,
    )


def pair_counts(results: RagResults) -> str:
    """Number of pairs by the wordings that work: `official only 2, both 3`."""
    counts = Counter(pair.who for pair in results.pairs.pairs)
    return ", ".join(f"{who} {number:,}" for who, number in counts.items())


def official_only(results: RagResults) -> list[str]:
    """The concepts for which only the official wording works."""
    return [concept.id for concept in results.pairs.concepts if concept.is_official_only]


def facts(results: RagResults, root: Path) -> Iterator[tuple[str, str]]:
    """Batch, profile, time and documents of the results."""
    yield "batch", results.batch
    if results.profile:
        yield "profile", results.profile
    yield "created", results.created_at
    yield "searched", root.as_posix()
    if results.documents is not None:
        yield "documents", f"{results.documents:,}"


def settings(results: RagResults) -> Iterator[tuple[str, str]]:
    """The configuration, which two batches must share to be compared."""
    for name, value in results.config.items():
        if value not in ("", None, [], {}):
            yield name, cell(value)


# -- cases ---------------------------------------------------------------------------------------------


def expected(row: CaseRow) -> str:
    """`a.md at rank 2, b.md not found`."""
    return ", ".join(f"{expectation.source} {at_rank(expectation.rank)}" for expectation in row.expected) or "–"


def at_rank(rank: int) -> str:
    return f"at rank {rank}" if rank else "not found"


def explanation(row: CaseRow) -> str:
    """The outcome of a case in one line."""
    if row.status == "passed":
        return f"expected {expected(row)}" if row.expected else "passed"
    if row.status != "failed":
        return row.error or row.reason or row.status
    if row.missing:
        return f"the answer lacks {', '.join(row.missing)}"
    if row.answer or not row.expected:
        return row.reason or "failed"
    retrieved = f"found {', '.join(row.sources)}" if row.sources else "nothing was found"
    return f"expected {expected(row)}; {retrieved}"


def cases_with_status(results: RagResults, *statuses: Status) -> list[CaseRow]:
    return [row for row in results.cases if row.status in statuses]


def truncation_note(rows: Sequence[object], noun: str) -> str:
    """The note below a truncated list; empty when the list is complete."""
    rest = len(rows) - MAX_ROWS
    return f"… and {pluralize(rest, f'more {noun}')}: the JSON report has them all." if rest > 0 else ""


def groups(results: RagResults) -> list[GroupMeasures]:
    """All cases together, then each bucket."""
    return [results.overall, *results.buckets]
