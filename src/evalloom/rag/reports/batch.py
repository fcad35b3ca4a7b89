"""Exports a batch as the JSON report of `evalloom rag`."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import msgspec

from evalloom.core.model import Batch
from evalloom.rag.analysis.measures import analyse_all
from evalloom.rag.batches import KIND
from evalloom.rag.reports import json as rag_json
from evalloom.reports.exporters import cannot_export
from evalloom.reports.run_report import RunReport

name = "rag"
suffix = ".rag.json"


def render(report: RunReport, stream: IO[bytes]) -> None:
    batch = msgspec.convert(report.batch, Batch)
    if batch.config.get("kind") != KIND:
        message = f"{batch.id} is not a RAG batch: it has no retrieved sources with their ranks to measure"
        raise cannot_export(name, f"{message}. 'evalloom rag retrieve' and 'evalloom rag answer' make one")
    root = Path(batch.options["searching"]["root"])
    stream.write(rag_json.render(analyse_all(batch, report.rows), root).encode("utf-8", "backslashreplace"))
