"""The batches on disk, for pages: summaries of all of them, and open views of those that are looked at."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import Struct

from evalloom.analysis.views import Views, open_views
from evalloom.batchlog import FOLDER, find, is_in_use, manifest
from evalloom.batchlog.complete import losses
from evalloom.batchlog.folders import is_batch
from evalloom.batchlog.read import MANIFEST, RUNS, RUNS_MISSING, VERDICTS
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch
from evalloom.pages.errors import RequestError

if TYPE_CHECKING:
    from evalloom.engine.system import Catalog

_OPEN = 16
"""Batches whose views stay open: a run is shown beside those of up to eight earlier batches."""
_MOST_CACHED = 200
"""Values that are kept for one version of a batch."""
_LARGEST_COUNTED = 20_000_000
"""Bytes of a log whose lines are counted for a list; a larger one is checked on the page of its batch only."""
_FRESH_S = 2.0
"""For how long the views of a running batch are used; longer if they take long to build."""


class BatchSummary(Struct, frozen=True):
    """A batch in a list. The figures are those that its run printed; those of a running batch come from `live.py`."""

    id: str
    system: str
    state: str
    """`running`, `finished` or `stopped` (it can be resumed)."""
    target: str
    datasets: list[str]
    profiles: list[str]
    created_at: str
    finished_at: str
    summary: dict[str, Any]
    """The summary in `batch.json`; empty until the batch ends."""
    planned: int = 0
    """The number of runs that it will have; 0 if it is unknown."""
    is_try: bool = False
    """Whether it is a single case from the page *try one*."""


TRIES = ".evalloom/tries"
"""The folder of cases that were tried from the page."""


_Value = TypeVar("_Value")


class _Opened:
    """The views of one version of a batch, and values that were computed from them."""

    def __init__(self, views: Views, stamp: object, built_s: float) -> None:
        self.views = views
        self.cache: OrderedDict[object, Any] = OrderedDict()
        self.computing = threading.Lock()
        self.stamp = stamp
        self.until = monotonic() + max(_FRESH_S, 5 * built_s)
        self.users = 0
        self.is_stale = False


class LogLosses(Struct, frozen=True):
    """What the log of a batch lost, so that a reader knows what its figures leave out."""

    batch: str
    state: str
    runs: int
    """How many runs can be read."""
    expected: int
    """How many there were, or were to be; 0 if whole runs are not missing."""
    lines: list[str]
    """The lines that cannot be read."""


_LOSS_CODES = (RUNS_MISSING, " [log_mended]")


def other_warnings(warnings: Iterable[str]) -> list[str]:
    """Return the warnings that are not about what a log lost, which pages show by itself."""
    return [warning for warning in warnings if not warning.endswith(_LOSS_CODES)]


def losses_of(library: Library, batches: Iterable[str]) -> list[LogLosses]:
    """Return what the logs of some batches lost; one that is gone, as of a baseline, has none."""
    found = (library.log_losses(id) for id in dict.fromkeys(batches) if id)
    return [losses for losses in found if losses is not None]


class Library:
    """The batches in `.evalloom/batches` below a folder. All methods are thread-safe."""

    def __init__(self, home: Path, catalog: Catalog) -> None:
        self.folder = home / FOLDER
        self._catalog = catalog
        self._lock = threading.Lock()
        self._building: dict[str, threading.Lock] = {}
        self._summaries: dict[str, tuple[tuple[int, int], BatchSummary]] = {}
        self._opened: OrderedDict[str, _Opened] = OrderedDict()
        self._listed_losses: dict[str, tuple[object, LogLosses | None]] = {}

    def close(self) -> None:
        with self._lock:
            for opened in self._opened.values():
                opened.views.close()
            self._opened.clear()

    # -- the list ------------------------------------------------------------------------------------

    def summaries(self) -> list[BatchSummary]:
        """Return all batches that can be read, newest first. One that did not change is not read again."""
        try:
            with os.scandir(self.folder) as entries:
                names = sorted((entry.name for entry in entries if entry.is_dir()), reverse=True)
        except FileNotFoundError:
            return []
        found = [summary for name in names if (summary := self._summary(name)) is not None]
        with self._lock:
            for gone in self._summaries.keys() - set(names):
                del self._summaries[gone]
        return found

    def summary(self, id: str) -> BatchSummary:
        """Return one batch by its id."""
        summary = self._summary(self.path(id).name)
        if summary is None:
            message = f"{id}: its batch.json cannot be read. 'evalloom batches repair {id}' rebuilds it from the runs"
            raise RequestError("batch_unreadable", message)
        return summary

    def _summary(self, name: str) -> BatchSummary | None:
        try:
            stat = (self.folder / name / MANIFEST).stat()
        except OSError:
            return None
        stamp = (stat.st_mtime_ns, stat.st_size)
        known = self._summaries.get(name)
        if known is not None and known[0] == stamp and known[1].state == "finished":
            return known[1]
        is_running = is_in_use(self.folder / name)
        if known is not None and known[0] == stamp and (known[1].state == "running") == is_running:
            return known[1]
        try:
            batch = manifest(self.folder / name)
        except EvalloomError:
            return None
        summary = self._summarize(batch, name, is_running)
        with self._lock:
            self._summaries[name] = (stamp, summary)
        return summary

    def _summarize(self, batch: Batch, name: str, is_running: bool) -> BatchSummary:
        return BatchSummary(
            # The name of the folder is what finds it again, also when somebody has copied it.
            name,
            self._catalog.system_of(batch),
            "running" if is_running else "finished" if batch.finished_at else "stopped",
            batch.target,
            [dataset.path for dataset in batch.datasets],
            [profile.name for profile in batch.profiles],
            batch.created_at,
            batch.finished_at,
            batch.summary,
            batch.planned,
            any(dataset.path.startswith(TRIES) for dataset in batch.datasets),
        )

    # -- one batch -----------------------------------------------------------------------------------

    def path(self, id: str) -> Path:
        """Return the folder of a batch by its id, a unique beginning of it, or `latest`; never one elsewhere."""
        try:
            # Only the name of a folder in our folder: not a path.
            if id in ("", ".", "..") or "/" in id or "\\" in id or "\0" in id:
                raise RequestError("batch_not_found", f"there is no batch {id[:80]!r}")
            if is_batch(self.folder / id):
                return self.folder / id
            path = find(id, self.folder)
        except EvalloomError as error:
            raise RequestError("batch_not_found", str(error).rpartition(" [")[0]) from None
        if path.parent != self.folder:
            raise RequestError("batch_not_found", f"there is no batch {id[:80]!r}")
        return path

    def stamp(self, id: str) -> tuple[object, ...]:
        """Return the version of the files of a batch; it begins with whether the batch is being written."""
        return _stamp(self.path(id))

    def manifest(self, id: str) -> Batch:
        """Return the configuration of a batch."""
        try:
            return manifest(self.path(id))
        except EvalloomError as error:
            raise RequestError("batch_unreadable", str(error)) from None

    @contextmanager
    def views(self, id: str) -> Iterator[Views]:
        """Open the SQL views of one batch; they stay open for the next request."""
        with self._used(id) as opened:
            yield opened.views

    def cached(self, id: str, name: object, compute: Callable[[Views], _Value]) -> _Value:
        """Return a value of one batch, computed once for each version of it; `name` tells the values apart."""
        with self._used(id) as opened, opened.computing:
            if name in opened.cache:
                opened.cache.move_to_end(name)
            else:
                opened.cache[name] = compute(opened.views)
                while len(opened.cache) > _MOST_CACHED:
                    opened.cache.popitem(last=False)
            return cast(_Value, opened.cache[name])

    def log_losses(self, id: str) -> LogLosses | None:
        """Return what the log of a batch lost; None for a batch that is complete, or still written."""

        def compute(views: Views) -> LogLosses | None:
            if not views.damage:
                return None
            summary = self.summary(id)
            [(runs,)] = views.rows("SELECT count(*) FROM runs")
            lines = [str(damage) for damage in views.damage if not damage.has_lost_runs]
            planned = summary.summary.get("total", 0) if summary.state == "finished" else summary.planned
            return LogLosses(summary.id, summary.state, runs, planned if runs < planned else 0, lines)

        return self.cached(id, "losses", compute)

    def listed_losses(self, summary: BatchSummary) -> LogLosses | None:
        """Return what the log of a finished batch lost as far as its number of lines tells, which is quick to count."""
        if summary.state != "finished":
            return None
        path = self.folder / summary.id
        stamp = _stamp(path)
        known = self._listed_losses.get(summary.id)
        if known is None or known[0] != stamp:
            known = (stamp, _count_losses(path, summary))
            self._listed_losses[summary.id] = known
        return known[1]

    @contextmanager
    def _used(self, id: str) -> Iterator[_Opened]:
        opened = self._open(self.path(id))
        try:
            yield opened
        finally:
            with self._lock:
                opened.users -= 1
                if opened.is_stale and not opened.users:
                    opened.views.close()

    def rows(self, id: str, query: str, parameters: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of a query over the views of one batch."""
        with self.views(id) as views:
            return views.rows(query, parameters or [])

    def _open(self, path: Path) -> _Opened:
        with self._lock:
            building = self._building.setdefault(path.name, threading.Lock())
        with building:
            stamp = _stamp(path)
            with self._lock:
                opened = self._opened.get(path.name)
                if opened is not None and (opened.stamp == stamp or (stamp[0] and monotonic() < opened.until)):
                    self._opened.move_to_end(path.name)
                    opened.users += 1
                    return opened
            start = monotonic()
            try:
                views = open_views(path, self._catalog)
            except EvalloomError as error:
                raise RequestError("batch_unreadable", str(error)) from None
            opened = _Opened(views, stamp, monotonic() - start)
            opened.users = 1
            with self._lock:
                self._drop(path.name)
                self._opened[path.name] = opened
                while len(self._opened) > _OPEN:
                    self._drop(next(iter(self._opened)))
            return opened

    def _drop(self, name: str) -> None:
        old = self._opened.pop(name, None)
        if old is None:
            return
        old.is_stale = True
        if not old.users:
            old.views.close()


def _stamp(path: Path) -> tuple[object, ...]:
    """Return the version of the files of a batch; it begins with whether the batch is being written."""

    def file_stamp(name: str) -> tuple[int, int]:
        try:
            stat = (path / name).stat()
        except OSError:
            return (0, -1)
        return (stat.st_mtime_ns, stat.st_size)

    return (is_in_use(path), *map(file_stamp, (MANIFEST, RUNS, VERDICTS)))


def _count_losses(path: Path, summary: BatchSummary) -> LogLosses | None:
    try:
        if (path / RUNS).stat().st_size > _LARGEST_COUNTED:
            return None
        lines = (path / RUNS).read_bytes().count(b"\n")
        damage = list(losses(path, manifest(path), lines))
    except FileNotFoundError:
        lines, damage = 0, []
    except EvalloomError:
        return None
    total = summary.summary.get("total", 0)
    if not damage and lines >= total:
        return None
    texts = [str(each) for each in damage if not each.has_lost_runs]
    return LogLosses(summary.id, summary.state, lines, total if lines < total else 0, texts)
