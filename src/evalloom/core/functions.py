"""Finds functions of users by `module:function` or `path/file.py:function`, and the source files they depend on."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from traceback import TracebackException
from types import ModuleType
from typing import Any

from evalloom.core.digest import digest_text
from evalloom.core.process_state import importing_users_code
from evalloom.core.text import did_you_mean, quote

_OURS = str(Path(__file__).resolve().parent)
_STANDARD = Path(os.__file__).resolve().parent
_MANY_NAMES = 12

_Stamp = tuple[int, int]
_loaded: dict[Path, _Stamp] = {}
"""The files of loaded functions and their stamps, to load all of them again after an edit."""


class NoFunction(Exception):
    """The function does not exist, or its module cannot be imported; the message says which."""


def find_function(
    reference: str, folder: Path, adapted: Callable[[Any], Any] | None = None
) -> tuple[Any, tuple[Path, ...]]:
    """Return a function and its source files. Searches `folder`, then the working folder, then `sys.path`.

    `adapted` turns the object of this name into a function.
    """
    place, _, name = reference.rpartition(":")
    if not place or not name:
        raise NoFunction("expected module:function or path/file.py:function")
    module = _import(place, folder)
    try:
        target = _attribute(module, name)
    except (Exception, SystemExit) as error:  # a module of users may compute its attributes
        if isinstance(error, NoFunction):
            raise
        raise NoFunction(f"looking up {name!r} in it raised {type(error).__name__}: {error}") from None
    function = adapted(target) if adapted else target
    if not callable(function):
        raise NoFunction(f"expected a function, got {quote(function)}")
    sources = sources_of(module, target)
    # Also watch modules that the function imports when it is called.
    _loaded.update({file: _stamp(file) for file in sources if not _is_installed(file)})
    return function, sources


def sources_of(*things: Any) -> tuple[Path, ...]:
    """Return the source files of modules and functions, and the files they import from the same folder."""
    files: dict[Path, None] = {}
    for thing in things:
        name = thing.__name__ if inspect.ismodule(thing) else str(getattr(thing, "__module__", ""))
        file = source_of(thing)
        if file is not None:
            files[file] = None
            _add_imported(file, _base(file, name), files)
    return tuple(files)


def source_of(thing: Any) -> Path | None:
    """Return the source file of a module or a function; None for interactive input and for compiled code."""
    while isinstance(thing, partial):
        thing = thing.func
    thing = thing if inspect.ismodule(thing) else inspect.unwrap(thing)
    # The code of a callable object is in its class.
    for written in (thing, type(thing)):
        try:
            file = inspect.getsourcefile(written)
        except (TypeError, OSError):
            continue
        return Path(file).resolve() if file and Path(file).is_file() else None
    return None


def is_ours(filename: str) -> bool:
    """Whether a file belongs to evalloom itself."""
    return filename.startswith(_OURS)


def _import(place: str, folder: Path) -> ModuleType:
    is_path = place.endswith(".py") or "/" in place
    file = _file(place, is_path, folder)
    try:
        with importing_users_code():
            if file is None:
                return importlib.import_module(place)
            return _load(file, file.stem if is_path else place)
    except (Exception, SystemExit) as error:  # users' code runs at import
        traceback = TracebackException.from_exception(error)
        frames = [
            frame for frame in traceback.stack if not is_ours(frame.filename) and not _is_importlib(frame.filename)
        ]
        at = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
        message = "".join(traceback.format_exception_only()).strip().splitlines()[-1]
        raise NoFunction(f"cannot import {place}: {message}{at}") from None


def _is_importlib(filename: str) -> bool:
    """Whether a file is part of the import system."""
    return filename.startswith("<") or Path(filename).parent.name == "importlib"


def _file(place: str, is_path: bool, folder: Path) -> Path | None:
    """Return the file of a module in `folder` or in the working folder."""
    steps = place.replace(".", "/")
    names = (place,) if is_path else (f"{steps}.py", f"{steps}/__init__.py")
    for file in (base / name for base in (folder, Path()) for name in names):
        if os.path.isfile(file):  # Path.is_file raises for a name that no file can have
            return file.resolve()
    if is_path:
        raise NoFunction(f"there is no file {quote((folder / place).as_posix(), 200)}")
    return None


def _load(file: Path, name: str) -> ModuleType:
    """Import a file, even if another module has the same name."""
    _forget_edited()
    base = _base(file, name)
    prefer_folder(base)
    loaded = sys.modules.get(name)
    if loaded is not None and source_of(loaded) == file:
        return loaded
    with _watch_imports(base):
        return _execute(file, name if loaded is None else f"{file.stem}_{digest_text(str(file), 4)}")


def prefer_folder(base: Path) -> None:
    """Put a folder first on `sys.path`, as for a script in it, and forget modules of the same names from elsewhere."""
    if str(base) in sys.path:
        sys.path.remove(str(base))
    sys.path.insert(0, str(base))
    for name, module in list(sys.modules.items()):
        steps = base.joinpath(*name.split("."))
        is_namesake = steps.with_name(f"{steps.name}.py").is_file() or steps.is_dir()
        if is_namesake and _lies_elsewhere(module, base):
            _forget(name)


def _lies_elsewhere(module: ModuleType, base: Path) -> bool:
    """Whether a module belongs to the user but is not from this folder."""
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        place = Path(file).resolve()
        return place in _loaded and not place.is_relative_to(base)
    # A namespace package has no file, only folders.
    places = [Path(place) for place in getattr(module, "__path__", ())]
    return bool(places) and not any(place.is_relative_to(base) or _is_installed(place) for place in places)


def _base(file: Path, name: str) -> Path:
    """Return the folder from which a module of this name is imported."""
    above = name.count(".") + (file.name == "__init__.py")
    return file.parents[min(above, len(file.parents) - 1)]


def _add_imported(file: Path, base: Path, files: dict[Path, None]) -> None:
    """Add the files that a file imports from its own folder, recursively.

    Parsed from the source: `sys.modules` depends on what else was imported before.
    """
    if _is_installed(file) or not file.is_relative_to(base):
        return
    for name in _imported_names(file, file.relative_to(base).parent.parts):
        steps = base.joinpath(*name.split("."))
        for imported in (steps.with_name(f"{steps.name}.py"), steps / "__init__.py"):
            if imported not in files and imported.is_file():
                files[imported] = None
                _add_imported(imported, base, files)


def _is_installed(file: Path) -> bool:
    """Whether a file belongs to Python or to an installed package, which does not change between runs."""
    is_package = {"site-packages", "dist-packages"} & {*file.parts}
    return bool(is_package) or file.is_relative_to(_STANDARD) or is_ours(str(file))


def _imported_names(file: Path, package: tuple[str, ...]) -> Iterator[str]:
    """Yield the modules that a file of this package may import, and their parent packages."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            around = package[: len(package) - node.level + 1] if node.level else ()
            inside = ".".join((*around, *filter(None, [node.module])))
            names = [f"{inside}.{alias.name}".lstrip(".") for alias in node.names]
        else:
            continue
        for name in names:
            yield from (name[: dot.start()] for dot in re.finditer(r"\.", name))
            yield name


