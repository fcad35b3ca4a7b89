"""A batch as JUnit XML, which most CI servers can show: a suite for each profile, a test for each run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from os.path import splitext
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from evalloom.core.model import Run, Scored, Status, Verdict
from evalloom.core.text import shorten
from evalloom.reports.run_report import RunReport, encode, not_passed, reason

name = "junit"
suffix = ".xml"

_IN_MEMORY = 1 << 20
_LONGEST_VALUE = 4000
_COUNTED: dict[Status, str] = {
    "failed": "failures",
    "error": "errors",
    "skipped": "skipped",
    "blocked": "skipped",
    "unscored": "skipped",
}
_ELEMENTS = {"failures": "failure", "errors": "error", "skipped": "skipped"}
# XML 1.0 has no way to write these, not even as references.
_ILLEGAL = (*range(9), 11, 12, *range(14, 32), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF)
_IN_TEXT = dict.fromkeys(_ILLEGAL, "") | str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
_IN_ATTRIBUTE = _IN_TEXT | str.maketrans({'"': "&quot;", "\t": "&#9;", "\n": "&#10;"})


class _Counts:
    """The counts in the opening tag of a suite."""

    def __init__(self) -> None:
        self.tests, self.time = 0, 0.0
        self.not_passed = dict.fromkeys(_ELEMENTS, 0)

    def add(self, run: Run, scored: Scored) -> None:
        self.tests += 1
        self.time += run.duration_s
        if scored.status in _COUNTED:
            self.not_passed[_COUNTED[scored.status]] += 1

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
        for run, scored in report.rows:
            if run.profile not in suites:
                suites[run.profile] = _Suite(run.profile, bodies.enter_context(SpooledTemporaryFile(_IN_MEMORY)))
            suite = suites[run.profile]
            suite.counts.add(run, scored)
            suite.body.write(_testcase(run, scored).encode())
            total.add(run, scored)
        stream.write(f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites{total.attributes()}>\n'.encode())
        for suite in suites.values():
            suite.write_to(stream)
        stream.write(b"</testsuites>\n")


def _testcase(run: Run, scored: Scored) -> str:
    shown = {
        # Without the suffix, which a CI server would take for the name of a class.
        "classname": splitext(run.origin.file)[0] or "evalloom",
        # Counted from 1, as in the terminal.
        "name": f"{run.case_id} (repeat {run.repeat + 1})" if run.repeat else run.case_id,
        "time": f"{run.duration_s:.6f}",
    }
    opening = f"    <testcase{_attributes(shown)}"
    if scored.status == "passed":
        return f"{opening}/>\n"
    return f"{opening}>\n      {_outcome(run, scored)}\n    </testcase>\n"


def _outcome(run: Run, scored: Scored) -> str:
    element = _ELEMENTS[_COUNTED[scored.status]]
    verdicts = not_passed(scored)
    message = run.error or (reason(verdicts[0]) if verdicts else scored.status)
    opening = f"{element}{_attributes({'message': message, 'type': scored.status})}"
    lines = [run.error] if run.error else [f"first went wrong at step {scored.step!r}"] if scored.step else []
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
