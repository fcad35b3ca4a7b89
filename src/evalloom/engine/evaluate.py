"""The map of the program: a plan goes through validate, run, record, score and analyse, in this order and once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from functools import partial
from time import perf_counter

import msgspec

from evalloom import settings
from evalloom.analysis.tally import Tally
from evalloom.batchlog import Damage, Log
from evalloom.core.clock import utc_now
from evalloom.core.errors import BudgetSpent, CallError, EvalloomError, usage_error
from evalloom.core.model import Llm, Request, Response, Run
from evalloom.core.text import did_you_mean, pluralize
from evalloom.engine.lint import LintOptions, lint_sources
from evalloom.engine.loop import run_loop, stopping
from evalloom.engine.plan import Plan
from evalloom.engine.results import Results
from evalloom.engine.resume import Earlier, Resume, case_of, open_log, tell_damage
from evalloom.engine.run import DependencyQueue, Job, Needs, ProfileClients, Runner, Slots, execute
from evalloom.engine.scoring import Scorer, services
from evalloom.llms import LlmOptions, Llms
from evalloom.reports.lint import LintReport
from evalloom.settings import keys


class InvalidData(EvalloomError):
    """The dataset has errors, so nothing was run; the report says which."""

    def __init__(self, code: str, message: str, report: LintReport) -> None:
        super().__init__(code, message, exit_code=2)
        self.report = report


class Live:
    """How far a batch has come, for whoever shows it."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.slots = Slots(1)
        self.total: int | None = None
        self.already = 0
        self.started = perf_counter()
        self.running_since = self.started

    @property
    def done(self) -> int:
        return sum(self.tally.counts.values())


def evaluate(
    plan: Plan, live: Live | None = None, resume: Resume = Resume(), warn: Callable[[str], None] = print
) -> Results:
    """Runs a plan and says what came of it. The one sync door to everything async below."""
    live = live or Live()
    report = refuse_invalid(plan)
    for warning in doubts(plan, report):
        warn(warning)
    cases = count_cases(plan, report)
    if not cases:
        is_choice = plan.options.tags or plan.options.filter or plan.options.limit == 0
        why = "--tags, --filter and --limit leave none" if is_choice else "there is none in the dataset"
        raise usage_error("no_case_chosen", f"no case to run: {why}. 'evalloom inspect' shows what there is")
    live.total = cases * len(plan.profiles) * plan.options.repeat
    live.tally.order = [profile.name for profile in plan.profiles]
    return run_loop(_evaluate(plan, live, resume, warn))


def count_cases(plan: Plan, report: LintReport | None) -> int:
    """How many cases are chosen; the linter has counted them, unless a choice is made among them."""
    options = plan.options
    repeats = any(data.dialect.same_case for data in plan.datasets())
    if report is None or options.tags or options.filter or repeats:
        return sum(1 for _ in plan.cases())
    found = sum(one.cases for one in report.checked)
    return found if options.limit is None else min(found, options.limit)


def doubts(plan: Plan, report: LintReport | None) -> Iterator[str]:
    """What is worth a look before money is spent: the linter's warnings, one of each code, and holes in the prompt."""
    for checked in report.checked if report else ():
        first = {finding.code: finding for finding in reversed(checked.findings) if finding.severity == "warning"}
        for code, finding in sorted(first.items(), key=lambda item: item[1].origin.line):
            others = checked.counts[code, "warning"] - 1
            more = f" (and {others:,} more of these: 'evalloom validate' shows them)" if others else ""
            yield f"{finding.origin}: {finding.message}{more} [{code}]"
    yield from plan.target.doubts
    one = next(iter(plan.cases()), None)
    if one is None or plan.target.kind != "prompt" or one.fault:
        return
    has = ", ".join(one.case.inputs) or "no input at all"
    for name in sorted((plan.target.variables | plan.target.optional) - one.case.inputs.keys()):
        yield f"{plan.target.name} names {name!r}, and the first case has {has}{did_you_mean(name, one.case.inputs)}"


def refuse_invalid(plan: Plan) -> LintReport | None:
    """Raises InvalidData when a dataset has errors, unless those cases are to be left out."""
    for data in plan.datasets():
        if remark := data.dialect.lacks_inputs(data.sample):
            raise usage_error(remark.code, f"{data.source.name}: {remark.message}")
    if plan.options.skip_invalid or not plan.sources:
        return None
    reading = plan.reading
    options = LintOptions(reading.dialect, reading.mapping, reading.encoding, reading.rules, tool="evalloom run")
    report = lint_sources(plan.sources, plan.catalog, options)
    if not report.passed:
        errors = pluralize(sum(one.count("error") for one in report.checked), "error")
        others = (
            ", or run the others and count those as errors with --skip-invalid"
            if any(one.cases for one in report.checked)
            else ""
        )
        message = f"{errors} in the data, so nothing was run. Mend what is listed above{others}"
        raise InvalidData("invalid_data", message, report)
    return report


