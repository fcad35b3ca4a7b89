"""`evalloom run`: run cases against a target, score them, log them and print the results."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from evalloom.batchlog import FOLDER
from evalloom.console.catalog import current_catalog
from evalloom.console.github import tell_github_results
from evalloom.console.layout import Line, print_lines
from evalloom.console.options import reading_options, refuse_overwriting
from evalloom.console.outcome import (
    Hide,
    exit_code,
    print_failed_gates,
    print_problem,
    printing_findings,
    summary_json,
    warn,
)
from evalloom.console.progress import showing
from evalloom.console.run_options import question_of, refuse_conflicts, run_options, settings_of
from evalloom.console.run_text import dry_run_lines, result_lines
from evalloom.core.errors import EvalloomError
from evalloom.core.text import pluralize
from evalloom.data.mapping import parse_mapping
from evalloom.engine.evaluate import Live, evaluate
from evalloom.engine.outputs import (
    Outputs,
    claim,
    refuse_claimed,
    refuse_replacing_results,
    reporters_for,
    write_outputs,
)
from evalloom.engine.plan import Plan, Reading
from evalloom.engine.prepare import RunRequest, prepare
from evalloom.engine.results import Results
from evalloom.engine.resume import Resume, resumed_batch
from evalloom.engine.system import Catalog
from evalloom.files.write import refuse_unwritable
from evalloom.settings import keys
from evalloom.settings import secrets as secrets_of


@click.command("run")
@click.argument("datasets", metavar="[DATASET]…", nargs=-1)
@run_options
@reading_options
def command(datasets: tuple[str, ...], **flags: Any) -> int:
    """Run cases against a target, score them and store the batch.

    DATASET and --target default to those in evalloom.yaml. Two profiles need no API key: echo answers with the prompt,
    scripted:FILE with the rules of a file.

    \b
    evalloom run cases.jsonl --target prompt:prompt.md --profile echo
    evalloom run cases.jsonl --target python:my_module:answer -o results.csv
    evalloom run --resume                       continue the newest batch

    Exit codes: 0 success; 1 a case or a gate failed; 2 wrong usage or invalid data; 3 could not finish, an expectation
    could not be scored, or nothing is expected.
    """
    refuse_conflicts(datasets, flags)
    request = request_from(datasets, flags)
    resume = Resume(flags["resume"], flags["resume_from"], flags["retry_errors"])
    run = RunCommand(request, current_catalog(), flags["as_json"], flags["force"], language=flags["language"])
    if flags["dry_run"]:
        return run.dry_run(resume)
    if flags["watch"]:
        return run.watch(resume)
    code = run.once(resume)
    run.tell_github()
    return code


def request_from(datasets: tuple[str, ...], flags: dict[str, Any]) -> RunRequest:
    return RunRequest(
        datasets,
        flags["config"],
        _target(flags["target"]),
        flags["judge"],
        flags["record"],
        flags["replay"],
        settings_of(flags),
        Reading(flags["dialect"], parse_mapping(flags["mapping"]), flags["encoding"]),
        question=question_of(flags),
    )


def _target(written: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """Return the only target, or several; other commands have one target of their own."""
    return written[0] if isinstance(written, tuple) and len(written) == 1 else written or ""


class RunCommand:
    """Runs a request, once or after each change.

    `more_outputs` returns files to write in addition to those of `-o`, and `next_step` the command to suggest, both
    for the id of a batch. `more_lines` returns lines to print below the table.
    """

    def __init__(
        self,
        request: RunRequest,
        catalog: Catalog,
        as_json: bool,
        force: bool = False,
        more_outputs: Callable[[str], Outputs] = lambda batch: [],
        next_step: Callable[[str], str] = lambda batch: "",
        more_lines: Callable[[], Iterable[Line]] = lambda: (),
        language: str = "en",
    ) -> None:
        self._request = request
        self._catalog = catalog
        self._as_json = as_json
        self._force = force
        self._more_outputs = more_outputs
        self._next_step = next_step
        self._more_lines = more_lines
        self._language = language
        self._last: Results | None = None
        self._hide: Hide = str

    def dry_run(self, resume: Resume) -> int:
        """Print what would run, and run nothing."""
        from evalloom.engine.dry_run import dry_run

        plan = prepare(self._request, self._catalog)
        with printing_findings():
            result = dry_run(plan, resume)
        if self._as_json:
            click.echo(msgspec.json.encode(result))
        else:
            print_lines(dry_run_lines(result))
        return 0

    def once(self, resume: Resume) -> int:
        """Run the request, write its outputs and print the results; return the exit code."""
        plan = prepare(self._request, self._catalog)
        outputs = reporters_for(plan.options.output, self._catalog.reporters)
        plan = self._check_outputs(plan, outputs, resume)
        live = Live()
        with showing(live, is_quiet=self._as_json), printing_findings():
            if self._last is None and plan.survey.cases:
                # The plan keeps the records of a config until the batch ends. Looking at 10,000 of them again and
                # again took the cycle collector about 4 % of the processor time of a run.
                gc.freeze()
            results = evaluate(plan, live, resume, warn)
        self._last = results
        try:
            # Before anything is printed, because the pipe that reads the output may close.
            written = [*outputs, *self._more_outputs(results.path.name)]
            write_outputs(results, written, self._catalog, self._language)
        finally:
            self._print(plan, results)
        return exit_code(results, plan.options.fail_under)

    def _check_outputs(self, plan: Plan, outputs: Outputs, resume: Resume) -> Plan:
        """Raise if an output cannot be written or would replace what is not ours, before a call is paid for."""
        # A file that is named after the batch is not there yet, or is its own.
        others = {path for path, _ in self._more_outputs("another")}
        results = [*outputs, *((path, reporter) for path, reporter in self._more_outputs("") if path in others)]
        for path in others:
            refuse_unwritable(path)
        paths = [path for path, _ in results]
        written = [*paths, *(Path(name) for name in [plan.record] if name)]
        if not written:
            return plan
        from evalloom.engine.watch import watched_files

        refuse_overwriting(written, [*watched_files(plan), *(Path(name) for name in [plan.replay] if name)])
        # With --watch, this command itself wrote the files that are there the second time.
        force = self._force or self._last is not None
        has_results = any(map(os.path.isfile, paths))
        refuse_replacing_results(results, force, resumed_batch(plan, resume) if has_results else None)
        if not force:
            refuse_claimed(paths, plan.home / FOLDER)
        return claim(plan, paths)

    def watch(self, resume: Resume) -> int:
        """Run, and run again what a change affects, until Ctrl-C; return the exit code of the last run."""
        from evalloom.engine.watch import changes

        code = 0
        try:
            for files in changes(lambda: prepare(self._request, self._catalog)):
                try:
                    code = self.once(resume)
                except EvalloomError as error:
                    click.echo(f"evalloom: {error}", err=True)
                    code = error.exit_code
                if self._last is not None:
                    if self._last.stopped == "interrupted":
                        return code
                    # Runs that a change does not affect are reused; errors are tried again.
                    resume = Resume(source=str(self._last.path), retry_errors=True)
                click.echo(f"Watching {pluralize(files, 'file')} for changes. Ctrl-C ends", err=True)
        except KeyboardInterrupt:
            pass
        return code

    def tell_github(self) -> None:
        """Report the last run to GitHub Actions, if this is a job of it."""
        if self._last is not None:
            tell_github_results(self._last, self._catalog, self._language, self._as_json, self._hide)

    def _print(self, plan: Plan, results: Results) -> None:
        secrets = [*secrets_of(plan.settings), *plan.target.secrets]
        self._hide = hide = partial(keys.hidden, secrets=secrets)
        if self._as_json:
            click.echo(summary_json(results, hide))
            print_failed_gates(results, hide)
        else:
            next_step = self._next_step(results.path.name)
            lines = result_lines(results, next_step, self._more_lines(), plan.options.fail_under)
            print_lines(lines, hide=hide)
        print_problem(results.problem, hide)
