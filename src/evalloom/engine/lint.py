"""The linter: files and folders to one report."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom.core.clock import utc_now
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Checked, Finding, Origin
from evalloom.data.checks import FIELD, NEEDS
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Rules
from evalloom.data.mapping import Mapping
from evalloom.data.validate import validate
from evalloom.data.validate.check import Consumer
from evalloom.engine.system import Catalog
from evalloom.files.read import CSV_SUFFIXES, JSON_SUFFIXES, YAML_SUFFIXES, RowReader
from evalloom.files.rows import Row
from evalloom.files.source import Source, source_of
from evalloom.reports.lint import LintReport

SUFFIXES = (*JSON_SUFFIXES, *CSV_SUFFIXES, *YAML_SUFFIXES)
_ADVICE = ("fields_from_elsewhere", "checks_not_read")
_MOST_SEARCHED = 100_000
"""In a file with more cases, nobody is told that none of them expects anything: the second pass would take long."""
SKIPPED_FOLDERS = ("node_modules", "__pycache__")
_REPORT_START = b'{\n  "schema_version": 2,\n  "generated_at"'
SETTINGS = ("settings.yaml", "evalloom.yaml")
"""The names of settings files; HOP tasks had the first one before."""
_SKIPPED_FILES = (*SETTINGS, "package.json", "package-lock.json")


class LintOptions(Struct, frozen=True):
    """Options of the linter, from flags and settings."""

    dialect: str = ""
    mapping: Mapping = Mapping()
    encoding: str = ""
    rules: Rules = Rules()
    strict: bool = False
    hints: bool = True
    deep: bool = False
    tool: str = "evalloom validate"
    has_checks: bool = False
    """Whether the settings have checks for all cases, or say that none are meant."""


def lint(
    paths: Iterable[str], catalog: Catalog, options: LintOptions = LintOptions(), settings: Path | None = None
) -> LintReport:
    """Lint every file that the paths name; folders are searched. `settings` is a file whose checks are linted too."""
    forget_files(catalog)
    checked = [found for found in [lint_settings(settings, catalog)] if found.findings] if settings else []
    for source, in_folder in find_sources(paths, catalog, options.encoding):
        result = lint_source(source, catalog, options)
        checked.append(_without_failure(result) if in_folder else result)
    return report_of(checked, options)


def lint_source(source: Source, catalog: Catalog, options: LintOptions) -> Checked:
    """Lint one file, and note if nothing is expected of any of its cases."""
    dataset = open_dataset(source, catalog, options)
    result = lint_dataset(dataset, catalog, options)
    if not options.has_checks and expects_nothing(dataset, result, catalog, options):
        return _with_finding(result, _nothing_expected(dataset))
    return result


def lint_settings(path: Path, catalog: Catalog) -> Checked:
    """Lint the checks of a settings file: those that a run refuses, cannot score, or lacks a service for."""
    from evalloom.engine.check_rules import check_rules
    from evalloom.settings import load as load_settings

    settings, rules = load_settings(path, catalog.sections), check_rules(catalog.matchers)
    has_judge, has_embeddings = bool(settings.judge), bool(settings.embeddings)
    has = {"judge": has_judge, "embeddings": has_embeddings, "judge_or_embeddings": has_judge or has_embeddings}
    row = next((row for row in RowReader(source_of(path)) if isinstance(row, Row)), None)
    findings = []
    for number, written in enumerate(settings.checks):
        origin = Origin(path.as_posix(), *(row.place_of((FIELD, number)) if row else ()))
        field = f"{FIELD}[{number}]"
        try:
            check = catalog.matchers.parse(written)
        except EvalloomError as error:
            findings.append(Finding(error.code, "error", f"{field}: {error.args[0]}", origin, FIELD))
            continue
        need = rules.needs(check)
        if why := rules.why_unscored(check):
            message = f"{field}: will not be scored: {why}"
            findings.append(Finding("check_not_scored", "warning", message, origin, FIELD))
        elif not has.get(need, True):
            message = f"{field}: {check.kind!r} needs {NEEDS[need]}"
            findings.append(Finding(f"needs_{need}", "info", message, origin, FIELD))
    counts = Counter((finding.code, finding.severity) for finding in findings)
    lines = len(path.read_bytes().splitlines())
    return Checked(path.as_posix(), "settings", "its checks", lines, 0, findings, dict(counts), is_document=True)


def lint_sources(sources: Iterable[Source], catalog: Catalog, options: LintOptions) -> LintReport:
    """Lint some files."""
    forget_files(catalog)
    return report_of(
        [lint_dataset(open_dataset(source, catalog, options), catalog, options) for source in sources], options
    )


def open_dataset(source: Source, catalog: Catalog, options: LintOptions) -> Dataset:
    return Dataset(source, catalog.formats, options.dialect, options.mapping)


def report_of(checked: list[Checked], options: LintOptions) -> LintReport:
    """Build the report on files that were linted."""
    return LintReport(checked, options.tool, options.rules.root, utc_now(), options.strict)


def forget_files(catalog: Catalog) -> None:
    """Clear what dialects cache about files beside datasets, which may have changed since."""
    for dialect in catalog.formats.dialects:
        dialect.forget()


def find_sources(paths: Iterable[str], catalog: Catalog, encoding: str = "") -> Iterator[tuple[Source, bool]]:
    """Yield each file to read, and whether it was found in a folder."""
    skipped = (*_SKIPPED_FILES, *catalog.own_files)
    for name in paths:
        path = Path(name)
        if name == "-" or not os.path.isdir(path):
            yield source_of(name, encoding), False
            continue
        is_empty, files = True, sorted(path.rglob("*"))
        parts = {part for file in files if file.name in SETTINGS for part in _scripts_and_prompt(file, catalog)}
        for file in files:
            source = source_of(file, encoding)
            if source.suffix not in SUFFIXES or file in parts:
                continue
            is_hidden = any(part.startswith(".") or part in SKIPPED_FOLDERS for part in file.relative_to(path).parts)
            if file.name not in skipped and not is_hidden and _is_data(file):
                is_empty = False
                yield source, True
        if is_empty:
            raise usage_error("no_files", f"{path.as_posix()}: expected files in JSONL, JSON, CSV or YAML, found none")


def _scripts_and_prompt(config: Path, catalog: Catalog) -> Iterator[Path]:
    """Yield the files that a settings file names as scripts of llms or as its prompt: YAML, but not datasets."""
    from evalloom.settings import load as load_settings  # deferred: only a search of folders needs it

    try:
        settings = load_settings(config, catalog.sections)
    except EvalloomError:
        return  # `evalloom run` says what is wrong with it
    yield from (llm.folder / llm.file for llm in settings.llms.values() if llm.file)
    target = settings.target
    prompt = target.get("prompt") if isinstance(target, dict) else target.removeprefix("prompt:")
    if isinstance(prompt, str):
        yield settings.folder / prompt


def _is_data(file: Path) -> bool:
    """Whether this is a file, and not a report of an earlier run."""
    if not os.path.isfile(file):
        return False
    try:
        with file.open("rb") as stream:
            return stream.read(len(_REPORT_START)) != _REPORT_START
    except OSError:
        return True  # the reader says why it cannot be opened


def lint_dataset(dataset: Dataset, catalog: Catalog, options: LintOptions, consumer: Consumer | None = None) -> Checked:
    """Lint one file; a `consumer` reads its rows in the same pass."""
    source, document = dataset.source, dataset.document
    if document is not None and source.path is not None:
        findings = [
            msgspec.structs.replace(finding, origin=msgspec.structs.replace(finding.origin, file=source.name))
            for finding in document.findings(source.path)
        ]
        counts = Counter((finding.code, finding.severity) for finding in findings)
        lines = len(source.path.read_bytes().splitlines())
        return Checked(source.name, document.name, document.reason, lines, 0, findings, dict(counts), is_document=True)
    rules = options.rules
    is_open = rules.contract is None and not rules.has_no_contract
    if is_open and source.path is not None and (contract := dataset.dialect.contract_beside(source.path)):
        rules = msgspec.structs.replace(rules, contract=contract)
    further = _deep(source, catalog, options) if options.deep else ()
    return validate(dataset, rules, options.hints, further, consumer)


def expects_nothing(dataset: Dataset, checked: Checked, catalog: Catalog, options: LintOptions) -> bool:
    """Whether a file has cases, and no case of it has a check."""
    # Rows that are known by their number are run by hoplets and recipes, which give a result of their own.
    is_checked_otherwise = dataset.dialect.has_row_numbers or not dataset.dialect.expectations
    # Advice on how to read a field as an expectation says more.
    is_checked_otherwise |= any(finding.code in _ADVICE for finding in checked.findings)
    is_readable = checked.cases and not checked.is_document and not checked.count("error")
    path = dataset.source.path
    if is_checked_otherwise or not is_readable or checked.cases > _MOST_SEARCHED:
        return False
    if path is None or path.is_fifo():  # neither can be read twice
        return False
    # A second pass, which mostly ends at the first case.
    again = open_dataset(dataset.source, catalog, options)
    rows = (item for item in again if isinstance(item, Row) and isinstance(item.value, dict))
    return not any(again.case(row.value, again.origin(row)).checks for row in rows if again.dialect.is_case(row.value))


def _nothing_expected(dataset: Dataset) -> Finding:
    field = dataset.dialect.expectations[0]
    message = (
        "nothing is expected of any case: 'evalloom run' will end with exit code 3 unless --no-checks is passed."
        f" Add {field} to the cases, or 'checks:' to evalloom.yaml"
    )
    return Finding("nothing_expected", "info", message, Origin(dataset.source.name))


def _with_finding(checked: Checked, finding: Finding) -> Checked:
    counts = {**checked.counts, (finding.code, finding.severity): 1}
    return msgspec.structs.replace(checked, findings=[*checked.findings, finding], counts=counts)


def _deep(source: Source, catalog: Catalog, options: LintOptions) -> Iterator[Finding]:
    """Findings that need all cases at once, from a second pass."""
    if source.path is None or source.path.is_fifo():
        message = "--deep reads its source twice, so it needs a file: save stdin to one"
        yield Finding("deep_needs_file", "info", message, Origin(source.name))
        return
    # Deferred: numpy and rapidfuzz take longer to import than most files take to check.
    from evalloom.data.validate.deep import deep_findings

    yield from deep_findings(open_dataset(source, catalog, options))


def _without_failure(checked: Checked) -> Checked:
    """Turn `not_a_dataset` into an info: a user who names a folder does not mean each file in it."""
    findings = [
        msgspec.structs.replace(finding, severity="info") if finding.code == "not_a_dataset" else finding
        for finding in checked.findings
    ]
    counts = {
        (code, "info" if code == "not_a_dataset" else severity): n for (code, severity), n in checked.counts.items()
    }
    return msgspec.structs.replace(checked, findings=findings, counts=counts)
