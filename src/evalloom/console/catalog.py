"""The catalog of systems that the command line was started with."""

from __future__ import annotations

import click

from evalloom.engine.system import Catalog


def current_catalog() -> Catalog:
    """The catalog of the command that is running."""
    catalog = click.get_current_context().find_object(Catalog)
    if catalog is None:
        raise RuntimeError("no catalog: call the command through evalloom.cli.app.run, or pass obj=catalog.load()")
    return catalog
