"""Maps field names of other tools: `--map query=question`, and suggestions for known names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from evalloom.core.errors import usage_error
from evalloom.core.model import Path, Record, Remark, error, warning
from evalloom.core.text import did_you_mean
from evalloom.data.dialect import Dialect
from evalloom.data.formats import Formats
from evalloom.files.rows import Item, Problem, Row, split_blocks

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
"""Common names for the expected answer in files of other tools."""


class Mapping(Struct, frozen=True):
    """Maps new names to the field names in the file; both may be dotted paths."""

    names: dict[tuple[str, ...], tuple[str, ...]] = {}
    lists: frozenset[tuple[str, ...]] = frozenset()
    """The new names for which a single value becomes a list with one item."""

    def __str__(self) -> str:
        """Return the mapping as `--map` accepts it."""
        return ",".join(
            f"{'.'.join(new)}{_LIST if new in self.lists else ''}={'.'.join(old)}" for new, old in self.names.items()
        )

    def apply(self, record: Record) -> Record:
        """Return the record with its mapped fields renamed."""
        if not self.names:
            return record
        mapped = {name: value for name, value in record.items() if (name,) not in self.names.values()}
        for new, old in self.names.items():
            value = _dig(record, old)
            if value is not _ABSENT:
                is_single = new in self.lists and value is not None and not isinstance(value, list)
                _plant(mapped, new, [value] if is_single else value)
        return mapped

    def apply_rows(self, items: Iterable[Item]) -> Iterable[Item]:
        """Return the rows with their records mapped; without a mapping, blocks of lines stay together."""
        return self._map_rows(split_blocks(items)) if self.names else items

    def _map_rows(self, items: Iterable[Row | Problem]) -> Iterator[Row | Problem]:
        for item in items:
            if isinstance(item, Row) and isinstance(item.value, dict):
                item.value = self.apply(item.value)
            yield item

    def source_path(self, path: Path) -> Path:
        """Return the path in the file of a field of a mapped record."""
        for new, old in self.names.items():
            if path[: len(new)] == new:
                return (*old, *path[len(new) :])
        return path

    def unknown(self, records: Iterable[Record]) -> Iterable[Remark]:
        """Yield an error for each source field that none of these records has."""
        sample = list(records)
        fields = sorted({field for record in sample for field in record})
        for new, old in self.names.items():
            if sample and all(_dig(record, old) is _ABSENT for record in sample):
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
    """Set the value at a path; copy the objects on the way, so that the original record does not change."""
    *parents, name = path
    for parent in parents:
        below = record.get(parent)
        record[parent] = dict(below) if isinstance(below, dict) else {}
        record = record[parent]
    record[name] = value


def parse_mapping(written: str) -> Mapping:
    """Parse `query=question,expected_sources=docs`; `expected_sources[]=doc` makes a list of a single value."""
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
    """Suggest a mapping for records that match only an open dialect and have field names of another one."""
    if not dialect.is_open or not sample:
        return
    for candidate in formats.dialects:
        if mapping := candidate.mapping_from(sample):
            what = candidate.summary.partition(":")[0]
            advice = f"looks like {what}. Try --dialect {candidate.name} --map {mapping}"
            yield warning("fields_from_elsewhere", (), advice)
            return
    if unread := dialect.unread_answer(sample):
        is_input = not all(map(has_input_object, sample))
        use = "would be passed to the target as input" if is_input else "is not checked"
        message = f"{unread.field!r} looks like the expected answer but {use}. {unread.advice}"
        yield warning("fields_from_elsewhere", (), message)


def shared_fields(sample: list[Record]) -> set[str]:
    """Return the fields that all records have."""
    return set.intersection(*(set(record) for record in sample))


def answer_field(sample: list[Record]) -> str:
    """Return the field that probably has the expected answer; empty if the records have none."""
    fields = shared_fields(sample)
    return next((name for name in ANSWERS if name in fields), "")


def has_input_object(record: Record) -> bool:
    """Whether the record has an object with its inputs, so that no other field is an input."""
    return isinstance(record.get("variables"), dict) or isinstance(record.get("inputs"), dict)


def names_expectation(field: str) -> bool:
    return field == "expected" or field.startswith("expected_")
