"""Tracks what each artifact of a results folder was made from, so that a step detects stale or edited files (EVAL-1).

docs/decisions/0007 gives the reasons. An entry is stored before and after the artifact is written: after a kill at any
point, the content of the file shows which of the two entries applies.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.digest import digest_bytes
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Record
from evalloom.files.write import write_text
from evalloom.prompt_eval.dialect import FIELDS
from evalloom.prompt_eval.folder import Folder, Warn, copy_to_backup, json_text, read_object, write_json

_FILE = ".evalloom/prompt_eval.json"
_DIGEST_BYTES = 12


def digest(*parts: Any) -> str:
    """Return the digest of values that a step depends on."""
    return digest_bytes(json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str).encode(), _DIGEST_BYTES)


class Provenance(Struct, frozen=True, omit_defaults=True):
    """What an artifact was made from: its sources, the batch and the service, and the digest of its content."""

    source: str = ""
    content: str = ""
    service: str = msgspec.field(default="", name="who")
    """The profile that answered, or the judge that scored."""
    batch: str = ""
    prompt: str = ""
    """The digest of the prompt that was run."""
    rules: dict[str, str] = {}
    """The digest of the rules of each test point that was scored by rules."""
    is_edited: bool = False
    """Whether a person or another tool has written into it."""


class ArtifactState(Struct, frozen=True):
    """The state of an artifact when its step starts."""

    provenance: Provenance = Provenance()
    needs_rebuild: bool = True
    """Whether the step makes it again as a whole: it is missing or stale, or --redo was given."""
    is_edited: bool = False
    """Whether a person or another tool has written into it."""
    is_redo: bool = False
    """Whether --redo was given."""


def load(folder: Folder, step: str, artifact: Path, source: str = "") -> ArtifactState:
    """Load the provenance of an artifact, as far as it is stored, and detect edits since.

    When two entries are stored and the file matches neither, the entry with this source is the more likely one.
    """
    entries = _entries(folder, step)
    if not artifact.is_file():
        return ArtifactState(needs_rebuild=True)
    content = digest_bytes(artifact.read_bytes(), _DIGEST_BYTES)
    same = next((entry for entry in reversed(entries) if entry.content == content), None)
    likely = next((entry for entry in entries if source and entry.source == source), None)
    provenance = same or likely or next(iter(entries), Provenance())
    return ArtifactState(provenance, needs_rebuild=False, is_edited=provenance.is_edited or same is None)


def check_stale(folder: Folder, step: str, source: str, artifact: Path, redo: bool) -> ArtifactState:
    """Load the state of an artifact and decide whether to make it again; never discards manual edits without --redo."""
    state = msgspec.structs.replace(load(folder, step, artifact, source), is_redo=redo)
    provenance = state.provenance
    if state.needs_rebuild or (not redo and (not provenance.source or provenance.source == source)):
        return state
    if state.is_edited and not redo:
        message = f"{artifact.as_posix()}: the prompt, plan, prompt_b or llm has changed since this file was made"
        hint = f"'evalloom prompt-eval {step} {folder} --redo' makes it again and keeps a copy of the edited file"
        raise usage_error("edited_by_hand", f"{message}, and it has edits by hand. {hint}")
    return msgspec.structs.replace(state, needs_rebuild=True)


def write_artifact(
    folder: Folder,
    step: str,
    state: ArtifactState,
    provenance: Provenance,
    artifact: Path,
    rows: list[Record],
    warn: Warn,
) -> None:
    """Write an artifact and store its provenance; `state` is the state before the step.

    If the new file loses something that a person wrote into the old one, a copy of the old one stays beside it.
    """
    text, is_edited = json_text(rows), state.is_edited and not state.needs_rebuild
    if state.is_edited and _loses_edits(artifact, rows):
        copy_to_backup(artifact, "edited", warn)
    entry = msgspec.structs.replace(provenance, content=digest_bytes(text.encode(), _DIGEST_BYTES), is_edited=is_edited)
    # The old entry stays until the new file is written, however often that fails.
    _store(folder, step, [state.provenance, entry] if artifact.is_file() else [entry])
    write_text(artifact, text)
    _store(folder, step, [entry])


_COMPUTED = (*FIELDS, "total_score", "max_score", "avg_tp_score", "score_pct", "is_bad_case", "run_status")
"""Fields of a results file that are not edits: they come from the cases, or are computed."""


def _loses_edits(artifact: Path, rows: list[Record]) -> bool:
    """Whether a file has a row or a value that these rows lack; true for a file that cannot be read."""
    present = {row["test_id"]: row for row in rows}
    try:
        return any(_has_more(former, present.get(former["test_id"])) for former in json.loads(artifact.read_bytes()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return True


def _has_more(former: Record, row: Record | None) -> bool:
    written = {name: value for name, value in former.items() if value and name not in _COMPUTED}
    return row is None or any(row.get(name) != value for name, value in written.items())


def mark_batch_used(folder: Folder, step: str, state: ArtifactState, batch: str) -> None:
    """Store that a batch led to no artifact, so that no later step resumes it."""
    _store(folder, step, [msgspec.structs.replace(state.provenance, batch=batch)])


def store_view(folder: Folder, step: str, artifact: Path) -> None:
    """Store the content of a file that is a view of another artifact."""
    _store(folder, step, [Provenance(content=digest_bytes(artifact.read_bytes(), _DIGEST_BYTES))])


def is_tracked(folder: Folder) -> bool:
    """Whether evalloom has run a step in this folder."""
    return (folder.path / _FILE).is_file()


def saved_flags(folder: Folder) -> Record:
    """Return the llms and profiles that earlier commands named for this folder."""
    flags = _read(folder).get("flags")
    return flags if isinstance(flags, dict) else {}


def save_flags(folder: Folder, flags: Record) -> None:
    """Save the llms and profiles that flags name, for later commands."""
    if any(saved_flags(folder).get(name) != value for name, value in flags.items()):
        write_json(folder.path / _FILE, {**_read(folder), "flags": {**saved_flags(folder), **flags}})


def _read(folder: Folder) -> Record:
    try:
        return read_object(folder.path / _FILE)
    except EvalloomError:
        return {}  # evalloom's own file is damaged: treat it as empty


def _entries(folder: Folder, step: str) -> list[Provenance]:
    """Return the entries of a step's artifact: two while it is being written, one for the old and one for the new."""
    try:
        return msgspec.convert(_read(folder).get(step, []), list[Provenance])
    except msgspec.ValidationError:
        return []


def _store(folder: Folder, step: str, entries: list[Provenance]) -> None:
    write_json(folder.path / _FILE, {**_read(folder), step: msgspec.to_builtins(entries)})
