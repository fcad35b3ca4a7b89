"""The file of a quarantine: reads it, and adds flaky cases to it without touching what a user wrote.

version: 1
cases:
  - id: c7
    file: cases.jsonl
    reason: flaky, fails 25% of 12 runs with nothing changed
    expires: 2026-12-18
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct

from evalloom.analysis.history_figures import CaseHistory, History
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.text import describe, did_you_mean, one_line, pluralize
from evalloom.files.rows import Problem, Refused, Row
from evalloom.files.write import write_text

VERSION = 1
_KEYS = ("id", "file", "profile", "reason", "expires")
_PLAIN = re.compile(r"[A-Za-z_/](?:[\w./%()+,-]|[ ;](?=[\w(]))*", re.ASCII)
"""A text that YAML reads as itself without quotation marks, unless it is one of its words."""
_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))
_HEADER = "# These cases run and are shown, but do not decide exit code, gates and --fail-under until they expire.\n"


class Entry(Struct, frozen=True):
    """A quarantined case. An empty file or profile stands for any."""

    id: str
    expires: date
    file: str = ""
    profile: str = ""
    reason: str = ""
    line: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.id, self.file, self.profile)


def today() -> date:
    """Return the present day in UTC."""
    return datetime.now(UTC).date()


def read_entries(path: Path) -> list[Entry]:
    """Read the entries of a file. Raises bad_quarantine with the line of each error."""
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise usage_error("cannot_read", f"{path.as_posix()}: cannot be read: {reason}") from None
    row = _row(path, data)
    return _entries(path, row) if row is not None else []


def _row(path: Path, data: bytes) -> Row | None:
    """Return the object of the file; None if the file is empty."""
    from evalloom.files.yaml_rows import YamlReader  # deferred: yaml takes long to import

    items: list[Row | Problem] = []
    try:
        items.extend(YamlReader([data.removeprefix(b"\xef\xbb\xbf")]))
    except Refused as error:
        items.append(error.problem)
    problems = [item for item in items if isinstance(item, Problem) and item.severity == "error"]
    if problems:
        raise _bad(path, [(problem.place.line, problem.message) for problem in problems])
    rows = [item for item in items if isinstance(item, Row)]
    if not rows:
        return None
    # The reader gives the elements of a list; one object may be the only one.
    is_list = len(rows) > 1 or data.splitlines()[rows[0].line - 1].lstrip().startswith((b"- ", b"["))
    if is_list or not isinstance(rows[0].value, dict):
        got = "a list" if is_list else describe(rows[0].value)
        raise _bad(path, [(rows[0].line, f"expected 'cases:' with a list of cases below, got {got}")])
    return rows[0]


def _entries(path: Path, row: Row) -> list[Entry]:
    errors: list[tuple[int, str]] = []
    for key in row.value.keys() - {"version", "cases"}:
        hint = did_you_mean(str(key), ["version", "cases"])
        errors.append((row.place_of((key,)).line, f"{key}: expected version and cases only{hint}"))
    if row.value.get("version", VERSION) != VERSION:
        message = f"version: expected {VERSION}, got {describe(row.value['version'])}"
        errors.append((row.place_of(("version",)).line, message))
    written = row.value.get("cases")
    if not isinstance(written, list | None):
        errors.append((row.place_of(("cases",)).line, f"cases: expected a list, got {describe(written)}"))
        written = None
    entries: dict[tuple[str, str, str], Entry] = {}
    for at, value in enumerate(written or ()):
        place = row.place_of(("cases", at)).line
        entry, wrong = _entry(value, place)
        errors += [(row.place_of(("cases", at, key)).line if key else place, message) for key, message in wrong]
        if entry is None:
            continue
        if entry.key in entries:
            errors.append(
                (place, f"the case {entry.id!r} is listed in line {entries[entry.key].line}, too. Remove one")
            )
        entries.setdefault(entry.key, entry)
    if errors:
        raise _bad(path, errors)
    return list(entries.values())


def _entry(value: Any, line: int) -> tuple[Entry | None, list[tuple[str, str]]]:
    """Return an entry, or what is wrong in it, by key."""
    if not isinstance(value, dict):
        return None, [("", f"expected an object with id and expires, got {describe(value)}")]
    wrong = [
        (str(key), f"{key}: expected one of {', '.join(_KEYS)}{did_you_mean(str(key), _KEYS)}")
        for key in value
        if key not in _KEYS
    ]
    texts = {}
    for key in ("id", "file", "profile", "reason"):
        text = value.get(key)
        if type(text) is int and key == "id":
            text = str(text)
        if text is not None and not isinstance(text, str):
            wrong.append((key, f"{key}: expected a text, got {describe(text)}"))
        texts[key] = text if isinstance(text, str) else ""
    if not texts["id"] and not any(key == "id" for key, _ in wrong):
        wrong.append(("", "id: expected the id of a case, got none"))
    try:
        expires = date.fromisoformat(value["expires"])
    except (KeyError, TypeError, ValueError):
        got = describe(value["expires"]) if value.get("expires") is not None else "none"
        key = "expires" if "expires" in value else ""
        wrong.append((key, f"expires: expected the last day of the quarantine, such as 2026-12-31, got {got}"))
    if wrong:
        return None, wrong
    return Entry(expires=expires, line=line, **texts), []


def _bad(path: Path, errors: Iterable[tuple[int, str]]) -> EvalloomError:
    name = path.as_posix()
    lines = [f"{name}:{line}: {message}" if line else f"{name}: {message}" for line, message in sorted(errors)]
    return usage_error("bad_quarantine", "\n".join(lines))


# -- adding ------------------------------------------------------------------------------------------------


def add_flaky(path: Path, history: History, days: int) -> str:
    """Add the flaky cases of a history to a file, and return what was done."""
    expires = today() + timedelta(days=days)
    has_profiles = len({case.profile for case in history.cases}) > 1
    wanted = [_entry_of(case, expires, has_profiles) for case in history.of_kind("newly_flaky", "flaky")]
    name = path.as_posix()
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = b""
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise usage_error("cannot_read", f"{name}: cannot be read: {reason}") from None
    row = _row(path, data)
    entries = _entries(path, row) if row is not None else []
    new = [entry for entry in wanted if not any(_covers(old, entry) for old in entries)]
    listed = len(wanted) - len(new)
    already = f", {listed:,} listed before" if listed else ""
    if not new:
        return f"{name}: no flaky case to add{already}"
    text = _with_entries(path, data.decode(), row, entries, sorted(new, key=lambda entry: entry.key))
    after = _row(path, text.encode())
    # The file is replaced only if it reads as before, with the new entries.
    assert after is not None
    kept = [(*entry.key, entry.reason, entry.expires) for entry in _entries(path, after)]
    expected = [(*entry.key, entry.reason, entry.expires) for entry in [*entries, *new]]
    if sorted(kept) != sorted(expected):
        message = f"{name}: entries cannot be added to this layout. Write each case on lines of its own, below 'cases:'"
        raise usage_error("bad_quarantine", message)
    write_text(path, text)
    return f"{name}: {pluralize(len(new), 'flaky case')} added, until {expires}{already}"


def _entry_of(case: CaseHistory, expires: date, has_profiles: bool) -> Entry:
    reason = "flaky"
    if rate := case.flake_rate:
        interval = f"95% CI {100 * rate.low:.0f}-{100 * rate.high:.0f}%"
        reason = f"flaky; fails {rate.rate:.0%} of {pluralize(rate.runs, 'run')} with nothing changed ({interval})"
    if case.name != case.case_id:
        reason += f"; {one_line(case.name, 60)}"
    return Entry(case.case_id, expires, case.file, case.profile if has_profiles else "", reason)


def _covers(entry: Entry, other: Entry) -> bool:
    return entry.id == other.id and is_file(entry.file, other.file) and entry.profile in ("", other.profile)


def is_file(written: str, file: str) -> bool:
    """Whether a file of an entry is that of a case: any, the same path, or the end of it."""
    one, other = Path(written).as_posix(), Path(file).as_posix()
    return not written or one == other or other.endswith(f"/{one}") or one.endswith(f"/{other}")


def _with_entries(path: Path, text: str, row: Row | None, entries: list[Entry], new: list[Entry]) -> str:
    """Return the text of a file with more entries, each before the first that sorts after it. No line is changed."""
    if not text.strip():
        body = "".join(_written(entry, 2) for entry in new)
        return f"{text}{_HEADER}version: {VERSION}\ncases:\n{body}"
    lines = text.splitlines(keepends=True)
    end = "\r\n" if lines[0].endswith("\r\n") else "\n"
    if not lines[-1].endswith("\n"):
        lines[-1] += end
    inserted: dict[int, str] = {}
    if not entries:
        at = _empty_list(path, row, lines, end)
        inserted[at] = "".join(_written(entry, 2) for entry in new)
    else:
        starts = [_dash(lines, entry.line - 1) for entry in entries]
        if None in starts or len({*starts}) < len(starts):
            message = f"{path.as_posix()}:{entries[0].line}: expected each case on lines of its own, to add more"
            raise usage_error("bad_quarantine", message)
        firsts = [start for start in starts if start is not None]
        indent = _indent(lines[firsts[0]])
        for entry in new:
            after = next((start for start, old in zip(firsts, entries, strict=True) if old.key > entry.key), None)
            at = _end(lines, firsts[-1], indent) if after is None else _with_comments(lines, after)
            inserted[at] = inserted.get(at, "") + _written(entry, indent)
    parts: list[str] = []
    for at in range(len(lines) + 1):
        parts.append(inserted.get(at, "").replace("\n", end))
        parts += lines[at : at + 1]
    return "".join(parts)


def _empty_list(path: Path, row: Row | None, lines: list[str], end: str) -> int:
    """Return the line below `cases:` of a file without entries; the key is added if it is missing."""
    if row is None or "cases" not in row.value:
        lines.append(f"cases:{end}")
        return len(lines)
    for at, line in enumerate(lines):
        if match := re.match(r"cases\s*:\s*(?:\[\s*\]|null|~)?(\s*(?:#.*)?)$", line.rstrip("\r\n")):
            lines[at] = f"cases:{match[1]}{end}"
            return at + 1
    raise usage_error("bad_quarantine", f"{path.as_posix()}: expected 'cases:' on a line of its own, to add cases")


def _dash(lines: list[str], at: int) -> int | None:
    """Return the line with the dash of an entry that begins in a line; None if it has none."""
    for place in range(at, -1, -1):
        text = lines[place].strip()
        if text == "-" or text.startswith("- "):
            return place
        if place < at and text and not text.startswith("#"):
            return None
    return None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _with_comments(lines: list[str], at: int) -> int:
    """Return the first of the comment lines just above an entry, which belong to it."""
    while at and lines[at - 1].lstrip().startswith("#"):
        at -= 1
    return at


def _end(lines: list[str], start: int, indent: int) -> int:
    """Return the line below the last entry, which begins at `start`."""
    end = start + 1
    for at in range(start + 1, len(lines)):
        if lines[at].strip():
            if _indent(lines[at]) <= indent:
                break
            end = at + 1
    return end


def _written(entry: Entry, indent: int) -> str:
    """Return an entry as lines of YAML."""
    return "".join(f"{' ' * indent}{line}\n" for line in _entry_lines(entry))


def _entry_lines(entry: Entry) -> Iterator[str]:
    yield f"- id: {_scalar(entry.id)}"
    for key in ("file", "profile", "reason"):
        if text := getattr(entry, key):
            yield f"  {key}: {_scalar(text)}"
    yield f"  expires: {entry.expires}"


def _scalar(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return char if char.isprintable() else f"\\U{ord(char):08x}"
