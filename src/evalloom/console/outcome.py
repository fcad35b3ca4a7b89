"""How a command tells what went wrong: warnings, the findings of invalid data, and the exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
import msgspec

from evalloom.core.text import one_line

if TYPE_CHECKING:
    from evalloom.engine.results import BatchProblem, Results

Hide = Callable[[str], str]
"""Replaces secrets in a text."""
_MESSAGE_WIDTH = 400
_LISTED = 20
"""The number of findings of each code that a refused run lists; `evalloom validate` lists more."""


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
        print_findings(error.report.first_of_each(_LISTED), to_stderr=True)
        raise


def exit_code(results: Results, fail_under: float | None) -> int:
    """0 good, 1 a case or a gate failed, 3 could not finish, or what is expected could not be scored (WORK-1)."""
    if results.stopped:
        return 3
    if results.answer is not None and results.answer.decides:
        fail_under = None  # it was the threshold of --until-sure
    # Rounded as in a gate: the mean of the shares 0.1 and 0.7 is 0.39999999999999997.
    rate = None if results.deciding_rate is None else round(results.deciding_rate, 9)
    if results.failed if fail_under is None else rate is not None and rate < fail_under:
        return 1
    if results.problem:
        return 3
    is_unknown = fail_under is not None and rate is None
    return int(is_unknown or not all(gate.holds for gate in results.gates))


def print_problem(problem: BatchProblem | None, hide: Hide = str) -> None:
    """Print on stderr why the batch is not a success although nothing failed, with its code."""
    if problem:
        click.echo(f"evalloom: {hide(one_line(problem.message, _MESSAGE_WIDTH))} [{problem.code}]", err=True)


def summary_json(results: Results, hide: Hide = str) -> bytes:
    """Return the summary as `--json` prints it: the figures, the gates, and the problem or null."""
    from evalloom.engine.results import described  # deferred: commands that only warn need nothing of it

    problem = results.problem
    shown = problem and {"code": problem.code, "message": hide(problem.message)}
    gates = [msgspec.to_builtins(gate) for gate in results.gates]
    left_out = {"quarantine": results.quarantine} if results.quarantine is not None else {}
    summary = described(results.summary, results.answer)
    return msgspec.json.encode({**summary, "gates": gates, "problem": shown, **left_out})


def print_failed_gates(results: Results, hide: Hide = str) -> None:
    """Print on stderr which gates do not hold, where the results are not printed as text."""
    for gate in results.gates:
        if not gate.holds:
            click.echo(f"evalloom: gate {hide(gate.text)}: does not hold ({hide(gate.reason)})", err=True)
