"""Field names from elsewhere: `--map query=question`, and the mapping we propose when we know a name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from evalloom.core.errors import did_you_mean, usage_error
from evalloom.core.model import Path, Record, Remark, error, warning
from evalloom.data.dialect import Dialect
from evalloom.files.rows import Lines, Problem, Row, one_by_one

_ALIASES = {
    "query": ("question", "q", "user_input", "prompt", "ask", "query_text", "user_query", "Question", "Query", "问题"),
    "expected_sources": (
        "expected_docs",
        "expected_doc_ids",
        "expected_documents",
        "expected_document",
        "expected_files",
        "must_cite_docs",
        "relevant_docs",
        "gold_docs",
        "source_docs",
        "docs",
        "sources",
        "documents",
    ),
    "must_include": (
        "expected_keywords",
        "must_contain",
        "must_mention",
        "keywords",
        "key_points",
        "anchors",
        "required_terms",
    ),
    "expected_output": (
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
    ),
}
_PLAIN = ("expected_output", "expected_outputs", "expected")
_RAG = ("query", "expected_sources", "must_include")


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


def proposals(records: Iterable[Record], dialect: Dialect) -> Iterable[Remark]:
    """A mapping worth trying, when records were recognised by little and have names we know from elsewhere."""
    sample = list(records)
    if dialect.name not in ("pipeline", "replay", "rag") or not sample:
        return
    fields = set.intersection(*(set(record) for record in sample))
    known = {name: next((alias for alias in _ALIASES[name] if alias in fields), "") for name in _ALIASES}
    if rag := _rag_mapping(known, sample[0]):
        yield warning("fields_from_elsewhere", (), f"looks like RAG eval cases. Try --dialect rag --map {rag}")
    elif dialect.name == "replay" and (answer := _expectation(sample)):
        yield _answer_unused(answer, sample, _advice(answer, fields))
    elif (answer := known["expected_output"]) and dialect.name != "rag" and not _is_read(answer, sample, dialect):
        target = "pipeline --map expected_output" if "id" in fields else "replay --map _expected.equals"
        yield _answer_unused(answer, sample, f"Try --dialect {target}={answer}")


def _answer_unused(field: str, sample: list[Record], advice: str) -> Remark:
    goes_in = not all(map(_says_what_goes_in, sample))
    fate = "would be given to the target as input" if goes_in else "is not checked"
    return warning("fields_from_elsewhere", (), f"{field!r} looks like the expected answer but {fate}. {advice}")


def _says_what_goes_in(record: Record) -> bool:
    """Whether the inputs stand in an object of their own, so that no other field is one."""
    return isinstance(record.get("variables"), dict) or isinstance(record.get("inputs"), dict)


def _expectation(rows: Iterable[Record]) -> str:
    """The first field of these replay rows that a pipeline case would be held to."""
    names = {name for row in rows for name in row}
    found = sorted(filter(_names_expectation, names), key=lambda name: (name not in _PLAIN, name))
    return next(iter(found), "")


def _advice(field: str, fields: set[str]) -> str:
    mapped = f"--dialect replay --map _expected.equals={field}"
    # With one of these it is a replay row, whether it has an id or not.
    if fields & {"_expected", "variables"}:
        return f"Try {mapped}"
    if "id" in fields:
        return f"Try --dialect pipeline or {mapped}"
    return f"Give each case an 'id' (then it is a pipeline case), or try {mapped}"


def _rag_mapping(known: dict[str, str], first: Record) -> str:
    """The mapping that makes RAG eval cases of the records; empty when they are that already, or never will be."""
    there = {name: name in first for name in _RAG}
    if not (there["query"] or known["query"]):
        return ""
    if not any(there[name] or known[name] for name in ("expected_sources", "must_include")):
        return ""
    found = [name for name in _RAG if known[name] and not there[name]]
    lists = frozenset((name,) for name in found if name != "query" and isinstance(first[known[name]], str))
    return str(Mapping({(name,): (known[name],) for name in found}, lists))


def _is_read(field: str, sample: list[Record], dialect: Dialect) -> bool:
    """Whether the dialect itself already reads a field as an expectation; beside `inputs` it is a custom field."""
    return dialect.name == "pipeline" and _names_expectation(field) and not all(map(_says_what_goes_in, sample))


def _names_expectation(field: str) -> bool:
    return field == "expected" or field.startswith("expected_")
