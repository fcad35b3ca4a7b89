"""What a resolver is given: what to look up, what it may read, and until when."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Literal

from msgspec import Struct

from evalloom.core.errors import CallError
from evalloom.replay.settings import SECTION
from evalloom.settings import Settings, environment, keys, secrets


class Source(Struct, frozen=True):
    """A database that the settings name; it may lie anywhere, since their author says so."""

    kind: Literal["sqlite", "duckdb"]
    path: Path


class Reach(Struct, frozen=True):
    """What resolvers may read. `folder` holds files, databases and chats; `closed` are places in it that stay shut."""

    folder: Path
    closed: tuple[Path, ...] = ()
    env: frozenset[str] = frozenset()
    http: frozenset[str] = frozenset()
    private_addresses: bool = False
    timeout_s: float = 5.0
    sources: Mapping[str, Source] = {}
    environ: Mapping[str, str] = {}
    hide: Callable[[str], str] = str
    """Takes the secrets out of a text."""


class Call(Struct, frozen=True):
    """One variable to resolve: the scheme and the target of its resolver, and its value as the query or argument."""

    scheme: str
    target: str
    value: str
    reach: Reach
    deadline: float

    def time_left(self) -> float:
        """The seconds until the deadline. Raises CallError when it is over."""
        left = self.deadline - monotonic()
        if left <= 0:
            raise self.too_slow()
        return left

    def too_slow(self) -> CallError:
        return CallError("timeout", f"no value within {self.reach.timeout_s:g} s. 'resolvers: timeout_s:' allows more")


Resolver = Callable[[Call], str]
"""Gives the value that a call asks for. Raises CallError when there is none."""


def reach_of(settings: Settings, folder: Path, closed: tuple[Path, ...] = ()) -> Reach:
    """What the settings allow to read, in their own folder of data or else in the one given here."""
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
    """The regular file of that name inside the folder, with every symbolic link followed. Raises CallError."""
    try:
        folder = reach.folder.resolve()
        path = (folder / name).resolve()
        parts = path.relative_to(folder).parts
    # A loop of links is an OSError or a RuntimeError, by the version of Python.
    except (OSError, RuntimeError, ValueError):
        message = (
            "is no file inside the folder of the resolvers. Put it there, or name another with 'resolvers: folder:'"
        )
        raise CallError("outside_folder", message) from None
    if any(part.startswith(".") for part in parts):
        raise CallError("not_allowed", "hidden files, such as .env, are not read. Rename it")
    try:
        is_regular = stat.S_ISREG(path.stat().st_mode)
        is_closed = any(_is_same(one, shut) for one in (path, *path.parents)[: len(parts)] for shut in reach.closed)
    except (OSError, ValueError):
        raise CallError(
            "not_found", "there is no such file in the folder of the resolvers. 'resolvers: folder:' names another"
        ) from None
    if is_closed:
        raise CallError("outside_folder", "belongs to evalloom itself and is not read. Name a file of your own")
    # A pipe or a device could keep us waiting, or never end.
    if not is_regular:
        raise CallError("not_found", "is no regular file")
    return path


def _is_same(one: Path, other: Path) -> bool:
    # Asked of the file system, which may take names of another case, or two names, for one file.
    return other.exists() and os.path.samefile(one, other)
