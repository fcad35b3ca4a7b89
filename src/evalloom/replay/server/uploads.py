"""Parses the rows of an uploaded dataset."""

from __future__ import annotations

from typing import Any

from evalloom.data.dataset import Dataset
from evalloom.files.rows import Row
from evalloom.files.source import Source
from evalloom.pages.errors import RequestError
from evalloom.replay.dialect import FORMATS
from evalloom.replay.requests import MOST_ROWS, validation_error

UPLOADS = {"application/x-ndjson": ".jsonl", "application/jsonl": ".jsonl", "text/csv": ".csv"}
"""Media types of dataset uploads, with the matching file suffix."""
_MAX_ERRORS = 1_000
"""Stop reading an upload after this many invalid lines."""
_COMPRESSED_PREFIXES = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


def parse_rows(body: bytes, suffix: str, charset: str = "") -> list[Any]:
    """Parse the rows of an uploaded file; report every invalid line."""
    if body.startswith(_COMPRESSED_PREFIXES):
        # A small compressed file can expand to gigabytes, and the limit applies to the upload.
        raise RequestError("validation_failed", "body: expected text, got a compressed file. Decompress it first")
    rows: list[Any] = []
    errors: list[tuple[str, str]] = []
    # Parsed as on the command line, so that the same file gives the same rows.
    for item in Dataset(Source(f"upload{suffix}", None, charset, body), FORMATS, "replay"):
        if isinstance(item, Row):
            rows.append(item.value)
        elif item.code == "row_invalid":
            message = f"line {item.place.line}: {item.message}"
            raise RequestError("row_invalid", message, index=len(rows) + len(errors))
        elif item.severity == "error":
            # The flag --encoding corresponds to the charset of the Content-Type.
            message = item.message.replace("--encoding", "charset")
            errors.append((f"line {item.place.line}" if item.place.line else "body", message))
        if len(rows) > MOST_ROWS or len(errors) >= _MAX_ERRORS:
            break
    if errors:
        raise validation_error(errors)
    return rows
