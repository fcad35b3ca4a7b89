"""`evalloom baseline`: keep what a batch came to, to hold later ones against it."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from evalloom.batchlog import Baseline, baselines, find_baseline, read_baseline, remove_baseline
from evalloom.console.compare_text import baseline_lines
from evalloom.console.outcome import warn
from evalloom.console.run_text import print_lines, table_lines
from evalloom.engine.baseline import save


@click.group("baseline")
def command() -> None:
    """Keep what batches came to in .evalloom/baselines, and look at what is kept."""


@command.command("save")
@click.argument("name")
@click.argument("batch", metavar="[BATCH]", default="latest")
@click.option("--force", is_flag=True, help="Replace a baseline of that name; take a batch that is unfinished.")
def save_command(name: str, batch: str, force: bool) -> int:
    """Save what a batch came to as the baseline NAME. Without BATCH, of the newest one.

    The file is small and plain: one line per run, with how it ended and no answer in it. It can be committed.
    """
    file = save(name, batch, force, warn)
    click.echo(f"saved {file.as_posix()}")
    click.echo(f"Next, after another run: evalloom compare latest --baseline {name}")
    return 0


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per baseline.")
def list_command(as_json: bool) -> int:
    """List the baselines by name."""
    found = [head for _, head in baselines(warn=warn)]
    if as_json:
        for head in found:
            click.echo(msgspec.json.encode(head))
        return 0
    header = ["baseline", "saved", "batch", "target", "profiles", "runs", "pass rate"]
    nothing = [("There is no baseline yet: 'evalloom baseline save NAME' makes one.", "")]
    print_lines(table_lines(header, [*map(_row, found)]) if found else nothing)
    return 0


def _row(head: Baseline) -> list[str]:
    rate: Any = head.batch.summary.get("pass_rate")
    return [
        head.name,
        head.saved_at,
        head.batch.id,
        head.batch.target,
        ", ".join(one.name for one in head.batch.profiles),
        str(head.runs),
        f"{rate:.1%}" if isinstance(rate, float) else "-",
    ]


@command.command("show")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def show_command(name: str, as_json: bool) -> int:
    """Show what a baseline was made of, and what it came to."""
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
    """Remove a baseline. The batch that it was made of stays."""
    file = find_baseline(name)
    remove_baseline(file)
    click.echo(f"removed {file.as_posix()}")
    return 0
