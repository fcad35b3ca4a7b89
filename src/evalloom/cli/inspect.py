"""`evalloom inspect`: what is in a file."""

from __future__ import annotations

import click
import msgspec

from evalloom.console.catalog import current_catalog
from evalloom.console.options import reading_options
from evalloom.core.text import pluralize, printable, quote, shorten
from evalloom.data.dataset import Dataset
from evalloom.data.mapping import parse_mapping
from evalloom.engine.inspect import Contents, inspect
from evalloom.files.source import source_of


@click.command("inspect")
@click.argument("source", metavar="FILE")
@reading_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(source: str, dialect: str, mapping: str, encoding: str, as_json: bool) -> int:
    """Show what is in a file: dialect, cases, tags, fields, sizes and a sample."""
    contents = inspect(Dataset(source_of(source, encoding), current_catalog().formats, dialect, parse_mapping(mapping)))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(contents), indent=2))
    elif contents.records:
        _print(contents)
    else:
        click.echo(printable(contents.first_problem or f"{contents.file}: has no record in it"), err=True)
    return 0 if contents.records else 2


def _print(contents: Contents) -> None:
    sizes = contents.record_bytes
    told = {
        "file": contents.file,
        "dialect": f"{contents.dialect} ({contents.reason})",
        "records": f"{contents.records:,} in {pluralize(contents.lines, 'line')}, {pluralize(contents.cases, 'case')}",
        "sizes": f"{sizes['smallest']:,} to {sizes['largest']:,} bytes a record, {sizes['mean']:,} on average",
        "checks": ", ".join(f"{kind} {count:,}" for kind, count in contents.checks.items()) or "none",
        "tags": _most(contents.tags),
        "problems": f"{contents.problems:,}, the first: {contents.first_problem}" if contents.problems else "none",
    }
    for name, value in told.items():
        click.echo(f"{name:9} {printable(value)}")
    click.echo("fields")
    names = [printable(field.name) for field in contents.fields]
    width = max(map(len, names))
    for name, field in zip(names, contents.fields, strict=True):
        types = " or ".join(kind.removeprefix("a ").removeprefix("an ") for kind in field.types)
        share = "" if field.count == contents.records else f" in {field.count:,} of {contents.records:,}"
        click.echo(f"  {name:{width}}  {types}{share}, e.g. {quote(field.example)}")
    click.echo(f"sample    {printable(shorten(msgspec.json.encode(contents.sample).decode(), 300))}")


def _most(tags: dict[str, int], limit: int = 12) -> str:
    shown = ", ".join(f"{tag} {count:,}" for tag, count in list(tags.items())[:limit])
    return f"{shown}, and {len(tags) - limit} more" if len(tags) > limit else shown or "none"
