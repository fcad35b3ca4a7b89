"""`evalloom stats`: what the HOP result files in a folder say."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import click
import msgspec

from evalloom.console.outcome import warn
from evalloom.console.run_options import parted
from evalloom.console.run_text import print_lines
from evalloom.core.errors import usage_error
from evalloom.hop.cli_text import agreement_lines, comparison_lines, file_lines, row_lines, stats_lines
from evalloom.hop.results.store import DataStore

GROUPS = ("tag", "difficulty", "profile")


@click.command("stats")
@click.argument("folder", metavar="[FOLDER]", default=".")
@click.option("--profile", default="", metavar="P", help="Only results of this profile.")
@click.option("--by", default=",".join(GROUPS), show_default=True, metavar="G,…", help="A table for each of these.")
@click.option("--compare", default="", metavar="A,B", help="The same cases under two profiles, side by side.")
@click.option("--agreement", "field", default="", metavar="FIELD", help="Expected against given scores, in bands.")
@click.option("--bands", default="", metavar="B,…", help="For --agreement; by default BAD=1-2,MID=3,GOOD=4-5.")
@click.option("--rows", type=click.IntRange(0), metavar="N", help="The first N results instead of figures.")
@click.option("--where", multiple=True, metavar="COLUMN=VALUE", help="For --rows: only results where this holds.")
@click.option("--sort", default="", metavar="COLUMN", help="For --rows: the order; -COLUMN turns it round.")
@click.option("--files", is_flag=True, help="The files with what is in them.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(folder: str, by: str, as_json: bool, **flags: Any) -> int:
    """Say how the results in a folder fared: completion, correctness, each field, and how long it took.

    FOLDER is a task, its TestCases/, any folder with HOP result files in either wrapper, or one such file.

    \b
    evalloom stats examples/hop --by tag
    evalloom stats examples/hop --compare careful,hasty
    evalloom stats examples/hop --rows 5 --where correct=false --sort -retry_count
    """
    _refuse_idle(flags)
    store = DataStore(folder, warn)
    found, lines = _asked(store, _groups(by), flags)
    if as_json:
        click.echo(msgspec.json.encode(found))
    else:
        print_lines(lines)
    return 0


def _asked(store: DataStore, groups: list[str], flags: dict[str, Any]) -> tuple[Any, Any]:
    """What one of the flags asks for, and how it is shown."""
    if flags["files"]:
        files = store.list_files()
        return files, file_lines(files)
    if flags["compare"]:
        first, second = _two(parted(flags["compare"]))
        compared = store.compare(first, second)
        return compared, comparison_lines(compared)
    profile = flags["profile"] or None
    if flags["field"]:
        bands = {"bands": _bands(flags["bands"])} if flags["bands"] else {}
        agreement = store.get_agreement(flags["field"], profile=profile, **bands)
        return agreement, agreement_lines(flags["field"], agreement)
    if flags["rows"] is not None:
        filters: dict[str, Any] = {}
        for name, value in map(_condition, flags["where"]):
            filters.setdefault(name, []).append(value)
        filters |= {"profile": profile} if profile else {}
        page = store.query_results(limit=flags["rows"], sort_by=flags["sort"], filters=filters)
        return page, row_lines(page)
    stats = store.get_stats(profile, by=groups)
    if not store.is_one_file:
        # The observer does not tell which run went into which file.
        stats |= {"performance": store.get_perf_summary(profile)}
    return stats, stats_lines(stats, groups)


_SHOWS = {"files": "--files", "compare": "--compare", "field": "--agreement", "rows": "--rows"}
"""The flags that each show something else than the figures."""


def _refuse_idle(flags: dict[str, Any]) -> None:
    """Refuses flags that would be passed over in silence."""
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


def _groups(text: str) -> list[str]:
    groups = parted(text)
    for name in groups:
        if name not in GROUPS:
            raise usage_error("bad_option", f"--by: expected {', '.join(GROUPS)}, got {name!r}")
    return groups


def _two(names: list[str]) -> list[str]:
    if len(names) != 2:
        raise usage_error("bad_option", f"--compare: expected two profiles such as careful,hasty, got {len(names)}")
    return names


def _condition(text: str) -> tuple[str, Any]:
    """`correct=false` as a column and a value."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise usage_error("bad_option", f"--where: expected COLUMN=VALUE, got {text!r}")
    return name.strip(), {"true": True, "false": False}.get(value.strip().lower(), value)


def _bands(text: str) -> dict[str, tuple[float, float]]:
    """`BAD=1-2,MID=3` as names with their lowest and highest score."""
    bands = {}
    for part in parted(text):
        name, _, ends = part.partition("=")
        low, _, high = ends.partition("-")
        try:
            bands[name.strip()] = (float(low), float(high or low))
        except ValueError:
            raise usage_error("bad_option", f"--bands: expected such as BAD=1-2,MID=3, got {part!r}") from None
    ranges = sorted(bands.values())
    if len(ranges) < len(parted(text)) or not all(low <= high for low, high in ranges):
        raise usage_error(
            "bad_option", f"--bands {text}: expected names that differ, each from a lower to a higher score"
        )
    if any(high >= low for (_, high), (low, _) in pairwise(ranges)):
        raise usage_error("bad_option", f"--bands {text}: expected bands of which no score lies in two")
    return bands
