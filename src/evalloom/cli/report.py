"""`evalloom report`: writes a stored batch to files, in any format that results have."""

from __future__ import annotations

import click

from evalloom.console.catalog import current_catalog
from evalloom.console.options import FORCE, LANG
from evalloom.console.outcome import warn
from evalloom.console.run_options import OUTPUT
from evalloom.engine.write_report import ReportRequest, write_report


@click.command("report")
@click.argument("batch")
@click.option("--against", default="", metavar="NAME", help="Show what changed against this baseline or batch.")
@click.option("--any-config", is_flag=True, help="Compare even if the configurations differ.")
@click.option("--config", default="", metavar="FILE", help="Settings file with the gates. Default: ./evalloom.yaml.")
@OUTPUT
@FORCE
@LANG
def command(
    batch: str, against: str, any_config: bool, config: str, output: tuple[str, ...], force: bool, language: str
) -> int:
    """Write a stored batch to files: an HTML page that opens from disk, a table, JUnit XML.

    BATCH is an id, a prefix of one, or 'latest'. Nothing is run or scored. The exit code says whether the files were
    written; it does not depend on what they show.

    \b
    evalloom report latest -o report.html
    evalloom report latest --against good -o report.html --lang zh
    evalloom report latest -o runs.csv -o junit.xml
    """
    request = ReportRequest(batch, output, against, any_config, config, force, language)
    for file in write_report(request, current_catalog(), warn):
        click.echo(f"wrote {file.as_posix()}")
    return 0
