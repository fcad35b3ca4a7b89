"""`batchhoptest`: runs a HOP task on its cases under all profiles, with its established flags (HOP-4)."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from itertools import takewhile
from typing import IO, Any

import click

from evalloom.cli import app
from evalloom.cli.run import RunCommand, request_from
from evalloom.console.catalog import current_catalog
from evalloom.console.layout import Line
from evalloom.console.process import run_process
from evalloom.console.run_options import engine_options, parted, refuse_conflicts
from evalloom.console.streams import open_standard_streams
from evalloom.core.errors import usage_error
from evalloom.engine.resume import Resume
from evalloom.hop import report as hop_results
from evalloom.hop.task import find_task
from evalloom.reports.run_report import RunReport, encode

TOOL = "batchhoptest"


class _ResultFile:
    """Writes the result file, and counts what `evalloom stats` counts in it."""

    name, suffix = hop_results.name, hop_results.suffix
    why_not_replace = staticmethod(hop_results.why_not_replace)

    def __init__(self, is_view: bool = False) -> None:
        self._is_view = is_view
        self._rows = self._completed = self._retries = 0

    def render(self, report: RunReport, stream: IO[bytes]) -> None:
        for row in hop_results.rows(report, self._is_view):
            stream.write(encode(row) + b"\n")
            if stats := row.get("hop_stats"):
                self._rows += 1
                self._completed += stats["status"] == "OK"
                self._retries += stats["retry_count"]

    def lines(self) -> Iterator[Line]:
        if self._rows:
            rate, mean = self._completed / self._rows, self._retries / self._rows
            retries = "1 retry" if self._retries == 1 else f"{self._retries:,} retries"
            completed = f"{self._completed:,} of {self._rows:,} completed ({rate:.1%})"
            yield f"{completed}; {retries} after verification, {mean:.2f} per result", ""


class _Command(click.Command):
    """Takes `--profiles p1 p2` as well as `--profiles p1,p2`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, join_profiles(args))


def join_profiles(args: list[str]) -> list[str]:
    """Join the values after `--profiles` with commas, so that click sees one."""
    place = next((at for at, arg in enumerate(args) if arg.split("=")[0] == "--profiles"), None)
    if place is None:
        return args
    flag, _, first = args[place].partition("=")
    names = [*takewhile(lambda arg: not arg.startswith("-"), args[place + 1 :])]
    rest = join_profiles(args[place + 1 + len(names) :])
    return [*args[:place], flag, ",".join([*filter(None, [first]), *names]), *rest] if first or names else args


@click.command(TOOL, cls=_Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--task", required=True, help="Task folder with Hoplet/Hop.py and TestCases/, or module:function.")
@click.option("--data", default="", metavar="FILE", help="Case file. Default: the only one in TestCases/.")
@click.option("--workers", type=click.IntRange(1), default=5, show_default=True, metavar="N", help="Concurrent runs.")
@click.option("--profiles", multiple=True, metavar="P…", help="Profiles, separated by spaces or commas. Default: all.")
@click.option(
    "--settings", "config", default="", metavar="FILE", help="Settings file. Default: settings.yaml of the task."
)
@click.option("--out", default="", metavar="FILE", help="Result file. Default: a new file in TestCases/.")
@click.option(
    "--wrapper",
    type=click.Choice(["flat", "view"]),
    default="flat",
    show_default=True,
    help="Format of the result file: flat rows, or the input and the result of each case, as the page writes it.",
)
@engine_options
def command(task: str, data: str, config: str, out: str, wrapper: str, **flags: Any) -> int:
    """Run a hoplet on its cases under several profiles, and write a result file.

    Settings come from settings.yaml or evalloom.yaml in the folder of the task or in a parent folder.

    \b
    batchhoptest --task examples/hop
    batchhoptest --task examples/hop --profiles careful hasty --out results.jsonl
    batchhoptest --task my_module:check_hop --data cases.jsonl
    batchhoptest --task examples/hop --resume          continue a stopped run

    Exit codes: 0 success; 1 a case failed; 2 wrong usage or invalid data; 3 could not finish.
    """
    hop_task = find_task(task, data, config, out)
    # Its `--workers` is the number of concurrent runs; `--executor dask` without a scheduler starts one per core.
    flags |= {"concurrency": flags.pop("workers"), "repeat": None, "variants": (), "watch": False}
    flags |= {"config": hop_task.config, "target": hop_task.target, "dialect": "hop", "mapping": "", "encoding": ""}
    if flags["profiles"] and not any(map(parted, flags["profiles"])):
        raise usage_error("bad_option", "--profiles: expected names of profiles, got none")
    flags["profiles"] = flags["profiles"] or hop_task.profiles(current_catalog().sections)
    refuse_conflicts((data,), flags)
    result_file = _ResultFile(wrapper == "view")
    run = RunCommand(
        request_from((str(hop_task.data),), flags),
        current_catalog(),
        flags["as_json"],
        flags["force"],
        more_outputs=lambda batch: [(hop_task.results(batch), result_file)],
        next_step=lambda batch: f"evalloom stats {shlex.quote(hop_task.results(batch).as_posix())}",
        more_lines=result_file.lines,
    )
    resume = Resume(flags["resume"], flags["resume_from"], flags["retry_errors"])
    return run.dry_run(resume) if flags["dry_run"] else run.once(resume)


def main() -> None:
    """Run the tool."""
    open_standard_streams()
    run_process(lambda: app.run(sys.argv[1:], command, TOOL))


if __name__ == "__main__":
    main()
