"""`evalloom prompt-eval`: from a prompt to the one CSV, step by step, and to a better prompt."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from evalloom.console.catalog import current_catalog
from evalloom.console.outcome import warn
from evalloom.console.progress import showing
from evalloom.console.run_options import rate
from evalloom.console.run_text import Line, print_lines
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Record
from evalloom.prompt_eval import cli_text as text
from evalloom.prompt_eval import workflow as steps
from evalloom.prompt_eval.folder import DEFAULT, Folder, InvalidArtifact
from evalloom.prompt_eval.steps.check import check
from evalloom.prompt_eval.steps.context import StepOptions, open_context
from evalloom.prompt_eval.steps.improve import improve
from evalloom.prompt_eval.steps.review import import_review
from evalloom.prompt_eval.steps.run import run
from evalloom.prompt_eval.steps.score import score
from evalloom.prompt_eval.steps.table import TableOptions, write_table

Command = TypeVar("Command", bound=Callable[..., Any])

_STEP_OPTIONS = (
    click.option("--llm", default="", metavar="LLM", help="Who drafts: plans, test cases, better prompts."),
    click.option("--profile", default="", metavar="P", help="The profile or llm that prompt_a runs under."),
    click.option("--judge", default="", metavar="LLM", help="Who scores, as prompt_b says."),
    click.option("--config", default="", metavar="FILE", help="Settings; by default evalloom.yaml beside the prompt."),
    click.option("-j", "--concurrency", type=click.IntRange(1), metavar="N", help="Calls at once; 16 by default."),
    click.option("--no-cache", is_flag=True, help="Ask again what was answered before at temperature 0."),
    click.option("--max-cost", type=float, metavar="X", help="Stop when so much is spent."),
    click.option("--max-tokens", type=int, metavar="N", help="Stop when so many tokens are used."),
    click.option("--json", "as_json", is_flag=True, help="Print what came of it as one JSON object."),
)
_REDO = click.option("--redo", is_flag=True, help="Do the step anew, also what is there already.")
_FAIL_UNDER = click.option("--fail-under", metavar="RATE", help="Exit code 1 below this pass rate, e.g. 80%.")
_FOLDER = click.argument("folder", metavar="[DIR]", default=DEFAULT)


def _step(command: Command) -> Command:
    """A step: its flags, and what is wrong with an artifact told line by line before the error."""

    @wraps(command)
    def told(**flags: Any) -> int:
        try:
            return int(command(**flags))
        except InvalidArtifact as fault:
            for finding in fault.findings:
                click.echo(text.shown(finding), err=True)
            raise

    for option in reversed(_STEP_OPTIONS):
        told = option(told)
    return told  # type: ignore[return-value]


def _step_options(flags: Record) -> StepOptions:
    run_options = {name: flags[name] for name in ("concurrency", "max_cost", "max_tokens") if flags[name] is not None}
    if flags["no_cache"]:
        run_options["cache"] = False
    return StepOptions(
        current_catalog(),
        llm=flags["llm"],
        judge=flags["judge"],
        profile=flags["profile"],
        config=flags["config"],
        run_options=run_options,
        warn=warn,
        show_progress=partial(showing, is_quiet=flags["as_json"]),
    )


def _least(fail_under: str | None) -> float | None:
    """The least pass rate, where one is asked for."""
    found = None if fail_under is None else rate(fail_under)
    if found is not None and not 0 <= found <= 1:
        raise usage_error("bad_option", f"--fail-under: expected a rate from 0 to 1, got {fail_under}")
    return found


def _tell(lines: Iterable[Line], facts: Record, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False))
    else:
        print_lines(lines)


@click.group("prompt-eval")
def command() -> None:
    """Score a prompt on test points, open one CSV, and improve the prompt.

    \b
    evalloom prompt-eval all prompt_a.md         everything, into prompt-eval-results/
    evalloom prompt-eval plan prompt_a.md        step by step: plan, then
    evalloom prompt-eval generate                test cases, then
    evalloom prompt-eval run                     the outputs, then
    evalloom prompt-eval score                   scores and the CSV, then
    evalloom prompt-eval report                  the report; then maybe
    evalloom prompt-eval improve                 a better prompt

    Each step reads the file of the step before, which may be edited by hand in between, and goes on where it was cut
    off. --llm, --profile and --judge may be given to every step; each uses those that it needs.
    """


@command.command("plan")
@click.argument("prompt", metavar="PROMPT_A")
@click.option("-o", "--output", default=DEFAULT, metavar="DIR", help=f"The results folder; {DEFAULT} by default.")
@click.option("--cases", type=click.IntRange(1, 10_000), metavar="N", help="How many test cases a draft plans in all.")
@_REDO
@_step
def plan_command(prompt: str, output: str, cases: int | None, redo: bool, **flags: Any) -> int:
    """Step 1: take over the test_plan.yaml beside the prompt, or let a model draft one."""
    folder = Folder(Path(output))
    found = steps.plan(Path(prompt), folder, _step_options(flags), cases, redo)
    _tell([*text.planned(folder, found), text.next_step("generate", folder)], text.plan_facts(found), flags["as_json"])
    return 0


@command.command("generate")
@_FOLDER
@_REDO
@_step
def generate_command(folder: str, redo: bool, **flags: Any) -> int:
    """Step 2: take over the test_cases.json beside the prompt, and let a model write what the plan still lacks.

    Exit codes: 0 as planned, 1 fewer cases than planned.
    """
    context = open_context(Folder(Path(folder)), _step_options(flags))
    found = steps.make_cases(context, redo)
    is_short = bool(found.shortfalls or found.below_floor)
    lines = [
        *text.generated(context.folder, found),
        text.next_step("generate again" if is_short else "run", context.folder),
    ]
    _tell(lines, text.case_facts(context.folder, found), flags["as_json"])
    return int(is_short)


@command.command("run")
@_FOLDER
@click.option("--rerun-failed", is_flag=True, help="Also run again the cases whose result is null.")
@_REDO
@_step
def run_command(folder: str, rerun_failed: bool, redo: bool, **flags: Any) -> int:
    """Step 3: run prompt_a on every case that has no result yet.

    Exit codes: 0 every case has a result, 1 some runs failed.
    """
    context = open_context(Folder(Path(folder)), _step_options(flags))
    found = run(context, rerun_failed, redo)
    _tell(
        [*text.ran(context.folder, found), text.next_step("score", context.folder)],
        text.run_facts(context.folder, found),
        flags["as_json"],
    )
    return int(bool(found.failures))


@command.command("score")
@_FOLDER
@click.option("--repeat", type=click.IntRange(1, 100), default=1, metavar="N", help="Score N times, to see the noise.")
@click.option("--excel", is_flag=True, help="Begin the CSV with the mark that Excel needs.")
@click.option("--xlsx", is_flag=True, help="Also write the table as a workbook.")
@_FAIL_UNDER
@_REDO
@_step
def score_command(
    folder: str, repeat: int, excel: bool, xlsx: bool, fail_under: str | None, redo: bool, **flags: Any
) -> int:
    """Steps 4 and 5: write prompt_b.md from the plan, ask the judge, compute the totals, write the one CSV.

    Exit codes: 0 scored, 1 below --fail-under, 2 the scoring of some cases is incomplete.
    """
    context = open_context(Folder(Path(folder)), _step_options(flags))
    least = _least(fail_under)
    found = score(context, redo, repeat, excel, xlsx)
    after = text.next_step(text.after_scoring(found.cases, "report"), context.folder)
    lines = [*text.scored(context.folder, found), *text.below(found.cases, least), after]
    _tell(lines, text.score_facts(context.folder, found), flags["as_json"])
    return text.score_exit(found.cases, least)


@command.command("report")
@_FOLDER
@_FAIL_UNDER
@_step
def report_command(folder: str, fail_under: str | None, **flags: Any) -> int:
    """Write final_report.md and final_report.html from the scored results."""
    least = _least(fail_under)
    where = Folder(Path(folder))
    found = steps.report(where)
    after = text.next_step(text.after_report(found), where)
    lines = [*text.reported(where, found), *text.below(found.cases, least), after]
    _tell(lines, text.report_facts(where, found), flags["as_json"])
    return text.score_exit(found.cases, least)


@command.command("all")
@click.argument("prompt", metavar="PROMPT_A")
@click.option("-o", "--output", default=DEFAULT, metavar="DIR", help=f"The results folder; {DEFAULT} by default.")
@click.option("--excel", is_flag=True, help="Begin the CSV with the mark that Excel needs.")
@click.option("--xlsx", is_flag=True, help="Also write the table as a workbook.")
@_FAIL_UNDER
@_step
def all_command(prompt: str, output: str, excel: bool, xlsx: bool, fail_under: str | None, **flags: Any) -> int:
    """Plan, generate, run, score and report, one after the other; what is finished is not done again.

    Exit codes: 0 good, 1 runs failed or the pass rate is below --fail-under, 2 invalid data or incomplete scoring.
    """
    least = _least(fail_under)
    options, folder, as_json = _step_options(flags), Folder(Path(output)), flags["as_json"]
    facts: Record = {}

    def told(step: str, lines: Iterable[Line], found: Record) -> None:
        facts[step] = found
        if not as_json:
            print_lines(lines)

    planned = steps.plan(Path(prompt), folder, options)
    told("plan", text.planned(folder, planned), text.plan_facts(planned))
    context = open_context(folder, options)
    generated = steps.make_cases(context)
    told("generate", text.generated(folder, generated), text.case_facts(folder, generated))
    ran = run(context)
    told("run", text.ran(folder, ran), text.run_facts(folder, ran))
    scored = score(context, excel=excel, xlsx=xlsx)
    told("score", text.scored(folder, scored), text.score_facts(folder, scored))
    reported = steps.report(folder)
    after = text.next_step(text.after_report(reported), folder)
    lines = [*text.reported(folder, reported), *text.below(reported.cases, least), after]
    told("report", lines, text.report_facts(folder, reported))
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False))
    return text.score_exit(scored.cases, least) or int(
        bool(ran.failures or generated.shortfalls or generated.below_floor)
    )


@command.command("improve")
@_FOLDER
@click.option("--iterations", type=click.IntRange(1, 20), default=1, metavar="N", help="Try again up to N times.")
@_step
def improve_command(folder: str, iterations: int, **flags: Any) -> int:
    """Draft a better prompt from the bad cases, and hold it against prompt_a on the same cases.

    Both are run and scored; the candidate is promoted only when every gate holds: no 1 on a core test point, core
    average up by 0.40, pass rate up by 10 points, safety average not lower. prompt_a is never written to.

    Exit codes: 0 promoted, 1 a gate does not hold.
    """
    context = open_context(Folder(Path(folder)), _step_options(flags))
    for _ in range(iterations):
        attempt = improve(context)
        _tell(text.attempted(context, attempt), text.attempt_facts(attempt), flags["as_json"])
        if attempt.is_promoted:
            return 0
    return 1


@command.command("table")
@click.argument("source", metavar="IN.json")
@click.option("--plan", default="", metavar="FILE", help="The test plan: which test points there are, in which order.")
@click.option("-o", "--output", default="", metavar="FILE", help="Where to; by default beside IN.json, as .csv.")
@click.option("--excel", is_flag=True, help="Begin the CSV with the mark that Excel needs.")
@click.option("--xlsx", is_flag=True, help="Also write the table as a workbook.")
@click.option("--for-review", is_flag=True, help="Add columns for people's own scores.")
@click.option("--json", "as_json", is_flag=True, help="Print what came of it as one JSON object.")
def table_command(source: str, plan: str, output: str, excel: bool, xlsx: bool, for_review: bool, as_json: bool) -> int:
    """Compute the totals of any scored JSON again, and write the one CSV.

    Exit codes: 0 written, 2 written with cells left empty, or not written, because of what is listed.
    """
    options = TableOptions(Path(plan) if plan else None, Path(output) if output else None, excel, xlsx, for_review)
    found = write_table(Path(source), options)
    for one in found.findings:
        click.echo(text.shown(one), err=True)
    _tell(text.tabled(Path(source), found), text.table_facts(found), as_json)
    return 2 if found.is_faulty else 0


@command.command("check")
@_FOLDER
@click.option("--json", "as_json", is_flag=True, help="One JSON object per finding.")
def check_command(folder: str, as_json: bool) -> int:
    """Say what is wrong with every artifact of a folder, also one made by hand or by another tool.

    Exit codes: 0 nothing, or warnings only; 2 errors.
    """
    found = check(Folder(Path(folder)))
    for artifact in found:
        if as_json:
            for one in artifact.findings:
                click.echo(text.shown_json(one))
        else:
            print_lines(text.checked(artifact))
    return 2 if any(artifact.count("error") for artifact in found) else 0


@command.command("import-review")
@click.argument("file", metavar="FILE")
@_FOLDER
@click.option("--encoding", default="", help="E.g. gb18030; UTF-8 and UTF-16 need not be named.")
@click.option("--json", "as_json", is_flag=True, help="Print what came of it as one JSON object.")
def import_command(file: str, folder: str, encoding: str, as_json: bool) -> int:
    """Take over the scores of people: columns human_TP1_score … and human_comment of a CSV or XLSX.

    Exit codes: 0 taken over, 2 something is wrong in the table, so nothing was.
    """
    where = Folder(Path(folder))
    found = import_review(Path(file), where.path, encoding)
    for one in found.findings:
        click.echo(text.shown(one), err=True)
    if not found.is_written:
        raise EvalloomError("invalid_data", f"{file}: nothing was taken over. Mend what is listed above", exit_code=2)
    _tell([*text.reviewed(found), text.next_step("report again", where)], text.review_facts(found), as_json)
    return 0
