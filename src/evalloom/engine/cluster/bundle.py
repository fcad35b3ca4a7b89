"""The bundle: the files of the project that a worker needs, packed once and named by their digest."""

from __future__ import annotations

import io
import os
import pickle
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.digest import digest_bytes
from evalloom.core.errors import EvalloomError, usage_error
from evalloom.settings.keys import forms

ROOT = "EVALLOOM_CLUSTER_ROOT"
"""The variable with the folder that a bundle was unpacked to."""
_MAX_BYTES = 100_000_000
_MAX_FILES = 20_000
_SHOWN = 5
_SKIPPED = ("__pycache__", "node_modules", "site-packages")
_SUFFIXES = (".pyc", ".pyo")


class _File(Struct, array_like=True):
    path: str
    is_executable: bool
    content: bytes


class Bundle(Struct, frozen=True):
    """Packed files, their digest, and the folder that their paths start at."""

    digest: str
    data: bytes
    base: Path
    folder: str
    """The working folder, from `base`."""


def pack(roots: Iterable[Path], extra: Iterable[Path], leave_out: Iterable[Path], secrets: Iterable[str]) -> Bundle:
    """Pack the files below some folders and further ones, without datasets, which travel case by case."""
    left_out = {Path(os.path.abspath(path)) for path in leave_out}
    here, roots = Path.cwd(), [Path(os.path.abspath(root)) for root in roots]
    paths = {path for root in roots for path in _files_below(root)}
    paths.update(Path(os.path.abspath(path)) for path in extra if path.is_file() and not _is_installed(path))
    paths -= left_out
    base = Path(os.path.commonpath([here, *roots, *(path.parent for path in paths)]))
    _check_size(paths, base)
    hidden = [form.encode() for secret in secrets for form in forms(secret)]
    files = [_read(path, base, hidden) for path in sorted(paths)]
    packed = msgspec.msgpack.encode([file for file in files if file is not None])
    return Bundle(digest_bytes(packed), zlib.compress(packed, 1), base, here.relative_to(base).as_posix())


def unpack(data: bytes, folder: Path) -> None:
    """Write the files of a bundle into a folder, and nowhere else."""
    for file in msgspec.msgpack.decode(zlib.decompress(data), type=list[_File]):
        steps = PurePosixPath(file.path)
        if steps.is_absolute() or ".." in steps.parts or "\\" in file.path or "\0" in file.path:
            raise OSError(f"the bundle has a path that leaves its folder: {file.path!r}")
        path = folder / steps
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(0o700 if file.is_executable else 0o600)


def pack_value(value: object, base: Path) -> bytes:
    """Pickle a value for workers; an absolute path below `base` becomes one of the bundle there."""
    stream = io.BytesIO()
    try:
        _Pickler(stream, base).dump(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise not_portable(str(error)) from None
    return stream.getvalue()


def not_portable(why: str) -> EvalloomError:
    """Return the error for a target or a check that exists only in this process."""
    hint = "Name functions as 'python:module:function', or define them in a module that workers can import"
    return usage_error("not_portable", f"--executor dask: {why}. {hint}")


def unpack_value(data: bytes, root: Path) -> Any:
    """Return a packed value."""
    return _Unpickler(io.BytesIO(data), root).load()


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, base: Path) -> None:
        super().__init__(stream, 5)
        self._base = base

    def persistent_id(self, value: Any) -> str | None:
        if isinstance(value, Path) and value.is_absolute() and value.is_relative_to(self._base):
            return value.relative_to(self._base).as_posix()
        if callable(value) and getattr(value, "__module__", "") == "__main__":
            name = getattr(value, "__qualname__", type(value).__name__)
            raise pickle.PicklingError(f"{name}() is defined in a script or a notebook, which workers do not have")
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, root: Path) -> None:
        super().__init__(stream)
        self._root = root

    def persistent_load(self, path: str) -> Path:
        return self._root / path


def _files_below(root: Path) -> Iterator[Path]:
    number = 0
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name not in _SKIPPED and not (here / name / "pyvenv.cfg").exists()
        )
        for name in names:
            path = here / name
            if name.startswith(".") or name.endswith(_SUFFIXES) or not path.is_file():
                continue
            number += 1
            if number > _MAX_FILES:
                what = f"{root.as_posix()} has more than {_MAX_FILES:,} files, and all would go to every worker"
                raise usage_error(
                    "bundle_too_large", f"{what}. Put the code and the prompts into a folder of their own"
                )
            yield path


def _check_size(paths: set[Path], base: Path) -> None:
    sizes = {path: path.stat().st_size for path in paths}
    total = sum(sizes.values())
    if total <= _MAX_BYTES:
        return
    largest = sorted(sizes, key=lambda path: -sizes[path])[:_SHOWN]
    shown = ", ".join(f"{path.relative_to(base).as_posix()} ({sizes[path] / 1e6:.0f} MB)" for path in largest)
    what = f"the files of the project are {total / 1e6:.0f} MB, and at most {_MAX_BYTES / 1e6:.0f} MB go to workers"
    raise usage_error("bundle_too_large", f"{what}. The largest: {shown}. Move what no run needs out of the folder")


def _read(path: Path, base: Path, secrets: list[bytes]) -> _File | None:
    try:
        content = path.read_bytes()
        is_executable = os.access(path, os.X_OK)
    except OSError:
        # What cannot be read here is not needed here either, as a socket or the file of another user.
        return None
    name = path.relative_to(base).as_posix()
    if any(secret in content for secret in secrets):
        hint = "Keys stay on this machine; workers have their own. Remove it from the file, or move the file away"
        raise usage_error("key_in_bundle", f"{name}: contains the value of a key. {hint}")
    return _File(name, is_executable, content)


def _is_installed(path: Path) -> bool:
    return "site-packages" in path.parts or "dist-packages" in path.parts
