"""A dialect: one format of test files, described by functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path as FilePath
from typing import Any

from msgspec import Struct

from evalloom.core.contract import Contract, Shape
from evalloom.core.model import Case, Check, Origin, Path, Record, Remark
from evalloom.data.cells import read_cells
from evalloom.files.rows import Problem


class Rules(Struct, frozen=True):
    """Further rules that `validate` checks a file against, beside the format itself."""

    root: FilePath = FilePath(".")
    check_sources_exist: bool = False
    check_must_include_in_sources: bool = False
    strict_bucket: bool = False
    strict_pair_id: bool = False
    required: frozenset[str] | None = None
    """The required fields, where the command needs fewer than the format requires."""
    unused: frozenset[str] = frozenset()
    """The other fields that the command does not use."""
    contract: Contract | None = None
    has_no_contract: bool = False
    """Whether there is no contract, so that none is looked up beside the file."""
    steps: frozenset[str] | None = None
    shape: Shape | None = None
    """The steps, inputs and outputs of the target that the cases must fit."""
    more: Mapping[str, Any] = {}
    """The values of flags that systems of other packages add, by name."""


class Written(Struct, frozen=True):
    """A case in another format, and notes on what that format cannot represent."""

    record: Record
    lost: tuple[str, ...] = ()


class Included(Struct, frozen=True):
    """A file with further records that a document names."""

    file: str
    path: Path
    beside: Record = {}
    """Fields that the document adds to each record of the file."""
    each: Callable[[Record], Iterable[Record | Remark]] | None = None
    """Yields what a record of the file stands for; None if it stands for itself."""
    root: FilePath | None = None
    """The folder that the file is in or below; None for the folder of the document. Never taken from the document."""


class Surroundings(Struct, frozen=True):
    """What a document may use beside its own text: the files of its folder, and code if the user allows it."""

    folder: FilePath | None = None
    """The folder of the document; None if it comes from stdin."""
    allow_code: bool = False


Expanded = Iterable[tuple[Path, Record] | Included | Remark]
Sniff = Callable[[Record], str]
"""Returns why a record looks like a format; empty if it does not."""

VAGUE = 900
"""The rank of marks that many other objects have too: tested last, and no proof that an object is a case."""


class Pairing(Struct, frozen=True):
    """Pairs of cases: `of` returns the pair id of a record, stripped, and the side that it is on."""

    field: str
    side_field: str
    sides: tuple[str, str]
    of: Callable[[Record], tuple[str, str] | None]


class PlainFields(Struct, frozen=True):
    """What else decides that a record has no findings, if one with the same keys and types has none."""

    patterns: Mapping[str, str]
    """A regular expression for the JSON of each field whose value matters; if empty, the value must be the same."""
    not_first: tuple[str, ...] = ()
    """What no text may begin with."""


INTEGER = "-?(?:0|[1-9][0-9]{0,14}+)"
TEXT = r'"[^\s"\\][^"]*+"'
"""Matches a text that does not begin with white space, so that it is not blank."""
LONGER_TEXT = r'"[^\s"\\][^"]++(?<=\S)"'
"""Matches a text of two or more characters without white space around it."""


def list_of(pattern: str) -> str:
    """Return a pattern for a list of one or more texts."""
    return rf"\[{pattern}(?:, {pattern})*\]"


def list_of_distinct(pattern: str, most: int = 8) -> str:
    """Return a pattern for a list of up to `most` texts, of which no two are the same."""
    regex = ""
    for number in reversed(range(most)):
        others = "".join(f"(?!(?P=_{earlier}))" for earlier in range(number))
        regex = f"{', ' if number else ''}{others}(?P<_{number}>{pattern}){f'(?:{regex})?' if regex else ''}"
    return rf"\[{regex}\]"


class UnreadAnswer(Struct, frozen=True):
    """A field that looks like the expected answer but is not used as one, and advice for the user."""

    field: str
    advice: str


OptionType = type[bool] | type[float] | type[str] | tuple[str, ...]
"""What an option of a scorer may be: true or false, a number, a text, or one of some words."""


class Scorer(Struct, frozen=True):
    """One way in which a tool compares an output with what a sample expects."""

    name: str
    summary: str
    checks: Callable[[Case, Record], Iterable[Check]]
    """Returns the checks of a case, which has those of the plain dialect, by the options that the user gives."""
    options: Mapping[str, OptionType] = {}
    """The options by name; values without a name are taken in this order."""
    required: tuple[str, ...] = ()

    @property
    def form(self) -> str:
        """The scorer with the names of its options, as users write it."""
        return f"{self.name}({', '.join(self.options)})" if self.options else self.name


class Dialect(Struct, frozen=True):
    """One format. Functions that a format does not need keep their defaults."""

    name: str
    summary: str
    sniff: Sniff
    findings: Callable[[Record, Rules], Iterable[Remark]]
    to_case: Callable[[Record, Origin], Case]
    are_clean: Callable[[list[Record], Rules], bool] = lambda records, rules: False
    """A fast test for records without findings; False means that `findings` checks each of them.

    Never True for a record that multiplies or depends on others, has a list of checks, or has a check that needs a
    service or that no run can score.
    """
    plain_fields: Callable[[Record], PlainFields | None] = lambda record: None
    """Returns which values of a clean record matter; None if keys, types and these do not make a record clean."""
    identity: Callable[[Record], str | int | None] = lambda record: None
    """Returns the id that must be unique in a file; None if the record has no usable id."""
    optional_id: Callable[[Record], str] = lambda record: ""
    """Returns an id that need not be unique in a file: it identifies a case only if it is."""
    has_row_numbers: bool = False
    """Whether a record without an id is known by its number in the file (HOP-3, REPLAY-7)."""
    write: Callable[[Case, int], Written] | None = None
    """Writes a case that was read from another format; the second argument is its number in the file."""
    canonical: Callable[[Record], Record] = lambda record: record
    """Returns a record of this format in the shape in which it is written."""
    schema: Callable[[], Record] | None = None
    is_case: Callable[[Record], bool] = lambda record: True
    """Whether a record is a case at all (a meta line is not)."""
    same_case: Callable[[Record], tuple[str, str]] | None = None
    """Returns keys for the case and the run of a row, where several rows may be runs of one case; otherwise empty."""
    multiply: Callable[[Record], Iterable[Record]] | None = None
    """Yields the records that one record expands to; lazily, because they may be many and large."""
    needs: Callable[[Record], tuple[str, ...]] | None = None
    """Returns the ids of the cases in the same file that a record depends on."""
    beside_inputs: tuple[str, ...] = ()
    """Meta fields that the target gets beside the inputs; a changed value makes a different run."""
    fit: Callable[[Case, Contract], Case] | None = None
    """Returns a case with the inputs that a contract names."""
    expand: Callable[[Record], Expanded | None] = lambda document: None
    """Yields the records in a document such as a config file; None if it is not of this format."""
    expand_in: Callable[[Record, Surroundings], Expanded | None] | None = None
    """As `expand`, for a format whose documents use other files."""
    added_fields: tuple[str, ...] = ()
    """The fields that `expand_in` adds to records for their own use."""
    pairing: Pairing | None = None
    """Pairs of cases that need both sides."""
    category: Callable[[Record], str] = lambda record: ""
    """Returns the category of a case, where the format has a field for it under another name."""
    id_field: str = "id"
    not_object_code: str = "json_not_object"
    """The code of the finding about a row that is not an object."""
    ids_increase: bool = False
    as_array: bool = False
    """Whether the format's own files are one JSON array instead of one object per line."""

    # Expectations
    expectations: tuple[str, ...] = ()
    """The fields that hold expectations, for advice on other fields that only look like it."""
    has_check_list: Callable[[Record], bool] = lambda record: False
    """Whether a record may have a list of checks in the form of evalloom.yaml, under `checks`."""
    check_paths: Callable[[Record], Iterable[Path]] = lambda record: ()
    """Returns where each check of a case is written, in the order of `to_case`; an empty path is outside the record."""
    scorers: Callable[[], tuple[Scorer, ...]] = lambda: ()
    """Returns the scorers of the tool, which a user names after a colon: `inspect:includes`."""
    scorer_note: Callable[[Record], str] = lambda record: ""
    """Returns how a record without a scorer is scored, and which to name, if its tool would decide otherwise."""

    # Recognition
    rank: int = 100
    """The order in which formats are tested: stronger marks have lower ranks."""
    weaker: tuple[tuple[int, Sniff], ...] = ()
    """Further marks with their ranks."""
    is_fallback: bool = False
    """Whether this is the format of records without the marks of any format."""

    # Whole files
    from_cells: Callable[[dict[str, str]], Record] = read_cells
    """Turns a table row into a record, for a format that can be written."""
    problems: Callable[[list[Record], str], Iterable[Problem]] = lambda sample, layout: ()
    """Returns the problems of a file by its first records and its layout."""
    lacks_inputs: Callable[[list[Record]], Remark | None] = lambda sample: None
    """Returns why the records of a file can be neither run nor converted: the format has no inputs."""
    file_name: Callable[[str, str], Remark | None] = lambda name, suffix: None
    """Returns a warning about an unusual file name, by name and suffix."""
    contract_beside: Callable[[FilePath], Contract | None] = lambda path: None
    """Returns the contract of a dataset file, if it is in the usual place beside it."""
    forget: Callable[[], None] = lambda: None
    """Clears cached contents of other files, which may have changed since the last check."""

    # Deep checks
    is_result: Callable[[Record], bool] = lambda record: False
    """Whether a record is the result of a case, so that a file may repeat the case."""
    is_switched_off: Callable[[Case], bool] = lambda case: False
    """Whether a case has expectations but switches off all checks."""
    has_conditions: bool = False
    """Whether `conditions` of a case decide when it runs (PIPE-15)."""
    is_open: bool = False
    """Whether the marks of the format are so weak that field names of other tools deserve a warning."""
    mapping_from: Callable[[list[Record]], str] = lambda sample: ""
    """Returns the `--map` value that turns other records into this format; empty if none does."""
    unread_answer: Callable[[list[Record]], UnreadAnswer | None] = lambda sample: None
    """Returns the field that looks like an expected answer but is not one in this format."""

    def expanded(self, document: Record, surroundings: Surroundings) -> Expanded | None:
        """Yield the records in a document; None if it is not of this format."""
        if self.expand_in is not None:
            return self.expand_in(document, surroundings)
        return self.expand(document)

    def multiplied(self, record: Record) -> Iterable[Record]:
        """Return the records that one record expands to: usually only itself."""
        return (record,) if self.multiply is None else self.multiply(record)


def json_schema(title: str, properties: Record, required: Iterable[str] = (), **more: Any) -> Record:
    """Return the JSON Schema of one record, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "type": "object",
        "properties": properties,
        "required": list(required),
        **more,
    }
