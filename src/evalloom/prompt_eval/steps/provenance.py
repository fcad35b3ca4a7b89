"""Tracks what each artifact of a results folder was made from, so that a step detects stale or edited files (EVAL-1).

docs/decisions/0007 gives the reasons. An entry is stored before and after the artifact is written: after a kill at any
point, the content of the file shows which of the two entries applies.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from evalloom.core.digest import digest_bytes
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Record
from evalloom.files.write import write_text
from evalloom.prompt_eval.dialect import FIELDS
from evalloom.prompt_eval.folder import Folder, Warn, copy_to_backup, json_text, read_object, write_json

_FILE = ".evalloom/prompt_eval.json"


def digest(*parts: Any) -> str:
    """Return the digest of values that a step depends on."""
    return _digest_content(json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str).encode())


def _digest_content(data: bytes) -> str:
    return digest_bytes(data, size=12)


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


ArtifactState = Literal["missing", "fresh", "edited", "stale"]
"""Whether there is a file; a person or another tool has written into it; its sources have changed; or none of that.

An edited file is never stale: it is replaced with --redo only.
"""


class Artifact(Struct, frozen=True):
    """An artifact as its step finds it."""

    folder: Folder
    step: str
    path: Path
    state: ArtifactState = "missing"
    provenance: Provenance = Provenance()
    redo: bool = False
    """Whether --redo was given."""

    @property
    def needs_rebuild(self) -> bool:
        """Whether the step makes it again as a whole, instead of adding what it lacks."""
        return self.redo or self.state in ("missing", "stale")

    @property
    def is_outdated(self) -> bool:
        """Whether the step makes it again because its sources have changed, which the user did not ask for."""
        return self.state == "stale" and not self.redo


def load(folder: Folder, step: str, path: Path, source: str = "") -> Artifact:
    """Load an artifact with its provenance, as far as it is stored; without a `source`, it is never stale."""
    if not path.is_file():
        return Artifact(folder, step, path)
    entries, content = _entries(folder, step), _digest_content(path.read_bytes())
    same = next((entry for entry in reversed(entries) if entry.content == content), None)
    # When two entries are stored and the file matches neither, the entry with this source is the more likely one.
    likely = next((entry for entry in entries if source and entry.source == source), None)
    provenance = same or likely or next(iter(entries), Provenance())
    state: ArtifactState = "fresh"
    if same is None or provenance.is_edited:
        state = "edited"
    elif source and provenance.source not in ("", source):
        state = "stale"
    return Artifact(folder, step, path, state, provenance)


def load_for_step(folder: Folder, step: str, path: Path, source: str, redo: bool) -> Artifact:
    """Load an artifact that its step is about to write; raise if that would discard edits without --redo."""
    artifact = msgspec.structs.replace(load(folder, step, path, source), redo=redo)
    if artifact.state == "edited" and not redo and artifact.provenance.source not in ("", source):
        message = f"{path.as_posix()}: the prompt, plan, prompt_b or llm has changed since this file was made"
        hint = f"'evalloom prompt-eval {step} {folder} --redo' makes it again and keeps a copy of the edited file"
        raise usage_error("edited_by_hand", f"{message}, and it has edits by hand. {hint}")
    return artifact


def write_artifact(artifact: Artifact, provenance: Provenance, rows: list[Record], warn: Warn) -> None:
    """Write an artifact and store its provenance.

    If the new file loses something that a person wrote into the old one, a copy of the old one stays beside it.
    """
    text, is_edited = json_text(rows), artifact.state == "edited"
    if is_edited and _loses_edits(artifact.path, rows):
        copy_to_backup(artifact.path, "edited", warn)
    entry = msgspec.structs.replace(
        provenance, content=_digest_content(text.encode()), is_edited=is_edited and not artifact.redo
    )
    # The old entry stays until the new file is written, however often that fails.
    _store(artifact, [artifact.provenance, entry] if artifact.path.is_file() else [entry])
    write_text(artifact.path, text)
    _store(artifact, [entry])


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


def mark_batch_used(artifact: Artifact, batch: str) -> None:
    """Store that a batch led to no artifact, so that no later step resumes it."""
    _store(artifact, [msgspec.structs.replace(artifact.provenance, batch=batch)])


def store_view(artifact: Artifact) -> None:
    """Store the content of a file that is a view of another artifact."""
    _store(artifact, [Provenance(content=_digest_content(artifact.path.read_bytes()))])


def is_tracked(folder: Folder) -> bool:
    """Whether evalloom has run a step in this folder."""
    return (folder.path / _FILE).is_file()


def save_flags(folder: Folder, flags: Record) -> Record:
    """Save the llms and profiles that flags name, for later commands; return all that are saved."""
    stored = _read(folder)
    saved = stored.get("flags")
    merged = {**saved, **flags} if isinstance(saved, dict) else flags
    if flags and merged != saved:
        write_json(folder.path / _FILE, {**stored, "flags": merged})
    return merged


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


def _store(artifact: Artifact, entries: list[Provenance]) -> None:
    stored = _read(artifact.folder)
    write_json(artifact.folder.path / _FILE, {**stored, artifact.step: msgspec.to_builtins(entries)})
