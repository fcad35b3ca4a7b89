"""Recipes in files: read, with the line of everything that is wrong or doubtful in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from evalloom.core.errors import usage_error
from evalloom.core.model import Finding, Origin, Record, Severity, type_name
from evalloom.files.read import RowReader
from evalloom.files.rows import Problem, Row
from evalloom.files.source import source_of
from evalloom.replay.recipe.assemble import Recipe, cycle_message
from evalloom.replay.recipe.parse import RecipeFault, doubts_about, read_recipe

_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_MOST_TOLD = 10


class RecipeFile:
    """A file that holds a project, or the state of one alone. Raises EvalloomError where it holds something else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._row = _only_row(path)
        self.body: Record = self._row.value
        self._is_bare = "state" not in self.body and "nodes" in self.body
        self.state = self.body if self._is_bare else self.body.get("state")

    def read(self) -> Recipe:
        """The recipe. Raises EvalloomError with the line of every fault."""
        try:
            return read_recipe(self.state)
        except RecipeFault as fault:
            found = [str(one) for one in self._findings("bad_recipe", "error", fault.faults)]
            more = [f"… and {len(found) - _MOST_TOLD} more"] if len(found) > _MOST_TOLD else []
            raise usage_error("bad_recipe", "\n".join(_without_code(found[:_MOST_TOLD]) + more)) from None

    def findings(self) -> Iterator[Finding]:
        """All that is wrong with the recipe, and what is worth a look."""
        try:
            found = read_recipe(self.state)
        except RecipeFault as fault:
            yield from self._findings("bad_recipe", "error", fault.faults)
            return
        if found.cycle:
            yield from self._findings("dependency_cycle", "error", [("state.edges", cycle_message(found.cycle))])
        yield from self.doubts()

    def doubts(self) -> Iterator[Finding]:
        """What may be a slip of the pen."""
        yield from self._findings("recipe_doubt", "warning", doubts_about(self.state))

    def _findings(self, code: str, severity: Severity, found: Iterable[tuple[str, str]]) -> Iterator[Finding]:
        for at, message in found:
            steps = tuple(int(number) if number else name for number, name in _STEP.findall(at))
            place = self._row.place_of(steps[1:] if self._is_bare else steps)
            yield Finding(code, severity, f"{at}: {message}", Origin(self.path.as_posix(), *place))


def _only_row(path: Path) -> Row:
    items = list(islice(RowReader(source_of(path)), 2))
    for item in items:
        if isinstance(item, Problem) and item.severity == "error":
            where = f"{path.as_posix()}:{item.place.line}" if item.place.line else path.as_posix()
            raise usage_error("bad_recipe", f"{where}: {item.message}")
    rows = [item for item in items if isinstance(item, Row)]
    if len(rows) != 1 or not isinstance(rows[0].value, dict):
        got = type_name(rows[0].value) if len(rows) == 1 else "several values" if rows else "nothing"
        raise usage_error("bad_recipe", f"{path.as_posix()}: expected one object with name and state, got {got}")
    return rows[0]


def _without_code(lines: list[str]) -> list[str]:
    """Lines without the code that all of them have, and the error says once."""
    return [line.removesuffix(" [bad_recipe]") for line in lines]
