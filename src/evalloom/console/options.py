"""Flags that several commands share, and how commands write their results."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from evalloom.core.errors import EvalloomError, usage_error
from evalloom.reports import lint_text
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


def refuse_overwriting(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """What is written must not take the place of the data that is read."""
    read = {os.path.realpath(path) for path in inputs}
    for path in outputs:
        if os.path.realpath(path) in read:
            raise usage_error(
                "would_overwrite", f"{path.as_posix()}: is the file that is read. Give the output another name"
            )


def existing_folder(root: str) -> Path:
    """The folder that `--root` names."""
    if not os.path.isdir(root):
        raise EvalloomError("root_missing", f"--root {root}: there is no such folder")
    return Path(root)


def print_findings(report: LintReport, to_stderr: bool = False) -> None:
    """Findings as plain lines, and on a terminal in colour with the offending line below each."""
    if not (sys.stderr if to_stderr else sys.stdout).isatty():
        click.echo(lint_text.render_for_console(report), nl=False, err=to_stderr)
        return
    from rich.console import Console

    from evalloom.console.terminal import print_report

    print_report(report, Console(highlight=False, soft_wrap=True, stderr=to_stderr))
