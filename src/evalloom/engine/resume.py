"""Going on with a batch, and taking over from another what a change has not touched."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom.batchlog import FOLDER, Damage, Log, RunIndex, batches, find, finished, manifest, pairs
from evalloom.core.errors import usage_error
from evalloom.core.model import Batch, Case, Run, Scored
from evalloom.data.formats import Formats
from evalloom.engine.plan import Plan
from evalloom.engine.run import Job

_NOT_ALLOWED = "code_not_allowed"
"""The error of a run that would go on with --allow-code."""


class Resume(Struct, frozen=True):
    """Whether to begin anew, to go on with the newest batch of this plan, or to go on from a batch that is named."""

    newest: bool = False
    source: str = ""
    retry_errors: bool = False


class Earlier(Struct, frozen=True):
    """What there is already: runs in this batch, and runs of another batch that still hold."""

    path: Path
    done: Collection[str] = ()
    taken: RunIndex | None = None
    has_runs: bool = False
    scoring: str = ""
    """The present way of scoring: verdicts that were made in another one do not hold."""
    again: Collection[str] | None = None
    """The keys of the runs to be made, where only some cases are chosen; what nobody makes again stays as it is."""

    def pairs(self, damage: list[Damage]) -> Iterator[tuple[Run, Scored | None]]:
        """The runs of this batch that are not run again, with those of their verdicts that still hold."""
        for run, scored in pairs(self.path, damage) if self.has_runs else ():
            if run.key in self.done or (self.again is not None and run.key not in self.again):
                yield run, scored if scored is not None and scored.scoring == self.scoring else None

    def or_else(self, run: Callable[[Job], Awaitable[Run]]) -> Callable[[Job], Awaitable[Run]]:
        """Runs a job, unless another batch has done so."""
        taken = self.taken
        if taken is None:
            return run

        async def take_or_run(job: Job) -> Run:
            found = None if job.skipped or job.blocked else taken.get(job.key)
            if found is None:
                return await run(job)
            case = job.case
            return msgspec.structs.replace(
                found, number=job.number, tags=case.tags, origin=case.origin, raw=case.raw, dialect=job.dialect
            )

        return take_or_run


def look_back(plan: Plan, resume: Resume) -> tuple[Path | None, Collection[str]]:
    """The batch that would be gone on with, and the keys of the runs that would not be run again."""
    path = _batch_to_go_on_with(plan.batch(), resume, plan.home / FOLDER)
    return path, finished(path, not resume.retry_errors, _tried_again(plan)) if path is not None else ()


@contextmanager
def open_log(
    plan: Plan, resume: Resume, secrets: Iterable[str], warn: Callable[[str], None]
) -> Iterator[tuple[Log, Earlier]]:
    """The log to write to, and what there is already."""
    batch = plan.batch()
    path = _batch_to_go_on_with(batch, resume, plan.home / FOLDER)
    if path is not None and (former := manifest(path)).identity == batch.identity:
        log = Log(path, msgspec.structs.replace(former, options=batch.options, finished_at=""), secrets)
        done = finished(path, not resume.retry_errors, _tried_again(plan))
        options = plan.options
        is_choice = options.tags or options.filter or options.limit is not None
        again = {job.key for job in plan.jobs(done)} if is_choice else None
        earlier = Earlier(path, done, has_runs=True, scoring=plan.scoring(), again=again)
    else:
        log = Log(plan.home / FOLDER / batch.id, batch, secrets)
        taken = RunIndex(path, not resume.retry_errors, _tried_again(plan)) if path is not None else None
        earlier = Earlier(log.path, taken=taken)
    tell_damage(log.damage, log.path, warn)
    try:
        yield log, earlier
    finally:
        log.close()


def _tried_again(plan: Plan) -> str:
    """The code of the errors that need not come again, though nobody asked to try errors again."""
    return _NOT_ALLOWED if plan.allow_code else ""


def tell_damage(damage: Iterable[Damage], path: Path, warn: Callable[[str], None]) -> None:
    """Says what a crash, or a hand, has left unreadable in a log."""
    for one in damage:
        warn(f"{path.as_posix()}/{one} [log_mended]")


def _batch_to_go_on_with(batch: Batch, resume: Resume, folder: Path) -> Path | None:
    if resume.source:
        return find(resume.source, folder)
    if not resume.newest:
        return None
    newest: tuple[Path, Batch] | None = None
    for path, other in batches(folder):
        if other.identity == batch.identity:
            return path
        newest = newest or (path, other)
    raise usage_error("nothing_to_resume", _why_not(batch, newest))


def _why_not(batch: Batch, newest: tuple[Path, Batch] | None) -> str:
    if newest is None:
        return "--resume: there is no batch yet. Run without --resume first"
    path, other = newest
    differs = [
        name
        for name, ours, theirs in (
            ("the dataset", batch.datasets, other.datasets),
            ("the target", batch.target_digest, other.target_digest),
        )
        if ours != theirs
    ] or ["a profile"]
    return (
        f"--resume: no batch is of this dataset, target and profiles; in the newest, {path.name}, "
        f"{' and '.join(differs)} differs. To take over what still holds: --resume-from {path.name}"
    )


def case_of(run: Run, formats: Formats) -> Case:
    """The case of a run, made again from the record that the run carries."""
    if not run.dialect:
        return msgspec.convert(run.raw, Case)
    case = formats.by_name(run.dialect).to_case(run.raw, run.origin)
    return msgspec.structs.replace(case, id=run.case_id)
