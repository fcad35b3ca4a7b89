"""Rebuilds a damaged manifest: from what is left of it, and from the runs of its batch."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.analysis.tally import Tally
from evalloom.batchlog import Log, manifest
from evalloom.batchlog.read import MANIFEST
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch, DatasetFacts, Profile
from evalloom.engine.results import stored_runs

DAMAGED = f"{MANIFEST}.damaged"
"""The damaged manifest, which is kept."""
_UNKNOWN = {
    "identity": "--resume cannot find the batch; --resume-from uses its runs",
    "options": "the flags of the run are not known",
    "config": "its kind is not known, so commands of a system may refuse it",
}
"""What it means for the user that a field is lost."""


class Repair(Struct, frozen=True):
    """What became of a manifest: the fields that were still readable, those made from the runs, and the lost ones."""

    batch: Batch
    kept: list[str]
    rebuilt: list[str]
    lost: dict[str, str]
    """The consequence of each, as far as there is one to tell."""
    runs: int


def repair(path: Path, warn: Callable[[str], None]) -> Repair | None:
    """Rebuild the manifest of a batch and keep the damaged one beside it; None if it needs no repair."""
    try:
        manifest(path)
        return None
    except EvalloomError as error:
        if error.code != "bad_batch":
            raise
    file = path / MANIFEST
    text = file.read_bytes() if file.is_file() else b""
    kept = _readable_fields(text)
    # Opening the log writes the manifest, and refuses a batch that is being written.
    provisional = Batch(**{"id": path.name, "created_at": "", **kept})
    log = Log(path, provisional)
    try:
        if text:
            _backup(path / DAMAGED, text)
        from_runs = _fields_from_runs(path, provisional, warn)
        batch = msgspec.structs.replace(provisional, **{**from_runs, **kept})
        log.write_manifest(batch)
    finally:
        log.close()
    fields = {field.name for field in msgspec.structs.fields(Batch)}
    rebuilt = sorted(from_runs.keys() - kept.keys())
    lost = {name: _UNKNOWN.get(name, "") for name in sorted(fields - kept.keys() - from_runs.keys())}
    return Repair(batch, sorted(kept), rebuilt, lost, int(batch.summary["total"]))


def _readable_fields(text: bytes) -> dict[str, Any]:
    """Return the fields of a damaged manifest whose values are whole, each on lines of its own."""
    shown, fields = text.decode("utf-8", "replace"), {}
    for field in msgspec.structs.fields(Batch):
        for match in re.finditer(rf'^  "{field.name}": ', shown, re.MULTILINE):
            try:
                value, end = json.JSONDecoder().raw_decode(shown, match.end())
                # A value that goes on is not whole: a quote in the middle of a text, a digit that became a comma.
                if re.match(r",?\n(?:  \"|\})", shown[end : end + 6]) and "\ufffd" not in shown[match.end() : end]:
                    fields[field.name] = msgspec.convert(value, field.type)
            except (ValueError, RecursionError, msgspec.ValidationError):
                continue
    return fields


def _fields_from_runs(path: Path, batch: Batch, warn: Callable[[str], None]) -> dict[str, Any]:
    """Return what the runs tell: when they started, their profiles, datasets and figures."""
    profiles: dict[str, Profile] = {}
    datasets: dict[str, DatasetFacts] = {}
    started = []
    tally = Tally(batch.options.get("pass_if"))
    for run, scored in stored_runs(path, warn):
        profiles.setdefault(run.profile, Profile(run.profile))
        datasets.setdefault(run.origin.file, DatasetFacts(run.origin.file, run.dialect, ""))
        started += [run.started_at] if run.started_at else []
        tally.add(run, scored)
    summary = msgspec.to_builtins(tally.summary(path.name, path.as_posix()))
    facts = {"id": path.name, "profiles": [*profiles.values()], "datasets": [*datasets.values()], "summary": summary}
    return facts | ({"created_at": min(started)} if started else {})


def _backup(file: Path, text: bytes) -> None:
    number = 0
    while file.exists():
        number += 1
        file = file.with_name(f"{DAMAGED}.{number}")
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as stream:
        stream.write(text)
