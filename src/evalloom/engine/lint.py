"""`evalloom validate`: the files that were named, each through the linter, into one report."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom import settings
from evalloom.core.clock import utc_now
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Checked, Finding, Origin
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Rules
from evalloom.data.mapping import Mapping
from evalloom.data.validate import validate
from evalloom.engine.system import Catalog
from evalloom.files.read import CSV_SUFFIXES, JSON_SUFFIXES, YAML_SUFFIXES
from evalloom.files.source import Source, source_of
from evalloom.reports.lint import LintReport

_SUFFIXES = (*JSON_SUFFIXES, *CSV_SUFFIXES, *YAML_SUFFIXES)
_SKIPPED_FOLDERS = ("node_modules", "__pycache__")
_REPORT_START = b'{\n  "schema_version": 2,\n  "generated_at"'
SETTINGS = ("settings.yaml", settings.FILE_NAME)
"""The names that settings have; the first is the one of older tasks."""
_SKIPPED_FILES = (*SETTINGS, "package.json", "package-lock.json")


class LintOptions(Struct, frozen=True):
    """What flags and config files say about a linter's run."""

    dialect: str = ""
    mapping: Mapping = Mapping()
    encoding: str = ""
    rules: Rules = Rules()
    strict: bool = False
    hints: bool = True
    deep: bool = False
    tool: str = "evalloom validate"


def lint(paths: Iterable[str], catalog: Catalog, options: LintOptions = LintOptions()) -> LintReport:
    """The findings about every file that the paths name; folders are looked through."""
    checked = []
    _forget(catalog)
    for source, in_folder in find_sources(paths, catalog, options.encoding):
        one = _lint_one(source, catalog, options)
        checked.append(_only_met(one) if in_folder else one)
    return LintReport(checked, options.tool, options.rules.root, utc_now(), options.strict)


def lint_sources(sources: Iterable[Source], catalog: Catalog, options: LintOptions) -> LintReport:
    """The findings about some files, and only files."""
    _forget(catalog)
    checked = [_lint_one(source, catalog, options) for source in sources]
    return LintReport(checked, options.tool, options.rules.root, utc_now(), options.strict)


def _forget(catalog: Catalog) -> None:
    for dialect in catalog.formats.dialects:
        dialect.forget()


def find_sources(paths: Iterable[str], catalog: Catalog, encoding: str = "") -> Iterator[tuple[Source, bool]]:
    """Each file to read, and whether it was only met in a folder."""
    skipped = (*_SKIPPED_FILES, *catalog.own_files)
    for given in paths:
        path = Path(given)
        if given == "-" or not os.path.isdir(path):
            yield source_of(given, encoding), False
            continue
        found, files = False, sorted(path.rglob("*"))
        parts = {part for file in files if file.name in SETTINGS for part in _parts_of(file, catalog)}
        for file in files:
            source = source_of(file, encoding)
            if source.suffix not in _SUFFIXES or file in parts:
                continue
            if file.name not in skipped and _is_looked_at(file.relative_to(path)) and _is_data(file):
                found = True
                yield source, True
        if not found:
            raise usage_error("no_files", f"{path.as_posix()}: expected files in JSONL, JSON, CSV or YAML, found none")


def _parts_of(config: Path, catalog: Catalog) -> Iterator[Path]:
    """The files that a settings file names as scripts of llms or as its prompt: no data, though they are YAML."""
    try:
        known = settings.load(config, catalog.sections)
    except EvalloomError:
        return  # `evalloom run` says what is wrong with it
    yield from (llm.folder / llm.file for llm in known.llms.values() if llm.file)
    target = known.target
    prompt = target.get("prompt") if isinstance(target, dict) else target.removeprefix("prompt:")
    if isinstance(prompt, str):
        yield known.folder / prompt


def _is_looked_at(path: Path) -> bool:
    return not any(part.startswith(".") or part in _SKIPPED_FOLDERS for part in path.parts)


def _is_data(file: Path) -> bool:
    """Whether this is a file, and no report that an earlier run left here."""
    if not os.path.isfile(file):
        return False
    try:
        with file.open("rb") as stream:
            return stream.read(len(_REPORT_START)) != _REPORT_START
    except OSError:
        return True  # the reader says why it cannot be opened


def _lint_one(source: Source, catalog: Catalog, options: LintOptions) -> Checked:
    dataset = Dataset(source, catalog.formats, options.dialect, options.mapping)
    document = dataset.document
    if document is not None and source.path is not None:
        findings = document.findings(source.path)
        return _checked(source.name, source.path, document.name, document.reason, findings)
    rules = options.rules
    is_open = rules.contract is None and not rules.has_no_contract
    if is_open and source.path is not None and (contract := dataset.dialect.contract_beside(source.path)):
        rules = msgspec.structs.replace(rules, contract=contract)
    return validate(dataset, rules, options.hints, _deep(source, catalog, options) if options.deep else ())


def _checked(name: str, path: Path, kind: str, why: str, findings: Iterable[Finding]) -> Checked:
    """What was found about a file that holds no cases."""
    named = [msgspec.structs.replace(one, origin=msgspec.structs.replace(one.origin, file=name)) for one in findings]
    counts = Counter((one.code, one.severity) for one in named)
    return Checked(name, kind, why, len(path.read_bytes().splitlines()), 0, named, dict(counts), is_document=True)


def _deep(source: Source, catalog: Catalog, options: LintOptions) -> Iterator[Finding]:
    """What a second reading finds, with all cases in view."""
    if source.path is None:
        message = "--deep reads its source twice, so it needs a file: save stdin to one"
        yield Finding("deep_needs_file", "info", message, Origin(source.name))
        return
    # Deferred: numpy and rapidfuzz take longer to import than most files take to check.
    from evalloom.data.validate.deep import deep_findings

    yield from deep_findings(Dataset(source, catalog.formats, options.dialect, options.mapping))


def _only_met(checked: Checked) -> Checked:
    """A file in a folder that holds no cases at all is worth a remark, not a failure: nobody named it."""
    findings = [_as_info(finding) if finding.code == "not_a_dataset" else finding for finding in checked.findings]
    counts = {
        (code, "info" if code == "not_a_dataset" else severity): n for (code, severity), n in checked.counts.items()
    }
    return msgspec.structs.replace(checked, findings=findings, counts=counts)


def _as_info(finding: Finding) -> Finding:
    return msgspec.structs.replace(finding, severity="info")
