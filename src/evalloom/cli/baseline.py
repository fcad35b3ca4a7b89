"""`evalloom baseline`: saves, lists, shows and removes baselines."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from evalloom.batchlog import Baseline, baselines, find_baseline, read_baseline, remove_baseline
from evalloom.console.compare_text import baseline_lines
from evalloom.console.layout import print_lines, table_lines
from evalloom.console.outcome import warn
from evalloom.core.text import percent
from evalloom.engine.baseline import save


@click.group("baseline")
def command() -> None:
    """Save, list, show and remove the baselines in .evalloom/baselines."""


@command.command("save")
@click.argument("name")
@click.argument("batch", metavar="[BATCH]", default="latest")
@click.option("--force", is_flag=True, help="Replace an existing baseline; accept an unfinished batch.")
def save_command(name: str, batch: str, force: bool) -> int:
    """Save a batch as the baseline NAME. BATCH defaults to the newest batch.

    The baseline is a small text file with the status of each run and without answers, so it can be committed.
    """
    file = save(name, batch, force, warn)
    click.echo(f"saved {file.as_posix()}")
    click.echo(f"Next, after another run: evalloom compare latest --against {name}")
    return 0


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per baseline.")
def list_command(as_json: bool) -> int:
    """List the baselines by name."""
    heads = [head for _, head in baselines(warn=warn)]
    if as_json:
        for head in heads:
            click.echo(msgspec.json.encode(head))
        return 0
    header = ["baseline", "saved", "runs", "pass rate", "batch", "target", "profiles"]
    nothing = [("No baselines yet. 'evalloom baseline save NAME' saves one.", "")]
    table = table_lines(header, [*map(_row, heads)], spare=("profiles", "target"), whole=("baseline", "batch"))
    print_lines(table if heads else nothing)
    return 0


def _row(head: Baseline) -> list[str]:
    rate: Any = head.batch.summary.get("pass_rate")
    return [
        head.name,
        head.saved_at[:16].replace("T", " "),
        str(head.runs),
        percent(rate) if isinstance(rate, float) else "-",
        head.batch.id,
        head.batch.target,
        ", ".join(profile.name for profile in head.batch.profiles),
    ]


@command.command("show")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def show_command(name: str, as_json: bool) -> int:
    """Show the batch that a baseline was saved from, and its pass rate."""
    file = find_baseline(name)
    head = read_baseline(file)
    if as_json:
        click.echo(msgspec.json.encode(head))
    else:
        print_lines(baseline_lines(file, head))
    return 0


@command.command("rm")
@click.argument("name")
def rm_command(name: str) -> int:
    """Remove a baseline. Its batch stays."""
    file = find_baseline(name)
    remove_baseline(file)
    click.echo(f"removed {file.as_posix()}")
    return 0
