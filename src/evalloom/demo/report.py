"""The report of the demo, as a JSON document and as a Markdown page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

import evalloom
from evalloom.analysis.tally import Figures
from evalloom.console.layout import percent_interval
from evalloom.core.model import Record
from evalloom.core.text import percent, pluralize, printable
from evalloom.demo.run import ConversionResult, Demo, FileResult, SuiteResult
from evalloom.engine.example import DemoPart, DemoPartResult
from evalloom.reports.lint import in_line_order

SCHEMA_VERSION = 1
COUNTED = ("passed", "failed", "error", "unscored")
"""The statuses that runs of the examples have."""


def document(demo: Demo) -> dict[str, Any]:
    """Everything that the demo did, as one JSON document."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": "evalloom demo",
        "version": evalloom.__version__,
        "generated_at": demo.generated_at,
        "examples": demo.examples.as_posix(),
        "as_expected": demo.as_expected,
        "runs": [_suite_entry(result) for result in demo.suites],
        "files": [_file_entry(result) for result in demo.files],
        "conversions": [_conversion_entry(result) for result in (*demo.round_trips, *demo.imports)],
        **_part_entries(demo),
    }


def _part_entries(demo: Demo) -> dict[str, list[Record]]:
    entries: dict[str, list[Record]] = {}
    for part, result in demo.parts:
        entries.setdefault(part.key, []).append(result.entry)
    return entries


def _suite_entry(result: SuiteResult) -> dict[str, Any]:
    results = result.results
    outcome = {"fault": result.error} if results is None else {"summary": msgspec.to_builtins(results.summary)}
    return {
        "example": result.folder,
        "record": "" if results is None else results.path.as_posix(),
        **outcome,
        "gates": [] if results is None else [msgspec.to_builtins(gate) for gate in results.gates],
        "failures": result.failures(),
        "as_expected": result.as_expected,
    }


def _file_entry(result: FileResult) -> dict[str, Any]:
    checked = result.checked
    return {
        "file": checked.file,
        "dialect": checked.dialect,
        "reason": checked.reason,
        "lines": checked.lines,
        "cases": checked.cases,
        "errors": checked.count("error"),
        "warnings": checked.count("warning"),
        "expected": "FAIL" if result.example.is_faulty else "PASS",
        "as_expected": result.as_expected,
        "findings": [msgspec.to_builtins(finding) for finding in in_line_order(checked.findings)],
    }


def _conversion_entry(result: ConversionResult) -> dict[str, Any]:
    ways = {"there": result.converted, "back": result.back}
    return {
        "file": result.file,
        "from": result.start,
        "to": result.via,
        "cases": result.cases,
        "incomplete": result.incomplete,
        **{
            way: {"written": conversion.written, "not_carried_over": dict(conversion.lost.most_common())}
            for way, conversion in ways.items()
            if conversion is not None
        },
        "as_expected": result.as_expected,
    }


_SUITE_HEADER = ("example", "profile", "runs", *COUNTED, "pass rate", "95 % CI", "record", "as expected")
_FILE_HEADER = ("file", "dialect", "because", "cases", "errors", "warnings", "as expected")
_CONVERSION_HEADER = ("file", "from", "to", "cases", "there", "back", "incomplete there", "as expected")


def markdown(demo: Demo) -> str:
    """Everything that the demo did, as a page to read."""
    verdict = "All examples ran." if demo.as_expected else "Some examples did not work."
    where = demo.examples.as_posix()
    paragraphs = [
        "# evalloom demo",
        f"**{verdict}** evalloom {evalloom.__version__}, {demo.generated_at}, examples in `{where}`.",
        "## What was run",
        _table(_SUITE_HEADER, (row for result in demo.suites for row in _suite_rows(result))),
        *(text for result in demo.suites for text in _failures(result)),
        "## What was read",
        _table(_FILE_HEADER, map(_file_row, demo.files)),
        *(text for result in demo.files if result.checked.findings for text in _findings(result)),
        "## There and back",
        _table(_CONVERSION_HEADER, map(_conversion_row, demo.round_trips)),
        "## From elsewhere",
        _table(_CONVERSION_HEADER, map(_conversion_row, demo.imports)),
        *(text for part, result in demo.parts for text in _part(part, result)),
        "## What could not be carried over",
        *(text for result in (*demo.round_trips, *demo.imports) for text in _lost(result)),
    ]
    return "\n\n".join(paragraphs) + "\n"


def _table(header: tuple[str, ...], rows: Iterator[tuple[object, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _suite_rows(result: SuiteResult) -> Iterator[tuple[object, ...]]:
    folder = f"`{result.folder}`"
    if result.results is None:
        yield (folder, *("–",) * (len(_SUITE_HEADER) - 2), _yes(False))
        return
    for name, figures in result.results.summary.profiles.items():
        counts = [getattr(figures, status) for status in COUNTED]
        record = f"`{result.results.path.as_posix()}`"
        yield (folder, name, figures.total, *counts, *rates(figures), record, _yes(result.as_expected))


def rates(figures: Figures) -> tuple[str, str]:
    """Format the pass rate and its confidence interval."""
    if figures.pass_rate is None:
        return "–", "–"
    return percent(figures.pass_rate), percent_interval(figures.pass_rate_low, figures.pass_rate_high)


def _failures(result: SuiteResult) -> Iterator[str]:
    if failures := result.failures():
        yield f"### Failures in `{result.folder}`"
        yield "\n".join(["```text", *failures, "```"])


def _file_row(result: FileResult) -> tuple[object, ...]:
    checked = result.checked
    counts = (checked.cases, checked.count("error"), checked.count("warning"))
    return (f"`{checked.file}`", checked.dialect, checked.reason, *counts, _yes(result.as_expected))


def _findings(result: FileResult) -> Iterator[str]:
    yield f"### Findings in `{result.checked.file}`"
    yield "\n".join(["```text", *map(str, in_line_order(result.checked.findings)), "```"])


def _conversion_row(result: ConversionResult) -> tuple[object, ...]:
    back = "–" if result.back is None else result.back.written
    counts = (result.cases, result.converted.written, back, result.incomplete)
    return (f"`{result.file}`", result.start, result.via, *counts, _yes(result.as_expected))


def _part(part: DemoPart, result: DemoPartResult) -> Iterator[str]:
    yield f"## {part.title}"
    yield f"{result.sentence}."
    if result.details:
        yield "\n".join(f"- {printable(line)}" for line in result.details)


def _lost(result: ConversionResult) -> Iterator[str]:
    conversions = [(f"{result.start} → {result.via}", result.converted)]
    if result.back is not None and result.start != result.via:
        conversions.append((f"{result.start} → {result.via} → {result.start}, on the way back", result.back))
    for title, conversion in conversions:
        lines = [f"- {note} ({pluralize(count, 'case')})" for note, count in conversion.lost.most_common()]
        if lines:
            yield f"### {title}: `{result.file}`"
            yield "\n".join(lines)


def _yes(claim: bool) -> str:
    return "yes" if claim else "**no**"
