"""`evalloom demo`: all of it, on bundled examples, without a key and without a network."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from evalloom.catalog import DEFAULT_DIALECT, load
from evalloom.console.run_text import Line, print_lines
from evalloom.core.model import Finding
from evalloom.core.text import pluralize, shorten
from evalloom.demo import report
from evalloom.demo.run import (
    ConversionResult,
    Demo,
    FileResult,
    SuiteResult,
    examples_of,
    find_examples,
    keep_examples,
    run,
    summarize_lost,
)
from evalloom.engine.example import COUNTED
from evalloom.engine.system import Catalog
from evalloom.files.write import write_text
from evalloom.reports.lint import in_line_order

_WIDTH = 110
_STYLES = {"error": "red", "warning": "yellow", "info": "cyan"}
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_FIRST_USE = ("run", "validate", "inspect", "convert")
"""The order in which somebody new would type these commands."""


@click.command("demo")
@click.option(
    "-o",
    "--output",
    default="evalloom-demo",
    metavar="DIR",
    help="Folder of the report and records.",
    show_default=True,
)
@click.option(
    "--keep",
    default="",
    metavar="DIR",
    help="Keep the examples, the converted files, the records and the report there.",
)
def command(output: str, keep: str) -> int:
    """Run, validate and convert the bundled examples, and say what was found.

    Needs no key and no network: answers come from files. Some cases fail on purpose, to show failures, and one of the
    files is faulty on purpose, to show findings.
    Exit codes: 0 everything behaved as expected, 3 something did not.
    """
    folder = Path(keep or output)
    catalog = load()
    examples = keep_examples(catalog, folder) if keep else find_examples(catalog)
    demo = run(catalog, examples, folder, folder / "converted" if keep else None)
    reports = (folder / "report.md", folder / "report.json")
    write_text(reports[0], report.markdown(demo))
    write_text(reports[1], json.dumps(report.document(demo), ensure_ascii=False, indent=2) + "\n")
    print_lines([*_account(demo), *_closing(demo, reports, catalog)])
    return 0 if demo.as_expected else 3


def _account(demo: Demo) -> Iterator[Line]:
    yield (
        f"evalloom demo: {pluralize(len(demo.files), 'file')} of {demo.examples.as_posix()}, no key, no network",
        "bold",
    )
    yield from _heading("1. The examples, run and scored")
    for suite in demo.suites:
        yield from _suite_lines(suite)
    yield from _heading("2. What is in these files, and is it sound?")
    for file in [file for file in demo.files if not file.example.faults]:
        yield from _file_lines(file)
    yield from _heading("3. A file with one of every fault, to show what findings look like")
    for file in [file for file in demo.files if file.example.faults]:
        yield from _file_lines(file)
    rewritten = [trip for trip in demo.round_trips if trip.start == trip.via]
    yield from _heading(f"4. The {_number(len(rewritten))} formats, each written in the others and back")
    yield from (_conversion_line(trip) for trip in demo.round_trips if trip.start != trip.via)
    yield _rewriting_line(rewritten)
    yield from _heading(f"5. Files from elsewhere, written as {DEFAULT_DIALECT} testsets")
    yield from map(_conversion_line, demo.imports)
    for number, (part, result) in enumerate(demo.parts, 6):
        yield from _heading(f"{number}. {part.heading}")
        yield f"  {result.sentence}{_surprise(result.as_expected)}", ""
        for line in result.details:
            yield f"      {shorten(line, _WIDTH)}", "red"


def _number(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)


def _heading(text: str) -> Iterator[Line]:
    yield "", ""
    yield text, "bold cyan"


def _suite_lines(suite: SuiteResult) -> Iterator[Line]:
    folder, profiles = suite.suite.folder, suite.results.summary.profiles if suite.results else {}
    for name, figures in profiles.items():
        label = f"{folder} · {name}" if len(profiles) > 1 else folder
        counts = "".join(f"{n:4} {status}" if (n := getattr(figures, status)) else "" for status in COUNTED)
        rate = "{} ({})".format(*report.rates(figures))
        yield f"  {label:14} {pluralize(figures.total, 'run'):>8} {counts:39} {rate}{_surprise(suite.as_expected)}", ""
    if not profiles:
        yield f"  {folder:14} could not be run{_surprise(False)}", ""
    for failure in suite.failures()[:1]:
        yield f"      worst: {shorten(failure, _WIDTH)}", "red"


def _file_lines(file: FileResult) -> Iterator[Line]:
    checked = file.checked
    counts = [pluralize(n, severity) for severity in ("error", "warning") if (n := checked.count(severity))]
    outcome = ", ".join(counts) or "nothing wrong"
    yield f"  {checked.file:50} {pluralize(checked.cases, 'case'):>9}   {outcome}{_surprise(file.as_expected)}", ""
    yield f"      {checked.dialect}, because {checked.reason}", "dim"
    for finding in in_line_order(checked.findings):
        yield _finding_line(finding), _STYLES[finding.severity]


def _finding_line(finding: Finding) -> str:
    place = f"line {finding.origin.line}" if finding.origin.line else "file"
    return f"      {place + ':':9}{finding.severity}: {finding.message} [{finding.code}]"


def _conversion_line(trip: ConversionResult) -> Line:
    written = pluralize(trip.there.written, "case")
    if trip.back is None:
        text = f"  {Path(trip.file).name:>20} {f'({trip.start})':14} {written:>9}"
    else:
        text = f"  {trip.start:>12} → {trip.via:11} {written:>9}, {trip.back.written:2} back"
    lost = summarize_lost(trip.there)
    text += f"   not carried over: {lost}" if lost else "   everything carried over"
    style = "" if lost else "green"
    if trip.incomplete:
        text += f"; {trip.incomplete} incomplete as {trip.via} cases"
        style = "yellow"
    return text + _surprise(trip.as_expected), style


def _rewriting_line(trips: list[ConversionResult]) -> Line:
    changed = [trip.start for trip in trips if not trip.as_expected]
    if changed:
        return f"  Written twice in its own format, the second differs: {', '.join(changed)}{_surprise(False)}", "red"
    return "  Written twice in its own format, each file is the same to the byte both times.", "green"


def _surprise(as_expected: bool) -> str:
    return "" if as_expected else "   NOT AS EXPECTED"


def _closing(demo: Demo, reports: tuple[Path, ...], catalog: Catalog) -> Iterator[Line]:
    verdict, style = "Everything behaved as expected: what failed above is meant to fail.", "bold green"
    if not demo.as_expected:
        verdict, style = "Something did not behave as expected: see NOT AS EXPECTED above.", "bold red"
    yield "", ""
    yield verdict, style
    yield f"The whole account: {' and '.join(path.as_posix() for path in reports)}", ""
    yield "", ""
    yield "Next:", "bold"
    us = _our_name()
    for command_line in (*_show_commands(demo), *_next_commands(demo.examples, catalog)):
        yield f"  {us} {command_line}", ""


def _show_commands(demo: Demo) -> Iterator[str]:
    """How to look at one of the records of each kind."""
    for results in [suite.results for suite in demo.suites if suite.results][:1]:
        yield shlex.join(("batches", "show", results.path.as_posix()))
    for _, result in demo.parts:
        yield from result.commands


def _next_commands(examples: Path, catalog: Catalog) -> Iterator[str]:
    """What to try on the examples, and a suite of one's own."""
    if examples.is_absolute():
        # Inside an installed package the paths are too long to type, so the first thing to do is to copy them.
        yield "demo --keep my-demo"
        examples = Path("my-demo/examples")
    commands = [command.split() for example in examples_of(catalog) for command in example.commands]
    commands.sort(key=lambda words: _FIRST_USE.index(words[0]) if words[0] in _FIRST_USE else len(_FIRST_USE))
    for words in commands:
        yield shlex.join(word.replace("{examples}", examples.as_posix()) for word in words)
    yield "init my-suite"


def _our_name() -> str:
    """What to type for `evalloom` here: in a checkout it is not on the PATH, but in `.venv/bin`."""
    if shutil.which("evalloom"):
        return "evalloom"
    script = Path(sys.argv[0])
    if script.name == "__main__.py":
        return f"{shlex.quote(Path(sys.executable).name)} -m evalloom"
    shown = script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script
    return shlex.quote(shown.as_posix())
