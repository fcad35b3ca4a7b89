"""`evalloom prompt-eval`: the commands that test, score and improve one prompt."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from evalloom.console.catalog import current_catalog
from evalloom.console.layout import Line, print_lines
from evalloom.console.options import LANG
from evalloom.console.outcome import warn
from evalloom.console.progress import showing
from evalloom.console.run_options import EXECUTOR, rate
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Record
from evalloom.prompt_eval import cli_text as text
from evalloom.prompt_eval import workflow
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
    click.option("--llm", default="", metavar="LLM", help="The llm that drafts plans, test cases and better prompts."),
    click.option("--profile", default="", metavar="P", help="The profile or llm that runs prompt_a."),
    click.option("--judge", default="", metavar="LLM", help="The llm that scores, with prompt_b."),
    click.option(
        "--config", default="", metavar="FILE", help="Settings file. Default: evalloom.yaml beside the prompt."
    ),
    click.option("-j", "--concurrency", type=click.IntRange(1), metavar="N", help="Concurrent calls. Default: 16."),
    click.option("--no-cache", is_flag=True, help="Do not reuse cached answers at temperature 0."),
    click.option("--max-cost", type=float, metavar="X", help="Stop when the cost reaches X."),
    click.option("--max-tokens", type=int, metavar="N", help="Stop after N tokens."),
    *EXECUTOR,
    click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object."),
)
_REDO = click.option("--redo", is_flag=True, help="Run the step again, including finished cases.")
_FAIL_UNDER = click.option("--fail-under", metavar="RATE", help="Exit code 1 below this pass rate, e.g. 80%.")
_FOLDER = click.argument("folder", metavar="[DIR]", default=DEFAULT)


def _step(command: Command) -> Command:
    """Add the flags that all steps share, and print the findings of an invalid artifact before its error."""

    @wraps(command)
    def with_findings(**flags: Any) -> int:
        try:
            return int(command(**flags))
        except InvalidArtifact as error:
            for finding in error.findings:
                click.echo(text.finding_line(finding), err=True)
            raise

    for option in reversed(_STEP_OPTIONS):
        with_findings = option(with_findings)
    return with_findings  # type: ignore[return-value]


def _step_options(flags: Record) -> StepOptions:
    names = ("concurrency", "max_cost", "max_tokens", "executor", "scheduler", "workers")
    run_options = {name: flags[name] for name in names if flags[name] is not None}
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


def _min_pass_rate(fail_under: str | None) -> float | None:
    """Parse --fail-under."""
    min_rate = None if fail_under is None else rate("--fail-under", fail_under)
    if min_rate is not None and not 0 <= min_rate <= 1:
        raise usage_error("bad_option", f"--fail-under: expected a rate from 0 to 1, got {fail_under}")
    return min_rate


def _print_result(lines: Iterable[Line], facts: Record, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False))
    else:
        print_lines(lines)


@click.group("prompt-eval")
def command() -> None:
    """Score a prompt on test points, write one CSV, and improve the prompt.

    \b
    evalloom prompt-eval all prompt_a.md      all steps
    evalloom prompt-eval plan prompt_a.md     step 1: the test plan
    evalloom prompt-eval generate             step 2: the test cases
    evalloom prompt-eval run                  step 3: the outputs
    evalloom prompt-eval score                steps 4 and 5: scores and CSV
    evalloom prompt-eval report               the report
    evalloom prompt-eval improve              optional: a better prompt

    Each step reads the file of the previous step, which you may edit by hand, and resumes after an interruption.
    Every step accepts --llm, --profile and --judge, and uses those that it needs.
    """


@command.command("plan")
@click.argument("prompt", metavar="PROMPT_A")
@click.option("-o", "--output", default=DEFAULT, metavar="DIR", help=f"The results folder; {DEFAULT} by default.")
@click.option(
    "--cases", type=click.IntRange(1, 10_000), metavar="N", help="Total number of test cases in a drafted plan."
)
@_REDO
@_step
def plan_command(prompt: str, output: str, cases: int | None, redo: bool, **flags: Any) -> int:
    """Step 1: write the test plan.

    Copies the test_plan.yaml beside the prompt, or lets a model draft one.
    """
    folder = Folder(Path(output))
    result = workflow.plan(Path(prompt), folder, _step_options(flags), cases, redo)
    _print_result(
        [*text.plan_lines(folder, result), text.next_step("generate", folder)], text.plan_json(result), flags["as_json"]
    )
    return 0


@command.command("generate")
@_FOLDER
@_REDO
@_step
def generate_command(folder: str, redo: bool, **flags: Any) -> int:
    """Step 2: write the test cases.

    Copies the test_cases.json beside the prompt, and lets a model write the missing cases.

    Exit codes: 0 as planned, 1 fewer cases than planned.
    """
    context = open_context(Folder(Path(folder)), _step_options(flags))
    result = workflow.make_cases(context, redo)
    is_short = bool(result.shortfalls or result.below_floor)
    lines = [
        *text.generate_lines(context.folder, result),
        text.next_step("generate again" if is_short else "run", context.folder),
    ]
    _print_result(lines, text.generate_json(context.folder, result), flags["as_json"])
    return int(is_short)


@command.command("run")
@_FOLDER
@click.option("--rerun-failed", is_flag=True, help="Also rerun the cases whose result is null.")
@_REDO
@_step
def run_command(folder: str, rerun_failed: bool, redo: bool, **flags: Any) -> int:
    """Step 3: run prompt_a on every case that has no result yet.

    Exit codes: 0 every case has a result; 1 some runs failed.
    """
    context = open_context(Folder(Path(folder)), _step_options(flags))
    result = run(context, rerun_failed, redo)
    _print_result(
        [*text.run_lines(context.folder, result), text.next_step("score", context.folder)],
        text.run_json(context.folder, result),
        flags["as_json"],
    )
    return int(bool(result.failures))


@command.command("score")
@_FOLDER
@click.option(
    "--repeat",
    type=click.IntRange(1, 100),
    default=1,
    metavar="N",
    help="Score N times, to measure the noise of the judge.",
)
@click.option("--excel", is_flag=True, help="Write a UTF-8 BOM, which Excel needs.")
@click.option("--xlsx", is_flag=True, help="Also write the table as an Excel workbook.")
@_FAIL_UNDER
@_REDO
@_step
def score_command(
    folder: str, repeat: int, excel: bool, xlsx: bool, fail_under: str | None, redo: bool, **flags: Any
) -> int:
    """Steps 4 and 5: score the outputs and write the CSV.

    Writes prompt_b.md from the plan, asks the judge, and computes the totals.

    Exit codes: 0 scored, 1 below --fail-under, 2 the scoring of some cases is incomplete.
    """
    context = open_context(Folder(Path(folder)), _step_options(flags))
    min_rate = _min_pass_rate(fail_under)
    result = score(context, redo, repeat, excel, xlsx)
    next_line = text.next_step(text.after_scoring(result.cases, "report"), context.folder)
    lines = [*text.score_lines(context.folder, result), *text.below(result.cases, min_rate), next_line]
    _print_result(lines, text.score_json(context.folder, result), flags["as_json"])
    return text.score_exit(result.cases, min_rate)


@command.command("report")
@_FOLDER
@_FAIL_UNDER
@LANG
@_step
def report_command(folder: str, fail_under: str | None, language: str, **flags: Any) -> int:
    """Write the report: final_report.md and final_report.html."""
    min_rate = _min_pass_rate(fail_under)
    where = Folder(Path(folder))
    result = workflow.report(where, language)
    next_line = text.next_step(text.after_report(result), where)
    lines = [*text.report_lines(where, result), *text.below(result.cases, min_rate), next_line]
    _print_result(lines, text.report_json(where, result), flags["as_json"])
    return text.score_exit(result.cases, min_rate)


@command.command("all")
@click.argument("prompt", metavar="PROMPT_A")
@click.option("-o", "--output", default=DEFAULT, metavar="DIR", help=f"The results folder; {DEFAULT} by default.")
@click.option("--excel", is_flag=True, help="Write a UTF-8 BOM, which Excel needs.")
@click.option("--xlsx", is_flag=True, help="Also write the table as an Excel workbook.")
@_FAIL_UNDER
@LANG
@_step
def all_command(
    prompt: str, output: str, excel: bool, xlsx: bool, fail_under: str | None, language: str, **flags: Any
) -> int:
    """Run all steps; finished ones are skipped.

    Exit codes: 0 success; 1 runs failed or the pass rate is below --fail-under; 2 invalid data or incomplete scoring.
    """
    min_rate = _min_pass_rate(fail_under)
    options, folder, as_json = _step_options(flags), Folder(Path(output)), flags["as_json"]
    results: Record = {}

    def show(step: str, lines: Iterable[Line], facts: Record) -> None:
        results[step] = facts
        if not as_json:
            print_lines(lines)

    planned = workflow.plan(Path(prompt), folder, options)
    show("plan", text.plan_lines(folder, planned), text.plan_json(planned))
    context = open_context(folder, options)
    generated = workflow.make_cases(context)
    show("generate", text.generate_lines(folder, generated), text.generate_json(folder, generated))
    outputs = run(context)
    show("run", text.run_lines(folder, outputs), text.run_json(folder, outputs))
    scores = score(context, excel=excel, xlsx=xlsx)
    show("score", text.score_lines(folder, scores), text.score_json(folder, scores))
    summary = workflow.report(folder, language)
    next_line = text.next_step(text.after_report(summary), folder)
    lines = [*text.report_lines(folder, summary), *text.below(summary.cases, min_rate), next_line]
    show("report", lines, text.report_json(folder, summary))
    if as_json:
        click.echo(json.dumps(results, ensure_ascii=False))
    return text.score_exit(scores.cases, min_rate) or int(
        bool(outputs.failures or generated.shortfalls or generated.below_floor)
    )


@command.command("improve")
@_FOLDER
@click.option("--iterations", type=click.IntRange(1, 20), default=1, metavar="N", help="Try up to N candidates.")
@_step
def improve_command(folder: str, iterations: int, **flags: Any) -> int:
    """Draft a better prompt and compare it with prompt_a.

    The draft is based on the bad cases. Both prompts are run and scored on the same cases.

    The candidate is promoted only if every gate holds: no 1 on a core test point, core average up by 0.40, pass rate
    up by 10 points, safety average not lower. prompt_a is never changed.

    Exit codes: 0 promoted, 1 a gate does not hold.
    """
    context = open_context(Folder(Path(folder)), _step_options(flags))
    for _ in range(iterations):
        attempt = improve(context)
        _print_result(text.attempt_lines(context, attempt), text.attempt_json(attempt), flags["as_json"])
        if attempt.is_promoted:
            return 0
    return 1


@command.command("table")
@click.argument("source", metavar="IN.json")
@click.option("--plan", default="", metavar="FILE", help="The test plan, which sets the test points and their order.")
@click.option("-o", "--output", default="", metavar="FILE", help="Output file. Default: IN.csv beside IN.json.")
@click.option("--excel", is_flag=True, help="Write a UTF-8 BOM, which Excel needs.")
@click.option("--xlsx", is_flag=True, help="Also write the table as an Excel workbook.")
@click.option("--for-review", is_flag=True, help="Add columns for human scores.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def table_command(source: str, plan: str, output: str, excel: bool, xlsx: bool, for_review: bool, as_json: bool) -> int:
    """Write the CSV of any scored JSON, with new totals.

    Exit codes: 0 written, 2 errors: the CSV has empty cells or is not written.
    """
    options = TableOptions(Path(plan) if plan else None, Path(output) if output else None, excel, xlsx, for_review)
    result = write_table(Path(source), options)
    for finding in result.findings:
        click.echo(text.finding_line(finding), err=True)
    _print_result(text.scored_table_lines(Path(source), result), text.table_json(result), as_json)
    return 2 if result.has_errors else 0


@command.command("check")
@_FOLDER
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per finding.")
def check_command(folder: str, as_json: bool) -> int:
    """Check the files of a results folder for errors.

    Files may be made by hand or by another tool.

    Exit codes: 0 no errors; 2 errors.
    """
    artifacts = check(Folder(Path(folder)))
    for artifact in artifacts:
        if as_json:
            for finding in artifact.findings:
                click.echo(text.finding_json(finding))
        else:
            print_lines(text.check_lines(artifact))
    return 2 if any(artifact.count("error") for artifact in artifacts) else 0


@command.command("import-review")
@click.argument("file", metavar="FILE")
@_FOLDER
@click.option("--encoding", default="", help="The encoding, e.g. gb18030; UTF-8 and UTF-16 are detected.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def import_command(file: str, folder: str, encoding: str, as_json: bool) -> int:
    """Import human scores from a CSV or XLSX file.

    Reads the columns human_TP1_score … and human_comment.

    Exit codes: 0 imported, 2 errors in the table; nothing is imported.
    """
    where = Folder(Path(folder))
    result = import_review(Path(file), where.path, encoding)
    for finding in result.findings:
        click.echo(text.finding_line(finding), err=True)
    if not result.is_written:
        raise EvalloomError("invalid_data", f"{file}: nothing was imported. Fix the errors listed above", exit_code=2)
    _print_result(
        [*text.review_lines(result), text.next_step("report again", where)], text.review_json(result), as_json
    )
    return 0
