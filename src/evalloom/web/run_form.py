"""The form that starts a batch: it shows the equal command line, the number of runs, and on request an estimate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from shlex import join
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Profile
from evalloom.core.text import quote
from evalloom.engine.dry_run import DryRun
from evalloom.engine.suite import Suite
from evalloom.pages.errors import RequestError
from evalloom.pages.page import Page, PageRequest, Redirect, View, link
from evalloom.pages.site import Site
from evalloom.pages.start import start, start_job
from evalloom.web.choices import (
    ProfileChoice,
    check_profiles,
    check_target,
    file_word,
    llms,
    option,
    profiles,
    providers,
    suite_of,
    targets,
)

_ESTIMATE_S = 20.0
_DRY_RUN = ("--dry-run", "--json")
_NUMBERS = {"limit": 10_000_000, "repeat": 1_000, "concurrency": 10_000}
"""The largest values that the form accepts."""
_LONGEST = 1_000


class RunValues(Struct, frozen=True):
    """The fields of the form."""

    data: str = ""
    target: str = ""
    profiles: list[str] = []
    tags: str = ""
    limit: str = ""
    repeat: str = ""
    concurrency: str = ""
    judge: str = ""
    encoding: str = ""


class RunForm(Struct, frozen=True):
    """The form with its values and what they mean."""

    values: RunValues
    own_target: str
    """The target of evalloom.yaml; empty if it names none."""
    own_datasets: list[str]
    targets: list[str]
    files: list[str]
    profiles: list[ProfileChoice]
    llms: list[str]
    words: list[str]
    """The command line without the name of the program; empty if the values are wrong."""
    problem: str
    """What is wrong with the values."""
    runs: int | None
    """How many runs there will be; None if that is unknown."""
    is_most: bool
    """Whether there may be fewer, because some cases have none of the tags."""
    is_suite: bool
    """Whether the dataset says what it tests, so that it needs no target."""
    columns: list[str]
    """The prompts and providers of such a file that would run."""
    may_run: bool
    """Whether this server lets pages start batches."""
    estimate: DryRun | None
    estimate_failure: str


def _show(request: PageRequest) -> View:
    site = request.site
    values = _values(request.query.getlist)
    settings = site.file_reports.settings()
    own = settings.target or ", ".join(settings.targets)
    problem, words, suite, columns = "", [], None, None
    try:
        suite = _suite(site, values)
        words = _words(site, values, suite)
        columns = _columns(site, values, suite) if suite is not None else None
    except RequestError as error:
        problem = error.message
    runs, is_most = _count_runs(site, values, columns) if not problem else (None, False)
    estimate, failure = _estimate_of(request, words)
    data = RunForm(
        values,
        own if isinstance(own, str) else quote(own, 100),
        settings.datasets,
        targets(site),
        [file.path for file in site.files.search().files[:500] if _has_cases(site, file.path, file.size)],
        profiles(site, values.profiles, providers(suite) if suite is not None else ()),
        llms(site),
        words,
        problem,
        runs,
        is_most,
        suite is not None,
        [column.name for column in columns.profiles] if columns is not None else [],
        site.permissions.run,
        estimate,
        failure,
    )
    return View("run_form.html", data)


def _values(get: Callable[[str], list[str]]) -> RunValues:
    def first(name: str) -> str:
        return next(iter(get(name)), "").strip()

    names = ("data", "target", "tags", "limit", "repeat", "concurrency", "judge", "encoding")
    return RunValues(
        profiles=list(dict.fromkeys(filter(None, get("profile")))), **{name: first(name) for name in names}
    )


class _Columns(Struct, frozen=True):
    """What a suite would run for the values of the form."""

    profiles: tuple[Profile, ...]
    repeats: int


def _suite(site: Site, values: RunValues) -> Suite | None:
    try:
        return suite_of(site, values.data, values.target, values.profiles)
    except EvalloomError as error:
        raise RequestError("validation_failed", str(error)) from None


def _columns(site: Site, values: RunValues, suite: Suite) -> _Columns:
    settings = suite.with_llms(site.file_reports.settings())
    flags: dict[str, Any] = {"profiles": values.profiles} if values.profiles else {}
    options = suite.options_over(settings, flags)
    try:
        return _Columns(suite.profiles(settings, options), options.repeats)
    except EvalloomError as error:
        raise RequestError("validation_failed", str(error)) from None


def run_words(site: Site, values: RunValues) -> list[str]:
    """Return the words of the command for the values of the form; raise for a value that is wrong."""
    return _words(site, values, _suite(site, values))


def _words(site: Site, values: RunValues, suite: Suite | None) -> list[str]:
    for name in ("data", "target", "tags", "judge", "encoding"):
        text = getattr(values, name)
        if len(text) > _LONGEST or not text.isprintable():
            raise RequestError("validation_failed", f"{name}: expected one line of text, got {quote(text, 100)}")
    words = ["run"]
    if values.data:
        site.files.source(values.data)
        words.append(file_word(values.data))
    check_target(site, values.target)
    words += option("--target", values.target) if values.target else []
    check_profiles(site, values.profiles, providers(suite) if suite is not None else ())
    words += [word for name in values.profiles for word in option("--profile", name)]
    words += option("--tags", values.tags) if values.tags else []
    for name, most in _NUMBERS.items():
        if text := getattr(values, name):
            if not (text.isascii() and text.isdecimal() and 1 <= int(text[:20]) <= most):
                expected = f"a whole number from 1 to {most:,}"
                raise RequestError("validation_failed", f"{name}: expected {expected}, got {quote(text, 40)}")
            words += [f"--{name}", text]
    if values.judge:
        if values.judge not in llms(site):
            expected = ", ".join(llms(site)) or "none, because evalloom.yaml has no llms"
            raise RequestError("validation_failed", f"judge: expected {expected}, got {quote(values.judge, 100)}")
        words += option("--judge", values.judge)
    return [*words, *(option("--encoding", values.encoding) if values.encoding else [])]


def _has_cases(site: Site, path: str, size: int) -> bool:
    """Whether a file is worth offering: one that was not checked yet may be."""
    if size > 200_000:
        return True
    try:
        report = site.file_reports.get(path)
    except RequestError:
        return False
    return report is not None and report.is_dataset and report.cases > 0


def _count_runs(site: Site, values: RunValues, columns: _Columns | None) -> tuple[int | None, bool]:
    """Return the number of runs from what is known about the files, and whether it is the most there can be."""
    settings = site.file_reports.settings()
    cases, tags, is_most = 0, [tag.strip() for tag in values.tags.split(",") if tag.strip()], False
    for path in [values.data] if values.data else settings.datasets:
        try:
            report = site.file_reports.get(path, values.encoding)
        except (RequestError, EvalloomError):
            return None, False
        if report is None or not report.is_dataset:
            return None, False
        counted = [report.tags.get(tag, 0 if not report.more_tags else report.cases) for tag in tags]
        cases += min(report.cases, sum(counted)) if tags else report.cases
        is_most |= len(tags) > 1 or bool(report.more_tags and tags)
    cases = min(cases, int(values.limit)) if values.limit else cases
    own_repeats = columns.repeats if columns is not None else settings.run.repeats
    chosen = columns.profiles if columns is not None else values.profiles or settings.run.profiles
    targets_run = len(settings.targets) if settings.targets and not (settings.target or values.target) else 1
    return cases * targets_run * max(1, len(chosen)) * (int(values.repeat) if values.repeat else own_repeats), is_most


# -- writes ----------------------------------------------------------------------------------------------


def _start(request: PageRequest) -> Redirect:
    return start(request, run_words(request.site, _form_values(request.form)))


def _estimate(request: PageRequest) -> Redirect:
    """Run `--dry-run`, which may import the target, in a process of its own; the form then shows what it found."""
    values = _form_values(request.form)
    job = start_job(request, [*run_words(request.site, values), *_DRY_RUN])
    request.site.jobs.wait(job.id, _ESTIMATE_S)
    fields = msgspec.structs.asdict(values)
    query: dict[str, Any] = {**fields, "profile": fields.pop("profiles"), "job": job.id}
    query.pop("profiles", None)
    return Redirect(link("/run", {**({"lang": request.query["lang"]} if request.query.get("lang") else {}), **query}))


def _form_values(form: Mapping[str, list[str]]) -> RunValues:
    return _values(lambda name: form.get(name, []))


def _estimate_of(request: PageRequest, words: list[str]) -> tuple[DryRun | None, str]:
    """Return what the dry run of the same values printed, if there was one."""
    id = request.query.get("job", "")
    if not id or not words:
        return None, ""
    try:
        job = request.site.jobs.state(id)
    except RequestError:
        return None, ""
    if job.command != join(["evalloom", *words, *_DRY_RUN]):
        return None, ""
    for line in reversed(job.output.splitlines()):
        try:
            return msgspec.json.decode(line, type=DryRun), ""
        except msgspec.DecodeError:
            continue
    return None, job.output.strip() or job.state


PAGES = (
    Page("/run", _show),
    Page("/run", _start, "POST"),
    Page("/run/estimate", _estimate, "POST"),
)
