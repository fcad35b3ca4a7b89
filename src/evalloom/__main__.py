"""`evalloom` and `python -m evalloom`: answers `--version` at once, leaves the rest to the command line."""

from __future__ import annotations

import sys

from evalloom import __version__


def main() -> None:
    """The entry point. Imports nothing it does not need: `--version` must take no longer than Python itself."""
    if sys.argv[1:] == ["--version"]:
        print(f"evalloom {__version__}")
        return
    from evalloom.cli import app

    sys.exit(app.run(sys.argv[1:]))


if __name__ == "__main__":
    main()
