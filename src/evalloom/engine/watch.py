"""`--watch`: wait for a change of the files that a run depends on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from evalloom.core.errors import EvalloomError
from evalloom.engine.plan import Plan
from evalloom.settings import llm_of

_POLL_S = 0.4

Stamps = dict[Path, tuple[int, int] | None]


def changes(prepare: Callable[[], Plan]) -> Iterator[int]:
    """Yield the number of watched files, at once and after each change, also of one made during the run."""
    files = watched_files(prepare())
    before = _stamps(files)
    while True:
        yield len(files)
        with suppress(EvalloomError):  # half-edited settings: watch the same files until they can be read again
            files = watched_files(prepare())
        while True:
            # A file that is watched for the first time has not changed.
            now = _stamps(files)
            is_changed = any(before.get(file, stamp) != stamp for file, stamp in now.items())
            before = now
            if is_changed:
                break
            time.sleep(_POLL_S)


def watched_files(plan: Plan) -> list[Path]:
    """Return the files that the results of a plan depend on."""
    names = {name for profile in plan.profiles for name in (profile.run, profile.verify) if name}
    llms = [*plan.settings.llms.values(), *(llm_of(plan.settings, name) for name in names)]
    scripts = [llm.folder / llm.file for llm in llms if llm.file]
    own = [plan.settings.path] if plan.settings.path else []
    files = [*(source.path for source in plan.sources if source.path), *plan.target.watch, *own, *scripts]
    return list(dict.fromkeys(files))


def _stamps(files: Iterable[Path]) -> Stamps:
    stamps: Stamps = {}
    for file in files:
        stamps[file] = None  # an editor may remove a file for a moment when it saves
        with suppress(OSError):
            status = file.stat()
            stamps[file] = status.st_mtime_ns, status.st_size
    return stamps
