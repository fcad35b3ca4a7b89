"""The report of a prompt as a Markdown page, for pull requests and wikis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from evalloom.core.text import pluralize
from evalloom.prompt_eval.reports import content
from evalloom.prompt_eval.reports.content import PromptEvalReport
from evalloom.prompt_eval.scores import ScoredCase
from evalloom.ui.markdown import escape_markdown, markdown_table
from evalloom.ui.report_marks import MARKDOWN
from evalloom.ui.text import visible

if TYPE_CHECKING:
    from evalloom.prompt_eval.analysis.bad_cases import BadGroup
    from evalloom.prompt_eval.analysis.scorecard import PointFigures

name = "markdown"
suffix = ".md"


def render(report: PromptEvalReport) -> str:
    sections = (
        _head,
        _safety,
        _points,
        _bad_cases,
        _categories,
        _distribution,
        _agreement,
        _noise,
        _next,
    )
    parts = [part for section in sections for part in section(report)]
    return "\n\n".join([*parts, MARKDOWN]) + "\n"


def _head(report: PromptEvalReport) -> Iterator[str]:
    yield f"# {escape_markdown(report.title)}"
    yield f"**{escape_markdown(content.headline(report.scorecard))}**"
    facts = [f"{escape_markdown(what)}: {escape_markdown(value)}" for what, value in content.facts(report)]
    if facts:
        yield " · ".join(facts)
    yield "## Overview"
    yield markdown_table(("", ""), "-r", content.overview(report))
    if remarks := list(content.remarks(report)):
        yield "\n".join(f"- {escape_markdown(remark)}" for remark in remarks)


def _safety(report: PromptEvalReport) -> Iterator[str]:
    failures = report.scorecard.safety
    yield "## Safety failures"
    if not failures:
        yield "None."
        return
    rows = ((one.case.id, _kind(one.case), one.why, content.reason(one.case, one.point)) for one in failures)
    yield markdown_table(("case", "category", "what", "reason"), "----", rows)


def _points(report: PromptEvalReport) -> Iterator[str]:
    yield "## Test points"
    heads = ("status", "test point", "name", "criticality", "cases", "average", "1", "2", "3", "incomplete")
    rows = (
        (
            _status(report, one),
            one.id,
            one.point.name,
            one.point.criticality or "–",
            f"{one.tally.cases:,}",
            content.average(one.tally),
            *(f"{count:,} ({content.rate(count, one.tally.cases)})" for count in one.tally.counts),
            f"{one.missing:,}",
        )
        for one in report.scorecard.points
    )
    yield markdown_table(heads, "----rrrrrr", rows)
    failed = report.scorecard.failed
    rules = " · ".join(f"{content.STATUS_SIGNS[status]} {rule}" for status, rule in content.STATUS_RULES.items())
    yield rules + (f". {pluralize(failed, 'failed run')} left out of the averages." if failed else ".")


def _status(report: PromptEvalReport, figures: PointFigures) -> str:
    note = content.safety_note(report.scorecard, figures)
    return f"{content.STATUS_SIGNS[figures.status]} {content.status(figures)}" + (f"; {note}" if note else "")


def _bad_cases(report: PromptEvalReport) -> Iterator[str]:
    yield f"## Bad cases ({report.scorecard.bad:,})"
    if not report.scorecard.groups:
        yield "None."
    for point, called, groups in content.groups_by_point(report):
        number = sum(len(group.cases) for group in groups)
        yield f"### {escape_markdown(' · '.join(filter(None, (point, called))))} ({number:,})"
        for group in groups:
            yield f"**{escape_markdown(content.group_title(group))}** ({pluralize(len(group.cases), 'case')})"
            yield _group(group, point)


def _group(group: BadGroup, point: str) -> str:
    heads = ("case", "category", "what it tests", "score", "reason")
    rows = (
        (case.id, _kind(case), case.record.get("test_description"), content.score(case), content.reason(case, point))
        for case in group.cases
    )
    # The title of the group is the reason why the runs failed.
    return (
        markdown_table(heads, "---r-", rows) if point else markdown_table(heads[:3], "---", (row[:3] for row in rows))
    )


def _categories(report: PromptEvalReport) -> Iterator[str]:
    card = report.scorecard
    yield "## Averages by category and test point"
    heads = ("category", "cases", "passed", "bad", *(one.id for one in card.points))
    rows = (
        (
            row.category or "(none)",
            f"{row.cases:,}",
            f"{row.passed:,}",
            f"{row.bad:,}",
            *(f"{content.average(tally)} (n {tally.cases:,})" if tally.cases else "–" for tally in row.tallies),
        )
        for row in card.categories
    )
    yield markdown_table(heads, "-rrr" + "r" * len(card.points), rows)


def _distribution(report: PromptEvalReport) -> Iterator[str]:
    yield "## Scores of the cases"
    rows = (
        (content.bucket(one), f"{one.cases:,}", "pass" if one.is_passing else "") for one in report.scorecard.buckets
    )
    yield markdown_table(("share of the most", "cases", ""), "rr-", rows)


def _agreement(report: PromptEvalReport) -> Iterator[str]:
    if not report.agreement:
        return
    yield "## Agreement of the judge with people"
    heads = ("test point", "cases", "same score", "95 % interval", "weighted kappa (95 %)", "judge is")
    rows = (
        (
            one.point,
            f"{one.cases:,}",
            content.rate(one.agreed, one.cases),
            content.interval(one.exact_interval),
            content.kappa(one),
            content.bias(one),
        )
        for one in report.agreement
    )
    yield markdown_table(heads, "-rrrrr", rows)
    yield "Where they differ (rows: what people gave, columns: what the judge gave):"
    cells = (
        (one.point, str(human), *map(str, row))
        for one in report.agreement
        for human, row in enumerate(one.confusion, 1)
    )
    yield markdown_table(("test point", "people", "judge 1", "judge 2", "judge 3"), "-rrrr", cells)


def _noise(report: PromptEvalReport) -> Iterator[str]:
    if not report.noise:
        return
    yield "## Noise of the judge when it scores again"
    rows = (
        (
            one.point,
            f"{one.cases:,}",
            content.rate(one.stable, one.cases),
            content.interval(one.interval),
            "–" if one.mean_range is None else f"{one.mean_range:.2f}",
        )
        for one in report.noise
    )
    yield markdown_table(("test point", "cases", "always the same", "95 % interval", "mean range"), "-rrrr", rows)


def _next(report: PromptEvalReport) -> Iterator[str]:
    yield "## How to go on"
    steps = [f"- {escape_markdown(step.why)}: {_code(step.command)}" for step in content.next_steps(report)]
    yield "\n".join(
        [*steps, f"- Every case with input, output and reasons: {_code(f'{report.folder}/{report.source}')}"]
    )


def _kind(case: ScoredCase) -> str:
    return str(case.record.get("test_subcategory") or case.category)


def _code(text: str) -> str:
    """Format a command as code, within more backticks than it has in a row."""
    text = visible(" ".join(text.split()))
    return f"`` {text} ``" if "`" in text else f"`{text}`"
