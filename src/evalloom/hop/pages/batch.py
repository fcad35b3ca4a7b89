"""Run a file of a task under several profiles, as `batchhoptest` does, and follow it."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from evalloom.core.errors import EvalloomError
from evalloom.core.lazy import lazy_pattern
from evalloom.hop.pages.tasks import (
    DataFile,
    Task,
    case_files,
    explain,
    list_files,
    open_store,
    profiles_of,
    task_of,
)
from evalloom.pages.errors import RequestError
from evalloom.pages.jobs import JobState
from evalloom.pages.live import Progress
from evalloom.pages.page import Page, PageRequest, Redirect, View
from evalloom.pages.start import check_permissions

TOOL = "batchhoptest"
WORKERS, MOST_WORKERS = 5, 20
_WAIT_S = 3.0
_PRINTED = lazy_pattern(r"^Batch: \S*?([\w-]+)$", re.MULTILINE)


class BatchPage(Struct, frozen=True):
    """The form, and the batch that it started."""

    task: Task
    files: list[DataFile]
    file: str
    profiles: list[str]
    workers: int
    most_workers: int
    command: str
    job: JobState | None
    progress: Progress | None
    written: str
    """The result file, once it is there."""
    problem: str = ""


def _show(request: PageRequest) -> View:
    task = task_of(request)
    profiles, problem = _profiles(task)
    job = request.site.jobs.state(request.query["job"]) if request.query.get("job") else _running_job(request, task)
    batch = batch_of(job) if job else ""
    progress = request.site.live.progress(batch) if batch else None
    # After the state of the job: once it is done, its file is there.
    files = [*case_files(list_files(open_store(request, task)))]
    written = next((file.name for file in files if batch and f"_results_{batch}." in file.name), "")
    page = BatchPage(
        task,
        files,
        request.query.get("file", "") or (files[0].name if files else ""),
        profiles,
        WORKERS,
        MOST_WORKERS,
        f"{TOOL} --task {task.path}",
        job,
        progress,
        written,
        problem,
    )
    return View("hop_batch.html", page)


def _profiles(task: Task) -> tuple[list[str], str]:
    try:
        return profiles_of(task), ""
    except EvalloomError as error:
        return [], explain(error)


def _running_job(request: PageRequest, task: Task) -> JobState | None:
    """Return the batch of this task that a page started and that still runs: also after coming back to the page."""
    start = f"{TOOL} --task {task.path} "
    jobs = request.site.jobs.states()
    return next((job for job in jobs if job.state == "running" and f"{job.command} ".startswith(start)), None)


def batch_of(job: JobState) -> str:
    """Return the batch of a job; one that ended at once has only printed it."""
    printed = _PRINTED.search(job.output)
    return job.batch or (printed[1] if printed else "")


def _start(request: PageRequest) -> Redirect:
    task = task_of(request)
    words = batch_words(request, task)
    check_permissions(request, words)
    jobs = request.site.jobs
    job = jobs.wait_for_batch(jobs.start(words, [request.site.token], TOOL).id, _WAIT_S)
    return Redirect(request.url(f"{task.url}/batch", job=job.id))


def batch_words(request: PageRequest, task: Task) -> list[str]:
    """Return the words of the command that the form asks for. Its result file is new: it has the id of the batch."""
    file, workers = request.field("file"), request.field("workers", str(WORKERS))
    names = {each.name for each in list_files(open_store(request, task))}
    if file not in names:
        raise RequestError("validation_failed", f"file: expected a file of TestCases/, got {file[:80]!r}")
    if not (workers.isascii() and workers.isdecimal() and 1 <= int(workers[:9]) <= MOST_WORKERS):
        message = f"workers: expected a whole number from 1 to {MOST_WORKERS}, got {workers[:80]!r}"
        raise RequestError("validation_failed", message)
    known, chosen = profiles_of(task), request.form.get("profiles", [])
    if unknown := [name for name in chosen if name not in known]:
        raise RequestError("validation_failed", f"profiles: expected {' or '.join(known)}, got {unknown[0][:80]!r}")
    data = (Path(task.path) / "TestCases" / file).as_posix()
    words = ["--task", task.path, f"--data={data}", "--workers", workers, "--wrapper", "view"]
    return [*words, *(["--profiles=" + ",".join(chosen)] if chosen else [])]


PAGES = (
    Page("/hop/{task:path}/batch", _show),
    Page("/hop/{task:path}/batch", _start, "POST"),
)
