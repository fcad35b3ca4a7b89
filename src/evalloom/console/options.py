"""Options that several commands share, and the printing of findings."""

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
from evalloom.ui.language import LANGUAGES, language_of

Command = TypeVar("Command", bound=Callable[..., Any])


FORCE = click.option("--force", is_flag=True, help="Replace output files that are not reports of evalloom.")


LANG = click.option(
    "--lang",
    "language",
    type=click.Choice(LANGUAGES),
    callback=lambda context, option, choice: language_of(choice or "", os.environ),
    help="Language of HTML, Markdown and Excel reports. Default: zh if the locale is Chinese, else en.",
)


def reading_options(command: Command) -> Command:
    """Add `--dialect`, `--map` and `--encoding`."""
    command = click.option("--encoding", default="", help="Such as gb18030. UTF-8 and UTF-16 are detected.")(command)
    command = click.option(
        "--map", "mapping", default="", metavar="NEW=OLD,…", help="Map field names; NEW[]=OLD makes a list."
    )(command)
    shown = "Dialect of the file, with a scorer if it has any: inspect:includes. Default: detected."
    return click.option("--dialect", default="", help=shown)(command)


def refuse_overwriting(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Reject outputs that would overwrite an input."""
    read = {os.path.realpath(path) for path in inputs}
    for path in outputs:
        if os.path.realpath(path) in read:
            raise usage_error(
                "would_overwrite", f"{path.as_posix()}: is an input file. Choose another name for the output"
            )


def existing_folder(root: str) -> Path:
    """Return the folder that `--root` names."""
    if not os.path.isdir(root):
        raise EvalloomError("root_missing", f"--root {root}: there is no such folder")
    return Path(root)


def print_findings(report: LintReport, to_stderr: bool = False, is_spaced: bool = False) -> None:
    """Print findings as plain lines, on a terminal in colour with their lines of the file; `is_spaced` as in RAG-4."""
    if not (sys.stderr if to_stderr else sys.stdout).isatty():
        click.echo(lint_text.render_for_console(report, is_spaced), nl=False, err=to_stderr)
        return
    from evalloom.console.terminal import print_report

    print_report(report, to_stderr, is_spaced)
