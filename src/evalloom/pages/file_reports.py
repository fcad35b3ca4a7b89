"""What a file holds and what is wrong with it, for pages: found once for each version of the file.

A small file is read here. A large one is read by `evalloom validate` and `evalloom inspect` as processes, which use all
cores and their own memory; a page waits for them only briefly. No code of a file ever runs.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Checked, Finding, Origin, Record, Severity
from evalloom.core.text import quote
from evalloom.data.dialect import Rules
from evalloom.engine.inspect import Contents, inspect
from evalloom.engine.lint import LintOptions, forget_files, lint_settings, lint_source, open_dataset
from evalloom.files.source import Source
from evalloom.pages.files import Files, is_settings
from evalloom.reports.lint import LABELS, in_line_order
from evalloom.settings import FILE_NAME, Settings
from evalloom.settings import load as load_settings

if TYPE_CHECKING:
    from evalloom.engine.system import Catalog

SMALL = 2 * 1024 * 1024
"""Bytes of a file that are read at once; above, and for compressed files, processes do it."""
_MOST_KEPT = 500
_MOST_FINDINGS = 1_000
_MOST_TAGS = 50
_MOST_WAITING = 20
_LIMIT_S = 600.0
_WAIT_AGAIN_S = 0.2
"""How long a page waits for a file that is being checked since an earlier request."""


class FileFinding(Struct, frozen=True):
    """A finding of the linter."""

    severity: str
    code: str
    message: str
    line: int
    column: int
    case: str = ""


class FieldFacts(Struct, frozen=True):
    """One field over all records, as `evalloom inspect` shows it."""

    name: str
    count: int
    types: str
    example: str


class FileReport(Struct, frozen=True):
    """The findings of `evalloom validate` and the contents of `evalloom inspect`."""

    kind: str = ""
    """The dialect of a dataset, or the kind of a document: "a pipeline"."""
    reason: str = ""
    is_document: bool = False
    is_dataset: bool = False
    lines: int = 0
    cases: int = 0
    records: int = 0
    errors: int = 0
    warnings: int = 0
    infos: int = 0
    findings: list[FileFinding] = []
    """The first of them, in the order of lines."""
    tags: dict[str, int] = {}
    """The most frequent."""
    more_tags: int = 0
    checks: dict[str, int] = {}
    fields: list[FieldFacts] = []
    failure: str = ""
    """Why it could not be checked."""
    is_partial: bool = False
    """Whether its tags and fields are still being counted."""


_Key = tuple[str, str]


class FileReports:
    """Reports on files, bounded in number. All methods are thread-safe."""

    def __init__(self, files: Files, catalog: Catalog, settings: Settings) -> None:
        self._files = files
        self._catalog = catalog
        self._settings = settings
        self._lock = threading.Lock()
        self._reports: OrderedDict[_Key, tuple[object, FileReport]] = OrderedDict()
        self._waiting: dict[tuple[_Key, object], Future[FileReport]] = {}
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="evalloom-check")
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._process is not None:
                self._process.kill()
        self._worker.shutdown(wait=False, cancel_futures=True)

    def get(self, name: str, encoding: str = "", wait_s: float = 0.0) -> FileReport | None:
        """Return the report on a file; None if it takes longer. A large file without `wait_s` is not begun."""
        source = self._files.source(name, encoding)
        assert source.path is not None
        key, status = (name, encoding), source.path.stat()
        stamp = (status.st_size, status.st_mtime_ns, self._settings_stamp())
        with self._lock:
            known = self._reports.get(key)
            if known is not None and known[0] == stamp:
                self._reports.move_to_end(key)
                return known[1]
        if status.st_size <= SMALL and source.path.suffix.lower() not in (".gz", ".zst"):
            return self._keep(key, stamp, self._read(source))
        return self._read_large(key, stamp, source, wait_s)

    def _keep(self, key: _Key, stamp: object, report: FileReport) -> FileReport:
        with self._lock:
            self._reports[key] = (stamp, report)
            while len(self._reports) > _MOST_KEPT:
                self._reports.popitem(last=False)
        return report

    def _settings_stamp(self) -> object:
        """Return the version of evalloom.yaml: its checks decide whether cases without any are worth a note."""
        with suppress(OSError):
            status = (self._files.home / FILE_NAME).stat()
            return (status.st_size, status.st_mtime_ns)
        return None

    def settings(self) -> Settings:
        """Return evalloom.yaml as it is now; as it was when the server started if it cannot be read."""
        path = self._files.home / FILE_NAME
        try:
            return load_settings(path, self._catalog.sections) if path.is_file() else self._settings
        except EvalloomError:
            return self._settings

    # -- small files ---------------------------------------------------------------------------------

    def _read(self, source: Source) -> FileReport:
        forget_files(self._catalog)
        assert source.path is not None
        try:
            if is_settings(source.name):
                return _report(lint_settings(source.path, self._catalog), None)
            settings = self.settings()
            options = LintOptions(
                encoding=source.encoding,
                rules=Rules(root=self._files.home),
                has_checks=bool(settings.checks or settings.run.no_checks),
            )
            checked = lint_source(source, self._catalog, options)
            contents = None if checked.is_document else inspect(open_dataset(source, self._catalog, options))
        except EvalloomError as error:
            message = str(error.args[0]).replace(f"{self._files.home.as_posix()}/", "")
            return FileReport(
                kind="settings" if is_settings(source.name) else "",
                is_document=is_settings(source.name),
                errors=1,
                findings=[FileFinding("error", error.code, message, 0, 0)],
            )
        return _report(checked, contents)

    # -- large files ---------------------------------------------------------------------------------

    def _read_large(self, key: _Key, stamp: object, source: Source, wait_s: float) -> FileReport | None:
        with self._lock:
            future = self._waiting.get((key, stamp))
            if future is not None:
                wait_s = min(wait_s, _WAIT_AGAIN_S)
            elif not wait_s or len(self._waiting) >= _MOST_WAITING or self._is_closed:
                return None
            else:
                future = self._waiting[key, stamp] = self._worker.submit(self._call, key, stamp, source)
        try:
            return future.result(wait_s)
        except TimeoutError:
            return None

    def _call(self, key: _Key, stamp: object, source: Source) -> FileReport:
        """Validate and inspect a file by processes, and keep the result."""
        try:
            words = ["--json", *(["--encoding", source.encoding] if source.encoding else []), "--", source.name]
            checked = _checked_of_json(self._json(["validate", *words]))
            report = _report(checked, None)
            if report.is_dataset and report.cases:
                self._keep(key, stamp, msgspec.structs.replace(report, is_partial=True))
                report = _report(checked, msgspec.convert(self._json(["inspect", *words]), Contents))
        except (subprocess.TimeoutExpired, OSError, KeyError, msgspec.MsgspecError) as error:
            report = FileReport(failure=type(error).__name__)
        with self._lock:
            self._waiting.pop((key, stamp), None)
        return self._keep(key, stamp, report)

    def _json(self, words: Sequence[str]) -> Record:
        with self._lock:
            if self._is_closed:
                raise OSError("the server is stopping")
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", "evalloom", *words],
                cwd=self._files.home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        try:
            output, _ = process.communicate(timeout=_LIMIT_S)
        finally:
            process.kill()
            process.wait()
        value: Any = msgspec.json.decode(output)
        return value if isinstance(value, dict) else {}


def _report(checked: Checked, contents: Contents | None) -> FileReport:
    is_dataset = not checked.is_document and not any(code == "not_a_dataset" for code, _ in checked.counts)
    tags = list(contents.tags.items()) if contents else []
    return FileReport(
        checked.dialect if checked.is_document or is_dataset else "",
        checked.reason,
        checked.is_document,
        is_dataset,
        checked.lines,
        checked.cases,
        contents.records if contents else 0,
        checked.count("error"),
        checked.count("warning"),
        checked.count("info"),
        [_shown(finding) for finding in in_line_order(checked.findings)[:_MOST_FINDINGS]],
        dict(tags[:_MOST_TAGS]),
        len(tags[_MOST_TAGS:]),
        contents.checks if contents else {},
        [_field(field.name, field.count, field.types, field.example) for field in contents.fields] if contents else [],
    )


def _shown(finding: Finding) -> FileFinding:
    origin = finding.origin
    return FileFinding(finding.severity, finding.code, finding.message, origin.line, origin.column, finding.case_id)


def _field(name: str, count: int, types: Record, example: Any) -> FieldFacts:
    words = " or ".join(kind.removeprefix("a ").removeprefix("an ") for kind in types)
    return FieldFacts(name, count, words, quote(example))


def _checked_of_json(found: Record) -> Checked:
    """Return the findings in the JSON of `evalloom validate`."""
    findings = [_parsed("error", entry["code"], entry) for entry in found["errors"]]
    findings += [_parsed("warning", entry["code"], entry) for entry in found["warnings"]]
    # Notes are only among the items, which lists of all severities are made of.
    findings += [
        _parsed("info", item["key"], item) for item in found["items"] if item["status_label"] == LABELS["info"]
    ]
    counts = Counter((finding.code, finding.severity) for finding in findings)
    # All findings of a code have the same severity.
    severities = dict(counts.keys())
    counts.update({(code, severities[code]): number for code, number in found["not_listed"].items()})
    file = (found["files"] or [{}])[0]
    return Checked(
        file.get("file", ""),
        file.get("dialect", ""),
        file.get("reason", ""),
        file.get("lines", 0),
        file.get("cases", 0),
        findings,
        dict(counts),
    )


def _parsed(severity: Severity, code: str, entry: Record) -> Finding:
    file, line, column = entry["loc"].rsplit(":", 2)
    return Finding(
        code, severity, entry["message"], Origin(file, int(line), int(column)), "", entry.get("case_id") or ""
    )
