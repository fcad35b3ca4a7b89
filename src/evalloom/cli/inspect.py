"""`evalloom inspect`: shows the contents of a test file."""

from __future__ import annotations

from collections.abc import Iterator

import click
import msgspec

from evalloom.console.catalog import current_catalog
from evalloom.console.layout import Line, print_lines, table_lines
from evalloom.console.options import reading_options
from evalloom.core.text import one_line, pluralize, printable, quote
from evalloom.data.dataset import Dataset
from evalloom.data.mapping import parse_mapping
from evalloom.engine.inspect import Contents, inspect
from evalloom.files.source import source_of


@click.command("inspect")
@click.argument("source", metavar="FILE")
@reading_options
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def command(source: str, dialect: str, mapping: str, encoding: str, as_json: bool) -> int:
    """Show the dialect, cases, tags, fields, sizes and a sample of a file."""
    dataset = Dataset(source_of(source, encoding), current_catalog().formats, dialect, parse_mapping(mapping))
    contents = inspect(dataset)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(contents), indent=2))
    elif contents.records:
        print_lines(_lines(contents, ", ".join(scorer.form for scorer in dataset.dialect.scorers())))
    else:
        click.echo(printable(contents.first_problem or f"{contents.file}: has no record in it"), err=True)
    return 0 if contents.records else 2


def _lines(contents: Contents, scorers: str) -> Iterator[Line]:
    sizes = contents.record_bytes
    facts = {
        "file": contents.file,
        "dialect": f"{contents.dialect} ({contents.reason})",
        "records": f"{contents.records:,} in {pluralize(contents.lines, 'line')}, {pluralize(contents.cases, 'case')}",
        "sizes": f"{sizes['smallest']:,} to {sizes['largest']:,} bytes a record, {sizes['mean']:,} on average",
        "checks": ", ".join(f"{kind} {count:,}" for kind, count in contents.checks.items()) or "none",
        **({"scorers": scorers} if scorers else {}),
        "tags": _most_frequent(contents.tags),
        "problems": f"{contents.problems:,}, the first: {contents.first_problem}" if contents.problems else "none",
    }
    for name, value in facts.items():
        yield f"{name:9} {printable(value)}", ""
    yield "fields", ""
    rows = []
    for field in contents.fields:
        types = " or ".join(kind.removeprefix("a ").removeprefix("an ") for kind in field.types)
        share = "" if field.count == contents.records else f" in {field.count:,} of {contents.records:,}"
        rows.append([field.name, f"{types}{share}, e.g. {quote(field.example)}"])
    yield from table_lines(["", ""], rows, indent=2)
    yield f"sample    {one_line(msgspec.json.encode(contents.sample).decode(), 300)}", ""


def _most_frequent(tags: dict[str, int], limit: int = 12) -> str:
    shown = ", ".join(f"{tag} {count:,}" for tag, count in list(tags.items())[:limit])
    return f"{shown}, and {len(tags) - limit} more" if len(tags) > limit else shown or "none"
