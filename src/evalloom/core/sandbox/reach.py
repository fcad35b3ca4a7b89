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
_PACKAGES = ("site-packages", "dist-packages")
_LIBRARIES = ("libc.so", "libc-2", "ld-linux", "ld-musl")


def readable(reference: str, folder: Path | None) -> tuple[list[str], list[str]]:
    """The files and folders that may be read, and the folders whose names alone may be listed."""
    paths, listed = [*_standard_library(), *_system()], [*_standard_folders()]
    if reference:
        paths += site_packages()
    if reference and folder is not None and folder.is_dir():
        paths += _modules(folder.resolve(), reference.partition(":")[0])
        listed.append(str(folder.resolve()))
    return paths, listed


@lru_cache(maxsize=1)
def site_packages() -> list[str]:
    """Where packages are installed."""
    return [path for path in sys.path if os.path.basename(path) in _PACKAGES and os.path.isdir(path)]


@lru_cache(maxsize=1)
def _standard_folders() -> list[str]:
    """Where the standard library lies; that of a virtual environment holds nothing but installed packages."""
    places = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib", vars={"platbase": sys.base_exec_prefix}))
    return sorted({os.path.realpath(place) for place in places if os.path.isdir(place)})


@lru_cache(maxsize=1)
def _standard_library() -> list[str]:
    """What lies there, one by one, because packages are often installed in a folder beside it."""
    places = [place for folder in map(Path, _standard_folders()) for place in folder.iterdir()]
    return sorted({str(place.resolve()) for place in places if place.name not in _PACKAGES and place.exists()})


@lru_cache(maxsize=1)
def _system() -> list[str]:
    """The time zones, and the shared libraries that modules are linked with."""
    paths = [_ZONES]
    with suppress(OSError):
        # They lie where the C library lies, wherever that is on this system.
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").split()
        paths += [os.path.dirname(path) for path in mapped if os.path.basename(path).startswith(_LIBRARIES)]
    return sorted({os.path.realpath(path) for path in paths if os.path.isdir(path)})


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
