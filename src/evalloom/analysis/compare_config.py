"""What else is not the same in two batches: whoever reads a difference should know what may have caused it."""

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
"""What of a profile bears on an answer; by which name it goes does not."""
_LONGEST_VALUE = 80
_DEEPEST = 20
"""Beyond so many levels a setting is told as a whole: a file may be nested without end."""


class Difference(Struct, frozen=True):
    """One thing that is not as it was; `text` says it in a sentence."""

    what: str
    before: Any
    now: Any
    text: str


def differences(base: Batch, now: Batch, profiles: list[tuple[str, str]]) -> list[Difference]:
    """What differs in the configuration of two batches; `profiles` are the pairs that are compared, now and before."""
    found = [*_config(base.config, now.config), *_documents(base, now)]
    # Where a batch has settings and documents, they are its target, so that there is no more to say about it.
    if not (found and base.config and now.config):
        found += _target(base, now)
    found += _datasets(base, now)
    for name, base_name in profiles:
        found += _profile(base, now, base_name, name)
    found += _left_out(base, now, profiles)
    if not found:
        found += _hidden(base, now)
    for what, before, after in (
        ("repeat", base.options.get("repeat", 1), now.options.get("repeat", 1)),
        ("evalloom", base.evalloom, now.evalloom),
    ):
        if before != after:
            found.append(Difference(what, before, after, f"{what}: {before} → {after}"))
    return found


def conflicts(base: Batch, now: Batch, profiles: list[tuple[str, str]], llm_answers: bool) -> list[Difference]:
    """The differences that forbid a comparison (RAG-10): other settings than before, and another llm that answers.

    `llm_answers` says whether the settings of either batch let an llm answer.
    """
    found = [*_config(base.config, now.config)]
    if llm_answers:
        for name, base_name in profiles:
            found += _profile(base, now, base_name, name, _ANSWERING)
    return found


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
    found: Record = {}
    for name, value in config.items():
        if isinstance(value, dict) and value and depth < _DEEPEST:
            found |= _flat(value, f"{path}{name}.", depth + 1)
        else:
            found[f"{path}{name}"] = value
    return found


def _turn(before: Any, now: Any) -> str:
    shown = _cut(before), _cut(now)
    # 5 and '5', or two long texts that part late, would look the same.
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
        yield Difference("target", base.target, now.target, f"the target is another: {base.target} → {now.target}")
    elif base.target_digest != now.target_digest:
        yield Difference("target_digest", base.target_digest, now.target_digest, f"the target changed: {now.target}")


def _datasets(base: Batch, now: Batch) -> Iterator[Difference]:
    before, after = ([(one.path, one.digest, one.mapping) for one in batch.datasets] for batch in (base, now))
    # Where the file stands is no difference, as long as the same is in it.
    if [one[1:] for one in before] == [one[1:] for one in after]:
        return
    names = [", ".join(PurePath(one[0]).name for one in side) for side in (before, after)]
    shown = names[1] if names[0] == names[1] else " → ".join(names)
    yield Difference("datasets", before, after, f"the dataset changed: {shown}")


def _profile(base: Batch, now: Batch, base_name: str, name: str, kinds: Sequence[str] = _FACTS) -> Iterator[Difference]:
    before, after = _facts(base, base_name), _facts(now, name)
    for what in kinds:
        old, new = before[what], after[what]
        if old != new:
            yield Difference(f"profiles.{name}.{what}", old, new, f"{name}: {what}: {_shown(old)} → {_shown(new)}")


def _facts(batch: Batch, name: str) -> dict[str, Any]:
    profile = next((one for one in batch.profiles if one.name == name), Profile(name))
    return {
        "profile": name,
        "variant": profile.variant,
        "llm": profile.run,
        "model": batch.models.get(profile.run, ""),
        "verify": profile.verify,
        "params": batch.params.get(name, profile.params),
    }


def _left_out(base: Batch, now: Batch, profiles: list[tuple[str, str]]) -> Iterator[Difference]:
    """The profiles that are there on one side only."""
    if base.id == now.id:
        return
    gone = [one.name for one in base.profiles if one.name not in {pair[1] for pair in profiles}]
    new = [one.name for one in now.profiles if one.name not in {pair[0] for pair in profiles}]
    if gone or new:
        sides = (("in the baseline", gone), ("now", new))
        parts = [f"{where}: {', '.join(names)}" for where, names in sides if names]
        yield Difference("profiles", gone, new, f"profiles that are not compared, {'; '.join(parts)}")


def _hidden(base: Batch, now: Batch) -> Iterator[Difference]:
    """What shows only in the digest of the whole: an address, or a script of answers."""
    if base.identity != now.identity and base.datasets == now.datasets:
        text = "the llm behind a profile changed: its address, or the file of a scripted one"
        yield Difference("identity", base.identity, now.identity, text)


def _shown(value: Any) -> str:
    return str(value) if value not in ("", {}, None) else "none"
