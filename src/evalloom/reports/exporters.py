"""Exporters: a batch in the result format of another tool. `evalloom export --as NAME` selects one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalloom.core.errors import EvalloomError, usage_error
from evalloom.reports.lazy import LazyReporter

if TYPE_CHECKING:
    from evalloom.reports.formats import RunReporter


class Exporter(LazyReporter, frozen=True):
    """A reporter in a format of another tool; `render` raises `cannot_export` where that format has no place."""

    summary: str = ""
    needs_records: bool = False
    """Whether a row is the record of its case with the result, so that an unreadable line has none."""


def cannot_export(format: str, reason: str) -> EvalloomError:
    """Return the error about a batch that a format cannot express."""
    return usage_error("cannot_export", f"--as {format}: {reason}")


def _otel() -> RunReporter:
    from evalloom.reports import run_otel

    return run_otel


OTEL = Exporter("otel", ".otlp.jsonl", _otel, "OpenTelemetry GenAI spans, as OTLP/JSON")
EXPORTERS: tuple[Exporter, ...] = (OTEL,)
"""Exporters that belong to no system."""
