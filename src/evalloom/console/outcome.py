"""How a command tells what went wrong: warnings, the findings of invalid data, and the exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from evalloom.engine.results import Results


def warn(message: str) -> None:
    click.echo(f"evalloom: warning: {message}", err=True)


@contextmanager
def printing_findings() -> Iterator[None]:
    """Prints the findings of invalid data line by line, before the error that ends the command."""
    # Deferred: commands that only read what is stored warn too, and need nothing of this.
    from evalloom.console.options import print_findings
    from evalloom.engine.evaluate import InvalidData

    try:
        yield
    except InvalidData as error:
        print_findings(error.report, to_stderr=True)
        raise


def exit_code(results: Results, fail_under: float | None) -> int:
    """0 good, 1 a case or a gate failed, 3 could not finish, or could score nothing of what is expected."""
    if results.stopped or results.could_not_score:
        return 3
    if not all(gate.holds for gate in results.gates):
        return 1
    if fail_under is not None:
        # Rounded as in a gate: the mean of the shares 0.1 and 0.7 is 0.39999999999999997.
        return int(results.pass_rate is None or round(results.pass_rate, 9) < fail_under)
    return int(bool(results.summary.failing))
