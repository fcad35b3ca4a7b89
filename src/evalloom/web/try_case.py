"""One case to try: where its inputs come from, what the target asks for, and the record that is run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Case, Check, Record, check_name
from evalloom.core.text import quote
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Dialect
from evalloom.engine.suite import SUITE, Suite
from evalloom.files.rows import Row
from evalloom.files.source import Source
from evalloom.pages.errors import RequestError
from evalloom.pages.site import Site
from evalloom.targets import TargetOptions, build
from evalloom.ui.text import visible
from evalloom.web.choices import check_target, suite_of
from evalloom.web.data import case_rows, record_error

EXPECTATIONS = ("contains", "equals")
_CASE = """
    SELECT c.case_id, c.input, c.record, c.dialect, r.profile FROM runs r
    JOIN cases c ON c.case_id = r.case_id AND c.number IS NOT DISTINCT FROM r.number WHERE r.key = ? LIMIT 1
"""


class BaseCase(Struct, frozen=True):
    """The case that the form was filled from."""

    id: str
    inputs: Record
    record: Record
    dialect: str
    checks: list[str]
    """What is expected of it, in words."""
    data: str = ""
    case: int = 0
    batch: str = ""
    run: str = ""
    target: str = ""
    profiles: list[str] = []


class InputField(Struct, frozen=True):
    """One field of the form."""

    name: str
    value: str
    kind: str
    """`text`, or `json` for everything else."""
    is_required: bool
    type: str = ""
    """The type that the contract declares."""

    @property
    def rows(self) -> int:
        """How high the field is shown."""
        return min(max(2, self.value.count("\n") + 1 + len(self.value) // 60), 14)


# -- where the inputs come from --------------------------------------------------------------------------


def find_base(site: Site, get: Callable[[str], str]) -> BaseCase | None:
    """Return the case that an address names: of a batch, or of a file; without one, the first case of a dataset."""
    if get("batch") and get("run"):
        return _case_of_run(site, get("batch"), get("run"))
    suite = get("target").removeprefix(SUITE) if get("target").startswith(SUITE) else ""
    data, number = get("data") or suite, get("case")
    if number and not (number.isascii() and number.isdecimal() and 0 < int(number[:12]) < 10**9):
        raise RequestError("validation_failed", f"case: expected the number of a case, got {quote(number, 40)}")
    if data:
        base = _case_of_file(site, data, int(number) if number else 1, is_first=not number)
        if base is None and number:
            raise RequestError("case_not_found", f"{quote(data, 100)}: there is no case at {number}")
        return base
    for path in site.file_reports.settings().datasets[:1]:
        try:
            return _case_of_file(site, path, 1, is_first=True)
        except RequestError:
            return None
    return None


def _case_of_run(site: Site, batch: str, run: str) -> BaseCase:
    rows = site.library.rows(batch, _CASE, [run])
    if not rows:
        raise RequestError("run_not_found", f"the batch {quote(batch, 80)} has no run {quote(run, 80)}")
    id, inputs, record, dialect, profile = rows[0]
    target = _target_again(site, site.library.manifest(batch).target)
    decoded, whole = _object(inputs), _object(record)
    checks: list[str] = []
    if dialect and whole:
        read = read_record(site, dialect, whole)
        checks = _check_texts(read) if read is not None else []
    return BaseCase(id, decoded, whole, dialect or "", checks, "", 0, batch, run, target, [profile] if profile else [])


def _target_again(site: Site, name: str) -> str:
    """Return the target that a batch names as it is written for another run; empty for one of the settings."""
    for target in (name, f"{SUITE}{name}"):
        try:
            check_target(site, target)
            if not target.startswith(SUITE) or suite_of(site, "", target, []) is not None:
                return target
        except (RequestError, EvalloomError):
            continue
    return ""


def _object(text: Any) -> Record:
    value = msgspec.json.decode(text) if text else {}
    return value if isinstance(value, dict) else {"input": value}


def _case_of_file(site: Site, data: str, number: int, is_first: bool) -> BaseCase | None:
    source = site.files.source(data)
    report = site.file_reports.get(data)
    dialect = report.kind if report is not None and report.is_dataset else ""
    for row in case_rows(site, source, dialect, number, 100 if is_first else 1):
        if record_error(row.dataset, row.record):
            continue
        case = row.dataset.case(row.record, row.dataset.origin(Row(row.record, row.line)))
        name = row.dataset.dialect.name
        target = _target_again(site, data) if _names_no_target(site) else ""
        return BaseCase(case.id, case.inputs, row.record, name, _check_texts(case), data, row.number, target=target)
    return None


def _names_no_target(site: Site) -> bool:
    settings = site.file_reports.settings()
    return not settings.target and not settings.targets


def _check_texts(case: Case) -> list[str]:
    return [f"{check_name(check)} {quote(check.expected, 200)}" for check in case.checks]


# -- the fields of the form ------------------------------------------------------------------------------


def input_fields(site: Site, target: str, base: BaseCase | None, suite: Suite | None = None) -> list[InputField]:
    """Return the fields: the variables of a prompt or those of a contract first, then the other inputs of the case."""
    inputs = base.inputs if base else {}
    required, optional = (frozenset(), suite.variables) if suite is not None else _prompt_variables(site, target)
    types: dict[str, str] = {}
    if base and base.data and base.dialect:
        contract = site.catalog.formats.by_name(base.dialect).contract_beside(site.files.path(base.data))
        types = {name: field.type for name, field in contract.inputs.items()} if contract else {}
    names = dict.fromkeys([*sorted(required), *types, *inputs, *sorted(optional)])
    return [_field(name, inputs.get(name), types.get(name, ""), name in required) for name in names]


def _field(name: str, value: Any, type: str, is_required: bool) -> InputField:
    if value is None:
        return InputField(name, "", "text" if type in ("", "string", "any") else "json", is_required, type)
    # A field of a form loses control characters, and a page spells them out.
    if isinstance(value, str) and visible(value) == value and "\r" not in value:
        return InputField(name, value, "text", is_required, type)
    text = json.dumps(value, ensure_ascii=False, indent=2)
    if visible(text) != text:
        text = json.dumps(value, indent=2)
    return InputField(name, text, "json", is_required, type)


def _prompt_variables(site: Site, target: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the variables that a prompt needs, and those that it may have; code is never imported here."""
    settings = site.file_reports.settings()
    spec = target or settings.target
    if isinstance(spec, str):
        is_prompt = spec.partition(":")[0].strip().lower() == "prompt"
    else:
        is_prompt = "prompt" in spec or "template" in spec
    if not is_prompt:
        return frozenset(), frozenset()
    try:
        check_target(site, target)
        built = build(spec, site.home if target else settings.folder, TargetOptions())
    except (EvalloomError, RequestError):
        return frozenset(), frozenset()  # the run says what is wrong with it
    return built.variables, built.optional | built.defaulted


