"""The `evalloom` command: finds the command that was asked for, and turns what goes wrong into one line."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from traceback import format_exc

import click

from evalloom import __version__, catalog
from evalloom.core.errors import EvalloomError
from evalloom.core.text import did_you_mean
from evalloom.engine.packages import package_in
from evalloom.engine.system import Command


def _own(name: str, summary: str) -> Command:
    """A command of the engine: the module of its name here."""

    def load() -> click.Command:
        command: click.Command = import_module(f"evalloom.cli.{name}").command
        return command

    return Command(name, summary, load)


def _demo() -> click.Command:
    from evalloom.demo.command import command

    return command


RUNNING = (
    _own("run", "Run cases against a target, score them and store the batch."),
    _own("score", "Score a batch again without running it."),
    _own("compare", "Compare a batch with a baseline and report regressions."),
    _own("baseline", "Save, list, show and remove baselines."),
    _own("batches", "List, show and remove batches."),
)
FILES = (
    _own("validate", "Check test files for errors before a run."),
    _own("convert", "Convert test cases to another format."),
    _own("inspect", "Show the dialect, cases, tags and fields of a file."),
    _own("schema", "Print the JSON Schema of a format or of evalloom.yaml."),
    Command("demo", "Run, validate and convert the bundled examples.", _demo),
    _own("init", "Create a small suite to start from."),
    _own("doctor", "Check settings, API keys, endpoints and versions."),
)


@cache
def commands() -> dict[str, Command]:
    """Every command by its name, in the order of the help: those of the systems stand between the engine's."""
    return {command.name: command for command in (*RUNNING, *catalog.load().commands, *FILES)}


class _Commands(click.Group):
    """Imports a command only when it is called, so that each starts fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = commands().get(cmd_name)
        return command.load() if command else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(command.name, command.summary) for command in commands().values()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in commands() and not args[0].startswith("-"):
            hint = did_you_mean(args[0], commands()) or f". Commands: {', '.join(commands())}."
            raise click.UsageError(f"there is no command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="evalloom %(version)s")
@click.option("--debug", is_flag=True, help="Show a traceback for internal errors.")
def main(debug: bool) -> None:
    """Test prompts, LLM pipelines, LLM functions, context recipes and RAG systems.

    \b
    evalloom demo                        run the bundled examples
    evalloom validate cases.jsonl        check a test file for errors
    evalloom run cases.jsonl --target prompt:prompt.md --profile echo
    evalloom batches show latest         show the runs of the last batch

    Exit codes: 0 success; 1 cases failed; 2 wrong usage or invalid data; 3 could not finish.
    """


def run(arguments: Sequence[str], command: click.Command = main, name: str = "evalloom") -> int:
    """Runs a command and gives its exit code; what goes wrong becomes one line on stderr."""
    for failure in catalog.load().failures:
        message = f"the system {failure.name!r} is left out: {failure.reason}"
        click.echo(_without_keys(f"{name}: warning: {message} [system_failed]"), err=True)
    try:
        result = command.main(list(arguments), prog_name=name, standalone_mode=False, obj=catalog.load())
        return result if isinstance(result, int) else 0
    except click.ClickException as fault:
        fault.show()
        return fault.exit_code
    except EvalloomError as fault:
        click.echo(_without_keys(f"{name}: {fault}"), err=True)
        return fault.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo(f"{name}: interrupted", err=True)
        return 3
    except SystemExit:
        # How click ends when the reader of our output has gone; there is nobody left to tell.
        return 3
    except Exception as fault:  # a bug of ours: the user gets a line, not a traceback
        if "--debug" in arguments:
            click.echo(_without_keys(format_exc()), err=True)
        package = package_in(fault.__traceback__, catalog.load())
        culprit = f"in the package {package}" if package else "in evalloom"
        click.echo(_without_keys(f"{name}: this is a bug {culprit}: {type(fault).__name__}: {fault}"), err=True)
        click.echo("Run it again with 'evalloom --debug …' and report what it shows. [internal_error]", err=True)
        return 3


def _without_keys(text: str) -> str:
    """A text without the keys of the environment: whatever goes wrong may quote one."""
    from evalloom.settings import Settings, keys
    from evalloom.settings import load as load_settings
    from evalloom.settings import secrets as secrets_of

    try:
        settings = load_settings()
    except Exception:  # the text must come out without keys, whatever is wrong with the settings
        settings = Settings()
    return keys.hidden(text, secrets_of(settings))
