"""`evalloom compare`: is this batch better or worse than what was before?"""

from __future__ import annotations

import click
import msgspec

from evalloom.cli.compare_text import compared_lines
from evalloom.cli.run import warn
from evalloom.cli.run_text import print_lines
from evalloom.workbench.compare import Compare, compare


@click.command("compare")
@click.argument("batch")
@click.option("--baseline", default="", metavar="NAME", help="A baseline, or another batch.")
@click.option(
    "--allowed-drop",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="X",
    help="By how much a pass rate may fall: 0.02 is two points.",
)
@click.option("--by", type=click.Choice(["tag"]), help="Also hold the pass rate of each tag against its own.")
@click.option("--profile", default="", metavar="P", help="Only this profile of the batch.")
@click.option("--baseline-profile", default="", metavar="P", help="Compare with this profile of the baseline.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every case that changed.")
def command(
    batch: str, baseline: str, allowed_drop: float, by: str | None, profile: str, baseline_profile: str, as_json: bool
) -> int:
    """Compare a batch with a baseline, case by case. BATCH is an id, the beginning of one, or 'latest'.

    Without --baseline, the profiles or variants of the batch are compared with the one called 'baseline', or else
    with the first.

    \b
    evalloom baseline save good
    evalloom compare latest --baseline good --allowed-drop 0.02 --by tag
    evalloom compare latest                     is v2 better, after: evalloom run … --variants baseline,v2

    Exit codes: 0 no regression, 1 a regression, or too little left to tell, 2 wrong usage or nothing to compare,
    3 unreadable.
    """
    asked = Compare(batch, baseline, profile, baseline_profile, allowed_drop, by == "tag")
    compared = compare(asked, warn)
    if as_json:
        click.echo(msgspec.json.encode(compared))
    else:
        print_lines(compared_lines(compared))
    return int(compared.is_bad)
