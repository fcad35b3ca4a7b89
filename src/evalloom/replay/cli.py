"""`evalloom replay`: builds the context for each dataset row, stores the records and reports drift."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from click.core import ParameterSource

from evalloom.console.catalog import current_catalog
from evalloom.console.layout import print_lines
from evalloom.console.options import FORCE, refuse_overwriting
from evalloom.core.errors import usage_error
from evalloom.core.text import printable
from evalloom.engine.outputs import refuse_replacing
from evalloom.files.write import atomic_writer, refuse_unwritable
from evalloom.pages.errors import RequestError
from evalloom.replay.cli_text import (
    ROWS_SHOWN,
    ComparisonView,
    collect_stats,
    comparison_lines,
    incomplete_notes,
    left_out_notes,
    list_lines,
    replay_lines,
    run_lines,
)
from evalloom.replay.compare import (
    Pair,
    RowComparison,
    build_comparison,
    compare_outcomes,
    compare_row,
    compare_rows,
)
from evalloom.replay.files import FileReplay, Side, find_replay, interrupted, left_out, load_sides, replay_files
from evalloom.replay.service import ReplayService, has_store
from evalloom.replay.store.database import FOLDER
from evalloom.settings import Settings, load

Command = TypeVar("Command", bound=Callable[..., Any])

_DATA_DIR = ".evalloom"
_WARNINGS_SHOWN = 10
_CHUNK = 1000
_NO_SETTINGS = Settings()
"""Enough to read stored replays, which contain no secrets."""


def _data_dir_option(command: Command) -> Command:
    return click.option(
        "--data-dir", default=_DATA_DIR, show_default=True, metavar="DIR", help="Folder of stored replays."
    )(command)


@click.group("replay", invoke_without_command=True)
@click.option("--project", metavar="FILE", help="The context recipe, as JSON.")
@click.option("--dataset", metavar="FILE", help="The rows: JSONL, a JSON array, CSV or YAML.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Replay at most N rows.")
@click.option("--offset", type=click.IntRange(0), default=0, metavar="N", help="Skip the first N rows.")
@click.option("--profile", default="", metavar="P", help="Also send each context to this profile or llm.")
@_data_dir_option
@click.option("--config", default="", metavar="FILE", help="Settings file. Default: ./evalloom.yaml.")
@click.option("--json", "as_json", is_flag=True, help="Print the runs as a JSON array of summaries.")
@click.option("-o", "--output", default="", metavar="FILE", help="Also write the full records as JSONL.")
@FORCE
@click.pass_context
def command(context: click.Context, /, **flags: Any) -> int:
    """Build the context for each dataset row from a recipe, and store a record of each.

    \b
    evalloom replay --project project.json --dataset rows.jsonl
    evalloom replay compare              compare the last two replays
    evalloom replay show RUN             show segments, variables and errors
    evalloom replay list                 list the replays

    Exit codes: 0 every row succeeded; 1 a row or a check failed; 2 wrong usage or an unreadable file; 3 could not
    finish.
    """
    if context.invoked_subcommand is not None:
        _refuse_flags(context)
        return 0
    for name in ("project", "dataset"):
        if not flags[name]:
            raise click.UsageError(f"--{name}: expected a file, got none", context)
    return _replay(**flags)


def _refuse_flags(context: click.Context) -> None:
    """Reject flags before a subcommand, which would be ignored silently."""
    for parameter in context.command.params:
        if parameter.name and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            message = f"{parameter.opts[0]}: does not go before {context.invoked_subcommand!r}; put its flags behind it"
            raise click.UsageError(message, context)


def _replay(
    project: str,
    dataset: str,
    limit: int | None,
    offset: int,
    profile: str,
    data_dir: str,
    config: str,
    as_json: bool,
    output: str,
    force: bool,
) -> int:
    if output:
        _check_output(Path(output), [Path(project), Path(dataset)], Path(data_dir) / FOLDER, force)
    # Resolvers read files next to the recipe, not in the working directory.
    settings = load(Path(config) if config else None, current_catalog().sections)
    with _open_service(data_dir, settings, Path(project).parent) as service:
        with _progress() as progress:
            result = replay_files(Path(project), dataset, service, limit, offset, profile, progress)
        try:
            _print_result(result, project, Path(output) if output else None, as_json, data_dir)
        except KeyboardInterrupt:
            raise interrupted(result.replay.replay_id, service) from None
    return int(result.replay.failed > 0 or result.replay.checks_failed > 0)


def _print_result(result: FileReplay, project: str, output: Path | None, as_json: bool, data_dir: str) -> None:
    """Print the result of a replay and write its records."""
    for warning in result.warnings[:_WARNINGS_SHOWN]:
        click.echo(printable(str(warning)), err=True)
    if len(result.warnings) > _WARNINGS_SHOWN:
        more = f"… and {len(result.warnings) - _WARNINGS_SHOWN:,} more warnings"
        click.echo(f"{more}; 'evalloom validate {printable(project)}' shows all", err=True)
    if output:
        encoder = msgspec.json.Encoder()
        with atomic_writer(output) as stream:
            for record in result.records():
                stream.write(encoder.encode(record) + b"\n")
    if as_json:
        _print_array(result.summaries())
    else:
        print_lines(replay_lines(result.replay, collect_stats(result.records()), _data_dir_shown(data_dir)))


def _check_output(output: Path, inputs: list[Path], store: Path, force: bool) -> None:
    """Reject an output file that cannot be written or would overwrite an input or the store."""
    refuse_overwriting([output], inputs)
    if output.is_dir():
        raise usage_error("is_directory", f"-o {output}: expected a file, got a folder")
    if output.resolve().is_relative_to(store.resolve()):
        raise usage_error("would_overwrite", f"-o {output}: that folder is the store of the records. Name another one")
    refuse_replacing([output], force)
    refuse_unwritable(output)


@contextmanager
def _existing_service(data_dir: str) -> Iterator[Callable[[], ReplayService]]:
    """Open the service on first use, so that a command that only reads creates no folder."""
    with ExitStack() as opened:

        @cache
        def service() -> ReplayService:
            if not has_store(Path(data_dir)):
                message = f"there is no replay in {data_dir} yet. 'evalloom replay' makes one"
                raise usage_error("replay_not_found", message)
            return opened.enter_context(_open_service(data_dir))

        yield service


@contextmanager
def _open_service(
    data_dir: str, settings: Settings = _NO_SETTINGS, files: Path | None = None
) -> Iterator[ReplayService]:
    """Open the service on a data folder; report its request errors as usage errors."""
    service = ReplayService(Path(data_dir), settings, files)
    try:
        yield service
    except RequestError as error:
        raise usage_error(error.code, error.message) from None
    finally:
        service.close()


@contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """Show the number of finished rows, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    yield lambda done: click.echo(f"\r\x1b[2K{done:,} rows", nl=False, err=True)
    click.echo("\r\x1b[2K", nl=False, err=True)


