"""`evalloom score`: score the runs of a batch again, with other checks, thresholds or another judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom.analysis.tally import Summary, Tally
from evalloom.batchlog import Rescoring, find, manifest, warn_of_damage
from evalloom.batchlog.complete import losses
from evalloom.batchlog.read import RUNS, Part
from evalloom.core.clock import utc_now
from evalloom.core.errors import EvalloomError, LlmUnavailable, usage_error
from evalloom.core.model import Batch, Check
from evalloom.core.process_state import running_users_code
from evalloom.core.text import did_you_mean
from evalloom.engine.executor import Checks, Executor, scoring_executor
from evalloom.engine.loop import run_loop, watching_users_code
from evalloom.engine.plan import Functions, Plan, scoring_digest
from evalloom.engine.prepare import check_executor, refuse_without_sandbox
from evalloom.engine.processes import Processes
from evalloom.engine.results import Results, accepted_by, warn_if_stopped_when_sure
from evalloom.engine.scoring import Scorer
from evalloom.engine.stored_runs import CASE, Notes, ScoredPart, StoredRuns
from evalloom.engine.system import Catalog
from evalloom.files.read import RowReader
from evalloom.files.rows import Row
from evalloom.files.source import source_of
from evalloom.matchers import Matchers
from evalloom.settings import RunSettings, Settings, key_of, llm_of
from evalloom.settings import load as load_settings
from evalloom.settings import secrets as secrets_of
from evalloom.targets.base import NO_TARGET


class RescoreRequest(Struct, frozen=True):
    """Which batch to score again, and how. `thresholds` go by the name or kind of a check."""

    batch: str
    config: str = ""
    checks: str = ""
    judge: str = ""
    thresholds: dict[str, float] = {}
    concurrency: int = 16
    allow_code: bool = False
    use_cache: bool = True
    pass_if: float | None = None
    """The share of its repeats that must pass for a case to pass; None for the rule of the batch."""
    allow_unscored: bool = False
    added: tuple[Check, ...] = ()
    """Checks of Python code, in addition to those of the file `checks`."""
    executor: str = ""
    """Where to score: `local` or `dask`; empty for what evalloom.yaml says."""
    scheduler: str = ""
    workers: int | None = None


def rescore(request: RescoreRequest, catalog: Catalog, warn: Callable[[str], None]) -> Results:
    """Score a batch again; its old verdicts stay beside the new ones."""
    settings = load_settings(Path(request.config) if request.config else None, catalog.sections)
    settings = msgspec.structs.replace(settings, run=_options(settings, request), judge=request.judge or settings.judge)
    if settings.judge and settings.run.executor != "dask":
        key_of(llm_of(settings, settings.judge))
    if settings.run.allow_code:
        refuse_without_sandbox()
    with watching_users_code(warn):
        return _rescore(request, catalog, settings, warn)


def _rescore(request: RescoreRequest, catalog: Catalog, settings: Settings, warn: Callable[[str], None]) -> Results:
    path = find(request.batch)
    batch = manifest(path)
    checks = _named_checks(request, settings, catalog.matchers)
    plan = _plan(checks, catalog, settings)
    # The same digest as a run's, unless thresholds are set, which a run cannot have.
    more = [part for part in (batch.config, request.thresholds) if part]
    scoring = scoring_digest(plan.checks, plan.judge, plan.options.allow_code, *more)
    tally = _tally(settings, batch.options.get("pass_if") if request.pass_if is None else request.pass_if)
    stored = StoredRuns(path, batch, catalog, plan.checks, request.thresholds)
    # Only this process has the user's functions, and counts a quarantine.
    is_alone = plan.options.executor == "dask" or plan.functions or plan.options.quarantine
    processes = None if is_alone else stored.processes(scoring, secrets_of(settings))
    try:
        with Rescoring(path, secrets_of(settings)) as log:
            executor = scoring_executor(plan, checks, warn)
            run_loop(_score(stored, Scorer(log, tally, executor, scoring), executor, processes))
            _warn_of(stored.notes, log, path, request.thresholds, warn)
            batch = manifest(path)
            # The answer of --until-sure was about the old verdicts; whether it would have stopped there is not known.
            warn_if_stopped_when_sure(batch, batch.id, warn)
            summary = tally.summary(batch.id, path.as_posix())
            log.finish(_rescored(batch, summary, tally.pass_if, settings))
    finally:
        if processes is not None:
            processes.close()
    accepted = accepted_by(settings.run, batch.options)
    return Results(path, summary, tally, settings.gates, accepted=accepted, catalog=catalog)


async def _score(
    stored: StoredRuns, scorer: Scorer, executor: Executor, processes: Processes[Part, ScoredPart] | None
) -> None:
    try:
        await executor.open()
        with running_users_code():
            await stored.score(scorer, processes)
            await scorer.finish()
    except LlmUnavailable as error:
        raise EvalloomError(error.code, f"{error}. The earlier verdicts stay") from None
    finally:
        await executor.close()


def _options(settings: Settings, request: RescoreRequest) -> RunSettings:
    """Return the options of a run as scoring has them."""
    named = {"executor": request.executor, "scheduler": request.scheduler, "workers": request.workers}
    run = msgspec.structs.replace(
        settings.run,
        **{name: value for name, value in named.items() if value},
        concurrency=request.concurrency,
        cache=request.use_cache,
        allow_code=request.allow_code or settings.run.allow_code,
        allow_unscored=request.allow_unscored or settings.run.allow_unscored,
    )
    check_executor(run, named)
    return run


def _named_checks(request: RescoreRequest, settings: Settings, matchers: Matchers) -> Checks:
    """Return the checks that every case gets, with the folder of the file that names them."""
    return (
        (settings.folder, tuple(map(matchers.parse, settings.checks))),
        (Path(request.checks).parent, read_checks(request.checks, matchers)),
        (Path(), request.added),
    )


def _plan(named_checks: Checks, catalog: Catalog, settings: Settings) -> Plan:
    functions: Functions = {}
    for folder, checks in named_checks:
        functions |= catalog.matchers.functions_of(checks, folder)
    every = tuple(check for _, checks in named_checks for check in checks)
    return Plan(NO_TARGET, (), catalog, settings, settings.run, checks=every, functions=functions, judge=settings.judge)


def _warn_of(notes: Notes, log: Rescoring, path: Path, thresholds: Iterable[str], warn: Callable[[str], None]) -> None:
    # A cut line of the verdicts is of no account, because all are written again.
    damage = [line for line in log.damage if line.file == RUNS]
    warn_of_damage([*damage, *notes.damage, *losses(path, manifest(path), notes.runs)], path, warn)
    named = {CASE, *notes.names}
    for name in thresholds:
        if name not in named:
            warn(f"--threshold {name}: no check has this name or kind{did_you_mean(name, named)}")


def _rescored(batch: Batch, summary: Summary, pass_if: float | None, settings: Settings) -> Batch:
    """Return the manifest of a batch with its new figures."""
    judge = settings.judge
    return msgspec.structs.replace(
        batch,
        scored_at=utc_now(),
        judge=judge,
        models={**batch.models, **({judge: llm_of(settings, judge).model} if judge else {})},
        options=batch.options if pass_if is None else {**batch.options, "pass_if": pass_if},
        summary=msgspec.to_builtins(summary),
    )


def _tally(settings: Settings, pass_if: float | None) -> Tally:
    if not settings.run.quarantine:
        return Tally(pass_if)
    from evalloom.engine.quarantine import QuarantineTally, read_quarantine  # deferred: few suites have one

    return QuarantineTally(read_quarantine(settings.folder / settings.run.quarantine), pass_if)


def read_checks(file: str, matchers: Matchers) -> tuple[Check, ...]:
    """Read checks from a YAML or JSON file: a list, or an object with `checks`."""
    if not file:
        return ()
    rows = list(RowReader(source_of(file)))
    for item in rows:
        if not isinstance(item, Row):
            where = f"{file}:{item.place.line}" if item.place.line else file
            raise usage_error("bad_checks", f"--checks {where}: {item.message}")
    values = [item.value for item in rows if isinstance(item, Row)]
    if len(values) == 1 and isinstance(values[0], dict) and isinstance(values[0].get("checks"), list):
        values = values[0]["checks"]
    return tuple(map(matchers.parse, values))
