"""Try one: a form of the target's inputs, and the run of that one case with each chosen profile."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from secrets import token_hex

import msgspec
from msgspec import Struct

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Case, Check, Record
from evalloom.engine.suite import SUITE, Suite
from evalloom.files.write import write_text
from evalloom.pages.errors import RequestError
from evalloom.pages.library import TRIES
from evalloom.pages.page import Page, PageRequest, Redirect, View
from evalloom.pages.site import Site
from evalloom.pages.start import check_permissions, start_job
from evalloom.web.choices import (
    ProfileChoice,
    check_profiles,
    check_target,
    columns,
    option,
    profiles,
    providers,
    suite_of,
    targets,
)
from evalloom.web.save_case import OwnRecord, save
from evalloom.web.try_case import (
    BaseCase,
    InputField,
    expectation,
    find_base,
    input_fields,
    read_inputs,
    read_record,
    record_of,
)
from evalloom.web.try_result import CASE_FILE, TRY_FILE, TriedRun, Try, find_try, tried_runs

_WAIT_S = 2.0
_NO_RESULT_FILES = "results.jsonl"
_MOST_INPUT_BYTES = 4_000_000
_MOST_COLUMNS = 200


class TryForm(Struct, frozen=True):
    """The form."""

    target: str
    own_target: str
    """The target of evalloom.yaml; empty if it names none."""
    targets: list[str]
    fields: list[InputField]
    columns: list[ProfileChoice]
    """The prompts × providers of a file that names them."""
    profiles: list[ProfileChoice]
    base: BaseCase | None
    expect: str
    expected: str
    may_run: bool
    """Whether this server lets pages start batches."""
    problem: str = ""
    """Why the prompts and providers of the file cannot be read."""


class TryView(Struct, frozen=True):
    """The page: the form, and what the try gave, if there was one."""

    form: TryForm
    id: str = ""
    tried: Try | None = None
    state: str = ""
    """`running`, `finished`, or `failed` if no run was made."""
    batch: str = ""
    runs: list[TriedRun] = []
    output: str = ""
    """What the command printed, if no run was made."""
    file: str = ""
    """Where the case would be saved."""
    files: list[str] = []
    saved: str = ""
    saved_line: int = 0
    saved_case: str = ""


def _show_form(request: PageRequest) -> View:
    id = request.query.get("from", "")
    return View("try.html", TryView(_form(request, find_try(request.site, id)[1] if id else None)))


def _form(request: PageRequest, earlier: Try | None) -> TryForm:
    """Return the form, filled from an earlier try, from a case of a batch or file, or from the first case."""
    site = request.site
    places = msgspec.structs.asdict(earlier) if earlier else dict(request.query)
    try:
        base = find_base(site, lambda name: str(places.get(name) or "").strip())
    except RequestError:
        if earlier is None:
            raise
        base = None  # the file or batch that an earlier try came from is gone
    inputs = earlier.inputs if earlier else base.inputs if base else {}
    target = request.query.get("target", "").strip() or (earlier.target if earlier else base.target if base else "")
    filled = msgspec.structs.replace(base, inputs=inputs) if base else BaseCase("", inputs, {}, "", [])
    chosen = request.query.getlist("profile") or (earlier.profiles if earlier else base.profiles if base else [])
    own = site.file_reports.settings().target
    suite, problem = None, ""
    try:
        suite = _suite(site, target, chosen)
    except RequestError as error:
        problem = error.message
    return TryForm(
        target,
        own if isinstance(own, str) else next(iter(own), ""),
        targets(site),
        input_fields(site, target, filled, suite),
        columns(suite, chosen)[:_MOST_COLUMNS] if suite is not None else [],
        profiles(site, chosen),
        base,
        earlier.expect if earlier else "",
        earlier.expected if earlier else "",
        site.permissions.run,
        problem,
    )


def _suite(site: Site, target: str, chosen: list[str]) -> Suite | None:
    """Return the suite that a target names; None for any other target."""
    if not target.startswith(SUITE):
        return None
    check_target(site, target)
    try:
        suite = suite_of(site, "", target, chosen)
    except EvalloomError as error:
        raise RequestError("validation_failed", str(error)) from None
    if suite is None:
        raise RequestError("validation_failed", f"target: {target}: expected a file with prompts and providers")
    return suite


def _show(request: PageRequest) -> View:
    """Show a try: its runs, or that they are not there yet."""
    site = request.site
    id, tried = find_try(site, request.ids["try"])
    dataset = f"{TRIES}/{id}/{CASE_FILE}"
    batch = next((each for each in site.library.summaries() if dataset in each.datasets), None)
    job_state, output = "done", ""
    with suppress(RequestError):  # the server was started again since
        job = site.jobs.state(tried.job)
        job_state, output = job.state, job.output
    is_running = job_state == "running" or (batch is not None and batch.state == "running")
    runs = tried_runs(site, batch.id, tried.profiles) if batch is not None and not is_running else []
    datasets = [file.path for file in site.files.search(suffixes=(".jsonl",)).files if file.path.endswith(".jsonl")]
    data = TryView(
        _form(request, tried),
        id,
        tried,
        "running" if is_running else "finished" if runs else "failed",
        batch.id if batch is not None else "",
        runs,
        output if not runs and not is_running else "",
        tried.data if tried.data in datasets else "tried.jsonl",
        datasets[:200],
        request.query.get("saved", ""),
        request.number("line", 0, 0, 10**9),
        request.query.get("case", ""),
    )
    return View("try.html", data)


def _show_inputs(request: PageRequest) -> Redirect:
    """Show the form of another target."""
    names = ("target", "data", "case", "batch", "run")
    fields = {name: request.field(name).strip() for name in names}
    return Redirect(request.url("/try", **fields, profile=request.form.get("profile", [])))


def _start(request: PageRequest) -> Redirect:
    site = request.site
    check_permissions(request, ["run"])
    base = find_base(site, request.field)
    target, chosen = request.field("target").strip(), list(dict.fromkeys(filter(None, request.form.get("profile", []))))
    check_target(site, target)
    suite = _suite(site, target, chosen)
    check_profiles(site, chosen, [*columns(suite, []), *providers(suite)] if suite is not None else ())
    inputs = read_inputs(request.form, base)
    if len(msgspec.json.encode(inputs)) > _MOST_INPUT_BYTES:
        raise RequestError("validation_failed", f"inputs: expected at most {_MOST_INPUT_BYTES:,} bytes, got more")
    expected = request.field("expected")
    # A text alone is to be contained.
    expect = request.field("expect") or ("contains" if expected.strip() else "")
    dialect, record, has_checks = _record(site, base, inputs, expectation(expect, expected), suite)
    id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{token_hex(3)}"
    words = _words(site, id, target, chosen, dialect, has_checks)
    check_permissions(request, words)
    folder = site.home / TRIES / id
    write_text(folder / CASE_FILE, msgspec.json.encode(record).decode() + "\n")
    job = start_job(request, words)
    place = ("data", "case", "batch", "run")
    tried = Try(
        target, inputs, chosen, dialect, expect, expected, words, job.id,
        **{name: getattr(base, name) for name in place} if base else {},
    )  # fmt: skip
    write_text(folder / TRY_FILE, msgspec.json.encode(tried).decode())
    site.jobs.wait(job.id, _WAIT_S)
    return Redirect(f"/try/{id}")


def _record(
    site: Site, base: BaseCase | None, inputs: Record, checks: tuple[Check, ...], suite: Suite | None
) -> tuple[str, Record, bool]:
    """Return the format and the record that are run, and whether anything is expected.

    A case that nobody changed is run as it is, with its own expectations. A changed one of a suite keeps its options.
    """
    if base is not None and base.record and base.dialect:
        records = [base.record] if inputs == base.inputs and not checks else []
        records += [suite.change(base.record, inputs, checks)] if suite is not None and suite.change is not None else []
        for record in records:
            read = read_record(site, base.dialect, record)
            if read is not None and read.inputs == inputs:
                return base.dialect, record, bool(read.checks)
    dialect, record = record_of(site, Case("try", inputs, checks))
    return dialect, record, bool(checks)


def _words(site: Site, id: str, target: str, chosen: list[str], dialect: str, has_checks: bool) -> list[str]:
    settings = site.file_reports.settings()
    words = ["run", f"{TRIES}/{id}/{CASE_FILE}", *(option("--target", target) if target else [])]
    words += [word for name in chosen for word in option("--profile", name)]
    words += ["--dialect", dialect, "--repeat", "1", "--allow-unscored"]
    words += ["--allow-code"] if target.startswith(SUITE) and site.permissions.code else []
    words += [] if has_checks or settings.checks else ["--no-checks"]
    # The settings may name files for the results of the whole suite, and a part of its cases.
    words += ["-o", f"{TRIES}/{id}/{_NO_RESULT_FILES}"] if settings.run.output else []
    return words + (["--filter", "1 == 1"] if settings.run.filter else [])


def _save(request: PageRequest) -> Redirect:
    """Append the case to a file, with the expectation that somebody chose."""
    site = request.site
    check_permissions(request, ["run"])
    id, tried = find_try(site, request.ids["try"])
    tags = tuple(tag.strip() for tag in request.field("tags").split(",") if tag.strip())
    checks = expectation(request.field("expect"), request.field("expected"))
    name = request.field("id").strip()
    if not name or len(name) > 200 or not name.isprintable():
        raise RequestError("validation_failed", f"id: expected one line of 1 to 200 characters, got {name[:80]!r}")
    case = Case(name, tried.inputs, checks, tags)
    saved = save(site, request.field("file").strip(), case, _own_record(site, tried, case))
    return Redirect(request.url(f"/try/{id}", saved=saved.path, line=saved.line, case=name))


def _own_record(site: Site, tried: Try, case: Case) -> OwnRecord | None:
    """Return a case of a suite as a test of it, with the options of the test that the try came from."""
    try:
        base = find_base(site, lambda name: str(getattr(tried, name, "") or ""))
        suite = _suite(site, tried.target, tried.profiles)
    except RequestError:
        return None  # the file or batch that the try came from is gone
    if suite is None or suite.change is None or base is None or base.dialect != tried.dialect:
        return None
    record = suite.change(base.record, case.inputs, case.checks)
    metadata = {**record.get("metadata", {}), "tags": list(case.tags)} if case.tags else record.get("metadata")
    record = {"id": case.id, "description": case.id, **record, **({"metadata": metadata} if metadata else {})}
    read = read_record(site, base.dialect, record)
    return OwnRecord(base.dialect, record) if read is not None and read.inputs == case.inputs else None


PAGES = (
    Page("/try", _show_form),
    Page("/try", _start, "POST"),
    Page("/try/inputs", _show_inputs, "POST"),
    Page("/try/{try}", _show),
    Page("/try/{try}/save", _save, "POST"),
)
