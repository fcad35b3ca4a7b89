"""A quarantine: cases that run and are shown, but do not decide whether a batch is a success."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from evalloom.analysis.tally import Summary, Tally
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Run, Scored
from evalloom.core.repeats import COUNTED, Count, meets
from evalloom.core.text import list_names, pluralize
from evalloom.engine.quarantine_file import Entry, is_file, read_entries, today

if TYPE_CHECKING:
    from evalloom.engine.system import Catalog

STABLE_BATCHES = 10
"""A quarantined case that passed in so many batches in a row can leave."""


class Quarantine:
    """The entries of a file, by the id of their case."""

    def __init__(self, path: Path, entries: list[Entry], day: date) -> None:
        self.path = path
        self.expired = [entry for entry in entries if entry.expires < day]
        self._by_id: dict[str, list[Entry]] = {}
        for entry in entries:
            if entry.expires >= day:
                self._by_id.setdefault(entry.id, []).append(entry)

    def entry_of(self, case_id: str, file: str, profile: str) -> Entry | None:
        """Return the entry of a case; None if it is not in quarantine."""
        for entry in self._by_id.get(case_id, ()):
            if is_file(entry.file, file) and entry.profile in ("", profile):
                return entry
        return None

    @property
    def entries(self) -> list[Entry]:
        """The entries that are in force."""
        return [entry for entries in self._by_id.values() for entry in entries]

    def expired_warnings(self) -> Iterator[str]:
        """Yield which entries have expired."""
        for entry in self.expired:
            message = f"the quarantine of {entry.id!r} ended on {entry.expires}, so it counts as any other case"
            yield f"{self._place(entry)}: {message}. Remove the entry, or give it a later date [quarantine_expired]"

    def unmatched_warnings(self, matched: set[Entry]) -> Iterator[str]:
        """Yield which entries are of no case that was run."""
        for entry in self.entries:
            if entry not in matched:
                where = f" of {entry.file}" if entry.file else ""
                under = f" under the profile {entry.profile!r}" if entry.profile else ""
                message = f"there is no case {entry.id!r}{where}{under} in this run"
                yield f"{self._place(entry)}: {message}. Remove the entry, or correct it [quarantine_unmatched]"

    def _place(self, entry: Entry) -> str:
        return f"{self.path.as_posix()}:{entry.line}"


def read_quarantine(path: Path) -> Quarantine:
    """Read a file of quarantined cases. Raises bad_quarantine."""
    return Quarantine(path, read_entries(path), today())


class QuarantinedCase(Struct, frozen=True):
    """A quarantined case of a batch: its entry, and how many of its runs passed, of how many that count."""

    case_id: str
    profile: str
    expires: str
    reason: str
    passed: int
    counted: int
    is_failing: bool


class QuarantineTally(Tally):
    """Counts all runs, and those beside that are not in quarantine, which decide."""

    def __init__(self, quarantine: Quarantine, pass_if: float | None = None) -> None:
        super().__init__(pass_if)
        self.quarantine = quarantine
        self._deciding = Tally(pass_if)
        self._counts: dict[tuple[str, str, int], tuple[Entry, Count]] = {}

    @property
    def deciding(self) -> Tally:
        self._deciding.pass_if, self._deciding.order = self.pass_if, self.order
        return self._deciding

    def add(self, run: Run, scored: Scored) -> None:
        super().add(run, scored)
        entry = self.quarantine.entry_of(run.case_id, run.origin.file, run.profile)
        if entry is None:
            self.deciding.add(run, scored)
            return
        key = (run.profile, run.case_id, run.number)
        _, (passed, counted) = self._counts.get(key, (entry, (0, 0)))
        count = (passed + (scored.status == "passed"), counted + (scored.status in COUNTED))
        self._counts[key] = (entry, count)

    def cases(self) -> list[QuarantinedCase]:
        """Return the quarantined cases of the batch."""
        needed = 1.0 if self.pass_if is None else self.pass_if
        return [
            QuarantinedCase(
                id, profile, str(entry.expires), entry.reason, *count, bool(count[1]) and not meets(count, needed)
            )
            for (profile, id, _), (entry, count) in self._counts.items()
        ]

    @property
    def matched(self) -> set[Entry]:
        """The entries of cases that were run."""
        return {entry for entry, _ in self._counts.values()}


class QuarantineSummary(Struct, frozen=True):
    """The quarantined cases of a batch, and the pass rate of the others, which decides."""

    cases: list[QuarantinedCase]
    deciding_cases: int
    pass_rate: float | None
    pass_rate_low: float | None
    pass_rate_high: float | None

    def includes(self, run: Run) -> bool:
        """Whether the case of a run is in quarantine."""
        return any((case.case_id, case.profile) == (run.case_id, run.profile) for case in self.cases)

    @property
    def failing(self) -> list[str]:
        """The ids of the cases that failed."""
        return list(dict.fromkeys(case.case_id for case in self.cases if case.is_failing))


def summary_of(tally: Tally, decided: Summary) -> QuarantineSummary | None:
    """Return what a quarantine leaves out of a batch; None without one, or if it leaves out nothing."""
    if not isinstance(tally, QuarantineTally) or not (cases := tally.cases()):
        return None
    return QuarantineSummary(cases, decided.cases, decided.pass_rate, decided.pass_rate_low, decided.pass_rate_high)


def stable_warning(tally: QuarantineTally, batch: str, folder: Path, catalog: Catalog) -> str:
    """Return which quarantined cases passed in the last batches of a folder and can leave; empty if none did."""
    passing = [case for case in tally.cases() if case.counted and case.passed == case.counted]
    if not passing:
        return ""
    # Deferred: it imports DuckDB.
    from evalloom.analysis.history import read_history
    from evalloom.analysis.history_series import SeriesRequest

    try:
        history = read_history([folder], SeriesRequest(batch, limit=STABLE_BATCHES), catalog, lambda message: None)
    except EvalloomError:
        # Another batch is damaged or was removed; that is no reason to fail this one.
        return ""
    in_a_row = {(case.profile, case.case_id): case.passes_in_a_row for case in history.cases}
    stable = [case.case_id for case in passing if in_a_row.get((case.profile, case.case_id), 0) >= STABLE_BATCHES]
    if not stable:
        return ""
    are = f"{pluralize(len(stable), 'quarantined case')} passed in the last {STABLE_BATCHES} batches"
    return (
        f"{tally.quarantine.path.as_posix()}: {are}: {list_names(dict.fromkeys(stable))}."
        " Remove what is stable [quarantine_stable]"
    )
