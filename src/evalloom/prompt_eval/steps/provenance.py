"""What the artifacts of a results folder were made from, so that a step knows what it finds (EVAL-1).

docs/decisions/0007 says why. A note is written before the artifact and after it: whenever we are killed, the content of
the file says which of the two notes holds.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.errors import EvalloomError, usage_error
from evalloom.core.model import Record
from evalloom.files.write import write_text
from evalloom.prompt_eval.dialect import FIELDS
from evalloom.prompt_eval.folder import Folder, Warn, json_text, keep_beside, read_object, write_json

_NOTES = ".evalloom/prompt_eval.json"


def digest(*parts: Any) -> str:
    """What stands for values that a step depends on."""
    return _content(json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str).encode())


def _content(data: bytes) -> str:
    return blake2b(data, digest_size=12).hexdigest()


class Made(Struct, frozen=True, omit_defaults=True):
    """What an artifact was made from and by whom, and what it was like when it was made."""

    source: str = ""
    content: str = ""
    who: str = ""
    batch: str = ""
    prompt: str = ""
    """The prompt that was run, as a digest."""
    rules: dict[str, str] = {}
    """The rules that scored, as a digest for each test point."""
    is_edited: bool = False
    """Whether something in it was written by a hand or another tool."""


class Before(Struct, frozen=True):
    """How a step finds its artifact: what it was made from, and whether it is to be made anew as a whole."""

    was: Made = Made()
    is_anew: bool = True
    is_edited: bool = False
    """Whether there is something in it that a hand or another tool wrote."""
    is_redo: bool = False
    """Whether it is made anew because somebody asked for it."""


def made(folder: Folder, step: str, artifact: Path, source: str = "") -> Before:
    """What the artifact was made from, as far as that was noted, and whether it was edited since.

    Of two notes and a file that fits neither, the one with this source is more likely.
    """
    entries = _entries(folder, step)
    if not artifact.is_file():
        return Before(is_anew=True)
    content = _content(artifact.read_bytes())
    same = next((one for one in reversed(entries) if one.content == content), None)
    likely = next((one for one in entries if source and one.source == source), None)
    was = same or likely or next(iter(entries), Made())
    return Before(was, is_anew=False, is_edited=was.is_edited or same is None)


def look_back(folder: Folder, step: str, source: str, artifact: Path, redo: bool) -> Before:
    """The same, and whether it is to be made anew; edits in it are not thrown away unasked."""
    found = msgspec.structs.replace(made(folder, step, artifact, source), is_redo=redo)
    was = found.was
    if found.is_anew or (not redo and (not was.source or was.source == source)):
        return found
    if found.is_edited and not redo:
        message = f"{artifact.as_posix()}: the prompt, the plan, prompt_b or who is asked has changed since it was made"
        hint = f"'evalloom prompt-eval {step} {folder} --redo' makes it anew and keeps the edited one beside it"
        raise usage_error("edited_by_hand", f"{message}, and there are edits by hand in it. {hint}")
    return msgspec.structs.replace(found, is_anew=True)


def write_made(
    folder: Folder, step: str, before: Before, how: Made, artifact: Path, rows: list[Record], warn: Warn
) -> None:
    """Writes an artifact, and remembers what it was made from; `before` is how it was found.

    Where somebody has written in it, and something of that is not in the new one, the old one is kept beside it.
    """
    text, is_edited = json_text(rows), before.is_edited and not before.is_anew
    if before.is_edited and _loses(artifact, rows):
        keep_beside(artifact, "edited", warn)
    noted = msgspec.structs.replace(how, content=_content(text.encode()), is_edited=is_edited)
    # The old note stays until the new file is there, however often that is tried in vain.
    _note(folder, step, [before.was, noted] if artifact.is_file() else [noted])
    write_text(artifact, text)
    _note(folder, step, [noted])


_NOT_WRITTEN = (*FIELDS, "total_score", "max_score", "avg_tp_score", "score_pct", "is_bad_case", "run_status")
"""What nobody writes into a file of results: it comes from the cases, or is computed."""


def _loses(artifact: Path, rows: list[Record]) -> bool:
    """Whether a file has a row or a value that is not among these rows; one that cannot be read may have."""
    present = {row["test_id"]: row for row in rows}
    try:
        return any(_has_more(one, present.get(one["test_id"])) for one in json.loads(artifact.read_bytes()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return True


def _has_more(former: Record, row: Record | None) -> bool:
    written = {name: value for name, value in former.items() if value and name not in _NOT_WRITTEN}
    return row is None or any(row.get(name) != value for name, value in written.items())


def note_used(folder: Folder, step: str, before: Before, batch: str) -> None:
    """Remembers that nothing was made of a batch, and that nothing will be."""
    _note(folder, step, [msgspec.structs.replace(before.was, batch=batch)])


def note_written(folder: Folder, step: str, artifact: Path) -> None:
    """Remembers what a file was like that is only a view of another artifact."""
    _note(folder, step, [Made(content=_content(artifact.read_bytes()))])


def has_notes(folder: Folder) -> bool:
    """Whether steps of ours have worked in a folder."""
    return (folder.path / _NOTES).is_file()


def remembered(folder: Folder) -> Record:
    """The llms and profiles that flags have named for this folder."""
    found = _notes(folder).get("flags")
    return found if isinstance(found, dict) else {}


def remember(folder: Folder, flags: Record) -> None:
    """Remembers llms and profiles that flags have named."""
    if any(remembered(folder).get(name) != value for name, value in flags.items()):
        write_json(folder.path / _NOTES, {**_notes(folder), "flags": {**remembered(folder), **flags}})


def _notes(folder: Folder) -> Record:
    try:
        return read_object(folder.path / _NOTES)
    except EvalloomError:
        return {}  # our own notes, damaged: as if nothing had been noted


def _entries(folder: Folder, step: str) -> list[Made]:
    """How a step's artifact was made: twice while it is being written, since it may be the old or the new one."""
    try:
        return msgspec.convert(_notes(folder).get(step, []), list[Made])
    except msgspec.ValidationError:
        return []


def _note(folder: Folder, step: str, entries: list[Made]) -> None:
    write_json(folder.path / _NOTES, {**_notes(folder), step: msgspec.to_builtins(entries)})
