"""`evalloom convert`: the cases of a file in another format."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from evalloom.cli.options import reading_options
from evalloom.dialects import WRITERS, by_name
from evalloom.dialects.dataset import Dataset
from evalloom.dialects.mapping import parse_mapping
from evalloom.errors import usage_error
from evalloom.files.source import source_of
from evalloom.files.write import atomic_writer
from evalloom.reports.lint import tell
from evalloom.workbench.convert import Conversion, convert


@click.command("convert")
@click.argument("source", metavar="IN")
@click.option(
    "--to", required=True, type=click.Choice([dialect.name for dialect in WRITERS]), help="The format to write."
)
@click.option("-o", "--output", default="-", metavar="OUT", help="A .jsonl or .json file; stdout by default.")
@reading_options
def command(source: str, to: str, output: str, dialect: str, mapping: str, encoding: str) -> int:
    """Write the cases of a file in another format; what that format cannot hold is listed on stderr.

    Exit codes: 0 every case was written, 2 some records could not be read, 3 could not finish.
    """
    writer = by_name(to)
    suffix = Path(output).suffix.lower()
    if output != "-" and suffix not in (".jsonl", ".ndjson", ".json"):
        raise usage_error("unknown_format", f"-o {output}: expected a file name ending in .jsonl or .json")
    as_array = suffix == ".json" or (output == "-" and writer.as_array)
    dataset = Dataset(source_of(source, encoding), dialect, parse_mapping(mapping))
    if output == "-":
        conversion = convert(dataset, writer, sys.stdout.buffer, as_array)
        sys.stdout.flush()
    else:
        with atomic_writer(Path(output)) as stream:
            conversion = convert(dataset, writer, stream, as_array)
    _tell(conversion, dataset, to, output)
    return 2 if any(finding.severity == "error" for finding in conversion.unread) or not conversion.written else 0


def _tell(conversion: Conversion, dataset: Dataset, to: str, output: str) -> None:
    for finding in conversion.unread:
        click.echo(str(finding), err=True)
    for note, count in conversion.lost.most_common():
        click.echo(f"not carried over: {note} ({tell(count, 'case')})", err=True)
    if conversion.faulty:
        hint = f"see 'evalloom validate {dataset.source.name}'"
        click.echo(f"{tell(conversion.faulty, 'case')} written as they are have errors: {hint}", err=True)
    where = "" if output == "-" else f" to {output}"
    click.echo(f"{dataset.dialect.name} → {to}: {tell(conversion.written, 'case')} written{where}", err=True)
