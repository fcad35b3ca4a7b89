"""A batch as a Markdown page for a pull request: the conclusion first, details folded, below the limit of a comment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from msgspec import structs

from evalloom.analysis.compare import Change, Comparison, Kind
from evalloom.analysis.tally import STATUSES, Figures, ProfileFigures, Summary
from evalloom.core.model import Run, Scored
from evalloom.reports import sentences
from evalloom.reports.failing import failing_cases
from evalloom.reports.overview import Overview, failure_of
from evalloom.reports.run_report import ComparedWith, ReportRow, RunReport, cell, origin
from evalloom.ui.language import Language, language
from evalloom.ui.markdown import Markdown, code, markdown_table
from evalloom.ui.report_marks import MARKDOWN

name = "markdown"
suffix = ".md"
shows_comparison = True

LONGEST = 65_000
"""Characters of a page; GitHub refuses comments above 65,536."""
SHOWN_FAILURES = 10
_SHOWN_CHANGES = 10
_SHOWN_ROWS = 20
"""Profiles, gates, groups, causes and tags in a table."""
_NAME, _REASON, _VALUE = 80, 200, 120
"""Characters of a name, a reason and a value."""


def render(report: RunReport, stream: IO[bytes]) -> None:
    overview, failures, failing = Overview(report), list[ReportRow](), 0
    for failing, failure in enumerate(failing_cases(report, _counted(report.rows, overview)), 1):
        if failing <= SHOWN_FAILURES:
            failures.append(failure)
    # Half characters are in the data as escapes, which UTF-8 can hold.
    stream.write(_page(report, overview, failures, failing).encode("utf-8", "backslashreplace"))


def _counted(rows: Iterable[ReportRow], overview: Overview) -> Iterator[ReportRow]:
    for run, scored in rows:
        overview.add(run, scored)
        yield run, scored


def _page(report: RunReport, overview: Overview, failures: list[ReportRow], failing: int) -> str:
    t, summary = language(report.language), overview.summary()
    report = _with_escaped_texts(report)
    # Those above must be there; where there is no room for all, the last ones are left out.
    parts = [
        _first_line(t, report, summary),
        *_paragraphs(t, report),
        _profiles(t, summary, overview),
        *_comparisons(t, report.compared),
        *_gates(t, report),
        *_failures(t, failures, failing, len(summary.profiles) > 1),
        *_causes(t, overview),
        *_tags(t, overview),
        *_facts(t, report, summary),
    ]
    note = t("Parts are left out: a comment has at most {n} characters.", n=t.number(LONGEST))
    room = LONGEST - len(note) - len(MARKDOWN) - 8
    kept = []
    for part in parts:
        room -= len(part) + 2
        if room < 0:
            kept.append(note)
            break
        kept.append(part)
    return "\n\n".join([*kept, MARKDOWN]) + "\n"


def _with_escaped_texts(report: RunReport) -> RunReport:
    """Return the report with names and messages of users as code, because sentences are filled with them."""
    compared = report.compared
    if compared is not None:
        comparisons = [
            structs.replace(
                comparison,
                profile=code(comparison.profile, _NAME) or "–",
                base_profile=code(comparison.base_profile, _NAME) or "–",
            )
            for comparison in compared.comparisons[:_SHOWN_ROWS]
        ]
        compared = structs.replace(compared, name=code(compared.name, _NAME), comparisons=comparisons)
    answer = report.answer
    if answer:
        profiles = [{**one, "profile": code(one["profile"], _NAME)} for one in answer["profiles"][:_SHOWN_ROWS]]
        question = {**answer["question"], "baseline": code(answer["question"]["baseline"], _NAME)}
        answer = {**answer, "profiles": profiles, "question": question}
    damage = [code(message) for message in report.damage]
    missing = [code(message) for message in report.missing]
    return structs.replace(
        report, compared=compared, answer=answer, damage=damage, missing=missing, stopped=code(report.stopped)
    )


# -- the summary -------------------------------------------------------------------------------------------


def _first_line(t: Language, report: RunReport, summary: Summary) -> str:
    parts = [f"**{sentences.conclusion(t, summary)}**", sentences.beside(t, summary)]
    parts += [sentences.gate_counts(t, report.gates)] if report.gates else []
    parts += [sentences.compared_briefly(t, report.compared)] if report.compared else []
    return " ".join(filter(None, parts))


def _paragraphs(t: Language, report: RunReport) -> Iterator[str]:
    for remark in sentences.remarks(t, report):
        yield f"> {remark}"
    if report.answer:
        yield sentences.until_sure(t, report)


def _profiles(t: Language, summary: Summary, overview: Overview) -> str:
    # A status that no run has takes no column, except those that a reader looks for.
    always = ("passed", "failed", "error", "unscored")
    shown = [status for status in STATUSES if status in always or getattr(summary, status)]
    heads = [t("Profile"), t("Pass rate"), t("95 % CI")]
    heads += [*(t(sentences.STATUS_NAMES[status]) for status in shown), t("Cost"), "p50", "p95"]

    def row(title: Any, figures: Figures, latencies: Iterable[float | None]) -> list[Any]:
        counts = (t.number(getattr(figures, status)) for status in shown)
        rate = (t.percent(figures.pass_rate), t.interval(figures.pass_rate_low, figures.pass_rate_high))
        return [title, *rate, *counts, _cost(t, figures), *map(t.seconds, latencies)]

    rows = [row(code(name, _NAME) or "–", one, _latencies(one)) for name, one in _first(summary.profiles.items())]
    if len(summary.profiles) > 1:
        rows.append(row(t("all"), summary, overview.tally.group().latencies(0.5, 0.95)))
    table = markdown_table(heads, "-" + "r" * (len(heads) - 1), rows)
    left = len(summary.profiles) - _SHOWN_ROWS
    return f"{table}\n\n{t('and {n} more', n=t.number(left))}" if left > 0 else table


def _latencies(figures: ProfileFigures) -> tuple[float | None, float | None]:
    return figures.p50_latency_s, figures.p95_latency_s


def _cost(t: Language, figures: Figures) -> str:
    return t.number(figures.cost) if figures.cost or not figures.unpriced else "?"


def _gates(t: Language, report: RunReport) -> Iterator[str]:
    if report.gates:
        rows = (
            (t("holds") if gate["holds"] else t("does not hold"), code(gate["text"]), code(gate["reason"]))
            for gate in sorted(report.gates, key=lambda gate: bool(gate["holds"]))[:_SHOWN_ROWS]
        )
        yield f"### {t('Gates')}"
        yield markdown_table(("", t("Gate"), t("Reason")), "---", rows)


# -- the comparison ----------------------------------------------------------------------------------------


def _comparisons(t: Language, compared: ComparedWith | None) -> Iterator[str]:
    if compared is None:
        return
    for comparison in compared.comparisons:
        yield from _comparison(t, comparison, compared)
    if compared.differences:
        texts = "\n".join(f"- {code(sentences.difference(t, text))}" for text in compared.differences[:_SHOWN_ROWS])
        yield _folded(t("Other differences between the two"), texts)


def _comparison(t: Language, comparison: Comparison, compared: ComparedWith) -> Iterator[str]:
    name = compared.name if comparison.profile == comparison.base_profile else comparison.base_profile
    title = t("What changed against {name}", name=name)
    yield f"### {title} · {comparison.profile}" if len(compared.comparisons) > 1 else f"### {title}"
    verdict = t("{list}.", list=sentences.verdict_word(t, comparison))
    yield f"**{verdict}** {sentences.compared_sentence(t, comparison, compared)}"
    yield from sentences.compared_notes(t, comparison)
    yield from _changes(t, comparison, "lost", lambda title, table: f"**{title}**\n\n{table}")
    yield from _changes(t, comparison, "gained", _folded)
    groups = [*comparison.buckets, *comparison.tags]
    if groups:
        rows = (
            (
                code(one.name, _NAME),
                t.number(one.cases),
                t.percent(one.base_rate),
                t.percent(one.rate),
                t.points(one.difference),
                f"{t.points(one.low)} … {t.points(one.high)}",
            )
            for one in groups[:_SHOWN_ROWS]
        )
        heads = (t("Group"), t("Cases"), t("Before"), t("Now"), t("Change in points"), t("95 % CI"))
        yield _folded(t("Rates before and now"), markdown_table(heads, "-rrrrr", rows))


def _changes(t: Language, comparison: Comparison, kind: Kind, framed: Callable[[str, str], str]) -> Iterator[str]:
    changes = [change for change in comparison.changes if change.change == kind]
    if not changes:
        return
    rows = (
        (code(change.case_id, _NAME), _flip(t, change), code(change.reason, _REASON))
        for change in changes[:_SHOWN_CHANGES]
    )
    table = markdown_table((t("Case"), t("Change"), t("Reason")), "---", rows)
    left = len(changes) - _SHOWN_CHANGES
    more = f"\n\n{t('and {n} more', n=t.number(left))}" if left > 0 else ""
    yield framed(f"{t(sentences.CHANGE_NAMES[kind])} ({t.number(len(changes))})", table + more)


def _flip(t: Language, change: Change) -> str:
    before, now = (t(sentences.STATUS_NAMES[one]) if one else "–" for one in (change.before, change.now))
    if change.repeats[1] > 1 or change.repeats_before[1] > 1:
        (a, b), (c, d) = change.repeats_before, change.repeats
        return t("{a} of {b} before, {c} of {d} now", a=a, b=b, c=c, d=d)
    return f"{before} → {now}"


# -- failures ----------------------------------------------------------------------------------------------


def _failures(t: Language, failures: list[ReportRow], failing: int, by_profile: bool) -> Iterator[str]:
    if not failures:
        return
    if by_profile:
        yield f"### {t('Failed cases, each profile counted: {n}', n=t.number(failing))}"
    else:
        yield f"### {t.count(failing, '{n} case failed', '{n} cases failed')}"
    rows = (_failure_row(run, scored) for run, scored in failures)
    heads = (t("Case"), t("Place"), t("Check"), t("Reason"), t("Expected"), t("Actual"))
    yield markdown_table(heads, "------", rows)
    if failing > len(failures):
        yield t("and {n} more", n=t.number(failing - len(failures)))


def _failure_row(run: Run, scored: Scored) -> tuple[str, ...]:
    failure = failure_of(run, scored)
    mismatches = [one for verdict in scored.verdicts if verdict.status == "failed" for one in verdict.mismatches]
    expected = cell(mismatches[0].expected) if mismatches else ""
    actual = "" if run.error else cell(mismatches[0].actual if mismatches else run.output.value)
    case = " · ".join(filter(None, (code(run.case_id, _NAME), code(run.profile, _NAME))))
    return (
        Markdown(case),
        code(origin(run), _REASON),
        code(failure.check, _NAME),
        code(failure.reason, _REASON),
        code(expected, _VALUE),
        code(actual, _VALUE),
    )


# -- details -----------------------------------------------------------------------------------------------


def _folded(title: str, content: str) -> str:
    # Without the empty lines, GitHub would show the table as text.
    return f"<details><summary>{title}</summary>\n\n{content}\n\n</details>"


def _causes(t: Language, overview: Overview) -> Iterator[str]:
    causes = overview.causes()
    if len(overview.failures) > 1:
        rows = (
            (t.number(one.count), code(one.step, _NAME), code(one.check, _NAME), code(one.reason, _REASON))
            for one in causes[:_SHOWN_ROWS]
        )
        table = markdown_table((t("Runs"), t("First failing step"), t("Check"), t("Reason")), "r---", rows)
        yield _folded(f"{t('Why runs did not pass')} ({t.number(len(causes))})", table)


def _tags(t: Language, overview: Overview) -> Iterator[str]:
    heat = overview.heat_map()
    if heat:
        profiles = list(_first(overview.tally.profiles()))
        heads = [t("Tag"), *(code(profile, _NAME) or "–" for profile in profiles)]
        rows = ([code(row.tag, _NAME), *(t.percent(one.rate) for one in row.cells[: len(profiles)])] for row in heat)
        table = markdown_table(heads, "-" + "r" * len(profiles), rows)
        yield _folded(t("Pass rate by tag and profile"), table)


def _facts(t: Language, report: RunReport, summary: Summary) -> Iterator[str]:
    rows: list[tuple[str, str]] = [(title, code(text)) for title, text in sentences.facts(t, report.batch)]
    rows += [(t("Tokens"), t.number(summary.tokens)), (t("Time"), t.seconds(summary.duration_s))]
    for name, figures in _first(summary.profiles.items()):
        if figures.pass_at:
            rows.append((t("Repeats"), sentences.repeats(t, code(name, _NAME) or "–", figures)))
    yield _folded(t("Batch"), markdown_table(("", ""), "--", rows))


def _first(items: Iterable[Any]) -> list[Any]:
    return list(items)[:_SHOWN_ROWS]
