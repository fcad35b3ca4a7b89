"""`evalloom pipeline`: inspects a pipeline without running it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from evalloom.console.layout import Line, print_lines
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.text import pluralize, printable
from evalloom.pipeline.graph import as_mermaid, as_text
from evalloom.pipeline.target import Examined, chosen_variant, examine

_STYLES = {"error": "red", "warning": "yellow", "info": "dim"}


@click.group("pipeline")
def command() -> None:
    """Inspect a pipeline: show its data flow and check it for errors."""


@command.command("graph")
@click.argument("file", metavar="FILE")
@click.option("--variant", default="", metavar="V", help="Show the pipeline with this variant applied.")
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flowchart.")
def graph_command(file: str, variant: str, mermaid: bool) -> int:
    """Print the steps of a pipeline and the data flow between them."""
    examined = examine(Path(file))
    if examined.has_errors:
        print_lines(_findings(examined))
        raise usage_error("invalid_pipeline", f"{file}: has errors. Fix the errors listed above")
    flow = chosen_variant(examined, variant)
    for line in as_mermaid(flow) if mermaid else as_text(flow):
        click.echo(printable(line))
    return 0


@command.command("check")
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@click.option("--no-import", is_flag=True, help="Do not import the modules named by code_ref.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per finding.")
def check_command(files: tuple[str, ...], no_import: bool, as_json: bool) -> int:
    """Check pipelines, their agents, prompts and functions for errors.

    Exit codes: 0 no errors; 2 errors.
    """
    has_errors = False
    for file in files:
        try:
            examined = examine(Path(file), with_functions=not no_import)
        except EvalloomError as error:
            if len(files) == 1:
                raise
            click.echo(f"evalloom: {error}", err=True)
            has_errors = True
            continue
        has_errors |= examined.has_errors
        if as_json:
            for finding in examined.findings:
                click.echo(msgspec.json.encode(finding))
        else:
            print_lines([*_findings(examined), *_closing(file, examined)])
    return 2 if has_errors else 0


def _findings(examined: Examined) -> Iterator[Line]:
    for finding in examined.findings:
        yield printable(str(finding)), _STYLES[finding.severity]


def _closing(file: str, examined: Examined) -> Iterator[Line]:
    counts = [sum(finding.severity == word for finding in examined.findings) for word in ("error", "warning")]
    totals = f"{pluralize(counts[0], 'error')}, {pluralize(counts[1], 'warning')}"
    steps = len(examined.flows[""].steps) if examined.flows else 0
    declared = examined.pipeline.variants if examined.pipeline else {}
    variants = [name for name, variant in declared.items() if variant.at]
    more = f", variants {', '.join(variants)}" if variants else ""
    yield f"{printable(file)}: {pluralize(steps, 'step')}{printable(more)}, {totals}", "bold"
