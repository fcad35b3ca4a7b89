"""Reads the files that a promptfoo config names as `file://…`: variables, prompts, expected values and code.

A config may come from anywhere, so it reaches only files below its own folder or the working folder, symbolic links
resolved, and none that is hidden: `.env` and `.git` hold what nobody meant to send to a model.
"""

from __future__ import annotations

import os
import stat
from functools import lru_cache
from glob import glob
from pathlib import Path
from typing import Any

from msgspec import Struct

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Place
from evalloom.core.process_state import absolute
from evalloom.core.text import quote
from evalloom.files.json_value import row_of
from evalloom.files.rows import Problem, Refused, Row
from evalloom.files.source import Source, read_chunks

PREFIX = "file://"
_SUFFIXES = {
    **dict.fromkeys((".js", ".cjs", ".mjs", ".ts", ".cts", ".mts"), "javascript"),
    ".py": "python",
    ".rb": "ruby",
}
_MOST_MATCHES = 10_000
_LARGEST = 32 * 1024 * 1024
_MAGIC = lazy_pattern(r"[*?[]")
# A name after a file of code is a function in it: `check.py:get_assert`.
_CODE = lazy_pattern(r"(.+\.(?:py|rb|[cm]?[jt]s))(?::([^\W\d][\w.]*))?")


class FileProblem(Exception):
    """A file that cannot be read; `code` is `file_outside`, `file_missing` or `file_unreadable`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class HiddenFile(FileProblem):
    """A file that is not read because it is hidden."""


class File(Struct, frozen=True):
    """A file that was read: its text, and the function that the reference names in a file of code."""

    path: Path
    text: str
    function: str = ""

    @property
    def suffix(self) -> str:
        return self.path.suffix.lower()

    @property
    def language(self) -> str:
        """The language of a file of code, `javascript`, `python` or `ruby`; empty for a file of data."""
        return _SUFFIXES.get(self.suffix, "")

    @property
    def value(self) -> Any:
        """The value in a JSON or YAML file, by its extension; the text of any other file. Raises FileProblem."""
        return _parsed(self.path, self.text) if self.suffix in (".json", ".yaml", ".yml") else self.text


_opened: set[str] = set()
"""The folders of the configs that this process has opened."""


def open_folder(folder: str) -> None:
    """Let files of a folder be read: that of a config that the user named."""
    _opened.add(folder)


def is_file(value: Any) -> bool:
    """Whether a value refers to a file."""
    return isinstance(value, str) and value.startswith(PREFIX)


def language_of(reference: str) -> str:
    """Return the language of the code that a reference names, without reading it; empty for data."""
    code = _CODE.fullmatch(reference.removeprefix(PREFIX))
    return _SUFFIXES.get(os.path.splitext(code[1])[1].lower(), "") if code else ""


def read(reference: str, base: str) -> File:
    """Read the file of a reference (`file://x.json`, `x.py:check`), relative to the folder `base`.

    A relative `base` is relative to the working folder. Only files below the working folder can be reached, and those
    below `base` if `open_folder` was called for it: a test file may hold any value as its base. Raises FileProblem.
    """
    path, function = locate(reference, base)
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        raise FileProblem("file_missing", f"there is no file {quote(reference)}; searched at {path}") from None
    if not stat.S_ISREG(state.st_mode):
        what = "a folder" if stat.S_ISDIR(state.st_mode) else "something else"
        raise FileProblem("file_unreadable", f"{quote(reference)}: expected a file, got {what} at {path}")
    if state.st_size > _LARGEST:
        limit = f"at most {_LARGEST // 2**20} MiB"
        raise FileProblem("file_unreadable", f"{quote(reference)}: expected {limit}, got {state.st_size:,} bytes")
    return File(path, _text(path, reference, state.st_mtime_ns, state.st_size), function)


def locate(reference: str, base: str) -> tuple[Path, str]:
    """Return the resolved path of a reference, and the function that it names. Raises FileProblem."""
    name, function = reference.removeprefix(PREFIX), ""
    if code := _CODE.fullmatch(name):
        name, function = code[1], code[2] or ""
    working = absolute(Path())
    try:
        path = (working / base / name).resolve()
        roots = [*([(working / base).resolve()] if base in _opened else []), working.resolve()]
    except (OSError, ValueError, RuntimeError):  # a name that no file can have, a circle of links
        raise FileProblem("file_missing", f"{quote(reference)}: no file can have this name") from None
    inner = next((path.relative_to(root) for root in roots if path.is_relative_to(root)), None)
    if inner is None:
        message = f"{quote(reference)} is outside the folder of this file and the working folder, so it is not read"
        raise FileProblem("file_outside", f"{message}. Move it there, or start evalloom in a folder above it")
    # As written too: a link may have a hidden name.
    if any(part.startswith(".") and part not in (".", "..") for part in (*inner.parts, *Path(name).parts)):
        raise HiddenFile("file_outside", f"{quote(reference)} is hidden (a name begins with a dot), so it is not read")
    return path, function


# A test file may name one file in each of thousands of tests.
@lru_cache(64)
def _text(path: Path, reference: str, changed: int, size: int) -> str:
    try:
        return b"".join(read_chunks(Source(path.name, path))).decode("utf-8", "replace")
    except Refused as error:
        raise FileProblem("file_unreadable", f"{quote(reference)}: {error.problem.message}") from None


@lru_cache(64)
def _parsed(path: Path, text: str) -> Any:
    data = text.encode("utf-8", "replace")
    if path.suffix.lower() == ".json":
        items = list(row_of(data, Place(1, 1)))
        value = next((item.value for item in items if isinstance(item, Row)), None)
        problems = [item for item in items if isinstance(item, Problem)]
    else:
        # Deferred: yaml takes longer to import than most files take to read.
        from evalloom.files.yaml_rows import read_whole

        value, problems = read_whole(data)
    wrong = next((problem for problem in problems if problem.severity == "error"), None)
    if wrong:
        raise FileProblem("file_unreadable", f"{path.name}:{wrong.place.line}: {wrong.message}")
    return value


def matching(reference: str, base: str) -> list[str]:
    """Return references to the files that a pattern matches, in the order of their names. Raises FileProblem."""
    pattern = reference.removeprefix(PREFIX)
    root = absolute(Path()) / base
    fixed = next((at for at, part in enumerate(Path(pattern).parts) if _MAGIC.search(part)), None)
    if fixed is not None and ".." in Path(pattern).parts[fixed:]:
        # Beyond a pattern, `..` would search folders that no check has seen.
        raise FileProblem(
            "file_outside", f"{quote(reference)}: expected no '..' after a pattern, so it is not searched"
        )
    # Checked as a whole, so that `../../*` cannot even list what is outside.
    locate(pattern.partition("*")[0] or ".", base)
    locate(Path(*Path(pattern).parts[:fixed]).as_posix(), base)
    found = sorted(glob(pattern, root_dir=root, recursive=True))
    return [f"{PREFIX}{name}" for name in found[:_MOST_MATCHES] if os.path.isfile(root / name)]
