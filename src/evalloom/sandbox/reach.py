"""What code in the sandbox may read: Python itself, and for a reference the modules that it is looked up among."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

_ZONES = "/usr/share/zoneinfo"
_LIBRARIES = ("libc.so", "libc-2", "ld-linux", "ld-musl")


def readable(reference: str, folder: Path | None) -> tuple[list[str], list[str]]:
    """The files and folders that may be read, and the folders whose names alone may be listed."""
    if not reference:
        return _python(), []
    paths = [*_python(), *site_packages()]
    if folder is None or not folder.is_dir():
        return paths, []
    place = reference.partition(":")[0]
    return [*paths, *_modules(folder.resolve(), place)], [str(folder.resolve())]


@lru_cache(maxsize=1)
def site_packages() -> list[str]:
    """Where packages are installed."""
    names = ("site-packages", "dist-packages")
    return [path for path in sys.path if os.path.basename(path) in names and os.path.isdir(path)]


@lru_cache(maxsize=1)
def _python() -> list[str]:
    """The standard library, the time zones, and the shared libraries that its modules are linked with."""
    paths = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), _ZONES]
    with suppress(OSError):
        # They lie where the C library lies, wherever that is on this system.
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").split()
        paths += [os.path.dirname(path) for path in mapped if os.path.basename(path).startswith(_LIBRARIES)]
    return sorted({os.path.realpath(path) for path in paths if path and os.path.isdir(path)})


def _modules(folder: Path, place: str) -> Iterator[str]:
    """The modules and packages of a folder, and nothing else in it: there may lie settings, keys, or a whole home."""
    around = [folder]
    for step in place.split(".")[:-1]:
        around.append(around[-1] / step)
    found = [path for one in around for path in one.glob("*.py")]
    found += [path.parent for path in folder.glob("*/__init__.py")]
    for path in found:
        # A link in an untrusted folder may lead to anything.
        if path.exists() and path.resolve().is_relative_to(folder) and path.resolve() != folder:
            yield str(path.resolve())
