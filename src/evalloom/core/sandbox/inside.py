"""The program inside the sandbox: it drops its privileges first, and reads the code after that.

It runs as a script, so it imports the standard library only. The command line has the limits, stdin the request, and
stdout gets one line of JSON when the process is isolated and one for each call. Once the code runs, it may have changed
everything in this process, so the process outside trusts none of its output.
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
"""A location in a result: the location of its parent, and the key or index."""

_Parameters = list[inspect.Parameter] | None
"""The parameters of a function; None if it has no signature."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

_PRINTED = 8_000
"""The number of characters of printed text that one call keeps."""
_MESSAGE = 500
_DEPTH = 200
_STEPS = 8
_NO_MEMORY = 77
_FILE = "<code>"
_ANSWERS = 3
"""The descriptor that gets the answers."""


class NotIsolated(Exception):
    """A step of the isolation failed, so the code must not run."""


class BadCode(Exception):
    """The code cannot be called; the message says why."""


class NoJson(Exception):
    """The result of a function is not JSON; the message says where and why."""


def main() -> NoReturn:
    """Isolate the process, read the request, answer, and exit without running exit handlers of the code."""
    isolation = json.loads(sys.argv[1])
    answers = _Answers()
    try:
        _isolate(isolation)
    except NotIsolated as error:
        answers.write({"refused": str(error)})
        os._exit(1)
    try:
        answers.write({"ready": True})
        _answer(_request(), answers)
    except MemoryError:
        # Reported by the exit code: there may be no memory left to write a message.
        os._exit(_NO_MEMORY)
    except BadCode as error:
        answers.write({"bad_code": str(error)})
    os._exit(0)


class _Answers:
    """Writes answers to a copy of stdout, so that printed text does not mix with them."""

    def __init__(self) -> None:
        self._out = os.dup2(1, _ANSWERS, inheritable=False)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)

    def write(self, answer: dict[str, Any]) -> None:
        line = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        rest = memoryview(line + b"\n")
        while rest:
            try:
                rest = rest[os.write(self._out, rest) :]
            except OSError:
                # The code closed the descriptor, so no answer can be written.
                os._exit(1)


# -- isolation -------------------------------------------------------------------------------------------

_CLOSE_RANGE, _LAST_DESCRIPTOR = 436, 2**32 - 1
_NO_NEW_PRIVILEGES, _SECCOMP, _PARENT_DEATH, _DUMPABLE = 38, 22, 1, 4
_SECCOMP_FILTER = 2
_CAPABILITIES = 0x20080522
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1

