"""Findings for eyes: in colour, with the line of the file that each is about."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from evalloom.core.model import Finding, Severity
from evalloom.core.text import printable
from evalloom.files.source import read_lines
from evalloom.reports.lint import LintReport
from evalloom.reports.lint_text import closing, console_order

_STYLES: dict[Severity, str] = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def print_report(report: LintReport, console: Console | None = None) -> None:
    """Every finding with its line, then what was read and the verdict."""
    console = console or Console(highlight=False, soft_wrap=True)
    findings = console_order(report)
    wanted: dict[str, set[int]] = {}
    for finding in findings:
        if finding.origin.line:
            wanted.setdefault(finding.origin.file, set()).add(finding.origin.line)
    texts = {file: read_lines(str(report.base / file), lines) for file, lines in wanted.items()}
    for finding in findings:
        _print_finding(console, finding, texts.get(finding.origin.file, {}).get(finding.origin.line))
    *told, verdict = closing(report)
    for line in told:
        console.print(escape(line), style="dim")
    console.print(escape(verdict), style="bold green" if report.passed else "bold red")


def _print_finding(console: Console, finding: Finding, line: str | None) -> None:
    style = _STYLES[finding.severity]
    console.print(
        Text.assemble(
            (printable(str(finding.origin)), "bold"),
            ": ",
            (finding.severity, style),
            f": {printable(finding.message)} ",
            (f"[{finding.code}]", "dim"),
        )
    )
    if line is not None and finding.origin.column <= len(line) + 1:
        shown, caret = excerpt(line, finding.origin.column, console.width - 6)
        console.print(Text(f"    {shown}", style="dim"))
        console.print(Text(f"    {caret}", style=style))


def excerpt(line: str, column: int, width: int) -> tuple[str, str]:
    """The part of a line around a column, with nothing in it that drives a terminal, and a mark under the column."""
    from rich.cells import cell_len

    start = max(0, column - 1 - width // 3)
    shown = "".join(char if char.isprintable() else "·" for char in line[start : start + width])
    while cell_len(shown) > width:
        shown = shown[:-1]
    prefix = "…" if start else ""
    before = cell_len(prefix + shown[: column - 1 - start])
    return prefix + shown, " " * before + "^"
