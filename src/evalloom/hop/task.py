"""HOP tasks: finds the data, settings and results of a task, and opens a session to try a hoplet by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from evalloom import settings
from evalloom.core.errors import usage_error
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record
from evalloom.data.dataset import Dataset
from evalloom.engine.lint import SETTINGS
from evalloom.engine.run import Traced
from evalloom.files.source import source_of
from evalloom.hop.dialect import FORMATS, is_meta, is_result
from evalloom.hop.operators.observer import FILE_NAME as OBSERVER
from evalloom.hop.operators.observer import Tracer
from evalloom.hop.operators.session import HopSession
from evalloom.llms import LlmOptions, Llms
from evalloom.settings.section import Section

_RESULT_SUFFIX = lazy_pattern(r"_results_\d{8}-\d{6}-\w+$")


class HopTask(Struct, frozen=True):
    """A hoplet with everything its run needs, independent of the working folder."""

    target: Record
    data: Path
    config: str
    out: Path | None
    folder: Path
    """The folder for result files without an explicit name."""

    def results(self, batch: str) -> Path:
        """Return the result file of a batch; resuming the batch gives the same file."""
        stem = "stdin" if self.data.name == "-" else _RESULT_SUFFIX.sub("", self.data.name.split(".")[0])
        return self.out or self.folder / f"{stem}_results_{batch}.jsonl"

    def profiles(self, sections: tuple[Section[Any], ...]) -> list[str]:
        """Return all profiles in the settings: the default of a run (HOP-4)."""
        return list(settings.load(Path(self.config) if self.config else None, sections).profiles)


def find_task(task: str, data: str = "", config: str = "", out: str = "") -> HopTask:
    """Find the task in a folder or around `module:function`; search the default places for what is not named."""
    folder = Path(task) if Path(task).is_dir() else None
    if folder is None and not Path(task.rpartition(":")[0]).name:
        message = f"--task {task}: expected a task folder or module:function, and there is no such folder"
        raise usage_error("task_missing", message)
    file = find_data(folder, data)
    beside = file.parent if folder is None else folder / "TestCases"
    named = Path(out) if out and not Path(out).is_dir() else None
    if named is not None and (named.suffix != ".jsonl" or named.resolve() == (beside / OBSERVER).resolve()):
        message = f"--out {out}: expected a folder, or a file name ending in .jsonl that is not the observer's log"
        raise usage_error("bad_option", message)
    target: Record = {"hoplet": task, "observer": str(beside / OBSERVER)}
    return HopTask(target, file, config or find_settings(folder), named, Path(out) if out and not named else beside)


def find_data(task: Path | None, data: str) -> Path:
    """Find the case file: the named one, in the working folder or `TestCases/`, or the only one there."""
    if Path(data).name == OBSERVER:
        raise usage_error("no_dataset", f"--data {data}: is the observer's log, not a file of cases")
    if task is None:
        if not data:
            raise usage_error("no_dataset", "--data: name the cases; only a task folder has TestCases/ to search")
        return Path(data)
    folder = task / "TestCases"
    if data:
        beside = folder / data
        return beside if not Path(data).exists() and beside.is_file() else Path(data)
    files = [file for file in sorted(folder.glob("*.jsonl")) if file.name != OBSERVER]
    case_files = [file for file in files if _has_cases(file)]
    if len(case_files) == 1:
        return case_files[0]
    has = f"got {', '.join(file.name for file in case_files)}" if case_files else "found none"
    results = f"; {', '.join(file.name for file in files[:5])} can be run again" if files and not case_files else ""
    message = f"{folder.as_posix()}: expected one file of cases, {has}{results}. Name it with --data"
    raise usage_error("no_dataset", message)


def _has_cases(file: Path) -> bool:
    """Return whether a file contains objects, and none of the first ones is a result."""
    sample = Dataset(source_of(file), FORMATS, "hop").raw_sample if file.is_file() else []
    return bool(sample) and not any(is_meta(record) or is_result(record) for record in sample)


def find_settings(task: Path | None) -> str:
    """Find the settings of a task: in its folder, the nearest parent folder, or the working folder."""
    for folder in (*_task_and_parents(task), Path()) if task else (Path(),):
        for name in SETTINGS:
            if (folder / name).is_file():
                return str(folder / name)
    return ""


def _task_and_parents(task: Path) -> Iterator[Path]:
    """Yield the folder of a task and its parents, up to the root of the repository or the home folder."""
    yield task
    inner = task.resolve()
    for folder in inner.parents:
        if (inner / ".git").exists() or inner == Path.home():
            return
        yield folder
        inner = folder


@asynccontextmanager
async def open_session(profile: str = "", config: str | Path = "") -> AsyncIterator[HopSession]:
    """Open a session outside of any batch, to try a hoplet by hand, with the named or the first profile."""
    loaded_settings = settings.load(Path(config) if config else None)
    chosen = settings.profile(loaded_settings, profile) if profile else settings.first_profile(loaded_settings)
    llms = Llms(loaded_settings, LlmOptions())
    trace: list[Record] = []
    try:
        run, verify = (
            Traced(llms.get(name), name, chosen.params, 0, trace) for name in (chosen.run, chosen.verify or chosen.run)
        )
        session = HopSession(run, verify, Tracer(trace))
        yield session
        session.close()
    finally:
        await llms.close()
