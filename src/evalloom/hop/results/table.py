"""All results of a folder as one DuckDB table, over the parts of the derived copy."""

from __future__ import annotations

from pathlib import Path

from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.text import did_you_mean
from evalloom.hop.results.parts import Index
from evalloom.hop.results.rows import OUTCOMES, RESULT, Names, path_pattern, quoted

NO_PROFILE, NO_TAG, NO_DIFFICULTY = "no profile", "no tag", "no difficulty"
_OWN = ("tag", "difficulty", "profile", "completed", "retry_count", "error", "correct")


class Table:
    """The query for all result rows, or for those of the `only` file.

    Field `n` of `names.fields` is its column `f<n>`.
    """

    def __init__(self, index: Index, place: Path, only: str = "") -> None:
        self.index = index
        self._sources = [source for source in index.sources() if only in ("", source.name)]
        file_names = {source.name for source in self._sources}
        numbers = [
            at for at, part in enumerate(index.parts) if any(source.name in file_names for source in part.counted())
        ]
        parts = [index.parts[number] for number in numbers]
        self.names = Names(
            sorted({name for part in parts for name in part.names.fields}),
            sorted({name for part in parts for name in part.names.expected}),
        )
        self.query = " UNION ALL ".join(self._part(number, place, file_names) for number in numbers)
        if not numbers:
            columns = [
                "file",
                "line",
                "row",
                "part",
                "outcome",
                "case_key",
                "id",
                *_OWN,
                *self._field_columns(),
            ]
            self.query = f"SELECT {', '.join(f'NULL AS {name}' for name in columns)} WHERE false"

    def field(self, name: str) -> str:
        """Return the column of a result field; NULL if no result has it."""
        return f"f{self.names.fields.index(name)}" if name in self.names.fields else "NULL::VARCHAR"

    def expected(self, name: str) -> str:
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
        if profile not in self.profiles():
            raise unknown_profile(profile, self.profiles())
        return ("profile IS NULL OR profile = ?", [profile]) if profile == NO_PROFILE else ("profile = ?", [profile])

    def _field_columns(self) -> list[str]:
        return [
            *(f"f{number}" for number in range(len(self.names.fields))),
            *(f"e{number}" for number in range(len(self.names.expected))),
        ]

    def _part(self, number: int, place: Path, file_names: set[str]) -> str:
        part = self.index.parts[number]
        files = ", ".join(quoted(source.name) for source in part.sources)
        outcomes = ", ".join(quoted(one) for one in OUTCOMES)
        columns = [
            f"[{files}][src + 1] AS file",
            "line" if part.exact else "NULL::BIGINT AS line",
            "file_row_number AS row",
            f"{number} AS part",
            f"[{outcomes}][outcome + 1] AS outcome",
            "coalesce(id::VARCHAR, id_text) AS id",
            "case_key" if part.exact else "NULL::VARCHAR AS case_key",
            *_OWN,
            *_renamed(part.names.fields, self.names.fields, "f"),
            *_renamed(part.names.expected, self.names.expected, "e"),
        ]
        left_out = [str(at) for at, one in enumerate(part.sources) if one.left_out or one.name not in file_names]
        condition = f" AND src NOT IN ({', '.join(left_out)})" if left_out else ""
        parquet = quoted(path_pattern(place / part.name))
        return f"SELECT {', '.join(columns)} FROM read_parquet({parquet}) WHERE kind = {RESULT}{condition}"


def _renamed(of_part: list[str], of_table: list[str], letter: str) -> list[str]:
    at = {name: f"{letter}{number}" for number, name in enumerate(of_part)}
    return [f"{at.get(name, 'NULL::VARCHAR')} AS {letter}{number}" for number, name in enumerate(of_table)]


def unknown_profile(profile: str, profiles: list[str]) -> EvalloomError:
    """Return the error for a profile without results."""
    there = f"The results have {', '.join(map(repr, profiles))}" if profiles else "There are no results"
    hint = did_you_mean(profile, profiles)
    return usage_error("unknown_profile_in_store", f"profile: no result has {profile!r}{hint or '. ' + there}")
