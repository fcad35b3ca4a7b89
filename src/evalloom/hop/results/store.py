"""The data store over a folder of HOP result files: file lists, statistics and single results.

The JSONL files are the source of truth (HOP-15). Queries run on a derived copy that follows them; see `copy.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from evalloom.core.errors import usage_error
from evalloom.core.model import Record
from evalloom.hop.results.compare import compare, correct_for_number
from evalloom.hop.results.copy import Copy
from evalloom.hop.results.index import OBSERVER, CopyIndex
from evalloom.hop.results.perf import NO_RUNS, perf_summary
from evalloom.hop.results.query import query_results
from evalloom.hop.results.rows import json_text
from evalloom.hop.results.stats import DEFAULT_BANDS, GROUPS, Bands, agreement, stats
from evalloom.hop.results.table import NO_PROFILE, Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_Answer = TypeVar("_Answer")
_RETRY_DELAYS_S = (0.0, 0.05, 0.1)


class DataStore:
    """Queries the results in a folder, or in one file.

    Files may be added, changed and removed between queries.
    """

    def __init__(self, folder: str | Path, warn: Callable[[str], None] = lambda message: None) -> None:
        path = Path(folder)
        inner = path / "TestCases"
        self._file = path.name if os.path.isfile(path) and path.suffix == ".jsonl" else ""
        self.folder = path.parent if self._file else inner if os.path.isdir(inner) else path
        if not os.path.isdir(self.folder):
            what = "a file of another type" if os.path.exists(self.folder) else "nothing there"
            message = f"{path.as_posix()}: expected a folder with result files, or one of them (.jsonl), got {what}"
            raise usage_error("results_unreadable", message)
        self._warn = warn
        self._copy = Copy(self.folder, warn)

    @property
    def is_single_file(self) -> bool:
        """Whether the store covers one file instead of a folder."""
        return bool(self._file)

    def list_files(self) -> list[Record]:
        """List the result and case files with their counts, without the observer's log."""
        files = []
        for source in self._copy.refresh().sources():
            if self._file not in ("", source.name):
                continue
            with suppress(OSError):
                stat = (self.folder / source.name).stat()
                files.append(
                    {
                        "name": source.name,
                        "rows": source.results,
                        "profiles": [NO_PROFILE if profile is None else profile for profile in source.profiles],
                        "meta": source.metas,
                        "inputs": source.inputs,
                        "unreadable": source.unreadable,
                        "size": stat.st_size,
                        "modified": datetime.fromtimestamp(stat.st_mtime, UTC).isoformat(timespec="seconds"),
                    }
                )
        return files

    def get_stats(self, profile: str | None = None, by: Sequence[str] = tuple(GROUPS)) -> Record:
        """Return completion, correctness, outcomes, retries and fields, in total and by group (HOP-16)."""
        by = [by] if isinstance(by, str) else list(by)
        key = json_text([self._file, profile, by])

        def cached_or_computed(index: CopyIndex) -> Record:
            cached = self._copy.cached_stats(index, key)
            if cached is not None:
                return cached
            with self._copy.connection() as connection:
                answer = stats(connection, Table(index, self._copy.place, self._file), profile, by)
            self._copy.cache_stats(index, key, answer)
            return answer

        return self._with_retries(cached_or_computed)

    def get_perf_summary(self, profile: str | None = None) -> Record:
        """Return the durations of observed runs and one row per operator (HOP-18), for all or one profile."""
        log = self.folder / OBSERVER
        if not log.is_file():
            return dict(NO_RUNS)
        with self._copy.connection() as connection:
            summary = perf_summary(connection, log, profile)
        if summary["unreadable"]:
            lines = "1 line" if summary["unreadable"] == 1 else f"{summary['unreadable']} lines"
            self._warn(f"{log.as_posix()}: {lines} skipped: expected an object with a type [unreadable_observer_line]")
        return summary

    def query_results(
        self, offset: int = 0, limit: int = 100, sort_by: str = "", filters: Mapping[str, Any] | None = None
    ) -> Record:
        """Return `{total, rows}`: a page of matching results; `-COLUMN` sorts descending (HOP-19)."""
        return self._query(
            lambda connection, table: query_results(
                connection, table, self.folder, (offset, limit), sort_by, filters or {}
            )
        )

    def compare(self, profile_a: str, profile_b: str, offset: int = 0, limit: int = 1000) -> Record:
        """Compare the cases that ran under both profiles, with a confidence interval (HOP-20)."""
        profiles = (profile_a, profile_b)
        return self._query(lambda connection, table: compare(connection, self.folder, table, profiles, (offset, limit)))

    def compare_all(self, base: str, others: Sequence[str]) -> list[Record]:
        """Compare each of several profiles with one, and correct for their number (WORK-7)."""
        return correct_for_number([self.compare(base, other) for other in others])

    def get_agreement(self, field: str, bands: Bands = DEFAULT_BANDS, profile: str | None = None) -> Record:
        """Compare expected with actual scores: confusion matrix by bands and agreement rates (HOP-17)."""
        return self._query(lambda connection, table: agreement(connection, table, field, bands, profile))

    def _query(self, query: Callable[[DuckDBPyConnection, Table], _Answer]) -> _Answer:
        def with_connection(index: CopyIndex) -> _Answer:
            with self._copy.connection() as connection:
                return query(connection, Table(index, self._copy.place, self._file))

        return self._with_retries(with_connection)

    def _with_retries(self, query: Callable[[CopyIndex], _Answer]) -> _Answer:
        """Query the copy; retry if another process replaced it meanwhile, and finally rebuild it."""
        import duckdb

        for delay in _RETRY_DELAYS_S:
            try:
                return query(self._copy.refresh())
            except (duckdb.Error, FileNotFoundError):
                time.sleep(delay)
        self._copy.forget()
        return query(self._copy.refresh())
