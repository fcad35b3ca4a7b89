"""`evalloom validate`: checks test files for errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from evalloom.catalog import load
from evalloom.console.catalog import current_catalog
from evalloom.console.options import FORCE, existing_folder, print_findings, reading_options, refuse_overwriting
from evalloom.core.errors import EvalloomError
from evalloom.data.dialect import Rules
from evalloom.data.mapping import parse_mapping
from evalloom.engine.lint import LintOptions, lint
from evalloom.engine.outputs import refuse_replacing
from evalloom.engine.parts import RuleFlag
from evalloom.engine.system import Catalog
from evalloom.files.write import write_text
from evalloom.reports import LINT_REPORTERS, by_suffix

Command = TypeVar("Command", bound=Callable[..., Any])


def _parameter(flag: RuleFlag) -> str:
    """Return the parameter name that click derives from a flag."""
    return flag.name.removeprefix("--").replace("-", "_")


def _rule_flags(command: Command) -> Command:
    """Add the flags of the systems, in the order of the catalog."""
    for flag in reversed(load().rule_flags):
        takes: dict[str, Any] = {"default": "", "metavar": flag.metavar} if flag.metavar else {"is_flag": True}
        command = click.option(flag.name, help=flag.help, **takes)(command)
    return command


@click.command("validate")
@click.argument("paths", metavar="[FILE|FOLDER]…", nargs=-1)
@reading_options
@click.option("--root", default=".", metavar="DIR", help="Folder of expected_sources. Default: the current folder.")
@_rule_flags
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.option("--deep", is_flag=True, help="Also find duplicates, contradictions, leaks and checks that cannot fail.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice([reporter.name for reporter in LINT_REPORTERS]),
    default="text",
    metavar="FORMAT",
    help=f"Output format: {', '.join(reporter.name for reporter in LINT_REPORTERS)}. Default: text.",
)
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
@click.option(
    "-o",
    "--output",
    multiple=True,
    metavar="FILE",
    help=f"Write a report: {' '.join(reporter.suffix for reporter in LINT_REPORTERS)}. Repeatable.",
)
@FORCE
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
    force: bool,
    **flags: str | bool,
) -> int:
    """Check test files for errors before a run.

    Reads JSONL, JSON, CSV and YAML files, also compressed (.gz, .zst); `-` is stdin. Without a path, checks the
    datasets of evalloom.yaml.

    Exit codes: 0 no errors; 2 errors; 3 could not finish.
    """
    reporters = [(Path(file), by_suffix(Path(file), LINT_REPORTERS)) for file in output]
    refuse_overwriting((path for path, _ in reporters), map(Path, paths))
    refuse_replacing([path for path, _ in reporters], force)
    catalog = current_catalog()
    rules = Rules(root=existing_folder(root))
    for flag in catalog.rule_flags:
        if value := flags.get(_parameter(flag)):
            rules = flag.apply(rules, value if isinstance(value, str) else "")
    options = LintOptions(
        dialect, parse_mapping(mapping), encoding, rules, strict, deep=deep, has_checks=_has_checks(catalog)
    )
    if not paths:
        from evalloom.settings import FILE_NAME, find_datasets  # deferred: files that are named need no settings

        report = lint(find_datasets(sections=catalog.sections), catalog, options, settings=Path(FILE_NAME))
    else:
        report = lint(paths, catalog, options)
    if format_name == "text" and not as_json:
        print_findings(report)
    else:
        wanted = "json" if as_json else format_name
        click.echo(next(r for r in LINT_REPORTERS if r.name == wanted).render(report), nl=False)
    # Print the findings first, so that a report that cannot be written does not hide them.
    for path, reporter in reporters:
        write_text(path, reporter.render(report))
    return report.exit_code


def _has_checks(catalog: Catalog) -> bool:
    """Whether the settings of this folder have checks for all cases, or say that none are meant."""
    from evalloom.settings import FILE_NAME  # deferred: most calls name files, in a folder without settings
    from evalloom.settings import load as load_settings

    if not Path(FILE_NAME).is_file():
        return False
    try:
        settings = load_settings(Path(FILE_NAME), catalog.sections)
        return bool(settings.checks or settings.run.no_checks)
    except EvalloomError:
        return False  # `evalloom run` and `evalloom doctor` say what is wrong with it
