"""`evalloom doctor`: settings, keys, endpoints, versions."""

from __future__ import annotations

import click
import msgspec

from evalloom.console.catalog import current_catalog
from evalloom.console.run_text import print_lines
from evalloom.core.text import printable
from evalloom.engine.doctor import examine

_MARKS = {"ok": ("ok     ", "green"), "warning": ("warning", "yellow"), "error": ("error  ", "bold red")}


@click.command("doctor")
@click.option("--config", default="", metavar="FILE", help="Settings; by default ./evalloom.yaml.")
@click.option("--offline", is_flag=True, help="Do not try to reach the endpoints.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON list.")
def command(config: str, offline: bool, as_json: bool) -> int:
    """Look at settings, keys, endpoints and versions, and say what is missing.

    Shows whether a key is there, never the key. Exit codes: 0 nothing is missing, 3 something is.
    """
    found = examine(current_catalog(), config, offline)
    if as_json:
        click.echo(msgspec.json.encode(found))
    else:
        for one in found:
            mark, style = _MARKS[one.state]
            print_lines(
                [
                    (f"{mark}  {printable(one.subject):22}  {printable(line)}", style if one.state != "ok" else "")
                    for line in one.message.splitlines()
                ]
            )
            if one.hint:
                print_lines([(f"         {'':22}  → {one.hint}", "dim")])
    return 3 if any(one.state == "error" for one in found) else 0
