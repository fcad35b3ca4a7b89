"""Reads the records of one source in their dialect, with the problems of the file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Mapping as AnyMapping
from itertools import chain
from pathlib import Path as FilePath

import msgspec
from msgspec import Struct

from evalloom.core.model import Case, Origin, Path, Place, Record, Remark
from evalloom.core.text import quote, type_name
from evalloom.data.checks import FIELD, CheckLists
from evalloom.data.dialect import Dialect, Included, Surroundings
from evalloom.data.formats import Document, Formats
from evalloom.data.identity import FileNames, NamedCase, Namer
from evalloom.data.mapping import Mapping
from evalloom.data.wrapper import expand_wrapper, holds_objects
from evalloom.files import jsontext
from evalloom.files.read import RowReader
from evalloom.files.rows import Problem, Row
from evalloom.files.source import Source, source_of

SAMPLE = 50
"""The number of records that decide the dialect."""
_SAMPLE_BYTES = 4 * 1024 * 1024


class Expansion(Struct, frozen=True):
    """The records of a document, kept because a plan reads its datasets several times."""

    dialect: Dialect
    rows: list[Row | Problem]
    layout: str
    lines: int


class Dataset:
    """Reads one source. `dialect`, `reason` and `layout` are set at once; iterate for rows and problems."""

    def __init__(
        self,
        source: Source,
        formats: Formats,
        dialect: str = "",
        mapping: Mapping = Mapping(),
        nested: bool = False,
        names: FileNames | None = None,
        declared: frozenset[str] = frozenset(),
        allow_code: bool = False,
        expansion: Expansion | None = None,
    ) -> None:
        """`names` are those of an earlier reading of the same source, so that it is not looked through again.

        `declared` are the inputs that the target declares: a list of checks under such a name is an input.
        With `allow_code`, code that a document names may make its records. `expansion` is that of an earlier reading.
        """
        self.source = source
        self._allow_code = allow_code
        self.declared = declared
        self.check_lists: CheckLists = "never" if FIELD in declared else "mapped" if mapping.names else "plain"
        self.formats = formats
        self.mapping = mapping
        self._reader = RowReader(source)
        self._items = iter(self._reader)
        self._named_dialect = formats.by_name(dialect) if dialect else None
        self._nested = nested
        self._expanded_by: Dialect | None = None
        self._head: list[Row | Problem] = []
        self._is_dataset = True
        self.expansion = expansion
        """The records of the document that the file is; None for a file of records."""
        if expansion is None:
            self._peek()
        else:
            self._items = iter(())
            self._expanded_by = expansion.dialect
            self._head = [*expansion.rows]
        self.raw_sample = [row.value for row in self._objects()]
        self.sample = [mapping.apply(record) for record in self.raw_sample]
        votes = Counter(formats.recognise(record)[0].name for record in self.sample[:SAMPLE])
        self.votes = votes.most_common()
        self.dialect, self.reason = self._decide()
        self.names = names or FileNames(self._read_again, self.dialect.optional_id, self.dialect.beside_inputs)

    @property
    def lines(self) -> int:
        return self._reader.lines or (self.expansion.lines if self.expansion else 0)

    @property
    def has_explicit_dialect(self) -> bool:
        """Whether the user or the document itself names the dialect."""
        return self._named_dialect is not None or self._expanded_by is not None

    @property
    def document(self) -> Document | None:
        """The kind of document that the file is, if it is not a dataset."""
        return None if self._is_dataset else self.formats.document(self.sample[0])

    @property
    def layout(self) -> str:
        return self._reader.layout or (self.expansion.layout if self.expansion else "")

    def __iter__(self) -> Iterator[Row | Problem]:
        if not self._is_dataset:
            yield self._not_a_dataset()
            return
        yield from self.dialect.problems(self.sample, self.layout)
        head, self._head = self._head, []
        yield from self._converted(chain(head, self._items))

    def peek(self) -> Iterator[Row | Problem]:
        """Yield the rows that were read ahead; iterating yields them again."""
        return self._converted([*self._head]) if self._is_dataset else iter(())

    def _converted(self, items: Iterable[Row | Problem]) -> Iterator[Row | Problem]:
        is_table = self.layout == "csv" and self.dialect.write is not None
        for item in items:
            if isinstance(item, Row) and isinstance(item.value, dict):
                record = self.dialect.from_cells(item.value) if is_table else item.value
                yield _with_record(item, self.mapping.apply(record))
            else:
                yield not_object(item, self.dialect) if isinstance(item, Row) else item

    def cases(self, rows: Iterable[Row | Problem] | None = None) -> Iterator[Case | Problem]:
        """Yield the cases of the dataset, or of its `rows`, in order. Each has an id: see `data/identity.py`."""
        for item in self.named_cases(rows):
            yield item if isinstance(item, Problem) else item.case

    def named_cases(self, rows: Iterable[Row | Problem] | None = None) -> Iterator[NamedCase | Problem]:
        """Yield the cases of the dataset, or of its `rows`, with how they are identified."""
        namer = self.namer()
        for item in self._bare_cases(self if rows is None else rows):
            yield item if isinstance(item, Problem) else namer.name(item)

    def namer(self) -> Namer:
        """Return what names the cases of this dataset, beginning with the first."""
        # What cannot be read twice cannot be looked through first.
        is_stream = self.source.path is None and self.source.content is None
        return Namer(self.names, self.dialect.has_row_numbers or is_stream)

    def _bare_cases(self, rows: Iterable[Row | Problem]) -> Iterator[Case | Problem]:
        """Yield cases as they are written: those without an id have none."""
        for item in rows:
            if isinstance(item, Problem):
                yield item
            elif self.dialect.is_case(item.value):
                for record in self.dialect.multiplied(item.value):
                    yield self.case(record, self.origin(item))

    def _read_again(self) -> Iterator[Case]:
        dialect = self._named_dialect.name if self._named_dialect else ""
        again = Dataset(
            self.source,
            self.formats,
            dialect,
            self.mapping,
            declared=self.declared,
            allow_code=self._allow_code,
            expansion=self.expansion,
        )
        return (item for item in again._bare_cases(again) if not isinstance(item, Problem))

    def case(self, record: Record, origin: Origin) -> Case:
        """Return the case of one record."""
        return self.formats.case(self.dialect, record, origin, self.check_lists)

    def check_list_errors(self, record: Record) -> Iterator[Remark]:
        """Yield an error for each item of a record's list of checks that is none."""
        return self.formats.check_list_errors(self.dialect, record, self.check_lists)

    def origin(self, row: Row, path: Path = ()) -> Origin:
        """Return the origin of a row, or of a field in it."""
        place = row.place_of(self.mapping.source_path(path)) if path else Place(row.line, row.column)
        return Origin(row.file or self.source.name, *place)

    def _objects(self) -> list[Row]:
        return [item for item in self._head if isinstance(item, Row) and isinstance(item.value, dict)]

    def _peek(self) -> None:
        """Read the sample that decides the dialect."""
        objects = size = 0
        for item in self._items:
            self._head.append(item)
            if isinstance(item, Row) and isinstance(item.value, dict):
                objects += 1
                size += len(item.text)
            if objects >= SAMPLE or size > _SAMPLE_BYTES or len(self._head) >= 20 * SAMPLE:
                break
        else:
            self._expand_document()

    def _expand_document(self) -> None:
        """If the whole file is one document, replace it by its records."""
        rows = self._objects()
        if len(rows) != 1:
            return
        # One object is a line of a dataset in .jsonl and .ndjson files; elsewhere it may be the whole file.
        if self.layout == "json" and self.source.suffix not in (".jsonl", ".ndjson"):
            is_document = self.source.suffix == ".json" or b"\n" in rows[0].text
        else:
            is_document = self.layout == "yaml"
        if not is_document:
            return
        others = [item for item in self._head if item is not rows[0]]
        if not any(isinstance(item, Row) or item.severity == "error" for item in others):
            self._expand(rows[0])

    def _expand(self, row: Row) -> None:
        dialects = (self._named_dialect,) if self._named_dialect else self.formats.dialects
        folder = self.source.path.absolute().parent if self.source.path is not None else None
        surroundings = Surroundings(folder, self._allow_code)
        for dialect in dialects:
            if (records := dialect.expanded(row.value, surroundings)) is not None:
                self._expanded_by = dialect
                break
        else:
            if (records := expand_wrapper(row.value)) is None:
                is_case = self.formats.has_marks(row.value) and not self.formats.is_never_case(row.value)
                mapped = self.mapping.apply(row.value)
                self._is_dataset = is_case or (
                    self._named_dialect is not None and not _only_wraps(mapped, self._named_dialect)
                )
                return
        places = row.places if row.places is not None else jsontext.all_places(row.text, row.line, row.column)
        head: list[Row | Problem] = [item for item in self._head if item is not row]
        for item in records:
            if isinstance(item, Included):
                head.extend(self._include(item, row))
            elif isinstance(item, Remark):
                head.append(Problem(item.code, item.severity, item.message, row.place_of(item.path)))
            else:
                path, record = item
                place = places.get(path, Place(row.line, row.column))
                head.append(Row(record, *place, b"", _RecordPlaces(places, path)))
        self._head = head
        if self._expanded_by is not None:
            self.expansion = Expansion(self._expanded_by, [*head], self.layout, self.lines)

    def _include(self, included: Included, row: Row) -> Iterator[Row | Problem]:
        """Yield the records of a file that the document names; only files below its folder or root are opened."""
        place = row.place_of(included.path)
        if self._nested:
            message = f"{included.file!r} is not read: an included file includes no further ones"
            yield Problem("included_file", "warning", message, place)
            return
        if self.source.path is None:
            yield Problem("included_file", "warning", f"{included.file!r} is not read: stdin has no folder", place)
            return
        # A command or a page that names a file without its folder does not reach the neighbours of that folder.
        root = included.root if FilePath(self.source.name).parent.name else None
        folder = self.source.path.parent if root is None else root
        path = folder / included.file
        try:
            is_outside = not path.resolve().is_relative_to(folder.resolve())
        except (OSError, ValueError):  # a name that no file can have
            is_outside = False
        if is_outside:
            where = "of this file" if root is None else repr(folder.name)
            message = f"{included.file!r} is outside the folder {where} and is not read"
            yield Problem("included_file_outside", "error", message, place)
            return
        if not os.path.isfile(path):  # Path.is_file raises for a name that is too long
            where = "beside this one" if root is None else f"in the folder {folder.name!r}"
            message = f"there is no file {included.file!r} {where}"
            yield Problem("included_file_missing", "error", message, place)
            return
        if path.resolve() == self.source.path.resolve():
            yield Problem("included_file", "error", f"{included.file!r} is this file itself", place)
            return
        dialect = self._expanded_by.name if self._expanded_by else ""
        name = (FilePath(self.source.name).parent / included.file).as_posix()
        if root is not None:
            name = os.path.normpath(FilePath(self.source.name).parent / os.path.relpath(path, self.source.path.parent))
        inner_source = msgspec.structs.replace(source_of(FilePath(path)), name=name)
        inner = Dataset(inner_source, self.formats, dialect, nested=True)
        for item in inner:
            if not isinstance(item, Row):
                yield msgspec.structs.replace(item, file=inner.source.name)
                continue
            item.file = item.file or inner.source.name
            written = {**item.value, **included.beside} if included.beside else item.value
            for record in (written,) if included.each is None else included.each(written):
                if isinstance(record, Remark):
                    place = item.place_of(record.path)
                    yield Problem(record.code, record.severity, record.message, place, item.file)
                else:
                    yield _with_record(item, record)

    def _decide(self) -> tuple[Dialect, str]:
        if self._named_dialect:
            return self._named_dialect, "as requested"
        if self._expanded_by:
            article = "an" if self._expanded_by.name[0] in "aeiou" else "a"
            return self._expanded_by, f"it is {article} {self._expanded_by.name} document"
        for record in self.sample:
            dialect, reason = self.formats.recognise(record)
            if dialect.name == self.votes[0][0]:
                return dialect, reason
        unknown = msgspec.structs.replace(self.formats.fallback, not_object_code="json_not_object")
        return unknown, "it has no records"

    def _not_a_dataset(self) -> Problem:
        document = self.formats.document(self.sample[0])
        if document is not None and document.refusal:
            message = document.refusal
        else:
            fields = ", ".join(list(self.sample[0])[:6]) or "no field"
            message = f"is one object with {fields} and no list of cases in it. "
            message += "Name the list 'cases'" if self._named_dialect else "If it is a case, name its --dialect"
        return Problem("not_a_dataset", "error", message)


