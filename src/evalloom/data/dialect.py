"""What a dialect is: one format of test files, as a handful of functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path as FilePath
from typing import Any

from msgspec import Struct

from evalloom.core.contract import Contract, Shape
from evalloom.core.model import Case, Origin, Path, Record, Remark
from evalloom.data.cells import read_cells
from evalloom.files.rows import Problem


class Rules(Struct, frozen=True):
    """What the user asked the linter to hold a file against, beyond the format itself."""

    root: FilePath = FilePath(".")
    check_sources_exist: bool = False
    check_must_include_in_sources: bool = False
    strict_bucket: bool = False
    strict_pair_id: bool = False
    required: frozenset[str] | None = None
    """The fields without which nothing can be done, where that is less than the format asks for."""
    unused: frozenset[str] = frozenset()
    """Of the others, those that what is done has no use for."""
    contract: Contract | None = None
    has_no_contract: bool = False
    """Whether it is known that there is none, so that it is not to be looked for either."""
    steps: frozenset[str] | None = None
    shape: Shape | None = None
    """What the cases must fit where the target has steps."""
    more: Mapping[str, Any] = {}
    """What the flags of other packages' systems ask for, by a name that each chooses."""


class Written(Struct, frozen=True):
    """A case in another format, and what that format has no place for."""

    record: Record
    lost: tuple[str, ...] = ()


class Included(Struct, frozen=True):
    """A file that a document names for more of its records."""

    file: str
    path: Path
    beside: Record = {}
    """Fields that each record of the file gets, as the document gives them to its own."""


Expanded = Iterable[tuple[Path, Record] | Included | Remark]
Sniff = Callable[[Record], str]
"""Why a record looks like a format; empty when it does not."""

VAGUE = 900
"""The rank of marks that many other objects have too: asked last, and no proof that an object is a case."""


class Pairing(Struct, frozen=True):
    """Cases that belong together in pairs: `of` gives the pair of a record and which of the two sides it is on."""

    field: str
    sides: tuple[str, str]
    of: Callable[[Record], tuple[str, str] | None]


class UnreadAnswer(Struct, frozen=True):
    """A field that looks like the expected answer and is not read as one, and what to do about it."""

    field: str
    advice: str


def _always(record: Record) -> bool:
    return True


def _no_problems(sample: list[Record], layout: str) -> Iterable[Problem]:
    return ()


class Dialect(Struct, frozen=True):
    """One format. Functions that a format does not need stay at their defaults."""

    name: str
    summary: str
    sniff: Sniff
    findings: Callable[[Record, Rules], Iterable[Remark]]
    to_case: Callable[[Record, Origin], Case]
    are_clean: Callable[[list[Record], Rules], bool] = lambda records, rules: False
    """A quick yes for records with nothing to remark; "no" only means that `findings` has to look at each.

    A record that multiplies, or that needs others, never is.
    """
    identity: Callable[[Record], str | int | None] = lambda record: None
    """What must be unique in a file; None when the record has no usable id."""
    write: Callable[[Case, int], Written] | None = None
    """The record of a case, given its number in the file; for cases that were read from another format."""
    canonical: Callable[[Record], Record] = lambda record: record
    """The one shape that is written for a record of this format, whichever shape it was read in."""
    schema: Callable[[], Record] | None = None
    is_case: Callable[[Record], bool] = _always
    """Whether a record is a case at all (a meta line is not)."""
    same_case: Callable[[Record], tuple[str, str]] | None = None
    """What stands for the case of a row and for the run of it, where rows may be runs of one case; empty otherwise."""
    multiply: Callable[[Record], Iterable[Record]] | None = None
    """The records that one record stands for, made one after the other: they may be many and large."""
    needs: Callable[[Record], tuple[str, ...]] | None = None
    """The ids of the cases in the same file that a record depends on."""
    beside_inputs: tuple[str, ...] = ()
    """Fields of a case's meta that its target gets beside the inputs: a change of one makes another run."""
    fit: Callable[[Case, Contract], Case] | None = None
    """A case with the inputs that a contract names."""
    expand: Callable[[Record], Expanded | None] = lambda document: None
    """The records inside one whole document such as a config file; None when it is not of this format."""
    pairing: Pairing | None = None
    """Pairs of cases of which both sides must be there."""
    id_field: str = "id"
    not_object_code: str = "json_not_object"
    """What a row that is no object is called here."""
    ids_increase: bool = False
    as_array: bool = False
    """Whether the format's own files are one JSON array instead of one object per line."""

    # How a file is known to be of this format
    rank: int = 100
    """When it is asked among all formats: a format with stronger marks comes before one with weaker ones."""
    weaker: tuple[tuple[int, Sniff], ...] = ()
    """Further marks, each with a rank of its own."""
    is_fallback: bool = False
    """Whether a record without the marks of any format is one of this."""

    # What holds for whole files
    from_cells: Callable[[dict[str, str]], Record] = read_cells
    """The record of a table row, for a format that is written too."""
    problems: Callable[[list[Record], str], Iterable[Problem]] = _no_problems
    """What is to be said of a file by its first records and its layout, before its rows."""
    lacks_inputs: Callable[[list[Record]], Remark | None] = lambda sample: None
    """Why the records of a file can be neither run nor converted: they have no inputs, and never had."""
    file_name: Callable[[str, str], Remark | None] = lambda name, suffix: None
    """What is unusual about the name of a file, which has this suffix."""
    contract_beside: Callable[[FilePath], Contract | None] = lambda path: None
    """The contract that the cases of a file are for, where it stands in the usual place beside it."""
    forget: Callable[[], None] = lambda: None
    """Forgets what was read of other files: they may have changed since the last check."""

    # What a close look asks
    is_result: Callable[[Record], bool] = lambda record: False
    """Whether a record is what became of a case: then one case may stand in a file several times."""
    is_switched_off: Callable[[Case], bool] = lambda case: False
    """Whether a case expects something, and says that nothing of it is to be checked."""
    has_conditions: bool = False
    """Whether `conditions` of a case say when it is run (PIPE-15)."""
    is_open: bool = False
    """Whether records are of this format by little, so that names from elsewhere are worth a remark."""
    mapping_from: Callable[[list[Record]], str] = lambda sample: ""
    """The `--map` that makes records of this format out of others; empty when none does."""
    unread_answer: Callable[[list[Record]], UnreadAnswer | None] = lambda sample: None
    """What looks like an expected answer in records of this format, and is none to it."""

    def multiplied(self, record: Record) -> Iterable[Record]:
        """The records that one record stands for: most often itself alone."""
        return (record,) if self.multiply is None else self.multiply(record)


def json_schema(title: str, properties: Record, required: Iterable[str] = (), **more: Any) -> Record:
    """The JSON Schema of one record, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "type": "object",
        "properties": properties,
        "required": list(required),
        **more,
    }
