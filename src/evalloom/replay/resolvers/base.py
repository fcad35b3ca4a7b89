"""The parts of every resolver: the access it has, the variable to look up, and the value it returns."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from msgspec import Struct

from evalloom.core.errors import CallError
from evalloom.replay.settings import SECTION
from evalloom.settings import Settings, environment, keys, secrets

MOST_BYTES = 20_000
"""REPLAY-10: the limit of values, rendered segments and texts, in bytes of UTF-8."""
READ_BYTES = 64_000
"""How much of a long text is read: more than the clamp leaves, since hiding secrets may make it shorter."""


class Resolution(Struct, frozen=True):
    """The value of a dynamic variable; without one, `error_code` and `message` say why."""

    value: str = ""
    error_code: str = ""
    message: str = ""
    duration_ms: float = 0.0
    truncated: bool = False


def clamp(text: str) -> tuple[str, bool]:
    """Cut a text to MOST_BYTES between two characters; return it, and whether something was cut off."""
    # No character takes more than four bytes, so most texts need not be encoded.
    if len(text) * 4 <= MOST_BYTES or (text.isascii() and len(text) <= MOST_BYTES):
        return text, False
    encoded = text[: MOST_BYTES + 1].encode()
    if len(encoded) <= MOST_BYTES:
        return text, False
    return encoded[:MOST_BYTES].decode(errors="ignore"), True


def to_text(value: Any) -> str:
    """Write a value as a text: strings as they are, null as the empty text, the rest as compact JSON (REPLAY-4)."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float | list | tuple | dict):
        return json.dumps(_to_json(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return "" if value is None else str(value)


def _to_json(value: Any) -> Any:
    """Replace the parts of a nested value that are not JSON, such as the dates and decimals of a database."""
    if isinstance(value, dict):
        return {str(name): _to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    return value if isinstance(value, bool | int | float | str | None) else str(value)


class Source(Struct, frozen=True):
    """A database that the settings name; it may be outside the data folder, since their author chose it."""

    kind: Literal["sqlite", "duckdb"]
    path: Path


class Reach(Struct, frozen=True):
    """What resolvers may read: files, databases and chats inside `folder`, except for the paths in `closed`."""

    folder: Path
    closed: tuple[Path, ...] = ()
    env: frozenset[str] = frozenset()
    http: frozenset[str] = frozenset()
    private_addresses: bool = False
    timeout_s: float = 5.0
    sources: Mapping[str, Source] = {}
    environ: Mapping[str, str] = {}
    hide: Callable[[str], str] = str
    """Replaces the secrets in a text."""


class ResolverCall(Struct, frozen=True):
    """One variable to resolve: scheme and target of its resolver, and its value, which is the query or argument."""

    scheme: str
    target: str
    value: str
    reach: Reach
    deadline: float

    def time_left(self) -> float:
        """Return the seconds until the deadline. Raises CallError once it has passed."""
        left = self.deadline - monotonic()
        if left <= 0:
            raise self.too_slow()
        return left

    def too_slow(self) -> CallError:
        """Return the error of a resolver that takes too long."""
        return CallError("timeout", f"no value within {self.reach.timeout_s:g} s. 'resolvers: timeout_s:' allows more")


Resolver = Callable[[ResolverCall], str]
"""Returns the value of a variable. Raises CallError when there is none."""


def reach_of(settings: Settings, folder: Path, closed: tuple[Path, ...] = ()) -> Reach:
    """Return what the settings allow; `folder` is the data folder unless they name one."""
    allowed = settings.section(SECTION)
    return Reach(
        folder=settings.folder / allowed.folder if allowed.folder else folder,
        closed=closed,
        env=frozenset(allowed.env),
        http=frozenset(host.lower() for host in allowed.http),
        private_addresses=allowed.private_addresses,
        timeout_s=allowed.timeout_s,
        sources={
            name: Source("duckdb", settings.folder / source.duckdb)
            if source.duckdb
            else Source("sqlite", settings.folder / source.sqlite)
            for name, source in allowed.sources.items()
        },
        environ=environment(settings.folder),
        hide=keys.Redactor(secrets(settings)).text,
    )


def find(reach: Reach, name: str) -> Path:
    """Return the regular file of a name inside the data folder, with all symbolic links resolved. Raises CallError."""
    try:
        folder = reach.folder.resolve()
        path = (folder / name).resolve()
        parts = path.relative_to(folder).parts
    # A loop of links is an OSError or a RuntimeError, depending on the version of Python.
    except (OSError, RuntimeError, ValueError):
        message = (
            "is not a file inside the folder of the resolvers. Put it there, or name another with 'resolvers: folder:'"
        )
        raise CallError("outside_folder", message) from None
    if any(part.startswith(".") for part in parts):
        raise CallError("not_allowed", "hidden files, such as .env, are not read. Rename it")
    try:
        is_regular = stat.S_ISREG(path.stat().st_mode)
        # By inode: one file may have several names, and some file systems ignore case.
        is_closed = any(
            closed.exists() and os.path.samefile(inside, closed)
            for inside in (path, *path.parents)[: len(parts)]
            for closed in reach.closed
        )
    except (OSError, ValueError):
        raise CallError(
            "not_found", "there is no such file in the folder of the resolvers. 'resolvers: folder:' names another"
        ) from None
    if is_closed:
        raise CallError("outside_folder", "belongs to evalloom and is not read. Name a file of your own")
    # Reading a pipe or a device could block or never end.
    if not is_regular:
        raise CallError("not_found", "is not a regular file")
    return path
