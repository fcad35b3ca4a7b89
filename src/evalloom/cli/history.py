"""`evalloom history`: shows the batches of one dataset and target over time, and which cases are failing or flaky."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from evalloom.analysis.history import read_history, read_runs
from evalloom.analysis.history_series import LIMIT, SeriesRequest
from evalloom.batchlog import FOLDER, find, manifest
from evalloom.batchlog.folders import is_batch
from evalloom.console.catalog import current_catalog
from evalloom.console.history_text import history_lines, run_of_case_lines
from evalloom.console.layout import print_lines
from evalloom.console.outcome import warn
from evalloom.core.errors import EvalloomError, usage_error


@click.command("history")
@click.argument("path", metavar="[FOLDER|DATASET|BATCH]", default="")
@click.option("--dataset", default="", metavar="PATH", help="Show batches of this dataset. Default: of the newest.")
@click.option("--target", default="", metavar="NAME", help="Show batches of this target. Default: of the newest.")
@click.option("--profile", default="", metavar="P", help="Show only this profile.")
@click.option("--case", "case_id", default="", metavar="ID", help="Show every run of one case.")
@click.option(
    "--limit", type=click.IntRange(1), default=LIMIT, show_default=True, metavar="N", help="Show the last N batches."
)
@click.option("--quarantine", default="", metavar="FILE", help="Add the flaky cases to this list, for 'evalloom run'.")
@click.option(
    "--days", type=click.IntRange(1), metavar="N", help="With --quarantine: days until an entry expires. Default: 30."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object with every case.")
def command(
    path: str,
    dataset: str,
    target: str,
    profile: str,
    case_id: str,
    limit: int,
    quarantine: str,
    days: int | None,
    as_json: bool,
) -> int:
    """Show pass rates over time, what changed, and which cases are newly failing or flaky.

    Batches of the same dataset and target are shown, by default those of the newest batch in .evalloom/batches. FOLDER
    is a folder of batches or of a project; a history that is given a BATCH ends with it.

    \b
    evalloom history
    evalloom history cases.jsonl --case c7
    evalloom history --quarantine quarantine.yaml
    """
    if quarantine and case_id:
        raise usage_error("bad_option", "--quarantine and --case: expected one of them, got both")
    if days is not None and not quarantine:
        raise usage_error("bad_option", "--days: goes with --quarantine")
    folder, request = _request(path, SeriesRequest("", dataset, target, profile, limit))
    if case_id:
        runs = read_runs([folder], request, case_id, current_catalog(), warn)
        if as_json:
            for run in runs:
                click.echo(msgspec.json.encode(run))
        else:
            print_lines(run_of_case_lines(case_id, runs))
        return 0
    history = read_history([folder], request, current_catalog(), warn)
    if as_json:
        click.echo(msgspec.json.encode(history))
    else:
        print_lines(history_lines(history))
    if quarantine:
        from evalloom.engine.quarantine_file import add_flaky  # deferred: few calls write one

        click.echo(add_flaky(Path(quarantine), history, days or 30), err=as_json)
    return 0


def _request(path: str, request: SeriesRequest) -> tuple[Path, SeriesRequest]:
    """Return the folder of batches, and what the argument says about them: a folder, a dataset or a batch."""
    if not path:
        return FOLDER, request
    # Not Path.is_dir, which raises for a name that is too long for a file.
    if os.path.isdir(path) and not is_batch(Path(path)):
        folder = Path(path)
        if os.path.isdir(folder / FOLDER) or any(map(is_batch, folder.iterdir())):
            return folder, request
    elif not os.path.isfile(path):
        try:
            batch = find(path)
        except EvalloomError:
            # The dataset of a batch may be gone.
            if not (FOLDER.is_dir() and os.path.splitext(path)[1]):
                raise
        else:
            if request.dataset or request.target:
                raise usage_error("bad_option", f"--dataset, --target: {path!r} is a batch, which has its own")
            return batch.parent, msgspec.structs.replace(request, batch=manifest(batch).id)
    if request.dataset:
        raise usage_error("bad_option", f"--dataset: expected one dataset, got {path!r}, too")
    return FOLDER, msgspec.structs.replace(request, dataset=path)
