"""The section `resolvers` of evalloom.yaml: what the dynamic variables of a context recipe may read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Path as Steps
from evalloom.core.model import Record
from evalloom.core.text import quote
from evalloom.settings.check import exists, is_variable_name, list_in, object_in
from evalloom.settings.section import Seconds, Section

_HOST = lazy_pattern(r"([a-z0-9_][a-z0-9_.-]*|\[[0-9a-f:.]+\])(:[1-9][0-9]{0,4})?", re.IGNORECASE)
_FOLDER = "The folder of files, databases and chats; by default that of the recipe, or the data of the service."


class DataSource(Struct, frozen=True, forbid_unknown_fields=True):
    """A database file, relative to the folder of the settings: one of the two."""

    sqlite: str = ""
    duckdb: str = ""


class ResolverSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What the dynamic variables of a context recipe may read; what is empty is not allowed."""

    folder: Annotated[str, Meta(description=_FOLDER)] = ""
    env: Annotated[
        list[str],
        Meta(title="a list of environment variables", description="The environment variables that may be read."),
    ] = []
    http: Annotated[
        list[str], Meta(title="a list of hosts", description="The hosts that may be called: host or host:port.")
    ] = []
    private_addresses: Annotated[
        bool, Meta(description="Whether these hosts may have addresses of this machine or its network.")
    ] = False
    timeout_s: Annotated[Seconds, Meta(le=3600)] = 5.0
    sources: Annotated[
        dict[str, DataSource], Meta(description="Data sources by name, each a file of SQLite or DuckDB.")
    ] = {}


def _check(written: Record, folder: Path) -> Iterator[tuple[Steps, str]]:
    """The errors that the types do not state."""
    root = written.get("folder")
    if isinstance(root, str) and root and not (exists(folder, root) and (folder / root).is_dir()):
        yield ("folder",), f"there is no folder {quote((folder / root).as_posix())}"
    for number, name in enumerate(list_in(written, "env")):
        if isinstance(name, str) and not is_variable_name(name):
            yield ("env", number), f"expected the name of an environment variable, got {quote(name)}"
    for number, host in enumerate(list_in(written, "http")):
        if isinstance(host, str) and not _HOST.fullmatch(host):
            # The part before an @ may be a password.
            got = "" if "@" in host else f", got {quote(host)}"
            yield ("http", number), f"expected a host such as api.example.com or localhost:8080{got}"
    sources = object_in(written, "sources")
    for name in sources:
        if len([file for file in object_in(sources, name).values() if file]) != 1:
            yield ("sources", name), "expected one of sqlite: FILE and duckdb: FILE"


SECTION = Section(
    name="resolvers",
    description="What the dynamic variables of a recipe may read.",
    struct=ResolverSettings,
    check=_check,
)