_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_FILE, _MAKE_FILE, _TRUNCATE = (1 << bit for bit in (1, 2, 3, 5, 8, 14))
# Plain files only, so that cleaning up has no folders to descend into and no links to follow.
_SCRATCH = _WRITE_FILE | _READ_FILE | _READ_DIR | _REMOVE_FILE | _MAKE_FILE | _TRUNCATE
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""The file rights that each version of Landlock can restrict."""
_NETWORK_SINCE, _NETWORK_RIGHTS = 4, 3
_SCOPES_SINCE, _SCOPES = 6, 3


def _isolate(isolation: dict[str, Any]) -> None:
    """Drop all privileges that the code must not have, and verify it."""
    # Whoever started us decides what a process inherits: uvloop leaves descriptors open, a shell may ignore signals.
    _require(_system_call(_CLOSE_RANGE, _ANSWERS + 1, _LAST_DESCRIPTOR, 0), "close_range")
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGPROF, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    _set_limits(isolation["limits"])
    _prctl(_DUMPABLE, 0)
    _prctl(_NO_NEW_PRIVILEGES, 1)
    _landlock(isolation["scratch"], isolation["read"], isolation["list"])
    # Without capabilities root has no more rights than any user.
    _require(_libc.capset(pack("=Ii", _CAPABILITIES, 0), bytes(24)), "capset")
    _prctl(_PARENT_DEATH, signal.SIGKILL)
    if os.getppid() != isolation["parent"]:
        raise NotIsolated("the process that started it has ended")
    _filter_system_calls(bytes.fromhex(isolation["filter"]))
    _verify()


def isolate_engine(isolation: dict[str, Any]) -> None:
    """Drop all privileges of a process that runs an engine for many calls: no files at all, and no limits of time."""
    _require(_system_call(_CLOSE_RANGE, 3, _LAST_DESCRIPTOR, 0), "close_range")
    _prctl(_DUMPABLE, 0)
    _prctl(_NO_NEW_PRIVILEGES, 1)
    _landlock("", [], [])
    _require(_libc.capset(pack("=Ii", _CAPABILITIES, 0), bytes(24)), "capset")
    _filter_system_calls(bytes.fromhex(isolation["filter"]))
    _verify()


def _set_limits(limits: dict[str, float]) -> None:
    cpu = math.ceil(limits["cpu_s"])
    for kind, value in (
        (resource.RLIMIT_CPU, cpu + 1),
        (resource.RLIMIT_AS, int(limits["memory_bytes"])),
        (resource.RLIMIT_FSIZE, int(limits["file_bytes"])),
        # Few, because a deleted file takes up space while it is open.
        (resource.RLIMIT_NOFILE, 16),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(kind, (least, least))
        except (OSError, ValueError, OverflowError) as error:
            raise NotIsolated(f"a limit cannot be set: {error}") from None
    # RLIMIT_CPU has a resolution of seconds; it stays as a limit that the code cannot catch.
    signal.setitimer(signal.ITIMER_PROF, limits["cpu_s"])


def _prctl(option: int, value: int, more: int | bytes = 0) -> None:
    _require(_libc.prctl(option, *_words(value, more, 0, 0)), f"prctl {option}")


def _system_call(number: int, *arguments: int | bytes | None) -> int:
    return int(_libc.syscall(*_words(number, *arguments)))


def _words(*arguments: int | bytes | None) -> list[Any]:
    """Convert integers to C longs: ctypes passes an int of 32 bits, and the upper half would be undefined."""
    return [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]


def _landlock(scratch: str, read: list[str], listed: list[str]) -> None:
    """Restrict file access to some paths to read and one folder to write; an empty path is none."""
    version = _system_call(_CREATE_RULESET, None, 0, _ASK_VERSION)
    if version < 1:
        raise NotIsolated("this kernel has no Landlock: Linux 5.13 or later is needed, with landlock among its LSMs")
    rights = max(mask for since, mask in _FILE_RIGHTS.items() if since <= version)
    ruleset = pack("=Q", rights)
    if version >= _NETWORK_SINCE:
        ruleset += pack("=Q", _NETWORK_RIGHTS)
    if version >= _SCOPES_SINCE:
        ruleset += pack("=Q", _SCOPES)
    rules = _require(_system_call(_CREATE_RULESET, ruleset, len(ruleset), 0), "Landlock rules")
    if scratch:
        _allow(rules, scratch, _SCRATCH & rights)
    for path in read:
        _allow(rules, path, _READ_FILE | _READ_DIR if os.path.isdir(path) else _READ_FILE)
    for path in listed:
        _allow(rules, path, _READ_DIR)
    _require(_system_call(_RESTRICT_SELF, rules, 0), "Landlock")
    os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise NotIsolated(f"{path}: {error.strerror}") from None
    _require(_system_call(_ADD_RULE, rules, _PATH_BENEATH, pack("=Qi", rights, place), 0), f"Landlock rule for {path}")
    os.close(place)


def _filter_system_calls(lines: bytes) -> None:
    # A name keeps the buffer alive during the call.
    program = ctypes.create_string_buffer(lines, len(lines))
    _prctl(_SECCOMP, _SECCOMP_FILTER, pack("@HP", len(lines) // 8, ctypes.addressof(program)))


def _verify() -> None:
    """Verify the isolation: opening a file outside and a socket must fail."""
    try:
        os.close(os.open(sys.executable, os.O_RDONLY))
    except PermissionError:
        pass
    else:
        raise NotIsolated("files outside can still be opened")
    if _libc.socket(1, 1, 0) >= 0:
        raise NotIsolated("sockets can still be opened")


def _require(result: int, what: str) -> int:
    """Return the result of a system call. Raises NotIsolated if it failed."""
    if result < 0:
        raise NotIsolated(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


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
    function = _function_named(request["reference"]) if request["reference"] else _function_in_text(request)
    parameters = _parameters(function)
    for call in request["calls"]:
        answers.write(_call(function, parameters, call) | {"printed": printed.pop()})


class _Printed(io.TextIOBase):
    """Collects printed text, up to a limit."""

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

    def pop(self) -> str:
        """Return the text printed since the last call."""
        text = "".join(self._pieces)
        self._pieces, self._room = [], _PRINTED
        return text


def _function_in_text(request: dict[str, Any]) -> Any:
    """Return the function of a source text: the first of the wanted names, else the only public function."""
    module = ModuleType("__code__")
    sys.modules["__code__"], names = module, vars(module)
    try:
        exec(compile(request["text"], _FILE, "exec", dont_inherit=True), names)
    except MemoryError:
        raise
    except BaseException as error:  # the code runs here, and may raise anything
        raise BadCode(_describe(error)) from None
    for name in request["entry"]:
        if callable(names.get(name)):
            return names[name]
    wanted = " or ".join(request["entry"]) or "anything"
    functions = {name: value for name, value in names.items() if inspect.isfunction(value)}
    public = [
        name
        for name, function in functions.items()
        if not name.startswith("_") and function.__code__.co_filename == _FILE
    ]
    if not public:
        raise BadCode(f"the code defines no function; expected one, named {wanted}")
    if len(public) > 1:
        raise BadCode(f"the code defines several functions ({', '.join(public)[:200]}); name one of them {wanted}")
    return names[public[0]]


def _function_named(reference: str) -> Any:
    place, _, name = reference.partition(":")
    try:
        function: Any = importlib.import_module(place)
    except MemoryError:
        raise
    except BaseException as error:  # the code runs at import
        raise BadCode(f"cannot import {place}: {_describe(error)}") from None
    for step in name.split("."):
        try:
            function = getattr(function, step)
        except BaseException:  # a module may compute its attributes
            raise BadCode(f"there is no {name!r} in {place}") from None
    if not callable(function):
        raise BadCode(f"expected a function, got {type(function).__name__}: {reference}")
    return function


def _call(function: Callable[..., Any], parameters: _Parameters, call: dict[str, Any]) -> dict[str, Any]:
    """Return the value of one call, or its error."""
    try:
        positional, named = _arguments(parameters, call)
        value = function(*positional, **named)
        if inspect.iscoroutine(value):
            value = _run_coroutine(value)
        return {"value": _plain(value, None, 0)}
    except MemoryError:
        raise
    except NoJson as error:
        return {"error": f"the result is not JSON: {_single_line(str(error))}"}
    except BaseException as error:  # the code runs here, and may raise anything
        return {"error": _describe(error)}


def _arguments(parameters: _Parameters, call: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and keyword arguments that the function takes."""
    named: dict[str, Any] = call["named"]
    ordered: list[Any] = call["ordered"]
    same = call["same"]
    whole = named if same is True else call["whole"] if same is False else named[same]
    if parameters is None:
        return ordered or [whole], {}
    kinds = {item.kind for item in parameters}
    if ordered:
        places = sum(item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD) for item in parameters)
        return ordered[: len(ordered) if inspect.Parameter.VAR_POSITIONAL in kinds else places], {}
    single = {item.name: item for item in parameters if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)}
    required = [item.name for item in single.values() if item.default is item.empty]
    arguments = dict(named)
    if len(required) == 1 and required[0] not in named:
        arguments[required[0]] = whole
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        arguments = {name: value for name, value in arguments.items() if name in single}
    positional = [item.name for item in single.values() if item.kind == item.POSITIONAL_ONLY and item.name in arguments]
    return [arguments.pop(name) for name in positional], arguments


