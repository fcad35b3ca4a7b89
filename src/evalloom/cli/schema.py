"""`evalloom schema`: prints JSON Schemas for editors."""

from __future__ import annotations

import json

import click

from evalloom import catalog, settings
from evalloom.console.catalog import current_catalog

_SETTINGS = "settings"
_CHOICES = [*(dialect.name for dialect in catalog.load().formats.writers), _SETTINGS]


@click.command("schema")
@click.argument("dialect", required=False, type=click.Choice(_CHOICES))
def command(dialect: str | None) -> int:
    """Print the JSON Schema of a record of a format, or of evalloom.yaml ('settings').

    Without a format, the schema accepts a record of any format.
    """
    known = current_catalog()
    schemas = {one.name: one.schema() for one in known.formats.writers if one.schema is not None}
    if dialect == _SETTINGS:
        found = settings.schema(known.sections)
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
