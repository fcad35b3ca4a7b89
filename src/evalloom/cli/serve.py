"""`evalloom serve`: the pages and the HTTP API, for a team or for programs."""

from __future__ import annotations

from pathlib import Path

import click

from evalloom.console.catalog import current_catalog
from evalloom.pages.site import Permissions
from evalloom.settings import load
from evalloom.web.serve import ServeOptions, serve, token_of


@click.command("serve")
@click.option("--host", default="127.0.0.1", metavar="HOST", help="Address to listen on. Default: 127.0.0.1.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8420, metavar="N", help="Port; 0 picks a free one. Default: 8420."
)
@click.option("--data-dir", default=".evalloom", metavar="DIR", help="Folder of stored replays. Default: .evalloom.")
@click.option("--token-env", default="", metavar="VAR", help="Require the token in this environment variable.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="Also accept this host name, for use behind a proxy.")
@click.option("--allow-run", is_flag=True, help="Let those who have signed in start batches, which may cost money.")
@click.option("--allow-code", is_flag=True, help="Let those batches run code of data files, in a sandbox.")
@click.option("--config", default="", metavar="FILE", help="Settings file. Default: ./evalloom.yaml.")
def command(
    host: str,
    port: int,
    data_dir: str,
    token_env: str,
    allow_host: tuple[str, ...],
    allow_run: bool,
    allow_code: bool,
    config: str,
) -> int:
    """Serve the pages of this folder and the HTTP API, until Ctrl+C.

    GET /openapi.json describes the API. Only this machine can reach the server; another --host or --allow-host needs
    a token, which browsers ask for once and programs send as 'Authorization: Bearer …'.
    """
    catalog = current_catalog()
    settings = load(Path(config) if config else None, catalog.sections)
    token = token_of(token_env, settings.folder) if token_env else ""
    permissions = Permissions(allow_run, allow_code)
    serve(ServeOptions(host, port, Path(data_dir), token, allow_host, permissions), settings, catalog)
    return 0
