"""Try one: a form of the target's inputs, and the run of that one case with each chosen profile."""

from __future__ import annotations

from datetime import UTC, datetime
from secrets import token_hex

import msgspec
from msgspec import Struct

from evalloom.core.model import Case, Record
from evalloom.files.write import write_text
from evalloom.pages.errors import RequestError
from evalloom.pages.library import TRIES
from evalloom.pages.page import Page, PageRequest, Redirect, View
from evalloom.pages.site import Site
from evalloom.pages.start import check_permissions, start_job
from evalloom.web.choices import ProfileChoice, check_profiles, check_target, option, profiles, targets
from evalloom.web.save_case import save
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
from evalloom.web.try_result import CASE_FILE, TRY_FILE, Try, find_try, show

_WAIT_S = 2.0
_NO_RESULT_FILES = "results.jsonl"
_MOST_INPUT_BYTES = 4_000_000


class TryForm(Struct, frozen=True):
    """The form."""

    target: str
    own_target: str
    """The target of evalloom.yaml; empty if it names none."""
    targets: list[str]
    fields: list[InputField]
    profiles: list[ProfileChoice]
    base: BaseCase | None
    expect: str
    expected: str
    may_run: bool
    """Whether this server lets pages start batches."""


def _form(request: PageRequest) -> View:
    site = request.site

    def get(name: str) -> str:
        return request.query.get(name, "").strip()

    earlier = find_try(site, get("from"))[1] if get("from") else None
    if earlier is not None:
        fields = msgspec.structs.asdict(earlier)
        base = find_base(site, lambda name: str(fields.get(name) or ""))
        shown = earlier.inputs
    else:
        base = find_base(site, get)
        shown = base.inputs if base else {}
    target = get("target") or (earlier.target if earlier else base.target if base else "")
    filled = msgspec.structs.replace(base, inputs=shown) if base else None
    chosen = request.query.getlist("profile") or (earlier.profiles if earlier else base.profiles if base else [])
    own = site.file_reports.settings().target
    data = TryForm(
        target,
        own if isinstance(own, str) else next(iter(own), ""),
        targets(site),
        input_fields(site, target, filled or BaseCase("", shown, {}, "", [])),
        profiles(site, chosen),
        base,
        earlier.expect if earlier else "",
        earlier.expected if earlier else "",
        site.permissions.run,
    )
    return View("try.html", data)


def _start(request: PageRequest) -> Redirect:
    site = request.site
    check_permissions(request, [])
    base = find_base(site, request.field)
    target, chosen = request.field("target").strip(), list(dict.fromkeys(filter(None, request.form.get("profile", []))))
    check_target(site, target)
    check_profiles(site, chosen)
    inputs = read_inputs(request.form, base)
    if len(msgspec.json.encode(inputs)) > _MOST_INPUT_BYTES:
        raise RequestError("validation_failed", f"inputs: expected at most {_MOST_INPUT_BYTES:,} bytes, got more")
    expect, expected = request.field("expect"), request.field("expected")
    dialect, record, has_checks = _record(site, base, inputs, expect, expected)
    id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{token_hex(3)}"
    words = _words(site, id, target, chosen, dialect, has_checks)
    check_permissions(request, words)
    folder = site.home / TRIES / id
    write_text(folder / CASE_FILE, msgspec.json.encode(record).decode() + "\n")
    job = start_job(request, words)
    place = ("data", "case", "batch", "run")
    tried = Try(
        target, inputs, chosen, dialect, expect if expected.strip() else "", expected, words, job.id,
        **{name: getattr(base, name) for name in place} if base else {},
    )  # fmt: skip
    write_text(folder / TRY_FILE, msgspec.json.encode(tried).decode())
    site.jobs.wait(job.id, _WAIT_S)
    return Redirect(f"/try/{id}")


def _record(site: Site, base: BaseCase | None, inputs: Record, expect: str, expected: str) -> tuple[str, Record, bool]:
    """Return the format and the record that are run, and whether anything is expected.

    A case that nobody changed is run as it is, with its own expectations.
    """
    if base is not None and base.record and base.dialect and inputs == base.inputs and not expect:
        read = read_record(site, base.dialect, base.record)
        if read is not None and read.inputs == inputs:
            return base.dialect, base.record, bool(read.checks)
    case = Case("try", inputs, expectation(expect, expected))
    dialect, record = record_of(site, case)
    return dialect, record, bool(case.checks)


def _words(site: Site, id: str, target: str, chosen: list[str], dialect: str, has_checks: bool) -> list[str]:
    settings = site.file_reports.settings()
    words = ["run", f"{TRIES}/{id}/{CASE_FILE}", *(option("--target", target) if target else [])]
    words += [word for name in chosen for word in option("--profile", name)]
    words += ["--dialect", dialect, "--repeat", "1", "--allow-unscored"]
    words += [] if has_checks or settings.checks else ["--no-checks"]
    # The settings may name files for the results of the whole suite, and a part of its cases.
    words += ["-o", f"{TRIES}/{id}/{_NO_RESULT_FILES}"] if settings.run.output else []
    return words + (["--filter", "1 == 1"] if settings.run.filter else [])


def _save(request: PageRequest) -> Redirect:
    """Append the case to a file, with the expectation that somebody chose."""
    site = request.site
    check_permissions(request, [])
    id, tried = find_try(site, request.ids["try"])
    tags = tuple(tag.strip() for tag in request.field("tags").split(",") if tag.strip())
    checks = expectation(request.field("expect"), request.field("expected"))
    name = request.field("id").strip()
    if not name or len(name) > 200 or not name.isprintable():
        raise RequestError("validation_failed", f"id: expected one line of 1 to 200 characters, got {name[:80]!r}")
    saved = save(site, request.field("file").strip(), Case(name, tried.inputs, checks, tags))
    return Redirect(request.url(f"/try/{id}", saved=saved.path, line=saved.line, case=name))


PAGES = (
    Page("/try", _form),
    Page("/try", _start, "POST"),
    Page("/try/{try}", show),
    Page("/try/{try}/save", _save, "POST"),
)