def _with_record(row: Row, record: Record) -> Row:
    """Return a row with this record, at the same position. A row is kept by others, so it never changes."""
    return row if record is row.value else Row(record, row.line, row.column, row.text, row.places, row.file)


def _only_wraps(document: Record, dialect: Dialect) -> bool:
    """Whether an object has a list of objects but none of the fields that the dialect requires of a case."""
    schema = dialect.schema() if dialect.schema else {}
    is_none = bool(schema.get("required")) and not any(name in schema["properties"] for name in document)
    return is_none and holds_objects(document)


def not_object(row: Row, dialect: Dialect) -> Problem:
    """Return the problem of a row that is not an object."""
    shown = "" if row.value is None else f": {quote(row.value)}"
    message = f"expected an object, got {type_name(row.value)}{shown}"
    return Problem(dialect.not_object_code, "error", message, Place(row.line, row.column), row.file)


class _RecordPlaces(AnyMapping[Path, Place]):
    """The positions in one record of a document, by paths relative to the record."""

    def __init__(self, places: AnyMapping[Path, Place], prefix: Path) -> None:
        self._places = places
        self._prefix = prefix

    def __getitem__(self, path: Path) -> Place:
        return self._places[(*self._prefix, *path)]

    def __iter__(self) -> Iterator[Path]:
        size = len(self._prefix)
        return (path[size:] for path in self._places if path[:size] == self._prefix)

    def __len__(self) -> int:
        return sum(1 for _ in self)
