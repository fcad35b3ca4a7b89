"""`evalloom` and `python -m evalloom`: answers `--version` and `--help` at once, leaves the rest to cli/app.py."""

from __future__ import annotations

import gc
import os
import sys

from evalloom import __version__


def main() -> None:
    """The entry point. `--version` and `--help` import nothing they do not need."""
    # Imports make no garbage: looking for it would take 4 % of a short run. cli/app.py turns it on again.
    gc.disable()
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print(f"evalloom {__version__}")
        return
    if arguments in (["--help"], ["-h"]) and _print_help():
        return
    from evalloom.cli import app
    from evalloom.console.process import run_process

    run_process(lambda: app.run(arguments))


def _print_help() -> bool:
    """Print the help, unless there is a warning to print before it."""
    from evalloom import catalog
    from evalloom.cli.commands import help_text

    if catalog.load().failures:
        return False
    try:
        print(help_text(), flush=True)
    except BrokenPipeError:
        # The reader is gone. Python would report that again when it flushes stdout at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(3)
    return True


if __name__ == "__main__":
    main()
