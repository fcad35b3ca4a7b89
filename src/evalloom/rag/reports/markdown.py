"""The report of a RAG batch as a Markdown page, for pull requests and wikis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evalloom.rag.reports import content
from evalloom.ui.markdown import escape_markdown, markdown_table
from evalloom.ui.report_marks import MARKDOWN

if TYPE_CHECKING:
    from evalloom.rag.analysis.measures import GroupMeasures, RagResults

name = "markdown"
suffix = ".md"

_BAR_WIDTH = 20


def render(results: Sequence[RagResults], root: Path, *, exit_code: int | None = None) -> str:
    """Render all profiles in order; `root` is the searched folder, and `exit_code` is not content."""
    parts = [f"# {content.title(results[0])}"]
    for result in results:
        if len(results) > 1:
            parts.append(f"# Profile {escape_markdown(result.profile)}")
        parts += _profile_sections(result, root)
    return "\n\n".join([*parts, MARKDOWN]) + "\n"


def _profile_sections(results: RagResults, root: Path) -> Iterator[str]:
    yield f"**{escape_markdown(content.headline(results))}**"
    yield " · ".join(
        f"{escape_markdown(name)}: {escape_markdown(value)}" for name, value in content.facts(results, root)
    )
    if note := content.not_measured(results):
        yield escape_markdown(note)
    for section in (_buckets, _tags, _wordings, _misses, _errors, _not_measured, _settings):
        yield from section(results)


def _buckets(results: RagResults) -> Iterator[str]:
    yield "## By bucket"
    names = [measure.name for measure in results.overall.measures]
    further = content.pass_rate_heads(results)
    rows = (
        (group.name, f"{group.cases:,}", _bar(group, names[0]), *_measure_cells(group, names, further))
        for group in content.groups(results)
    )
    heads = ("bucket", "measured", "", *names, *further)
    yield markdown_table(heads, "-r-" + "r" * (len(names) + len(further)), rows)
    yield f"The bar is {names[0]} from 0 to 100 %. In brackets: 95 % intervals."


def _measure_cells(group: GroupMeasures, names: Sequence[str], further: Sequence[str]) -> list[str]:
    cells = [content.with_bounds(group.measure(name)) for name in names]
    return [*cells, f"{group.errors:,}", content.with_bounds(group.pass_rate)] if further else cells


def _bar(group: GroupMeasures, measure: str) -> str:
    share = group.measure(measure).mean
    if share is None:
        return ""
    full = round(share * _BAR_WIDTH)
    return "█" * full + "░" * (_BAR_WIDTH - full)


def _tags(results: RagResults) -> Iterator[str]:
    if not results.tags:
        return
    yield "## By tag"
    names = [measure.name for measure in results.overall.measures]
    listed = results.tags[: content.MAX_ROWS]
    further = content.pass_rate_heads(results)
    rows = ((group.name, f"{group.cases:,}", *_measure_cells(group, names, further)) for group in listed)
    yield markdown_table(("tag", "measured", *names, *further), "-r" + "r" * (len(names) + len(further)), rows)
    if note := content.truncation_note(results.tags, "tag"):
        yield note


def _wordings(results: RagResults) -> Iterator[str]:
    pairs = results.pairs
    if not (pairs.pairs or pairs.unpaired or pairs.not_comparable):
        return
    yield "## Oral against official"
    yield content.wording_gap(results) or "No pair can be compared."
    if only := content.official_only(results):
        yield f"**Only the official wording works:** {escape_markdown(', '.join(only))}"
    if pairs.pairs:
        yield from _concepts(results)
        yield from _pairs(results)
        yield markdown_table(content.GAP_HEADS, "-rrrrrr-", map(content.gap_cells, pairs.gaps))
    yield from _excluded(results)


def _concepts(results: RagResults) -> Iterator[str]:
    listed = results.pairs.concepts[: content.MAX_ROWS]
    rows = (
        (
            concept.id or "(none)",
            f"{concept.pairs:,}",
            content.percent(concept.official),
            content.percent(concept.oral),
            content.points(concept.gap),
            "only the official wording works" if concept.is_official_only else "",
        )
        for concept in listed
    )
    yield markdown_table(("concept", "pairs", "official", "oral", "gap (points)", ""), "-rrrr-", rows)
    if note := content.truncation_note(results.pairs.concepts, "concept"):
        yield note


def _pairs(results: RagResults) -> Iterator[str]:
    pairs = results.pairs.pairs
    yield f"Pairs: {content.pair_counts(results)}."
    rows = (
        (
            pair.id,
            pair.concept_id,
            pair.who,
            content.points(pair.gap),
            ", ".join(pair.official_cases),
            ", ".join(pair.oral_cases),
        )
        for pair in pairs[: content.MAX_ROWS]
    )
    yield markdown_table(("pair", "concept", "works", "gap (points)", "official", "oral"), "---r--", rows)
    if note := content.truncation_note(pairs, "pair"):
        yield note


def _excluded(results: RagResults) -> Iterator[str]:
    pairs = results.pairs
    if pairs.not_comparable:
        yield f"Pairs that cannot be compared ({len(pairs.not_comparable):,}):"
        rows = (
            (excluded.pair_id, excluded.id, excluded.reason) for excluded in pairs.not_comparable[: content.MAX_ROWS]
        )
        yield markdown_table(("pair", "case", "why"), "---", rows)
    if note := content.truncation_note(pairs.not_comparable, "pair"):
        yield note
    if pairs.unpaired:
        yield f"Cases in no pair ({len(pairs.unpaired):,}):"
        reasons: dict[str, list[str]] = {}
        for excluded in pairs.unpaired[: content.MAX_ROWS]:
            reasons.setdefault(excluded.reason, []).append(escape_markdown(excluded.id))
        yield "\n".join(f"- {escape_markdown(reason)}: {', '.join(ids)}" for reason, ids in reasons.items())
    if note := content.truncation_note(pairs.unpaired, "case"):
        yield note


def _misses(results: RagResults) -> Iterator[str]:
    rows = content.cases_with_status(results, "failed")
    yield f"## {'Failed' if results.purpose == 'answer' else 'Missed'} ({len(rows):,})"
    if not rows:
        yield "None."
        return
    listed = rows[: content.MAX_ROWS]
    if results.purpose == "answer":
        heads = ("case", "bucket", "query", "missing", "answer", "expected")
        cells = [
            (row.id, row.bucket, row.query, ", ".join(row.missing) or row.reason, row.answer, content.expected(row))
            for row in listed
        ]
    else:
        heads = ("case", "bucket", "query", "expected", "retrieved instead", "at")
        cells = [
            (row.id, row.bucket, row.query, content.expected(row), ", ".join(row.sources) or "nothing", str(row.origin))
            for row in listed
        ]
    yield markdown_table(heads, "------", cells)
    if note := content.truncation_note(rows, "case"):
        yield note


def _errors(results: RagResults) -> Iterator[str]:
    rows = [row for row in results.cases if row.error]
    if not rows:
        return
    yield f"## Errors ({len(rows):,})"
    listed = rows[: content.MAX_ROWS]
    yield markdown_table(
        ("case", "query", "error", "at"), "----", ((r.id, r.query, r.error, str(r.origin)) for r in listed)
    )
    if note := content.truncation_note(rows, "case"):
        yield note


def _not_measured(results: RagResults) -> Iterator[str]:
    rows = content.cases_with_status(results, "unscored", "skipped", "blocked")
    if not rows:
        return
    yield f"## Not measured ({len(rows):,})"
    listed = ((row.id, row.query, row.status, row.reason, str(row.origin)) for row in rows[: content.MAX_ROWS])
    yield markdown_table(("case", "query", "status", "why", "at"), "-----", listed)
    if note := content.truncation_note(rows, "case"):
        yield note


def _settings(results: RagResults) -> Iterator[str]:
    yield "## Configuration"
    yield markdown_table(("", ""), "--", content.settings(results))
