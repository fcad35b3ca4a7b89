"""`evalloom` and `python -m evalloom`: answers `--version` and `--help` at once, leaves the rest to cli/app.py."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress

from evalloom import __version__
from evalloom.console.streams import finish, open_standard_streams


def main() -> None:
    """The entry point. `--version` and `--help` import nothing they do not need."""
    # Imports make no garbage: looking for it would take 4 % of a short run. cli/app.py turns it on again.
    gc.disable()
    open_standard_streams()
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        sys.exit(_answer(f"evalloom {__version__}"))
    if arguments in (["--help"], ["-h"]) and (text := _help()):
        sys.exit(_answer(text))
    from evalloom.cli import app
    from evalloom.console.process import run_process

    run_process(lambda: app.run(arguments))


def _help() -> str:
    """Return the help, or nothing if there is a warning to print before it."""
    from evalloom import catalog
    from evalloom.cli.commands import help_text

    return "" if catalog.load().failures else help_text()


def _answer(text: str) -> int:
    # `finish` tells why it could not be written.
    with suppress(OSError):
        print(text)
    return finish(0, "evalloom")


if __name__ == "__main__":
    main()
