"""`evalloom schema`: JSON Schema for editors."""

from __future__ import annotations

import json

import click

from evalloom.dialects import WRITERS


@click.command("schema")
@click.argument("dialect", required=False, type=click.Choice([dialect.name for dialect in WRITERS]))
def command(dialect: str | None) -> int:
    """Print the JSON Schema of one record of a format; without a format, of any of them."""
    schemas = {one.name: one.schema() for one in WRITERS if one.schema is not None}
    if dialect is not None:
        found = schemas[dialect]
    else:
        found = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "A test case in any format that evalloom writes",
            "anyOf": [{key: value for key, value in one.items() if key != "$schema"} for one in schemas.values()],
        }
    click.echo(json.dumps(found, ensure_ascii=False, indent=2))
    return 0
