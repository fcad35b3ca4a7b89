"""`evalloom stats`: figures of any batch, by tag, profile, check …, and its failures by cause."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from evalloom import catalog
from evalloom.analysis.stats import (
    DIMENSIONS,
    METRICS,
    Metric,
    batch_stats,
    check_profile,
    parse_conditions,
    parse_dimensions,
    running_warnings,
)
from evalloom.analysis.views import open_views
from evalloom.batchlog.folders import FOLDER, is_batch
from evalloom.console.layout import print_lines
from evalloom.console.outcome import warn
from evalloom.console.run_options import parted
from evalloom.console.stats_text import stats_lines
from evalloom.core.errors import usage_error
from evalloom.engine.parts import Parts

_BY = "profile,tag"
_OWN: list[click.Parameter] = [
    click.Argument(["paths"], metavar="[PATH]…", nargs=-1),
    click.Option(["--by"], metavar="G,…", help=f"Group by these: {', '.join(DIMENSIONS)}. Default: {_BY}."),
    click.Option(["--metric"], type=click.Choice(METRICS), help="What to measure. Default: pass."),
    click.Option(
        ["--where"],
        multiple=True,
        metavar="EXPR",
        help="Count only runs that match: 'score < 0.5 and tag = \"x\"'. With --rows: COLUMN=VALUE.",
    ),
    click.Option(["--profile"], default="", metavar="P", help="Count only runs of this profile."),
    click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object."),
]


def _stats(paths: tuple[str, ...], by: str | None, metric: Metric | None, as_json: bool, **flags: Any) -> int:
    """Summarize batches: how runs ended, by tag, profile, check …, and failures by cause.

    PATH is a batch (its id, its folder, or 'latest'), a folder of batches, or a folder or file of HOP results. Without
    one it is the HOP results of this folder, else the latest batch. The options below --json are for HOP results.

    \b
    evalloom stats latest --by tag,check
    evalloom stats latest --metric latency --by profile
    evalloom stats latest --where 'score < 0.5 and tag = "billing"'
    evalloom stats examples/hop --compare careful,hasty
    evalloom stats examples/hop --rows 5 --where correct=false --sort -retry_count
    """
    context = click.get_current_context()
    own = {parameter.name for parameter in _OWN}
    given = [name for name in flags if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    theirs = next((name for name in given if name not in own), "")
    command = _command_of_results(paths)
    if theirs and command is None:
        raise usage_error("bad_option", f"{_flag(context, theirs)}: goes with HOP results, and this is a batch")
    if theirs and metric is not None:
        raise usage_error("bad_option", f"--metric and {_flag(context, theirs)}: expected one of them, got both")
    asks_for_more = metric is not None or flags["where"] or not _has_groups(command, by)
    if command is not None and (theirs or not asks_for_more):
        values = {option.name: flags[option.name] for option in command.params if option.name in flags}
        values |= {"by": by} if by else {}
        return int(context.invoke(command, folder=paths[0] if paths else ".", as_json=as_json, **values))
    sources: Iterable[str] = paths or (["latest"] if command is None else ["."])
    dimensions, condition = parse_dimensions(parted(by or _BY)), parse_conditions(flags["where"], flags["profile"])
    with open_views(sources, catalog.load(), warn) as views:
        for message in running_warnings(views):
            warn(message)
        check_profile(views, flags["profile"])
        stats = batch_stats(
            views, dimensions, metric or "pass", condition, with_causes=as_json or metric in (None, "pass")
        )
    if as_json:
        click.echo(msgspec.json.encode(stats))
    else:
        print_lines(stats_lines(stats))
    return 0


def _command_of_results(paths: tuple[str, ...]) -> click.Command | None:
    """Return the command of a system for a path that has results in its own format, or no results yet."""
    path = Path(paths[0] if paths else ".")
    if len(paths) > 1 or is_batch(path):
        return None
    commands = [
        parts.result_command() for parts in catalog.load().parts if parts.result_command and _has_results(parts, path)
    ]
    is_empty = bool(paths) and os.path.exists(path) and not _has_batches(path)
    return next(iter(commands or (catalog.load().result_commands if is_empty else ())), None)


def _has_results(parts: Parts, path: Path) -> bool:
    return parts.results is not None and parts.results(path) is not None


def _has_batches(path: Path) -> bool:
    folder = path / FOLDER if os.path.isdir(path / FOLDER) else path
    return os.path.isdir(folder) and any(map(is_batch, folder.iterdir()))


def _has_groups(command: click.Command | None, by: str | None) -> bool:
    """Whether the command of a system knows these groups: they are the default of its --by."""
    options = {option.name: option for option in command.params} if command else {}
    return "by" in options and set(parted(by or "")) <= set(parted(str(options["by"].default)))


def _flag(context: click.Context, name: str) -> str:
    option = next(option for option in context.command.params if option.name == name)
    return option.opts[0]


def _all_options() -> list[click.Parameter]:
    """Return the options of this command, and those of systems for their own results."""
    names = {parameter.name for parameter in _OWN}
    theirs = [option for command in catalog.load().result_commands for option in command.params]
    return [*_OWN, *(option for option in theirs if isinstance(option, click.Option) and option.name not in names)]


command = click.Command("stats", callback=_stats, help=_stats.__doc__, params=_all_options())
