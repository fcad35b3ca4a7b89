"""A Python function as a target: imports it by name, calls it with the inputs and checks its return value."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CellType
from typing import Any

from msgspec import structs

from evalloom.core.bridge import Bridge
from evalloom.core.calling import Callee, parameters_of
from evalloom.core.digest import digest_of
from evalloom.core.errors import usage_error
from evalloom.core.functions import NoFunction, copied, find_function, sources_of
from evalloom.core.model import Context, Output, Record
from evalloom.core.text import quote
from evalloom.core.value import as_output
from evalloom.targets.base import DEFAULTS, TIMEOUT_S, BuiltTarget, TargetOptions, text_in, time_limit

Read = Callable[[Any], Output]


def build(
    spec: Record,
    folder: Path,
    options: TargetOptions,
    adapt: Callable[[Any], Any] | None = None,
    read: Read = as_output,
) -> BuiltTarget:
    """Build the target of `{python: "module:function"}` or `{python: "path/file.py:function"}`.

    `adapt` converts the object of that name to the function that is called, and `read` its return value to an output.
    """
    reference = text_in(spec, "python").strip()
    try:
        function, sources = find_function(reference, folder, adapt)
    except NoFunction as error:
        raise usage_error("target_missing", f"python:{reference}: {error}") from None
    name = text_in(spec, "name") or f"python:{reference}"
    target = PythonTarget(function, read, time_limit(spec, options) or TIMEOUT_S)
    return _build_target(target, name, reference, sources)


def build_callable(function: Callable[..., Any], name: str = "", options: TargetOptions = DEFAULTS) -> BuiltTarget:
    """Return the target of a function or another callable object."""
    if not callable(function):
        raise usage_error("target_missing", f"expected a function, got {quote(function)}")
    own = getattr(function, "__qualname__", type(function).__qualname__)
    identity = [name, _identity(function)]
    target = PythonTarget(function, limit=time_limit({}, options) or TIMEOUT_S)
    built = _build_target(target, name or f"python:{own}", identity, sources_of(function))
    return structs.replace(built, rebuild=partial(build_callable, function, name))


def _build_target(target: PythonTarget, name: str, identity: Any, sources: tuple[Path, ...]) -> BuiltTarget:
    texts = [file.read_bytes().decode("utf-8", "replace") for file in sources] or _notebook_source(target.function)
    return BuiltTarget(
        name=name,
        kind="python",
        digest=digest_of("python", identity, texts),
        call=target,
        variables=target.variables,
        defaulted=target.names - target.variables,
        watch=sources,
        closing=target.close,
    )


class PythonTarget:
    """Calls a function with the inputs that it takes."""

    def __init__(self, function: Callable[..., Any], read: Read = as_output, limit: float | None = None) -> None:
        self.function = function
        self._limit = limit
        self._callee = Callee(function, read)
        self._parameters = parameters_of(function)
        self._contexts = self._parameters.annotated(Context)
        required = [name for name in self._parameters.required if name not in self._contexts]
        self.required = frozenset(required)
        self.names = frozenset(self._parameters.names) - {*self._contexts, "context"}
        self.takes_any = self._parameters.takes_any or self._parameters.is_unknown
        self.variables = frozenset(required) if len(required) > 1 else frozenset[str]()

    async def __call__(self, inputs: Record, context: Context, limit: float | None = None) -> Output:
        """Return the output of one call, within `limit` seconds or the limit of the target."""
        names = self._contexts
        if "context" in self._parameters.names and "context" not in inputs:
            names = [*names, "context"]
        bridge = Bridge() if names else None
        args, named = self._parameters.bind(inputs, dict.fromkeys(names, bridge.context(context)) if bridge else {})
        try:
            # Copy only the arguments that the function takes: the inputs may hold much more.
            return await self._callee([copied(arg) for arg in args], copied(named), context, limit or self._limit)
        finally:
            if bridge is not None:
                bridge.close()

    async def close(self) -> None:
        await self._callee.close()


def _identity(function: Any) -> list[Any]:
    """Return what distinguishes functions in one file: the name, the code and the bound values."""
    bound: list[Any] = []
    while isinstance(function, partial):
        bound += (function.args, function.keywords)
        function = function.func
    code = getattr(function, "__code__", None)
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or () if _is_filled(cell)]
    values = [*cells, *(getattr(function, "__defaults__", None) or ()), *(code.co_consts if code else ())]
    name = getattr(function, "__qualname__", type(function).__qualname__)
    # Other values are represented by their type, because their repr may differ in each process.
    shown = [value if isinstance(value, str | int | float | None) else type(value).__name__ for value in values]
    return [getattr(function, "__module__", ""), name, bound, shown, code and [code.co_code.hex(), code.co_names]]


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _notebook_source(function: Callable[..., Any]) -> str:
    """Return the source of a function that is defined in a notebook."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""
