"""All results of a folder as one DuckDB table over the parts of the derived copy."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

from evalloom.batchlog.parquet import path_pattern, quoted
from evalloom.core.errors import usage_error
from evalloom.core.model import Record
from evalloom.core.text import did_you_mean
from evalloom.hop.dialect import inputs_of, normalize_audit
from evalloom.hop.results.index import CopyIndex
from evalloom.hop.results.rows import OUTCOMES, RESULT, FieldNames, expected_of

NO_PROFILE, NO_TAG, NO_DIFFICULTY = "no profile", "no tag", "no difficulty"
_OWN = ("tag", "difficulty", "profile", "completed", "retry_count", "error", "correct", "case_key")


class Position(NamedTuple):
    """The position of a result: its file, and its row in the part."""

    file: str
    part: int
    row: int


class Table:
    """The query for all result rows, or for those of the `only` file.

    Field `n` of `names.fields` is its column `f<n>`.
    """

    def __init__(self, index: CopyIndex, place: Path, only: str = "") -> None:
        self.index = index
        self._sources = [source for source in index.sources() if only in ("", source.name)]
        files = {source.name for source in self._sources}
        parts = {
            number: part
            for number, part in enumerate(index.parts)
            if any(source.name in files for source in part.sources)
        }
        self.names = FieldNames(
            sorted({name for part in parts.values() for name in part.names.fields}),
            sorted({name for part in parts.values() for name in part.names.expected}),
        )
        self.query = " UNION ALL ".join(self._part(number, place, files) for number in parts)
        if not parts:
            columns = ("file", "row", "part", "outcome", "id", *_OWN)
            self.query = f"SELECT {', '.join(f'NULL AS {name}' for name in columns)} WHERE false"

    def field(self, name: str) -> str:
        """Return the column of a result field; NULL if no result has it."""
        return f"f{self.names.fields.index(name)}" if name in self.names.fields else "NULL::VARCHAR"

    def expected(self, name: str) -> str:
        """Return the column of an expected field; NULL if no result has it."""
        return f"e{self.names.expected.index(name)}" if name in self.names.expected else "NULL::VARCHAR"

    def files(self) -> int:
        """Return the number of files with results."""
        return sum(1 for source in self._sources if source.results)

    def profiles(self) -> list[str]:
        """Return the profiles of all results; "no profile" for results without one."""
        names = {NO_PROFILE if profile is None else profile for source in self._sources for profile in source.profiles}
        return sorted(names)

    def where_profile(self, profile: str | None) -> tuple[str, list[str]]:
        """Return the condition for a profile, with its parameter."""
        if profile is None:
            return "true", []
        profiles = self.profiles()
        if profile not in profiles:
            choices = f"The results have {', '.join(map(repr, profiles))}" if profiles else "There are no results"
            hint = did_you_mean(profile, profiles) or f". {choices}"
            raise usage_error("unknown_profile_in_store", f"profile: no result has {profile!r}{hint}")
        return ("profile IS NULL OR profile = ?", [profile]) if profile == NO_PROFILE else ("profile = ?", [profile])

    def _part(self, number: int, place: Path, files: set[str]) -> str:
        part = self.index.parts[number]
        names = ", ".join(quoted(source.name) for source in part.sources)
        outcomes = ", ".join(map(quoted, OUTCOMES))
        columns = [
            f"[{names}][src + 1] AS file",
            "file_row_number AS row",
            f"{number} AS part",
            f"[{outcomes}][outcome + 1] AS outcome",
            "coalesce(id::VARCHAR, id_text) AS id",
            *_OWN,
        ]
        for letter, of_part, of_table in (
            ("f", part.names.fields, self.names.fields),
            ("e", part.names.expected, self.names.expected),
        ):
            at = {name: f"{letter}{place}" for place, name in enumerate(of_part)}
            columns += [f"{at.get(name, 'NULL::VARCHAR')} AS {letter}{n}" for n, name in enumerate(of_table)]
        left_out = [str(at) for at, source in enumerate(part.sources) if source.name not in files]
        condition = f" AND src NOT IN ({', '.join(left_out)})" if left_out else ""
        parquet = quoted(path_pattern(place / part.name))
        return f"SELECT {', '.join(columns)} FROM read_parquet({parquet}) WHERE kind = {RESULT}{condition}"


def read_details(folder: Path, index: CopyIndex, positions: Iterable[Position]) -> dict[Position, Record]:
    """Read what the copy does not hold: `line, result, expected, input, execution_path` of some results.

    Positions that no longer exist are skipped.
    """
    details: dict[Position, Record] = {}
    for (file, part_number), group in groupby(sorted(positions), key=lambda position: position[:2]):
        part = index.parts[part_number]
        source = next(source for source in part.sources if source.name == file)
        by_number = {position.row - source.first: position for position in group}
        for number, (line, record) in enumerate(islice(part.records(folder, source), max(by_number) + 1)):
            audit = normalize_audit(record) if number in by_number and record is not None else None
            if record is None or audit is None:
                continue
            path = audit["stats"].get("execution_path")
            details[by_number[number]] = {
                "line": line,
                "result": audit["result"],
                "expected": expected_of(audit["case"]),
                "input": inputs_of(record),
                "execution_path": path if isinstance(path, list) else [],
            }
    return details


NO_DETAILS: Record = {"line": None, "result": None, "expected": {}, "input": {}, "execution_path": []}
"""The details of a result that is no longer in its file."""
