"""What the demo did, as a JSON document and as a page to read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

import evalloom
from evalloom.analysis.tally import Figures
from evalloom.demo import rag as demo_rag
from evalloom.demo import replay as demo_replay
from evalloom.demo.suites import COUNTED, Demo, Ran, Seen, Trip
from evalloom.reports.lint import in_line_order, printable, tell

SCHEMA_VERSION = 1


def document(demo: Demo) -> dict[str, Any]:
    """Everything that the demo did, as one JSON document."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": "evalloom demo",
        "version": evalloom.__version__,
        "generated_at": demo.generated_at,
        "examples": demo.examples.as_posix(),
        "as_expected": demo.as_expected,
        "runs": [_ran_entry(ran) for ran in demo.ran],
        "files": [_file_entry(one) for one in demo.seen],
        "conversions": [_trip_entry(trip) for trip in (*demo.trips, *demo.arrivals)],
        "replays": [demo_replay.entry(demo.replayed)],
        "retrievals": [demo_rag.entry(demo.retrieved)],
    }


def _ran_entry(ran: Ran) -> dict[str, Any]:
    results = ran.results
    told = {"fault": ran.fault} if results is None else {"summary": msgspec.to_builtins(results.summary)}
    return {
        "example": ran.suite.folder,
        "record": "" if results is None else results.path.as_posix(),
        **told,
        "gates": [] if results is None else [msgspec.to_builtins(gate) for gate in results.gates],
        "failures": ran.failures(),
        "expected": ran.suite.expected,
        "as_expected": ran.as_expected,
    }


def _file_entry(one: Seen) -> dict[str, Any]:
    checked = one.checked
    return {
        "file": checked.file,
        "dialect": checked.dialect,
        "reason": checked.reason,
        "lines": checked.lines,
        "cases": checked.cases,
        "errors": checked.count("error"),
        "warnings": checked.count("warning"),
        "expected": "FAIL" if one.example.is_faulty else "PASS",
        "as_expected": one.as_expected,
        "findings": [msgspec.to_builtins(finding) for finding in in_line_order(checked.findings)],
    }


def _trip_entry(trip: Trip) -> dict[str, Any]:
    entry = {"file": trip.file, "from": trip.start, "to": trip.via, "cases": trip.cases, "incomplete": trip.incomplete}
    ways = {"there": trip.there, "back": trip.back}
    told = {
        way: {"written": conversion.written, "not_carried_over": dict(conversion.lost.most_common())}
        for way, conversion in ways.items()
        if conversion is not None
    }
    return {**entry, **told, "as_expected": trip.as_expected}


_RAN_HEADER = ("example", "profile", "runs", *COUNTED, "pass rate", "95 % interval", "record", "as expected")
_TRIP_HEADER = ("file", "from", "to", "cases", "there", "back", "incomplete there", "as expected")


def markdown(demo: Demo) -> str:
    """Everything that the demo did, as a page to read."""
    verdict = "Everything behaved as expected." if demo.as_expected else "Something did not behave as expected."
    where = demo.examples.as_posix()
    parts = [
        "# evalloom demo",
        f"**{verdict}** evalloom {evalloom.__version__}, {demo.generated_at}, examples in `{where}`.",
        "## What was run",
        _table(_RAN_HEADER, (row for ran in demo.ran for row in _ran_rows(ran))),
        *(part for ran in demo.ran for part in _failures_part(ran)),
        "## What was read",
        _table(("file", "dialect", "because", "cases", "errors", "warnings", "as expected"), map(_file_row, demo.seen)),
        *(part for one in demo.seen if one.checked.findings for part in _findings_part(one)),
        "## There and back",
        _table(_TRIP_HEADER, map(_trip_row, demo.trips)),
        "## From elsewhere",
        _table(_TRIP_HEADER, map(_trip_row, demo.arrivals)),
        "## A context recipe, replayed",
        f"{demo_replay.sentence(demo.replayed)}.",
        "\n".join(f"- {printable(failure)}" for failure in demo.replayed.failures),
        "## A handbook, searched by official and by oral wordings",
        f"{demo_rag.sentence(demo.retrieved)}.",
        "## What could not be carried over",
        *(part for trip in (*demo.trips, *demo.arrivals) for part in _lost_part(trip)),
    ]
    return "\n\n".join(parts) + "\n"


def _table(header: tuple[str, ...], rows: Iterator[tuple[object, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _ran_rows(ran: Ran) -> Iterator[tuple[object, ...]]:
    if ran.results is None:
        yield (f"`{ran.suite.folder}`", *("–",) * (len(_RAN_HEADER) - 2), _yes(False))
        return
    for name, figures in ran.results.summary.profiles.items():
        counts = [getattr(figures, status) for status in COUNTED]
        record = f"`{ran.results.path.as_posix()}`"
        yield (f"`{ran.suite.folder}`", name, figures.total, *counts, *rates(figures), record, _yes(ran.as_expected))


def rates(figures: Figures) -> tuple[str, str]:
    """The pass rate and its 95 % interval, as people read them."""
    if figures.pass_rate is None:
        return "–", "–"
    return f"{figures.pass_rate:.1%}", f"{figures.pass_rate_low:.1%} – {figures.pass_rate_high:.1%}"


def _failures_part(ran: Ran) -> Iterator[str]:
    if failures := ran.failures():
        yield f"### Failures in `{ran.suite.folder}`"
        yield "\n".join(["```text", *failures, "```"])


def _file_row(one: Seen) -> tuple[object, ...]:
    checked = one.checked
    found = (checked.cases, checked.count("error"), checked.count("warning"))
    return (f"`{checked.file}`", checked.dialect, checked.reason, *found, _yes(one.as_expected))


def _findings_part(one: Seen) -> Iterator[str]:
    yield f"### Findings in `{one.checked.file}`"
    yield "\n".join(["```text", *map(str, in_line_order(one.checked.findings)), "```"])


def _trip_row(trip: Trip) -> tuple[object, ...]:
    back = "–" if trip.back is None else trip.back.written
    counts = (trip.cases, trip.there.written, back, trip.incomplete)
    return (f"`{trip.file}`", trip.start, trip.via, *counts, _yes(trip.as_expected))


def _lost_part(trip: Trip) -> Iterator[str]:
    ways = [(f"{trip.start} → {trip.via}", trip.there)]
    if trip.back is not None and trip.start != trip.via:
        ways.append((f"{trip.start} → {trip.via} → {trip.start}, on the way back", trip.back))
    for title, conversion in ways:
        lines = [f"- {note} ({tell(count, 'case')})" for note, count in conversion.lost.most_common()]
        if lines:
            yield f"### {title}: `{trip.file}`"
            yield "\n".join(lines)


def _yes(claim: bool) -> str:
    return "yes" if claim else "**no**"
