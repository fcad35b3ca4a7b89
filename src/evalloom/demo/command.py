"""`evalloom demo`: runs, validates and converts the bundled examples."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from evalloom.catalog import DEFAULT_DIALECT, load
from evalloom.console.layout import Line, command_lines, print_lines, table_lines
from evalloom.core.text import one_line, pluralize
from evalloom.demo import report
from evalloom.demo.report import COUNTED
from evalloom.demo.run import (
    ConversionResult,
    Demo,
    FileResult,
    SuiteResult,
    examples_of,
    keep_examples,
    run,
    summarize_lost,
    unchanged_copy,
)
from evalloom.engine.system import Catalog
from evalloom.files.write import write_text
from evalloom.reports.lint import in_line_order

_FAILURE_WIDTH = 200
_PROBLEM = "PROBLEM"
_STYLES = {"error": "red", "warning": "yellow", "info": "cyan"}
_FIRST_USE = ("run", "validate", "inspect", "convert")
"""The order in which a newcomer would type these commands."""


@click.command("demo")
@click.option(
    "-o",
    "--output",
    default="evalloom-demo",
    metavar="DIR",
    show_default=True,
    help="Write reports, batches and a copy of the examples here.",
)
@click.option(
    "--keep",
    default="",
    metavar="DIR",
    help="Write examples, converted files, reports and batches here.",
)
def command(output: str, keep: str) -> int:
    """Run, validate and convert the bundled examples.

    Needs no API key and no network: answers come from files. Some cases fail and one file has errors on purpose, to
    show what failures and findings look like.

    Exit codes: 0 every example ran; 3 an example could not be run, read or converted.
    """
    folder = Path(keep or output)
    catalog = load()
    # The copy is what runs, so that pages lead from a result to its file, and can run it again.
    examples = keep_examples(catalog, folder) if keep else unchanged_copy(catalog, folder)
    demo = run(catalog, examples, folder, folder / "converted" if keep else None)
    reports = (folder / "report.md", folder / "report.json")
    write_text(reports[0], report.markdown(demo))
    write_text(reports[1], json.dumps(report.document(demo), ensure_ascii=False, indent=2) + "\n")
    print_lines([*_demo_lines(demo), *_closing(demo, reports, catalog)])
    return 0 if demo.as_expected else 3


def _demo_lines(demo: Demo) -> Iterator[Line]:
    yield (
        f"evalloom demo: {pluralize(len(demo.files), 'file')} in {demo.examples.as_posix()}, no key, no network",
        "bold",
    )
    yield from _heading("1. Run and score the examples")
    yield from _suite_lines(demo.suites)
    yield from _heading("2. Validate their files")
    yield from _file_lines([file for file in demo.files if not file.example.is_faulty])
    yield from _heading("3. Validate a file that has every kind of error, to show findings")
    yield from _file_lines([file for file in demo.files if file.example.is_faulty])
    same_format = [trip for trip in demo.round_trips if trip.start == trip.via]
    yield from _heading(f"4. Convert each of {len(same_format)} formats to the others and back")
    yield from _round_trip_lines([trip for trip in demo.round_trips if trip.start != trip.via])
    changed = [trip.start for trip in same_format if not trip.as_expected]
    if changed:
        yield f"  {_PROBLEM}: written twice in its own format, the second file differs: {', '.join(changed)}", "red"
    else:
        yield "  Written twice in its own format, each file has the same bytes.", "green"
    yield from _heading(f"5. Convert files of other tools to {DEFAULT_DIALECT} testsets")
    rows = [[Path(trip.file).name, trip.start, str(trip.converted.written), _lost_text(trip)] for trip in demo.imports]
    yield from table_lines(["file", "format", "cases", "not carried over"], rows, indent=2)
    for number, (part, result) in enumerate(demo.parts, 6):
        yield from _heading(f"{number}. {part.heading}")
        yield f"  {result.sentence}{'' if result.as_expected else f' {_PROBLEM}'}", ""
        for line in result.details:
            yield f"      {one_line(line, _FAILURE_WIDTH)}", "red"


def _heading(text: str) -> Iterator[Line]:
    yield "", ""
    yield text, "bold cyan"


def _suite_lines(suites: list[SuiteResult]) -> Iterator[Line]:
    rows = []
    for suite in suites:
        for name, figures in suite.results.summary.profiles.items() if suite.results else ():
            counts = [str(getattr(figures, status)) for status in COUNTED]
            rows.append([suite.folder, name, str(figures.total), *counts, *report.rates(figures)])
    yield from table_lines(["example", "profile", "runs", *COUNTED, "pass rate", "95 % CI"], rows, indent=2)
    for suite in suites:
        if not suite.as_expected:
            yield f"  {_PROBLEM}: {suite.folder} could not be run to its end, or a gate does not hold", "bold red"
    yield "  The worst failure of each:", ""
    for suite in suites:
        for failure in suite.failures()[:1]:
            yield f"    {suite.folder}: {one_line(failure, _FAILURE_WIDTH)}", "red"


def _file_lines(files: list[FileResult]) -> Iterator[Line]:
    rows = []
    for file in files:
        checked = file.checked
        counts = [pluralize(n, severity) for severity in ("error", "warning") if (n := checked.count(severity))]
        counts += [] if file.as_expected else [_PROBLEM]
        rows.append([checked.file, checked.dialect, str(checked.cases), ", ".join(counts) or "-"])
    yield from table_lines(["file", "dialect", "cases", "findings"], rows, indent=2)
    for file in files:
        findings = in_line_order(file.checked.findings)
        if findings:
            yield f"  {file.checked.file}:", ""
        rows = [
            [
                f"line {finding.origin.line}:" if finding.origin.line else "file:",
                f"{finding.severity}: {finding.message} [{finding.code}]",
            ]
            for finding in findings
        ]
        yield from table_lines(["", ""], rows, [_STYLES[finding.severity] for finding in findings], indent=4)


def _round_trip_lines(trips: list[ConversionResult]) -> Iterator[Line]:
    rows = []
    for trip in trips:
        back = str(trip.back.written) if trip.back else "-"
        rows.append([trip.start, trip.via, str(trip.converted.written), back, _lost_text(trip)])
    yield from table_lines(["from", "to", "cases", "back", "not carried over"], rows, indent=2)


def _lost_text(trip: ConversionResult) -> str:
    """Return what a conversion could not carry over."""
    text = summarize_lost(trip.converted) or "-"
    text += f"; {trip.incomplete} incomplete as {trip.via} cases" if trip.incomplete else ""
    return text if trip.as_expected else f"{text}; {_PROBLEM}"


def _closing(demo: Demo, reports: tuple[Path, ...], catalog: Catalog) -> Iterator[Line]:
    yield "", ""
    if demo.as_expected:
        yield "All examples ran. The failures above are in the examples on purpose.", "bold green"
    else:
        yield f"Some examples did not work: see {_PROBLEM} above.", "bold red"
    yield f"Reports: {' and '.join(path.as_posix() for path in reports)}", ""
    yield "", ""
    yield "Next:", "bold"
    program = _program_name()
    # The page first: it shows all of the others' results.
    view = shlex.join(("view", reports[0].parent.as_posix()))
    for arguments in (view, *_show_commands(demo), *_next_commands(reports[0].parent / "examples", catalog)):
        yield from command_lines(f"{program} {arguments}", "  ")


def _show_commands(demo: Demo) -> Iterator[str]:
    """Yield the commands that show a batch, a replay and so on of this demo."""
    for results in [suite.results for suite in demo.suites if suite.results][:1]:
        yield shlex.join(("batches", "show", results.path.as_posix()))
    for _, result in demo.parts:
        yield from result.commands


def _next_commands(examples: Path, catalog: Catalog) -> Iterator[str]:
    """Yield commands to try on the examples, and the one that starts a suite."""
    commands = [command.split() for example in examples_of(catalog) for command in example.commands]
    commands.sort(key=lambda words: _FIRST_USE.index(words[0]) if words[0] in _FIRST_USE else len(_FIRST_USE))
    for words in commands:
        yield shlex.join(word.replace("{examples}", examples.as_posix()) for word in words)
    yield "init my-suite"


def _program_name() -> str:
    """Return what to type for `evalloom`: in a checkout it is not on the PATH, but in `.venv/bin`."""
    if shutil.which("evalloom"):
        return "evalloom"
    script = Path(sys.argv[0])
    if script.name == "__main__.py":
        return f"{shlex.quote(Path(sys.executable).name)} -m evalloom"
    shown = script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script
    return shlex.quote(shown.as_posix())
