"""The tasks of the project, each with its files and its last results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from msgspec import Struct

from evalloom.core.errors import EvalloomError
from evalloom.hop.pages.tasks import (
    DataFile,
    Task,
    explain,
    find_tasks,
    list_files,
    open_store,
    read_task_contract,
    task_of,
)
from evalloom.pages.errors import RequestError
from evalloom.pages.library import BatchSummary
from evalloom.pages.page import Page, PageRequest, Redirect, View


class TaskRow(Struct, frozen=True):
    """A task in the list."""

    task: Task
    inputs: list[str]
    outputs: list[str]
    files: list[DataFile]
    """Files of cases."""
    last: DataFile | None
    """The newest file of results."""
    figures: dict[str, Any]
    """Its statistics."""
    problem: str = ""
    batch: BatchSummary | None = None
    """The newest batch of its cases in the list of batches."""


class TaskList(Struct, frozen=True):
    """All tasks."""

    tasks: list[TaskRow]


def _list(request: PageRequest) -> View:
    return View("hop_tasks.html", TaskList([_row(request, task) for task in find_tasks(request.site.home)]))


def _row(request: PageRequest, task: Task) -> TaskRow:
    """Return a task with what can be read of it: one that is broken must not hide the others."""
    inputs: list[str] = []
    outputs: list[str] = []
    files: list[DataFile] = []
    figures: dict[str, Any] = {}
    problem = ""
    last = None
    try:
        contract = read_task_contract(task)
        inputs, outputs = ([*contract.inputs], [*contract.outputs]) if contract else ([], [])
        files = list_files(open_store(request, task))
        last = next((file for file in files if file.results), None)
        store = open_store(request, task, last.name) if last else None
        figures = store.get_stats(by=[]) if store else {}
    except EvalloomError as error:
        problem = explain(error)
    except RequestError as error:
        problem = error.message
    return TaskRow(
        task, inputs, outputs, [file for file in files if file.cases], last, figures, problem, _batch(request, task)
    )


def _batch(request: PageRequest, task: Task) -> BatchSummary | None:
    """Return the newest batch over files of a task: `evalloom run` writes one, and no file in TestCases/."""
    home, folder = Path(os.path.abspath(request.site.home)), Path(os.path.abspath(task.folder))
    for summary in request.site.library.summaries():
        if summary.system != "hop" or summary.is_try:
            continue
        names = filter(None, map(request.site.files.shown_name, summary.datasets))
        if any((home / name).is_relative_to(folder) for name in names):
            return summary
    return None


def _open(request: PageRequest) -> Redirect:
    """Lead to the first view of a task."""
    return Redirect(f"{task_of(request).url}/run")


PAGES = (Page("/hop", _list), Page("/hop/{task:path}", _open))
