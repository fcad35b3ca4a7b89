"""The commands of `evalloom` and its help.

Nothing here imports click: that takes longer than everything else that `evalloom --help` does.
"""

from __future__ import annotations

import os
import sys
from functools import cache

from evalloom import catalog
from evalloom.engine.system import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    import click

DESCRIPTION = """\
Test prompts, LLM pipelines, LLM functions, context recipes and RAG systems.

evalloom demo                        run the bundled examples
evalloom validate cases.jsonl        check a test file for errors
evalloom run cases.jsonl --target prompt:prompt.md --profile echo
evalloom batches show latest         show the runs of the last batch

Exit codes: 0 success; 1 cases failed; 2 wrong usage or invalid data; 3 could not finish.
"""
OPTIONS = {
    "--version": "Show the version and exit.",
    "--debug": "Show a traceback for internal errors.",
    "-h, --help": "Show this message and exit.",
}
_WIDEST, _NARROWEST = 78, 50


def _own(name: str, summary: str) -> Command:
    """Return a command of the engine, from the module of its name in this folder."""

    def load() -> click.Command:
        from importlib import import_module

        command: click.Command = import_module(f"evalloom.cli.{name}").command
        return command

    return Command(name, summary, load)


def _demo() -> click.Command:
    from evalloom.demo.command import command

    return command


RUNNING = (
    _own("run", "Run cases against a target, score them and store the batch."),
    _own("score", "Score a batch again without running it."),
    _own("compare", "Compare a batch with a baseline and report regressions."),
    _own("history", "Show pass rates over time, and cases that are newly failing or flaky."),
    _own("report", "Write a batch to files: HTML, Markdown, Excel, JSON, CSV, JUnit XML."),
    _own("baseline", "Save, list, show and remove baselines."),
    _own("batches", "List, show and remove batches."),
    _own("stats", "Summarize batches by tag, profile, check …, and failures by cause."),
    _own("sql", "Run an SQL query over batches."),
    _own("view", "Open batches, comparisons and test files in the browser."),
    _own("serve", "Serve the pages and the HTTP API, for a team or for programs."),
    _own("export", "Write a batch in the result format of another tool."),
)
FILES = (
    _own("validate", "Check test files for errors before a run."),
    _own("convert", "Convert test cases to another format."),
    _own("inspect", "Show the dialect, cases, tags and fields of a file."),
    _own("schema", "Print the JSON Schema of a format or of evalloom.yaml."),
    Command("demo", "Run, validate and convert the bundled examples.", _demo),
    _own("init", "Create a small suite to start from."),
    _own("doctor", "Check settings, API keys, endpoints and versions."),
)


@cache
def commands() -> dict[str, Command]:
    """Return every command by its name, in the order of the help."""
    return {command.name: command for command in (*RUNNING, *catalog.load().commands, *FILES)}


def help_text(name: str = "evalloom") -> str:
    """Return the help of `evalloom` itself, for the width of the terminal."""
    width = _width()
    lines = [f"Usage: {name} [OPTIONS] COMMAND [ARGS]...", ""]
    for line in DESCRIPTION.splitlines():
        # Examples, which are wider than sentences on a narrow terminal, stay on one line.
        lines += [f"  {line}"] if line.startswith("evalloom ") else _wrap(f"  {line}", 2, width)
    summaries = {command.name: command.summary for command in commands().values()}
    for title, rows in (("Options", OPTIONS), ("Commands", summaries)):
        indent = max(map(len, rows)) + 4
        lines += ["", f"{title}:"]
        for term, text in rows.items():
            lines += _wrap(f"  {term}".ljust(indent) + text, indent, width)
    return "\n".join(line.rstrip() for line in lines)


def _wrap(line: str, indent: int, width: int) -> Iterator[str]:
    """Break a line at spaces; the lines that follow are indented."""
    while len(line) > width:
        at = line.rfind(" ", indent, width + 1)
        if at <= indent:
            break
        yield line[:at]
        line = " " * indent + line[at + 1 :]
    yield line


def _width() -> int:
    # Not shutil.get_terminal_size, whose module takes 3 ms to import.
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns):
        width = int(columns)
    else:
        try:
            width = os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1).columns
        except (OSError, ValueError):
            width = 80
    return max(min(width - 2, _WIDEST), _NARROWEST)
