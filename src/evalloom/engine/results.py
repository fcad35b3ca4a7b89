"""The results of a batch: its summary in memory, its runs read from the log on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from evalloom.analysis.tally import NOTHING_EXPECTED, SHOWN_FAILURES, Summary, Tally
from evalloom.batchlog import Damage, manifest, warn_of_damage
from evalloom.batchlog.complete import checked_runs
from evalloom.core.model import Batch, Record, Run, Scored, Status
from evalloom.core.repeats import Count, cases_of, count_of, meets
from evalloom.core.text import pluralize, printable

if TYPE_CHECKING:
    import pandas
    import polars

    from evalloom.analysis.gates import GateResult
    from evalloom.engine.quarantine import QuarantineSummary
    from evalloom.engine.show_results import FailedRun
    from evalloom.engine.system import Catalog
    from evalloom.engine.until_sure import Answer
    from evalloom.settings import RunSettings


class Accepted(Struct, frozen=True):
    """What a batch may leave open and still be a success."""

    allow_unscored: bool = False
    """Expectations that could not be scored."""
    no_checks: bool = False
    """That nothing is expected of any case."""
    has_own_outcome: bool = False
    """Both, since the target gives a result without expectations; but not that everything expected is unscored."""


NOTHING_ACCEPTED = Accepted()


class BatchProblem(Struct, frozen=True):
    """Why a batch without failures is not a success: its code, such as `unscored`, and the message."""

    code: str
    message: str


class Results:
    """The results of one batch; iterating yields its runs with their verdicts, in the order of the cases."""

    def __init__(
        self,
        path: Path,
        summary: Summary,
        tally: Tally,
        gate_texts: list[str],
        stopped: str = "",
        accepted: Accepted = NOTHING_ACCEPTED,
        stop_code: str = "",
        answer: Answer | None = None,
        catalog: Catalog | None = None,
    ) -> None:
        """`stop_code` is the code of the message `stopped`, if it has one."""
        self.answer = answer
        """What --until-sure decided; None without it."""
        self.path = path
        """The folder of the batch."""
        self._catalog = catalog
        self._accepted = accepted
        self._stop_code = stop_code
        self.summary = summary
        self.stopped = stopped
        """Why the batch stopped early; empty if it did not."""
        self.gates: list[GateResult] = []
        if gate_texts:
            from evalloom.analysis import gates  # deferred: few suites have gates

            self.gates = [gates.parse(text).check(tally.deciding) for text in gate_texts]
        self._tally = tally
        self._decided = summary if tally.deciding is tally else tally.deciding.summary()
        """The figures of the cases that are not in quarantine."""
        self.quarantine: QuarantineSummary | None = None
        """The cases in quarantine; None if there are none."""
        if tally.deciding is not tally:
            from evalloom.engine.quarantine import summary_of  # deferred: few suites have one

            self.quarantine = summary_of(tally, self._decided)

    def __iter__(self) -> Iterator[tuple[Run, Scored]]:
        return stored_runs(self.path)

    def worst(self) -> list[tuple[Run, Scored]]:
        """Return up to ten failures and errors, the worst first; of a repeated case its worst repeat."""
        if not self._tally.has_repeats:
            return self._tally.worst()
        # How often a case fails is known only now that all its repeats have run.
        needed = 1.0 if self._tally.pass_if is None else self._tally.pass_if
        failing = (case for case in cases_of(self) if count_of(case)[1] and not meets(count_of(case), needed))
        worst = nsmallest(SHOWN_FAILURES, failing, key=lambda case: count_of(case)[0] / count_of(case)[1])
        return [case[0] for case in worst]

    def count_of(self, run: Run) -> Count:
        """Return how many repeats of a run's case passed under its profile, of how many that count."""
        return self._tally.count_of(run)

    def latencies(self, *shares: float) -> list[float | None]:
        """Return percentiles of the latencies of all runs with an answer, for shares from 0 to 1."""
        return self._tally.group().latencies(*shares)

    def not_scored(self) -> dict[tuple[Status, str], int]:
        """Return why runs were skipped, blocked or not scored, with counts, the most frequent reason first."""
        return dict(sorted(self._tally.reasons.items(), key=lambda item: -item[1]))

    def unscored(self) -> dict[str, int]:
        """Return why runs were not scored, with counts, the most frequent reason first."""
        return {reason: number for (status, reason), number in self.not_scored().items() if status == "unscored"}

    @property
    def could_not_score(self) -> bool:
        """Whether there were expectations, but none could be scored, for example without a judge."""
        summary = self.summary
        counted = summary.passed + summary.failed + summary.error
        return not counted and any(reason != NOTHING_EXPECTED for reason in self.unscored())

    @property
    def problem(self) -> BatchProblem | None:
        """Why this is not a success although nothing failed; None if nothing is left open, or it is accepted."""
        if self._stop_code:
            return BatchProblem(self._stop_code, self.stopped)
        decided = self._decided
        if self.quarantine is not None and not decided.total:
            number = pluralize(len(self.quarantine.cases), "case")
            message = f"every case is in quarantine ({number}), so nothing decides. Take some out of the file"
            return BatchProblem("all_quarantined", message)
        nothing = self._tally.deciding.reasons.get(("unscored", NOTHING_EXPECTED), 0)
        unscored = decided.unscored - nothing
        accepted = self._accepted
        if unscored:
            is_accepted = accepted.allow_unscored or (accepted.has_own_outcome and not self.could_not_score)
            return None if is_accepted else unscored_problem(unscored, decided.total, self.unscored())
        if nothing and not decided.passed + decided.failed:
            return None if accepted.no_checks or accepted.has_own_outcome else NOTHING_CHECKED
        if self.answer is not None and self.answer.decides and not self.answer.is_sure:
            return BatchProblem("not_sure", self.answer.why_open)
        return None

    @property
    def failed(self) -> bool:
        """Whether cases failed; with --until-sure, whether it decided that too many do."""
        if self.answer is not None and self.answer.decides:
            return self.answer.is_bad
        return bool(self._decided.failing)

    def is_quarantined(self, run: Run) -> bool:
        """Whether the case of a run is in quarantine."""
        return self.quarantine is not None and self.quarantine.includes(run)

    @property
    def deciding_rate(self) -> float | None:
        """The pass rate that --fail-under is about: without the cases in quarantine."""
        return self._decided.pass_rate

    @property
    def pass_rate(self) -> float | None:
        return self.summary.pass_rate

    @property
    def passed(self) -> bool:
        """Whether the batch is complete, no case and no gate failed, and nothing that is expected is unscored."""
        is_open = self.stopped or self.problem is not None
        return not self.failed and not is_open and all(gate.holds for gate in self.gates)

    @property
    def failures(self) -> list[FailedRun]:
        """The runs that failed or met an error, read from the log each time, in the order of the cases."""
        from evalloom.engine.show_results import failed_runs

        return list(failed_runs(self))

    def to_pandas(self) -> pandas.DataFrame:
        """Return one row for each run as a pandas DataFrame, with the columns of the view `runs`."""
        from evalloom.engine.frames import runs_to_pandas

        return runs_to_pandas(self.path, self.catalog)

    def to_polars(self) -> polars.DataFrame:
        """Return one row for each run as a polars DataFrame, with the columns of the view `runs`."""
        from evalloom.engine.frames import runs_to_polars

        return runs_to_polars(self.path, self.catalog)

    def save(self, path: str | Path, *, force: bool = False, lang: str = "en") -> Path:
        """Write the results to a file, as `-o` does: .html, .csv, .json, .jsonl, .xml …

        `force` replaces a file that is not a report of evalloom.
        """
        from evalloom.engine.outputs import refuse_claimed, refuse_replacing_results, reporters_for, write_outputs
        from evalloom.ui.language import known_language

        outputs = reporters_for([str(path)], self.catalog.reporters)
        refuse_replacing_results(outputs, force, manifest(self.path))
        if not force:
            refuse_claimed(file for file, _ in outputs)
        write_outputs(self, outputs, self.catalog, known_language(lang))
        return Path(path)

    @property
    def catalog(self) -> Catalog:
        """The systems that read the batch again."""
        from evalloom.engine.system import Catalog

        return self._catalog or Catalog()

    def __repr__(self) -> str:
        from evalloom.engine.show_results import results_text

        return results_text(self)

    def _repr_html_(self) -> str:
        from evalloom.engine.show_results import results_html

        return results_html(self)


