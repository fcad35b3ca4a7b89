"""`evalloom serve`: projects, datasets, replays and runs over HTTP."""

from __future__ import annotations

from pathlib import Path

import click

from evalloom.console.catalog import current_catalog
from evalloom.replay.server.serve import ServeOptions, serve, token_of
from evalloom.settings import load


@click.command("serve")
@click.option("--host", default="127.0.0.1", metavar="HOST", help="Address to listen on. Default: 127.0.0.1.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8420, metavar="N", help="Port; 0 picks a free one. Default: 8420."
)
@click.option("--data-dir", default=".evalloom", metavar="DIR", help="Folder of stored data. Default: .evalloom.")
@click.option("--token-env", default="", metavar="VAR", help="Require the token in this environment variable.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="Also accept this host name, for use behind a proxy.")
@click.option("--config", default="", metavar="FILE", help="Settings file. Default: ./evalloom.yaml.")
def command(host: str, port: int, data_dir: str, token_env: str, allow_host: tuple[str, ...], config: str) -> int:
    """Serve projects, datasets, replays and runs over HTTP, until Ctrl+C.

    GET /openapi.json describes the API. Only this machine can reach it; another --host or --allow-host needs
    a token, which clients send as 'Authorization: Bearer …'.
    """
    settings = load(Path(config) if config else None, current_catalog().sections)
    token = token_of(token_env, settings.folder) if token_env else ""
    serve(ServeOptions(host, port, Path(data_dir), token, allow_host), settings)
    return 0
