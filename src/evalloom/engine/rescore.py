"""`evalloom score`: score the runs of a batch again, with other checks, thresholds or another judge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom.analysis.tally import Tally
from evalloom.batchlog import Rescoring, find, manifest, runs, warn_of_damage
from evalloom.batchlog.complete import losses
from evalloom.batchlog.read import RUNS
from evalloom.core.clock import utc_now
from evalloom.core.errors import EvalloomError, LlmUnavailable, usage_error
from evalloom.core.model import Case, Check
from evalloom.core.process_state import running_users_code
from evalloom.core.text import did_you_mean
from evalloom.engine.cases import with_checks
from evalloom.engine.executor import Executor
from evalloom.engine.loop import run_loop, watching_users_code
from evalloom.engine.plan import CHECK_LISTS, scoring_digest
from evalloom.engine.prepare import check_executor, refuse_without_sandbox
from evalloom.engine.results import Results, accepted_by, warn_if_stopped_when_sure
from evalloom.engine.resume import DamagedRun, case_of, damage_of
from evalloom.engine.scoring import Grader, LocalGrader, Scorer, services
from evalloom.engine.system import Catalog
from evalloom.files.read import RowReader
from evalloom.files.rows import Row
from evalloom.files.source import source_of
from evalloom.llms import LlmOptions, Llms
from evalloom.matchers import Matchers
from evalloom.settings import Settings, key_of, llm_of
from evalloom.settings import load as load_settings
from evalloom.settings import secrets as secrets_of

_PAUSE_EVERY = 500
CASE = "case"
"""The name that sets the threshold of whole cases."""


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
    judge = request.judge or settings.judge
    settings = _with_executor(settings, request)
    if judge and settings.run.executor != "dask":
        key_of(llm_of(settings, judge))
    if settings.run.allow_code:
        request = msgspec.structs.replace(request, allow_code=True)
    if request.allow_code:
        refuse_without_sandbox()
    with watching_users_code(warn):
        return run_loop(_rescore(request, catalog, settings, judge, warn))


async def _rescore(
    request: RescoreRequest, catalog: Catalog, settings: Settings, judge: str, warn: Callable[[str], None]
) -> Results:
    path = find(request.batch)
    earlier = manifest(path)
    config, lists = earlier.config, earlier.options.get(CHECK_LISTS, "plain")
    pass_if = earlier.options.get("pass_if") if request.pass_if is None else request.pass_if
    matchers = catalog.matchers
    own, further = tuple(map(matchers.parse, settings.checks)), read_checks(request.checks, matchers)
    extra = own + further + request.added
    functions = {
        **matchers.functions_of(own, settings.folder),
        **matchers.functions_of(further, Path(request.checks).parent),
        **matchers.functions_of(request.added),
    }
    llms = Llms(settings, LlmOptions(request.concurrency, request.use_cache, ends_on_outage=True), warn)
    grader: Grader
    cluster: Executor | None = None
    if settings.run.executor == "dask":
        from evalloom.engine.cluster.executor import scoring_executor  # deferred: importing Dask takes half a second

        folders = ((settings.folder, own), (Path(request.checks).parent, further), (Path(), request.added))
        options = msgspec.structs.replace(
            settings.run, concurrency=request.concurrency, cache=request.use_cache, allow_code=request.allow_code
        )
        cluster = scoring_executor(msgspec.structs.replace(settings, run=options), folders, judge, catalog, warn)
        grader = cluster
    else:
        grader = LocalGrader(services(settings, llms, judge, request.allow_code, functions, matchers))
    # The same digest as a run's, unless thresholds are set, which a run cannot have.
    more = [part for part in (config, request.thresholds) if part]
    scoring = scoring_digest(extra, judge, request.allow_code, *more)
    tally = _tally(settings, pass_if)
    with Rescoring(path, secrets_of(settings)) as log:
        scorer = Scorer(log, tally, grader, scoring)
        try:
            if cluster is not None:
                await cluster.open()
            # A cut line of the verdicts is of no account, because all are written again.
            damage = [line for line in log.damage if line.file == RUNS]
            named = {CASE}
            number = -1
            stored = runs(path.absolute(), damage)
            with running_users_code():
                for number, run in enumerate(stored):
                    if number % _PAUSE_EVERY == 0:
                        # Without it, checks that call no llm would keep Ctrl-C from getting through.
                        await asyncio.sleep(0)
                    try:
                        case = with_checks(case_of(run, catalog.formats, lists), extra, config, catalog)
                    except DamagedRun as error:
                        damage.append(damage_of(path.absolute(), run, error))
                        continue
                    named.update(name for check in case.checks for name in (check.name, check.kind))
                    await scorer.add(with_thresholds(case, request.thresholds), run)
                await scorer.finish()
            warn_of_damage([*damage, *losses(path, manifest(path), number + 1)], path, warn)
            for name in request.thresholds.keys() - named:
                warn(f"--threshold {name}: no check has this name or kind{did_you_mean(name, named)}")
        except LlmUnavailable as error:
            raise EvalloomError(error.code, f"{error}. The earlier verdicts stay") from None
        finally:
            await llms.close()
            if cluster is not None:
                await cluster.close()
        batch = manifest(path)
        # The answer of --until-sure was about the old verdicts; whether it would have stopped there is not known.
        warn_if_stopped_when_sure(batch, batch.id, warn)
        summary = tally.summary(batch.id, path.as_posix())
        facts = {
            "scored_at": utc_now(),
            "judge": judge,
            "models": {**batch.models, **({judge: llm_of(settings, judge).model} if judge else {})},
            "options": batch.options if pass_if is None else {**batch.options, "pass_if": pass_if},
            "summary": msgspec.to_builtins(summary),
        }
        log.finish(msgspec.structs.replace(batch, **facts))
    is_allowed = request.allow_unscored or settings.run.allow_unscored
    options = msgspec.structs.replace(settings.run, allow_unscored=is_allowed)
    accepted = accepted_by(options, batch.options)
    return Results(path, summary, tally, settings.gates, accepted=accepted, catalog=catalog)


def _with_executor(settings: Settings, request: RescoreRequest) -> Settings:
    """Return the settings with what the request says of where to score."""
    named = {"executor": request.executor, "scheduler": request.scheduler, "workers": request.workers}
    run = msgspec.structs.replace(settings.run, **{name: value for name, value in named.items() if value})
    check_executor(run, named)
    return msgspec.structs.replace(settings, run=run)


def _tally(settings: Settings, pass_if: float | None) -> Tally:
    if not settings.run.quarantine:
        return Tally(pass_if)
    from evalloom.engine.quarantine import QuarantineTally, read_quarantine  # deferred: few suites have one

    return QuarantineTally(read_quarantine(settings.folder / settings.run.quarantine), pass_if)


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
