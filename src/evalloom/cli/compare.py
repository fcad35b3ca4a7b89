"""`evalloom compare`: compares a batch with a baseline."""

from __future__ import annotations

from functools import cache
from math import nan
from typing import TYPE_CHECKING

import click
import msgspec

from evalloom.analysis.compare import By
from evalloom.batchlog import find, manifest
from evalloom.console.catalog import current_catalog
from evalloom.console.compare_text import compared_lines, noise_lines
from evalloom.console.github import tell_github
from evalloom.console.layout import print_lines
from evalloom.console.options import FORCE, LANG
from evalloom.console.outcome import warn
from evalloom.core.errors import usage_error
from evalloom.core.text import quote
from evalloom.engine.compare import ComparisonRequest, compare
from evalloom.engine.compare_self import compare_self
from evalloom.engine.outputs import (
    Outputs,
    refuse_claimed,
    refuse_replacing_results,
    refuse_without_comparison,
    reporters_for,
    write_reports,
)
from evalloom.engine.system import Catalog

if TYPE_CHECKING:
    from evalloom.reports.run_report import RunReport


@click.command("compare")
@click.argument("batch")
@click.argument("others", nargs=-1, metavar="")
@click.option(
    "--against", "--baseline", "baseline", default="", metavar="NAME", help="Baseline or batch to compare with."
)
@click.option(
    "--self", "is_self", is_flag=True, help="Compare the repeats of the batch with each other: how noisy is it?"
)
@click.option("--strict", is_flag=True, help="Any drop is a regression, even one that may be chance.")
@click.option(
    "--allowed-drop",
    "drops",
    multiple=True,
    metavar="[NAME=]X",
    help="A regression is a pass rate that falls by more, even by chance: 0.02 is two points, oral=0.1 is for one "
    "bucket or tag.",
)
@click.option(
    "--by",
    type=click.Choice(["bucket", "tag"]),
    multiple=True,
    help="Also compare each bucket or tag. RAG batches are always compared by bucket.",
)
@click.option("--profile", default="", metavar="P", help="Compare only this profile of the batch.")
@click.option("--baseline-profile", default="", metavar="P", help="Compare with this profile of the baseline.")
@click.option("--any-config", is_flag=True, help="Compare even if the configurations differ.")
@click.option(
    "-o",
    "--output",
    multiple=True,
    metavar="FILE",
    help="Write a report with the comparison: .html .md .json. Repeatable.",
)
@FORCE
@LANG
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every case that changed.")
def command(
    batch: str,
    others: tuple[str, ...],
    baseline: str,
    is_self: bool,
    strict: bool,
    drops: tuple[str, ...],
    by: tuple[By, ...],
    profile: str,
    baseline_profile: str,
    any_config: bool,
    output: tuple[str, ...],
    force: bool,
    language: str,
    as_json: bool,
) -> int:
    """Compare a batch with a baseline, case by case, and report regressions.

    BATCH is an id, a prefix of one, or 'latest'. Without --against, the profiles or variants of the batch are
    compared with the one named 'baseline', or else with the first. A regression is a drop that the data show: the
    confidence interval excludes no difference, and so does an exact test, corrected over all that is compared.

    \b
    evalloom baseline save good
    evalloom compare latest --against good --by tag
    evalloom compare latest --against good --allowed-drop 0.02 --allowed-drop oral=0.1
    evalloom compare latest                     after: run --variants baseline,v2
    evalloom compare latest --self              after: run --repeat 5

    Exit codes: 0 no regression; 1 a regression, or too few comparable cases; 2 wrong usage or nothing to compare;
    3 unreadable files.
    """
    if others:
        # Which of two batches is the older one cannot be told from their order.
        hint = f"To see whether {batch} is better than {others[0]}: evalloom compare {batch} --against {others[0]}"
        raise usage_error("bad_option", f"expected one batch, got {1 + len(others)}. {hint}")
    if is_self:
        unused = {"--against": baseline, "--strict": strict, "--allowed-drop": drops, "--by": by}
        for flag, value in {**unused, "--baseline-profile": baseline_profile, "-o": output}.items():
            if value:
                raise usage_error("bad_option", f"--self and {flag}: expected one of them, got both")
        return _compare_self(batch, profile, as_json)
    allowed = _allowed(drops)
    overall = allowed.pop("", None)
    request = ComparisonRequest(
        batch, baseline, profile, baseline_profile, overall, allowed, by, any_config, is_strict=strict
    )
    catalog = current_catalog()
    outputs = _checked_outputs(output, force, batch, catalog) if output else []
    compared = compare(request, warn, catalog)

    @cache
    def make_report() -> RunReport:
        from evalloom.engine.report import compared_with, report_of, stored_results

        return report_of(stored_results(find(batch), catalog), catalog, language, compared_with(compared, request))

    if outputs:
        write_reports(make_report(), outputs)
    if as_json:
        click.echo(msgspec.json.encode(compared))
    else:
        print_lines(compared_lines(compared, catalog.buckets))
    tell_github(make_report, as_json)
    return int(compared.is_bad)


def _checked_outputs(output: tuple[str, ...], force: bool, batch: str, catalog: Catalog) -> Outputs:
    outputs = reporters_for(output, catalog.reporters)
    refuse_without_comparison(outputs)
    refuse_replacing_results(outputs, force, manifest(find(batch)))
    if not force:
        refuse_claimed(path for path, _ in outputs)
    return outputs


def _compare_self(batch: str, profile: str, as_json: bool) -> int:
    """Compare the repeats of a batch with each other."""
    noise = compare_self(batch, profile)
    if as_json:
        click.echo(msgspec.json.encode(noise))
    else:
        print_lines(noise_lines(noise))
    return 0


def _allowed(drops: tuple[str, ...]) -> dict[str, float]:
    """Parse allowed drops by bucket or tag; the empty name is for all others."""
    allowed: dict[str, float] = {}
    for drop in drops:
        # A tag may have a `=` in it, and a number has none.
        name, mark, value = drop.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            number = nan
        if not 0 <= number <= 1 or (mark and not name):
            expected = "expected a number from 0 to 1, or a bucket or tag and one, such as oral=0.1"
            raise usage_error("bad_allowed_drop", f"--allowed-drop: {expected}; got {quote(drop)}")
        if name in allowed:
            whose = f"for {quote(name)}" if name else "without a name"
            raise usage_error("bad_allowed_drop", f"--allowed-drop: given twice {whose}: {allowed[name]} and {number}")
        allowed[name] = number
    return allowed
