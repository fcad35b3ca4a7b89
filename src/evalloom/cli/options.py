"""Flags that several commands share, and how commands write their results."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from evalloom.errors import usage_error
from evalloom.reports import LINT_REPORTERS, LintReporter
from evalloom.reports.lint import LintReport

Command = TypeVar("Command", bound=Callable[..., Any])


def reading_options(command: Command) -> Command:
    """`--dialect`, `--map` and `--encoding`: how a file is to be read."""
    command = click.option("--encoding", default="", help="E.g. gb18030; UTF-8 and UTF-16 need not be named.")(command)
    command = click.option("--map", "mapping", default="", metavar="NEW=OLD,…", help="Names of fields in the file.")(
        command
    )
    return click.option("--dialect", default="", help="Read the file in this dialect instead of recognising it.")(
        command
    )


def reporter_for(path: Path) -> LintReporter:
    """The reporter whose files have this extension."""
    for reporter in LINT_REPORTERS:
        if reporter.suffix == path.suffix.lower():
            return reporter
    known = ", ".join(reporter.suffix for reporter in LINT_REPORTERS)
    raise usage_error("unknown_format", f"-o {path}: expected a file name ending in {known}")


def print_findings(report: LintReport) -> None:
    """Findings on stdout: plain lines, and on a terminal in colour with the offending line below each."""
    from evalloom.reports import lint_text

    if not sys.stdout.isatty():
        click.echo(lint_text.render(report), nl=False)
        return
    from evalloom.cli.terminal import print_report

    print_report(report)
