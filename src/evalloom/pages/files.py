"""The files of a project that pages may show: those below its folder, without hidden ones and those of tools."""

from __future__ import annotations

import os
import stat
from collections import deque
from pathlib import Path

from msgspec import Struct

from evalloom.core.text import quote
from evalloom.engine.lint import SETTINGS, SKIPPED_FOLDERS, SUFFIXES
from evalloom.files.source import Source
from evalloom.pages.errors import RequestError

_LONGEST_NAME = 2_000
_MOST_ENTRIES = 20_000
_MOST_FILES = 5_000
_PACKED_SUFFIXES = (".gz", ".zst")
_TEXT_SUFFIXES = (".md", ".txt", ".prompt")
"""Files that may be prompts: they can be looked at, and are no test files."""
_TOOL_FOLDERS = (*SKIPPED_FOLDERS, "site-packages")
_TOOL_FILES = ("package.json", "package-lock.json")


class FoundFile(Struct, frozen=True):
    """A file below the folder of the project."""

    path: str
    size: int
    modified: float


class FoundFiles(Struct, frozen=True):
    """The files below a folder, and whether the search ended early."""

    files: list[FoundFile]
    is_cut: bool


class Files:
    """The files below one folder. Nothing outside of it is ever opened, also not through a link."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._resolved = home.resolve()

    def path(self, name: str, is_new: bool = False) -> Path:
        """Return the real path of a file or folder below the home; raise for anything else.

        `is_new` is for a file that is about to be written: only its folder must exist.
        """
        shown = quote(name, 100)
        parts = name.split("/")
        is_odd = len(name) > _LONGEST_NAME or "\0" in name or "\\" in name
        if is_odd or any(part in ("", ".", "..") for part in parts) or any(map(_is_hidden, parts)):
            raise RequestError("file_not_found", f"there is no file {shown} that pages show")
        try:
            path = (self._resolved / name).resolve(strict=not is_new)
            mode = path.stat().st_mode if path.exists() or not is_new else stat.S_IFREG
        except (OSError, ValueError, RuntimeError):
            raise RequestError("file_not_found", f"there is no file {shown} in this folder") from None
        # A link may lead out of the folder, or to a hidden file such as .env.
        is_inside = path.is_relative_to(self._resolved)
        if not is_inside or any(map(_is_hidden, path.relative_to(self._resolved).parts)):
            raise RequestError("file_not_found", f"{shown}: leads out of this folder, so it is not shown")
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or (is_new and not path.parent.is_dir()):
            raise RequestError("file_not_found", f"{shown}: expected a file, got something else")
        return path

    def shown_name(self, name: str) -> str:
        """Return the name under which pages show a file, whose path is relative or absolute; empty if none.

        A batch names its datasets as the command line did, which may have run in a folder above the home.
        """
        for folder in (self._resolved, *self._resolved.parents):
            path = Path(os.path.normpath(folder / name))
            relative = path.relative_to(self._resolved).as_posix() if path.is_relative_to(self._resolved) else ""
            try:
                if relative and self.path(relative).is_file():
                    return relative
            except RequestError:
                continue
        return ""

    def contains(self, name: str) -> bool:
        """Whether a path, relative to the home or not, is below the home and not hidden; it need not exist."""
        try:
            path = (self._resolved / name).resolve()
        except (OSError, ValueError, RuntimeError):
            return False
        if not path.is_relative_to(self._resolved):
            return False
        return not any(map(_is_hidden, path.relative_to(self._resolved).parts))

    def source(self, name: str, encoding: str = "") -> Source:
        """Return a file for readers, named as the command line would name it."""
        path = self.path(name)
        if path.is_dir() or not _is_shown(name):
            kinds = ", ".join((*SUFFIXES, *_TEXT_SUFFIXES))
            raise RequestError("file_not_found", f"{quote(name, 100)}: expected a file of data or a prompt ({kinds})")
        return Source(name, path, encoding)

    def search(self, folder: str = "", suffixes: tuple[str, ...] = SUFFIXES) -> FoundFiles:
        """Return the files with these suffixes below a folder, sorted; a very large tree is searched in part."""
        start = self.path(folder) if folder else self._resolved
        found: list[FoundFile] = []
        folders, seen, is_cut = deque([(start, folder)]), 0, False
        while folders and not is_cut:
            place, prefix = folders.popleft()
            for entry in _entries(place):
                seen += 1
                if seen > _MOST_ENTRIES or len(found) >= _MOST_FILES:
                    is_cut = True
                    break
                name = f"{prefix}/{entry.name}" if prefix else entry.name
                if _is_hidden(entry.name) or not _can_be_sent(name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if not os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
                        folders.append((Path(entry.path), name))
                elif _suffix(name) in suffixes and entry.name not in _TOOL_FILES and (file := self._found(name)):
                    found.append(file)
        return FoundFiles(sorted(found, key=lambda file: (file.path.count("/") > 0, file.path)), is_cut)

    def _found(self, name: str) -> FoundFile | None:
        try:
            path = self.path(name)
            status = path.stat()
        except (RequestError, OSError):
            return None
        return FoundFile(name, status.st_size, status.st_mtime) if stat.S_ISREG(status.st_mode) else None


def prompt_suffixes() -> tuple[str, ...]:
    """Return the suffixes of files that may be prompts."""
    return (*_TEXT_SUFFIXES, ".yaml", ".yml", ".json")


def is_settings(name: str) -> bool:
    return name.rpartition("/")[2] in SETTINGS


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _is_hidden(part: str) -> bool:
    return part.startswith(".") or part in _TOOL_FOLDERS


def _can_be_sent(name: str) -> bool:
    """Whether a name is Unicode: the bytes of any other would be lost in a URL."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return "\\" not in name and len(name) <= _LONGEST_NAME


def _suffix(name: str) -> str:
    path = Path(name.lower())
    return Path(path.stem).suffix if path.suffix in _PACKED_SUFFIXES else path.suffix


def _is_shown(name: str) -> bool:
    return _suffix(name) in (*SUFFIXES, *_TEXT_SUFFIXES)
