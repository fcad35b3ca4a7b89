"""`evalloom baseline` and `evalloom compare`: keeps what a batch came to, and holds another batch against it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.analysis.compare import By, CaseResult, Comparing, Comparison, Rules
from evalloom.analysis.compare_config import Difference, conflicts, differences, is_rag
from evalloom.analysis.compare_documents import DocumentChanges, Suspects, document_changes
from evalloom.analysis.compare_figures import Grade, worst
from evalloom.analysis.compare_measures import Measures
from evalloom.analysis.tally import Tally
from evalloom.batchlog import (
    BASELINES,
    FOLDER,
    Baseline,
    Kept,
    baselines,
    batches,
    checked_name,
    find,
    find_baseline,
    has_baseline,
    is_in_use,
    kept_runs,
    manifest,
    read_baseline,
    save_baseline,
)
from evalloom.batchlog.baselines import MOST
from evalloom.core.errors import EvalloomError, did_you_mean, usage_error
from evalloom.core.model import Batch, Profile, Run, Scored, Status, quote
from evalloom.engine.plan import now as time_now
from evalloom.engine.results import stored_runs
from evalloom.engine.run import encoded
from evalloom.rag.dialect import BUCKETS
from evalloom.reports.lint import printable

PREFERRED = "baseline"
"""The profile or variant that others are compared with when a batch is compared within itself."""
_DIGEST_BYTES = 8
_NAMED = 10
_SOURCES = 3
"""How many sources a reason names."""
_COUNTED: tuple[Status, ...] = ("passed", "failed", "error")
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
    """RAG batches are compared by bucket without being asked."""
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
    runs: Callable[[], Iterator[Kept]]


def keep(name: str, batch: str, force: bool, warn: Warn, home: Path = Path()) -> Path:
    """Saves what a batch came to under a name; `force` replaces a baseline, and takes an unfinished batch."""
    if has_baseline(checked_name(name), home / BASELINES) and not force:
        raise usage_error("baseline_exists", f"there is a baseline {name!r} already. Replace it with --force")
    path = find(batch, home / FOLDER)
    if is_in_use(path):
        message = f"{path.as_posix()}: another process is writing this batch. Wait for it, or stop it"
        raise EvalloomError("batch_in_use", message)
    facts = manifest(path)
    if not facts.finished_at and not force:
        hint = "Go on with 'evalloom run … --resume', or keep what is there with --force"
        raise usage_error("unfinished_batch", f"{path.as_posix()}: the batch is unfinished. {hint}")
    tally = Tally()
    for run, scored in stored_runs(path):
        tally.add(run, scored)
    summary = tally.summary(facts.id, path.as_posix())
    if summary.pass_rate is None:
        warn(f"{path.name}: no run passed, failed or met an error, so nothing can be compared with it")
    # Of the options only what bears on a comparison: the file is to differ only where results do.
    options = {name: value for name, value in facts.options.items() if name == "repeat"}
    facts = msgspec.structs.replace(facts, options=options, summary=msgspec.to_builtins(summary))
    head = Baseline(name=name, saved_at=time_now(), runs=summary.total, batch=facts)
    return save_baseline(head, runs_of(path), home / BASELINES)


def compare(asked: Compare, warn: Warn) -> Compared:
    """Holds a batch against a baseline, another batch, or its own profiles against one of them."""
    _check_drops(asked)
    now, base = _sides(asked)
    for side in [now] if base is now else [base, now]:
        if not side.batch.finished_at:
            warn(f"{printable(side.name)}: the batch is unfinished; only what is there is compared")
    pairs = _pairs(asked, now.batch, base.batch)
    if not asked.any_config:
        _check_config(now, base, pairs)
    comparisons = _compared(pairs, asked, now, base)
    if not any(one.figures.cases for one in comparisons):
        raise usage_error("nothing_to_compare", printable(_why_nothing(now, base, comparisons)))
    if "bucket" in asked.by and not any(one.buckets for one in comparisons):
        warn(f"--by bucket: no case that is compared has one of {', '.join(BUCKETS)} among its tags")
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
    found = conflicts(base.batch, now.batch, pairs) if base.batch.id != now.batch.id else []
    if found:
        told = "; ".join(one.text for one in found)
        hint = "Run it again with the same, save another baseline, or compare all the same with --any-config"
        message = f"{now.name} and {base.name} were not made with the same configuration: {told}. {hint}"
        raise usage_error("config_differs", printable(message))


def _compared(pairs: list[tuple[str, str]], asked: Compare, now: _Side, base: _Side) -> list[Comparison]:
    has_measures = is_rag(now.batch) and is_rag(base.batch)
    by: tuple[By, ...] = ("bucket", *asked.by) if is_rag(now.batch) else asked.by
    rules = Rules(asked.allowed_drop, asked.allowed_drops, by, _is_choice(now.batch))
    comparing = [Comparing(*pair, rules) for pair in pairs]
    for profile, result in _results(base.runs(), has_measures):
        for one, (_, name) in zip(comparing, pairs, strict=True):
            if name == profile:
                one.add_before(result)
    for profile, result in _results(now.runs(), has_measures):
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


def _sides(asked: Compare) -> tuple[_Side, _Side]:
    """What is compared, and with what; the reasons of now know what was searched before."""
    path = find(asked.batch, asked.home / FOLDER)
    batch = manifest(path)
    base = _base_side(asked.baseline, asked.home) if asked.baseline else None
    changes = document_changes(base.batch, batch) if base else None
    now = _Side(batch.id, batch, lambda: runs_of(path, Why(is_rag(batch), changes)))
    return now, base or now


def _batch_side(path: Path) -> _Side:
    batch = manifest(path)
    return _Side(batch.id, batch, lambda: runs_of(path))


def _base_side(name: str, home: Path) -> _Side:
    """What `--baseline` names: a baseline, the file of one, or a batch."""
    folder = home / BASELINES
    file = find_baseline(name, folder) if has_baseline(name, folder) else Path(name)
    if os.path.isfile(file):
        head = read_baseline(file)
        return _Side(head.name, head.batch, lambda: kept_runs(file))
    try:
        return _batch_side(find(name, home / FOLDER))
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


# Runs of a batch as a baseline keeps them, and as they are compared


class Why:
    """Tells why a run did not pass. That stays out of the file of a baseline: it may quote what people wrote."""

    def __init__(self, of_rag: bool = False, changes: DocumentChanges | None = None) -> None:
        self._of_rag = of_rag
        self._suspects = Suspects(changes or DocumentChanges())

    def __call__(self, run: Run, scored: Scored) -> tuple[str, tuple[str, ...]]:
        """The reason, and what may have caused it."""
        if scored.status == "passed":
            return "", ()
        if not self._of_rag:
            return _reason(run, scored), ()
        expected = _texts(run.raw.get("expected_sources"))
        return _rag_reason(run, scored, expected), self._suspects.notes(expected)


def runs_of(path: Path, why: Why | None = None) -> Iterator[Kept]:
    """What every run of a batch came to, by profile, case and repeat."""
    seen: Counter[str] = Counter()
    profile, case = "", (-1, "")
    for run, scored in stored_runs(path):
        if run.profile != profile:
            seen.clear()
            profile, case = run.profile, (-1, "")
        # The same id at another place of the dataset is another case.
        if (run.number, run.case_id) != case:
            case = (run.number, run.case_id)
            seen[run.case_id] += 1
        yield _kept(run, scored, seen[run.case_id], why)


def _kept(run: Run, scored: Scored, occurrence: int, why: Why | None) -> Kept:
    is_answered = not run.error and scored.status not in ("skipped", "blocked") and not run.usage.cached
    reason, notes = why(run, scored) if why else ("", ())
    return Kept(
        run.case_id,
        scored.status,
        run.profile,
        occurrence,
        run.repeat,
        _bounded(scored.score, -MOST),
        run.tags,
        tuple((one.name, one.status, _bounded(one.score, -MOST)) for one in scored.verdicts),
        _bounded(round(run.latency_s, 6), 0) if is_answered else None,
        min(max(run.usage.tokens, 0), MOST),
        _bounded(run.usage.cost, 0) or None,
        blake2b(encoded([run.case_id, run.raw]), digest_size=_DIGEST_BYTES).hexdigest(),
        reason,
        notes,
    )


def _bounded(value: float | None, low: float) -> float | None:
    """A number within what a baseline may hold, so that its sums are numbers too."""
    return None if value is None else min(max(value, low), MOST)


def _reason(run: Run, scored: Scored) -> str:
    """Why a run did not pass: its error, or the first check that did not hold, of those that count if there is one."""
    faults = [one for one in scored.verdicts if one.status not in ("passed", "skipped")]
    told = [f"{one.name}: {one.reason}" for one in sorted(faults, key=lambda one: not one.weight)]
    return run.error or run.blocked or run.skipped or next(iter(told), "")


def _rag_reason(run: Run, scored: Scored, expected: list[str]) -> str:
    """What should have been found and was not, with what was found instead; of an answer also what is wrong with it."""
    missed = any(one.name.startswith("hit@") and one.status == "failed" for one in scored.verdicts)
    if run.error or not missed:
        return _reason(run, scored)
    sources = [one.get("source") if isinstance(one, dict) else one for one in run.output.sources]
    found = _first_of(_texts(sources)) or "nothing"
    retrieved = f"expected {_first_of(expected)}, found {found}"
    decides = next((one for one in scored.verdicts if one.weight and one.status == "failed"), None)
    if decides is None or decides.name.startswith("hit@"):
        return retrieved
    return f"{decides.name}: {decides.reason}; {retrieved}"


def _texts(value: Any) -> list[str]:
    """The texts of a list in a user's record, each once."""
    return list(dict.fromkeys(one for one in value if isinstance(one, str))) if isinstance(value, list) else []


