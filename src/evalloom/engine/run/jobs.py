"""What there is to run: cases × profiles × repeats, each under a key that stays the same as long as it would."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from hashlib import blake2b

from msgspec import Struct

from evalloom.core import memory
from evalloom.core.digest import canonical_json
from evalloom.core.model import NO_OUTPUT, NO_USAGE, Case, Outcome, Output, Profile, Record, Run, Usage
from evalloom.engine.run.conditions import Conditions

KEY_BYTES = 12


class SelectedCase(Struct, frozen=True, gc=False):
    """A case to run, with the dialect it was read in, and the error that it counts as when it is invalid.

    `number` is its position in the whole dataset, and `occurrence` counts the cases with its id; neither depends on
    the selection.
    """

    case: Case
    dialect: str = ""
    error: str = ""
    is_duplicate: bool = False
    """Whether an earlier case of its file has its id, which must be unique."""
    number: int = 0
    occurrence: int = 1
    position: int = 0
    is_unnamed: bool = False
    """As in `data.identity.NamedCase`."""


def numbered(cases: Iterable[SelectedCase]) -> Iterator[SelectedCase]:
    """Number the cases of a whole dataset. Filter them afterwards."""
    # Not a Counter, which takes twice as long for a new id, and nearly all ids are new.
    occurrences: dict[str, int] = {}
    for number, item in enumerate(cases, 1):
        id = item.case.id
        occurrences[id] = occurrence = occurrences.get(id, 0) + 1
        yield SelectedCase(
            item.case,
            item.dialect,
            item.error,
            item.is_duplicate,
            number,
            occurrence,
            item.position,
            item.is_unnamed,
        )


class Job(Struct, frozen=True, gc=False):
    """One case to run once under one profile."""

    key: str
    case: Case
    profile: Profile
    repeat: int
    number: int
    dialect: str = ""
    error: str = ""
    skipped: str = ""
    """Why its conditions skip it."""
    blocked: str = ""
    """Why a case that it depends on blocks it."""
    position: int = 0
    is_unnamed: bool = False
    """As in `Run`."""


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
        parts = [case.id, occurrence, repeat, case.inputs]
        if case.meta:
            parts += [{name: case.meta[name]} for name in self._beside if name in case.meta]
        digest.update(canonical_json(parts))
        return digest.hexdigest()


class Jobs(Struct):
    """Every requested run that is not done yet; `total` and `done_before` grow during the iteration."""

    cases: Iterable[SelectedCase]
    profiles: tuple[Profile, ...]
    repeats: int
    keys: Keys
    done: Collection[str] = ()
    only: Collection[str] | None = None
    """The keys to run; None for all of them."""
    conditions: Conditions = Conditions()
    dropped: set[str] = set()
    """The profiles whose further jobs are left out; it grows during the iteration."""
    total: int = 0
    done_before: int = 0

    def __iter__(self) -> Iterator[Job]:
        has_memory_limit = memory.is_limited()
        for item in self.cases:
            if has_memory_limit:
                memory.require_spare()
            case, error = item.case, item.error
            if self.dropped and self.dropped.issuperset(profile.name for profile in self.profiles):
                return
            for profile in self.profiles:
                if profile.name in self.dropped:
                    continue
                skipped = "" if error else self.conditions.why_not(case, profile, item.dialect)
                for repeat in range(self.repeats):
                    key = self.keys.of(profile.name, case, item.occurrence, repeat)
                    if self.only is not None and key not in self.only:
                        continue
                    self.total += 1
                    if key in self.done:
                        self.done_before += 1
                    else:
                        yield Job(
                            key,
                            case,
                            profile,
                            repeat,
                            item.number,
                            item.dialect,
                            error,
                            skipped,
                            position=item.position,
                            is_unnamed=item.is_unnamed,
                        )


def run_of(
    job: Job,
    outcome: Outcome = "OK",
    output: Output = NO_OUTPUT,
    error: str = "",
    started_at: str = "",
    duration_s: float = 0.0,
    usage: Usage = NO_USAGE,
    trace: list[Record] | None = None,
) -> Run:
    """Build the run of a job from its results."""
    case = job.case
    return Run(
        job.key,
        case.id,
        job.profile.name,
        job.repeat,
        job.number,
        outcome,
        output,
        error,
        job.skipped,
        job.blocked,
        started_at,
        duration_s,
        usage,
        [] if trace is None else trace,
        case.tags,
        job.dialect,
        case.origin,
        case.raw,
        job.position,
        job.is_unnamed,
    )
