"""Saves a case that was tried: at the end of a JSONL file, or in a new one. Lines that are there are never changed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom.core.model import Case, Record
from evalloom.core.text import quote
from evalloom.files.source import Source, is_plain
from evalloom.pages.errors import RequestError
from evalloom.pages.file_lines import count_lines
from evalloom.pages.site import Site
from evalloom.web.try_case import record_of, write_record

_WAIT_S = 10.0
_lock = threading.Lock()


class SavedCase(Struct, frozen=True):
    """Where a case was written."""

    path: str
    line: int


class OwnRecord(Struct, frozen=True):
    """A case as its own format holds it, for a new file or one of that format."""

    dialect: str
    record: Record


def save(site: Site, name: str, case: Case, own: OwnRecord | None = None) -> SavedCase:
    """Append a case to a file of the project, or write it to a new one; raise if its format cannot hold the case."""
    if not name.lower().endswith(".jsonl"):
        raise RequestError("cannot_save", f"file: expected the name of a .jsonl file, got {quote(name, 100)}")
    path = site.files.path(name, is_new=True)
    with _lock:
        if not path.exists():
            record = own.record if own is not None else record_of(site, case)[1]
            _write(path, msgspec.json.encode(record) + b"\n", os.O_CREAT | os.O_EXCL)
            return SavedCase(name, 1)
        line = _line_for(site, name, path, case, own)
        number = count_lines(path) + 1
        ends = _ends_with_break(path)
        _write(path, (b"" if ends else b"\n") + line + b"\n", os.O_APPEND)
        return SavedCase(name, number)


def _line_for(site: Site, name: str, path: Path, case: Case, own: OwnRecord | None) -> bytes:
    """Return the line of a case for a file that exists."""
    if not is_plain(Source(name, path)):
        raise RequestError(
            "cannot_save", f"{name}: expected a file in UTF-8 without a byte order mark. Use another file"
        )
    if path.stat().st_size == 0:
        return msgspec.json.encode(own.record if own is not None else record_of(site, case)[1])
    report = site.file_reports.get(name, wait_s=_WAIT_S)
    if report is None or not report.is_dataset or not report.cases:
        raise RequestError("cannot_save", f"{name}: expected a file of test cases. Use another file")
    dialect = site.catalog.formats.by_name(report.kind)
    if own is not None and own.dialect == dialect.name:
        record: Record | None = own.record
        lost = ""
    else:
        record, lost = write_record(site, dialect, case, report.cases + 1)
    if record is None:
        message = f"{name}: its format, {dialect.name}, cannot hold this case: {lost}. Use a new file"
        raise RequestError("cannot_save", message)
    if number := _line_with_id(path, case.id):
        raise RequestError("cannot_save", f"{name}: line {number} has the id {quote(case.id)} already. Use another id")
    return msgspec.json.encode(record)


def _line_with_id(path: Path, id: str) -> int:
    """Return the first line with an id; 0 if there is none."""
    # An id may be written with escapes, so only lines without any can be skipped unread.
    wanted = msgspec.json.encode(id)
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if wanted not in line and b"\\u" not in line:
                continue
            try:
                record = msgspec.json.decode(line)
            except msgspec.DecodeError:
                continue
            if isinstance(record, dict) and id in (record.get("id"), record.get("_id"), record.get("test_id")):
                return number
    return 0


def _ends_with_break(path: Path) -> bool:
    with path.open("rb") as stream:
        if stream.seek(0, os.SEEK_END) == 0:
            return True
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) == b"\n"


def _write(path: Path, content: bytes, how: int) -> None:
    """Write all of a text at once, or nothing."""
    try:
        file = os.open(path, os.O_WRONLY | how | getattr(os, "O_CLOEXEC", 0), 0o666)
        try:
            before = os.fstat(file).st_size
            if os.write(file, content) != len(content):
                os.ftruncate(file, before)
                raise OSError(28, "no space left on device")
            os.fsync(file)
        finally:
            os.close(file)
    except FileExistsError:
        raise RequestError("cannot_save", f"{path.name}: exists already. Save again to append to it") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RequestError("cannot_save", f"{path.name}: cannot be written: {reason}") from None
