"""Compares a batch with a baseline or another batch, or its profiles with one of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom.analysis.compare import By, Comparer, Comparison, ComparisonRules
from evalloom.analysis.compare_config import Difference, conflicts, differences
from evalloom.analysis.compare_documents import document_changes
from evalloom.analysis.compare_figures import Grade, worst
from evalloom.analysis.compare_rule import conclude
from evalloom.batchlog import (
    BASELINES,
    FOLDER,
    BaselineRun,
    baselines,
    batches,
    find,
    find_baseline,
    has_baseline,
    is_in_use,
    manifest,
    read_baseline,
)
from evalloom.batchlog.read import RUNS
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Batch, Profile
from evalloom.core.text import did_you_mean, printable, quote
from evalloom.engine.batch_kind import PLAIN, BatchKind
from evalloom.engine.compare_runs import FailureReasons, results_of, runs_of, runs_of_baseline
from evalloom.engine.results import warn_if_stopped_when_sure
from evalloom.engine.system import Catalog

PREFERRED = "baseline"
"""The profile or variant that others are compared with when a batch is compared within itself."""
_LISTED = 10
BIG_LOG = 16 * 1024**2
"""From so many bytes of runs on, batches are compared by Parquet copies of their results."""
Warn = Callable[[str], None]


class ComparisonRequest(Struct, frozen=True):
    """What to compare. Without a baseline, the profiles of the batch are compared with each other."""

    batch: str
    baseline: str = ""
    profile: str = ""
    baseline_profile: str = ""
    allowed_drop: float | None = None
    """How far a rate may fall; None to leave the decision to the statistics."""
    allowed_drops: dict[str, float] = {}
    """The allowed drop of single buckets and tags."""
    by: tuple[By, ...] = ()
    """Batches of some kinds are always compared by bucket."""
    any_config: bool = False
    """Whether to compare batches of different configurations."""
    home: Path = Path()
    """The folder whose `.evalloom` holds the batches and baselines."""
    is_strict: bool = False
    """Whether any drop beyond the allowed one is a regression, and any case of critical severity."""


class ComparisonResult(Struct, frozen=True):
    """The result of `evalloom compare`: the object that `--json` prints."""

    batch: str
    baseline: str
    """The name of a baseline, or the id of a batch."""
    allowed_drop: float | None
    is_regression: bool
    severity: Grade
    comparisons: list[Comparison]
    differences: list[Difference]
    is_comparable: bool = True
    """Whether each comparison covers at least half of the cases that passed before."""
    is_same_batch: bool = False
    """Whether a batch is compared with itself, or with the baseline that was saved from it."""
    allowed_drops: dict[str, float] = {}
    is_strict: bool = False

    @property
    def is_bad(self) -> bool:
        """Whether it is a regression, or may hide one."""
        return self.is_regression or not self.is_comparable


class _Side(Struct, frozen=True):
    """One of the two sides of a comparison."""

    name: str
    batch: Batch
    kind: BatchKind
    runs: Callable[[bool], Iterator[BaselineRun]]
    """Yields its runs; given True, with the ids of format 1."""
    path: Path | None = None
    """The folder of a batch; None for a baseline."""


def compare(request: ComparisonRequest, warn: Warn, catalog: Catalog) -> ComparisonResult:
    """Compare a batch with a baseline, with another batch, or its profiles with one of them."""
    for name, drop in [("", request.allowed_drop), *request.allowed_drops.items()]:
        if drop is not None and not 0 <= drop <= 1:
            group = f" for {quote(name)}" if name else ""
            raise usage_error("bad_allowed_drop", f"--allowed-drop: expected a number from 0 to 1{group}, got {drop}")
    now, base = _sides(request, catalog, warn)
    for side in [now] if base is now else [base, now]:
        if not side.batch.finished_at:
            warn(f"{printable(side.name)}: the batch is unfinished; only its finished runs are compared")
        warn_if_stopped_when_sure(side.batch, side.name, warn)
    pairs = _pairs(request, now.batch, base.batch)
    if not request.any_config:
        _check_config(now, base, pairs)
    comparisons = _comparisons(pairs, request, now, base, catalog, warn)
    if not any(item.figures.cases for item in comparisons):
        counts: Counter[str] = sum((Counter(item.counts) for item in comparisons), Counter())
        listed = ", ".join(f"{number} {kind}" for kind, number in counts.items() if number) or "no run"
        message = f"no case of {now.name} can be compared with {base.name}: {listed}. Both need scored runs"
        raise usage_error("nothing_to_compare", printable(message))
    if "bucket" in request.by and not any(item.buckets for item in comparisons):
        warn(f"--by bucket: no case that is compared has one of {', '.join(catalog.buckets)} among its tags")
    return ComparisonResult(
        now.batch.id,
        base.name,
        request.allowed_drop,
        any(item.is_regression for item in comparisons),
        worst([item.severity for item in comparisons]),
        comparisons,
        differences(base.batch, now.batch, pairs),
        all(item.is_comparable for item in comparisons),
        base.batch.id == now.batch.id and all(name == base_name for name, base_name in pairs),
        request.allowed_drops,
        request.is_strict,
    )


def shares_before(
    now: Batch, name: str, home: Path, catalog: Catalog, warn: Warn
) -> tuple[float | None, dict[str, dict[tuple[str, int], float]]]:
    """Return the pass rule of a new batch and a baseline, and the share that each case of the baseline passed.

    The shares are by profile of the new batch, then by id and occurrence of the case.
    """
    request = ComparisonRequest(now.id, name, home=home)
    base = _base_side(name, home, catalog, warn)
    pairs = _pairs(request, now, base.batch)
    _check_config(_Side(now.id, now, _kind(now, catalog), lambda by_number: iter(())), base, pairs)
    pass_if = _common_pass_rule(now, base.batch, warn)
    shares: dict[str, dict[tuple[str, int], float]] = {name: {} for name, _ in pairs}
    for profile, result in results_of(base.runs(False), False, pass_if):
        for new_name, base_name in pairs:
            if profile == base_name and result.share is not None:
                shares[new_name][result.case_id, result.occurrence] = result.share
    return pass_if, shares


def _check_config(now: _Side, base: _Side, pairs: list[tuple[str, str]]) -> None:
    """Refuse to compare batches of different configurations (RAG-10)."""
    # The profiles of one batch are compared because their llms differ.
    if base.batch.id == now.batch.id:
        return
    llm_answers = any(side.kind.llm_answers(side.batch.config) for side in (base, now))
    if differing := conflicts(base.batch, now.batch, pairs, llm_answers):
        listed = "; ".join(difference.text for difference in differing)
        hint = "Run it again with the same configuration, save another baseline, or pass --any-config"
        message = f"{now.name} and {base.name} have different configurations: {listed}. {hint}"
        raise usage_error("config_differs", printable(message))


def _comparisons(
    pairs: list[tuple[str, str]],
    request: ComparisonRequest,
    now: _Side,
    base: _Side,
    catalog: Catalog,
    warn: Warn,
) -> list[Comparison]:
    has_measures = now.kind.has_measures and now.kind is base.kind
    by: tuple[By, ...] = ("bucket", *request.by) if now.kind.by_bucket else request.by
    pass_if = _common_pass_rule(now.batch, base.batch, warn)
    rules = ComparisonRules(
        request.allowed_drop,
        request.allowed_drops,
        by,
        _is_selection(now.batch),
        catalog.buckets,
        earlier_note=now.kind.earlier_note,
        is_strict=request.is_strict,
        has_pass_rule=pass_if is not None,
    )
    comparers = [Comparer(*pair, rules) for pair in pairs]
    # A side of format 1 has no other ids.
    by_number = base.batch.has_numbered_cases or now.batch.has_numbered_cases
    # A system's own reasons, notes and measures need whole runs, and so do the ids of format 1.
    needs_runs = now.kind is not PLAIN or by_number
    if needs_runs or not _add_copies(comparers, pairs, base.path, now.path, pass_if, warn):
        for profile, result in results_of(base.runs(by_number), has_measures, pass_if):
            for comparer, (_, name) in zip(comparers, pairs, strict=True):
                if name == profile:
                    comparer.add_before(result)
        for profile, result in results_of(now.runs(by_number), has_measures, pass_if):
            for comparer, (name, _) in zip(comparers, pairs, strict=True):
                if name == profile:
                    comparer.add(result)
    if request.allowed_drops:
        _check_names(request.allowed_drops, {name for comparer in comparers for name in comparer.names})
    return conclude([comparer.result() for comparer in comparers], rules)


def _add_copies(
    comparers: list[Comparer],
    pairs: list[tuple[str, str]],
    base: Path | None,
    now: Path | None,
    pass_if: float | None,
    warn: Warn,
) -> bool:
    """Add the results in the Parquet copies of two batches; return False if their runs are to be read instead."""
    if base is None or now is None:
        return False
    files = [path / RUNS for path in (base, now)]
    # A small log takes less time to read than DuckDB to load. The copy of a batch that is being written is used once.
    is_big = any(file.is_file() and file.stat().st_size >= BIG_LOG for file in files)
    if not is_big or any(is_in_use(path) for path in (base, now)):
        return False
    from evalloom.analysis.compare_columns import CannotCopy, CopiedResults, add_results  # deferred: imports numpy

    with CopiedResults() as copies:
        try:
            results = copies.open(dict.fromkeys((base, now)), warn)
        except CannotCopy:
            return False
        for comparer, pair in zip(comparers, pairs, strict=True):
            add_results(comparer, results[0], results[-1], pair, pass_if)
    return True


def _common_pass_rule(now: Batch, base: Batch, warn: Warn) -> float | None:
    """Return the pass rule of both sides; None where they differ, and cases count by their shares."""
    rules = [(batch.options.get("repeat") or 1, batch.options.get("pass_if")) for batch in (base, now)]
    if rules[0] == rules[1]:
        return rules[0][1]
    if any(pass_if is not None for _, pass_if in rules):
        # More repeats meet the same rule more or less often, though nothing changed.
        warn("the pass rules or repeats of the two sides differ, so cases are compared by the share that passed")
    return None


def _check_names(drops: dict[str, float], names: set[str]) -> None:
    """Refuse the name of a bucket or tag that no case has: after a typo, the intended one would have no limit."""
    for name in drops:
        if name not in names:
            hint = did_you_mean(name, sorted(names)) or f". There is {', '.join(sorted(names)[:_LISTED]) or 'none'}"
            raise usage_error(
                "bad_allowed_drop", printable(f"--allowed-drop: no case has the bucket or tag {quote(name)}{hint}")
            )


def _is_selection(batch: Batch) -> bool:
    """Whether only some cases of the dataset were run. A limit that was not reached excludes none."""
    options = batch.options
    limit, repeat = options.get("limit"), options.get("repeat") or 1
    cases = int(batch.summary.get("total") or 0) // (max(len(batch.profiles), 1) * repeat)
    return bool(options.get("tags") or options.get("filter")) or (limit is not None and cases >= limit)


# -- the two sides, and the profiles to compare ------------------------------------------------------------


def _sides(request: ComparisonRequest, catalog: Catalog, warn: Warn) -> tuple[_Side, _Side]:
    """Return the batch and the side that it is compared with."""
    path = find(request.batch, request.home / FOLDER)
    batch = manifest(path)
    kind = _kind(batch, catalog)
    base = _base_side(request.baseline, request.home, catalog, warn) if request.baseline else None
    changes = document_changes(base.batch, batch) if base else None
    now = _Side(
        batch.id, batch, kind, lambda by_number: runs_of(path, FailureReasons(kind, changes), by_number, warn), path
    )
    return now, base or now


def _kind(batch: Batch, catalog: Catalog) -> BatchKind:
    return catalog.batch_kind(batch.config) or PLAIN


def base_batch(request: ComparisonRequest) -> Path | None:
    """Return the folder of the batch that is compared with: the batch itself without a baseline, None for one."""
    if not request.baseline:
        return find(request.batch, request.home / FOLDER)
    is_baseline = os.path.isfile(_baseline_file(request.baseline, request.home))
    return None if is_baseline else find(request.baseline, request.home / FOLDER)


def _baseline_file(name: str, home: Path) -> Path:
    folder = home / BASELINES
    return find_baseline(name, folder) if has_baseline(name, folder) else Path(name)


def _base_side(name: str, home: Path, catalog: Catalog, warn: Warn) -> _Side:
    """Find what `--against` names: a baseline, the file of one, or a batch."""
    file = _baseline_file(name, home)
    if os.path.isfile(file):
        head = read_baseline(file)
        return _Side(head.name, head.batch, _kind(head.batch, catalog), partial(runs_of_baseline, file))
    try:
        path = find(name, home / FOLDER)
        batch = manifest(path)
        return _Side(batch.id, batch, _kind(batch, catalog), partial(runs_of, path, None, warn=warn), path)
    except EvalloomError as error:
        if error.code != "no_batch":
            raise
    names = [head.name for _, head in baselines(home / BASELINES)] + [batch.id for _, batch in batches(home / FOLDER)]
    hint = did_you_mean(name, names) or ". 'evalloom baseline list' and 'evalloom batches list' show what there is"
    raise usage_error("no_baseline", f"--against: there is no baseline or batch {quote(name)}{hint}")


def _pairs(request: ComparisonRequest, now: Batch, base: Batch) -> list[tuple[str, str]]:
    """Return the names of the profiles to compare: now, and before."""
    request = msgspec.structs.replace(
        request,
        profile=_profile_named("--profile", request.profile, now),
        baseline_profile=_profile_named("--baseline-profile", request.baseline_profile, base),
    )
    pairs = _pairs_between(request, now, base) if request.baseline else _pairs_within(request, now)
    if not pairs:
        raise usage_error("nothing_to_compare", printable(_why_no_pair(request, now, base)))
    return pairs


def _profile_named(flag: str, name: str, batch: Batch) -> str:
    """Find a profile by its name, or by its variant where that is unique."""
    names = [profile.name for profile in _profiles(batch)]
    of_variant = [profile.name for profile in _profiles(batch) if profile.variant == name]
    if not name or name in names:
        return name
    if len(of_variant) == 1:
        return of_variant[0]
    if of_variant:
        hint = f", and several of that variant: {', '.join(of_variant)}"
    else:
        hint = did_you_mean(name, names) or f". It has {', '.join(names)}"
    message = f"{flag}: {batch.id} has no profile {quote(name)}{hint}"
    raise usage_error("unknown_profile_in_batch", printable(message))


def _pairs_between(request: ComparisonRequest, now: Batch, base: Batch) -> list[tuple[str, str]]:
    names = [request.profile] if request.profile else [profile.name for profile in _profiles(now)]
    base_names = (
        [request.baseline_profile] if request.baseline_profile else [profile.name for profile in _profiles(base)]
    )
    if request.baseline_profile or len(names) == len(base_names) == 1:
        return [(name, base_names[0]) for name in names]
    return [(name, name) for name in names if name in base_names]


def _pairs_within(request: ComparisonRequest, batch: Batch) -> list[tuple[str, str]]:
    """Pair each profile with the one that it should improve on."""
    profiles = _profiles(batch)
    named = [profile for profile in profiles if profile.name == request.baseline_profile]
    base = [*named, *(profile for profile in profiles if PREFERRED in (profile.name, profile.variant)), *profiles][0]
    pairs = [(profile.name, (base if named else _twin(profile, base, profiles)).name) for profile in profiles]
    return [(name, base_name) for name, base_name in pairs if name != base_name and request.profile in ("", name)]


def _twin(profile: Profile, base: Profile, profiles: list[Profile]) -> Profile:
    """Return the profile of the base variant with the same llms; without variants, the base."""
    if not any(candidate.variant for candidate in profiles):
        return base
    llms = (profile.run, profile.verify, profile.params)
    for candidate in profiles:
        if candidate.variant == base.variant and (candidate.run, candidate.verify, candidate.params) == llms:
            return candidate
    return base


def _profiles(batch: Batch) -> list[Profile]:
    return batch.profiles or [Profile("")]


def _why_no_pair(request: ComparisonRequest, now: Batch, base: Batch) -> str:
    if not request.baseline and request.profile and len(now.profiles) > 1:
        return f"{request.profile} is the profile that others are compared with. Name another: --baseline-profile P"
    if not request.baseline:
        return (
            f"{now.id} has one profile, so there is nothing to compare it with. Name a baseline or another batch: "
            "--against NAME ('evalloom baseline save NAME' saves one)"
        )
    sides = [", ".join(profile.name for profile in _profiles(batch)) for batch in (now, base)]
    return (
        f"no profile is in both: {sides[0]} now, {sides[1]} in {request.baseline}. "
        "Name the two to compare: --profile P --baseline-profile P"
    )
