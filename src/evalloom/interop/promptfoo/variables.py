"""The values of a variable in a promptfoo test: lists are choices, and files are read."""

from __future__ import annotations

import mimetypes
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evalloom.core.model import error
from evalloom.core.text import quote
from evalloom.interop.promptfoo import files
from evalloom.interop.promptfoo.files import FileProblem
from evalloom.interop.promptfoo.javascript_values import json_text

_IMAGES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".svg", ".tif", ".tiff", ".ico", ".avif", ".heic", ".heif")
_MEDIA = (".mp3", ".wav", ".ogg", ".flac", ".m4a", ".mp4", ".webm", ".mov", ".avi", ".mkv")
_LARGEST = 20 * 1024 * 1024
_MAGIC = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG", "image/png"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
)


def choices(name: str, value: Any, base: str, keeps_lists: bool) -> Iterator[Any]:
    """Yield each value that a variable takes, with its file read; or why it cannot be read.

    promptfoo tests each text of a list by itself, and each file that a pattern matches.
    """
    is_list = isinstance(value, list) and bool(value) and isinstance(value[0], str) and not keeps_lists
    for item in value if is_list else [value]:
        if not files.is_file(item) or not base:
            yield item
            continue
        for reference in _references(item, base):
            try:
                yield _content(reference, base)
            except FileProblem as problem:
                yield error(problem.code, ("vars", name), f"vars.{name}: {problem}")


def _references(reference: str, base: str) -> list[str]:
    if not any(mark in reference for mark in "*?["):
        return [reference]
    try:
        # A name may have brackets in it without being a pattern.
        return files.matching(reference, base) or [reference]
    except FileProblem:
        return [reference]


def _content(reference: str, base: str) -> Any:
    """Return what a file stands for: its text, an image as a data URL, YAML as JSON. Raises FileProblem."""
    if files.language_of(reference):
        # A function of each run, called by the target.
        files.read(reference, base)
        return reference
    path, _ = files.locate(reference, base)
    suffix = path.suffix.lower()
    if suffix in _IMAGES:
        data = _bytes(path, reference)
        return f"data:{_image_type(path, data)};base64,{b64encode(data).decode()}"
    if suffix in _MEDIA:
        return b64encode(_bytes(path, reference)).decode()
    if suffix == ".pdf":
        return _pdf(path, reference)
    file = files.read(reference, base)
    return json_text(file.value) if suffix in (".yaml", ".yml") else file.text.strip()


def _bytes(path: Path, reference: str) -> bytes:
    try:
        size = path.stat().st_size
        if size > _LARGEST:
            message = f"{quote(reference)}: expected at most {_LARGEST // 2**20} MiB, got {size:,} bytes"
            raise FileProblem("file_unreadable", message)
        return path.read_bytes()
    except OSError:
        raise FileProblem("file_missing", f"there is no file {quote(reference)}; searched at {path}") from None


def _image_type(path: Path, data: bytes) -> str:
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return mimetypes.guess_type(path.name)[0] or "image/jpeg"


def _pdf(path: Path, reference: str) -> str:
    try:
        import pypdf
    except ImportError:
        message = f"{quote(reference)}: PDF needs pypdf. Install it: pip install 'evalloom[documents]'"
        raise FileProblem("file_unreadable", message) from None
    data = _bytes(path, reference)
    try:
        from io import BytesIO

        return "\n".join(page.extract_text() for page in pypdf.PdfReader(BytesIO(data)).pages).strip()
    except Exception as problem:  # what a damaged PDF raises is not documented
        message = f"{quote(reference)}: is no PDF that can be read: {type(problem).__name__}"
        raise FileProblem("file_unreadable", message) from None