async def _evaluate(plan: Plan, live: Live, resume: Resume, warn: Callable[[str], None]) -> Results:
    secrets = [*settings.secrets(plan.known), *plan.target.secrets]
    llms = Llms(plan.known, _llm_options(plan), warn, partial(keys.hidden, secrets=secrets))
    try:
        # Whatever the llms lack is said before there is a batch.
        runner = Runner(plan.target.call, _profile_clients(plan, llms))
        needs = plan.needs()
        for warning in _alone(needs):
            warn(warning)
        whom = services(plan.known, llms, plan.judge, plan.allow_code, plan.functions, plan.catalog.matchers)
        with open_log(plan, resume, secrets, warn) as (log, earlier):
            live.slots = Slots(plan.options.concurrency)
            queue = DependencyQueue(plan.jobs(earlier.done), needs, live.slots.wake.set)
            scorer = Scorer(log, live.tally, whom, plan.scoring(), queue)
            try:
                await _recount(plan, log, earlier, scorer, queue, warn)
                stopped = await _run_all(plan, live, log, queue, scorer, earlier.or_else(runner))
            except BudgetSpent as fault:
                with suppress(BudgetSpent):
                    await scorer.finish()
                stopped = str(fault)
            summary = live.tally.summary(log.batch.id, log.path.as_posix(), perf_counter() - live.started)
            finished_at = "" if stopped else utc_now()
            log.write_manifest(
                msgspec.structs.replace(log.batch, finished_at=finished_at, summary=msgspec.to_builtins(summary))
            )
    finally:
        await llms.close()
        await plan.target.close()
    for remark in plan.target.remarks():
        warn(remark)
    return Results(log.path, summary, live.tally, plan.known.gates, stopped)


def _alone(needs: Needs) -> Iterator[str]:
    """Says so when cases run without others that they depend on."""
    if left_out := needs.not_chosen():
        are = f"and {len(left_out) - 1:,} more are" if len(left_out) > 1 else "is"
        message = f"depends_on: {left_out[0]!r} {are} not among the cases of this run, and nobody waits for that"
        yield f"{message} [dependency_not_chosen]"


async def _recount(
    plan: Plan, log: Log, earlier: Earlier, scorer: Scorer, queue: DependencyQueue, warn: Callable[[str], None]
) -> None:
    """Counts the runs that are there already, and scores those whose verdicts are missing or no longer hold."""
    damage: list[Damage] = []
    for run, scored in earlier.pairs(damage):
        queue.expect(run)
        await scorer.recount(plan.with_checks(case_of(run, plan.catalog.formats)), run, scored)
    tell_damage(damage, log.path, warn)


async def _run_all(
    plan: Plan, live: Live, log: Log, queue: DependencyQueue, scorer: Scorer, run_one: Callable[[Job], Awaitable[Run]]
) -> str:
    """Runs every job, writes each run before it counts, and scores it. Gives the reason when it ended too soon."""
    live.already, live.running_since = live.done, perf_counter()
    stop = asyncio.Event()
    with stopping(stop, plan.options.max_time) as why:
        async with aclosing(execute(queue, run_one, live.slots, stop)) as runs:
            async for job, run in runs:
                log.append_run(run)
                await scorer.take(job.case, run)
        await scorer.finish(stop)
        return why()


def _profile_clients(plan: Plan, llms: Llms) -> dict[str, ProfileClients]:
    return {
        profile.name: ProfileClients(_client_for(llms, profile.run), _client_for(llms, profile.verify or profile.run))
        for profile in plan.profiles
    }


def _client_for(llms: Llms, name: str) -> Llm:
    return llms.get(name) if name else _no_client


async def _no_client(request: Request) -> Response:
    raise CallError("no_llm", "the target asks an llm, and the profile names none. Name one in the settings")


def _llm_options(plan: Plan) -> LlmOptions:
    options = plan.options
    return LlmOptions(
        options.concurrency, options.cache, plan.record, plan.replay, options.max_cost, options.max_tokens, plan.home
    )
