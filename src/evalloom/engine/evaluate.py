"""The map of the program: a plan is validated, run, logged, scored and summarized, in this order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from evalloom.analysis.tally import Tally
from evalloom.batchlog import Damage, Log, warn_of_damage
from evalloom.core.clock import utc_now
from evalloom.core.errors import BatchStop, EvalloomError, TargetUnavailable, usage_error
from evalloom.core.model import Batch, Run
from evalloom.core.process_state import running_users_code
from evalloom.core.text import did_you_mean, pluralize
from evalloom.data.checks import NEEDS
from evalloom.engine.executor import executor_of
from evalloom.engine.loop import run_loop, stopping, watching_users_code
from evalloom.engine.plan import Plan
from evalloom.engine.results import LEFT_OUT, Results, accepted_by, described
from evalloom.engine.resume import DamagedRun, PreviousRuns, Resume, case_of, damage_of, open_log
from evalloom.engine.run import DependencyQueue, Job, Slots, execute
from evalloom.engine.scoring import Scorer
from evalloom.reports.lint import LintReport
from evalloom.settings import secrets as secrets_of

if TYPE_CHECKING:
    from evalloom.engine.until_sure import Shares, UntilSure


class InvalidData(EvalloomError):
    """The dataset has errors, which the report lists; nothing was run."""

    def __init__(self, code: str, message: str, report: LintReport) -> None:
        super().__init__(code, message, exit_code=2)
        self.report = report


class Live:
    """The progress of a batch, for display."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.slots = Slots(1)
        self.total: int | None = None
        self.most_at_once: int | None = None
        """How many runs may be in flight; on a cluster, further ones wait at the workers."""
        self.already = 0
        self.started = perf_counter()
        self.running_since = self.started

    @property
    def in_flight(self) -> int:
        return self.slots.active if self.most_at_once is None else min(self.slots.active, self.most_at_once)

    @property
    def done(self) -> int:
        return sum(self.tally.counts.values())


def evaluate(
    plan: Plan, live: Live | None = None, resume: Resume = Resume(), warn: Callable[[str], None] = print
) -> Results:
    """Run a plan and return its results. The one sync entry to everything async below."""
    live = live or Live()
    if plan.target.in_order and (resume.newest or resume.source or plan.question is not None):
        flag = "--until-sure" if plan.question is not None else "--resume"
        why = "a test uses the outputs of earlier ones, so all of them run, one after the other"
        raise usage_error("runs_in_order", f"{flag}: {plan.target.name}: {why}. Run it without the flag")
    refuse_invalid(plan)
    for message in warnings(plan):
        warn(message)
    cases = plan.survey.cases
    if not cases:
        is_selection = plan.options.tags or plan.options.filter or plan.options.limit == 0
        why = "--tags, --filter and --limit leave none" if is_selection else "there is none in the dataset"
        raise usage_error("no_case_chosen", f"no case to run: {why}. 'evalloom inspect' shows what there is")
    live.total = cases * len(plan.profiles) * plan.options.repeats
    if plan.quarantine is not None:
        from evalloom.engine.quarantine import QuarantineTally  # deferred: few suites have one

        live.tally = QuarantineTally(plan.quarantine)
    live.tally.order = [profile.name for profile in plan.profiles]
    with watching_users_code(warn):
        results = run_loop(_evaluate(plan, live, resume, warn))
    for message in _quarantine_warnings(plan, live.tally, results):
        warn(message)
    return results


def _quarantine_warnings(plan: Plan, tally: Tally, results: Results) -> Iterator[str]:
    """Yield which entries of a quarantine match no case, and which of its cases are stable."""
    if plan.quarantine is None or results.stopped:
        return
    from evalloom.engine.quarantine import QuarantineTally, stable_warning

    assert isinstance(tally, QuarantineTally)
    options = plan.options
    is_selection = bool(options.tags or options.filter or options.limit is not None or plan.only is not None)
    if not is_selection:
        yield from plan.quarantine.unmatched_warnings(tally.matched)
    if stable := stable_warning(tally, results.path.name, results.path.parent, plan.catalog):
        yield stable


