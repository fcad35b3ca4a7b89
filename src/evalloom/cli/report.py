"""`evalloom report`: writes a stored batch to files, in any format that results have."""

from __future__ import annotations

import click

from evalloom.batchlog import find, manifest
from evalloom.console.catalog import current_catalog
from evalloom.console.options import FORCE, LANG
from evalloom.console.outcome import warn
from evalloom.console.run_options import OUTPUT
from evalloom.core.errors import usage_error
from evalloom.engine.outputs import (
    refuse_claimed,
    refuse_replacing_results,
    refuse_without_comparison,
    reporters_for,
    write_reports,
)


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
    # Deferred: it imports the comparison and all that it needs.
    from evalloom.engine.compare import ComparisonRequest, compare
    from evalloom.engine.report import compared_with, report_of, stored_results

    if not output:
        raise usage_error("bad_option", "report: expected a file to write, such as -o report.html")
    catalog = current_catalog()
    outputs = reporters_for(output, catalog.reporters)
    path = find(batch)
    refuse_replacing_results(outputs, force, manifest(path))
    if not force:
        refuse_claimed(file for file, _ in outputs)
    compared = None
    if against:
        refuse_without_comparison(outputs)
        request = ComparisonRequest(str(path), against, any_config=any_config)
        compared = compared_with(compare(request, warn, catalog), request)
    report = report_of(stored_results(path, catalog, config), catalog, language, compared)
    write_reports(report, outputs)
    for message in report.damage:
        warn(message)
    for file, _ in outputs:
        click.echo(f"wrote {file.as_posix()}")
    return 0
