"""What there is to run: cases × profiles × repeats, each under a key that stays the same as long as it would."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from msgspec import Struct

from evalloom.core.digest import canonical_json
from evalloom.core.model import Case, Profile, Record, Run
from evalloom.engine.run.conditions import Conditions

KEY_BYTES = 12


class Chosen(NamedTuple):
    """A case to run, the dialect it was read in, and what is wrong with it where it is to count as an error.

    `number` is its place in the whole dataset and `occurrence` which case of its id it is, whatever is chosen.
    """

    case: Case
    dialect: str = ""
    fault: str = ""
    is_duplicate: bool = False
    """Whether its file has its id before, where it may not."""
    number: int = 0
    occurrence: int = 1


def numbered(cases: Iterable[Chosen]) -> Iterator[Chosen]:
    """The cases of a whole dataset with their places in it; a choice among them comes afterwards."""
    # Not a Counter, which takes twice as long for an id that is new, as nearly all are.
    seen: dict[str, int] = {}
    for number, (case, dialect, fault, is_duplicate, _, _) in enumerate(cases, 1):
        seen[case.id] = occurrence = seen.get(case.id, 0) + 1
        yield Chosen(case, dialect, fault, is_duplicate, number, occurrence)


class Job(Struct, frozen=True, gc=False):
    """One case to run once under one profile."""

    key: str
    case: Case
    profile: Profile
    repeat: int
    number: int
    dialect: str = ""
    fault: str = ""
    skipped: str = ""
    """Why it is not to be run."""
    blocked: str = ""
    """Why it cannot be run."""


class Keys:
    """Digests of case id, occurrence, inputs, target, profile and repeat: equal keys are one and the same run."""

    def __init__(self, target_digest: str, profile_digests: dict[str, str], beside: Iterable[str] = ()) -> None:
        """`beside` are the fields of a case's meta that its target gets beside the inputs."""
        self._beside = tuple(beside)
        self._bases = {
            # With its name: two profiles of the same content are two runs, and each has a line of its own.
            name: blake2b(canonical_json([target_digest, name, digest]), digest_size=KEY_BYTES)
            for name, digest in profile_digests.items()
        }

    def of(self, profile: str, case: Case, occurrence: int, repeat: int) -> str:
        digest = self._bases[profile].copy()
        given = [case.id, occurrence, repeat, case.inputs]
        if case.meta:
            given += [{name: case.meta[name]} for name in self._beside if name in case.meta]
        digest.update(canonical_json(given))
        return digest.hexdigest()


class Jobs(Struct):
    """Every run that is asked for, less those that are done; `total` and `there` grow as it goes."""

    cases: Iterable[Chosen]
    profiles: tuple[Profile, ...]
    repeats: int
    keys: Keys
    done: Collection[str] = ()
    only: Collection[str] | None = None
    """The keys to look at; all of them when none are named."""
    conditions: Conditions = Conditions()
    total: int = 0
    there: int = 0

    def __iter__(self) -> Iterator[Job]:
        for case, dialect, fault, _, number, occurrence in self.cases:
            for profile in self.profiles:
                skipped = "" if fault else self.conditions.why_not(case, profile, dialect)
                for repeat in range(self.repeats):
                    key = self.keys.of(profile.name, case, occurrence, repeat)
                    if self.only is not None and key not in self.only:
                        continue
                    self.total += 1
                    if key in self.done:
                        self.there += 1
                    else:
                        yield Job(key, case, profile, repeat, number, dialect, fault, skipped)


def run_of(job: Job, **more: object) -> Run:
    """A run of a job, with what came of it."""
    case = job.case
    fields: Record = dict(more)
    return Run(
        job.key,
        case.id,
        job.profile.name,
        job.repeat,
        job.number,
        tags=case.tags,
        dialect=job.dialect,
        origin=case.origin,
        raw=case.raw,
        **fields,
    )
