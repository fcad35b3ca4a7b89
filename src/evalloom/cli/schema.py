"""`evalloom schema`: JSON Schema for editors."""

from __future__ import annotations

import json

import click

from evalloom import settings
from evalloom.console.catalog import current_catalog
from evalloom.data.registry import WRITERS

_SETTINGS = "settings"


@click.command("schema")
@click.argument("dialect", required=False, type=click.Choice([*(one.name for one in WRITERS), _SETTINGS]))
def command(dialect: str | None) -> int:
    """Print the JSON Schema of one record of a format, or of evalloom.yaml ('settings').

    Without a format, the schema of any of the formats.
    """
    schemas = {one.name: one.schema() for one in WRITERS if one.schema is not None}
    if dialect == _SETTINGS:
        found = settings.schema(current_catalog().sections)
    elif dialect is not None:
        found = schemas[dialect]
    else:
        found = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "A test case in any format that evalloom writes",
            "anyOf": [{key: value for key, value in one.items() if key != "$schema"} for one in schemas.values()],
        }
    click.echo(json.dumps(found, ensure_ascii=False, indent=2))
    return 0
