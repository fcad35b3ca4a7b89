"""The parts of every target: its description, its time limit, and helpers to read a spec."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from evalloom.core.contract import Contract, Shape
from evalloom.core.digest import digest_of as digest_of
from evalloom.core.errors import CallError, EvalloomError, usage_error
from evalloom.core.model import Case, Context, Output, Profile, Record, Target
from evalloom.core.text import did_you_mean, quote, type_name

if TYPE_CHECKING:
    from evalloom.settings import Settings

TIMEOUT_S = 120.0
_COMMON_KEYS = ("name", "timeout_s")
PROMPT_SPEC_KEYS = ("template", "system", "params", "json", "schema", "tools", "defaults", "output_parser")
"""The keys of a prompt that a spec may override."""


class TargetOptions(Struct, frozen=True):
    """Options for any target. Without `timeout_s`, each kind has its own limit."""

    timeout_s: float | None = None
    environ: Mapping[str, str] | None = None
    secrets: tuple[str, ...] = ()
    """Secrets that a target must redact in files that it writes."""
    allow_code: bool = False
    """Whether code inside a data file may run, in the sandbox."""
    settings: Settings | None = None
    """The settings, if any, for kinds with their own section."""
    kinds: tuple[Kind, ...] = ()
    """The kinds of targets of systems."""
    variants: tuple[str, ...] = ()
    """The variants that will run; none for the target as it is."""

    @property
    def environment(self) -> Mapping[str, str]:
        return os.environ if self.environ is None else self.environ


DEFAULTS = TargetOptions()


async def _nothing() -> None:
    """Close a target that has nothing open."""


class BuiltTarget(Struct, frozen=True):
    """A target ready to be called, with its description for the batch.

    `digest` identifies its content; `variables` are its required inputs; `watch` are the files it was read from;
    `secrets` must never be written anywhere; `optional` are placeholders that stay as written if a case has no such
    input.
    """

    name: str
    kind: str
    digest: str
    call: Target
    variables: frozenset[str] = frozenset()
    watch: tuple[Path, ...] = ()
    secrets: tuple[str, ...] = ()
    closing: Callable[[], Awaitable[None]] = _nothing
    optional: frozenset[str] = frozenset()
    defaulted: frozenset[str] = frozenset()
    """Other inputs that it declares: they have a default value, or a case may omit them."""
    needs_llm: bool = False
    """Whether it always needs an llm."""
    may_ask: bool = True
    """Whether it may call an llm; if not, no profile and no key is needed."""
    contract: Contract | None = None
    """The inputs and outputs that it declares, if any."""
    notes: Callable[[], Iterable[str]] = tuple
    """Returns notes for the user when the batch is over."""
    warnings: tuple[str, ...] = ()
    """Warnings for the user before the batch begins."""
    variants: Mapping[str, str] = {}
    """Its variants, and a digest of each."""
    shape: Shape | None = None
    """The steps that its cases may name, if it has steps."""
    holds_cases: bool = False
    """Whether cases are checked against its contract; without one, no other contract is searched."""
    dataset: Path | None = None
    """The default dataset."""
    has_own_outcome: bool = False
    """Whether a run is a result even if nothing is expected of it, such as the outcome of a hoplet."""

    excludes: Callable[[Case, Profile], str] | None = None
    """Returns why a case does not run under a profile; empty if it does."""
    in_order: bool = False
    """Whether a run uses the outputs of runs before it: they run one after the other, and a batch is not resumed."""
    folders: tuple[Path, ...] = ()
    """Folders that it reads from, beside the files in `watch`."""
    rebuild: Rebuild | None = None
    """Builds it again in another process; it can be pickled. None if it exists only here."""

    @property
    def takes(self) -> frozenset[str]:
        """Every input that it declares."""
        return self.variables | self.optional | self.defaulted

    async def close(self) -> None:
        await self.closing()


async def _run_nothing(inputs: Record, context: Context) -> Output:
    raise AssertionError("runs are only scored here")


NO_TARGET = BuiltTarget("", "", "", _run_nothing, may_ask=False)
"""The target of a batch that is only scored again."""
Rebuild = Callable[[TargetOptions], BuiltTarget]
"""Builds a target with the options of the machine that it runs on."""


class Kind(Struct, frozen=True):
    """One kind of target: users write `name:form`, and `build` builds it from a spec `{name: …, key: …}`."""

    name: str
    form: str
    summary: str
    build: Callable[[Record, Path, TargetOptions], BuiltTarget]
    keys: tuple[str, ...] = ()


def within(call: Target, timeout_s: float, why: Callable[[Context], str] = lambda context: "") -> Target:
    """Return the target with a time limit; `why` adds the reason to the message."""
    # Deferred: every start needs to know what a target is, and few call one.
    import asyncio

    from evalloom.core.user_loop import TimeLimit
    from evalloom.core.user_loop import time_limit as current_limit

    async def timed(inputs: Record, context: Context) -> Output:
        limit = TimeLimit(timeout_s)
        token = current_limit.set(limit)
        try:
            async with asyncio.timeout(None) as timeout:
                limit.watch(timeout)
                output = await call(inputs, context)
        except TimeoutError:
            if not timeout.expired():
                raise
        else:
            # A target may ignore its cancellation: then it answers, but too late.
            if limit.left >= 0 and not timeout.expired():
                return output
        finally:
            limit.end()
            current_limit.reset(token)
        raise CallError("timeout", f"no answer within {timeout_s:g} s{limit.reason or why(context)}") from None

    return timed


def time_limit(spec: Record, options: TargetOptions) -> float | None:
    """Return the time limit of a spec in seconds, or else that of the options."""
    seconds = spec.get("timeout_s", options.timeout_s)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
        raise bad_spec("timeout_s", "a number of seconds above 0", seconds)
    return float(seconds)


def check_keys(spec: Record, kind: Kind) -> None:
    """Refuse an unknown key, which would otherwise be ignored silently."""
    known = (kind.name, *kind.keys, *_COMMON_KEYS)
    for key in spec:
        if key not in known:
            raise usage_error(
                "bad_target_settings",
                f"target: {key}: a {kind.name} target has no such key; it has {', '.join(known)}"
                f"{did_you_mean(str(key), known)}",
            )


def bad_spec(where: str, expected: str, got: Any) -> EvalloomError:
    """Return the error for an invalid value in a spec."""
    shown = quote(got) if isinstance(got, str | int | float) else type_name(got)
    return usage_error("bad_target_settings", f"target: {where}: expected {expected}, got {shown}")


def text_in(spec: Record, key: str, default: str = "") -> str:
    """Return the text under a key of a spec."""
    value = spec.get(key, default)
    if not isinstance(value, str):
        raise bad_spec(key, "a string", value)
    return value
