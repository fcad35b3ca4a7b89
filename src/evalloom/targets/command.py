"""A program as a target: it gets the inputs on stdin or as arguments, and prints the output."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any, cast

from evalloom.core.digest import digest_of
from evalloom.core.errors import CallError, usage_error
from evalloom.core.http import is_secret
from evalloom.core.model import Context, Output, Record
from evalloom.core.text import CLAMP, clamp, quote
from evalloom.core.value import read_json, read_text
from evalloom.targets.base import TIMEOUT_S, BuiltTarget, TargetOptions, bad_spec, text_in, time_limit, within
from evalloom.targets.template import Template, json_text

MAX_BYTES = 16 * 1024 * 1024
_LAST_LINES = 5
_DYING_S = 2.0
_STDOUT, _STDERR, _EXIT = 1, 2, 3
_OUTPUTS = ("auto", "json", "text")


def build(spec: Record, folder: Path, options: TargetOptions) -> BuiltTarget:
    """Build the target of `{command: "program --flag {{name}}"}`: one string or a list of arguments, with no shell."""
    words = _words(spec["command"])
    limit = time_limit(spec, options) or TIMEOUT_S
    environment, secrets = _environment(spec, options.environment)
    command = CommandTarget(words, spec, folder.absolute(), environment)
    _check_program(words[0], folder, environment)
    # The files that it names by relative paths, such as its script and configuration.
    named = [folder / word for word in words if word and not Path(word).is_absolute() and len(word) < 1000]
    files = tuple(path for path in named if os.path.isfile(path))
    contents = [file.read_bytes().decode("utf-8", "replace") for file in files]
    return BuiltTarget(
        name=text_in(spec, "name") or f"command:{shlex.join(words)}",
        kind="command",
        digest=digest_of("command", words, spec.get("stdin"), spec.get("output"), contents),
        call=within(command, limit),
        variables=command.variables,
        watch=files,
        secrets=secrets,
    )


class CommandTarget:
    """Starts the program once per case, in a process group of its own that ends with the call."""

    def __init__(self, words: list[str], spec: Record, folder: Path, environment: Mapping[str, str]) -> None:
        self._words = [Template(word, "target: command") for word in words]
        self._stdin = Template(text_in(spec, "stdin"), "target: stdin") if spec.get("stdin") is not None else None
        self._output = text_in(spec, "output", "auto")
        if self._output not in _OUTPUTS:
            raise bad_spec("output", ", ".join(_OUTPUTS), self._output)
        self._folder = folder
        self._environment = environment
        templates = [*self._words, self._stdin] if self._stdin else self._words
        self.variables = frozenset[str]().union(*(template.variables for template in templates))

    async def __call__(self, inputs: Record, context: Context) -> Output:
        argv = [word.render(inputs) for word in self._words]
        fed = self._stdin.render(inputs) if self._stdin else json_text(inputs)
        entry: Record = {"type": "command", "argv": [clamp(word) for word in argv]}
        context.trace.append(entry)
        started = perf_counter()
        try:
            printed = await self._run(argv, fed.encode("utf-8", "replace"), entry)
        finally:
            entry["duration_s"] = round(perf_counter() - started, 6)
        return Output(self._value(printed))

    async def _run(self, argv: list[str], fed: bytes, entry: Record) -> bytes:
        """Return what the program printed. Raises CallError if it failed, and leaves no process behind."""
        transport, talk = await self._start(argv)
        try:
            stdin = cast(asyncio.WriteTransport | None, transport.get_pipe_transport(0))
            # The program is free not to read its stdin, or to have ended already.
            if stdin is not None and not stdin.is_closing():
                stdin.write(fed)
                stdin.close()
            await talk.ended
        finally:
            _kill_group(transport.get_pid())
            # Closed only after the loop has noticed the end, which a closed transport no longer reports.
            await asyncio.wait([talk.exited], timeout=_DYING_S)
            transport.close()
            entry["stderr"] = talk.errors.decode("utf-8", "replace")
        code = entry["exit_code"] = transport.get_returncode() or 0
        if code:
            lines = [line.strip()[:300] for line in entry["stderr"].splitlines() if line.strip()][-_LAST_LINES:]
            printed = f": {' / '.join(lines)}" if lines else ""
            raise CallError("command_failed", f"{quote(argv[0])} {_ended(code)}{printed}")
        return bytes(talk.printed)

    async def _start(self, argv: list[str]) -> tuple[asyncio.SubprocessTransport, _ProcessProtocol]:
        if any("\0" in word for word in argv):
            raise CallError("unusable_input", "an input that goes into an argument has a NUL character in it")
        try:
            return await asyncio.get_running_loop().subprocess_exec(
                _ProcessProtocol,
                *argv,
                cwd=self._folder,
                env=self._environment,
                # A group of its own, so that what the program itself started ends with it.
                start_new_session=True,
            )
        except UnicodeEncodeError:
            raise CallError("unusable_input", "an input that goes into an argument is no Unicode text") from None
        except OSError as error:
            hint = ". Give long inputs through stdin" if sum(map(len, argv)) > 100_000 else ""
            raise CallError("command_failed", f"{quote(argv[0])} cannot be started: {error.strerror}{hint}") from None

    def _value(self, printed: bytes) -> Any:
        printed = printed.removesuffix(b"\n").removesuffix(b"\r")
        if self._output == "text":
            return printed.decode("utf-8", "replace")
        if self._output == "auto":
            return read_text(printed)
        try:
            return read_json(printed)
        except ValueError as error:
            start = quote(printed[:200].decode("utf-8", "replace"), 100)
            raise CallError("bad_answer", f"expected JSON on stdout, got {start}: {error}") from None


class _ProcessProtocol(asyncio.SubprocessProtocol):
    """Collects what a program prints until it has ended and its pipes are closed; of stderr, the last part."""

    def __init__(self) -> None:
        self.printed = bytearray()
        self.errors = bytearray()
        self.exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited = {_STDOUT, _STDERR, _EXIT}
        self._pid = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pid = cast(asyncio.SubprocessTransport, transport).get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _STDERR:
            self.errors += data
            del self.errors[:-CLAMP]
        elif len(self.printed) + len(data) <= MAX_BYTES:
            self.printed += data
        elif not self.ended.done():
            limit = MAX_BYTES // 1024 // 1024
            error = CallError("answer_too_large", f"expected an answer of at most {limit} MiB, got more")
            self.ended.set_exception(error)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._have(fd)

    def process_exited(self) -> None:
        # What it left running may hold the pipes open for ever.
        _kill_group(self._pid)
        self.exited.set_result(None)
        self._have(_EXIT)

    def _have(self, awaited: int) -> None:
        self._awaited.discard(awaited)
        if not self._awaited and not self.ended.done():
            self.ended.set_result(None)


def _kill_group(pid: int) -> None:
    """Kill a program that still runs, and the processes that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _ended(code: int) -> str:
    if code > 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


