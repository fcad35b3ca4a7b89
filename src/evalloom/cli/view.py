"""`evalloom view`: opens the pages of this folder in the browser."""

from __future__ import annotations

from pathlib import Path

import click

from evalloom.batchlog import FOLDER, find
from evalloom.console.catalog import current_catalog
from evalloom.core.errors import usage_error
from evalloom.pages.site import Permissions
from evalloom.settings import load
from evalloom.web.serve import ServeOptions, serve


@click.command("view")
@click.argument("batch", required=False, default="")
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8420, metavar="N", help="Port. Default: 8420, or a free one."
)
@click.option("--allow-code", is_flag=True, help="Let batches that a page starts run code of data files, in a sandbox.")
@click.option("--config", default="", metavar="FILE", help="Settings file. Default: ./evalloom.yaml.")
@click.pass_context
def command(context: click.Context, batch: str, no_browser: bool, port: int, allow_code: bool, config: str) -> int:
    """Show batches, comparisons, history and test files in the browser, until Ctrl+C.

    BATCH is an id, a prefix of one, or 'latest'. Only this machine can reach the pages.

    \b
    evalloom view                 all batches of this folder
    evalloom view latest          the newest one
    """
    path = "/"
    if batch:
        found = find(batch)
        if found.resolve().parent != FOLDER.resolve():
            folder = found.resolve().parent.parent.parent
            message = (
                f"{batch}: expected a batch in {FOLDER.as_posix()}. Change to {folder} and call 'evalloom view' there"
            )
            raise usage_error("no_batch", message)
        path = f"/b/{found.name}"
    catalog = current_catalog()
    settings = load(Path(config) if config else None, catalog.sections)
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
