"""Several targets in one run, and several values of a parameter: each is a column of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import chain, product
from typing import Any

import msgspec

from evalloom.core.digest import digest_of
from evalloom.core.errors import usage_error
from evalloom.core.model import Context, Output, Profile, Record
from evalloom.core.text import shorten
from evalloom.targets import BuiltTarget, TargetOptions
from evalloom.targets.base import Rebuild

_MOST_COLUMNS = 100
_NOT_A_PARAMETER = ("model", "messages", "stream")


def combine(targets: Mapping[str, BuiltTarget]) -> BuiltTarget:
    """Return one target whose variants are several targets."""
    parts = targets.values()
    for name, target in targets.items():
        if target.in_order or target.shape is not None:
            kind = f"the {target.kind} target {name}"
            raise usage_error("several_targets", f"--target: {kind} cannot run beside others; run it alone")

    async def call(inputs: Record, context: Context) -> Output:
        return await targets[context.profile.variant].call(inputs, context)

    async def close() -> None:
        for target in parts:
            await target.close()

    datasets = {target.dataset for target in parts}
    return BuiltTarget(
        name=", ".join(targets),
        kind="several",
        # A target is in the digest of its variant, so that a further one leaves the runs of the others as they are.
        digest=digest_of("several"),
        call=call,
        variables=frozenset[str]().union(*(target.variables for target in parts)),
        optional=frozenset[str]().union(*(target.optional for target in parts)),
        defaulted=frozenset[str]().union(*(target.defaulted for target in parts)),
        watch=tuple(chain.from_iterable(target.watch for target in parts)),
        folders=tuple(chain.from_iterable(target.folders for target in parts)),
        secrets=tuple(chain.from_iterable(target.secrets for target in parts)),
        closing=close,
        needs_llm=any(target.needs_llm for target in parts),
        may_ask=any(target.may_ask for target in parts),
        notes=lambda: chain.from_iterable(target.notes() for target in parts),
        warnings=tuple(dict.fromkeys(chain.from_iterable(target.warnings for target in parts))),
        variants={name: target.digest for name, target in targets.items()},
        dataset=datasets.pop() if len(datasets) == 1 else None,
        has_own_outcome=all(target.has_own_outcome for target in parts),
        rebuild=_rebuild({name: target.rebuild for name, target in targets.items()}),
    )


def _rebuild(parts: Mapping[str, Rebuild | None]) -> Rebuild | None:
    rebuilds = {name: rebuild for name, rebuild in parts.items() if rebuild is not None}
    return partial(_combine_again, rebuilds) if len(rebuilds) == len(parts) else None


def _combine_again(parts: Mapping[str, Rebuild], options: TargetOptions) -> BuiltTarget:
    return combine({name: rebuild(options) for name, rebuild in parts.items()})


def named(targets: Iterable[BuiltTarget]) -> dict[str, BuiltTarget]:
    """Return targets by short, distinct names."""
    targets = list(targets)
    short = [target.name.partition(":")[2] or target.name for target in targets]
    names = short if len(set(short)) == len(short) else [target.name for target in targets]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise usage_error("several_targets", f"--target: {twice} is named twice")
    return dict(zip(names, targets, strict=True))


def columns(profiles: Iterable[Profile], name: str, is_only: bool) -> list[Profile]:
    """Return the profiles of one of several targets; `is_only` where each has a single one."""
    return [
        msgspec.structs.replace(profile, name=name if is_only else f"{profile.name}@{name}", variant=name)
        for profile in profiles
    ]


def vary(profiles: tuple[Profile, ...], values: Mapping[str, list[Any]]) -> tuple[Profile, ...]:
    """Return each profile with each combination of values of parameters."""
    for name in values:
        if name in _NOT_A_PARAMETER:
            hint = "Name several llms with --profile" if name == "model" else "It is set for each request"
            raise usage_error("bad_option", f"--vary: {name} is no parameter to vary. {hint}")
    choices = [[(name, value) for value in listed] for name, listed in values.items()]
    varied = tuple(
        msgspec.structs.replace(
            profile,
            name=" ".join([profile.name, *(f"{name}={shorten(_shown(value), 30)}" for name, value in chosen)]),
            params={**profile.params, **dict(chosen)},
        )
        for profile in profiles
        for chosen in product(*choices)
    )
    if len(varied) > _MOST_COLUMNS:
        raise usage_error("bad_option", f"--vary: expected at most {_MOST_COLUMNS} columns, got {len(varied):,}")
    return varied


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
