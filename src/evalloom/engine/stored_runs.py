"""Scores the runs in the log of a batch, part by part; those of a large batch in several processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom.analysis.tally import PartialTally
from evalloom.batchlog.log import LineEncoder
from evalloom.batchlog.read import RUNS, Damage, Part, parts, run_at, runs_of
from evalloom.core.model import Batch, Case, Check, Run
from evalloom.engine.cases import with_checks
from evalloom.engine.plan import CHECK_LISTS
from evalloom.engine.processes import Processes, most_processes
from evalloom.engine.resume import DamagedRun, case_of
from evalloom.engine.score import grade_now
from evalloom.engine.scoring import Scorer
from evalloom.engine.system import Catalog
from evalloom.matchers import Services

CASE = "case"
"""The name that sets the threshold of whole cases."""
_PART_BYTES = 2 * 1024 * 1024
_WORTH_IT = 4 * _PART_BYTES
_PAUSE_EVERY = 500
_TOGETHER = 64


class Notes(Struct):
    """What was noticed while runs were read."""

    runs: int = 0
    damage: list[Damage] = []
    names: set[str] = set()
    """The names and kinds of all checks, collected where there are thresholds."""

    def add(self, others: Notes) -> None:
        self.runs += others.runs
        self.damage += others.damage
        self.names |= others.names


class ScoredPart(Struct):
    """What another process returns about a part of the runs."""

    lines: bytes
    """Their verdicts, as the log has them."""
    tally: PartialTally
    left: list[int]
    """The offsets of runs with a check that waits for an llm or for code."""
    notes: Notes


class StoredRuns:
    """The runs of a batch, and how their cases are scored now."""

    def __init__(
        self, path: Path, batch: Batch, catalog: Catalog, checks: tuple[Check, ...], thresholds: dict[str, float]
    ) -> None:
        """`checks` are those that every case gets; `thresholds` go by the name or kind of a check."""
        self._path = path.absolute()
        self._config, self._lists = batch.config, batch.options.get(CHECK_LISTS, "plain")
        self._catalog = catalog
        self._checks = checks
        self._thresholds = thresholds
        self.notes = Notes()

    def processes(self, scoring: str, secrets: Iterable[str]) -> Processes[Part, ScoredPart] | None:
        """Return processes that score parts of the runs; None if one process is as good."""
        runs = self._path / RUNS
        if not runs.is_file() or runs.stat().st_size < _WORTH_IT or (number := most_processes()) < 2:
            return None
        services, encoder = Services(matchers=self._catalog.matchers), LineEncoder(secrets)
        try:
            return Processes(number, lambda part: self._scored(part, services, encoder, scoring))
        except (OSError, NotImplementedError):
            return None

    async def score(self, scorer: Scorer, processes: Processes[Part, ScoredPart] | None) -> None:
        """Score all runs. What was noticed is in `notes`."""
        all_parts = parts(self._path, _PART_BYTES)
        if processes is None:
            for part in all_parts:
                await self._score_here(part, scorer)
            return
        async for part, scored in processes.map_async(all_parts):
            if scored is None:
                await self._score_here(part, scorer)
                continue
            scorer.add_part(scored.lines, scored.tally)
            self.notes.add(scored.notes)
            for at in scored.left:
                run = run_at(self._path, at)
                await scorer.add(self._case_of(run), run)

    async def _score_here(self, part: Part, scorer: Scorer) -> None:
        for number, (case, run, _) in enumerate(self._cases(part, self.notes)):
            if number % _PAUSE_EVERY == 0:
                # Without it, checks that call no llm would keep Ctrl-C from getting through.
                await asyncio.sleep(0)
            await scorer.add(case, run)

    def _scored(self, part: Part, services: Services, encoder: LineEncoder, scoring: str) -> ScoredPart:
        lines, tally, left, notes = bytearray(), PartialTally(), list[int](), Notes()
        cases = self._cases(part, notes)
        # Some runs step by step, instead of each run from end to end: what a step needs stays in the caches of the
        # processor, which saves a sixth of the time.
        while block := list(islice(cases, _TOGETHER)):
            scores = [grade_now(case, run, services) for case, run, _ in block]
            for (_, run, at), scored in zip(block, scores, strict=True):
                if scored is None:
                    left.append(at)
                elif not run.error:
                    lines += encoder.line(msgspec.structs.replace(scored, scoring=scoring))
            for (_, run, _), scored in zip(block, scores, strict=True):
                if scored is not None:
                    tally.add(run, scored)
        return ScoredPart(bytes(lines), tally, left, notes)

    def _cases(self, part: Part, notes: Notes) -> Iterator[tuple[Case, Run, int]]:
        """Yield the runs of a part with their cases and offsets."""
        for line, at, run in runs_of(self._path, part, notes.damage):
            notes.runs += 1
            try:
                case = self._case_of(run)
            except DamagedRun as error:
                notes.damage.append(Damage(RUNS, line, str(error)))
                continue
            if self._thresholds:
                notes.names.update(name for check in case.checks for name in (check.name, check.kind))
            yield case, run, at

    def _case_of(self, run: Run) -> Case:
        case = with_checks(case_of(run, self._catalog.formats, self._lists), self._checks, self._config, self._catalog)
        return with_thresholds(case, self._thresholds)


def with_thresholds(case: Case, thresholds: dict[str, float]) -> Case:
    """Replace the thresholds of a case and of its checks."""
    if not thresholds:
        return case
    checks = tuple(
        msgspec.structs.replace(check, options={**check.options, "threshold": thresholds[name]})
        if (name := next((name for name in (check.name, check.kind) if name in thresholds), None)) is not None
        else check
        for check in case.checks
    )
    meta = {**case.meta, "threshold": thresholds[CASE]} if CASE in thresholds else case.meta
    return msgspec.structs.replace(case, checks=checks, meta=meta)