def warnings(plan: Plan) -> Iterator[str]:
    """Yield what a user should know before money is spent: one finding of each code, and unfilled variables."""
    report, first = plan.survey.report, plan.survey.first
    yield from _unscored_warnings(plan)
    for checked in report.checked if report else ():
        by_code = {finding.code: finding for finding in reversed(checked.findings) if finding.severity == "warning"}
        for code, finding in sorted(by_code.items(), key=lambda item: item[1].origin.line):
            others = checked.counts[code, "warning"] - 1
            more = f" (and {others:,} more of these: 'evalloom validate' shows them)" if others else ""
            yield f"{finding.origin}: {finding.message}{more} [{code}]"
    for source, names in plan.names.items():
        if equal := names.equal_cases:
            cases = "1 case equals" if equal == 1 else f"{equal:,} cases equal"
            message = f"{cases} an earlier one in inputs, description and checks, so only their order tells them apart"
            yield f"{source.name}: {message}. Give each an id [equal_cases]"
    yield from plan.target.warnings
    if plan.quarantine is not None:
        yield from plan.quarantine.expired_warnings()
    elif plan.options.quarantine:
        kind = plan.metadata.config["kind"]
        yield f"run.quarantine: a {kind} batch has its own rules, and every case decides [quarantine_unused]"
    if first is None or plan.target.kind != "prompt" or first.error:
        return
    inputs = first.case.inputs
    for name in sorted((plan.target.variables | plan.target.optional) - inputs.keys()):
        has = ", ".join(inputs) or "no input at all"
        yield f"{plan.target.name} names {name!r}, and the first case has {has}{did_you_mean(name, inputs)}"


def _unscored_warnings(plan: Plan) -> Iterator[str]:
    """Yield which checks will not be scored: what they need is not configured, or the settings write them wrongly."""
    embeddings = bool(plan.settings.embeddings)
    has: dict[str, bool] = {
        "judge": bool(plan.judge),
        "embeddings": embeddings,
        "judge_or_embeddings": bool(plan.judge) or embeddings,
        "code": plan.options.allow_code,
    }
    for checked in plan.survey.report.checked if plan.survey.report else ():
        for finding in checked.findings:
            if has.get(finding.code.removeprefix("needs_"), True) is False:
                yield f"{finding.origin}: {finding.message}. Without it, they will not be scored [{finding.code}]"
    rules = plan.catalog.formats.check_rules
    for check in plan.checks if rules else ():
        assert rules is not None
        need = rules.needs(check)
        if why := rules.why_unscored(check):
            yield f"checks: {check.kind!r} will not be scored: {why} [check_not_scored]"
        elif need not in ("", "code") and not has[need]:
            yield f"checks: {check.kind!r} will not be scored without {NEEDS[need]} [needs_{need}]"


def refuse_invalid(plan: Plan) -> None:
    """Raise InvalidData when a dataset has errors and --skip-invalid is not set."""
    report = plan.survey.report
    if report is not None and not report.passed:
        hint = "Fix them"
        if any(checked.cases for checked in report.checked):
            hint += ", or pass --skip-invalid to run the valid cases and count the rest as errors"
        message = f"found {pluralize(report.count('error'), 'error')}; nothing was run. {hint}"
        raise InvalidData("invalid_data", message, report)


