"""A batch as one HTML file that opens from disk: the summary as plain HTML, the runs as data that a script shows."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any
from urllib.parse import quote

from markupsafe import Markup

from evalloom.analysis.causes import Key, cause_key
from evalloom.analysis.gates import figure_text
from evalloom.analysis.tally import STATUSES
from evalloom.core.model import Record, Run, Scored
from evalloom.core.repeats import with_occurrence
from evalloom.core.text import shorten
from evalloom.reports import sentences
from evalloom.reports.chunks import ChunkWriter, element
from evalloom.reports.details import detail, snippet, value
from evalloom.reports.overview import Cause, Cell, Column, Failure, Overview, causes_by_key, failure_of
from evalloom.reports.run_report import RunReport, cell, encode, spent
from evalloom.ui import charts, html
from evalloom.ui.json_diff import compare_values
from evalloom.ui.language import Language, language

name = "html"
suffix = ".html"
shows_comparison = True

MOST_RUNS = 20_000
"""Runs in the table; of a larger batch those that did not pass come first."""
BUDGET = 9_500_000
"""Bytes that the details of all runs may take in the file."""
_IN_MEMORY = 1 << 20
_MOST_CAUSES, _MOST_CASES, _FIRST_CHANGES, _MOST_CHANGES = 20, 12, 8, 100
_MOST_CHOICES = 200
_LONGEST_BEFORE = 4_000
_LONGEST_EXAMPLE = 1_500
_LONGEST_REASON = 240
_SNIPPET, _SHORT_SNIPPET, _MANY_RUNS = 160, 90, 2_000
"""Characters of an input, an output and a reason in the table; fewer in a table of many runs."""
_TEMPLATES = Path(__file__).with_name("templates")
_SCRIPT, _STYLE = _TEMPLATES / "report.js", _TEMPLATES / "report.css"
_COLUMNS = (
    *("id", "profile", "repeat", "status", "score", "seconds", "tokens", "cost", "tags"),
    *("input", "output", "reason", "change"),
)
_RUNS_MARK = "<!-- runs -->"

_CaseKey = tuple[str, str, int]
"""Profile, case id and occurrence."""


def render(report: RunReport, stream: IO[bytes]) -> None:
    overview, table = Overview(report), _Table(report)
    with SpooledTemporaryFile(_IN_MEMORY) as details:
        table.fill(overview, details)
        page = _page(report, overview, table)
        # Everything that a user or a model wrote is escaped, so the mark can only be ours.
        before, _, after = page.partition(_RUNS_MARK)
        stream.write(before.encode())
        details.seek(0)
        shutil.copyfileobj(details, stream)
        stream.write(after.encode())


class _Table:
    """The runs in the order of the cases: a row of the index each, and the details in chunks."""

    def __init__(self, report: RunReport) -> None:
        self._report = report
        self._profiles: dict[str, int] = {}
        self._tags: dict[str, int] = {}
        self._changes = _changes(report)
        self._keys: list[Key | None] = []
        self._columns: dict[str, list[Any]] = {column: [] for column in _COLUMNS}
        self._starts: list[int] = []
        self.numbers: dict[_CaseKey, int] = {}
        """The number in the table of each case whose result changed, for links."""
        self.first: dict[str, int] = {}
        """The number of the first failing run of each case."""
        self.examples: dict[Key, Record] = {}
        """What the first run of each cause expected and got."""
        total, passed = (int(report.summary.get(key) or 0) for key in ("total", "passed"))
        self._room_for_passed = max(0, MOST_RUNS - (total - passed))
        self._total = total
        self._snippet = _SNIPPET if total <= _MANY_RUNS else _SHORT_SNIPPET

    @property
    def size(self) -> int:
        return len(self._keys)

    def fill(self, overview: Overview, stream: IO[bytes]) -> None:
        """Go through all runs once: count them, and write those that the table shows."""
        report = self._report
        by_number = bool(report.compared and report.compared.by_number)
        before = _outputs_before(report, self._changes)
        writer = ChunkWriter(stream, BUDGET, min(self._total or MOST_RUNS, MOST_RUNS))
        for id, occurrence, run, scored in with_occurrence(report.rows, by_number):
            failure = overview.add(run, scored)
            if not self._has_room(scored):
                continue
            key = (run.profile, id, occurrence)
            kind, other = self._changes.get(key, ("", None))
            if kind and key not in self.numbers:
                self.numbers[key] = self.size
            earlier = [] if other is None else before.get((other, run.repeat)) or before.get((other, 0)) or []
            case = report.case_of(run)
            writer.add(detail(run, scored, case, earlier, writer.room()))
            self._add_row(run, scored, failure, kind, snippet(case.inputs if case else run.raw, self._snippet))
        writer.flush()
        self._starts = writer.starts

    def _has_room(self, scored: Scored) -> bool:
        if self.size >= MOST_RUNS:
            return False
        if scored.status != "passed" or not self._total:
            return True
        self._room_for_passed -= 1
        return self._room_for_passed >= 0

    def _add_row(self, run: Run, scored: Scored, failure: Failure | None, change: str, inputs: str) -> None:
        tokens, cost = spent(run, scored)
        key = cause_key(*failure[1:]) if failure is not None and scored.status in ("failed", "error") else None
        if key is not None:
            self.first.setdefault(run.case_id, self.size)
            if key not in self.examples:
                self.examples[key] = _example(scored)
        self._keys.append(key)
        row = {
            "id": run.case_id,
            "profile": self._profiles.setdefault(run.profile, len(self._profiles)),
            "repeat": run.repeat,
            "status": STATUSES.index(scored.status),
            "score": None if scored.score is None else round(scored.score, 4),
            "seconds": round(run.duration_s, 6),
            "tokens": tokens,
            "cost": cost,
            "tags": [self._tags.setdefault(tag, len(self._tags)) for tag in run.tags],
            "input": inputs,
            "output": snippet(run.error or run.skipped or run.blocked or run.output.value, self._snippet),
            "reason": shorten(_reason(failure), int(1.5 * self._snippet)) if failure else "",
            "change": change,
        }
        for column, item in row.items():
            self._columns[column].append(item)

    def index(self, causes: list[Cause], t: Language) -> bytes:
        """Return what the script needs to show the table."""
        # More would be too many to choose from.
        causes = causes[:_MOST_CHOICES]
        numbers = causes_by_key(causes)
        columns = {**self._columns, "cause": [-1 if key is None else numbers.get(key, -1) for key in self._keys]}
        return encode(
            {
                "language": t.tag,
                "phrases": t.phrases_of(_SCRIPT),
                "statuses": [[status, t(sentences.STATUS_NAMES[status])] for status in STATUSES],
                "changes": {kind: t(words) for kind, words in sentences.CHANGE_NAMES.items()},
                "profiles": list(self._profiles),
                "tags": list(self._tags),
                "causes": [_cause_title(cause) for cause in causes],
                "starts": self._starts,
                "batch": self._report.batch.get("id", ""),
                "path": self._report.summary.get("path", ""),
                "runs": columns,
            }
        )


# -- the comparison ----------------------------------------------------------------------------------------


def _changes(report: RunReport) -> dict[_CaseKey, tuple[str, _CaseKey]]:
    """Return the kind of change of each case that changed, and its key on the other side."""
    if report.compared is None:
        return {}
    return {
        (comparison.profile, change.case_id, change.occurrence): (
            change.change,
            (comparison.base_profile, change.case_id, change.occurrence),
        )
        for comparison in report.compared.comparisons
        for change in comparison.changes
        if change.change != "same"
    }


def _outputs_before(
    report: RunReport, changes: dict[_CaseKey, tuple[str, _CaseKey]]
) -> dict[tuple[_CaseKey, int], list[Record]]:
    """Return the outputs of the other side for the cases that changed, by case and repeat."""
    compared, wanted = report.compared, {other for _, other in changes.values()}
    outputs: dict[tuple[_CaseKey, int], list[Record]] = {}
    for id, occurrence, run, scored in with_occurrence(compared.rows, compared.by_number) if compared else ():
        key = (run.profile, id, occurrence)
        if key in wanted:
            failure = None if scored.status == "passed" else failure_of(run, scored)
            shown = value(run.error or run.skipped or run.blocked or run.output.value, _LONGEST_BEFORE)
            outputs[key, run.repeat] = [
                {
                    "status": STATUSES.index(scored.status),
                    "reason": _reason(failure) if failure else "",
                    "output": shown,
                }
            ]
    return outputs


# -- the page ----------------------------------------------------------------------------------------------


def _page(report: RunReport, overview: Overview, table: _Table) -> str:
    t = language(report.language)
    summary, causes = overview.summary(), overview.causes()
    heat = overview.heat_map()
    latencies, latency_unit = _in_readable_unit(overview.latencies(), t)
    return html.render(
        _TEMPLATES,
        "report.html",
        script=_SCRIPT,
        style=_STYLE,
        language=t,
        runs_mark=Markup(_RUNS_MARK),
        index=Markup(element("index", table.index(causes, t)).decode()),
        sentences=sentences,
        report=report,
        compared=report.compared,
        summary=summary,
        facts=list(sentences.facts(t, report.batch)),
        causes=[_shown_cause(cause, number, table) for number, cause in enumerate(causes[:_MOST_CAUSES])],
        causes_left=len(causes) - _MOST_CAUSES,
        heat=heat,
        heat_heads=_heat_heads(t, overview),
        tags_left=len(overview.tags) - len(heat),
        heat_class=_heat_class,
        figure_text=figure_text,
        score_chart=_chart(t, overview.scores(), t("runs by score")),
        latency_chart=_chart(t, latencies, t("runs by latency in {unit}", unit=latency_unit)),
        latency_unit=latency_unit,
        interval=charts.interval,
        shown_runs=table.size,
        changes_of=lambda comparison, kind: _listed_changes(comparison, kind, table),
        first_changes=_FIRST_CHANGES,
        most_changes=_MOST_CHANGES,
        statuses=STATUSES,
        # Half characters are in the data as escapes, which UTF-8 can hold.
        url_quote=lambda text: quote(text.encode("utf-8", "backslashreplace"), safe=""),
    )


def _heat_heads(t: Language, overview: Overview) -> list[str]:
    profiles = [profile or "–" for profile in overview.tally.profiles()]
    return profiles if len(profiles) == 1 else [*profiles, t("all")]


def _heat_class(cell: Cell) -> str:
    """The shade of a rate: the lower, the redder."""
    if cell.rate is None:
        return "h0"
    return next(f"h{shade}" for shade, limit in enumerate((0.5, 0.7, 0.85, 0.95, 2), 1) if cell.rate < limit)


def _in_readable_unit(seconds: list[Column], t: Language) -> tuple[list[Column], str]:
    """Return columns of latencies with the unit in which their bounds are short."""
    if not seconds or seconds[-1].start >= 1:
        return seconds, t("seconds")
    return [column._replace(start=round(column.start * 1000, 9)) for column in seconds], t("milliseconds")


def _chart(t: Language, columns: list[Column], what: str) -> Markup | None:
    if not columns:
        return None
    words = "; ".join(
        t("from {start}: {count}", start=t.number(one.start), count=t.number(one.runs)) for one in columns
    )
    labels = [f"{column.start:g}" for column in columns]
    labels[-1] = f"≥ {labels[-1]}" if columns[-1].end is None else f"{labels[-1]}–{columns[-1].end:g}"
    shown = [charts.Column(column.runs, "rate-column", (label,)) for column, label in zip(columns, labels, strict=True)]
    return charts.column_chart(f"{what}: {words}", shown)


def _cause_title(cause: Cause) -> str:
    return shorten(" · ".join(filter(None, (cause.step, cause.check, cause.reason))), _LONGEST_REASON)


def _shown_cause(cause: Cause, number: int, table: _Table) -> Record:
    """Return a cause with links to its cases and the differences of its first case."""
    cases = [(id, table.first[id]) for id in cause.cases[:_MOST_CASES] if id in table.first]
    first = table.examples.get(cause_key(cause.step, cause.check, cause.example), {})
    return {
        "number": number,
        "cause": cause,
        "title": shorten(cause.reason, _LONGEST_REASON),
        "cases": cases,
        "more": len(cause.cases) - len(cases),
        "diff": compare_values(first["expected"], first["actual"]) if first else None,
    }


def _example(scored: Scored) -> Record:
    """Return the first difference of a run as two texts; nothing if its checks give none."""
    for verdict in scored.verdicts:
        if verdict.status == "failed" and verdict.mismatches:
            mismatch = verdict.mismatches[0]
            return {
                "expected": shorten(cell(mismatch.expected), _LONGEST_EXAMPLE),
                "actual": shorten(cell(mismatch.actual), _LONGEST_EXAMPLE),
            }
    return {}


def _reason(failure: Failure) -> str:
    return shorten(f"{failure.check}: {failure.reason}" if failure.check else failure.reason, _LONGEST_REASON)


def _listed_changes(comparison: Any, kind: str, table: _Table) -> list[tuple[Any, int | None]]:
    """Return the changes of a kind, each with the number of its run in the table."""
    return [
        (change, table.numbers.get((comparison.profile, change.case_id, change.occurrence)))
        for change in comparison.changes
        if change.change == kind
    ]


__all__ = ["BUDGET", "MOST_RUNS", "name", "render", "shows_comparison", "suffix"]
