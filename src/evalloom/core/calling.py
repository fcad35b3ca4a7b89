"""Calls functions of users: binds their arguments, awaits them or runs them in a thread, and reports exceptions."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import takewhile
from time import perf_counter
from traceback import StackSummary, TracebackException
from typing import Any

from msgspec import Struct

from evalloom.core.errors import BatchStop, CallError
from evalloom.core.functions import is_ours
from evalloom.core.interrupt import Interrupted
from evalloom.core.model import Context, Output, Record
from evalloom.core.text import CLAMP, did_you_mean, list_names, shorten
from evalloom.core.threads import Threads
from evalloom.core.user_loop import run_on_user_loop

_LONGEST_MESSAGE = 1000


class Callee:
    """Calls a function; `read` turns its result into an output.

    An async function runs on the loop of users' code, any other in a thread: neither can block the engine. So do
    `read` and the message of an exception, which may call methods of users' objects.
    """

    def __init__(self, function: Callable[..., Any], read: Callable[[Any], Output]) -> None:
        self._function = function
        self._read = read
        self.name: str = getattr(function, "__name__", type(function).__name__)
        # A callable object is async if its `__call__` is.
        self._is_async = any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))
        self._threads = Threads()

    async def __call__(self, args: list[Any], named: Record, context: Context, limit: float | None = None) -> Output:
        """Return the output of one call. Raises CallError, and adds the traceback to the trace."""
        if self._is_async:
            start = partial(self._await, partial(self._function, *args, **named), context)
            return _result(await run_on_user_loop(start, self.name, limit))

        def call() -> Any:
            try:
                value = self._function(*args, **named)
                return value if inspect.isawaitable(value) else self._read(value)
            except BaseException as error:  # users' code may raise anything
                return _failure(error, context)

        began = perf_counter()
        value = await self._threads.run(call, self.name, limit)
        if inspect.isawaitable(value):
            left = None if limit is None else max(0.001, limit - (perf_counter() - began))
            value = await run_on_user_loop(partial(self._await, lambda: value, context), self.name, left)
        return _result(value)

    async def _await(self, call: Callable[[], Awaitable[Any]], context: Context) -> Output | CallError | BatchStop:
        try:
            return self._read(await call())
        except BaseException as error:  # users' code may raise anything
            return _failure(error, context)

    async def close(self) -> None:
        self._threads.close()


def _result(value: Output | CallError | BatchStop) -> Output:
    if isinstance(value, Output):
        return value
    raise value


def _failure(error: BaseException, context: Context) -> CallError | BatchStop:
    """Return the error of a call that raised; add its traceback, without our own frames, to the trace."""
    if isinstance(error, CallError | BatchStop):
        return error
    if isinstance(error, Interrupted):
        raise error
    traceback = TracebackException.from_exception(error)
    _remove_our_frames(traceback)
    context.trace.append({"type": "traceback", "text": "".join(traceback.format())[-CLAMP:]})
    message = "".join(traceback.format_exception_only()).strip()
    return CallError("target_raised", shorten(message, _LONGEST_MESSAGE))


class Parameters(Struct, frozen=True):
    """The parameters of a function; `annotations` decide which of them get our objects."""

    name: str
    names: tuple[str, ...] = ()
    by_position: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    annotations: Record = {}
    takes_any: bool = False
    takes_positions: bool = False
    is_unknown: bool = False

    def bind(self, inputs: Record, ours: Record) -> tuple[list[Any], Record]:
        """Bind `ours` and the inputs of a case by name, or all inputs to the only required parameter."""
        if self.is_unknown:
            return [inputs], {}
        arguments = dict(ours)
        needed = [name for name in self.required if name not in arguments]
        missing = [name for name in needed if name not in inputs]
        if missing and len(needed) == 1:
            arguments[missing[0]] = inputs
        elif missing:
            has = f"the inputs are {list_names(inputs)}{did_you_mean(missing[0], inputs)}"
            raise CallError("missing_argument", f"{self.name}() needs {missing[0]!r}; {has}")
        else:
            names = inputs if self.takes_any else [name for name in self.names if name in inputs]
            arguments = {**{name: inputs[name] for name in names}, **arguments}
        by_position = [*takewhile(arguments.__contains__, self.by_position)]
        return [arguments.pop(name) for name in by_position], arguments

    def annotated(self, type: type) -> list[str]:
        """Return the parameters with this type as annotation, written as a type or as text."""
        return [
            name
            for name, annotation in self.annotations.items()
            if annotation is type or (isinstance(annotation, str) and annotation.rpartition(".")[2] == type.__name__)
        ]


def parameters_of(function: Callable[..., Any]) -> Parameters:
    """Return the parameters of a function."""
    name = getattr(function, "__name__", type(function).__name__)
    try:
        parameters = list(_signature(function).parameters.values())
    except Exception:  # some functions in C have no signature, and users' code may compute one
        return Parameters(name, is_unknown=True)
    named = [item for item in parameters if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)]
    return Parameters(
        name=name,
        names=tuple(item.name for item in named),
        by_position=tuple(item.name for item in named if item.kind is item.POSITIONAL_ONLY),
        required=tuple(item.name for item in named if item.default is item.empty),
        annotations={item.name: item.annotation for item in named},
        takes_any=any(item.kind is item.VAR_KEYWORD for item in parameters),
        takes_positions=any(item.kind is item.VAR_POSITIONAL for item in parameters),
    )


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        # Annotations are evaluated late there, and may name what is not imported at run time.
        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def _remove_our_frames(traceback: TracebackException | None) -> None:
    while traceback is not None:
        frames = [frame for frame in traceback.stack if not is_ours(frame.filename)]
        traceback.stack = StackSummary.from_list(frames)
        inner = traceback.__context__
        if inner is not None and all(is_ours(frame.filename) for frame in inner.stack):
            # An exception that we caught ourselves does not help the user.
            traceback.__context__ = None
        traceback = traceback.__cause__ or traceback.__context__
