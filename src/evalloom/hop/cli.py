"""`evalloom stats` for the HOP result files in a folder."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import click
import msgspec

from evalloom.console.layout import print_lines
from evalloom.console.outcome import warn
from evalloom.console.run_options import parted
from evalloom.core.errors import usage_error
from evalloom.hop.cli_text import agreement_lines, comparison_lines, file_lines, row_lines, stats_lines
from evalloom.hop.results.store import DataStore

GROUPS = ("tag", "difficulty", "profile")


@click.command("stats")
@click.argument("folder", metavar="[FOLDER]", default=".")
@click.option("--profile", default="", metavar="P", help="Show only results of this profile.")
@click.option(
    "--by", default=",".join(GROUPS), show_default=True, metavar="G,…", help="Group by these, one table each."
)
@click.option(
    "--compare", default="", metavar="A,B,…", help="Compare A with each of the other profiles, on the same cases."
)
@click.option(
    "--agreement", "field", default="", metavar="FIELD", help="Compare expected with actual scores, in bands."
)
@click.option("--bands", default="", metavar="B,…", help="Bands for --agreement. Default: BAD=1-2,MID=3,GOOD=4-5.")
@click.option("--rows", type=click.IntRange(0), metavar="N", help="Show the first N results instead of statistics.")
@click.option("--where", multiple=True, metavar="COLUMN=VALUE", help="With --rows: show only matching results.")
@click.option("--sort", default="", metavar="COLUMN", help="With --rows: sort by COLUMN; -COLUMN sorts descending.")
@click.option("--files", is_flag=True, help="List the files and their contents.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(folder: str, by: str, as_json: bool, **flags: Any) -> int:
    """Summarize HOP results in a folder: completion, correctness, fields and durations.

    FOLDER is a task, its TestCases/, any folder with HOP result files in either wrapper, or one such file.

    \b
    evalloom stats examples/hop --by tag
    evalloom stats examples/hop --compare careful,hasty
    evalloom stats examples/hop --rows 5 --where correct=false --sort -retry_count
    """
    _reject_unused_flags(flags)
    groups = parted(by)
    for name in groups:
        if name not in GROUPS:
            raise usage_error("bad_option", f"--by: expected {', '.join(GROUPS)}, got {name!r}")
    result, lines = _query(DataStore(folder, warn), groups, flags)
    if as_json:
        click.echo(msgspec.json.encode(result))
    else:
        print_lines(lines)
    return 0


def _query(store: DataStore, groups: list[str], flags: dict[str, Any]) -> tuple[Any, Any]:
    """Run the query that the flags select; return its result and the lines to print."""
    if flags["files"]:
        files = store.list_files()
        return files, file_lines(files)
    if flags["compare"]:
        profiles = parted(flags["compare"])
        if len(set(profiles)) < max(2, len(profiles)):
            expected = "expected two different profiles or more, such as careful,hasty"
            raise usage_error("bad_option", f"--compare: {expected}, got {flags['compare']!r}")
        comparisons = store.compare_all(profiles[0], profiles[1:])
        result = comparisons[0] if len(comparisons) == 1 else {"comparisons": comparisons}
        return result, comparison_lines(comparisons)
    profile = flags["profile"] or None
    if flags["field"]:
        bands = {"bands": _bands(flags["bands"])} if flags["bands"] else {}
        agreement = store.get_agreement(flags["field"], profile=profile, **bands)
        return agreement, agreement_lines(flags["field"], agreement)
    if flags["rows"] is not None:
        filters: dict[str, Any] = {}
        for condition in flags["where"]:
            column, sign, value = condition.partition("=")
            if not sign or not column.strip():
                raise usage_error("bad_option", f"--where: expected COLUMN=VALUE, got {condition!r}")
            value = {"true": True, "false": False}.get(value.strip().lower(), value)
            filters.setdefault(column.strip(), []).append(value)
        filters |= {"profile": profile} if profile else {}
        page = store.query_results(limit=flags["rows"], sort_by=flags["sort"], filters=filters)
        return page, row_lines(page)
    stats = store.get_stats(profile, by=groups)
    if not store.is_single_file:
        # The observer's log does not record which run belongs to which file.
        stats |= {"performance": store.get_perf_summary(profile)}
    return stats, stats_lines(stats, groups)


_SHOWS = {"files": "--files", "compare": "--compare", "field": "--agreement", "rows": "--rows"}
"""The flags that replace the statistics with other output."""


def _reject_unused_flags(flags: dict[str, Any]) -> None:
    """Reject flags that would have no effect."""
    shown = [flag for name, flag in _SHOWS.items() if flags[name] not in (None, "", False)]
    if len(shown) > 1:
        raise usage_error("bad_option", f"{' and '.join(shown)}: expected one of them at a time")
    for name, flag, goes_with in (
        ("where", "--where", ["--rows"]),
        ("sort", "--sort", ["--rows"]),
        ("bands", "--bands", ["--agreement"]),
        ("profile", "--profile", ["--rows", "--agreement", ""]),
    ):
        if flags[name] and ("".join(shown) or "") not in goes_with:
            raise usage_error("bad_option", f"{flag}: goes with {' or '.join(filter(None, goes_with))}")


def _bands(text: str) -> dict[str, tuple[float, float]]:
    """Parse `BAD=1-2,MID=3` into names with their lowest and highest score."""
    bands = {}
    for part in parted(text):
        name, _, ends = part.partition("=")
        low, _, high = ends.partition("-")
        try:
            bands[name.strip()] = (float(low), float(high or low))
        except ValueError:
            raise usage_error("bad_option", f"--bands: expected bands such as BAD=1-2,MID=3, got {part!r}") from None
    ranges = sorted(bands.values())
    if len(ranges) < len(parted(text)) or not all(low <= high for low, high in ranges):
        raise usage_error("bad_option", f"--bands {text}: expected distinct names, each with a range from low to high")
    if any(high >= low for (_, high), (low, _) in pairwise(ranges)):
        raise usage_error("bad_option", f"--bands {text}: expected bands that do not overlap")
    return bands
