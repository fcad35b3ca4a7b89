"""The data store over a folder of HOP result files: what is in them, what they come to, and single results.

The JSONL files are the truth (HOP-15). Questions go to a derived copy that follows them; see `hop_copy`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from evalloom.core.errors import usage_error
from evalloom.core.model import Record
from evalloom.hop.results import cube as hop_cube
from evalloom.hop.results.compare import compare
from evalloom.hop.results.copy import Copy
from evalloom.hop.results.cube import Cube
from evalloom.hop.results.parts import OBSERVER
from evalloom.hop.results.perf import NO_RUNS, perf_summary
from evalloom.hop.results.query import query_results
from evalloom.hop.results.stats import DEFAULT_BANDS, GROUPS, Bands, agreement, stats
from evalloom.hop.results.table import NO_PROFILE, Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_Answer = TypeVar("_Answer")
_PAUSES = (0.0, 0.05, 0.1)
"""Seconds to wait before a question is put again."""


class DataStore:
    """Answers questions about the results in a folder, or in one file of it.

    Files may be added, changed and removed in between.
    """

    def __init__(self, folder: str | Path, warn: Callable[[str], None] = lambda message: None) -> None:
        given = Path(folder)
        inner = given / "TestCases"
        self._only = given.name if given.is_file() and given.suffix == ".jsonl" else ""
        self.folder = given.parent if self._only else inner if inner.is_dir() else given
        if not self.folder.is_dir():
            what = "another file" if self.folder.exists() else "nothing there"
            message = f"{given.as_posix()}: expected a folder with result files, or one of them (.jsonl), got {what}"
            raise usage_error("results_unreadable", message)
        self._warn = warn
        self._copy = Copy(self.folder, warn)

    @property
    def is_one_file(self) -> bool:
        """Whether this is about one file and not about all of a folder."""
        return bool(self._only)

    def list_files(self) -> list[Record]:
        """The result and case files, each with what is in it; not the observer's log."""
        found = []
        for source in self._copy.refresh().sources():
            if self._only not in ("", source.name):
                continue
            with suppress(OSError):
                stat = (self.folder / source.name).stat()
                found.append(
                    {
                        "name": source.name,
                        "rows": source.results,
                        "profiles": [NO_PROFILE if one is None else one for one in source.profiles],
                        "meta": source.metas,
                        "inputs": source.inputs,
                        "unreadable": source.unreadable,
                        "size": stat.st_size,
                        "modified": datetime.fromtimestamp(stat.st_mtime, UTC).isoformat(timespec="seconds"),
                    }
                )
        return found

    def get_stats(self, profile: str | None = None, by: Sequence[str] = tuple(GROUPS)) -> Record:
        """Completion, correctness, outcomes, retries and every field, of all results and by group (HOP-16)."""
        by = [by] if isinstance(by, str) else by
        cube = self._cube()
        if cube is not None and (profile is None or not cube.many):
            return cube.stats(profile, by)
        return self._ask(lambda connection, table: stats(connection, table, profile, by))

    def _cube(self) -> Cube | None:
        """All results by kind; none where one file is asked about, or where the copy has to tell."""
        if self._only:
            return None
        stamps = self._copy.stamps()
        found = hop_cube.load(self._copy, stamps)
        return found if found is not None or self._copy.exists() else hop_cube.make(self._copy, stamps)

    def get_perf_summary(self, profile: str | None = None) -> Record:
        """Seconds of the observed runs, and a row for each operator (HOP-18); of one profile where its runs say so."""
        log = self.folder / OBSERVER
        if not log.is_file():
            return dict(NO_RUNS)
        with self._copy.connection() as connection:
            found = perf_summary(connection, log, profile)
        if found["unreadable"]:
            lines = "1 line" if found["unreadable"] == 1 else f"{found['unreadable']} lines"
            self._warn(f"{log.as_posix()}: {lines} skipped: expected an object with a type [unreadable_observer_line]")
        return found

    def query_results(
        self, offset: int = 0, limit: int = 100, sort_by: str = "", filters: Mapping[str, Any] | None = None
    ) -> Record:
        """`{total, rows}`: a page of the results that pass the filters; `-` before a column turns it round (HOP-19)."""
        return self._ask(
            lambda connection, table: query_results(
                connection, table, self.folder, (offset, limit), sort_by, filters or {}
            )
        )

    def compare(self, profile_a: str, profile_b: str, offset: int = 0, limit: int = 1000) -> Record:
        """The cases that ran under both profiles, with the difference and how sure it is (HOP-20)."""
        self._copy.make_writable()
        return self._ask(
            lambda connection, table: compare(connection, self._copy, table, (profile_a, profile_b), (offset, limit))
        )

    def get_agreement(self, field: str, bands: Bands = DEFAULT_BANDS, profile: str | None = None) -> Record:
        """Expected against given scores: the confusion matrix by bands and the rates of agreement (HOP-17)."""
        return self._ask(lambda connection, table: agreement(connection, table, field, bands, profile))

    def _ask(self, question: Callable[[DuckDBPyConnection, Table], _Answer]) -> _Answer:
        """Asks a question; again when another process replaced the copy meanwhile, and once more with a new copy."""
        import duckdb

        for pause in _PAUSES:
            try:
                return self._ask_once(question)
            except (duckdb.Error, FileNotFoundError):
                time.sleep(pause)
        self._copy.forget()
        return self._ask_once(question)

    def _ask_once(self, question: Callable[[DuckDBPyConnection, Table], _Answer]) -> _Answer:
        index = self._copy.refresh()
        with self._copy.connection() as connection:
            return question(connection, Table(index, self._copy.place, self._only))
