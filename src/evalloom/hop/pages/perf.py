"""How long the runs of a task take, and its operators, from the observer's log."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from evalloom.hop.pages.tasks import Task, list_files, open_store, task_of
from evalloom.hop.results.perf import NO_RUNS
from evalloom.pages.page import Page, PageRequest, View


class PerfPage(Struct, frozen=True):
    """What `DataStore.get_perf_summary` returns, for all profiles or one."""

    task: Task
    profiles: list[str]
    profile: str
    perf: dict[str, Any]


def _show(request: PageRequest) -> View:
    task = task_of(request)
    store = open_store(request, task)
    profile = request.query.get("profile", "")
    perf = store.get_perf_summary(profile or None) if store else dict(NO_RUNS)
    profiles = sorted({name for file in list_files(store) for name in file.profiles})
    return View("hop_perf.html", PerfPage(task, profiles, profile, perf))


PAGES = (Page("/hop/{task:path}/perf", _show),)
