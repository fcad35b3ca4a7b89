"""Resume a batch, or start a new one that reuses the runs of another which a change does not affect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom.batchlog import (
    FOLDER,
    Damage,
    Log,
    RunIndex,
    batches,
    find,
    finished,
    line_number,
    manifest,
    pairs,
    warn_of_damage,
)
from evalloom.batchlog.read import RUNS
from evalloom.core.errors import usage_error
from evalloom.core.model import Batch, Case, Run, Scored
from evalloom.core.text import pluralize
from evalloom.data.checks import CheckLists
from evalloom.data.formats import Formats
from evalloom.engine.cases import all_cases
from evalloom.engine.plan import Plan
from evalloom.engine.run import Job, Jobs
from evalloom.llms import outage

_NOT_ALLOWED = "code_not_allowed"
"""The error of a run that needs --allow-code."""


class Resume(Struct, frozen=True):
    """Whether to start a new batch, resume the newest one of this plan, or resume from a batch by name."""

    newest: bool = False
    source: str = ""
    retry_errors: bool = False


class PreviousRuns(Struct, frozen=True):
    """The runs that need not run again: those of this batch, and reusable ones of another."""

    path: Path
    done: set[str] = set()
    reusable: RunIndex | None = None
    has_runs: bool = False
    scoring: str = ""
    """The digest of how runs are scored now: verdicts with another one are out of date."""
    selected: Collection[str] | None = None
    """The keys of the runs to do, when only some cases are selected; the other runs of the batch stay."""
    by_number: bool = False
    """Whether this batch is of format 1, which knows a case without an id by its number."""
    old_keys: dict[tuple[int, str, int], str] = {}
    """The keys of reusable runs in a batch of format 1, by the number of the case, profile and repeat."""
    had_outage: bool = False
    """Whether an llm did not answer in this batch, so that what a judge left unscored is scored again."""

    def pairs(self, damage: list[Damage]) -> Iterator[tuple[Run, Scored | None]]:
        """Yield the runs of this batch that are not run again, with verdicts that are up to date."""
        for run, scored in pairs(self.path, damage) if self.has_runs else ():
            if run.key in self.done or (self.selected is not None and run.key not in self.selected):
                is_final = scored is not None and not (self.had_outage and scored.status == "unscored")
                yield run, scored if scored is not None and is_final and scored.scoring == self.scoring else None

    def reuse_or(self, run: Callable[[Job], Awaitable[Run]]) -> Callable[[Job], Awaitable[Run]]:
        """Return a runner that takes a run from the other batch where it has one."""
        reusable = self.reusable
        if reusable is None:
            return run

        async def reuse_or_run(job: Job) -> Run:
            key = self.old_keys.get((job.number, job.profile.name, job.repeat), job.key)
            earlier = None if job.skipped or job.blocked else reusable.get(key)
            if earlier is None:
                return await run(job)
            case = job.case
            return msgspec.structs.replace(
                earlier,
                key=job.key,
                case_id=case.id,
                number=job.number,
                tags=case.tags,
                origin=case.origin,
                raw=case.raw,
                dialect=job.dialect,
                position=job.position,
                is_unnamed=job.is_unnamed,
            )

        return reuse_or_run


def resumed_batch(plan: Plan, resume: Resume) -> Batch | None:
    """Return the batch that a run continues; None if it makes a new one."""
    batch = plan.batch()
    path = _find_batch(batch, resume, plan.home / FOLDER, lambda message: None)
    stored = manifest(path) if path is not None else None
    return stored if stored is not None and stored.identity == batch.identity else None


def batch_to_resume(plan: Plan, resume: Resume) -> tuple[Path | None, Collection[str]]:
    """Return the batch to resume, and the keys of the runs that are done."""
    path = _find_batch(plan.batch(), resume, plan.home / FOLDER, lambda message: None)
    return path, finished(path, not resume.retry_errors, _retried_errors(plan, path)) if path is not None else ()


@contextmanager
def open_log(
    plan: Plan, resume: Resume, secrets: Iterable[str], warn: Callable[[str], None]
) -> Iterator[tuple[Log, PreviousRuns]]:
    """Open the log of a new or resumed batch, with the runs that are there already."""
    batch = plan.batch()
    path = _find_batch(batch, resume, plan.home / FOLDER, warn)
    if path is not None and (stored := manifest(path)).identity == batch.identity:
        # Runs beyond the repeats of now stay in the batch, and its figures count them, by its pass rule.
        kept = {
            "repeat": max(batch.options.get("repeat") or 1, stored.options.get("repeat") or 1),
            "pass_if": stored.options.get("pass_if") if plan.options.pass_if is None else plan.options.pass_if,
        }
        facts = {
            "options": batch.options | kept,
            "judge": batch.judge,
            "models": batch.models,
            "planned": batch.planned,
            "command": batch.command,
        }
        log = Log(path, msgspec.structs.replace(stored, **facts, finished_at=""), secrets)
        done = finished(path, not resume.retry_errors, _retried_errors(plan, path))
        if not stored.finished_at and not stored.summary:
            runs = f"{pluralize(len(done), 'finished run')} {'is' if len(done) == 1 else 'are'} kept"
            message = f"{path.name}: its process ended in the middle of the batch; {runs}, the others run now"
            warn(f"{message} [process_ended]")
        options = plan.options
        is_selection = options.tags or options.filter or options.limit is not None
        by_number = stored.has_numbered_cases
        selected = {job.key for job in plan.jobs(done, by_number)} if is_selection else None
        previous = PreviousRuns(
            path.absolute(),
            done,
            has_runs=True,
            scoring=plan.scoring(),
            selected=selected,
            by_number=by_number,
            had_outage=bool(stored.outages),
        )
    else:
        log = Log(plan.home / FOLDER / batch.id, batch, secrets)
        retried = _retried_errors(plan, path) if path is not None else set()
        reusable = RunIndex(path.absolute(), not resume.retry_errors, retried) if path is not None else None
        is_old = path is not None and manifest(path).has_numbered_cases
        previous = PreviousRuns(log.path.absolute(), reusable=reusable, old_keys=_old_keys(plan) if is_old else {})
    warn_of_damage(log.damage, log.path, warn)
    try:
        yield log, previous
    finally:
        log.close()


def _old_keys(plan: Plan) -> dict[tuple[int, str, int], str]:
    """Return the keys that the runs of a plan have in a batch of format 1."""
    # Over all cases: a filter on ids means those of now.
    jobs = Jobs(all_cases(plan, by_number=True), plan.profiles, plan.options.repeats, plan.keys())
    return {(job.number, job.profile.name, job.repeat): job.key for job in jobs}


def _retried_errors(plan: Plan, path: Path) -> set[str]:
    """Return the codes of errors whose runs are tried again: --allow-code resolves them, or an outage caused them."""
    codes = {_NOT_ALLOWED} if plan.options.allow_code else set()
    return codes | outage.CODES if manifest(path).outages else codes


def _find_batch(batch: Batch, resume: Resume, folder: Path, warn: Callable[[str], None]) -> Path | None:
    if resume.source:
        return find(resume.source, folder)
    if not resume.newest:
        return None
    newest: tuple[Path, Batch] | None = None
    for path, candidate in batches(folder, warn):
        if candidate.identity == batch.identity:
            return path
        newest = newest or (path, candidate)
    raise usage_error("nothing_to_resume", _why_no_batch(batch, newest))


def _why_no_batch(batch: Batch, newest: tuple[Path, Batch] | None) -> str:
    if newest is None:
        return "--resume: there is no batch yet. Run without --resume first"
    path, stored = newest
    differs = [
        name
        for name, ours, theirs in (
            ("the dataset", batch.datasets, stored.datasets),
            ("the target", batch.target_digest, stored.target_digest),
        )
        if ours != theirs
    ] or ["a profile"]
    return (
        f"--resume: no batch has this dataset, target and profiles; in the newest, {path.name}, "
        f"{' and '.join(differs)} differs. To reuse unaffected runs: --resume-from {path.name}"
    )


class DamagedRun(Exception):
    """A stored run whose record gives no case."""


def case_of(run: Run, formats: Formats, lists: CheckLists = "plain") -> Case:
    """Rebuild the case of a run from the record that the run carries; `lists` is an option of its batch."""
    try:
        if run.dialect:
            case = formats.case(formats.by_name(run.dialect), run.raw, run.origin, lists)
        else:
            case = msgspec.convert(run.raw, Case)
    except Exception as error:  # a dialect reads checked records only, and this one may have any damage
        raise DamagedRun(f"the run has no readable case: {error}") from error
    return case if case.id == run.case_id else msgspec.structs.replace(case, id=run.case_id)


def damage_of(path: Path, run: Run, error: DamagedRun) -> Damage:
    """Return where a damaged run is in its log."""
    return Damage(RUNS, line_number(path / RUNS, run.key), str(error))
