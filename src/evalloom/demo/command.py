"""`evalloom demo`: all of it, on bundled examples, without a key and without a network."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from evalloom.console.run_text import Line, print_lines
from evalloom.core.model import Finding
from evalloom.demo import rag as demo_rag
from evalloom.demo import replay as demo_replay
from evalloom.demo import report as demo_report
from evalloom.demo import suites as workbench
from evalloom.demo.suites import COUNTED, Demo, Ran, Seen, Trip
from evalloom.files.write import write_text
from evalloom.reports.lint import in_line_order, tell

_WIDTH = 110
_STYLES = {"error": "red", "warning": "yellow", "info": "cyan"}


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
    examples = workbench.keep_examples(folder) if keep else workbench.find_examples()
    demo = workbench.run(examples, folder, folder / "converted" if keep else None)
    reports = (folder / "report.md", folder / "report.json")
    write_text(reports[0], demo_report.markdown(demo))
    write_text(reports[1], json.dumps(demo_report.document(demo), ensure_ascii=False, indent=2) + "\n")
    print_lines([*_account(demo), *_closing(demo, reports)])
    return 0 if demo.as_expected else 3


def _account(demo: Demo) -> Iterator[Line]:
    sound = [one for one in demo.seen if not one.example.is_faulty]
    faulty = [one for one in demo.seen if one.example.is_faulty]
    yield f"evalloom demo: {tell(len(demo.seen), 'file')} of {demo.examples.as_posix()}, no key, no network", "bold"
    yield from _heading("1. The examples, run and scored")
    for ran in demo.ran:
        yield from _ran_lines(ran)
    yield from _heading("2. What is in these files, and is it sound?")
    for one in sound:
        yield from _file_lines(one)
    yield from _heading("3. A file with one of every fault, to show what findings look like")
    for one in faulty:
        yield from _file_lines(one)
    yield from _heading("4. The five formats, each written in the others and back")
    yield from (_trip_line(trip) for trip in demo.trips if trip.start != trip.via)
    yield _rewriting_line([trip for trip in demo.trips if trip.start == trip.via])
    yield from _heading("5. Files from elsewhere, written as pipeline testsets")
    yield from (_trip_line(trip) for trip in demo.arrivals)
    yield from _heading("6. A context recipe, replayed: every row leaves a record, and a digest that tells of changes")
    yield f"  {demo_replay.sentence(demo.replayed)}{_surprise(demo.replayed.as_expected)}", ""
    for failure in demo.replayed.failures:
        yield f"      {_short(failure)}", "red"
    yield from _heading("7. A handbook, searched by official and by oral wordings of the same questions")
    yield f"  {demo_rag.sentence(demo.retrieved)}{_surprise(demo.retrieved.as_expected)}", ""


def _heading(text: str) -> Iterator[Line]:
    yield "", ""
    yield text, "bold cyan"


def _ran_lines(ran: Ran) -> Iterator[Line]:
    profiles = ran.results.summary.profiles if ran.results else {}
    for name, figures in profiles.items():
        label = f"{ran.suite.folder} · {name}" if len(profiles) > 1 else ran.suite.folder
        counts = "".join(f"{n:4} {status}" if (n := getattr(figures, status)) else "" for status in COUNTED)
        rate = "{} ({})".format(*demo_report.rates(figures))
        yield f"  {label:14} {tell(figures.total, 'run'):>8} {counts:39} {rate}{_surprise(ran.as_expected)}", ""
    if not profiles:
        yield f"  {ran.suite.folder:14} could not be run{_surprise(False)}", ""
    for failure in ran.failures()[:1]:
        yield f"      worst: {_short(failure)}", "red"


def _short(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _file_lines(one: Seen) -> Iterator[Line]:
    checked = one.checked
    found = [tell(n, word) for word in ("error", "warning") if (n := checked.count(word))]
    told = ", ".join(found) or "nothing wrong"
    yield f"  {checked.file:50} {tell(checked.cases, 'case'):>9}   {told}{_surprise(one.as_expected)}", ""
    yield f"      {checked.dialect}, because {checked.reason}", "dim"
    for finding in in_line_order(checked.findings):
        yield _finding_line(finding), _STYLES[finding.severity]


def _finding_line(finding: Finding) -> str:
    place = f"line {finding.origin.line}" if finding.origin.line else "file"
    return f"      {place + ':':9}{finding.severity}: {finding.message} [{finding.code}]"


def _trip_line(trip: Trip) -> Line:
    written = tell(trip.there.written, "case")
    if trip.back is None:
        text = f"  {Path(trip.file).name:>20} {f'({trip.start})':14} {written:>9}"
    else:
        text = f"  {trip.start:>12} → {trip.via:11} {written:>9}, {trip.back.written:2} back"
    return f"{text}   {_trip_words(trip)}{_surprise(trip.as_expected)}", _trip_style(trip)


def _trip_words(trip: Trip) -> str:
    lost = workbench.summary(trip.there)
    told = f"not carried over: {lost}" if lost else "everything carried over"
    return f"{told}; {trip.incomplete} incomplete as {trip.via} cases" if trip.incomplete else told


def _rewriting_line(trips: list[Trip]) -> Line:
    changed = [trip.start for trip in trips if not trip.as_expected]
    if changed:
        return f"  Written twice in its own format, the second differs: {', '.join(changed)}{_surprise(False)}", "red"
    return "  Written twice in its own format, each file is the same to the byte both times.", "green"


def _trip_style(trip: Trip) -> str:
    if trip.incomplete:
        return "yellow"
    return "" if workbench.summary(trip.there) else "green"


def _surprise(as_expected: bool) -> str:
    return "" if as_expected else "   NOT AS EXPECTED"


def _closing(demo: Demo, reports: tuple[Path, ...]) -> Iterator[Line]:
    verdict, style = "Everything behaved as expected: what failed above is meant to fail.", "bold green"
    if not demo.as_expected:
        verdict, style = "Something did not behave as expected: see NOT AS EXPECTED above.", "bold red"
    yield "", ""
    yield verdict, style
    yield f"The whole account: {' and '.join(path.as_posix() for path in reports)}", ""
    yield "", ""
    yield "Next:", "bold"
    for line in (*_show_commands(demo), *_next_commands(demo.examples)):
        yield f"  {line}", ""


def _show_commands(demo: Demo) -> Iterator[str]:
    """How to look at one of the records of each kind."""
    for results in [one.results for one in demo.ran if one.results][:1]:
        yield f"{_our_name()} batches show {shlex.quote(results.path.as_posix())}"
    where = shlex.quote(demo.replayed.data_dir)
    yield f"{_our_name()} replay show {demo.replayed.replay_id}-17 --data-dir {where}"
    yield f"{_our_name()} rag report {shlex.quote(demo.retrieved.record)} -o rag.html"


def _next_commands(examples: Path) -> Iterator[str]:
    us = _our_name()
    if examples.is_absolute():
        # Inside an installed package the paths are too long to type, so the first thing to do is to copy them.
        yield f"{us} demo --keep my-demo"
        examples = Path("my-demo/examples")

    def path(file: str) -> str:
        return shlex.quote((examples / file).as_posix())

    yield f"{us} run --config {path('first/evalloom.yaml')}"
    checks = "--check-sources-exist --check-must-include-in-sources"
    yield f"{us} validate {path('elsewhere/faulty_eval_cases.jsonl')} --root {path('rag')} {checks}"
    yield f"{us} inspect {path('hop/TestCases/hallucination_cases.jsonl')}"
    yield f"{us} convert {path('elsewhere/samples.jsonl')} --to pipeline"
    yield f"{us} init my-suite"


def _our_name() -> str:
    """What to type for `evalloom` here: in a checkout it is not on the PATH, but in `.venv/bin`."""
    if shutil.which("evalloom"):
        return "evalloom"
    script = Path(sys.argv[0])
    if script.name == "__main__.py":
        return f"{shlex.quote(Path(sys.executable).name)} -m evalloom"
    shown = script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script
    return shlex.quote(shown.as_posix())
