"""The section `resolvers` of evalloom.yaml: what the dynamic variables of a context recipe may read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from evalloom.core.model import Path as Steps
from evalloom.core.model import Record
from evalloom.core.text import quote
from evalloom.settings.form import (
    FLAG,
    SECONDS,
    TEXT,
    exists,
    is_variable_name,
    list_of_texts,
    listed,
    object_of,
    part,
    present,
)
from evalloom.settings.section import Section

_FOLDER = "Where files, databases and chats are read; else beside the recipe, or in the service's data."
_HOST = re.compile(r"([a-z0-9_][a-z0-9_.-]*|\[[0-9a-f:.]+\])(:[1-9][0-9]{0,4})?", re.IGNORECASE)


class ResolverSettings(Struct, frozen=True):
    """What the dynamic variables of a context recipe may read; what is empty is not allowed."""

    folder: str = ""
    """Files, databases and chats are read inside it; when empty, the command says which it is."""
    env: list[str] = []
    """Environment variables that may be read."""
    http: list[str] = []
    """Hosts that may be asked, as `host` or `host:port`."""
    private_addresses: bool = False
    """Whether those hosts may have addresses of this machine or its network."""
    timeout_s: float = 5.0
    sources: dict[str, dict[str, str]] = {}
    """Data sources by name: `{sqlite: FILE}` or `{duckdb: FILE}`, from the folder of the settings."""


def _load(written: Record, folder: Path) -> ResolverSettings:
    sources = {name: present(source) for name, source in part(written, "sources").items()}
    return msgspec.convert({**written, "sources": sources}, ResolverSettings)


def _errors(written: Record, folder: Path) -> Iterator[tuple[Steps, str]]:
    inside = written.get("folder")
    if isinstance(inside, str) and inside and not (exists(folder, inside) and (folder / inside).is_dir()):
        yield ("folder",), f"there is no folder {quote((folder / inside).as_posix())}"
    for number, name in enumerate(listed(written, "env")):
        if isinstance(name, str) and not is_variable_name(name):
            yield ("env", number), f"expected the name of an environment variable, got {quote(name)}"
    for number, host in enumerate(listed(written, "http")):
        if isinstance(host, str) and not _HOST.fullmatch(host):
            # What stands before an @ may be a password.
            got = "" if "@" in host else f", got {quote(host)}"
            yield ("http", number), f"expected a host such as api.example.com or localhost:8080{got}"
    sources = part(written, "sources")
    for name in sources:
        if len([file for file in part(sources, name).values() if file]) != 1:
            yield ("sources", name), "expected one of sqlite: FILE and duckdb: FILE"


SECTION = Section(
    name="resolvers",
    description="What the dynamic variables of a recipe may read.",
    keys={
        "folder": TEXT | {"description": _FOLDER},
        "env": list_of_texts("a list of environment variables") | {"description": "Those that may be read."},
        "http": list_of_texts("a list of hosts") | {"description": "Those that may be asked: host or host:port."},
        "private_addresses": FLAG | {"description": "Whether these hosts may be in this machine or its network."},
        "timeout_s": SECONDS | {"maximum": 3600},
        "sources": {
            "type": "object",
            "additionalProperties": object_of({"sqlite": TEXT, "duckdb": TEXT}),
            "description": "Data sources by name: a file of SQLite or of DuckDB, from this file's folder.",
        },
    },
    load=_load,
    faults=_errors,
)
