"""The `evalloom` command: runs a command, and reports an error in one line."""

from __future__ import annotations

import errno
import gc
from collections.abc import Sequence

import click

from evalloom import __version__, catalog
from evalloom.cli.commands import OPTIONS, commands, help_text
from evalloom.console.process import end_at_once, skip_cleanup
from evalloom.console.streams import READER_GONE, finish
from evalloom.core import command_line
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.text import did_you_mean
from evalloom.engine.packages import package_in

_LEAST_OPEN_FILES = 32
"""Twice what a run without a server has open."""
_ALLOW_MORE = "Allow more with 'ulimit -n 1024'"
_SIGNS_OF_NO_MEMORY = ("can't start new thread", "failed to map segment from shared object")
_NEED_LESS = "What is stored stays, and --resume continues. Free memory, or pass a lower --concurrency"


class _Commands(click.Group):
    """Imports a command only when it is called, so that each starts fast."""

    def get_help(self, ctx: click.Context) -> str:
        return help_text(ctx.command_path)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = commands().get(cmd_name)
        try:
            return command.load() if command else None
        finally:
            # __main__.py has turned it off. What is imported so far stays until the end, so no collection, not even
            # the last one, needs to look at it.
            if not gc.isenabled():
                # Looking for cycles after every 700 objects, the default, takes 7 % of a run and finds hardly any.
                gc.set_threshold(10_000, 20, 20)
                gc.freeze()
                gc.enable()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in commands() and not args[0].startswith("-"):
            hint = did_you_mean(args[0], commands()) or f". Commands: {', '.join(commands())}."
            raise click.UsageError(f"there is no command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="evalloom %(version)s")
@click.option("--debug", is_flag=True, help=OPTIONS["--debug"])
def main(debug: bool) -> None:
    """Test prompts, LLM pipelines, LLM functions, context recipes and RAG systems."""


def run(arguments: Sequence[str], command: click.Command = main, name: str = "evalloom") -> int:
    """Run a command and return its exit code; an error is one line on stderr."""
    command_line.remember([name, *arguments])
    return finish(_run(arguments, command, name), name)


def _run(arguments: Sequence[str], command: click.Command, name: str) -> int:
    for failure in catalog.load().failures:
        message = f"the system {failure.name!r} is left out: {failure.reason}"
        click.echo(_without_keys(f"{name}: warning: {message} [system_failed]"), err=True)
    try:
        _require_open_files()
        if command is main:  # the commands that people knew before evalloom take the last one, as they always did
            _refuse_repeated(main, list(arguments))
        result = command.main(list(arguments), prog_name=name, standalone_mode=False, obj=catalog.load())
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except EvalloomError as error:
        click.echo(_without_keys(f"{name}: {error}"), err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo(f"{name}: interrupted", err=True)
        end_at_once()
        return 3
    except SystemExit as error:
        # click ends like this when the reader of our output is gone.
        return READER_GONE if isinstance(error.__context__, BrokenPipeError) else 3
    except Exception as error:  # a bug of ours: the user gets a line, not a traceback
        if isinstance(error, OSError) and (code := _code_of(error, name)):
            return code
        if isinstance(error, MemoryError) or any(sign in str(error) for sign in _SIGNS_OF_NO_MEMORY):
            skip_cleanup()
            click.echo(f"{name}: out of memory. {_NEED_LESS} [out_of_memory]", err=True)
            return 3
        if "--debug" in arguments:
            from traceback import format_exc

            click.echo(_without_keys(format_exc()), err=True)
        package = package_in(error.__traceback__, catalog.load())
        culprit = f"in the package {package}" if package else "in evalloom"
        click.echo(_without_keys(f"{name}: this is a bug {culprit}: {type(error).__name__}: {error}"), err=True)
        click.echo("Run it again with 'evalloom --debug …' and report what it shows. [internal_error]", err=True)
        return 3


def _refuse_repeated(command: click.Command, arguments: list[str]) -> None:
    """Raise where an option of one value is given more than once: click takes the last one and says nothing."""
    # With its settings: click keeps the help option of the first context that asks for it.
    context = click.Context(command, **command.context_settings)
    try:
        _, rest, order = command.make_parser(context).parse_args(arguments)
    except click.ClickException:
        return  # it is raised again when the command is called
    options = [one for one in order if isinstance(one, click.Option)]
    for option in options:
        count = options.count(option)
        if count > 1 and not (option.multiple or option.is_flag or option.count):
            name = max(option.opts, key=len)
            raise usage_error("bad_option", f"{name}: expected one value, got {count}. Keep one of them")
    if isinstance(command, click.Group) and rest and (inner := command.get_command(context, rest[0])) is not None:
        _refuse_repeated(inner, rest[1:])


def _require_open_files() -> None:
    """Raise when so few files may be open that a run cannot even start: libuv would abort the process."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= limit < _LEAST_OPEN_FILES:
        message = f"expected at least {_LEAST_OPEN_FILES} open files to be allowed, got {limit}"
        raise EvalloomError("too_many_open_files", f"{message}. {_ALLOW_MORE}")


def _code_of(error: OSError, name: str) -> int:
    """Report an error of the system that ends a command, and return its exit code; 0 for one that is a bug of ours."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        click.echo(f"{name}: too many open files. {_ALLOW_MORE} [too_many_open_files]", err=True)
        return 3
    return finish(0, name)


def _without_keys(text: str) -> str:
    """Hide the API keys of the environment in a text: an error message may quote one."""
    from evalloom.settings import Settings, keys
    from evalloom.settings import load as load_settings
    from evalloom.settings import secrets as secrets_of

    try:
        settings = load_settings()
    except Exception:  # keys are hidden also when the settings are broken
        settings = Settings()
    return keys.hidden(text, secrets_of(settings))
