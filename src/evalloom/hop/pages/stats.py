"""The statistics of a task, with the figures of `evalloom stats`: rates, fields, distributions, bands and groups."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from evalloom.core.model import Record
from evalloom.hop.pages.tasks import Task, list_files, open_store, task_of
from evalloom.hop.results.stats import GROUPS
from evalloom.pages.page import Page, PageRequest, View


class GroupRow(Struct, frozen=True):
    """The figures of one tag, difficulty or profile."""

    name: str
    figures: Record


class StatsPage(Struct, frozen=True):
    """The statistics of all results, or of those of a file or a profile."""

    task: Task
    files: list[str]
    file: str
    profiles: list[str]
    profile: str
    stats: dict[str, Any]
    """What `DataStore.get_stats` returns, without its groups."""
    groups: dict[str, list[GroupRow]]
    """By tag, difficulty and profile, weakest first."""


def _show(request: PageRequest) -> View:
    task = task_of(request)
    files = [file for file in list_files(open_store(request, task)) if file.results]
    if not files:
        return View("hop_stats.html", StatsPage(task, [], "", [], "", {}, {}))
    file, profile = request.query.get("file", ""), request.query.get("profile", "")
    store = open_store(request, task, file)
    assert store is not None
    stats = store.get_stats(profile or None)
    shown = [each for each in files if file in ("", each.name)]
    data = StatsPage(
        task,
        [each.name for each in files],
        file,
        sorted({name for each in shown for name in each.profiles}),
        profile,
        {name: value for name, value in stats.items() if not name.startswith("by_")},
        {name: _groups(stats[f"by_{name}"], f"no {name}") for name in GROUPS},
    )
    return View("hop_stats.html", data)


def _groups(by_name: dict[str, Record], nothing: str) -> list[GroupRow]:
    """Return the groups, weakest first; none if no result names one."""
    if [*by_name] == [nothing]:
        return []

    def weakness(row: GroupRow) -> tuple[float, float, str]:
        figures = row.figures
        completion = figures["completion_rate"]
        return (completion if figures["pass_rate"] is None else figures["pass_rate"], completion, row.name)

    rows = [
        GroupRow(name, {key: value for key, value in figures.items() if key != "fields"})
        for name, figures in by_name.items()
    ]
    return sorted(rows, key=weakness)


PAGES = (Page("/hop/{task:path}/stats", _show),)
