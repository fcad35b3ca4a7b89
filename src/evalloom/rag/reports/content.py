"""Texts that the reports of a RAG batch share: figures, the wording gap, and cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from evalloom.core.model import Status
from evalloom.reports.run_report import cell
from evalloom.ui.language import ENGLISH, Language, language, phrase

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
    "error": ("{n} case ended in an error", phrase("{n} cases ended in an error")),
    "no_expected": ("{n} case expects nothing", phrase("{n} cases expect nothing")),
    "unscored": ("{n} case could not be scored", phrase("{n} cases could not be scored")),
    "skipped": ("{n} case was skipped", phrase("{n} cases were skipped")),
    "blocked": ("{n} case was blocked", phrase("{n} cases were blocked")),
}
"""Singular and plural, by reason."""
_MORE = {
    "case": ("{n} more case", phrase("{n} more cases")),
    "concept": ("{n} more concept", phrase("{n} more concepts")),
    "pair": ("{n} more pair", phrase("{n} more pairs")),
    "tag": ("{n} more tag", phrase("{n} more tags")),
}
WHO = {
    "both": phrase("both"),
    "neither": phrase("neither"),
    "official only": phrase("official only"),
    "oral only": phrase("oral only"),
    "oral more": phrase("oral more"),
    "oral less": phrase("oral less"),
    "alike": phrase("alike"),
}
"""Which wording of a pair works."""
_CONCLUSIONS = {
    "no difference shown": phrase("no difference shown"),
    "oral lower": phrase("oral lower"),
    "oral higher": phrase("oral higher"),
}


@cache
def report_language(code: str) -> Language:
    """Return a language with the phrases of RAG reports."""
    from evalloom.rag.reports.chinese import PHRASES

    return language(code).extended(PHRASES)


# -- figures -------------------------------------------------------------------------------------------


def percent(share: float, t: Language = ENGLISH) -> str:
    """Format a share as `66.7 %`; a share that only rounds to 0 or 100 % gives `< 0.1 %` or `> 99.9 %`."""
    return t.percent(share)


def figure(name: str, value: float | None, t: Language = ENGLISH) -> str:
    """A formatted measure: shares in percent, others with three decimals."""
    if value is None:
        return "–"
    return t.percent(value) if name.startswith(_SHARES) else f"{value:.3f}"


def bounds(measure: Measure, t: Language = ENGLISH) -> str:
    """The interval: `43.7–97.0 %` or `0.412–0.903`; empty when there is none."""
    if measure.low is None or measure.high is None:
        return ""
    if measure.name.startswith(_SHARES):
        return t.interval(measure.low, measure.high)
    return f"{measure.low:.3f}–{measure.high:.3f}"


def with_bounds(measure: Measure, t: Language = ENGLISH) -> str:
    """`83.3 % (43.7–97.0 %)`."""
    interval = bounds(measure, t)
    return f"{figure(measure.name, measure.mean, t)} ({interval})" if interval else "–"


def points(gap: float) -> str:
    """A difference of shares in percentage points, with a typographic minus sign; zero is `0.0`."""
    return _with_sign(100 * gap, 1)


def signed(name: str, gap: float, t: Language = ENGLISH) -> str:
    """A difference of a measure, in points or with three decimals."""
    return t("{n} points", n=points(gap)) if name.startswith(_SHARES) else _with_sign(gap, 3)


def _with_sign(number: float, digits: int) -> str:
    rounded = round(number, digits)
    return f"{rounded:+.{digits}f}".replace("-", "−") if rounded else f"{0:.{digits}f}"


def gap_bounds(gap: Gap, t: Language = ENGLISH) -> str:
    """`−70.1 to +15.2 points`."""
    if gap.measure.startswith(_SHARES):
        return t("{low} to {high} points", low=points(gap.low), high=points(gap.high))
    return t("{low} to {high}", low=_with_sign(gap.low, 3), high=_with_sign(gap.high, 3))


def p_value(value: float) -> str:
    """`p = 0.031`, or `p < 0.001`."""
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


# -- sentences -----------------------------------------------------------------------------------------


def title(results: RagResults, t: Language = ENGLISH) -> str:
    return t("RAG answers") if results.purpose == "answer" else t("RAG retrieval")


def headline(results: RagResults, t: Language = ENGLISH) -> str:
    """The main result in one sentence."""
    deciding = results.overall.measure(results.deciding)
    if deciding.mean is None:
        return t("No case could be measured.")
    values = {
        "share": t.percent(deciding.mean),
        "cases": t.count(deciding.cases, "{n} case", "{n} cases"),
        "interval": bounds(deciding, t),
    }
    if results.purpose != "answer":
        return t(
            "An expected source is among the first {passages} in {share} of {cases} (95 % CI {interval}).",
            passages=t.count(results.k, "{n} passage", "{n} passages"),
            **values,
        )
    required = [str(name) for name in results.config.get("require") or ()]
    if required:
        return t(
            "The answer contains everything it must, with good {required}, in {share} of {cases} (95 % CI {interval}).",
            required=t(" and ").join(required),
            **values,
        )
    return t("The answer contains everything it must in {share} of {cases} (95 % CI {interval}).", **values)


def not_measured(results: RagResults, t: Language = ENGLISH) -> str:
    """The cases that no rate counts, in one sentence; empty when all cases were measured."""
    counts = [
        t.count(number, *phrases)
        for name, phrases in _NOT_MEASURED_PHRASES.items()
        if (number := results.apart.get(name, 0))
    ]
    excluded = t("Not measured: {list}.", list=t(", ").join(counts)) if counts else ""
    partial = results.apart.get("part_error", 0)
    partial_text = (
        t.count(
            partial,
            "{n} case with an error in some repeats: measured on the others.",
            "{n} cases with an error in some repeats: measured on the others.",
        )
        if partial
        else ""
    )
    unjudged = [
        t.count(number, "{name}: {n} case could not be judged.", "{name}: {n} cases could not be judged.", name=name)
        for name, number in results.unjudged.items()
    ]
    return " ".join(
        filter(None, (excluded, partial_text, *unjudged, *smaller_denominators(results, t), pass_rate(results, t)))
    )


def smaller_denominators(results: RagResults, t: Language = ENGLISH) -> list[str]:
    """The measures that fewer cases have than the group counts, in a sentence each."""
    overall = results.overall
    return [
        t(
            "{name} is over {some} of {cases}: the others cannot be scored on it.",
            name=measure.name,
            some=t.number(measure.cases),
            cases=t.count(overall.cases, "{n} case", "{n} cases"),
        )
        for measure in overall.measures
        if 0 < measure.cases < overall.cases
    ]


def pass_rate(results: RagResults, t: Language = ENGLISH) -> str:
    """The pass rate in one sentence, where it may be another number than the measure that decides; otherwise empty."""
    rate = results.overall.pass_rate
    if not has_own_pass_rate(results) or rate.mean is None:
        return ""
    values = {
        "share": t.percent(rate.mean),
        "cases": t.count(rate.cases, "{n} case", "{n} cases"),
        "interval": bounds(rate, t),
    }
    if results.pass_if is None:
        return t(
            "pass_rate, which counts an error as not passed, is {share} of {cases} (95 % CI {interval}); "
            "no measure counts errors.",
            **values,
        )
    return t(
        "pass_rate, which counts an error as not passed and a case as passed if {rule} of its repeats pass, "
        "is {share} of {cases} (95 % CI {interval}); no measure counts errors.",
        rule=t.percent(results.pass_if),
        **values,
    )


def pass_rate_heads(results: RagResults, t: Language = ENGLISH) -> tuple[str, ...]:
    """The further columns of a table of measures: errors and the pass rate, where it may be another number."""
    return (t("errors"), "pass_rate") if has_own_pass_rate(results) else ()


def has_own_pass_rate(results: RagResults) -> bool:
    """Whether the pass rate may be another number than the measure that decides: after errors, and by a pass rule."""
    return results.pass_if is not None or any(row.error for row in results.cases)


def wording_gap(results: RagResults, t: Language = ENGLISH) -> str:
    """Oral against official in one sentence; empty when there are no pairs."""
    if not results.pairs.gaps:
        return ""
    gap = results.pairs.gaps[0]
    is_answer = results.purpose == "answer"
    size = f"{abs(100 * gap.gap):.1f}"
    if round(abs(100 * gap.gap), 1) == 0:
        same = t("Oral wordings are answered as often as official ones")
        sentence = same if is_answer else t("Oral wordings are found as often as official ones")
    elif gap.gap < 0:
        less = t("Oral wordings are answered {n} points less often than official ones", n=size)
        sentence = less if is_answer else t("Oral wordings are found {n} points less often than official ones", n=size)
    else:
        more = t("Oral wordings are answered {n} points more often than official ones", n=size)
        sentence = more if is_answer else t("Oral wordings are found {n} points more often than official ones", n=size)
    figures = [t("95 % CI {interval}", interval=gap_bounds(gap, t))]
    figures += [t("exact McNemar {p}", p=p_value(gap.p_value))] if gap.p_value is not None else []
    figures.append(t.count(gap.pairs, "{n} pair", "{n} pairs"))
    whole = t(
        "{sentence}: {oral} against {official} ({figures}).",
        sentence=sentence,
        oral=t.percent(gap.oral),
        official=t.percent(gap.official),
        figures=t("; ").join(figures),
    )
    return " ".join(filter(None, (whole, _doubt(gap, t), _shown_by_others(results.pairs.gaps[1:], t))))


def _doubt(gap: Gap, t: Language) -> str:
    """Why no difference is shown; empty when one is."""
    if gap.is_shown:
        return ""
    if gap.is_outside or (gap.p_value is not None and gap.p_value < _SIGNIFICANT):
        return t("No difference shown by {name}: the interval and the exact test do not agree.", name=gap.measure)
    if gap.gap == 0:
        return t("No difference shown by {name}.", name=gap.measure)
    return t("No difference shown by {name}: this may be chance.", name=gap.measure)


def _shown_by_others(gaps: Sequence[Gap], t: Language) -> str:
    """The other measures that show a difference; empty when none does."""
    shown = [
        t(
            "{name} ({oral} against {official})",
            name=gap.measure,
            oral=figure(gap.measure, gap.oral, t),
            official=figure(gap.measure, gap.official, t),
        )
        for gap in gaps
        if gap.is_shown
    ]
    return t("A difference is shown by {list}.", list=t(", ").join(shown)) if shown else ""


def gap_heads(t: Language = ENGLISH) -> tuple[str, ...]:
    """The columns of the table of gaps."""
    heads = (t("measure"), t("pairs"), t("official"), t("oral"), t("gap"), t("95 % CI"), t("exact McNemar"))
    return (*heads, t("conclusion"))


def gap_cells(gap: Gap, t: Language = ENGLISH) -> tuple[str, ...]:
    """The cells of one measure, in the order of `gap_heads`."""
    return (
        gap.measure,
        f"{gap.pairs:,}",
        figure(gap.measure, gap.official, t),
        figure(gap.measure, gap.oral, t),
        signed(gap.measure, gap.gap, t),
        gap_bounds(gap, t),
        "–" if gap.p_value is None else p_value(gap.p_value),
        t(_CONCLUSIONS.get(gap.conclusion, gap.conclusion)),
    )


def pair_counts(results: RagResults, t: Language = ENGLISH) -> str:
    """Number of pairs by the wordings that work: `official only 2, both 3`."""
    counts = Counter(pair.who for pair in results.pairs.pairs)
    return t(", ").join(f"{t(WHO.get(who, who))} {number:,}" for who, number in counts.items())


def official_only(results: RagResults) -> list[str]:
    """The concepts for which only the official wording works."""
    return [concept.id for concept in results.pairs.concepts if concept.is_official_only]


def facts(results: RagResults, root: Path, t: Language = ENGLISH) -> Iterator[tuple[str, str]]:
    """Batch, profile, time and documents of the results."""
    yield t("batch"), results.batch
    if results.profile:
        yield t("profile"), results.profile
    yield t("created"), results.created_at if t.code == "en" else t.time(results.created_at)
    yield t("searched"), root.as_posix()
    if results.documents is not None:
        yield t("documents"), f"{results.documents:,}"


def settings(results: RagResults) -> Iterator[tuple[str, str]]:
    """The configuration, which two batches must share to be compared."""
    for name, value in results.config.items():
        if value not in ("", None, [], {}):
            yield name, cell(value)


# -- cases ---------------------------------------------------------------------------------------------


def expected(row: CaseRow, t: Language = ENGLISH) -> str:
    """`a.md at rank 2, b.md not found`."""
    return t(", ").join(f"{expectation.source} {at_rank(expectation.rank, t)}" for expectation in row.expected) or "–"


def at_rank(rank: int, t: Language = ENGLISH) -> str:
    return t("at rank {n}", n=rank) if rank else t("not found")


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


def truncation_note(rows: Sequence[object], noun: str, t: Language = ENGLISH) -> str:
    """The note below a truncated list; empty when the list is complete."""
    rest = len(rows) - MAX_ROWS
    return t("… and {more}: the JSON report has them all.", more=t.count(rest, *_MORE[noun])) if rest > 0 else ""


def groups(results: RagResults) -> list[GroupMeasures]:
    """All cases together, then each bucket."""
    return [results.overall, *results.buckets]


def group_name(group: GroupMeasures, t: Language = ENGLISH) -> str:
    """The name of a bucket or tag, or the word for all cases."""
    return t("overall") if group.name == "overall" else group.name
