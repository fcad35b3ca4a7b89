"""`evalloom validate`: what is wrong with test files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from evalloom.catalog import load
from evalloom.console.catalog import current_catalog
from evalloom.console.options import existing_folder, print_findings, reading_options, refuse_overwriting
from evalloom.data.dialect import Rules
from evalloom.data.mapping import parse_mapping
from evalloom.engine.lint import LintOptions, lint
from evalloom.engine.system import RuleFlag
from evalloom.files.write import write_text
from evalloom.reports import LINT_REPORTERS, by_suffix
from evalloom.settings import find_datasets

Command = TypeVar("Command", bound=Callable[..., Any])


def _parameter(flag: RuleFlag) -> str:
    """The name that click gives the value of a flag."""
    return flag.name.removeprefix("--").replace("-", "_")


def _rule_flags(command: Command) -> Command:
    """The flags that systems add, in the order of the catalog."""
    for flag in reversed(load().rule_flags):
        takes: dict[str, Any] = {"default": "", "metavar": flag.metavar} if flag.metavar else {"is_flag": True}
        command = click.option(flag.name, help=flag.help, **takes)(command)
    return command


@click.command("validate")
@click.argument("paths", metavar="[FILE|FOLDER]…", nargs=-1)
@reading_options
@click.option("--root", default=".", help="Folder that expected_sources are relative to.")
@_rule_flags
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
    strict: bool,
    deep: bool,
    format_name: str,
    as_json: bool,
    output: tuple[str, ...],
    **flags: str | bool,
) -> int:
    """Say what is wrong with test files, before a run is paid for.

    Files in JSONL, JSON, CSV or YAML, also packed (.gz, .zst); `-` is stdin. Without a path, the datasets that
    evalloom.yaml names. Exit codes: 0 nothing wrong, 2 errors found, 3 could not finish.
    """
    reporters = [(Path(file), by_suffix(Path(file), LINT_REPORTERS)) for file in output]
    refuse_overwriting((path for path, _ in reporters), map(Path, paths))
    catalog = current_catalog()
    rules = Rules(root=existing_folder(root))
    for flag in catalog.rule_flags:
        if value := flags.get(_parameter(flag)):
            rules = flag.apply(rules, value if isinstance(value, str) else "")
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
