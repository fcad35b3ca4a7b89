"""`evalloom validate`: what is wrong with test files."""

from __future__ import annotations

from pathlib import Path

import click

from evalloom.console.catalog import current_catalog
from evalloom.console.options import existing_folder, print_findings, reading_options, refuse_overwriting
from evalloom.data.contract import read_contract
from evalloom.data.dialect import Rules
from evalloom.data.mapping import parse_mapping
from evalloom.engine.lint import LintOptions, lint
from evalloom.files.write import write_text
from evalloom.reports import LINT_REPORTERS, by_suffix
from evalloom.settings import find_datasets


@click.command("validate")
@click.argument("paths", metavar="[FILE|FOLDER]…", nargs=-1)
@reading_options
@click.option("--root", default=".", help="Folder that expected_sources are relative to.")
@click.option("--check-sources-exist", is_flag=True, help="RAG: every expected source must exist under --root.")
@click.option("--check-must-include-in-sources", is_flag=True, help="RAG: look for must_include in the sources.")
@click.option("--pipeline", default="", metavar="FILE", help="Pipeline: check steps and inputs against this pipeline.")
@click.option("--contract", default="", metavar="FILE", help="HOP: metainfo.md, YAML or FILE.py[:function].")
@click.option("--strict", is_flag=True, help="Warnings fail too.")
@click.option(
    "--deep", is_flag=True, help="Also look for duplicates, contradictions, leaks and checks that cannot fail."
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice([reporter.name for reporter in LINT_REPORTERS]),
    default="text",
    help="What to print on stdout.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "-o",
    "--output",
    multiple=True,
    metavar="FILE",
    help=f"Also write a report: {' '.join(reporter.suffix for reporter in LINT_REPORTERS)}",
)
def command(
    paths: tuple[str, ...],
    dialect: str,
    mapping: str,
    encoding: str,
    root: str,
    check_sources_exist: bool,
    check_must_include_in_sources: bool,
    pipeline: str,
    contract: str,
    strict: bool,
    deep: bool,
    format_name: str,
    as_json: bool,
    output: tuple[str, ...],
) -> int:
    """Say what is wrong with test files, before a run is paid for.

    Files in JSONL, JSON, CSV or YAML, also packed (.gz, .zst); `-` is stdin. Without a path, the datasets that
    evalloom.yaml names. Exit codes: 0 nothing wrong, 2 errors found, 3 could not finish.
    """
    reporters = [(Path(file), by_suffix(Path(file), LINT_REPORTERS)) for file in output]
    refuse_overwriting((path for path, _ in reporters), map(Path, paths))
    rules = Rules(
        root=existing_folder(root),
        check_sources_exist=check_sources_exist,
        check_must_include_in_sources=check_must_include_in_sources,
        contract=read_contract(contract) if contract else None,
    )
    catalog = current_catalog()
    if pipeline:
        # Deferred: most files are checked without a pipeline.
        from evalloom.pipeline.target import with_pipeline

        rules = with_pipeline(rules, pipeline)
    options = LintOptions(dialect, parse_mapping(mapping), encoding, rules, strict, deep=deep)
    report = lint(paths or find_datasets(sections=catalog.sections), catalog, options)
    if format_name == "text" and not as_json:
        print_findings(report)
    else:
        wanted = "json" if as_json else format_name
        click.echo(next(r for r in LINT_REPORTERS if r.name == wanted).render(report), nl=False)
    # After the findings were shown: a report that cannot be written must not cost the user the findings too.
    for path, reporter in reporters:
        write_text(path, reporter.render(report))
    return report.exit_code
