"""Field names from elsewhere: `--map query=question`, and the mapping we propose when we know a name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from evalloom.core.errors import usage_error
from evalloom.core.model import Path, Record, Remark, error, warning
from evalloom.core.text import did_you_mean
from evalloom.data.dialect import Dialect
from evalloom.data.formats import Formats
from evalloom.files.rows import Lines, Problem, Row, one_by_one

ANSWERS = (
    "ground_truth",
    "groundtruth",
    "reference_answer",
    "expected_answer",
    "expected_response",
    "expected",
    "gold_answer",
    "reference",
    "ideal",
    "target",
    "answer",
    "Answer",
    "SQL",
    "canonical_solution",
    "答案",
)
"""Names that other people's files have for the expected answer."""


class Mapping(Struct, frozen=True):
    """New name → the name that a field has in the file; both may be dotted paths."""

    names: dict[tuple[str, ...], tuple[str, ...]] = {}
    lists: frozenset[tuple[str, ...]] = frozenset()
    """The new names under which a single value becomes a list of one."""

    def __str__(self) -> str:
        """As `--map` takes it."""
        return ",".join(
            f"{'.'.join(new)}{_LIST if new in self.lists else ''}={'.'.join(old)}" for new, old in self.names.items()
        )

    def apply(self, record: Record) -> Record:
        """The record with its mapped fields under their new names; nothing else is touched."""
        if not self.names:
            return record
        found = {name: value for name, value in record.items() if (name,) not in self.names.values()}
        for new, old in self.names.items():
            value = _dig(record, old)
            if value is not _ABSENT:
                is_single = new in self.lists and value is not None and not isinstance(value, list)
                _plant(found, new, [value] if is_single else value)
        return found

    def apply_rows(self, items: Iterable[Row | Problem | Lines]) -> Iterable[Row | Problem | Lines]:
        """The same rows with their records mapped; costs nothing where there is no mapping."""
        return map(self._apply_row, one_by_one(items)) if self.names else items

    def _apply_row(self, row: Row | Problem) -> Row | Problem:
        if isinstance(row, Row) and isinstance(row.value, dict):
            row.value = self.apply(row.value)
        return row

    def source_path(self, path: Path) -> Path:
        """Where a field of a mapped record stands in the file."""
        for new, old in self.names.items():
            if path[: len(new)] == new:
                return (*old, *path[len(new) :])
        return path

    def unknown(self, records: Iterable[Record]) -> Iterable[Remark]:
        """An error for each source field that none of these records has."""
        seen = list(records)
        fields = sorted({field for record in seen for field in record})
        for new, old in self.names.items():
            if seen and all(_dig(record, old) is _ABSENT for record in seen):
                name, written = ".".join(new), ".".join(old)
                hint = did_you_mean(written, fields) or f". The records have {', '.join(fields[:12])}."
                yield error("map_unknown_field", (), f"--map {name}={written}: no record has {written!r}{hint}")


_ABSENT: Any = object()
_LIST = "[]"


def _dig(record: Any, source: tuple[str, ...]) -> Any:
    for step in source:
        if not isinstance(record, dict) or step not in record:
            return _ABSENT
        record = record[step]
    return record


def _plant(record: Record, path: tuple[str, ...], value: Any) -> None:
    """Puts a value at a path, in fresh objects, so that the record it came from stays as it was."""
    *parents, name = path
    for parent in parents:
        below = record.get(parent)
        record[parent] = dict(below) if isinstance(below, dict) else {}
        record = record[parent]
    record[name] = value


def parse_mapping(written: str) -> Mapping:
    """`query=question,expected_sources=docs` as a mapping; `expected_sources[]=doc` makes a list of a single value."""
    names, lists = {}, set()
    for part in filter(None, (part.strip() for part in written.split(","))):
        new, equals, old = (side.strip() for side in part.partition("="))
        if not equals or not new or not old:
            raise usage_error("bad_map", f"--map: expected new_name=name_in_file, got {part!r}")
        path = tuple(new.removesuffix(_LIST).split("."))
        names[path] = tuple(old.split("."))
        if new.endswith(_LIST):
            lists.add(path)
    return Mapping(names, frozenset(lists))


def proposals(sample: list[Record], dialect: Dialect, formats: Formats) -> Iterator[Remark]:
    """A mapping worth trying, when records were recognised by little and have names we know from elsewhere."""
    if not dialect.is_open or not sample:
        return
    for other in formats.dialects:
        if mapping := other.mapping_from(sample):
            what = other.summary.partition(":")[0]
            advice = f"looks like {what}. Try --dialect {other.name} --map {mapping}"
            yield warning("fields_from_elsewhere", (), advice)
            return
    if unread := dialect.unread_answer(sample):
        goes_in = not all(map(says_what_goes_in, sample))
        fate = "would be given to the target as input" if goes_in else "is not checked"
        message = f"{unread.field!r} looks like the expected answer but {fate}. {unread.advice}"
        yield warning("fields_from_elsewhere", (), message)


def shared_fields(sample: list[Record]) -> set[str]:
    """The fields that every record has."""
    return set.intersection(*(set(record) for record in sample))


def answer_field(sample: list[Record]) -> str:
    """The field that other people's files have for the expected answer; empty where the records have none."""
    fields = shared_fields(sample)
    return next((name for name in ANSWERS if name in fields), "")


def says_what_goes_in(record: Record) -> bool:
    """Whether the inputs stand in an object of their own, so that no other field is one."""
    return isinstance(record.get("variables"), dict) or isinstance(record.get("inputs"), dict)


def names_expectation(field: str) -> bool:
    return field == "expected" or field.startswith("expected_")
