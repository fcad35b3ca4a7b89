"""`evalloom compare`: a batch against a baseline, another batch, or its own profiles against one of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom.analysis.compare import By, Comparing, Comparison, Rules
from evalloom.analysis.compare_config import Difference, conflicts, differences
from evalloom.analysis.compare_documents import document_changes
from evalloom.analysis.compare_figures import Grade, worst
from evalloom.batchlog import (
    BASELINES,
    FOLDER,
    Kept,
    baselines,
    batches,
    find,
    find_baseline,
    has_baseline,
    kept_runs,
    manifest,
    read_baseline,
)
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Batch, Profile
from evalloom.core.text import did_you_mean, printable, quote
from evalloom.engine.batch_kind import PLAIN, BatchKind
from evalloom.engine.compare_runs import FailureReasons, results_of, runs_of
from evalloom.engine.system import Catalog

PREFERRED = "baseline"
"""The profile or variant that others are compared with when a batch is compared within itself."""
_NAMED = 10
Warn = Callable[[str], None]


class Compare(Struct, frozen=True):
    """What is to be compared. Without a baseline, the profiles of the batch with one another."""

    batch: str
    baseline: str = ""
    profile: str = ""
    baseline_profile: str = ""
    allowed_drop: float = 0.0
    allowed_drops: dict[str, float] = {}
    """What is allowed to the bucket or tag of this name."""
    by: tuple[By, ...] = ()
    """Batches of some kinds are compared by bucket without being asked."""
    any_config: bool = False
    """Whether another configuration is a difference among others, and not an error."""
    home: Path = Path()
    """The folder whose `.evalloom` holds the batches and baselines."""


class Compared(Struct, frozen=True):
    """What came of it: the object that `--json` prints."""

    batch: str
    baseline: str
    """The name of the baseline, or the id of the batch that stands for one."""
    allowed_drop: float
    is_regression: bool
    severity: Grade
    comparisons: list[Comparison]
    differences: list[Difference]
    is_comparable: bool = True
    """Whether each comparison rests on at least half of what passed before."""
    is_same_batch: bool = False
    """Whether a batch is held against itself, or against the baseline that was saved of it."""
    allowed_drops: dict[str, float] = {}

    @property
    def is_bad(self) -> bool:
        """Whether it is a regression, or may hide one."""
        return self.is_regression or not self.is_comparable


class _Side(Struct, frozen=True):
    """One of the two that are compared."""

    name: str
    batch: Batch
    kind: BatchKind
    runs: Callable[[], Iterator[Kept]]


def compare(asked: Compare, warn: Warn, catalog: Catalog) -> Compared:
    """Compares a batch with a baseline, with another batch, or its own profiles with one of them."""
    _check_drops(asked)
    now, base = _sides(asked, catalog)
    for side in [now] if base is now else [base, now]:
        if not side.batch.finished_at:
            warn(f"{printable(side.name)}: the batch is unfinished; only what is there is compared")
    pairs = _pairs(asked, now.batch, base.batch)
    if not asked.any_config:
        _check_config(now, base, pairs)
    comparisons = _compared(pairs, asked, now, base, catalog.buckets)
    if not any(one.figures.cases for one in comparisons):
        raise usage_error("nothing_to_compare", printable(_why_nothing(now, base, comparisons)))
    if "bucket" in asked.by and not any(one.buckets for one in comparisons):
        warn(f"--by bucket: no case that is compared has one of {', '.join(catalog.buckets)} among its tags")
    return Compared(
        now.batch.id,
        base.name,
        asked.allowed_drop,
        any(one.is_regression for one in comparisons),
        worst([one.severity for one in comparisons]),
        comparisons,
        differences(base.batch, now.batch, pairs),
        all(one.is_comparable for one in comparisons),
        base.batch.id == now.batch.id and all(name == base_name for name, base_name in pairs),
        asked.allowed_drops,
    )


def _check_drops(asked: Compare) -> None:
    for name, drop in [("", asked.allowed_drop), *asked.allowed_drops.items()]:
        if not 0 <= drop <= 1:
            of = f" for {quote(name)}" if name else ""
            raise usage_error("bad_allowed_drop", f"--allowed-drop: expected a number from 0 to 1{of}, got {drop}")


def _check_config(now: _Side, base: _Side, pairs: list[tuple[str, str]]) -> None:
    """Refuses to compare what was not made in the same way (RAG-10)."""
    # Whoever compares the profiles of one batch wants to know what another llm makes of it.
    if base.batch.id == now.batch.id:
        return
    llm_answers = any(side.kind.llm_answers(side.batch.config) for side in (base, now))
    found = conflicts(base.batch, now.batch, pairs, llm_answers)
    if found:
        told = "; ".join(one.text for one in found)
        hint = "Run it again with the same, save another baseline, or compare all the same with --any-config"
        message = f"{now.name} and {base.name} were not made with the same configuration: {told}. {hint}"
        raise usage_error("config_differs", printable(message))


def _compared(
    pairs: list[tuple[str, str]], asked: Compare, now: _Side, base: _Side, buckets: tuple[str, ...]
) -> list[Comparison]:
    has_measures = now.kind.has_measures and now.kind is base.kind
    by: tuple[By, ...] = ("bucket", *asked.by) if now.kind.by_bucket else asked.by
    rules = Rules(
        asked.allowed_drop, asked.allowed_drops, by, _is_choice(now.batch), buckets, earlier_note=now.kind.earlier_note
    )
    comparing = [Comparing(*pair, rules) for pair in pairs]
    for profile, result in results_of(base.runs(), has_measures):
        for one, (_, name) in zip(comparing, pairs, strict=True):
            if name == profile:
                one.add_before(result)
    for profile, result in results_of(now.runs(), has_measures):
        for one, (name, _) in zip(comparing, pairs, strict=True):
            if name == profile:
                one.add(result)
    if asked.allowed_drops:
        _check_names(asked.allowed_drops, {name for one in comparing for name in one.names})
    return [one.result() for one in comparing]


def _check_names(drops: dict[str, float], known: set[str]) -> None:
    """Refuses a name that no case has: a slip of the pen would leave its bucket without the limit meant for it."""
    for name in drops:
        if name not in known:
            hint = did_you_mean(name, sorted(known)) or f". There is {', '.join(sorted(known)[:_NAMED]) or 'none'}"
            raise usage_error(
                "bad_allowed_drop", printable(f"--allowed-drop: no case has the bucket or tag {quote(name)}{hint}")
            )


def _is_choice(batch: Batch) -> bool:
    """Whether only some cases of the dataset were run. A limit that was not reached left none out."""
    options = batch.options
    limit, repeat = options.get("limit"), options.get("repeat") or 1
    cases = int(batch.summary.get("total") or 0) // (max(len(batch.profiles), 1) * repeat)
    return bool(options.get("tags") or options.get("filter")) or (limit is not None and cases >= limit)


def _why_nothing(now: _Side, base: _Side, comparisons: list[Comparison]) -> str:
    counts: Counter[str] = sum((Counter(one.counts) for one in comparisons), Counter())
    found = ", ".join(f"{number} {kind}" for kind, number in counts.items() if number) or "no run"
    return f"no case of {now.name} can be compared with {base.name}: {found}. Both need runs that were scored"


# Which sides, and which of their profiles


def _sides(asked: Compare, catalog: Catalog) -> tuple[_Side, _Side]:
    """What is compared, and with what; the reasons of now know what was searched before."""
    path = find(asked.batch, asked.home / FOLDER)
    batch = manifest(path)
    kind = _kind(batch, catalog)
    base = _base_side(asked.baseline, asked.home, catalog) if asked.baseline else None
    changes = document_changes(base.batch, batch) if base else None
    now = _Side(batch.id, batch, kind, lambda: runs_of(path, FailureReasons(kind, changes)))
    return now, base or now


def _kind(batch: Batch, catalog: Catalog) -> BatchKind:
    return catalog.batch_kind(batch.config) or PLAIN


def _base_side(name: str, home: Path, catalog: Catalog) -> _Side:
    """What `--baseline` names: a baseline, the file of one, or a batch."""
    folder = home / BASELINES
    file = find_baseline(name, folder) if has_baseline(name, folder) else Path(name)
    if os.path.isfile(file):
        head = read_baseline(file)
        return _Side(head.name, head.batch, _kind(head.batch, catalog), lambda: kept_runs(file))
    try:
        path = find(name, home / FOLDER)
        batch = manifest(path)
        return _Side(batch.id, batch, _kind(batch, catalog), lambda: runs_of(path))
    except EvalloomError as fault:
        if fault.code != "no_batch":
            raise
    known = [head.name for _, head in baselines(folder)] + [batch.id for _, batch in batches(home / FOLDER)]
    hint = did_you_mean(name, known) or ". 'evalloom baseline list' and 'evalloom batches list' show what there is"
    raise usage_error("no_baseline", f"--baseline: there is no baseline or batch {quote(name)}{hint}")


def _pairs(asked: Compare, now: Batch, base: Batch) -> list[tuple[str, str]]:
    """The names of the profiles that are compared: now, and before."""
    asked = msgspec.structs.replace(
        asked,
        profile=_profile_named("--profile", asked.profile, now),
        baseline_profile=_profile_named("--baseline-profile", asked.baseline_profile, base),
    )
    pairs = _pairs_between(asked, now, base) if asked.baseline else _pairs_within(asked, now)
    if not pairs:
        raise usage_error("nothing_to_compare", printable(_why_no_pair(asked, now, base)))
    return pairs


def _profile_named(flag: str, name: str, batch: Batch) -> str:
    """The profile that is meant by its name, or by its variant where no other one has that."""
    known = [one.name for one in _profiles(batch)]
    of_variant = [one.name for one in _profiles(batch) if one.variant == name]
    if not name or name in known:
        return name
    if len(of_variant) == 1:
        return of_variant[0]
    if of_variant:
        hint = f", and several of that variant: {', '.join(of_variant)}"
    else:
        hint = did_you_mean(name, known) or f". It has {', '.join(known)}"
    message = f"{flag}: {batch.id} has no profile {quote(name)}{hint}"
    raise usage_error("unknown_profile_in_batch", printable(message))


def _pairs_between(asked: Compare, now: Batch, base: Batch) -> list[tuple[str, str]]:
    names = [asked.profile] if asked.profile else [one.name for one in _profiles(now)]
    base_names = [asked.baseline_profile] if asked.baseline_profile else [one.name for one in _profiles(base)]
    if asked.baseline_profile or len(names) == len(base_names) == 1:
        return [(name, base_names[0]) for name in names]
    return [(name, name) for name in names if name in base_names]


def _pairs_within(asked: Compare, batch: Batch) -> list[tuple[str, str]]:
    """Every other profile with the one that it is to be better than."""
    profiles = _profiles(batch)
    named = [one for one in profiles if one.name == asked.baseline_profile]
    base = [*named, *(one for one in profiles if PREFERRED in (one.name, one.variant)), *profiles][0]
    pairs = [(one.name, (base if named else _twin(one, base, profiles)).name) for one in profiles]
    return [(name, other) for name, other in pairs if name != other and asked.profile in ("", name)]


def _twin(profile: Profile, base: Profile, profiles: list[Profile]) -> Profile:
    """What a profile is compared with: of variants, the one of the same llms that is the base variant."""
    if not any(one.variant for one in profiles):
        return base
    twins = [
        one
        for one in profiles
        if one.variant == base.variant
        and (one.run, one.verify, one.params) == (profile.run, profile.verify, profile.params)
    ]
    return twins[0] if twins else base


def _profiles(batch: Batch) -> list[Profile]:
    return batch.profiles or [Profile("")]


def _why_no_pair(asked: Compare, now: Batch, base: Batch) -> str:
    if not asked.baseline and asked.profile and len(now.profiles) > 1:
        return f"{asked.profile} is what the others are compared with. Name another one: --baseline-profile P"
    if not asked.baseline:
        return (
            f"{now.id} has one profile, so there is nothing to compare it with. Name a baseline or another batch: "
            "--baseline NAME ('evalloom baseline save NAME' makes one)"
        )
    sides = [", ".join(one.name for one in _profiles(batch)) for batch in (now, base)]
    return (
        f"no profile is in both: {sides[0]} now, {sides[1]} in {asked.baseline}. "
        "Say which two belong together: --profile P --baseline-profile P"
    )
