"""Starting, cancelling and resuming batches, and the output of what a page started."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from evalloom.core.model import Batch
from evalloom.pages.errors import RequestError
from evalloom.pages.jobs import JobState
from evalloom.pages.page import Page, PageRequest, Redirect, View
from evalloom.pages.start import start

RESUMABLE = ("run",)
"""Commands that a page may repeat with `--resume-from`."""


class JobList(Struct, frozen=True):
    """All jobs of this server."""

    jobs: list[JobState]


def _list(request: PageRequest) -> View:
    return View("jobs.html", JobList(request.site.jobs.states()))


def _show(request: PageRequest) -> View | Redirect:
    job = request.site.jobs.state(request.ids["job"])
    if job.state == "running" and job.batch and not request.query.get("output"):
        # It was not there yet when the command was started.
        return Redirect(f"/b/{job.batch}")
    return View("job.html", job)


def _cancel_job(request: PageRequest) -> Redirect:
    request.site.jobs.cancel(request.ids["job"])
    return Redirect(f"/jobs/{request.ids['job']}")


def _cancel(request: PageRequest) -> Redirect:
    batch = request.site.library.path(request.ids["batch"]).name
    request.site.jobs.cancel_batch(batch)
    return Redirect(f"/b/{batch}")


class ResumeForm(Struct, frozen=True):
    """What resuming a batch would run."""

    batch: str
    words: list[str]
    """The command line, without the name of the program."""
    reason: str = ""
    """Why it cannot be resumed from the page."""


def _ask_resume(request: PageRequest) -> View:
    batch = request.site.library.manifest(request.ids["batch"])
    words = resume_words(batch)
    reason = "" if words else "the batch does not say which command made it. Resume it on the command line"
    return View("resume.html", ResumeForm(request.site.library.path(request.ids["batch"]).name, words, reason))


def _resume(request: PageRequest) -> Redirect:
    words = resume_words(request.site.library.manifest(request.ids["batch"]))
    if not words:
        raise RequestError(
            "not_resumable", "the batch does not say which command made it. Resume it on the command line"
        )
    return start(request, words)


def resume_words(batch: Batch) -> list[str]:
    """Return the words of the command that continues a batch; none if the batch does not say how it was made."""
    name, *words = batch.command or [""]
    if name != "evalloom" or not words or words[0] not in RESUMABLE:
        return []
    return [
        *without_flags(words, ("--resume", "--retry-errors", "--force"), ("--resume-from",)),
        "--resume-from",
        batch.id,
    ]


def without_flags(words: Sequence[str], flags: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the words of a command without some flags, and without some options and their values."""
    kept: list[str] = []
    skips = False
    for word in words:
        if skips:
            skips = False
        elif word in options:
            skips = True
        elif word not in flags and not word.startswith(tuple(f"{option}=" for option in options)):
            kept.append(word)
    return kept


PAGES = (
    Page("/jobs", _list),
    Page("/jobs/{job}", _show),
    Page("/jobs/{job}/cancel", _cancel_job, "POST"),
    Page("/b/{batch}/cancel", _cancel, "POST"),
    Page("/b/{batch}/resume", _ask_resume),
    Page("/b/{batch}/resume", _resume, "POST"),
)
