"""`--watch`: waits for a change of the files that a run depends on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from evalloom.core.errors import EvalloomError
from evalloom.engine.plan import Plan
from evalloom.settings import llm_of

_LOOK_EVERY_S = 0.4

Stamps = dict[Path, tuple[int, int] | None]


def changes(prepare: Callable[[], Plan]) -> Iterator[int]:
    """Yields at once, and again after each change of a file that the results depend on; gives how many there are.

    What changes while the caller is at work counts too.
    """
    files = watched(prepare())
    before = _stamps(files)
    while True:
        yield len(files)
        with suppress(EvalloomError):  # half-edited settings: the same files as before, until they are whole again
            files = watched(prepare())
        while not _differ(before, now := _stamps(files)):
            before = now
            time.sleep(_LOOK_EVERY_S)
        before = now


def watched(plan: Plan) -> list[Path]:
    """The files that a change of would change the results."""
    names = {name for profile in plan.profiles for name in (profile.run, profile.verify) if name}
    llms = [*plan.settings.llms.values(), *(llm_of(plan.settings, name) for name in names)]
    scripts = [llm.folder / llm.file for llm in llms if llm.file]
    own = [plan.settings.path] if plan.settings.path else []
    found = [*(source.path for source in plan.sources if source.path), *plan.target.watch, *own, *scripts]
    return list(dict.fromkeys(found))


def _differ(before: Stamps, now: Stamps) -> bool:
    return any(before.get(file, stamp) != stamp for file, stamp in now.items())


def _stamps(files: Iterable[Path]) -> Stamps:
    return {file: _stamp(file) for file in files}


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None  # an editor may take a file away for a moment when it saves
    return found.st_mtime_ns, found.st_size
