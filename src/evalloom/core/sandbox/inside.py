"""What runs inside the sandbox: a process that first gives up what it could do, and only then reads the code.

Started as a file of its own, so it imports nothing but the standard library. It is told on its command line what to
give up, gets the request on stdin and answers on stdout, one line of JSON each: that it is shut in, then one for each
call. From the moment the code runs, everything in here may be its work: the process outside believes none of it.
"""

from __future__ import annotations

import ctypes
import importlib
import inspect
import io
import json
import math
import os
import resource
import signal
import sys
from collections.abc import Callable
from struct import pack
from types import ModuleType
from typing import Any, NoReturn

_At = tuple[Any, Any] | None
"""A place in a result: the place around it, and the key or index there."""

_Parameters = list[inspect.Parameter] | None
"""What a function takes, where it says so."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

_PRINTED = 8_000
"""How many characters of what one call prints are kept."""
_MESSAGE = 500
_DEPTH = 200
_STEPS = 8
_NO_MEMORY = 77
_FILE = "<code>"


class NotShutIn(Exception):
    """A step of the isolation failed, so the code must not run."""


class BadCode(Exception):
    """The code cannot be called at all; the message says why."""


class NoJson(Exception):
    """What a function gave back is no JSON; the message says where and why."""


def main() -> NoReturn:
    """Shuts itself in, reads the request, answers, and ends without giving the code another chance to run."""
    told = json.loads(sys.argv[1])
    answers = _Answers()
    try:
        _shut_in(told)
    except NotShutIn as error:
        answers.give({"refused": str(error)})
        os._exit(1)
    try:
        answers.give({"ready": True})
        _answer(_request(), answers)
    except MemoryError:
        # Told by the exit code: there may be no memory left to write anything.
        os._exit(_NO_MEMORY)
    except BadCode as error:
        answers.give({"bad_code": str(error)})
    os._exit(0)


class _Answers:
    """The way out: a copy of stdout, so that what is printed does not get in between."""

    def __init__(self) -> None:
        self._out = os.dup(1)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)

    def give(self, answer: dict[str, Any]) -> None:
        line = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        rest = memoryview(line + b"\n")
        while rest:
            try:
                rest = rest[os.write(self._out, rest) :]
            except OSError:
                # The code closed it, so there is nobody left to tell.
                os._exit(1)


# -- giving up -------------------------------------------------------------------------------------------

_NO_NEW_PRIVILEGES, _SECCOMP, _PARENT_DEATH, _DUMPABLE = 38, 22, 1, 4
_SECCOMP_FILTER = 2
_CAPABILITIES = 0x20080522
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1

_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_FILE, _MAKE_FILE, _TRUNCATE = (1 << bit for bit in (1, 2, 3, 5, 8, 14))
# Only plain files, so that there is no tree to take down afterwards and no link to follow.
_SCRATCH = _WRITE_FILE | _READ_FILE | _READ_DIR | _REMOVE_FILE | _MAKE_FILE | _TRUNCATE
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""What Landlock can forbid from each of its versions on."""
_NETWORK_SINCE, _NETWORK_RIGHTS = 4, 3
_SCOPES_SINCE, _SCOPES = 6, 3


def _shut_in(told: dict[str, Any]) -> None:
    """Gives up all that code is not to have, and makes sure that it is gone."""
    _set_limits(told["limits"])
    _prctl(_DUMPABLE, 0)
    _prctl(_NO_NEW_PRIVILEGES, 1)
    _landlock(told["scratch"], told["read"], told["list"])
    _drop_capabilities()
    _prctl(_PARENT_DEATH, signal.SIGKILL)
    if os.getppid() != told["parent"]:
        raise NotShutIn("the process that started it has ended")
    _filter_system_calls(bytes.fromhex(told["filter"]))
    _prove()


