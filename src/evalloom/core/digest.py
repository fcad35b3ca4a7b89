"""Digests of values, texts and files: equal content gives equal digests, in every process and every version.

Batches, baselines, caches and recipes on disk hold these digests, so the bytes that are hashed must not change.
"""

from __future__ import annotations

import json
from binascii import b2a_base64
from pathlib import Path
from typing import Any

import orjson


def digest_bytes(data: bytes, size: int = 16, key: bytes = b"") -> str:
    """Return the BLAKE2b digest of bytes as hex; `size` is its length in bytes."""
    # Deferred in each function: hashlib loads OpenSSL, and few commands digest anything.
    from hashlib import blake2b

    return blake2b(data, digest_size=size, key=key).hexdigest()


def digest_text(text: str, size: int = 16) -> str:
    """Return the BLAKE2b digest of a text as hex. A lone surrogate is hashed, not refused."""
    return digest_bytes(text.encode("utf-8", "surrogatepass"), size)


def digest_value(value: object, size: int = 16) -> str:
    """Return the BLAKE2b digest of a value's canonical JSON."""
    return digest_bytes(canonical_json(value), size)


def digest_of(*parts: Any) -> str:
    """Return the BLAKE2b digest of what a target consists of."""
    # Not `digest_value`: batches of version 0.1 hold digests of this spelling, which escapes all but ASCII.
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return digest_bytes(text.encode())


def digest_file(path: Path) -> str:
    """Return the BLAKE2b digest of a file's content. Raises OSError."""
    from hashlib import blake2b

    digest = blake2b(digest_size=16)
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def canonical_json(value: object) -> bytes:
    """Encode a value as compact JSON with sorted keys."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError):
        # A lone surrogate, an integer of more than 64 bits, or something that is not JSON.
        return json.dumps(value, sort_keys=True, default=repr).encode()


def qualified_name(value: object) -> str:
    """Name a function in a digest: its repr holds its address, which differs in each process."""
    return str(getattr(value, "__qualname__", None) or repr(value))


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 digest of bytes as hex."""
    from hashlib import sha256

    return sha256(data).hexdigest()


def sha256_base64(text: str) -> str:
    """Return the SHA-256 digest of a text as base64."""
    from hashlib import sha256

    return b2a_base64(sha256(text.encode()).digest(), newline=False).decode()
