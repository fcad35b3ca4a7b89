"""Findings on a terminal: in colour, each with its line of the file."""

from __future__ import annotations

import click

from evalloom.console.layout import Line, cell_len, has_colour, print_lines, terminal_width
from evalloom.core.model import Severity
from evalloom.core.text import printable
from evalloom.files.source import read_lines
from evalloom.reports.lint import LintReport
from evalloom.reports.lint_text import closing, console_order, spacing

_COLOURS: dict[Severity, str] = {"error": "red", "warning": "yellow", "info": "cyan"}


def print_report(report: LintReport, to_stderr: bool = False, is_spaced: bool = False) -> None:
    """Print every finding with its line, then what was read and the conclusion; `is_spaced` as in RAG-4."""
    colour = has_colour(to_stderr)
    findings = console_order(report)
    wanted: dict[str, set[int]] = {}
    for finding in findings:
        if finding.origin.line:
            wanted.setdefault(finding.origin.file, set()).add(finding.origin.line)
    texts = {file: read_lines(str(report.base / file), lines) for file, lines in wanted.items()}
    for blanks, finding in zip(spacing(findings), findings, strict=True):
        if is_spaced:
            click.echo(blanks, nl=False, err=to_stderr)
        place, shade = printable(str(finding.origin)), _COLOURS[finding.severity]
        severity, code = str(finding.severity), f"[{finding.code}]"
        if colour:
            place, code = click.style(place, bold=True), click.style(code, dim=True)
            severity = click.style(severity, fg=shade, bold=finding.severity == "error")
        # Not wrapped: a terminal breaks the line itself, and the message can be copied in one piece.
        click.echo(f"{place}: {severity}: {printable(finding.message)} {code}", err=to_stderr)
        line = texts.get(finding.origin.file, {}).get(finding.origin.line)
        if line is not None and finding.origin.column <= len(line) + 1:
            shown, caret = excerpt(line, finding.origin.column, terminal_width() - 6)
            for text, style in ((shown, {"dim": True}), (caret, {"fg": shade})):
                click.echo("    " + (click.style(text, **style) if colour else text), err=to_stderr)
    *files, conclusion = closing(report)
    lines: list[Line] = [(line, "dim") for line in files]
    if is_spaced and findings:
        click.echo(err=to_stderr)
    print_lines([*lines, (conclusion, "bold green" if report.passed else "bold red")], to_stderr=to_stderr)
    if is_spaced:
        click.echo(err=to_stderr)


def excerpt(line: str, column: int, width: int) -> tuple[str, str]:
    """Return the part of a line around a column, with control characters replaced, and a caret under the column."""
    start = max(0, column - 1 - width // 3)
    shown = "".join(char if char.isprintable() else "·" for char in line[start : start + width])
    while cell_len(shown) > width:
        shown = shown[:-1]
    prefix = "…" if start else ""
    before = cell_len(prefix + shown[: column - 1 - start])
    return prefix + shown, " " * before + "^"