def _set_limits(limits: dict[str, float]) -> None:
    cpu = math.ceil(limits["cpu_s"])
    for kind, value in (
        (resource.RLIMIT_CPU, cpu + 1),
        (resource.RLIMIT_AS, int(limits["memory_bytes"])),
        (resource.RLIMIT_FSIZE, int(limits["file_bytes"])),
        # Few, because a deleted file takes up room as long as it is open.
        (resource.RLIMIT_NOFILE, 16),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(kind, (least, least))
        except (OSError, ValueError, OverflowError) as error:
            raise NotShutIn(f"a limit cannot be set: {error}") from None
    # RLIMIT_CPU knows only whole seconds; it stays as what cannot be missed.
    signal.setitimer(signal.ITIMER_PROF, limits["cpu_s"])


def _prctl(option: int, value: int, more: int | bytes = 0) -> None:
    _must(_libc.prctl(option, *_words(value, more, 0, 0)), f"prctl {option}")


def _system_call(number: int, *given: int | bytes | None) -> int:
    return int(_libc.syscall(*_words(number, *given)))


def _words(*given: int | bytes | None) -> list[Any]:
    """Arguments as C passes them: an int would leave it open what stands in the upper half of a long."""
    return [ctypes.c_long(one) if isinstance(one, int) else one for one in given]


def _landlock(scratch: str, read: list[str], listed: list[str]) -> None:
    """Leaves it some folders to read and one to write in."""
    version = _system_call(_CREATE_RULESET, None, 0, _ASK_VERSION)
    if version < 1:
        raise NotShutIn("this kernel has no Landlock: Linux 5.13 or later is needed, with landlock among its LSMs")
    rights = max(mask for since, mask in _FILE_RIGHTS.items() if since <= version)
    ruleset = pack("=Q", rights)
    if version >= _NETWORK_SINCE:
        ruleset += pack("=Q", _NETWORK_RIGHTS)
    if version >= _SCOPES_SINCE:
        ruleset += pack("=Q", _SCOPES)
    rules = _must(_system_call(_CREATE_RULESET, ruleset, len(ruleset), 0), "Landlock rules")
    _allow(rules, scratch, _SCRATCH & rights)
    for path in read:
        _allow(rules, path, _READ_FILE | _READ_DIR if os.path.isdir(path) else _READ_FILE)
    for path in listed:
        _allow(rules, path, _READ_DIR)
    _must(_system_call(_RESTRICT_SELF, rules, 0), "Landlock")
    os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise NotShutIn(f"{path}: {error.strerror}") from None
    _must(_system_call(_ADD_RULE, rules, _PATH_BENEATH, pack("=Qi", rights, place), 0), f"Landlock rule for {path}")
    os.close(place)


def _drop_capabilities() -> None:
    """Leaves root no more than any user has."""
    _must(_libc.capset(pack("=Ii", _CAPABILITIES, 0), bytes(24)), "capset")


def _filter_system_calls(lines: bytes) -> None:
    kept = ctypes.create_string_buffer(lines, len(lines))
    _prctl(_SECCOMP, _SECCOMP_FILTER, pack("@HP", len(lines) // 8, ctypes.addressof(kept)))


def _prove() -> None:
    """Tries what must not be possible any more."""
    try:
        os.close(os.open(sys.executable, os.O_RDONLY))
    except PermissionError:
        pass
    else:
        raise NotShutIn("files outside can still be opened")
    if _libc.socket(1, 1, 0) >= 0:
        raise NotShutIn("sockets can still be opened")


def _must(done: int, what: str) -> int:
    if done < 0:
        raise NotShutIn(f"{what}: {os.strerror(ctypes.get_errno())}")
    return done


# -- the code --------------------------------------------------------------------------------------------


def _request() -> dict[str, Any]:
    with open(0, "rb") as stdin:
        request: dict[str, Any] = json.loads(stdin.read())
    os.dup2(1, 0)
    return request


def _answer(request: dict[str, Any], answers: _Answers) -> None:
    printed = _Printed()
    sys.stdin = sys.__stdin__ = io.StringIO()  # type: ignore[assignment, misc]
    sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = printed  # type: ignore[assignment, misc]
    del sys.argv[1:]
    sys.path[:0] = request["before"]
    sys.path += request["after"]
    function = _referenced(request["reference"]) if request["reference"] else _written(request)
    parameters = _parameters(function)
    for call in request["calls"]:
        answers.give(_called(function, parameters, call) | {"printed": printed.taken()})


class _Printed(io.TextIOBase):
    """What is printed, up to a limit."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._room = _PRINTED

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        piece = text[: self._room]
        if piece:
            self._pieces.append(piece)
            self._room -= len(piece)
        return len(text)

    def taken(self) -> str:
        """What was printed since this was last asked."""
        text = "".join(self._pieces)
        self._pieces, self._room = [], _PRINTED
        return text


def _written(request: dict[str, Any]) -> Any:
    """The function of a source text: the first of the wanted names, else the only public one."""
    module = ModuleType("__code__")
    sys.modules["__code__"], names = module, vars(module)
    try:
        exec(compile(request["text"], _FILE, "exec", dont_inherit=True), names)
    except MemoryError:
        raise
    except BaseException as error:  # the code runs here, and may raise anything
        raise BadCode(_said(error)) from None
    for name in request["entry"]:
        if callable(names.get(name)):
            return names[name]
    wanted = " or ".join(request["entry"]) or "anything"
    public = [name for name, value in names.items() if inspect.isfunction(value) and _is_public(name, value)]
    if not public:
        raise BadCode(f"the code defines no function; expected one, named {wanted}")
    if len(public) > 1:
        raise BadCode(f"the code defines several functions ({', '.join(public)[:200]}); name one of them {wanted}")
    return names[public[0]]


def _is_public(name: str, function: Any) -> bool:
    return not name.startswith("_") and function.__code__.co_filename == _FILE


def _referenced(reference: str) -> Any:
    place, _, name = reference.partition(":")
    try:
        found: Any = importlib.import_module(place)
    except MemoryError:
        raise
    except BaseException as error:  # the code runs at import
        raise BadCode(f"cannot import {place}: {_said(error)}") from None
    for step in name.split("."):
        try:
            found = getattr(found, step)
        except BaseException:  # a module may compute what it has
            raise BadCode(f"there is no {name!r} in {place}") from None
    if not callable(found):
        raise BadCode(f"expected a function, got {type(found).__name__}: {reference}")
    return found


def _called(function: Callable[..., Any], parameters: _Parameters, call: dict[str, Any]) -> dict[str, Any]:
    """What one call gives, or its error."""
    try:
        positional, named = _arguments(parameters, call)
        value = function(*positional, **named)
        if inspect.iscoroutine(value):
            value = _awaited(value)
        return {"value": _plain(value, None, 0)}
    except MemoryError:
        raise
    except NoJson as error:
        return {"error": f"the result is no JSON: {_one_line(str(error))}"}
    except BaseException as error:  # the code runs here, and may raise anything
        return {"error": _said(error)}


def _arguments(parameters: _Parameters, call: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by place, as many as it takes, or by name, those that it takes."""
    named: dict[str, Any] = call["named"]
    ordered: list[Any] = call["ordered"]
    same = call["same"]
    whole = named if same is True else call["whole"] if same is False else named[same]
    if parameters is None:
        return ordered or [whole], {}
    kinds = {one.kind for one in parameters}
    if ordered:
        places = sum(one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters)
        return ordered[: len(ordered) if inspect.Parameter.VAR_POSITIONAL in kinds else places], {}
    single = {one.name: one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    required = [one.name for one in single.values() if one.default is one.empty]
    given = dict(named)
    if len(required) == 1 and required[0] not in named:
        given[required[0]] = whole
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        given = {name: value for name, value in given.items() if name in single}
    positional = [one.name for one in single.values() if one.kind == one.POSITIONAL_ONLY and one.name in given]
    return [given.pop(name) for name in positional], given


def _parameters(function: Callable[..., Any]) -> _Parameters:
    try:
        return list(_signature(function).parameters.values())
    except Exception:  # what the code's function says of itself may be computed, and some in C say nothing
        return None


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        # Annotations are evaluated late there, and may name what is not imported at run time.
        return inspect.signature(function, annotation_format=Format.STRING)
    return inspect.signature(function)


def _awaited(coroutine: Any) -> Any:
    """The result of an async function that waits for nothing outside: an event loop would need a socket."""
    try:
        while True:
            if coroutine.send(None) is not None:
                raise RuntimeError("there is nothing to wait for in the sandbox")
    except StopIteration as done:
        return done.value


def _plain(value: Any, at: _At, depth: int) -> Any:
    """A copy of plain dicts, lists, texts and numbers."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return _text(value, at)
    if isinstance(value, int):
        return _integer(int(value), at)
    if isinstance(value, float):
        return _number(float(value), at)
    if depth == _DEPTH:
        raise NoJson(f"it is nested more than {_DEPTH} levels deep, or holds itself")
    if isinstance(value, dict):
        return {_key(key, at): _plain(one, (at, key), depth + 1) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, (at, number), depth + 1) for number, one in enumerate(value)]
    raise NoJson(f"{_where(at)} is of type {type(value).__name__}; expected a dict, list, text, number, bool or None")


def _text(text: str, at: _At) -> str:
    try:
        return str.__str__(text).encode().decode()
    except UnicodeEncodeError:
        raise NoJson(f"{_where(at)} has half of a surrogate pair in it") from None


def _integer(number: int, at: _At) -> int:
    if not -(2**63) <= number < 2**64:
        raise NoJson(f"{_where(at)} is an integer of more than 64 bits")
    return number


def _number(number: float, at: _At) -> float:
    if not math.isfinite(number):
        raise NoJson(f"{_where(at)} is {number}, which JSON has no word for")
    return number


def _key(key: Any, at: _At) -> str:
    if not isinstance(key, str):
        raise NoJson(f"{_where(at)} has a key of type {type(key).__name__}; expected a text, as str(key) gives it")
    return _text(key, at)


def _where(at: _At) -> str:
    """The result, or the place in it, as in `result.counts[2]`; of one far down only the last steps."""
    steps: list[str] = []
    while at is not None and len(steps) < _STEPS:
        at, step = at
        steps.append(f"[{step}]" if isinstance(step, int) else f".{_one_line(step, 40)}")
    return "result" + ("" if at is None else "…") + "".join(reversed(steps))


def _said(error: BaseException) -> str:
    """A error in one line, with the line of the code where it came up."""
    try:
        if isinstance(error, SyntaxError) and error.filename == _FILE:
            return _one_line(f"{type(error).__name__}: {error.msg} (line {error.lineno})")
        said = _one_line(f"{type(error).__name__}: {error}".removesuffix(": "))
        return f"{said}{_line_of(error)}"
    except BaseException:  # the text of a error is made by the code
        return "an exception whose text cannot be told"


def _line_of(error: BaseException) -> str:
    found, step = "", error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if file == _FILE:
            found = f" (line {step.tb_lineno})"
        elif file != __file__ and not file.startswith(("<", os.path.dirname(os.__file__))):
            found = f" ({os.path.basename(file)}:{step.tb_lineno})"
        step = step.tb_next
    return found


def _one_line(text: str, limit: int = _MESSAGE) -> str:
    shown = " ".join(str.__str__(text)[: limit * 2].split())
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


if __name__ == "__main__":
    main()
