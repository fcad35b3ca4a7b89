"""All known formats: dialects of datasets and other documents; recognises the format of a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom.core.errors import usage_error
from evalloom.core.model import Case, Finding, Origin, Record, Remark, error, show_path
from evalloom.core.text import did_you_mean
from evalloom.data.checks import FIELD, CheckList, CheckLists, CheckRules, without_list
from evalloom.data.dialect import VAGUE, Dialect, Sniff


class Document(Struct, frozen=True):
    """A kind of file without cases that `validate` checks too: a pipeline, a test plan, a recipe."""

    name: str
    """The kind, with its article: "a pipeline"."""
    reason: str
    """How it is recognised: "it has steps"."""
    matches: Callable[[Record], bool]
    findings: Callable[[Path], Iterable[Finding]]
    """Returns the findings of the file."""
    refusal: str = ""
    """The error if it is used as a dataset; empty for the general error about an object without cases."""
    is_never_case: bool = False
    """Whether such an object is never a case, even if it has the marks of a dialect."""


class Formats:
    """All dialects and documents of a catalog."""

    def __init__(
        self, dialects: Iterable[Dialect], documents: Iterable[Document] = (), check_rules: CheckRules | None = None
    ) -> None:
        """Without `check_rules`, lists of checks are not read, and no check is said to stay unscored."""
        self.dialects = tuple(dialects)
        self.documents = tuple(documents)
        self.check_rules = check_rules

    def case(self, dialect: Dialect, record: Record, origin: Origin, lists: CheckLists = "plain") -> Case:
        """Return the case of a record, with the checks of its list, if it has one (WORK-3)."""
        case = dialect.to_case(record, origin)
        if FIELD not in record or (read := self.check_list(dialect, record, lists)) is None:
            return case
        return msgspec.structs.replace(
            case, inputs=without_list(case.inputs), meta=without_list(case.meta), checks=case.checks + read.checks
        )

    def check_list(self, dialect: Dialect, record: Record, lists: CheckLists) -> CheckList | None:
        """Return the list of checks of a record; None if it has none, so that the field is what it was before."""
        written = record.get(FIELD)
        may_have_one = lists == "mapped" or (lists == "plain" and dialect.has_check_list(record))
        if not isinstance(written, list) or not may_have_one or self.check_rules is None:
            return None
        read = self.check_rules.read_list(written)
        return read if read.is_meant else None

    def check_list_errors(self, dialect: Dialect, record: Record, lists: CheckLists) -> Iterator[Remark]:
        """Yield an error for each item of a list of checks that is none."""
        if FIELD in record and (read := self.check_list(dialect, record, lists)) is not None:
            for number, reason in read.wrong:
                path = (FIELD, number)
                why = f"the other items are checks, this one is not: {reason}" if read.checks else reason
                yield error("bad_check", path, f"{show_path(path)}: {why}")

    @cached_property
    def writers(self) -> tuple[Dialect, ...]:
        """The dialects that can be written."""
        return tuple(dialect for dialect in self.dialects if dialect.write is not None)

    @cached_property
    def _by_name(self) -> dict[str, Dialect]:
        return {dialect.name: dialect for dialect in reversed(self.dialects)}

    @cached_property
    def fallback(self) -> Dialect:
        """The dialect of records without the marks of any dialect."""
        return next((dialect for dialect in self.dialects if dialect.is_fallback), self.dialects[0])

    @cached_property
    def _marks(self) -> list[tuple[int, Dialect, Sniff]]:
        """The marks of all dialects, the strongest first."""
        marks = [
            (rank, dialect, sniff)
            for dialect in self.dialects
            for rank, sniff in ((dialect.rank, dialect.sniff), *dialect.weaker)
        ]
        # Sorting is stable: dialects of the same rank stay in catalog order.
        return sorted(marks, key=lambda mark: mark[0])

    @cached_property
    def beside_inputs(self) -> tuple[str, ...]:
        """The fields that targets get beside the inputs of a case, in any dialect."""
        return tuple(dict.fromkeys(name for dialect in self.dialects for name in dialect.beside_inputs))

    def by_name(self, name: str) -> Dialect:
        """Return the dialect of this name, which may have a scorer: `inspect:includes`. Raises a usage error."""
        named = self._by_name
        if name not in named:
            written, colon, scorer = name.partition(":")
            wanted = written.strip().lower().replace("_", "-")
            if wanted not in named:
                names = [dialect.name for dialect in self.dialects]
                hint = did_you_mean(wanted, names) or "."
                raise usage_error("unknown_dialect", f"expected a dialect ({', '.join(names)}), got {name!r}{hint}")
            dialect = named[wanted]
            if colon:
                from evalloom.data.scorers import with_scorer  # deferred: most names have none

                dialect = with_scorer(dialect, scorer)
            named[name] = dialect
        return named[name]

    def recognise(self, record: Record) -> tuple[Dialect, str]:
        """Return the dialect of one record and the reason; the strongest mark wins."""
        for _, dialect, sniff in self._marks:
            if reason := sniff(record):
                return dialect, reason
        return self.fallback, "it is an object with none of the marks of another dialect"

    def has_marks(self, record: Record) -> bool:
        """Whether a record has a mark of a dialect that is not vague."""
        return any(sniff(record) for rank, _, sniff in self._marks if rank < VAGUE)

    def document(self, record: Record) -> Document | None:
        """Return the kind of document that an object is, or None."""
        return next((document for document in self.documents if document.matches(record)), None)

    def is_never_case(self, record: Record) -> bool:
        return any(document.matches(record) for document in self.documents if document.is_never_case)
