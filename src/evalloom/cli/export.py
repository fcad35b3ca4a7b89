"""`evalloom export`: writes a batch in the result format of another tool."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

import click

from evalloom import catalog
from evalloom.batchlog import find, manifest
from evalloom.console.catalog import current_catalog
from evalloom.console.options import FORCE, refuse_overwriting
from evalloom.console.outcome import warn
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.text import one_line, pluralize, printable
from evalloom.engine.export import exporter_of, stored_report
from evalloom.engine.outputs import refuse_claimed, refuse_replacing_results
from evalloom.files.write import atomic_writer
from evalloom.reports import run_otel
from evalloom.reports.exporters import OTEL
from evalloom.reports.run_report import RunReport

_EXPORTERS = catalog.load().exporters
_FORMATS = "\n".join(f"  {exporter.name:13} {exporter.suffix:18} {exporter.summary}" for exporter in _EXPORTERS)
_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"


@click.command(
    "export",
    help=f"""Write a batch in the result format of another tool.

BATCH is an id, a prefix of one, 'latest' or a path. Nothing is run or scored again. What a format has no place for is
refused, never made up.

\b
Formats, with the extension that selects one:
{_FORMATS}

Exit codes: 0 all runs were written; 2 the format cannot express the batch; 3 could not finish.""",
)
@click.argument("batch")
@click.option(
    "--as", "format", default="", metavar="FORMAT", help=f"One of {', '.join(one.name for one in _EXPORTERS)}."
)
@click.option("-o", "--output", default="", metavar="FILE", help="Output file. Default: stdout.")
@click.option("--with-content", is_flag=True, help="otel: include messages, outputs, reasons and error texts.")
@click.option("--otlp", default="", metavar="URL", help="otel: send to this collector, e.g. http://localhost:4318.")
@FORCE
def command(batch: str, format: str, output: str, with_content: bool, otlp: str, force: bool) -> int:
    catalog = current_catalog()
    path = find(batch)
    stored = manifest(path)
    output = "" if output == "-" else output
    exporter = exporter_of(format or (OTEL.name if otlp else ""), output, catalog.exporters)
    for flag in ("--otlp",) * bool(otlp) + ("--with-content",) * with_content:
        if exporter is not OTEL:
            raise usage_error("bad_option", f"{flag}: goes with --as otel, got --as {exporter.name}")
    if output:
        refuse_overwriting([Path(output)], [Path(dataset.path) for dataset in stored.datasets])
        refuse_replacing_results([(Path(output), exporter)], force, stored)
        if not force:
            refuse_claimed([Path(output)])
    render = partial(run_otel.render, with_content=with_content) if exporter is OTEL else exporter.render
    report, rows = stored_report(path, catalog, warn)
    if report.state != "finished":
        warn(f"the batch {path.name} is not finished: the export has the runs so far [batch_unfinished]")
    if otlp:
        _send(report, otlp, with_content)
    if output:
        with atomic_writer(Path(output)) as stream:
            render(report, stream)
    elif not otlp:
        render(report, sys.stdout.buffer)
        sys.stdout.flush()
    for message in report.damage:
        warn(message)
    left_out = rows.without_record if exporter.needs_records else 0
    if left_out:
        message = f"{pluralize(left_out, 'run')} of lines that could not be read"
        warn(f"--as {exporter.name}: without {message}, which have no record to write [records_missing]")
    if output:
        click.echo(f"{exporter.name}: {pluralize(rows.runs - left_out, 'run')} written to {output}", err=True)
    return 0


def _send(report: RunReport, url: str, with_content: bool) -> None:
    from evalloom.engine.otlp import headers_in, send

    sent = send(report, url, headers_in(os.environ.get(_HEADERS, "")), with_content)
    click.echo(f"{pluralize(sent.runs, 'run')} sent", err=True)
    if sent.rejected:
        why = f": {one_line(printable(sent.reason), 200)}" if sent.reason else ""
        raise EvalloomError("otlp_rejected", f"--otlp: the collector rejected {pluralize(sent.rejected, 'span')}{why}")
