"""`evalloom view`: opens the pages of a folder in the browser."""

from __future__ import annotations

import os
from pathlib import Path

import click

from evalloom.batchlog import FOLDER, find
from evalloom.batchlog.folders import is_batch
from evalloom.console.catalog import current_catalog
from evalloom.core.errors import usage_error
from evalloom.pages.site import Permissions
from evalloom.settings import load
from evalloom.web.serve import ServeOptions, serve


@click.command("view")
@click.argument("what", metavar="[BATCH|FOLDER]", required=False, default="")
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8420, metavar="N", help="Port. Default: 8420, or a free one."
)
@click.option("--allow-code", is_flag=True, help="Let batches that a page starts run code of data files, in a sandbox.")
@click.option("--config", default="", metavar="FILE", help="Settings file. Default: evalloom.yaml of the folder.")
@click.pass_context
def command(context: click.Context, what: str, no_browser: bool, port: int, allow_code: bool, config: str) -> int:
    """Show batches, comparisons, history and test files in the browser, until Ctrl+C.

    BATCH is an id, a prefix of one, 'latest' or a path. FOLDER has the batches in .evalloom; by default this one.
    Only this machine can reach the pages.

    \b
    evalloom view                 all batches of this folder
    evalloom view latest          the newest one
    """
    settings_file = Path(config).absolute() if config else None
    path = _enter(what)
    catalog = current_catalog()
    settings = load(settings_file, catalog.sections)
    options = ServeOptions(
        port=port,
        permissions=Permissions(run=True, code=allow_code),
        open_path=path,
        is_opened=not no_browser,
        # A port that was asked for is meant.
        takes_other_port=context.get_parameter_source("port") is click.core.ParameterSource.DEFAULT,
    )
    serve(options, settings, catalog)
    return 0


def _enter(what: str) -> str:
    """Change to the folder that is shown, and return the path of the first page."""
    if not what:
        return "/"
    if os.path.isdir(what) and not is_batch(Path(what)):
        os.chdir(what)
        return "/"
    batch = find(what).resolve()
    folder = batch.parent.parent.parent
    if batch.parent != folder / FOLDER:
        message = f"expected a batch in a folder {FOLDER.as_posix()}, got {batch}. Move it to such a folder"
        raise usage_error("no_batch", f"{what}: {message}")
    os.chdir(folder)
    return f"/b/{batch.name}"
