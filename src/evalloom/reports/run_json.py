"""A batch as one JSON document, with each run on a line of its own."""

from __future__ import annotations

from typing import IO

import msgspec

from evalloom.reports.run_report import RunReport, encode, row

name = "json"
suffix = ".json"

shows_comparison = True

SCHEMA_VERSION = 1


def render(report: RunReport, stream: IO[bytes]) -> None:
    facts = {
        "schema_version": SCHEMA_VERSION,
        "tool": report.tool,
        "batch": report.batch,
        "summary": report.summary,
        "gates": report.gates,
        **({"comparison": report.compared.record} if report.compared else {}),
    }
    # The runs go into the same object, so its closing brace waits for them.
    stream.write(msgspec.json.format(encode(facts), indent=2).removesuffix(b"\n}") + b',\n  "runs": [')
    separator = b"\n    "
    for run, scored in report.rows:
        stream.write(separator + encode(row(run, scored)))
        separator = b",\n    "
    stream.write(b"]\n}\n" if separator == b"\n    " else b"\n  ]\n}\n")
