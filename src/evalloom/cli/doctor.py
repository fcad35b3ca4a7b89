"""`evalloom doctor`: checks settings, API keys, endpoints and versions."""

from __future__ import annotations

import click
import msgspec

from evalloom.console.catalog import current_catalog
from evalloom.console.layout import print_lines, table_lines
from evalloom.engine.doctor import examine

_STYLES = {"ok": "", "warning": "yellow", "error": "bold red"}


@click.command("doctor")
@click.option("--config", default="", metavar="FILE", help="Settings file. Default: ./evalloom.yaml.")
@click.option("--offline", is_flag=True, help="Ask no llm.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as a JSON list.")
def command(config: str, offline: bool, as_json: bool) -> int:
    """Check settings, API keys, endpoints and versions.

    Asks each llm of the settings one short question with its key, which costs a few tokens. Shows whether a key is set,
    never the key itself.

    Exit codes: 0 no errors; 3 errors.
    """
    findings = examine(current_catalog(), config, offline)
    if as_json:
        click.echo(msgspec.json.encode(findings))
        return 3 if any(finding.state == "error" for finding in findings) else 0
    rows, styles = [], []
    for finding in findings:
        for line in finding.message.splitlines():
            rows.append([finding.state, finding.subject, line])
            styles.append(_STYLES[finding.state])
        if finding.hint:
            rows.append(["", "", f"→ {finding.hint}"])
            styles.append("dim")
    print_lines(table_lines(["", "", ""], rows, styles))
    return 3 if any(finding.state == "error" for finding in findings) else 0
