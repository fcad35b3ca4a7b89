"""A Python function as a target: looked up by name, called with the inputs, its answer checked."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from pathlib import Path
from traceback import StackSummary, TracebackException
from types import CellType
from typing import Any, NamedTuple

from evalloom.errors import BudgetSpent, CallError, did_you_mean, usage_error
from evalloom.functions import NoFunction, copied, find_function, is_ours, sources_of
from evalloom.model import Context, Output, Record, quote
from evalloom.targets.target import (
    CLAMP,
    DEFAULTS,
    TIMEOUT_S,
    BuiltTarget,
    Kind,
    TargetOptions,
    digest_of,
    listed,
    text_in,
    time_limit,
    within,
)
from evalloom.targets.value import as_output
from evalloom.threads import Threads

_LONGEST_MESSAGE = 1000


def build(spec: Record, folder: Path, options: TargetOptions) -> BuiltTarget:
    """The target of `{python: "module:function"}` or `{python: "path/file.py:function"}`."""
    reference = text_in(spec, "python").strip()
    try:
        function, sources = find_function(reference, folder)
    except NoFunction as fault:
        raise usage_error("target_missing", f"python:{reference}: {fault}") from None
    name = text_in(spec, "name") or f"python:{reference}"
    return _built(function, name, reference, sources, time_limit(spec, options))


KIND = Kind("python", "MODULE:FUNCTION", "a function of yours", build)


def build_callable(function: Callable[..., Any], name: str = "", options: TargetOptions = DEFAULTS) -> BuiltTarget:
    """The target that a function, or any object that can be called, is by itself."""
    if not callable(function):
        raise usage_error("target_missing", f"expected a function, got {quote(function)}")
    own = getattr(function, "__qualname__", type(function).__qualname__)
    marks = [name, _marks(function)]
    return _built(function, name or f"python:{own}", marks, sources_of(function), time_limit({}, options))


def _built(
    function: Callable[..., Any], name: str, identity: Any, sources: tuple[Path, ...], limit: float | None
) -> BuiltTarget:
    target = PythonTarget(function)
    texts = [file.read_bytes().decode("utf-8", "replace") for file in sources] or _typed_in(function)
    return BuiltTarget(
        name=name,
        kind="python",
        digest=digest_of("python", identity, texts),
        call=within(target, limit or TIMEOUT_S),
        variables=target.variables,
        watch=sources,
        closing=target.close,
    )


class PythonTarget:
    """Calls a function with the inputs that it takes; one that is not async runs in a thread."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._parameters = _parameters(function)
        # An object whose class says how it is called is async when that method is.
        self._is_async = any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))
        self._threads = Threads()
        required = self._parameters.required
        self.variables = frozenset(required) if len(required) > 1 else frozenset[str]()

    async def __call__(self, inputs: Record, context: Context) -> Output:
        args, named = self._parameters.bind(copied(inputs), context)
        try:
            if self._is_async:
                value = await self._function(*args, **named)
            else:
                value = await self._threads.run(lambda: self._function(*args, **named))
                if inspect.isawaitable(value):
                    value = await value
            return as_output(value)
        except (CallError, BudgetSpent):
            raise
        except asyncio.CancelledError as fault:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled this call: it is something inside that was cancelled, and let it through.
            raise _raised(fault, context) from None
        except (Exception, SystemExit) as fault:  # users' code
            raise _raised(fault, context) from None

    async def close(self) -> None:
        self._threads.close()


class _Parameters(NamedTuple):
    """What a function takes: `contexts` are the parameters that are meant for the Context."""

    name: str
    names: tuple[str, ...] = ()
    by_position: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()
    takes_any: bool = False
    is_unknown: bool = False

    def bind(self, inputs: Record, context: Context) -> tuple[list[Any], Record]:
        """The arguments for a case: its inputs by name, or all of them as the one parameter there is."""
        if self.is_unknown:
            return [inputs], {}
        given: Record = dict.fromkeys(self.contexts, context)
        if "context" in self.names and "context" not in inputs:
            given["context"] = context
        needed = [name for name in self.required if name not in given]
        missing = [name for name in needed if name not in inputs]
        if missing and len(needed) == 1:
            given[missing[0]] = inputs
        elif missing:
            raise CallError("missing_argument", self._lacks(missing[0], inputs))
        else:
            names = inputs if self.takes_any else [name for name in self.names if name in inputs]
            given = {**{name: inputs[name] for name in names}, **given}
        by_position = [*takewhile(given.__contains__, self.by_position)]
        return [given.pop(name) for name in by_position], given

    def _lacks(self, name: str, inputs: Record) -> str:
        has = f"the inputs of the case are {listed(inputs)}{did_you_mean(name, inputs)}"
        return f"{self.name}() needs {name!r}; {has}"


def _parameters(function: Callable[..., Any]) -> _Parameters:
    name = getattr(function, "__name__", type(function).__name__)
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        # Some functions written in C do not say what they take.
        return _Parameters(name, is_unknown=True)
    named = [one for one in found if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    contexts = tuple(one.name for one in named if _is_context(one.annotation))
    return _Parameters(
        name=name,
        names=tuple(one.name for one in named if one.name not in contexts),
        by_position=tuple(one.name for one in named if one.kind is one.POSITIONAL_ONLY),
        required=tuple(one.name for one in named if one.default is one.empty and one.name not in contexts),
        contexts=contexts,
        takes_any=any(one.kind is one.VAR_KEYWORD for one in found),
    )


def _is_context(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] == "Context"
    return annotation is Context


def _raised(fault: BaseException, context: Context) -> CallError:
    """The error of a run whose function raised; the traceback, without our own frames, goes to the trace."""
    traceback = TracebackException.from_exception(fault)
    _leave_out_ours(traceback)
    context.trace.append({"type": "traceback", "text": "".join(traceback.format())[-CLAMP:]})
    said = "".join(traceback.format_exception_only()).strip()
    return CallError("target_raised", said if len(said) <= _LONGEST_MESSAGE else said[:_LONGEST_MESSAGE] + "…")


def _leave_out_ours(traceback: TracebackException | None) -> None:
    while traceback is not None:
        frames = [frame for frame in traceback.stack if not is_ours(frame.filename)]
        traceback.stack = StackSummary.from_list(frames)
        traceback = traceback.__cause__ or traceback.__context__


def _marks(function: Any) -> list[Any]:
    """What tells a function from another of the same file: its name, its code, and the values bound to it."""
    bound: list[Any] = []
    while isinstance(function, partial):
        bound += (function.args, function.keywords)
        function = function.func
    code = getattr(function, "__code__", None)
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or () if _is_filled(cell)]
    values = [*cells, *(getattr(function, "__defaults__", None) or ()), *(code.co_consts if code else ())]
    name = getattr(function, "__qualname__", type(function).__qualname__)
    # Of other values only the type: their text would be another one in every process.
    shown = [value if isinstance(value, str | int | float | None) else type(value).__name__ for value in values]
    return [getattr(function, "__module__", ""), name, bound, shown, code and [code.co_code.hex(), code.co_names]]


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _typed_in(function: Callable[..., Any]) -> str:
    """The text of a function that is in no file, where the notebook kept it."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""
