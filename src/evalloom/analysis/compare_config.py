"""Lists the differences in configuration between two batches, which may explain their different results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from msgspec import Struct

from evalloom.analysis.compare_documents import document_changes
from evalloom.core.model import Batch, Profile, Record
from evalloom.core.text import shorten

_FACTS = ("profile", "variant", "llm", "model", "verify", "params")
_ANSWERING = ("llm", "model", "verify", "params")
"""The facts of a profile that affect an answer; its name does not."""
_LONGEST_VALUE = 80
_MAX_DEPTH = 20
"""Deeper settings are compared as a whole, because a file may be nested without limit."""


class Difference(Struct, frozen=True):
    """One difference between two batches; `text` describes it."""

    what: str
    before: Any
    now: Any
    text: str


def differences(base: Batch, now: Batch, profiles: list[tuple[str, str]]) -> list[Difference]:
    """Return the differences between two batches; `profiles` are the compared pairs, now and before."""
    listed = [*_config(base.config, now.config), *_documents(base, now)]
    # If batches have settings and documents, those define the target, and a difference in it is listed already.
    if not (listed and base.config and now.config):
        listed += _target(base, now)
    listed += _datasets(base, now)
    for name, base_name in profiles:
        listed += _profile(base, now, base_name, name)
    listed += _left_out(base, now, profiles)
    if not listed:
        listed += _hidden(base, now)
    for what, before, after in (
        ("repeat", base.options.get("repeat", 1), now.options.get("repeat", 1)),
        ("evalloom", base.evalloom, now.evalloom),
    ):
        if before != after:
            listed.append(Difference(what, before, after, f"{what}: {before} → {after}"))
    return listed


def conflicts(base: Batch, now: Batch, profiles: list[tuple[str, str]], llm_answers: bool) -> list[Difference]:
    """Return the differences that forbid a comparison (RAG-10): of settings, and of the llm that answers.

    `llm_answers` says whether an llm answers in either batch.
    """
    listed = [*_config(base.config, now.config)]
    if llm_answers:
        for name, base_name in profiles:
            listed += _profile(base, now, base_name, name, _ANSWERING)
    return listed


def _config(before: Record, now: Record) -> Iterator[Difference]:
    """Every setting that is not the same, by its dotted path."""
    old, new = _flat(before), _flat(now)
    for path in [*old, *(path for path in new if path not in old)]:
        if path not in new:
            yield Difference(f"config.{path}", old[path], None, f"{path} only before: {_cut(old[path])}")
        elif path not in old:
            yield Difference(f"config.{path}", None, new[path], f"{path} only now: {_cut(new[path])}")
        elif old[path] != new[path]:
            yield Difference(f"config.{path}", old[path], new[path], f"{path}: {_turn(old[path], new[path])}")


def _flat(config: Record, path: str = "", depth: int = 1) -> Record:
    flat: Record = {}
    for name, value in config.items():
        if isinstance(value, dict) and value and depth < _MAX_DEPTH:
            flat |= _flat(value, f"{path}{name}.", depth + 1)
        else:
            flat[f"{path}{name}"] = value
    return flat


def _turn(before: Any, now: Any) -> str:
    shown = _cut(before), _cut(now)
    # 5 and '5', or two long texts that differ only near their ends, would look the same.
    return " → ".join(shown) if shown[0] != shown[1] else f"{before!r} → {now!r}"


def _cut(value: Any) -> str:
    return shorten(_shown(value), _LONGEST_VALUE)


def _documents(base: Batch, now: Batch) -> Iterator[Difference]:
    changes = document_changes(base, now)
    if changes is None:
        return
    before = {path: base.documents[path] for path in (*changes.changed, *changes.removed)}
    after = {path: now.documents[path] for path in (*changes.changed, *changes.added)}
    yield Difference("documents", before, after, str(changes))


def _target(base: Batch, now: Batch) -> Iterator[Difference]:
    if base.target != now.target:
        yield Difference("target", base.target, now.target, f"the target differs: {base.target} → {now.target}")
    elif base.target_digest != now.target_digest:
        yield Difference("target_digest", base.target_digest, now.target_digest, f"the target changed: {now.target}")


def _datasets(base: Batch, now: Batch) -> Iterator[Difference]:
    before, after = (
        [(dataset.path, dataset.digest, dataset.mapping) for dataset in batch.datasets] for batch in (base, now)
    )
    # The same content under another path is not a difference.
    if [dataset[1:] for dataset in before] == [dataset[1:] for dataset in after]:
        return
    changed = [
        ", ".join(PurePath(path).name for path, *content in side if content not in [rest for _, *rest in other])
        for side, other in ((before, after), (after, before))
    ]
    shown = changed[1] if changed[0] == changed[1] else " → ".join(names or "none" for names in changed)
    yield Difference("datasets", before, after, f"the dataset changed: {shown}")


def _profile(base: Batch, now: Batch, base_name: str, name: str, kinds: Sequence[str] = _FACTS) -> Iterator[Difference]:
    before, after = _facts(base, base_name), _facts(now, name)
    for what in kinds:
        old, new = before[what], after[what]
        if old != new:
            yield Difference(f"profiles.{name}.{what}", old, new, f"{name}: {what}: {_shown(old)} → {_shown(new)}")


def _facts(batch: Batch, name: str) -> dict[str, Any]:
    profile = next((profile for profile in batch.profiles if profile.name == name), Profile(name))
    return {
        "profile": name,
        "variant": profile.variant,
        "llm": profile.run,
        "model": batch.models.get(profile.run, ""),
        "verify": profile.verify,
        "params": batch.params.get(name, profile.params),
    }


def _left_out(base: Batch, now: Batch, profiles: list[tuple[str, str]]) -> Iterator[Difference]:
    """Yield the profiles that only one batch has."""
    if base.id == now.id:
        return
    gone = [profile.name for profile in base.profiles if profile.name not in {pair[1] for pair in profiles}]
    new = [profile.name for profile in now.profiles if profile.name not in {pair[0] for pair in profiles}]
    if gone or new:
        sides = (("in the baseline", gone), ("now", new))
        parts = [f"{where}: {', '.join(names)}" for where, names in sides if names]
        yield Difference("profiles", gone, new, f"profiles that are not compared, {'; '.join(parts)}")


def _hidden(base: Batch, now: Batch) -> Iterator[Difference]:
    """Yield a change that only the digest of the batch shows: of an address, or of a script of answers."""
    if base.identity != now.identity and base.datasets == now.datasets:
        text = "the llm behind a profile changed: its address, or the file of a scripted one"
        yield Difference("identity", base.identity, now.identity, text)


def _shown(value: Any) -> str:
    return str(value) if value not in ("", {}, None) else "none"
