"""Users' functions: the one that `module:function` or `path/file.py:function` names, and the files it is written in."""

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
from evalloom.core.text import did_you_mean, quote

_OURS = str(Path(__file__).resolve().parent)
_STANDARD = Path(os.__file__).resolve().parent
_MANY_NAMES = 12

_Stamp = tuple[int, int]
_loaded: dict[Path, _Stamp] = {}
"""The files that functions were loaded from, so that they are loaded again once one of them was edited."""


class NoFunction(Exception):
    """There is no such function, or its module does not load; the message says which."""


def find_function(
    reference: str, folder: Path, adapted: Callable[[Any], Any] | None = None
) -> tuple[Any, tuple[Path, ...]]:
    """A function and its files: beside the file that names it, then in the working folder, then on `sys.path`.

    `adapted` makes a function of what is found there.
    """
    place, _, name = reference.rpartition(":")
    if not place or not name:
        raise NoFunction("expected module:function or path/file.py:function")
    module = _import(place, folder)
    found = _attribute(module, name)
    function = adapted(found) if adapted else found
    if not callable(function):
        raise NoFunction(f"expected a function, got {quote(function)}")
    sources = sources_of(module, found)
    # What the function imports only when it is called is not loaded yet, and may be edited all the same.
    _loaded.update({file: _stamp(file) for file in sources if not _is_installed(file)})
    return function, sources


def sources_of(*things: Any) -> tuple[Path, ...]:
    """The files in which modules and functions are written, and what those import from the same folder."""
    found: dict[Path, None] = {}
    for thing in things:
        name = thing.__name__ if inspect.ismodule(thing) else str(getattr(thing, "__module__", ""))
        file = source_of(thing)
        if file is not None:
            found[file] = None
            _add_imported(file, _base(file, name), found)
    return tuple(found)


def source_of(thing: Any) -> Path | None:
    """The file in which a module or a function is written; none for what was typed in or is not Python."""
    while isinstance(thing, partial):
        thing = thing.func
    thing = thing if inspect.ismodule(thing) else inspect.unwrap(thing)
    # What an object that can be called does is written in its class.
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
        if file is None:
            return importlib.import_module(place)
        return _load(file, file.stem if is_path else place)
    except (Exception, SystemExit) as fault:  # users' code runs at import
        traceback = TracebackException.from_exception(fault)
        frames = [frame for frame in traceback.stack if not is_ours(frame.filename) and not _imports(frame.filename)]
        at = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
        said = "".join(traceback.format_exception_only()).strip().splitlines()[-1]
        raise NoFunction(f"cannot import {place}: {said}{at}") from None


def _imports(filename: str) -> bool:
    """Whether a file is part of Python's own way to import."""
    return filename.startswith("<") or Path(filename).parent.name == "importlib"


def _file(place: str, is_path: bool, folder: Path) -> Path | None:
    """The file of a module that lies beside the file that names it or in the working folder."""
    steps = place.replace(".", "/")
    names = (place,) if is_path else (f"{steps}.py", f"{steps}/__init__.py")
    for file in (base / name for base in (folder, Path()) for name in names):
        if file.is_file():
            return file.resolve()
    if is_path:
        raise NoFunction(f"there is no file {quote((folder / place).as_posix(), 200)}")
    return None


def _load(file: Path, name: str) -> ModuleType:
    """The module of a file, beside any other module of the same name."""
    _forget_edited()
    base = _base(file, name)
    look_first_in(base)
    known = sys.modules.get(name)
    if known is not None and source_of(known) == file:
        return known
    with _noted(base):
        return _execute(file, name if known is None else f"{file.stem}_{digest_text(str(file), 4)}")


def look_first_in(base: Path) -> None:
    """Lets imports find what lies in a folder, as they would for a script there, and no namesake from elsewhere."""
    if str(base) in sys.path:
        sys.path.remove(str(base))
    sys.path.insert(0, str(base))
    for name, module in list(sys.modules.items()):
        steps = base.joinpath(*name.split("."))
        is_namesake = steps.with_name(f"{steps.name}.py").is_file() or steps.is_dir()
        if is_namesake and _lies_elsewhere(module, base):
            _forget(name)


def _lies_elsewhere(module: ModuleType, base: Path) -> bool:
    """Whether a module is the user's, and not from this folder."""
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        place = Path(file).resolve()
        return place in _loaded and not place.is_relative_to(base)
    # A package without a file of its own is the folders that it was found in.
    places = [Path(place) for place in getattr(module, "__path__", ())]
    return bool(places) and not any(place.is_relative_to(base) or _is_installed(place) for place in places)


def _base(file: Path, name: str) -> Path:
    """The folder from which a module of this name is imported."""
    above = name.count(".") + (file.name == "__init__.py")
    return file.parents[min(above, len(file.parents) - 1)]


def _add_imported(file: Path, base: Path, found: dict[Path, None]) -> None:
    """Adds what a file imports from its own folder, and what that imports in turn.

    Read from the text, because which modules are loaded already when it is imported is a matter of chance.
    """
    if _is_installed(file) or not file.is_relative_to(base):
        return
    for name in _imported_names(file, file.relative_to(base).parent.parts):
        steps = base.joinpath(*name.split("."))
        for other in (steps.with_name(f"{steps.name}.py"), steps / "__init__.py"):
            if other not in found and other.is_file():
                found[other] = None
                _add_imported(other, base, found)


def _is_installed(file: Path) -> bool:
    """Whether a file is part of Python or of a package that was installed: nobody edits those between two runs."""
    is_package = {"site-packages", "dist-packages"} & {*file.parts}
    return bool(is_package) or file.is_relative_to(_STANDARD) or is_ours(str(file))


def _imported_names(file: Path, package: tuple[str, ...]) -> Iterator[str]:
    """Every module that a file of this package may import, with those around it."""
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
        # As with any import: a module that failed half-way must not be found by the next one.
        del sys.modules[name]
        raise
    return module


@contextmanager
def _noted(base: Path) -> Iterator[None]:
    """Notes which modules of a folder are loaded meanwhile."""
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in sys.modules.keys() - before:
            file = source_of(sys.modules[name])
            if file is not None and file.is_relative_to(base) and not _is_installed(file):
                _loaded[file] = _stamp(file)


def _forget_edited() -> None:
    """Lets go of every module of the noted files when one was edited: it may be in use in the others."""
    # A file that was written just now may be younger than what the import system remembers of its folder.
    importlib.invalidate_caches()
    if any(_stamp(file) != stamp for file, stamp in _loaded.items()):
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if name != "__main__" and isinstance(file, str) and Path(file).resolve() in _loaded:
                _forget(name)
        _loaded.clear()


def _forget(name: str) -> None:
    """Lets go of a module, and of what `from package import module` would still find of it."""
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
    found: Any = module
    for step in name.split("."):
        if not hasattr(found, step):
            known = [one for one in dir(found) if not one.startswith("_") and callable(getattr(found, one, None))]
            more = f" and {len(known) - _MANY_NAMES} more" if len(known) > _MANY_NAMES else ""
            has = f"; it has {', '.join(known[:_MANY_NAMES])}{more}" if known else ""
            raise NoFunction(f"there is no {name!r} in it{has}{did_you_mean(step, known)}")
        found = getattr(found, step)
    return found


def copied(value: Any) -> Any:
    """The same JSON value in new containers: a function of the user's that changes it changes nothing of ours."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value
