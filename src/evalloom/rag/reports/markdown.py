"""The report of a RAG batch as a Markdown page, for pull requests and wikis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evalloom.core.model import Status
from evalloom.rag.reports import content
from evalloom.reports.sentences import STATUS_NAMES
from evalloom.ui.language import Language
from evalloom.ui.markdown import escape_markdown, markdown_table
from evalloom.ui.report_marks import MARKDOWN

if TYPE_CHECKING:
    from evalloom.rag.analysis.measures import GroupMeasures, RagResults

name = "markdown"
suffix = ".md"

_BAR_WIDTH = 20


def render(results: Sequence[RagResults], root: Path, *, exit_code: int | None = None, language: str = "en") -> str:
    """Render all profiles in order; `root` is the searched folder, and `exit_code` is not content."""
    t = content.report_language(language)
    parts = [f"# {content.title(results[0], t)}"]
    for result in results:
        if len(results) > 1:
            parts.append(f"# {t('Profile {name}', name=escape_markdown(result.profile))}")
        parts += _profile_sections(result, root, t)
    return "\n\n".join([*parts, MARKDOWN]) + "\n"


def _profile_sections(results: RagResults, root: Path, t: Language) -> Iterator[str]:
    yield f"**{escape_markdown(content.headline(results, t))}**"
    yield " · ".join(
        f"{escape_markdown(name)}: {escape_markdown(value)}" for name, value in content.facts(results, root, t)
    )
    if note := content.not_measured(results, t):
        yield escape_markdown(note)
    for section in (_buckets, _tags, _wordings, _misses, _errors, _not_measured, _settings):
        yield from section(results, t)


def _buckets(results: RagResults, t: Language) -> Iterator[str]:
    yield f"## {t('By bucket')}"
    names = [measure.name for measure in results.overall.measures]
    further = content.pass_rate_heads(results, t)
    rows = (
        (
            content.group_name(group, t),
            f"{group.cases:,}",
            _bar(group, names[0]),
            *_measure_cells(group, names, further, t),
        )
        for group in content.groups(results)
    )
    heads = (t("bucket"), t("measured"), "", *names, *further)
    yield markdown_table(heads, "-r-" + "r" * (len(names) + len(further)), rows)
    yield t("The bar is {name} from 0 to 100 %. In brackets: 95 % intervals.", name=names[0])


def _measure_cells(group: GroupMeasures, names: Sequence[str], further: Sequence[str], t: Language) -> list[str]:
    cells = [content.with_bounds(group.measure(name), t) for name in names]
    return [*cells, f"{group.errors:,}", content.with_bounds(group.pass_rate, t)] if further else cells


def _bar(group: GroupMeasures, measure: str) -> str:
    share = group.measure(measure).mean
    if share is None:
        return ""
    full = round(share * _BAR_WIDTH)
    return "█" * full + "░" * (_BAR_WIDTH - full)


def _tags(results: RagResults, t: Language) -> Iterator[str]:
    if not results.tags:
        return
    yield f"## {t('By tag')}"
    names = [measure.name for measure in results.overall.measures]
    listed = results.tags[: content.MAX_ROWS]
    further = content.pass_rate_heads(results, t)
    rows = (
        (content.group_name(group, t), f"{group.cases:,}", *_measure_cells(group, names, further, t))
        for group in listed
    )
    yield markdown_table((t("tag"), t("measured"), *names, *further), "-r" + "r" * (len(names) + len(further)), rows)
    if note := content.truncation_note(results.tags, "tag", t):
        yield note


def _wordings(results: RagResults, t: Language) -> Iterator[str]:
    pairs = results.pairs
    if not (pairs.pairs or pairs.unpaired or pairs.not_comparable):
        return
    yield f"## {t('Oral against official')}"
    yield content.wording_gap(results, t) or t("No pair can be compared.")
    if only := content.official_only(results):
        yield f"**{t('Only the official wording works:')}** {escape_markdown(', '.join(only))}"
    if pairs.pairs:
        yield from _concepts(results, t)
        yield from _pairs(results, t)
        yield markdown_table(content.gap_heads(t), "-rrrrrr-", (content.gap_cells(gap, t) for gap in pairs.gaps))
    yield from _excluded(results, t)


def _concepts(results: RagResults, t: Language) -> Iterator[str]:
    listed = results.pairs.concepts[: content.MAX_ROWS]
    rows = (
        (
            concept.id or t("(none)"),
            f"{concept.pairs:,}",
            t.percent(concept.official),
            t.percent(concept.oral),
            content.points(concept.gap),
            t("only the official wording works") if concept.is_official_only else "",
        )
        for concept in listed
    )
    yield markdown_table((t("concept"), t("pairs"), t("official"), t("oral"), t("gap (points)"), ""), "-rrrr-", rows)
    if note := content.truncation_note(results.pairs.concepts, "concept", t):
        yield note


def _pairs(results: RagResults, t: Language) -> Iterator[str]:
    pairs = results.pairs.pairs
    yield t("Pairs: {list}.", list=content.pair_counts(results, t))
    rows = (
        (
            pair.id,
            pair.concept_id,
            t(content.WHO.get(pair.who, pair.who)),
            content.points(pair.gap),
            ", ".join(pair.official_cases),
            ", ".join(pair.oral_cases),
        )
        for pair in pairs[: content.MAX_ROWS]
    )
    yield markdown_table(
        (t("pair"), t("concept"), t("works"), t("gap (points)"), t("official"), t("oral")), "---r--", rows
    )
    if note := content.truncation_note(pairs, "pair", t):
        yield note


def _excluded(results: RagResults, t: Language) -> Iterator[str]:
    pairs = results.pairs
    if pairs.not_comparable:
        yield t("Pairs that cannot be compared ({n}):", n=t.number(len(pairs.not_comparable)))
        rows = (
            (excluded.pair_id, excluded.id, excluded.reason) for excluded in pairs.not_comparable[: content.MAX_ROWS]
        )
        yield markdown_table((t("pair"), t("case"), t("why")), "---", rows)
    if note := content.truncation_note(pairs.not_comparable, "pair", t):
        yield note
    if pairs.unpaired:
        yield t("Cases in no pair ({n}):", n=t.number(len(pairs.unpaired)))
        reasons: dict[str, list[str]] = {}
        for excluded in pairs.unpaired[: content.MAX_ROWS]:
            reasons.setdefault(excluded.reason, []).append(escape_markdown(excluded.id))
        yield "\n".join(f"- {escape_markdown(reason)}: {', '.join(ids)}" for reason, ids in reasons.items())
    if note := content.truncation_note(pairs.unpaired, "case", t):
        yield note


def _misses(results: RagResults, t: Language) -> Iterator[str]:
    rows = content.cases_with_status(results, "failed")
    yield f"## {t('Failed') if results.purpose == 'answer' else t('Missed')} ({len(rows):,})"
    if not rows:
        yield t("None.")
        return
    listed = rows[: content.MAX_ROWS]
    if results.purpose == "answer":
        heads = (t("case"), t("bucket"), t("query"), t("missing"), t("answer"), t("expected"))
        cells = [
            (row.id, row.bucket, row.query, ", ".join(row.missing) or row.reason, row.answer, content.expected(row, t))
            for row in listed
        ]
    else:
        heads = (t("case"), t("bucket"), t("query"), t("expected"), t("retrieved instead"), t("at"))
        cells = [
            (
                row.id,
                row.bucket,
                row.query,
                content.expected(row, t),
                ", ".join(row.sources) or t("nothing"),
                str(row.origin),
            )
            for row in listed
        ]
    yield markdown_table(heads, "------", cells)
    if note := content.truncation_note(rows, "case", t):
        yield note


def _errors(results: RagResults, t: Language) -> Iterator[str]:
    rows = [row for row in results.cases if row.error]
    if not rows:
        return
    yield f"## {t('Errors')} ({len(rows):,})"
    listed = rows[: content.MAX_ROWS]
    yield markdown_table(
        (t("case"), t("query"), t("error"), t("at")), "----", ((r.id, r.query, r.error, str(r.origin)) for r in listed)
    )
    if note := content.truncation_note(rows, "case", t):
        yield note


def _not_measured(results: RagResults, t: Language) -> Iterator[str]:
    rows = content.cases_with_status(results, "unscored", "skipped", "blocked")
    if not rows:
        return
    yield f"## {t('Not measured')} ({len(rows):,})"
    listed = (
        (row.id, row.query, _status(row.status, t), row.reason, str(row.origin)) for row in rows[: content.MAX_ROWS]
    )
    yield markdown_table((t("case"), t("query"), t("status"), t("why"), t("at")), "-----", listed)
    if note := content.truncation_note(rows, "case", t):
        yield note


def _status(status: Status, t: Language) -> str:
    return status if t.code == "en" else t(STATUS_NAMES[status])


def _settings(results: RagResults, t: Language) -> Iterator[str]:
    yield f"## {t('Configuration')}"
    yield markdown_table(("", ""), "--", content.settings(results))
