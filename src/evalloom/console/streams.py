"""Standard streams that are closed, full or no longer read: opened before a command, reported after it."""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO

READER_GONE = 141
"""The exit code when the reader of stdout is gone: that of a program which SIGPIPE ends, as other tools end."""
_CANNOT_WRITE = 3


class _OutputFile(io.FileIO):
    """The file behind stdout or stderr, which notes why it could not be written; a lossy one goes on."""

    def __init__(self, number: int, is_lossy: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self.error: OSError | None = None
        self._is_lossy = is_lossy

    def write(self, data: Any) -> int | None:  # type: ignore[override]  # None of a file that does not block
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            # A pipe whose reader ends in the middle takes a part of the data, and only the next write tells why.
            while rest and (written := super().write(rest)) is not None:
                rest = rest[written:]
        except OSError as error:
            # A copy: the traceback of the error itself keeps every frame of the command alive until the process ends,
            # and DuckDB reports the objects in them as leaked.
            self.error = OSError(error.errno, error.strerror)
            if not self._is_lossy:
                raise
            return size
        return None if size and len(rest) == size else size - len(rest)


class _LastingStream(io.TextIOWrapper):
    """A standard stream that users' code cannot close: results and errors still have to be written."""

    def close(self) -> None:
        self.flush()


def open_standard_streams() -> None:
    """Open closed standard streams on /dev/null, and make stderr drop what it cannot write."""
    # In ascending order: a new file gets the lowest number that is free. Any other file with one of these numbers would
    # receive our messages, and libuv aborts when it closes such a number.
    for number, mode in enumerate((os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)
    sys.stdin = sys.stdin or io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")
    # Not those that a caller in Python has put there, to capture the output.
    if sys.stdout is sys.__stdout__:
        sys.stdout = wrapped(sys.stdout, 1)
    if sys.stderr is sys.__stderr__:
        # A warning that nobody can read must not end a batch.
        sys.stderr = wrapped(sys.stderr, 2, is_lossy=True)


def wrapped(stream: TextIO | None, number: int, is_lossy: bool = False) -> TextIO:
    """Return a stream of a descriptor like the one that Python made, or a new one if it made none."""
    file = _OutputFile(number, is_lossy)
    if not isinstance(stream, io.TextIOWrapper):
        return stream or io.TextIOWrapper(io.BufferedWriter(file), "utf-8", "backslashreplace")
    is_unbuffered = isinstance(stream.buffer, io.FileIO)  # PYTHONUNBUFFERED
    buffer = file if is_unbuffered else io.BufferedWriter(file)
    return _LastingStream(
        buffer,
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def finish(code: int, name: str) -> int:
    """Write what is left for stdout and return the exit code: `code`, or another one if stdout cannot be written."""
    try:
        sys.stdout.flush()
        # Without a buffer, what could not be written is gone, and only the file knows.
        raw = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer) if hasattr(sys.stdout, "buffer") else None
        error = getattr(raw, "error", None)
    except OSError as failure:
        error = failure
    if error is None or code == READER_GONE:
        return code
    # Python tries again when it ends, and would report the error a second time.
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(os.devnull, "w")), "utf-8")
    if isinstance(error, BrokenPipeError):
        return READER_GONE
    reason = (error.strerror or str(error)).lower()
    print(f"{name}: stdout: cannot be written: {reason} [cannot_write]", file=sys.stderr)
    return _CANNOT_WRITE
