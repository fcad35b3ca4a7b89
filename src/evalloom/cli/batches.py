"""`evalloom batches`: which batches there are, what is in one, and away with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from evalloom.analysis.tally import STATUSES
from evalloom.batchlog import FOLDER, batches, find, is_in_use, manifest, remove
from evalloom.console.outcome import warn
from evalloom.console.run_text import Line, print_lines, run_lines, table_lines
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Batch
from evalloom.core.text import did_you_mean, pluralize, printable
from evalloom.engine.results import stored_runs

_MOST_IDS = 1000
"""Among how many case ids one is looked for that may have been meant."""


@click.group("batches")
def command() -> None:
    """Look at the batches in .evalloom/batches, and remove them."""


@command.command("list")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many, newest first.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per batch.")
def list_command(limit: int, as_json: bool) -> int:
    """List the batches, newest first."""
    rows: list[list[str]] = []
    for path, batch in batches(warn=warn):
        if len(rows) == limit:
            break
        if as_json:
            click.echo(msgspec.json.encode({"path": path.as_posix(), **msgspec.to_builtins(batch)}))
        rows.append(_row(batch))
    if not as_json:
        header = ["batch", "target", "dataset", "profiles", "runs", "pass rate", "state"]
        print_lines(table_lines(header, rows) if rows else [("There is no batch yet: 'evalloom run' makes one.", "")])
    return 0


def _row(batch: Batch) -> list[str]:
    rate = batch.summary.get("pass_rate")
    return [
        batch.id,
        batch.target,
        ", ".join(Path(one.path).name for one in batch.datasets),
        ", ".join(profile.name for profile in batch.profiles),
        str(batch.summary.get("total", "?")),
        f"{rate:.1%}" if isinstance(rate, float) else "-",
        "finished" if batch.finished_at else "unfinished",
    ]


@command.command("show")
@click.argument("batch")
@click.option("--status", type=click.Choice(STATUSES), help="Only runs that ended so.")
@click.option("--case", "case_id", default="", metavar="ID", help="Only this case, with its whole trace.")
@click.option("--profile", default="", metavar="P", help="Only runs under this profile.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many runs.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per run, with everything.")
def show_command(batch: str, status: str | None, case_id: str, profile: str, limit: int, as_json: bool) -> int:
    """Show the runs of a batch. BATCH is an id, the beginning of one, or 'latest'."""
    path = find(batch)
    found = shown = 0
    ids: dict[str, None] = {}
    lines: list[Line] = [] if as_json else list(_facts(path, manifest(path)))
    for run, scored in stored_runs(path):
        if case_id and len(ids) < _MOST_IDS and run.case_id != case_id:
            ids[run.case_id] = None
        wanted = ((status, scored.status), (case_id, run.case_id), (profile, run.profile))
        if any(asked and asked != found for asked, found in wanted):
            continue
        found += 1
        if shown == limit:
            continue
        shown += 1
        if as_json:
            click.echo(msgspec.json.encode({"run": run, "scored": scored}))
        else:
            lines += run_lines(run, scored, with_trace=bool(case_id))
    if case_id and not found:
        under = f" under {profile!r}" if profile else ""
        ended = f" that ended {status}" if status else ""
        meant = did_you_mean(case_id, ids) or next((f". Did you mean {id!r}?" for id in ids if case_id in id), "")
        raise usage_error("no_run", f"there is no run of the case {case_id!r}{under}{ended} in {path.name}{meant}")
    if found > shown and not as_json:
        lines.append((f"… and {found - shown} more; --limit shows more", "dim"))
    print_lines(lines)
    return 0


def _facts(path: Path, batch: Batch) -> Iterator[Line]:
    yield f"batch     {batch.id}   {path.as_posix()}", "bold"
    yield f"target    {printable(batch.target)}", ""
    datasets = ", ".join(f"{one.path} ({one.dialect})" for one in batch.datasets)
    yield f"datasets  {printable(datasets)}", ""
    named = [f"{one.name} ({batch.models.get(one.run) or one.run or 'no llm'})" for one in batch.profiles]
    yield f"profiles  {printable(', '.join(named))}", ""
    ended = f"finished {batch.finished_at}" if batch.finished_at else "unfinished: 'evalloom run … --resume' goes on"
    yield f"times     began {batch.created_at}, {ended}", ""
    yield "", ""


@command.command("rm")
@click.argument("names", metavar="BATCH…", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
def rm_command(names: tuple[str, ...], yes: bool) -> int:
    """Remove batches with everything in them."""
    paths = list(dict.fromkeys(find(name) for name in names))
    for path in paths:
        if path.resolve().parent != FOLDER.resolve():
            # Another folder may hold a batch.json of its own, and much that is no batch.
            raise usage_error("no_batch", f"{path.as_posix()}: expected a batch in {FOLDER.as_posix()}")
        if is_in_use(path):
            raise EvalloomError("batch_in_use", f"{path.as_posix()}: another process is writing this batch")
    if not yes:
        click.confirm(f"Remove {pluralize(len(paths), 'batch').replace('batchs', 'batches')}?", abort=True)
    for path in paths:
        remove(path)
        click.echo(f"removed {path.as_posix()}")
    return 0
