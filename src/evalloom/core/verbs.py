"""What the functions of the Python API share: hints for misspelled options, and warnings at the caller's line."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from functools import wraps
from typing import ParamSpec, TypeVar

from evalloom.core.errors import usage_error
from evalloom.core.text import did_you_mean

Warn = Callable[[str], None]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_PACKAGE = "evalloom"


class EvalloomWarning(UserWarning):
    """Something that a user should know, and that does not stop the call; its message ends with a code."""


def warn_caller(warn: Warn | None = None) -> Warn:
    """Return `warn`, or else a function that issues Python warnings at the line outside of evalloom that called it.

    Both can be called from another thread, such as that of the loop beside a notebook's.
    """
    if warn is not None:
        return warn
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame = frame.f_back
    place = frame.f_globals
    file, line, module = frame.f_code.co_filename, frame.f_lineno, place.get("__name__")
    registry = place.setdefault("__warningregistry__", {})
    return lambda message: warnings.warn_explicit(message, EvalloomWarning, file, line, module, registry)


def verb(*options: Iterable[str]) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Decorate a function of the API: an unknown option is an error that names the one that was meant.

    `options` are names that the function takes besides its parameters.
    """

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        code = function.__code__
        parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        names = list(dict.fromkeys([*parameters, *(name for more in options for name in more)]))

        @wraps(function)
        def call(*arguments: Arguments.args, **given: Arguments.kwargs) -> Result:
            for name in given:
                if name not in names:
                    hint = did_you_mean(name, names) or f". There is {', '.join(names)}"
                    raise usage_error("bad_option", f"{function.__name__}: there is no option {name!r}{hint}")
            return function(*arguments, **given)

        return call

    return decorate