def _parameters(function: Callable[..., Any]) -> _Parameters:
    try:
        return list(_signature(function).parameters.values())
    except Exception:  # the code may compute the signature, and some functions in C have none
        return None


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        # Annotations are evaluated lazily there, and may use names that are not imported at run time.
        return inspect.signature(function, annotation_format=Format.STRING)
    return inspect.signature(function)


def _run_coroutine(coroutine: Any) -> Any:
    """Run a coroutine that waits for nothing outside, without an event loop, which would need a socket."""
    try:
        while True:
            if coroutine.send(None) is not None:
                raise RuntimeError("there is nothing to wait for in the sandbox")
    except StopIteration as done:
        return done.value


def _plain(value: Any, at: _At, depth: int) -> Any:
    """Copy a value as plain dicts, lists, texts and numbers. Raises NoJson."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return _text(value, at)
    if isinstance(value, int):
        if not -(2**63) <= int(value) < 2**64:
            raise NoJson(f"{_where(at)} is an integer of more than 64 bits")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(float(value)):
            raise NoJson(f"{_where(at)} is {float(value)}, which is not a JSON number")
        return float(value)
    if depth == _DEPTH:
        raise NoJson(f"it is nested more than {_DEPTH} levels deep, or contains itself")
    if isinstance(value, dict):
        return {_key(key, at): _plain(item, (at, key), depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, (at, number), depth + 1) for number, item in enumerate(value)]
    raise NoJson(f"{_where(at)} is of type {type(value).__name__}; expected a dict, list, text, number, bool or None")


def _text(text: str, at: _At) -> str:
    try:
        return str.__str__(text).encode().decode()
    except UnicodeEncodeError:
        raise NoJson(f"{_where(at)} has half of a surrogate pair in it") from None


def _key(key: Any, at: _At) -> str:
    if not isinstance(key, str):
        raise NoJson(f"{_where(at)} has a key of type {type(key).__name__}; expected a text, such as str(key)")
    return _text(key, at)


def _where(at: _At) -> str:
    """Format a location such as `result.counts[2]`; of a deep one only the last steps."""
    steps: list[str] = []
    while at is not None and len(steps) < _STEPS:
        at, step = at
        steps.append(f"[{step}]" if isinstance(step, int) else f".{_single_line(step, 40)}")
    return "result" + ("" if at is None else "…") + "".join(reversed(steps))


def _describe(error: BaseException) -> str:
    """Format an exception in one line, with the line of the code that raised it."""
    try:
        if isinstance(error, SyntaxError) and error.filename == _FILE:
            return _single_line(f"{type(error).__name__}: {error.msg} (line {error.lineno})")
        message = _single_line(f"{type(error).__name__}: {error}".removesuffix(": "))
        return f"{message}{_line_of(error)}"
    except BaseException:  # the code may compute the text of its exception
        return "an exception whose text cannot be shown"


def _line_of(error: BaseException) -> str:
    line, step = "", error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if file == _FILE:
            line = f" (line {step.tb_lineno})"
        elif file != __file__ and not file.startswith(("<", os.path.dirname(os.__file__))):
            line = f" ({os.path.basename(file)}:{step.tb_lineno})"
        step = step.tb_next
    return line


def _single_line(text: str, limit: int = _MESSAGE) -> str:
    shown = " ".join(str.__str__(text)[: limit * 2].split())
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


if __name__ == "__main__":
    main()