def described(summary: Summary, answer: Answer | None) -> Record:
    """Return a summary as `--json` and the manifest have it."""
    record: Record = msgspec.to_builtins(summary)
    return {**record, UNTIL_SURE: msgspec.to_builtins(answer)} if answer is not None else record


NOTHING_CHECKED = BatchProblem(
    "nothing_expected",
    "nothing is expected of any case, so nothing was checked. Add expectations to the cases, or 'checks:' to"
    " evalloom.yaml; if it is meant, pass --no-checks",
)


def unscored_problem(number: int, total: int, reasons: dict[str, int], what: str = "run") -> BatchProblem:
    """Return the problem of runs or cases that could not be scored, with the most frequent reason."""
    why = next((reason for reason in reasons if reason != NOTHING_EXPECTED), "")
    are = f"{number:,} of {pluralize(total, what)} could not be scored"
    return BatchProblem("unscored", f"{are}{f': {why}' if why else ''}. To accept that, pass --allow-unscored")


def accepted_by(options: RunSettings, stored: Record) -> Accepted:
    """Return what the options of a command, or those stored with its batch, accept."""
    return Accepted(
        options.allow_unscored,
        options.no_checks or stored.get("no_checks") is True,
        stored.get(OWN_OUTCOME) is True,
    )


OWN_OUTCOME = "has_own_outcome"
"""The option of a batch whose target gives a result without expectations."""
UNTIL_SURE = "until_sure"
"""The option of a batch that stops when a question is decided, and the key of the answer in its summary."""

LEFT_OUT = "left_out"
"""The option of a batch with the number of cases that it left out because its results had decided the question."""


def has_stopped_when_sure(batch: Batch) -> bool:
    """Whether a batch left out cases because of its own results, so that usual intervals are too narrow for it."""
    return bool(batch.options.get(LEFT_OUT))


def warn_if_stopped_when_sure(batch: Batch, name: str, warn: Callable[[str], None]) -> None:
    """Warn that the usual intervals do not hold for a batch that left out cases because of its own results."""
    if has_stopped_when_sure(batch):
        message = "it stopped by its own results (--until-sure), so these intervals are too narrow"
        warn(f"{printable(name)}: {message} [stopped_when_sure]")


def stored_runs(path: Path, warn: Callable[[str], None] = lambda message: None) -> Iterator[tuple[Run, Scored]]:
    """Yield the runs of a batch by profile, case and repeat, and warn about unreadable lines and missing runs.

    A run without verdicts has no output, or is unscored.
    """
    damage: list[Damage] = []
    yield from checked_runs(path, damage)
    warn_of_damage(damage, path, warn)