async def _evaluate(plan: Plan, live: Live, resume: Resume, warn: Callable[[str], None]) -> Results:
    secrets = [*secrets_of(plan.settings), *plan.target.secrets]
    executor, notes = executor_of(plan, warn), list[str]()
    try:
        await executor.open()
        needs = plan.survey.needs
        if missing := needs.not_selected():
            are = f"and {len(missing) - 1:,} more are" if len(missing) > 1 else "is"
            message = f"depends_on: {missing[0]!r} {are} not selected in this run, so no case waits for it"
            warn(f"{message} [dependency_not_chosen]")
        with open_log(plan, resume, secrets, warn) as (log, previous):
            live.slots = Slots(executor.concurrency)
            if executor.concurrency != plan.options.concurrency:
                live.most_at_once = plan.options.concurrency
            live.tally.pass_if = log.batch.options.get("pass_if")
            until_sure = _until_sure(plan, log.batch, warn) if plan.question else None
            in_order = partial(until_sure.draw, seed=log.batch.id) if until_sure else iter
            jobs = plan.jobs(previous.done, previous.by_number, in_order)
            queue = DependencyQueue(jobs, needs, live.slots.wake.set)
            scorer = Scorer(log, live.tally, executor, plan.scoring(), queue, until_sure)
            code = ""
            with running_users_code():
                try:
                    await _recount(plan, log, previous, scorer, queue, warn)
                    stopped = await _run_all(plan, live, log, queue, scorer, previous.reuse_or(executor.run))
                except BatchStop as error:
                    with suppress(BatchStop):
                        await scorer.finish()
                    stopped, code = str(error), error.code
            is_partial = stopped or until_sure or jobs.dropped or plan.only is not None
            lost = 0 if is_partial else (live.total or 0) - jobs.total
            summary = live.tally.summary(log.batch.id, log.path.as_posix(), perf_counter() - live.started)
            answer = until_sure.answer() if until_sure else None
            if answer is not None:
                summary = answer.with_intervals(summary)
            facts = {
                "finished_at": "" if stopped or lost > 0 else utc_now(),
                "summary": described(summary, answer),
                # A resumed batch repeats the runs that ended with an error of the outage.
                "outages": [*executor.in_outage(), *_target_outage(plan, code)] if stopped else [],
            }
            if answer is not None:
                facts["options"] = log.batch.options | {LEFT_OUT: answer.cases - answer.started}
            log.write_manifest(msgspec.structs.replace(log.batch, **facts))
            if lost > 0:
                raise _dataset_changed(lost, live.total or 0, log.batch.id)
    finally:
        notes += await executor.close()
        await plan.target.close()
    for note in (*notes, *plan.target.notes()):
        warn(note)
    accepted = accepted_by(plan.options, log.batch.options)
    gates = plan.settings.gates
    return Results(log.path, summary, live.tally, gates, stopped, accepted, code, answer, plan.catalog)


def _dataset_changed(lost: int, total: int, batch: str) -> EvalloomError:
    gone = f"{lost:,} of {pluralize(total, 'run')} {'is' if lost == 1 else 'are'} missing"
    hint = f"Run it again; --resume-from {batch} reuses the finished runs"
    return EvalloomError("dataset_changed", f"{gone}: the dataset changed while the batch ran. {hint}")


def _until_sure(plan: Plan, batch: Batch, warn: Callable[[str], None]) -> UntilSure:
    """Return what follows the results and decides when to stop."""
    # Deferred: few runs stop by their results.
    from evalloom.engine.compare import shares_before
    from evalloom.engine.until_sure import UntilSure

    assert plan.question is not None
    pass_if: float | None = batch.options.get("pass_if")
    shares: Shares = {}
    if plan.question.baseline:
        pass_if, shares = shares_before(batch, plan.question.baseline, plan.home, plan.catalog, warn)
    names = [profile.name for profile in plan.profiles]
    return UntilSure(plan.question, names, plan.options.repeats, pass_if, shares)


def _target_outage(plan: Plan, code: str) -> list[str]:
    return [plan.target.name] if code == TargetUnavailable.code else []


async def _recount(
    plan: Plan, log: Log, previous: PreviousRuns, scorer: Scorer, queue: DependencyQueue, warn: Callable[[str], None]
) -> None:
    """Count the runs that are there already, and score those without up-to-date verdicts."""
    damage: list[Damage] = []
    for run, scored in previous.pairs(damage):
        try:
            case = case_of(run, plan.catalog.formats, plan.check_lists)
        except DamagedRun as error:
            damage.append(damage_of(log.path, run, error))
            previous.done.discard(run.key)
            continue
        queue.expect(run)
        await scorer.recount(plan.with_checks(case), run, scored)
    warn_of_damage(damage, log.path, warn)


async def _run_all(
    plan: Plan, live: Live, log: Log, queue: DependencyQueue, scorer: Scorer, run_job: Callable[[Job], Awaitable[Run]]
) -> str:
    """Run every job; write each run before it counts, then score it. Return why the batch ended early, or nothing."""
    live.already, live.running_since = live.done, perf_counter()
    stop = asyncio.Event()
    with stopping(stop, plan.options.max_time) as why:
        async with aclosing(execute(queue, run_job, live.slots, stop)) as runs:
            async for job, run in runs:
                log.append_run(run)
                await scorer.add(job.case, run)
        await scorer.finish(stop)
        return why()
