"""`evalloom score`: score a batch again."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from evalloom.batchlog import find, manifest
from evalloom.console.catalog import current_catalog
from evalloom.console.options import refuse_overwriting
from evalloom.console.outcome import exit_code, warn
from evalloom.console.run_text import print_lines, result_lines
from evalloom.core.errors import usage_error
from evalloom.engine.outputs import reporters_for, write_outputs
from evalloom.engine.rescore import CASE, RescoreRequest, rescore
from evalloom.settings import FILE_NAME, keys
from evalloom.settings import load as load_settings
from evalloom.settings import secrets as secrets_of


@click.command("score")
@click.argument("batch")
@click.option("--config", default="", metavar="FILE", help="Settings; by default ./evalloom.yaml.")
@click.option("--checks", default="", metavar="FILE", help="More checks for every case, in YAML or JSON.")
@click.option("--judge", default="", metavar="LLM", help="Who answers for judge checks.")
@click.option("--threshold", "thresholds", multiple=True, metavar="NAME=X", help="For a check, a kind, or 'case'.")
@click.option("-j", "--concurrency", type=click.IntRange(1), default=16, show_default=True, help="Judgements at once.")
@click.option("--no-cache", is_flag=True, help="Ask the judge again what it was asked before.")
@click.option("--allow-code", is_flag=True, help="Run code of data files, in a sandbox.")
@click.option("-o", "--output", multiple=True, metavar="FILE", help="Also write the results: .json .jsonl .csv .xml")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object.")
def command(
    batch: str,
    config: str,
    checks: str,
    judge: str,
    thresholds: tuple[str, ...],
    concurrency: int,
    no_cache: bool,
    allow_code: bool,
    output: tuple[str, ...],
    as_json: bool,
) -> int:
    """Score the runs of a batch again, without running anything.

    BATCH is an id, the beginning of one, or 'latest'. The verdicts that it had stay beside the new ones. What a judge
    has said about the same answer is not asked again.
    """
    catalog = current_catalog()
    outputs = reporters_for(output, catalog.reporters)
    read = [*(one.path for one in manifest(find(batch)).datasets), checks, config or FILE_NAME]
    refuse_overwriting((path for path, _ in outputs), (Path(name) for name in read if name))
    request = RescoreRequest(
        batch, config, checks, judge, dict(map(_threshold, thresholds)), concurrency, allow_code, not no_cache
    )
    results = rescore(request, catalog, warn)
    settings = load_settings(Path(config) if config else None, catalog.sections)
    try:
        write_outputs(results, outputs)
    finally:
        if as_json:
            click.echo(msgspec.json.encode(results.summary))
        else:
            secrets = secrets_of(settings)
            print_lines((keys.hidden(text, secrets), style) for text, style in result_lines(results))
    return exit_code(results, settings.run.fail_under)


def _threshold(text: str) -> tuple[str, float]:
    name, _, value = text.rpartition("=")
    try:
        return name.strip() or CASE, float(value)
    except ValueError:
        raise usage_error("bad_option", f"--threshold: expected NAME=NUMBER, got {text!r}") from None
