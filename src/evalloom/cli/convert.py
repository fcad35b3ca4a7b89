"""`evalloom convert`: converts test cases to another format."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

import click

from evalloom import catalog
from evalloom.console.catalog import current_catalog
from evalloom.console.options import reading_options, refuse_overwriting
from evalloom.core.errors import usage_error
from evalloom.core.text import pluralize, printable
from evalloom.data.dataset import Dataset
from evalloom.data.mapping import parse_mapping
from evalloom.engine.convert import Conversion, convert
from evalloom.engine.outputs import would_overwrite
from evalloom.files.source import source_of
from evalloom.files.write import atomic_writer

_FORMATS = [dialect.name for dialect in catalog.load().formats.writers]


@click.command("convert")
@click.argument("source", metavar="IN")
@click.option(
    "--to",
    required=True,
    type=click.Choice(_FORMATS),
    metavar="FORMAT",
    help=f"One of {', '.join(_FORMATS)}.",
)
@click.option("-o", "--output", default="-", metavar="OUT", help="Output file, .jsonl or .json. Default: stdout.")
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
@reading_options
def command(source: str, to: str, output: str, force: bool, dialect: str, mapping: str, encoding: str) -> int:
    """Convert test cases to another format. Fields that are lost are listed on stderr.

    Exit codes: 0 all cases were written; 2 some records could not be read; 3 could not finish.
    """
    formats = current_catalog().formats
    writer = formats.by_name(to)
    suffix = Path(output).suffix.lower()
    if output != "-" and suffix not in (".jsonl", ".ndjson", ".json"):
        raise usage_error("unknown_format", f"-o {output}: expected a file name ending in .jsonl or .json")
    if output != "-":
        refuse_overwriting([Path(output)], [Path(source)])
        # What a person wrote cannot be told from an earlier conversion.
        if not force and os.path.isfile(output) and os.path.getsize(output):
            raise would_overwrite(Path(output), "exists")
    as_array = suffix == ".json" or (output == "-" and writer.as_array)
    dataset = Dataset(source_of(source, encoding), formats, dialect, parse_mapping(mapping))
    if output == "-":
        conversion = convert(dataset, writer, sys.stdout.buffer, as_array)
        sys.stdout.flush()
    else:
        with suppress(_NothingWritten), atomic_writer(Path(output)) as stream:
            conversion = convert(dataset, writer, stream, as_array)
            if not conversion.written:
                raise _NothingWritten
    _print_summary(conversion, dataset, to, output)
    return 0 if conversion.written and not conversion.errors else 2


class _NothingWritten(Exception):
    """Ends the write, so that an existing file is not replaced by an empty one."""


def _print_summary(conversion: Conversion, dataset: Dataset, to: str, output: str) -> None:
    for finding in conversion.unread:
        click.echo(printable(str(finding)), err=True)
    if conversion.unlisted:
        click.echo(f"… and {pluralize(conversion.unlisted, 'more finding')}", err=True)
    for note, count in conversion.lost.most_common():
        click.echo(f"not carried over: {printable(note)} ({pluralize(count, 'case')})", err=True)
    if conversion.faulty:
        hint = f"see 'evalloom validate {dataset.source.name}'"
        click.echo(f"written with the errors they have: {pluralize(conversion.faulty, 'case')}; {hint}", err=True)
    where = "" if output == "-" else f" to {output}" if conversion.written else f", so {output} is left as it was"
    click.echo(f"{dataset.dialect.name} → {to}: {pluralize(conversion.written, 'case')} written{where}", err=True)
