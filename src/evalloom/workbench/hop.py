"""What HOP has of its own: a task with its data, settings and results, and a session to try things with."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from evalloom import settings
from evalloom.dialects.dataset import Dataset
from evalloom.dialects.hop import is_meta, is_result
from evalloom.errors import usage_error
from evalloom.files.source import source_of
from evalloom.llms import LlmOptions, Llms
from evalloom.model import Record
from evalloom.operators.observer import FILE_NAME as OBSERVER
from evalloom.operators.session import HopSession
from evalloom.operators.tracer import Tracer
from evalloom.run import Traced

SETTINGS = ("settings.yaml", settings.FILE_NAME)
_WRITTEN = re.compile(r"_results_\d{8}-\d{6}$")


class HopTask(Struct, frozen=True):
    """A hoplet with everything that its run needs, wherever the working folder is."""

    target: Record
    data: Path
    config: str
    results: Path

    def profiles(self) -> list[str]:
        """All profiles of the settings, which is what a run without a choice means (HOP-4)."""
        return list(settings.load(Path(self.config) if self.config else None).profiles)


def find_task(task: str, data: str = "", config: str = "", out: str = "") -> HopTask:
    """The task in a folder, or around `module:function`; what is not named is looked for where HOP keeps it."""
    folder = Path(task) if Path(task).is_dir() else None
    file = find_data(folder, data)
    results = Path(out) if out else results_beside(file if folder is None else folder / "TestCases" / file.name)
    observed = results.parent if folder is None else folder / "TestCases"
    target: Record = {"hoplet": task, "observer": str(observed / OBSERVER)}
    return HopTask(target, file, config or find_settings(folder), results)


def find_data(task: Path | None, data: str) -> Path:
    """The cases: the file that is named, from the working folder or from `TestCases/`, or the only one there."""
    if task is None:
        if not data:
            raise usage_error("no_dataset", "--data: name the cases; only a task folder has TestCases/ to look in")
        return Path(data)
    folder = task / "TestCases"
    if data:
        beside = folder / data
        return beside if not Path(data).exists() and beside.is_file() else Path(data)
    found = [file for file in sorted(folder.glob("*.jsonl")) if file.name != OBSERVER and not _holds_results(file)]
    if len(found) == 1:
        return found[0]
    has = f"got {', '.join(file.name for file in found)}" if found else "found none"
    raise usage_error("no_dataset", f"{folder.as_posix()}: expected one file of cases, {has}. Name it with --data")


def _holds_results(file: Path) -> bool:
    return any(is_meta(record) or is_result(record) for record in Dataset(source_of(file), "hop").raw_sample)


def results_beside(data: Path) -> Path:
    """A new file for results in the folder of the cases; the results of results do not pile up in its name."""
    stem = "stdin" if data.name == "-" else _WRITTEN.sub("", data.name.split(".")[0])
    return data.with_name(f"{stem}_results_{datetime.now():%Y%m%d-%H%M%S}.jsonl")


def find_settings(task: Path | None) -> str:
    """The settings of a task: in its folder, in those around it up to the working folder, or in the working folder."""
    for folder in _around(task):
        for name in SETTINGS:
            if (folder / name).is_file():
                return str(folder / name)
    return ""


def _around(task: Path | None) -> list[Path]:
    here = Path().resolve()
    between = [folder for folder in task.resolve().parents if folder.is_relative_to(here)] if task else []
    return [*filter(None, [task]), *between, Path()]


@asynccontextmanager
async def open_session(profile: str = "", config: str | Path = "") -> AsyncIterator[HopSession]:
    """A session outside of any batch, to try a hoplet by hand: under the profile that is named, or the first one."""
    known = settings.load(Path(config) if config else None)
    chosen = settings.profile(known, profile) if profile else settings.first_profile(known)
    llms = Llms(known, LlmOptions())
    trace: list[Record] = []
    try:
        run, verify = (
            Traced(llms.get(name), name, chosen.params, 0, trace) for name in (chosen.run, chosen.verify or chosen.run)
        )
        yield HopSession(run, verify, Tracer(trace))
    finally:
        await llms.close()
