"""`evalloom init`: creates a small suite."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from evalloom import catalog
from evalloom.engine.init import write_suite

_STARTERS = catalog.load().starters


@click.command("init")
@click.argument("folder", metavar="[DIR]", default=".")
@click.option(
    "--dialect",
    type=click.Choice(list(_STARTERS)),
    default=catalog.DEFAULT_DIALECT,
    show_default=True,
    metavar="FORMAT",
    help=f"One of {', '.join(_STARTERS)}.",
)
def command(folder: str, dialect: str) -> int:
    """Create a small suite: a few cases, a target and an evalloom.yaml.

    Run it with `evalloom run`. Answers come from a file, so it needs no API key and no network. The comments in
    evalloom.yaml explain how to use a real model. Existing files are not overwritten.

    Exit codes: 0 files were written; 2 a file exists already; 3 could not write.
    """
    for path in write_suite(Path(folder), _STARTERS[dialect]()):
        click.echo(f"wrote {path.as_posix()}")
    is_here = Path(folder).resolve() == Path.cwd()
    click.echo(f"Next: {'' if is_here else f'cd {shlex.quote(folder)} && '}evalloom run")
    return 0
