"""A batch as JUnit XML, which most CI servers can show: a suite for each profile, a test for each case."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from os.path import splitext
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from evalloom.core.model import Record, Status, Verdict
from evalloom.core.repeats import cases_of, count_of, meets
from evalloom.core.text import shorten
from evalloom.data.identity import readable_name
from evalloom.reports.run_report import ReportRow, RunReport, encode, is_open, not_passed, reason, why_without_verdicts

name = "junit"
suffix = ".xml"

_IN_MEMORY = 1 << 20
_LONGEST_VALUE = 4000
_ELEMENTS: dict[Status, str] = {
    "failed": "failure",
    "error": "error",
    "skipped": "skipped",
    "blocked": "skipped",
    "unscored": "skipped",
}
_COUNTS = {"failure": "failures", "error": "errors", "skipped": "skipped"}
# XML 1.0 has no way to write these, not even as references.
_ILLEGAL = (*range(9), 11, 12, *range(14, 32), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF)
_IN_TEXT = dict.fromkeys(_ILLEGAL, "") | str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
_IN_ATTRIBUTE = _IN_TEXT | str.maketrans({'"': "&quot;", "\t": "&#9;", "\n": "&#10;"})


def _element(repeats: list[ReportRow], report: RunReport) -> str:
    """Return the element that tells why a case did not pass; empty if it passed, in all repeats or by the pass rule."""
    run, worst = repeats[0]
    if worst.status == "passed" or meets(count_of(repeats), report.summary.get("pass_if")):
        return ""
    if report.is_quarantined(run):
        return "skipped"
    return "error" if is_open(worst, report.problem) else _ELEMENTS[worst.status]


class _Counts:
    """The counts in the opening tag of a suite."""

    def __init__(self) -> None:
        self.tests, self.time = 0, 0.0
        self.not_passed = dict.fromkeys(_COUNTS.values(), 0)

    def add(self, element: str, seconds: float) -> None:
        self.tests += 1
        self.time += seconds
        if element:
            self.not_passed[_COUNTS[element]] += 1

    def attributes(self) -> str:
        shown = {"tests": str(self.tests), **{kind: str(number) for kind, number in self.not_passed.items()}}
        return _attributes(shown | {"time": f"{self.time:.6f}"})


class _Suite:
    """The tests of one profile, buffered until its counts are complete."""

    def __init__(self, profile: str, body: IO[bytes]) -> None:
        self.profile = profile
        self.body = body
        self.counts = _Counts()

    def write_to(self, stream: IO[bytes]) -> None:
        opening = _attributes({"name": self.profile or "evalloom"})
        stream.write(f"  <testsuite{opening}{self.counts.attributes()}>\n".encode())
        self.body.seek(0)
        shutil.copyfileobj(self.body, stream)
        stream.write(b"  </testsuite>\n")


def render(report: RunReport, stream: IO[bytes]) -> None:
    suites: dict[str, _Suite] = {}
    total = _Counts()
    with ExitStack() as bodies:
        for repeats in cases_of(report.rows):
            profile = repeats[0][0].profile
            if profile not in suites:
                suites[profile] = _Suite(profile, bodies.enter_context(SpooledTemporaryFile(_IN_MEMORY)))
            suite = suites[profile]
            element = _element(repeats, report)
            seconds = sum(run.duration_s for run, _ in repeats)
            suite.counts.add(element, seconds)
            suite.body.write(_testcase(repeats, element, seconds, report.is_quarantined(repeats[0][0])).encode())
            total.add(element, seconds)
        for gate in report.gates:
            total.add("" if gate["holds"] else "failure", 0.0)
        stream.write(f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites{total.attributes()}>\n'.encode())
        for suite in suites.values():
            suite.write_to(stream)
        _write_gates(report.gates, stream)
        stream.write(b"</testsuites>\n")


def _write_gates(gates: list[Record], stream: IO[bytes]) -> None:
    """Write a suite with a test for each gate, so that a batch is not green when only a gate fails."""
    if not gates:
        return
    counts = _Counts()
    for gate in gates:
        counts.add("" if gate["holds"] else "failure", 0.0)
    stream.write(f"  <testsuite{_attributes({'name': 'gates'})}{counts.attributes()}>\n".encode())
    for gate in gates:
        opening = f"    <testcase{_attributes({'classname': 'gates', 'name': gate['text'], 'time': '0.000000'})}"
        failure = f"<failure{_attributes({'message': gate['reason'], 'type': 'gate'})}/>"
        body = "/>" if gate["holds"] else f">\n      {failure}\n    </testcase>"
        stream.write(f"{opening}{body}\n".encode())
    stream.write(b"  </testsuite>\n")


def _testcase(repeats: list[ReportRow], element: str, seconds: float, is_quarantined: bool) -> str:
    run, _ = repeats[0]
    shown = {
        # Without the suffix, which a CI server would take for the name of a class.
        "classname": splitext(run.origin.file)[0] or "evalloom",
        "name": run.case_id,
        "time": f"{seconds:.6f}",
    }
    if run.origin.file:
        # The name stays what it is when lines move; these say where the case is now.
        shown["file"] = run.origin.file
    if run.origin.line:
        shown["line"] = str(run.origin.line)
    opening = f"    <testcase{_attributes(shown)}"
    if not element:
        return f"{opening}/>\n"
    return f"{opening}>\n      {_outcome(repeats, element, is_quarantined)}\n    </testcase>\n"


def _outcome(repeats: list[ReportRow], element: str, is_quarantined: bool) -> str:
    """Explain a case by its worst repeat."""
    run, scored = repeats[0]
    verdicts = not_passed(scored)
    message = run.error or (reason(verdicts[0]) if verdicts else why_without_verdicts(scored))
    if len(repeats) > 1:
        passed, counted = count_of(repeats)
        message = f"{passed} of {counted} repeats passed: {message}"
    if is_quarantined:
        message = f"in quarantine: {message}"
    opening = f"{element}{_attributes({'message': message, 'type': scored.status})}"
    place = f"{run.origin.file}:{run.origin.line}" if run.origin.line else ""
    # A digest says nothing to a person, and many viewers show neither file nor line.
    name = readable_name(run.case_id, run.is_unnamed, run.raw, place)
    lines = [f"case {name}"] if name != run.case_id else []
    lines += [run.error] if run.error else [f"first went wrong at step {scored.step!r}"] if scored.step else []
    body = "\n".join(lines + [line for verdict in verdicts for line in _explained(verdict)])
    return f"<{opening}>{body.translate(_IN_TEXT)}</{element}>" if body else f"<{opening}/>"


def _explained(verdict: Verdict) -> Iterator[str]:
    yield reason(verdict)
    for mismatch in verdict.mismatches:
        yield f"  at {mismatch.path or verdict.where}"
        yield f"    expected {_value(mismatch.expected)}"
        yield f"    actual   {_value(mismatch.actual)}"


def _value(value: Any) -> str:
    return shorten(encode(value).decode(), _LONGEST_VALUE)


def _attributes(values: dict[str, str]) -> str:
    return "".join(f' {key}="{value.translate(_IN_ATTRIBUTE)}"' for key, value in values.items())
