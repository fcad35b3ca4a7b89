"""Finds the results folders of prompt-eval below a project, and reads their reports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from evalloom.pages.errors import RequestError
from evalloom.pages.page import PageRequest
from evalloom.prompt_eval.folder import Folder
from evalloom.prompt_eval.reports.content import PromptEvalReport
from evalloom.prompt_eval.workflow import read_report

_DEEPEST = 6
_MOST_FOLDERS = 5_000
"""Folders that are looked at: a project may have a large tree of other files."""
_PASSED_OVER = {"node_modules", "__pycache__", "venv"}
Stamp = tuple[tuple[int, int], ...]


def find_evaluations(home: Path) -> list[Folder]:
    """Return the folders with a plan or scored cases, in the order of their paths; links are not followed."""
    found = []
    for number, (path, names) in enumerate(_folders(home)):
        if number >= _MOST_FOLDERS:
            break
        folder = Folder(path)
        if folder.scored.name in names or {folder.plan.name, folder.cases.name} <= names:
            found.append(folder)
    return found


def _folders(home: Path) -> Iterator[tuple[Path, set[str]]]:
    for name, folders, files in os.walk(home):
        path = Path(name)
        depth = len(path.relative_to(home).parts)
        is_deep = depth >= _DEEPEST
        folders[:] = [] if is_deep else sorted(one for one in folders if one[0] != "." and one not in _PASSED_OVER)
        yield path, set(files)


def chosen_folder(request: PageRequest, name: str | None = None) -> Folder:
    """Return the folder that a request names, if it is one of an evaluation below the project."""
    name = request.query.get("folder", "") if name is None else name
    home = request.site.home
    try:
        path = home / name
        is_inside = path.resolve().is_relative_to(home.resolve())
    except (OSError, ValueError):
        is_inside = False
    if not is_inside or not (Folder(path).scored.is_file() or Folder(path).plan.is_file()):
        message = f"folder: expected a results folder of prompt-eval below the project, got {name[:80]!r}"
        raise RequestError("evaluation_not_found", message)
    return Folder(path)


def name_of(request: PageRequest, folder: Folder) -> str:
    """Return the path of a folder as addresses have it: relative to the project."""
    return Path(os.path.relpath(folder.path, request.site.home)).as_posix()


def report_of(folder: Folder, language: str) -> PromptEvalReport:
    """Return the report of a folder; it is read again when one of its files has changed."""
    files = (folder.scored, folder.plan, folder.humans, folder.repeats)
    return _report(folder.path, language, tuple(map(_version, files)))


@lru_cache(maxsize=32)
def _report(path: Path, language: str, stamp: Stamp) -> PromptEvalReport:
    return read_report(Folder(path), language)


def _version(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError:
        return (0, -1)
    return (stat.st_mtime_ns, stat.st_size)
