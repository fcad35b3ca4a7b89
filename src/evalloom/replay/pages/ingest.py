"""Reads the recipe of a new project and the rows of a new dataset, from a form or from a file below the folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from evalloom.core.model import Record
from evalloom.core.text import quote, type_name
from evalloom.pages.errors import RequestError
from evalloom.pages.http import MAX_BODY_BYTES
from evalloom.pages.page import PageRequest
from evalloom.replay.recipe.document import RecipeFile
from evalloom.replay.server.uploads import parse_rows

RECIPES = (".json",)
ROWS = (".jsonl", ".ndjson", ".json", ".csv", ".yaml", ".yml")
_MOST_NAMES, _MOST_ENTRIES, _DEEPEST = 200, 5_000, 4


def read_project(request: PageRequest) -> Record:
    """Return `{name, state}` from the fields `file` or `text`, and `name`."""
    name, text = request.field("name").strip(), request.field("text")
    if request.field("file").strip():
        path = file_below(request, request.field("file").strip())
        recipe = RecipeFile(path)
        # Errors name the file as the user did, and its lines.
        recipe.read()
        return {"name": name or str(recipe.body.get("name") or path.stem), "state": recipe.state}
    body = _parse_json(text)
    if "state" not in body and "nodes" in body:
        body = {"state": body}
    return {"name": name or body.get("name") or "recipe", "state": body.get("state")}


def read_dataset(request: PageRequest) -> Record:
    """Return `{name, rows}` from the fields `file` or `text`, and `name`."""
    name, text = request.field("name").strip(), request.field("text")
    if request.field("file").strip():
        path = file_below(request, request.field("file").strip())
        if path.stat().st_size > MAX_BODY_BYTES:
            raise RequestError("body_too_large", f"{path.name}: expected at most {MAX_BODY_BYTES:,} bytes, got more")
        return {"name": name or path.name, "rows": parse_rows(path.read_bytes(), path.suffix.lower())}
    if not text.strip():
        raise RequestError("validation_failed", "text: expected rows as JSONL, a JSON array or CSV, got none")
    first = text.lstrip()[:1]
    suffix = ".json" if first == "[" else ".jsonl" if first == "{" else ".csv"
    return {"name": name or "rows", "rows": parse_rows(text.encode("utf-8", "replace"), suffix)}


def _parse_json(text: str) -> Record:
    if not text.strip():
        raise RequestError("validation_failed", "text: expected a recipe as JSON, got none")
    try:
        body: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise RequestError("validation_failed", f"text: expected a recipe as JSON: {error}") from None
    if not isinstance(body, dict):
        message = f"text: expected an object with name and state, got {type_name(body)}"
        raise RequestError("validation_failed", message)
    return body


def file_below(request: PageRequest, name: str) -> Path:
    """Return a file below the folder of the project, whatever links lead to it; refuse hidden ones and all others."""
    home = request.site.home.resolve()
    missing = RequestError("not_found", f"there is no file {quote(name)} in the folder of this project")
    try:
        path = (home / name).resolve()
        relative = path.relative_to(home)
        is_file = path.is_file()
    except (ValueError, OSError):
        raise missing from None
    if not is_file or any(part.startswith(".") for part in (*relative.parts, *Path(name).parts)):
        raise missing
    # As the user knows it: messages name this path.
    return request.site.home / relative


def file_names(home: Path, suffixes: tuple[str, ...]) -> list[str]:
    """Return the names of the first files below a folder with some suffixes, those near the top first."""
    names: list[str] = []
    entries, waiting = 0, [(home, 0)]
    while waiting and len(names) < _MOST_NAMES and entries < _MOST_ENTRIES:
        folder, depth = waiting.pop(0)
        try:
            children = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        entries += len(children)
        for child in children:
            if child.name.startswith(".") or child.is_symlink() or child.name in ("node_modules", "__pycache__"):
                continue
            if child.is_dir() and depth < _DEEPEST:
                waiting.append((Path(child.path), depth + 1))
            elif child.name.lower().endswith(suffixes) and child.is_file():
                names.append(Path(child.path).relative_to(home).as_posix())
    return names[:_MOST_NAMES]