def _first_of(names: list[str]) -> str:
    more = len(names) - _SOURCES
    return ", ".join(names[:_SOURCES]) + (f" and {more} more" if more > 0 else "")


def _results(runs: Iterator[Kept], has_measures: bool) -> Iterator[tuple[str, CaseResult]]:
    """One result for all repeats of a case, with the profile."""
    for (profile, _, _), repeats in groupby(runs, lambda run: (run.profile, run.case_id, run.occurrence)):
        yield profile, _result(list(repeats), has_measures)


def _result(runs: list[Kept], has_measures: bool) -> CaseResult:
    first = runs[0]
    counted = [run.status for run in runs if run.status in _COUNTED]
    passed = counted.count("passed")
    scores = [run.score for run in runs if run.score is not None]
    latencies = [run.latency_s for run in runs if run.latency_s is not None]
    telling = next((run for run in runs if run.status != "passed"), first)
    return CaseResult(
        first.case_id,
        first.occurrence,
        _status([run.status for run in runs], counted, passed),
        passed / len(counted) if counted else None,
        _mean(scores) if scores else None,
        first.tags,
        first.digest,
        _mean(latencies) if latencies else None,
        _mean([run.tokens for run in runs]),
        sum(run.cost or 0.0 for run in runs),
        telling.reason,
        telling.notes,
        _measures(runs) if has_measures else (),
    )


def _measures(runs: list[Kept]) -> Measures:
    """The score of each check, its mean over the repeats. A run that met an error has no checks, and counts in none."""
    found: dict[str, list[float]] = {}
    for run in runs:
        for name, _, score in run.checks:
            if score is not None and 0 <= score <= 1:
                found.setdefault(name, []).append(score)
    return tuple((name, _mean(scores)) for name, scores in found.items())


def _mean(values: Sequence[float]) -> float:
    # Not `fsum`, which raises where a file that somebody edited holds numbers beyond all measure.
    return sum(values) / len(values)


def _status(statuses: list[Status], counted: list[Status], passed: int) -> Status:
    """What the repeats of a case come to: passed when all did, an error when none did and one met one."""
    if not counted:
        return "blocked" if "blocked" in statuses else statuses[0]
    if passed == len(counted):
        return "passed"
    return "error" if not passed and "error" in counted else "failed"
