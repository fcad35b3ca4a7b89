"""The HOP tasks of a project: folders with `Hoplet/Hop.py`, their contracts, profiles and files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from evalloom import settings
from evalloom.core.contract import Contract
from evalloom.core.errors import EvalloomError
from evalloom.hop.contract import contract_of
from evalloom.hop.results.store import DataStore
from evalloom.hop.target import hoplet_name
from evalloom.hop.task import find_settings
from evalloom.pages.errors import RequestError
from evalloom.pages.page import PageRequest, path_part

_DEEPEST = 6
_MOST_FOLDERS = 20_000
_SKIPPED = frozenset(("node_modules", "__pycache__", "venv", "Hoplet", "TestCases"))
TABS = ("run", "batch", "history", "stats", "perf")


class Task(Struct, frozen=True):
    """A task folder."""

    name: str
    """Its path below the project, or the name of the project if that is the task itself."""
    path: str
    """The same as an argument of a command: `.` for the project."""
    url: str
    title: str = ""
    """The heading of its metainfo.md."""
    folder: str = ""


class DataFile(Struct, frozen=True):
    """A file in TestCases/."""

    name: str
    size: int
    modified: str
    results: int
    cases: int
    profiles: list[str]


def find_tasks(home: Path) -> list[Task]:
    """Return the tasks below a folder, in the order of their paths; hidden folders and links are skipped."""
    found: list[str] = []
    for seen, (folder, names, _) in enumerate(os.walk(home)):
        relative = Path(folder).relative_to(home)
        if _is_task(home, Path(folder)):
            found.append("" if relative == Path() else relative.as_posix())
        if seen > _MOST_FOLDERS or len(relative.parts) >= _DEEPEST:
            names.clear()
        names[:] = sorted(name for name in names if name not in _SKIPPED and not name.startswith("."))
    return [_task(home, relative) for relative in found]


def task_of(request: PageRequest) -> Task:
    """Return the task in the path of a request; only folders of the project count."""
    home, name = request.site.home, request.ids["task"]
    parts = name.split("/")
    is_plain = all(part and not part.startswith(".") and "\\" not in part and "\0" not in part for part in parts)
    if is_plain and _is_task(home, home / name):
        return _task(home, name)
    if name == home.resolve().name and _is_task(home, home):
        return _task(home, "")
    message = f"{name[:200]}: expected a task folder with Hoplet/Hop.py in it. /hop lists those of this project"
    raise RequestError("task_not_found", message)


def _is_task(home: Path, folder: Path) -> bool:
    file = folder / "Hoplet" / "Hop.py"
    try:
        return file.is_file() and file.resolve().is_relative_to(home.resolve())
    except OSError:
        return False


def _task(home: Path, relative: str) -> Task:
    name = relative or home.resolve().name
    folder = home / relative
    url = "/hop/" + "/".join(map(path_part, name.split("/")))
    return Task(name, relative or ".", url, _title(folder), str(folder))


def _title(folder: Path) -> str:
    try:
        text = (folder / "Hoplet" / "metainfo.md").read_text("utf-8", "replace")
    except OSError:
        return ""
    return next((line.strip("# ").strip() for line in text.splitlines() if line.startswith("# ")), "")[:200]


def read_task_contract(task: Task) -> Contract | None:
    """Return the contract of a task, if it declares one. Hop.py is parsed and never run."""
    hoplet = Path(task.folder) / "Hoplet"
    metainfo = hoplet / "metainfo.md"
    if metainfo.is_file():
        return contract_of(metainfo, None, "")
    return contract_of(None, hoplet / "Hop.py", hoplet_name(hoplet / "Hop.py"))


def profiles_of(task: Task) -> list[str]:
    """Return the profiles in the settings of a task."""
    config = find_settings(Path(task.folder))
    return list(settings.load(Path(config) if config else None).profiles)


def explain(error: EvalloomError) -> str:
    """Return the message of an error without its code."""
    return str(error).rpartition(" [")[0]


# -- files ----------------------------------------------------------------------------------------------


def open_store(request: PageRequest, task: Task, file: str = "") -> DataStore | None:
    """Open the results of a task, or one file of it; None if the task has no TestCases/ yet."""
    folder, home = Path(task.folder) / "TestCases", request.site.home.resolve()
    if not folder.is_dir():
        return None
    for path in (folder, *folder.glob("*.jsonl")):
        if not path.resolve().is_relative_to(home):
            raise RequestError("not_allowed_here", f"{path.name}: is a link to a place outside of the project")
    if not file:
        return DataStore(folder)
    if file not in {path.name for path in folder.glob("*.jsonl")}:
        raise RequestError("file_not_found", f"{task.path}/TestCases: expected the name of a file there, got {file!r}")
    return DataStore(folder / file)


def list_files(store: DataStore | None) -> list[DataFile]:
    """Return the files of a task, newest first."""
    if store is None:
        return []
    files = [
        DataFile(file["name"], file["size"], file["modified"], file["rows"], file["inputs"], file["profiles"])
        for file in store.list_files()
    ]
    return sorted(files, key=lambda file: (file.modified, file.name), reverse=True)


def case_files(files: list[DataFile]) -> Iterator[DataFile]:
    """Yield the files that a batch can run: those with cases first, then results, which can be run again."""
    yield from (file for file in files if file.cases and not file.results)
    yield from (file for file in files if file.results)
