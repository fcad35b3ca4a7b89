"""The files that sandboxed code may read: Python itself and, for a reference, the modules around it."""

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
    """Return the files and folders that may be read, and the folders that may only be listed."""
    paths, listed = [*_standard_library(), *_system()], [*_standard_folders()]
    if reference:
        paths += site_packages()
    if reference and folder is not None and folder.is_dir():
        paths += _modules(folder.resolve(), reference.partition(":")[0])
        listed.append(str(folder.resolve()))
    return paths, listed


@lru_cache(maxsize=1)
def site_packages() -> list[str]:
    """Return the folders of installed packages."""
    return [path for path in sys.path if os.path.basename(path) in _PACKAGES and os.path.isdir(path)]


@lru_cache(maxsize=1)
def _standard_folders() -> list[str]:
    """Return the folders of the standard library; a virtual environment has only installed packages."""
    places = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib", vars={"platbase": sys.base_exec_prefix}))
    return sorted({os.path.realpath(place) for place in places if os.path.isdir(place)})


@lru_cache(maxsize=1)
def _standard_library() -> list[str]:
    """Return the entries of these folders one by one, because installed packages are often in a folder inside."""
    places = [place for folder in map(Path, _standard_folders()) for place in folder.iterdir()]
    return sorted({str(place.resolve()) for place in places if place.name not in _PACKAGES and place.exists()})


@lru_cache(maxsize=1)
def _system() -> list[str]:
    """Return the folders of time zones and of shared libraries."""
    paths = [_ZONES]
    with suppress(OSError):
        # Shared libraries are in the folder of the C library, which differs between systems.
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").split()
        paths += [os.path.dirname(path) for path in mapped if os.path.basename(path).startswith(_LIBRARIES)]
    return sorted({os.path.realpath(path) for path in paths if os.path.isdir(path)})


def _modules(folder: Path, place: str) -> Iterator[str]:
    """Yield the modules and packages of a folder, and nothing else: it may contain settings, keys, or a home."""
    around = [folder]
    for step in place.split(".")[:-1]:
        around.append(around[-1] / step)
    paths = [path for package in around for path in package.glob("*.py")]
    paths += [path.parent for path in folder.glob("*/__init__.py")]
    for path in paths:
        # A link in an untrusted folder may point anywhere.
        if path.exists() and path.resolve().is_relative_to(folder) and path.resolve() != folder:
            yield str(path.resolve())