def read_inputs(form: Mapping[str, list[str]], base: BaseCase | None) -> Record:
    """Return the inputs that somebody typed; a field that the target can do without may be empty."""
    inputs: Record = {}
    for key, values in form.items():
        prefix, dot, name = key.partition(".")
        if prefix != "input" or not dot or not values:
            continue
        kind = (form.get(f"type.{name}") or ["text"])[0]
        # A browser sends line breaks as two characters.
        text = values[0].replace("\r\n", "\n")
        known = base.inputs.get(name) if base else None
        if not text.strip() and kind != "text" and known is None:
            continue
        if kind == "json":
            inputs[name] = _json(name, text)
        elif text or known is not None or kind == "text":
            is_same = isinstance(known, str) and known.replace("\r\n", "\n") == text
            inputs[name] = known if is_same else text
    more = (form.get("more") or [""])[0].strip()
    if more:
        value = _json("more", more)
        if not isinstance(value, dict):
            raise RequestError("validation_failed", f"more: expected a JSON object, got {quote(more, 60)}")
        inputs |= value
    return inputs


def _json(name: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        message = f"{name}: expected JSON, got {quote(text, 60)}: {error}"
        raise RequestError("validation_failed", message) from None


# -- the record that is run ------------------------------------------------------------------------------


def expectation(kind: str, text: str) -> tuple[Check, ...]:
    """Return the check that somebody typed; none without a kind."""
    if not kind:
        return ()
    text = text.replace("\r\n", "\n")
    if kind not in EXPECTATIONS or not text.strip():
        expected = f"{' or '.join(EXPECTATIONS)} and a text"
        raise RequestError("validation_failed", f"expect: expected {expected}, got {quote(kind, 40)}")
    return (Check("contains", text.strip()) if kind == "contains" else Check("equals", text),)


def record_of(site: Site, case: Case) -> tuple[str, Record]:
    """Return a case as a record of the first format that holds all of it, and the name of that format."""
    for dialect in site.catalog.formats.writers:
        record, lost = write_record(site, dialect, case, 1)
        if record is not None and not lost:
            return dialect.name, record
    raise RequestError("cannot_save", "no format holds these inputs and this expectation. Change the expected text")


def write_record(site: Site, dialect: Dialect, case: Case, number: int) -> tuple[Record | None, str]:
    """Return a case as a record of a format, and what the format cannot hold; the record is read again to be sure."""
    if dialect.write is None:
        return None, f"the format {dialect.name} cannot be written"
    written = dialect.write(case, number)
    if written.lost:
        return None, "; ".join(written.lost)
    read = read_record(site, dialect.name, written.record)
    if read is None or read.id != case.id or read.inputs != case.inputs or set(read.tags) != set(case.tags):
        return None, f"the format {dialect.name} would read it as another case"
    if [_meaning(check) for check in read.checks] != [_meaning(check) for check in case.checks]:
        return None, f"the format {dialect.name} would read the expected text as another check"
    return written.record, ""


def _meaning(check: Check) -> tuple[str, Any]:
    """Return what a check expects of a text: `structural` is `equals` there, and `contains_all` of one `contains`."""
    kind = {"structural": "equals", "contains_all": "contains"}.get(check.kind, check.kind)
    expected = check.expected
    return kind, expected[0] if isinstance(expected, list) and len(expected) == 1 else expected


def read_record(site: Site, dialect: str, record: Record) -> Case | None:
    """Return the case of a record as it would be read from a file; None if it would not be one case."""
    source = Source("case.jsonl", None, "", msgspec.json.encode(record) + b"\n")
    dataset = Dataset(source, site.catalog.formats, dialect)
    rows = list(dataset)
    if len(rows) != 1 or not isinstance(rows[0], Row) or record_error(dataset, rows[0].value):
        return None
    if len(list(dataset.dialect.multiplied(rows[0].value))) != 1:
        return None
    return dataset.case(rows[0].value, dataset.origin(rows[0]))
