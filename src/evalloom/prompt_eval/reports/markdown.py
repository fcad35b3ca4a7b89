"""The report of a prompt as a Markdown page, for pull requests and wikis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from evalloom.prompt_eval.plan import SCORES
from evalloom.prompt_eval.reports import content
from evalloom.prompt_eval.reports.content import PromptEvalReport
from evalloom.prompt_eval.scores import ScoredCase
from evalloom.ui.language import Language
from evalloom.ui.markdown import escape_markdown, markdown_table
from evalloom.ui.report_marks import MARKDOWN
from evalloom.ui.text import visible

if TYPE_CHECKING:
    from evalloom.prompt_eval.analysis.bad_cases import BadGroup
    from evalloom.prompt_eval.analysis.scorecard import PointFigures

name = "markdown"
suffix = ".md"


def render(report: PromptEvalReport, language: str = "en") -> str:
    t = content.report_language(language)
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
    parts = [part for section in sections for part in section(report, t)]
    return "\n\n".join([*parts, MARKDOWN]) + "\n"


def _head(report: PromptEvalReport, t: Language) -> Iterator[str]:
    yield f"# {escape_markdown(report.title)}"
    yield f"**{escape_markdown(content.headline(report.scorecard, t))}**"
    facts = [f"{escape_markdown(what)}: {escape_markdown(value)}" for what, value in content.facts(report, t)]
    if facts:
        yield " · ".join(facts)
    yield f"## {t('Overview')}"
    yield markdown_table(("", ""), "-r", content.overview(report, t))
    if remarks := list(content.remarks(report, t)):
        yield "\n".join(f"- {escape_markdown(remark)}" for remark in remarks)


def _safety(report: PromptEvalReport, t: Language) -> Iterator[str]:
    failures = report.scorecard.safety
    yield f"## {t('Safety failures')}"
    if not failures:
        yield t("None.")
        return
    rows = ((one.case.id, _kind(one.case), one.why.text(t), content.reason(one.case, one.point)) for one in failures)
    yield markdown_table((t("case"), t("category"), t("what"), t("reason")), "----", rows)


def _points(report: PromptEvalReport, t: Language) -> Iterator[str]:
    yield f"## {t('Test points')}"
    heads = (
        *(t("status"), t("test point"), t("name"), t("criticality"), t("cases"), t("average")),
        *("1", "2", "3", t("incomplete")),
    )
    rows = (
        (
            _status(report, one, t),
            one.id,
            one.point.name,
            t(content.CRITICALITIES.get(one.point.criticality, one.point.criticality)) or "–",
            f"{one.tally.cases:,}",
            content.average(one.tally),
            *(f"{count:,} ({content.rate(count, one.tally.cases, t)})" for count in one.tally.counts),
            f"{one.missing:,}",
        )
        for one in report.scorecard.points
    )
    yield markdown_table(heads, "----rrrrrr", rows)
    failed = report.scorecard.failed
    rules = " · ".join(f"{content.STATUS_SIGNS[status]} {t(rule)}" for status, rule in content.STATUS_RULES.items())
    sentence = t("{list}.", list=rules)
    if failed:
        sentence += t.count(
            failed, " {n} failed run left out of the averages.", " {n} failed runs left out of the averages."
        )
    yield sentence


def _status(report: PromptEvalReport, figures: PointFigures, t: Language) -> str:
    note = content.safety_note(report.scorecard, figures, t)
    return f"{content.STATUS_SIGNS[figures.status]} {t('; ').join(filter(None, (content.status(figures, t), note)))}"


def _bad_cases(report: PromptEvalReport, t: Language) -> Iterator[str]:
    yield f"## {t('Bad cases ({n})', n=f'{report.scorecard.bad:,}')}"
    if not report.scorecard.groups:
        yield t("None.")
    for point, called, groups in content.groups_by_point(report, t):
        number = sum(len(group.cases) for group in groups)
        yield f"### {escape_markdown(' · '.join(filter(None, (point, called))))} ({number:,})"
        for group in groups:
            title = escape_markdown(content.group_title(group, t))
            yield f"**{title}** ({t.count(len(group.cases), '{n} case', '{n} cases')})"
            yield _group(group, point, t)


def _group(group: BadGroup, point: str, t: Language) -> str:
    heads = (t("case"), t("category"), t("what it tests"), t("score"), t("reason"))
    rows = (
        (case.id, _kind(case), case.record.get("test_description"), content.score(case, t), content.reason(case, point))
        for case in group.cases
    )
    # The title of the group is the reason why the runs failed.
    return (
        markdown_table(heads, "---r-", rows) if point else markdown_table(heads[:3], "---", (row[:3] for row in rows))
    )


def _categories(report: PromptEvalReport, t: Language) -> Iterator[str]:
    card = report.scorecard
    yield f"## {t('Averages by category and test point')}"
    heads = (t("category"), t("cases"), t("passed"), t("bad"), *(one.id for one in card.points))
    rows = (
        (
            row.category or t("(none)"),
            f"{row.cases:,}",
            f"{row.passed:,}",
            f"{row.bad:,}",
            *(f"{content.average(tally)} (n {tally.cases:,})" if tally.cases else "–" for tally in row.tallies),
        )
        for row in card.categories
    )
    yield markdown_table(heads, "-rrr" + "r" * len(card.points), rows)


def _distribution(report: PromptEvalReport, t: Language) -> Iterator[str]:
    yield f"## {t('Scores of the cases')}"
    rows = (
        (content.bucket(one, t), f"{one.cases:,}", t("pass") if one.is_passing else "")
        for one in report.scorecard.buckets
    )
    yield markdown_table((t("share of the most"), t("cases"), ""), "rr-", rows)


def _agreement(report: PromptEvalReport, t: Language) -> Iterator[str]:
    if not report.agreement:
        return
    yield f"## {t('Agreement of the judge with people')}"
    heads = (
        *(t("test point"), t("cases"), t("same score")),
        *(t("95 % interval"), t("weighted kappa (95 %)"), t("judge is")),
    )
    rows = (
        (
            one.point,
            f"{one.cases:,}",
            content.rate(one.agreed, one.cases, t),
            content.interval(one.exact_interval, t),
            content.kappa(one, t),
            content.bias(one, t),
        )
        for one in report.agreement
    )
    yield markdown_table(heads, "-rrrrr", rows)
    yield t("Where they differ (rows: what people gave, columns: what the judge gave):")
    cells = (
        (one.point, str(human), *map(str, row))
        for one in report.agreement
        for human, row in enumerate(one.confusion, 1)
    )
    scores = (t("test point"), t("people"), *(t("judge {n}", n=score) for score in SCORES))
    yield markdown_table(scores, "-rrrr", cells)


def _noise(report: PromptEvalReport, t: Language) -> Iterator[str]:
    if not report.noise:
        return
    yield f"## {t('Noise of the judge when it scores again')}"
    rows = (
        (
            one.point,
            f"{one.cases:,}",
            content.rate(one.stable, one.cases, t),
            content.interval(one.interval, t),
            "–" if one.mean_range is None else f"{one.mean_range:.2f}",
        )
        for one in report.noise
    )
    heads = (t("test point"), t("cases"), t("always the same"), t("95 % interval"), t("mean range"))
    yield markdown_table(heads, "-rrrr", rows)


def _next(report: PromptEvalReport, t: Language) -> Iterator[str]:
    yield f"## {t('How to go on')}"
    steps = [
        f"- {t('{why}: {code}', why=escape_markdown(step.why), code=_code(step.command))}"
        for step in content.next_steps(report, t)
    ]
    source = _code(f"{report.folder}/{report.source}")
    everything = t("{why}: {code}", why=t("Every case with input, output and reasons"), code=source)
    yield "\n".join([*steps, f"- {everything}"])


def _kind(case: ScoredCase) -> str:
    return str(case.record.get("test_subcategory") or case.category)


def _code(text: str) -> str:
    """Format a command as code, within more backticks than it has in a row."""
    text = visible(" ".join(text.split()))
    return f"`` {text} ``" if "`" in text else f"`{text}`"
