"""The formats that are known: dialects of datasets, and documents that are no dataset; which of them a record is in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from evalloom.core.errors import usage_error
from evalloom.core.model import Finding, Record
from evalloom.core.text import did_you_mean
from evalloom.data.dialect import VAGUE, Dialect, Sniff


class Document(Struct, frozen=True):
    """A file that holds no cases and that people check all the same: a pipeline, a test plan, a recipe."""

    name: str
    """What it is, with its article: "a pipeline"."""
    reason: str
    """What it is known by: "it has steps"."""
    is_one: Callable[[Record], bool]
    findings: Callable[[Path], Iterable[Finding]]
    """Everything that is wrong with the file."""
    refusal: str = ""
    """What to say to somebody who gives it as a dataset; empty for what is said of any object without cases."""
    is_never_case: bool = False
    """Whether an object like this is no case, whatever marks of a dialect it has."""


class Formats:
    """All dialects and documents, and the questions that are asked of all of them."""

    def __init__(self, dialects: Iterable[Dialect], documents: Iterable[Document] = ()) -> None:
        self.dialects = tuple(dialects)
        self.documents = tuple(documents)

    @cached_property
    def writers(self) -> tuple[Dialect, ...]:
        """The dialects that are written too."""
        return tuple(dialect for dialect in self.dialects if dialect.write is not None)

    @cached_property
    def fallback(self) -> Dialect:
        """The dialect of a record that has the marks of none."""
        return next((dialect for dialect in self.dialects if dialect.is_fallback), self.dialects[0])

    @cached_property
    def _marks(self) -> list[tuple[int, Dialect, Sniff]]:
        """Every mark by which a dialect is known, the strongest first."""
        marks = [
            (rank, dialect, sniff)
            for dialect in self.dialects
            for rank, sniff in ((dialect.rank, dialect.sniff), *dialect.weaker)
        ]
        # Sorting is stable: dialects of one rank are asked in the order of the catalog.
        return sorted(marks, key=lambda mark: mark[0])

    @cached_property
    def beside_inputs(self) -> tuple[str, ...]:
        """The fields that targets get beside the inputs of a case, in whichever dialect."""
        return tuple(dict.fromkeys(name for dialect in self.dialects for name in dialect.beside_inputs))

    def by_name(self, name: str) -> Dialect:
        """The dialect a user names."""
        wanted = name.strip().lower().replace("_", "-")
        for dialect in self.dialects:
            if dialect.name == wanted:
                return dialect
        names = [dialect.name for dialect in self.dialects]
        hint = did_you_mean(wanted, names) or "."
        raise usage_error("unknown_dialect", f"expected a dialect ({', '.join(names)}), got {name!r}{hint}")

    def recognise(self, record: Record) -> tuple[Dialect, str]:
        """The dialect of one record and why; the strongest mark wins."""
        for _, dialect, sniff in self._marks:
            if reason := sniff(record):
                return dialect, reason
        return self.fallback, "it is an object with none of the marks of another dialect"

    def has_marks(self, record: Record) -> bool:
        """Whether a record has a mark of a dialect, and not only a vague one."""
        return any(sniff(record) for rank, _, sniff in self._marks if rank < VAGUE)

    def document(self, record: Record) -> Document | None:
        """The document that an object is, where it is one."""
        return next((document for document in self.documents if document.is_one(record)), None)

    def is_never_case(self, record: Record) -> bool:
        return any(document.is_one(record) for document in self.documents if document.is_never_case)
