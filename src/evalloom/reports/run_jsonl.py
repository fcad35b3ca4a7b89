"""A batch as JSON Lines: one run a line."""

from __future__ import annotations

from typing import IO

from evalloom.reports.run_report import RunReport, encode, row

name = "jsonl"
suffix = ".jsonl"


def render(report: RunReport, stream: IO[bytes]) -> None:
    for run, scored in report.rows:
        stream.write(encode(row(run, scored)) + b"\n")
