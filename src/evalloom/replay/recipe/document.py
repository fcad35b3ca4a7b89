"""Reads recipe files and reports errors and warnings with their lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from evalloom.core.errors import usage_error
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Finding, Origin, Record, Severity
from evalloom.core.text import type_name
from evalloom.files.read import RowReader
from evalloom.files.rows import Problem, Row
from evalloom.files.source import source_of
from evalloom.replay.recipe.assemble import Recipe, cycle_message
from evalloom.replay.recipe.parse import RecipeError, read_recipe, recipe_warnings

_STEP = lazy_pattern(r"\[(\d+)\]|([^.\[\]]+)")
_MAX_SHOWN = 10


class RecipeFile:
    """A file with a project or only its state. Raises EvalloomError if the file contains anything else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._row = _only_row(path)
        self.body: Record = self._row.value
        self._is_bare = "state" not in self.body and "nodes" in self.body
        self.state = self.body if self._is_bare else self.body.get("state")

    def read(self) -> Recipe:
        """Parse the recipe; raise EvalloomError with the line of every error."""
        try:
            return read_recipe(self.state)
        except RecipeError as error:
            lines = [str(finding) for finding in self._findings("bad_recipe", "error", error.errors)]
            # usage_error appends the code once.
            shown = [line.removesuffix(" [bad_recipe]") for line in lines[:_MAX_SHOWN]]
            more = [f"… and {len(lines) - _MAX_SHOWN} more"] if len(lines) > _MAX_SHOWN else []
            raise usage_error("bad_recipe", "\n".join(shown + more)) from None

    def findings(self) -> Iterator[Finding]:
        """Yield the errors and warnings of the recipe."""
        try:
            recipe = read_recipe(self.state)
        except RecipeError as error:
            yield from self._findings("bad_recipe", "error", error.errors)
            return
        if recipe.cycle:
            yield from self._findings("dependency_cycle", "error", [("state.edges", cycle_message(recipe.cycle))])
        yield from self.warnings()

    def warnings(self) -> Iterator[Finding]:
        """Yield likely mistakes."""
        yield from self._findings("recipe_doubt", "warning", recipe_warnings(self.state))

    def _findings(self, code: str, severity: Severity, messages: Iterable[tuple[str, str]]) -> Iterator[Finding]:
        for path, message in messages:
            steps = tuple(int(number) if number else name for number, name in _STEP.findall(path))
            place = self._row.place_of(steps[1:] if self._is_bare else steps)
            yield Finding(code, severity, f"{path}: {message}", Origin(self.path.as_posix(), *place))


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
