"""`evalloom batches`: lists, shows, repairs and removes batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from evalloom.analysis.tally import STATUSES
from evalloom.batchlog import FOLDER, batches, find, is_in_use, manifest, remove
from evalloom.console.case_list import CaseFilter, ListedCase, Page, case_list_lines
from evalloom.console.catalog import current_catalog
from evalloom.console.layout import Line, command_lines, print_lines, table_lines
from evalloom.console.outcome import warn
from evalloom.console.run_text import batch_lines
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Batch, Case, Run
from evalloom.core.repeats import cases_of, count_of, meets
from evalloom.core.text import did_you_mean, percent, pluralize
from evalloom.engine.results import stored_runs

_MOST_IDS = 1000
"""Case ids among which a similar one is searched for."""


@click.group("batches")
def command() -> None:
    """List, show, repair and remove the batches in .evalloom/batches."""


@command.command("list")
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="List at most N batches."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per batch.")
def list_command(limit: int, as_json: bool) -> int:
    """List the batches, newest first."""
    rows: list[list[str]] = []
    for path, batch in batches(warn=warn):
        if len(rows) == limit:
            break
        if as_json:
            click.echo(msgspec.json.encode({"path": path.as_posix(), **msgspec.to_builtins(batch)}))
        rows.append(_row(path, batch))
    if not as_json:
        header = ["batch", "runs", "pass rate", "state", "target", "dataset", "profiles"]
        table = table_lines(header, rows, spare=("profiles", "dataset"), whole=("batch",))
        print_lines(table if rows else [("No batches yet. 'evalloom run' creates one.", "")])
    return 0


def _row(path: Path, batch: Batch) -> list[str]:
    rate = batch.summary.get("pass_rate")
    planned = f"of {batch.planned}" if batch.planned else "?"
    return [
        batch.id,
        str(batch.summary.get("total", planned)),
        percent(rate) if isinstance(rate, float) else "-",
        "done" if batch.finished_at else "running" if is_in_use(path) else "unfinished",
        batch.target,
        ", ".join(Path(dataset.path).name for dataset in batch.datasets),
        ", ".join(profile.name for profile in batch.profiles),
    ]


@command.command("show")
@click.argument("batch")
@click.option(
    "--status",
    type=click.Choice(STATUSES),
    metavar="STATUS",
    help=f"Show only runs that are {', '.join(STATUSES[:-1])} or {STATUSES[-1]}.",
)
@click.option(
    "--case",
    "case_id",
    default="",
    metavar="ID",
    help="Show only this case, by its id or its FILE:LINE: input, output, checks, steps and messages.",
)
@click.option("--profile", default="", metavar="P", help="Show only runs of this profile.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Show only cases with this tag. Repeatable.")
@click.option(
    "--search", default="", metavar="TEXT", help="Show only cases with this text in the record, the output or a reason."
)
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, metavar="N", help="Show N cases on a page."
)
@click.option("--page", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Show page N.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per run, with its trace.")
def show_command(
    batch: str,
    status: str | None,
    case_id: str,
    profile: str,
    tags: tuple[str, ...],
    search: str,
    limit: int,
    page: int,
    as_json: bool,
) -> int:
    """List the cases of a batch, or show one in full with --case.

    BATCH is an id, a prefix of one, or 'latest'.
    """
    path = find(batch)
    facts = manifest(path)
    selection = CaseFilter(status, case_id, profile, tags, search)
    shown = Page(page, limit)
    matching = 0
    cases: list[ListedCase] = []
    ids: dict[str, None] = {}
    lines: list[Line] = [] if as_json else list(_head_lines(path, facts))
    # A case is one entry with all its repeats, unless each run is asked for.
    each_run = as_json or bool(case_id)
    for group in cases_of(stored_runs(path, warn)):
        first = group[0][0]
        if case_id and len(ids) < _MOST_IDS and not selection.names(first):
            ids[first.case_id] = None
        if not (each_run or status) and meets(count_of(group), facts.options.get("pass_if")):
            # A case that passes by its rule is shown by a repeat that did.
            group.reverse()
        runs = [(run, scored) for run, scored in group if selection.includes(run, scored)]
        if case_id:
            runs.sort(key=lambda pair: pair[0].repeat)
        for run, scored in runs if each_run else runs[:1]:
            matching += 1
            if not shown.has(matching - 1):
                continue
            if as_json:
                click.echo(msgspec.json.encode({"run": run, "scored": scored}))
            elif case_id:
                from evalloom.console.case_text import case_lines

                lines += case_lines(run, scored, _case_of(run, facts), len(group))
            else:
                cases.append(ListedCase(run, scored, count_of(group)))
    if case_id and not matching:
        which = f" {selection}" if str(selection) else ""
        meant = did_you_mean(case_id, ids) or next((f". Did you mean {id!r}?" for id in ids if case_id in id), "")
        raise usage_error("no_run", f"there is no run of the case {case_id!r}{which} in {path.name}{meant}")
    if matching and (page - 1) * limit >= matching:
        pages = -(-matching // limit)
        raise usage_error("bad_option", f"--page: expected a page from 1 to {pages}, got {page}")
    if not (as_json or case_id):
        lines += case_list_lines(cases, matching, shown, facts, selection)
    elif matching > page * limit and not as_json:
        lines.append((f"… and {matching - page * limit:,} more: --page {page + 1}", "dim"))
    print_lines(lines)
    return 0


def _case_of(run: Run, batch: Batch) -> Case | None:
    """Return the case of a stored run, or None if its record gives none."""
    # Deferred: a list of runs needs no dialects.
    from evalloom.engine.plan import CHECK_LISTS
    from evalloom.engine.resume import DamagedRun, case_of

    try:
        return case_of(run, current_catalog().formats, batch.options.get(CHECK_LISTS, "plain"))
    except DamagedRun:
        return None


def _head_lines(path: Path, batch: Batch) -> Iterator[Line]:
    yield f"batch     {batch.id}   {path.as_posix()}", "bold"
    yield from batch_lines(batch)
    end = f"finished {batch.finished_at}" if batch.finished_at else "unfinished: 'evalloom run … --resume' continues it"
    yield f"times     started {batch.created_at}, {end}", ""
    yield "", ""


@command.command("repair")
@click.argument("batch")
def repair_command(batch: str) -> int:
    """Rebuild a damaged batch.json from the runs of its batch.

    What is still readable in it is kept. The damaged file stays as batch.json.damaged.
    """
    from evalloom.engine.repair import DAMAGED, repair

    path = find(batch)
    done = repair(path, warn)
    if done is None:
        click.echo(f"{path.as_posix()}: the manifest is readable, so there is nothing to repair")
        for _ in stored_runs(path, warn):
            pass  # what the log lost is known when all runs were read
        return 0
    lines: list[Line] = [(f"rebuilt   {path.as_posix()}/batch.json from {pluralize(done.runs, 'run')}", "bold")]
    lines += [
        (f"{word}  {', '.join(names)}", "")
        for word, names in (("kept    ", done.kept), ("from runs", done.rebuilt))
        if names
    ]
    for name, consequence in done.lost.items():
        if consequence:
            lines.append((f"lost      {name}: {consequence}", "yellow"))
    if others := [name for name, consequence in done.lost.items() if not consequence]:
        lines.append((f"lost      {', '.join(others)}", "yellow"))
    if (path / DAMAGED).exists():
        lines.append((f"The damaged file is kept as {DAMAGED}", "dim"))
    lines += list(command_lines(f"evalloom batches show {path.name}", "Next: "))
    print_lines(lines)
    return 0


@command.command("rm")
@click.argument("names", metavar="BATCH…", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def rm_command(names: tuple[str, ...], yes: bool) -> int:
    """Remove batches and all their files."""
    paths = list(dict.fromkeys(find(name) for name in names))
    for path in paths:
        if path.resolve().parent != FOLDER.resolve():
            # Another folder may contain a batch.json, and other files that must not be removed.
            raise usage_error("no_batch", f"{path.as_posix()}: expected a batch in {FOLDER.as_posix()}")
        if is_in_use(path):
            raise EvalloomError("batch_in_use", f"{path.as_posix()}: another process is writing this batch")
    if not yes:
        click.confirm(f"Remove {pluralize(len(paths), 'batch').replace('batchs', 'batches')}?", abort=True)
    for path in paths:
        remove(path)
        click.echo(f"removed {path.as_posix()}")
    return 0
