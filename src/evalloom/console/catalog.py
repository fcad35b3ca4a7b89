"""The catalog of the running command: the app puts it into click's context, commands take it from there."""

from __future__ import annotations

import click

from evalloom.engine.system import Catalog


def current_catalog() -> Catalog:
    """The catalog that the command was started with."""
    catalog = click.get_current_context().find_object(Catalog)
    if catalog is None:
        raise RuntimeError(
            "this command has no catalog: call it through evalloom.cli.app.run, or pass obj=evalloom.catalog.load()"
        )
    return catalog
