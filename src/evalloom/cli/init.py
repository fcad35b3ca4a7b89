"""`evalloom init`: a small suite to start from."""

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
    help="The format.",
)
def command(folder: str, dialect: str) -> int:
    """Write a small suite to start from: a few cases, what they test, and an evalloom.yaml that names both.

    `evalloom run` runs it at once: answers come from a file, so it needs no key and no network. The comments in
    evalloom.yaml say how to put a real model in its place.

    No file is overwritten. Exit codes: 0 written, 2 a file is already there, 3 could not be written.
    """
    for path in write_suite(Path(folder), _STARTERS[dialect]()):
        click.echo(f"wrote {path.as_posix()}")
    is_here = Path(folder).resolve() == Path.cwd()
    click.echo(f"Next: {'' if is_here else f'cd {shlex.quote(folder)} && '}evalloom run")
    return 0
