"""Reads the files that JavaScript requires: .json and .js files below one folder, and no hidden ones."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from evalloom.core.javascript.source import as_common_js

_SCRIPTS = (".js", ".cjs", ".mjs")
_ENDINGS = ("", *_SCRIPTS, ".json", "/index.js")
_LARGEST = 16 * 2**20
_SPACING = 10_000
"""The lines between the first lines of two files: the engine numbers lines and names no files."""


def home_of(file: str, folder: str) -> str:
    """Return the folder of a file, relative to the folder below which it may read."""
    if not file or not folder:
        return ""
    try:
        relative = Path(file).resolve().parent.relative_to(Path(folder).resolve()).as_posix()
    except (ValueError, OSError):
        return ""
    return "" if relative == "." else relative


def required(path: str, folder: str, number: int) -> dict[str, Any]:
    """Return a required file as the engine takes it, or with the `error` that `require` throws."""
    if not folder:
        return {"error": f"{path!r} cannot be required here: this code has no folder to read from"}
    if path == ".." or path.startswith("../"):
        return {"error": f"{path!r} is outside of the folder {folder}; only files below it can be required"}
    if any(part.startswith(".") for part in path.split("/")):
        return {"error": f"{path!r} is hidden; files whose names begin with a dot cannot be required"}
    found = _find(path, Path(folder))
    if isinstance(found, str):
        return {"error": found}
    relative, place = found
    try:
        if place.stat().st_size > _LARGEST:
            return {"error": f"{relative!r} is larger than {_LARGEST // 2**20} MiB"}
        text = place.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        return {"error": f"{relative!r} cannot be read: {error}"}
    is_json = place.suffix == ".json"
    text = text if is_json else as_common_js(text, place.suffix == ".mjs")
    return {"id": relative, "json": is_json, "text": text, "first": number * _SPACING}


def _find(path: str, folder: Path) -> tuple[str, Path] | str:
    root = folder.resolve()
    for ending in _ENDINGS:
        try:
            place = (root / (path + ending)).resolve()
            if not place.is_file():
                continue
            inside = place.relative_to(root)
        except ValueError:
            return f"{path!r} leads out of the folder {folder}; only files below it can be required"
        except (OSError, RuntimeError):
            continue
        if any(part.startswith(".") for part in inside.parts):
            return f"{path!r} is hidden; files whose names begin with a dot cannot be required"
        if place.suffix not in (*_SCRIPTS, ".json"):
            return f"{path!r} is not a .json or .js file; only these can be required"
        return inside.as_posix(), place
    return f"there is no file {path!r} below {folder}"


def number_of_file(line: int) -> tuple[int, int]:
    """Return the number of the file and the line in it, from a line of the engine."""
    return divmod(line, _SPACING)


def digest_of(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
