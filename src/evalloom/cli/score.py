"""`evalloom score`: score a batch again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from evalloom.batchlog import find, manifest
from evalloom.console.catalog import current_catalog
from evalloom.console.github import tell_github_results
from evalloom.console.layout import print_lines
from evalloom.console.options import FORCE, LANG, refuse_overwriting
from evalloom.console.outcome import exit_code, print_failed_gates, print_problem, summary_json, warn
from evalloom.console.run_options import ALLOW_UNSCORED, OUTPUT, executor_options, stored_pass_rule
from evalloom.console.run_text import result_lines
from evalloom.core.errors import usage_error
from evalloom.engine.outputs import refuse_claimed, refuse_replacing_results, reporters_for, write_outputs
from evalloom.engine.rescore import RescoreRequest, rescore
from evalloom.engine.stored_runs import CASE
from evalloom.settings import FILE_NAME, keys
from evalloom.settings import load as load_settings
from evalloom.settings import secrets as secrets_of


@click.command("score")
@click.argument("batch")
@click.option("--config", default="", metavar="FILE", help="Settings file. Default: ./evalloom.yaml.")
@click.option(
    "--checks", default="", metavar="FILE", help="Apply the checks in this YAML or JSON file to every case too."
)
@click.option("--judge", default="", metavar="LLM", help="The llm for judge checks.")
@click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    metavar="NAME=X",
    help="Threshold of a check, of a kind of check, or of 'case'.",
)
@click.option("--pass-if", metavar="K/N", help="A case passes if this share of its repeats does: 4/5, 0.8 or 80%.")
@click.option(
    "-j",
    "--concurrency",
    type=click.IntRange(1),
    default=16,
    show_default=True,
    metavar="N",
    help="Concurrent judge calls.",
)
@click.option("--no-cache", is_flag=True, help="Do not use cached judge answers.")
@click.option("--allow-code", is_flag=True, help="Run code from data files, in a sandbox.")
@executor_options
@ALLOW_UNSCORED
@OUTPUT
@FORCE
@LANG
@click.option("--json", "as_json", is_flag=True, help="Print the summary as a JSON object.")
def command(
    batch: str,
    config: str,
    checks: str,
    judge: str,
    thresholds: tuple[str, ...],
    pass_if: str | None,
    concurrency: int,
    no_cache: bool,
    allow_code: bool,
    allow_unscored: bool,
    output: tuple[str, ...],
    force: bool,
    language: str,
    as_json: bool,
    executor: str | None,
    scheduler: str | None,
    workers: int | None,
) -> int:
    """Score the runs of a batch again without calling the target.

    BATCH is an id, a prefix of one, or 'latest'. Earlier verdicts are kept. Judge answers are cached, so a judge is
    only called for new questions.
    """
    catalog = current_catalog()
    outputs = reporters_for(output, catalog.reporters)
    stored = manifest(find(batch))
    read = [*(dataset.path for dataset in stored.datasets), checks, config or FILE_NAME]
    refuse_overwriting((path for path, _ in outputs), (Path(name) for name in read if name))
    refuse_replacing_results(outputs, force, stored)
    if not force:
        refuse_claimed(path for path, _ in outputs)
    needed = stored_pass_rule("--pass-if", pass_if, stored) if pass_if is not None else None
    request = RescoreRequest(
        batch,
        config,
        checks,
        judge,
        dict(map(_threshold, thresholds)),
        concurrency,
        allow_code,
        not no_cache,
        needed,
        allow_unscored,
        executor=executor or "",
        scheduler=scheduler or "",
        workers=workers,
    )
    results = rescore(request, catalog, warn)
    settings = load_settings(Path(config) if config else None, catalog.sections)
    hide = partial(keys.hidden, secrets=secrets_of(settings))
    try:
        write_outputs(results, outputs, catalog, language)
    finally:
        if as_json:
            click.echo(summary_json(results, hide))
            print_failed_gates(results, hide)
        else:
            # Scoring again does not repeat the runs that ended in an error.
            summary = results.summary
            next_step = f"evalloom batches show {summary.batch} --status error" if summary.error else ""
            print_lines(result_lines(results, next_step, fail_under=settings.run.fail_under), hide=hide)
        print_problem(results.problem, hide)
    tell_github_results(results, catalog, language, as_json, hide)
    return exit_code(results, settings.run.fail_under)


def _threshold(text: str) -> tuple[str, float]:
    name, _, value = text.rpartition("=")
    try:
        return name.strip() or CASE, float(value)
    except ValueError:
        raise usage_error("bad_option", f"--threshold: expected NAME=NUMBER, got {text!r}") from None