def _words(command: Any) -> list[str]:
    if isinstance(command, str):
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise bad_spec("command", f"words as a shell would split them ({error})", command) from None
    elif isinstance(command, list) and all(isinstance(word, str | int | float) for word in command):
        words = [str(word) for word in command]
    else:
        raise bad_spec("command", "a string or a list of strings", command)
    if not words or not words[0]:
        raise bad_spec("command", "a program", command)
    return words


def _environment(spec: Record, environment: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the environment of the program: ours without keys, except those that `env` names."""
    names = spec.get("env") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise bad_spec("env", "a list of names of environment variables", names)
    for name in names:
        if name not in environment:
            raise usage_error("variable_missing", f"target: env: {name} is not set. Set it and run again")
    keys = {name for name in environment if name.startswith("HOP_KEY_") or name.endswith("API_KEY")}
    passed = {name: value for name, value in environment.items() if name in names or name not in keys}
    return passed, tuple(environment[name] for name in names if is_secret(environment[name]))


def _check_program(program: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Refuse a program that does not exist before the first case is run."""
    if "{{" in program:
        return
    is_path = "/" in program
    is_there = os.path.isfile(folder / program) if is_path else shutil.which(program, path=environment.get("PATH"))
    if not is_there:
        where = f"in {folder.resolve().as_posix()}" if is_path else "on the PATH"
        raise usage_error("target_missing", f"command: there is no program {quote(program)} {where}")
