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
    systems = current_catalog()
    schemas = {writer.name: writer.schema() for writer in systems.formats.writers if writer.schema is not None}
    if dialect == _SETTINGS:
        schema = settings.schema(systems.sections)
    elif dialect is not None:
        schema = schemas[dialect]
    else:
        schema = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "A test case in any format that evalloom writes",
            "anyOf": [{key: value for key, value in record.items() if key != "$schema"} for record in schemas.values()],
        }
    click.echo(json.dumps(schema, ensure_ascii=False, indent=2))
    return 0
