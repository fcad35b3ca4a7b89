"""Chooses the batches of a history: those of one dataset and target."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.batchlog.columns import BatchRow
from evalloom.core.errors import usage_error
from evalloom.core.text import did_you_mean, list_names

LIMIT = 20
"""The batches that a history is over, unless told otherwise."""
_UNTIL_SURE = "until_sure"


class SeriesRequest(Struct, frozen=True):
    """Which batches a history is over; empty fields leave it to the newest batch."""

    batch: str = ""
    """The id of its last batch."""
    dataset: str = ""
    target: str = ""
    profile: str = ""
    limit: int = LIMIT


class Series(Struct, frozen=True):
    """A dataset and a target, with the number of their batches."""

    dataset: str
    target: str
    batches: int
    newest: str


def is_partial(row: BatchRow) -> bool:
    """Whether a batch ended by its own results (`--until-sure`), so that a usual interval is too narrow for it."""
    return bool(decoded(row.options).get(_UNTIL_SURE))


def age_of(row: BatchRow) -> tuple[str, str]:
    """Return what batches are sorted by, oldest first."""
    return (row.created_at or "", row.batch)


def choose_series(rows: list[BatchRow], request: SeriesRequest) -> tuple[list[BatchRow], list[Series]]:
    """Return the batches of one dataset and target, oldest first, and the other datasets and targets.

    The newest batch that fits the request decides which.
    """
    rows = sorted(rows, key=age_of)
    by_series: dict[tuple[str, str], list[BatchRow]] = {}
    for row in rows:
        by_series.setdefault((row.dataset or "", row.target or ""), []).append(row)
    if request.batch:
        last = next(row for row in rows if row.batch == request.batch)
        series = (last.dataset or "", last.target or "")
        chosen = by_series[series]
        chosen = chosen[: chosen.index(last) + 1]
    else:
        datasets = _matching("--dataset", request.dataset, dict.fromkeys(dataset for dataset, _ in by_series))
        fitting = {key: found for key, found in by_series.items() if key[0] in datasets}
        targets = _matching("--target", request.target, dict.fromkeys(target for _, target in fitting))
        fitting = {key: found for key, found in fitting.items() if key[1] in targets}
        series = max(fitting, key=lambda key: age_of(fitting[key][-1]))
        chosen = fitting[series]
    if request.profile and not any(request.profile in row.profiles for row in chosen):
        profiles = list(dict.fromkeys(name for row in chosen for name in row.profiles))
        hint = did_you_mean(request.profile, profiles) or f". There are {list_names(profiles)}"
        raise usage_error(
            "unknown_profile_in_batch", f"--profile {request.profile!r}: no batch of {series[1]} has it{hint}"
        )
    others = [Series(*key, len(found), found[-1].batch) for key, found in by_series.items() if key != series]
    return chosen, sorted(others, key=lambda one: one.newest, reverse=True)


def _matching(flag: str, wanted: str, names: Iterable[str]) -> set[str]:
    """Return the datasets or targets that a user means: by the whole name, by one of several paths, or by its end."""
    choices = list(names)
    if not wanted:
        return set(choices)
    path = PurePath(wanted).as_posix()
    for fits in (
        lambda name: name == wanted,
        lambda name: path in [PurePath(part).as_posix() for part in name.split(", ")],
        lambda name: any(_is_same_file(part, wanted) for part in name.split(", ")),
        lambda name: any(part.endswith(("/" + path, ":" + wanted)) for part in name.split(", ")),
    ):
        if matches := set(filter(fits, choices)):
            return matches
    hint = did_you_mean(wanted, choices) or f". There are {list_names(choices)}"
    raise usage_error("no_batch", f"{flag} {wanted!r}: no batch has it{hint}")


def _is_same_file(one: str, other: str) -> bool:
    try:
        return Path(one).resolve() == Path(other).resolve()
    except OSError:
        return False


def decoded(json: Any) -> dict[str, Any]:
    """Return an object of a JSON column; empty for NULL."""
    return msgspec.json.decode(json) if json else {}
