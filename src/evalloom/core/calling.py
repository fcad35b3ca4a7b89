"""How a function of the user's is called: with what it takes, awaited or in a thread, what it raises an error."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from itertools import takewhile
from traceback import StackSummary, TracebackException
from typing import Any

from msgspec import Struct

from evalloom.core.errors import BudgetSpent, CallError
from evalloom.core.functions import is_ours
from evalloom.core.model import Context, Output, Record
from evalloom.core.text import CLAMP, did_you_mean, list_names, shorten
from evalloom.core.threads import Threads

_LONGEST_MESSAGE = 1000


class Callee:
    """A function, and `read`, which makes an output of what it returned; one that is not async runs in a thread."""

    def __init__(self, function: Callable[..., Any], read: Callable[[Any], Output]) -> None:
        self._function = function
        self._read = read
        # An object whose class says how it is called is async when that method is.
        self._is_async = any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))
        self._threads = Threads()

    async def __call__(self, args: list[Any], named: Record, context: Context) -> Output:
        """The output of one call. Raises CallError, with the traceback in the trace."""
        try:
            if self._is_async:
                value = await self._function(*args, **named)
            else:
                value = await self._threads.run(lambda: self._function(*args, **named))
                if inspect.isawaitable(value):
                    value = await value
            return self._read(value)
        except (CallError, BudgetSpent, KeyboardInterrupt, GeneratorExit):
            raise
        except asyncio.CancelledError as fault:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled this call: it is something inside that was cancelled, and let it through.
            raise _raised(fault, context) from None
        except BaseException as fault:  # users' code, which may raise whatever it likes
            raise _raised(fault, context) from None

    async def close(self) -> None:
        self._threads.close()


class Parameters(Struct, frozen=True):
    """What a function takes by name; `annotations` say for what a parameter is meant."""

    name: str
    names: tuple[str, ...] = ()
    by_position: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    annotations: Record = {}
    takes_any: bool = False
    takes_positions: bool = False
    is_unknown: bool = False

    def bind(self, inputs: Record, ours: Record) -> tuple[list[Any], Record]:
        """The arguments for a case: `ours`, and its inputs by name, or all of them as the one parameter there is."""
        if self.is_unknown:
            return [inputs], {}
        given = dict(ours)
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
        has = f"the inputs are {list_names(inputs)}{did_you_mean(name, inputs)}"
        return f"{self.name}() needs {name!r}; {has}"

    def annotated(self, type: type) -> list[str]:
        """The parameters that are meant for an object of this type."""
        return [name for name, found in self.annotations.items() if found is type or _named(found) == type.__name__]


def _named(annotation: Any) -> str:
    return annotation.rpartition(".")[2] if isinstance(annotation, str) else ""


def parameters_of(function: Callable[..., Any]) -> Parameters:
    """What a function takes."""
    name = getattr(function, "__name__", type(function).__name__)
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        # Some functions written in C do not say what they take.
        return Parameters(name, is_unknown=True)
    named = [one for one in found if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    return Parameters(
        name=name,
        names=tuple(one.name for one in named),
        by_position=tuple(one.name for one in named if one.kind is one.POSITIONAL_ONLY),
        required=tuple(one.name for one in named if one.default is one.empty),
        annotations={one.name: one.annotation for one in named},
        takes_any=any(one.kind is one.VAR_KEYWORD for one in found),
        takes_positions=any(one.kind is one.VAR_POSITIONAL for one in found),
    )


def _raised(fault: BaseException, context: Context) -> CallError:
    """The error of a run whose function raised; the traceback, without our own frames, goes to the trace."""
    traceback = TracebackException.from_exception(fault)
    _leave_out_ours(traceback)
    context.trace.append({"type": "traceback", "text": "".join(traceback.format())[-CLAMP:]})
    said = "".join(traceback.format_exception_only()).strip()
    return CallError("target_raised", shorten(said, _LONGEST_MESSAGE))


def _leave_out_ours(traceback: TracebackException | None) -> None:
    while traceback is not None:
        frames = [frame for frame in traceback.stack if not is_ours(frame.filename)]
        traceback.stack = StackSummary.from_list(frames)
        inner = traceback.__context__
        if inner is not None and all(is_ours(frame.filename) for frame in inner.stack):
            # What we met and dealt with ourselves tells the user nothing.
            traceback.__context__ = None
        traceback = traceback.__cause__ or traceback.__context__
