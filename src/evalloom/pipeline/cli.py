"""`evalloom pipeline`: look at a pipeline without running it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from evalloom.console.run_text import Line, print_lines
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.pipeline.graph import as_mermaid, as_text
from evalloom.pipeline.target import Examined, chosen_variant, examine
from evalloom.reports.lint import printable, tell

_STYLES = {"error": "red", "warning": "yellow", "info": "dim"}


@click.group("pipeline")
def command() -> None:
    """Look at a pipeline: how data goes through it, and what is wrong with it."""


@command.command("graph")
@click.argument("file", metavar="FILE")
@click.option("--variant", default="", metavar="V", help="The pipeline as this variant changes it.")
@click.option("--mermaid", is_flag=True, help="In Mermaid's words, for a page that draws it.")
def graph_command(file: str, variant: str, mermaid: bool) -> int:
    """Print the steps of a pipeline and how data goes between them."""
    found = examine(Path(file))
    if found.has_errors:
        print_lines(_findings(found))
        raise usage_error("invalid_pipeline", f"{file}: has errors, which stand above; mend them first")
    flow = chosen_variant(found, variant)
    for line in as_mermaid(flow) if mermaid else as_text(flow):
        click.echo(printable(line))
    return 0


@command.command("check")
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@click.option("--no-import", is_flag=True, help="Do not load the modules that code_ref names.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per finding.")
def check_command(files: tuple[str, ...], no_import: bool, as_json: bool) -> int:
    """Say what is wrong with pipelines, their agents, prompts and functions.

    Exit codes: 0 nothing, or warnings only; 2 errors.
    """
    has_errors = False
    for file in files:
        try:
            found = examine(Path(file), with_functions=not no_import)
        except EvalloomError as fault:
            if len(files) == 1:
                raise
            click.echo(f"evalloom: {fault}", err=True)
            has_errors = True
            continue
        has_errors |= found.has_errors
        if as_json:
            for finding in found.findings:
                click.echo(msgspec.json.encode(finding))
        else:
            print_lines([*_findings(found), *_closing(file, found)])
    return 2 if has_errors else 0


def _findings(found: Examined) -> Iterator[Line]:
    for finding in found.findings:
        yield printable(str(finding)), _STYLES[finding.severity]


def _closing(file: str, found: Examined) -> Iterator[Line]:
    counts = [sum(one.severity == word for one in found.findings) for word in ("error", "warning")]
    told = f"{tell(counts[0], 'error')}, {tell(counts[1], 'warning')}"
    steps = len(found.flows[""].steps) if found.flows else 0
    written = found.pipeline.variants if found.pipeline else {}
    variants = [name for name, variant in written.items() if variant.at]
    more = f", variants {', '.join(variants)}" if variants else ""
    yield f"{printable(file)}: {tell(steps, 'step')}{printable(more)}, {told}", "bold"