def _print_array(items: Iterable[Any]) -> None:
    """Stream a JSON array, which may have hundreds of thousands of rows."""
    encode, rest = msgspec.json.Encoder().encode, iter(items)
    before = b"["
    # Each echo is one write, so write many rows at once.
    while some := list(islice(rest, _CHUNK)):
        click.echo(before + b",\n".join(map(encode, some)), nl=False)
        before = b",\n"
    click.echo(b"]" if before != b"[" else b"[]")


def _data_dir_shown(data_dir: str) -> str:
    """Return the data folder for the next command, empty if it is the default."""
    return "" if data_dir == _DATA_DIR else data_dir


# -- stored replays -------------------------------------------------------------------------------------


@command.command("compare")
@click.argument("a", default="")
@click.argument("b", default="latest")
@_data_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every row that is not stable.")
def compare_command(a: str, b: str, data_dir: str, as_json: bool) -> int:
    """Compare two replays row by row: stable, drift, new or gone.

    A and B are replay ids, prefixes of ids, 'latest', 'previous', or files that -o wrote. B defaults to the
    latest replay; without A and B, the last two complete replays of the same rows are compared. 'previous' is complete
    too: an interrupted replay is compared only if it is named, or is the latest.

    Exit codes: 0 all rows are stable; 1 some are not; 2 wrong usage or nothing to compare.
    """
    with _existing_service(data_dir) as service:
        sides = load_sides(a, b, service)
        names, states = (sides[0].name, sides[1].name), (sides[0].state, sides[1].state)
        passed_over = left_out(a, b, sides, service)
        ids = [replay.replay_id for replay in passed_over]
        pairs = compare_rows(*(side.summaries() for side in sides))
        rows = {word: [pair for pair in pairs if pair.status == word] for word in ("stable", "drift", "new", "gone")}
        outcomes = compare_outcomes(*(side.outcomes() for side in sides))
        if as_json:
            head = build_comparison(names, pairs, outcomes, [], states, ids)
            # `rows` is the last field, so the array can be streamed.
            click.echo(msgspec.json.encode(head).removesuffix(b"[]}"), nl=False)
            _print_array(_row(pair, *sides) for pair in pairs if pair.status != "stable")
            click.echo("}")
        else:
            shown = [_row(pair, *sides) for pair in rows["drift"][:ROWS_SHOWN]]
            new, gone = ([pair.row_index for pair in rows[word]] for word in ("new", "gone"))
            result = build_comparison(names, pairs, outcomes, shown, states, ids)
            what = sides[0].what, sides[1].what
            incomplete = [side.summary for side in sides if side.summary and side.state != "complete"]
            notes = *incomplete_notes(incomplete), *left_out_notes(passed_over)
            view = ComparisonView(result, what, new, gone, outcomes, notes, _data_dir_shown(data_dir))
            print_lines(comparison_lines(view))
    return int(len(rows["stable"]) < len(pairs))


def _row(pair: Pair, a: Side, b: Side) -> RowComparison:
    if pair.status != "drift":
        return compare_row(pair)
    return compare_row(pair, a.record(pair.row_index), b.record(pair.row_index))


@command.command("list")
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="List at most N replays."
)
@_data_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def list_command(limit: int, data_dir: str, as_json: bool) -> int:
    """List the replays, newest first."""
    with _existing_service(data_dir) as service:
        replays = service().replays(limit=limit) if has_store(Path(data_dir)) else []
        if as_json:
            _print_array(replays)
        else:
            print_lines(list_lines(replays))
    return 0


@command.command("show")
@click.argument("run")
@_data_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print the stored record.")
def show_command(run: str, data_dir: str, as_json: bool) -> int:
    """Show one run: its segments, variables and errors.

    RUN is the id of a run, or a row of a replay: 17 or 'latest-17' of the last one, 'previous-17' of the one before.
    """
    with _existing_service(data_dir) as service:
        record = service().run(_run_id(run, service()))
        if as_json:
            click.echo(msgspec.json.encode(record))
        else:
            print_lines(run_lines(record))
    return 0


def _run_id(run: str, service: ReplayService) -> str:
    word, _, row = run.rpartition("-")
    if not row.isdecimal():
        message = f"{run!r} is not a run. Name its row, such as 17 or latest-17, or its id from 'evalloom replay list'"
        raise usage_error("run_not_found", message)
    return f"{find_replay(word or 'latest', service)}-{row}"