def _execute(file: Path, name: str) -> ModuleType:
    parent = name.rpartition(".")[0]
    if parent:
        importlib.import_module(parent)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError("expected a file whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        # As the import system does: do not leave a half-initialised module behind.
        del sys.modules[name]
        raise
    return module


@contextmanager
def _watch_imports(base: Path) -> Iterator[None]:
    """Record which modules of a folder are imported in the block."""
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in sys.modules.keys() - before:
            file = source_of(sys.modules[name])
            if file is not None and file.is_relative_to(base) and not _is_installed(file):
                _loaded[file] = _stamp(file)


def _forget_edited() -> None:
    """Forget all recorded modules if one of the files was edited, because the others may use it."""
    # The import system caches folder contents, and may not know a new file yet.
    importlib.invalidate_caches()
    if any(_stamp(file) != stamp for file, stamp in _loaded.items()):
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if name != "__main__" and isinstance(file, str) and Path(file).resolve() in _loaded:
                _forget(name)
        _loaded.clear()


def _forget(name: str) -> None:
    """Remove a module from `sys.modules` and from its package."""
    package, _, own = name.rpartition(".")
    del sys.modules[name]
    if package in sys.modules:
        vars(sys.modules[package]).pop(own, None)


def _stamp(file: Path) -> _Stamp:
    try:
        state = file.stat()
    except OSError:
        return (0, 0)
    return (state.st_mtime_ns, state.st_size)


def _attribute(module: ModuleType, name: str) -> Any:
    value: Any = module
    for step in name.split("."):
        if not hasattr(value, step):
            names = [attr for attr in dir(value) if not attr.startswith("_") and callable(getattr(value, attr, None))]
            more = f" and {len(names) - _MANY_NAMES} more" if len(names) > _MANY_NAMES else ""
            has = f"; it has {', '.join(names[:_MANY_NAMES])}{more}" if names else ""
            raise NoFunction(f"there is no {name!r} in it{has}{did_you_mean(step, names)}")
        value = getattr(value, step)
    return value


def copied(value: Any) -> Any:
    """Copy the containers of a JSON value, so that a function of the user cannot change ours."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value
