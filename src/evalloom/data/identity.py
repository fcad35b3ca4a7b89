"""The identity of a case: its id, else a unique description, else a digest of its content (WORK-6)."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property

import msgspec
from msgspec import Struct

from evalloom.core.digest import canonical_json, digest_bytes, digest_value, qualified_name
from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Case, Record

_CONTENT_BYTES = 6
_CHECKS_BYTES = 3
"""Digests are ids that people read and type, so they are short: 12 and 6 hex digits."""
_DICT_LIMIT = 100_000
"""Up to this number of hashes a dictionary is faster than importing numpy."""


_DIGEST = lazy_pattern(r"[0-9a-f]{12}(?:-[0-9a-f]{6})?(?:#\d+)?")


def is_digest(id: str) -> bool:
    """Whether an id looks like the digest of a case without a name."""
    return bool(_DIGEST.fullmatch(id))


def readable_name(id: str, is_unnamed: bool, record: Record, place: str) -> str:
    """Return what a person knows a case by: its id, or if that is a digest, its description and its place."""
    if not (is_unnamed and is_digest(id) and place):
        return id
    description = record.get("description")
    return f"{' '.join(description.split())} ({place})" if isinstance(description, str) and description else place


class NamedCase(Struct, frozen=True):
    """A case with its identity as its id."""

    case: Case
    position: int = 0
    """Its number in its file, where that was its id in format 1 of batches; otherwise 0."""
    is_unnamed: bool = False
    """Whether it has no id of its own, so that an edit makes it another case."""


class FileNames:
    """The names of the cases of a file, and which of them several cases share.

    That takes one look at the whole file, when a case without an id is met; only hashes are stored (decision 3).
    """

    def __init__(
        self,
        cases: Callable[[], Iterable[Case]],
        optional_id: Callable[[Record], str] = lambda record: "",
        beside_inputs: tuple[str, ...] = (),
    ) -> None:
        """`cases` reads the cases of the file as they are written; the rest is that of its dialect."""
        self._cases = cases
        self.optional_id = optional_id
        self._beside_inputs = beside_inputs
        self._hashes: NameHashes | None = None

    def use(self, hashes: NameHashes) -> None:
        """Use the hashes of a pass that has read all cases of the file, so that it is not read again for them."""
        self._hashes = hashes

    def own_name(self, case: Case) -> str:
        """Return the optional id of a case, or else its description, if no other case has it; otherwise nothing."""
        if (id := self.optional_id(case.raw)) and hash((id,)) not in self._shared:
            return id
        description = _description(case)
        return description if description and hash(description) not in self._shared else ""

    def content(self, case: Case) -> bytes:
        """Return what the target gets, and the description, as canonical JSON."""
        beside = [{name: case.meta[name]} for name in self._beside_inputs if name in case.meta]
        return canonical_json([case.inputs, _description(case), *beside])

    def is_shared(self, content: bytes) -> bool:
        """Whether several cases have this content."""
        return hash(content) in self._shared

    def is_equal(self, content: bytes, checks: str) -> bool:
        """Whether several cases have this content and these checks, and nothing else to tell them apart."""
        return hash((content, checks)) in self._equal

    @property
    def equal_cases(self) -> int:
        """The number of cases that only their order tells from an earlier one; 0 if no case without an id was met."""
        return sum(self._equal.values()) if "_shared" in self.__dict__ else 0

    @cached_property
    def _shared(self) -> Counter[int]:
        hashes = self._hashes
        if hashes is None:
            hashes = NameHashes(self)
            for case in self._cases():
                hashes.add(case)
        return _repeated(hashes.values)

    @cached_property
    def _equal(self) -> Counter[int]:
        if not self._shared:
            return Counter()
        hashes = array("q")
        for case in self._cases():
            if not case.id and self.is_shared(content := self.content(case)) and not self.own_name(case):
                hashes.append(hash((content, checks_digest(case))))
        return _repeated(hashes)


class NameHashes:
    """The hashes of what may name each case that one pass over a file has read."""

    def __init__(self, names: FileNames) -> None:
        self._names = names
        self.values = array("q")
        self.cases = 0

    def add(self, case: Case) -> None:
        """Add the id of a case, or else its content, its description and its optional id."""
        self.cases += 1
        if case.id:
            self.values.append(hash(case.id))
            return
        self.values.append(hash(self._names.content(case)))
        description = _description(case)
        id = self._names.optional_id(case.raw)
        if description:
            self.values.append(hash(description))
        if id:
            # Apart too: an id is unique among ids, a description among ids and descriptions.
            self.values.append(hash((id,)))
            if id != description:
                self.values.append(hash(id))


def _description(case: Case) -> str:
    """Return the description on one line: line breaks and indentation identify nothing."""
    description = case.meta.get("description")
    return " ".join(description.split()) if isinstance(description, str) else ""


def checks_digest(case: Case) -> str:
    """Return what tells a case from those with the same content."""
    return digest_value(msgspec.to_builtins(case.checks, enc_hook=qualified_name), _CHECKS_BYTES)


def _repeated(hashes: array[int]) -> Counter[int]:
    """Return how often each hash is there again."""
    if len(hashes) <= _DICT_LIMIT:
        return Counter({value: count - 1 for value, count in Counter(hashes).items() if count > 1})
    import numpy as np

    ordered = np.sort(np.frombuffer(hashes, np.int64))
    return Counter(ordered[1:][ordered[1:] == ordered[:-1]].tolist())


class Namer:
    """Names the cases of one file, in the order of the file."""

    def __init__(self, names: FileNames, has_row_numbers: bool = False) -> None:
        """With `has_row_numbers` a case without an id gets its number."""
        self._names = names
        self._has_row_numbers = has_row_numbers
        self._number = 0
        self._equals: Counter[str] = Counter()

    def name(self, case: Case) -> NamedCase:
        """Return the next case of the file with its identity."""
        self._number += 1
        if case.id:
            return NamedCase(case)
        if self._has_row_numbers:
            return NamedCase(msgspec.structs.replace(case, id=str(self._number)))
        id = self._identity(case)
        return NamedCase(
            msgspec.structs.replace(case, id=id), self._number, is_unnamed=id != self._names.optional_id(case.raw)
        )

    def _identity(self, case: Case) -> str:
        names = self._names
        if name := names.own_name(case):
            return name
        content = names.content(case)
        id = digest_bytes(content, _CONTENT_BYTES)
        if not names.is_shared(content):
            return id
        # The first of them gets the digest of its checks too, so that order decides only where nothing else can.
        checks = checks_digest(case)
        id = f"{id}-{checks}"
        if not names.is_equal(content, checks):
            return id
        self._equals[id] += 1
        return id if self._equals[id] == 1 else f"{id}#{self._equals[id]}"
