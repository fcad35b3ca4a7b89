"""DuckDB and Parquet for copies of logs: connections with limits, atomic files, quoting."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY = "2GB"
_PARQUET = "FORMAT parquet, COMPRESSION lz4_raw, WRITE_BLOOM_FILTER false"
"""The fastest to write."""


def connect(spill: Path, memory: str = MEMORY) -> DuckDBPyConnection:
    """Open a DuckDB connection in memory, with a memory limit; what exceeds it goes into a folder below `spill`."""
    import duckdb

    place = spill if os.access(spill, os.W_OK) else Path(tempfile.gettempdir())
    connection = duckdb.connect()
    connection.execute(f"SET memory_limit = {quoted(memory)}")
    connection.execute(f"SET temp_directory = {quoted((place / 'spill').as_posix())}")
    # In a notebook without ipywidgets there is no progress bar, and DuckDB refuses to turn it off.
    with suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")
    return connection


def write_parquet(connection: DuckDBPyConnection, query: str, path: Path) -> None:
    """Write the result of a query to a Parquet file, completely or not at all; only its owner may read it."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        # DuckDB keeps the mode of a file that exists.
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        connection.execute(f"COPY ({query}) TO {quoted(temporary.as_posix())} ({_PARQUET}, USE_TMP_FILE false)")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def replace_file(path: Path, content: bytes) -> None:
    """Write a small file of a copy, completely or not at all. Raises OSError."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


class Place:
    """The folder of a copy: where it belongs, or a temporary folder if that is not writable."""

    def __init__(self, folder: Path | None = None, root: Path | None = None) -> None:
        """Without a folder, it is a temporary one. `root` is a folder above it that is not created."""
        self._folder = folder
        self._root = root
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    @property
    def path(self) -> Path:
        if self._temporary is None and self._folder is None:
            self.use_temporary()
        return Path(self._temporary.name) if self._temporary is not None else self._folder or Path()

    @property
    def is_temporary(self) -> bool:
        return self._temporary is not None

    def make_writable(self) -> None:
        """Create the folder, or a temporary one."""
        if self._folder is None or self._temporary is not None:
            self.use_temporary()
            return
        try:
            if self._root is not None and not self._root.is_dir():
                raise FileNotFoundError(self._root)
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._folder):
                pass
        except OSError:
            self.use_temporary()

    def use_temporary(self) -> None:
        """Use a temporary folder, which is removed with this object."""
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="evalloom-copy-", ignore_cleanup_errors=True)

    def close(self) -> None:
        """Remove the temporary folder, if there is one."""
        if self._temporary is not None:
            with suppress(OSError):
                self._temporary.cleanup()


def quoted(text: str) -> str:
    """Quote a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def quoted_list(texts: Iterable[str]) -> str:
    """Quote texts as SQL literals, joined with commas."""
    return ", ".join(map(quoted, texts))


def path_pattern(path: Path) -> str:
    """Escape the wildcards in a path for DuckDB."""
    return re.sub(r"([*?\[])", r"[\1]", path.as_posix())
