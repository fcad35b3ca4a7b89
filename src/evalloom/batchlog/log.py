"""The only writer of a batch: a run is written before it counts."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any, Self

import msgspec

from evalloom.batchlog.read import MANIFEST, RUNS, VERDICTS, Damage, manifest, repair_tail
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch, Run, Scored
from evalloom.files.write import atomic_writer, sync_names, sync_path

_SYNC_EVERY_S = 0.1
_WRITTEN_TOGETHER = 64 * 1024
"""In bytes."""
_MAX_DEPTH = 200
_MAX_INTEGER_BITS = 1024
"""In bits: the largest number that a reader which uses doubles can hold."""


class LineEncoder:
    """Encodes what a batch consists of, without secrets."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # Deferred: reading a batch needs no settings.
        from evalloom.settings.keys import HIDDEN, forms

        self._encoder = msgspec.json.Encoder()
        self._hidden = HIDDEN.encode()
        self._secrets = [form.encode("utf-8", "replace") for secret in secrets if secret for form in forms(secret)]

    def line(self, value: Run | Scored) -> bytearray:
        """Return a line with its line break."""
        encoded = self.encode(value)
        encoded += b"\n"
        return encoded

    def encode(self, value: Batch | Run | Scored) -> bytearray:
        """Return a value as JSON; what JSON cannot hold is converted."""
        line = bytearray()
        try:
            # Not `encode`: where memory is short, it ends the process with SIGSEGV instead of raising MemoryError.
            self._encoder.encode_into(value, line)
        except (TypeError, ValueError, OverflowError, RecursionError):
            import json

            line = bytearray(json.dumps(_plain(value), ensure_ascii=False).encode())
        for secret in self._secrets:
            if secret in line:
                line = line.replace(secret, self._hidden)
        return line


class Log:
    """A batch open for writing. A second process on the same batch is refused."""

    def __init__(self, path: Path, batch: Batch, secrets: Iterable[str] = ()) -> None:
        """Open or create a batch. `damage` lists lines that a crash cut off; they are removed."""
        self.path = path
        self.batch = batch
        self._encoder = LineEncoder(secrets)
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._runs = _open(path / RUNS)
            self._verdicts = _open(path / VERDICTS)
        except OSError as error:
            raise _unwritable(path, error) from None
        try:
            _lock(self._runs, path)
            self.damage: list[Damage] = [*repair_tail(path / RUNS), *repair_tail(path / VERDICTS)]
            self._runs_path = (path / RUNS).absolute()
            self._runs_size = os.fstat(self._runs).st_size
            # The thread syncs the manifest of a new batch, before any of its runs. Not on Windows, where a file that
            # is open cannot be replaced.
            is_new = os.name != "nt" and not (path / MANIFEST).exists()
            self._write_manifest(batch, is_synced=not is_new)
        except BaseException:
            self._close_files()
            raise
        self._sync = _Syncer(path, (self._runs, self._verdicts), self._check_runs, is_new)

    @classmethod
    def resume(cls, path: Path, secrets: Iterable[str] = ()) -> Self:
        """Open an existing batch for writing."""
        return cls(path, manifest(path), secrets)

    def append_run(self, run: Run) -> None:
        """Write a run. It survives the end of this process once this returns."""
        self.append(self._runs, RUNS, run)

    def append_scored(self, scored: Scored) -> None:
        """Write the verdicts of a run."""
        self.append(self._verdicts, VERDICTS, scored)

    def write_manifest(self, batch: Batch) -> None:
        """Replace batch.json atomically, after everything is on disk that it may speak of."""
        self._sync.flush()
        # Before the folder is created again.
        self._check_runs()
        self._write_manifest(batch)

    def _write_manifest(self, batch: Batch, is_synced: bool = True) -> None:
        self.batch = batch
        text = msgspec.json.format(bytes(self._encoder.encode(batch)), indent=2)
        with atomic_writer(self.path / MANIFEST, is_synced) as stream:
            stream.write(text + b"\n")

    def close(self) -> None:
        """Close the files after everything is on disk."""
        self._sync.close()
        self._close_files()
        if self._sync.error is not None:
            raise self._sync.error

    def _check_runs(self) -> None:
        """Raise an error if the runs are not where they were written: another program deleted, moved or cut them."""
        written = self._runs_size  # before the look at the file, which grows meanwhile
        try:
            is_there = self._runs_path.stat().st_size >= written
        except FileNotFoundError:
            is_there = False
        except OSError:
            return  # what cannot be looked at is not known to be lost
        if not is_there:
            message = "another program deleted, moved or shortened it while the batch ran, so runs are lost"
            raise EvalloomError("batch_lost", f"{(self.path / RUNS).as_posix()}: {message}")

    def _close_files(self) -> None:
        # Closing is not enough: a process that users' code forked and left has the lock too.
        _unlock(self._runs)
        for handle in (self._runs, self._verdicts):
            os.close(handle)

    def append(self, handle: int, name: str, line: Run | Scored) -> None:
        """Append one line to one of the files."""
        self.write(handle, name, self._encoder.line(line))

    def write(self, handle: int, name: str, encoded: bytearray) -> None:
        """Write whole lines to one of the files."""
        if self._sync.error is not None:
            raise self._sync.error
        written = 0
        try:
            written = os.write(handle, encoded)
            while written < len(encoded):
                # A short write means a full disk or a signal; the next write tells which.
                written += os.write(handle, memoryview(encoded)[written:])
        except OSError as error:
            _truncate(handle, written)
            raise _unwritable(self.path / name, error) from None
        if handle == self._runs:
            self._runs_size += written
        self._sync.is_due = True


class Rescoring:
    """New verdicts for a batch; they replace the old ones when all are written."""

    def __init__(self, path: Path, secrets: Iterable[str] = ()) -> None:
        self._path = path
        self._secrets = list(secrets)
        self._encoder = LineEncoder(self._secrets)
        self._lines = bytearray()

    def __enter__(self) -> Self:
        self._log = Log.resume(self._path, self._secrets)
        self.damage = self._log.damage
        self._new = self._path / "verdicts.new.jsonl"
        try:
            self._new.unlink(missing_ok=True)
            self._handle = _open(self._new)
        except OSError as error:
            self._log.close()
            raise _unwritable(self._new, error) from None
        return self

    def append_scored(self, scored: Scored) -> None:
        """Write the verdicts of a run, together with others: none of them counts before all are written."""
        self.append_lines(self._encoder.line(scored))

    def append_lines(self, lines: bytes | bytearray) -> None:
        """Write lines that another process has encoded."""
        self._lines += lines
        if len(self._lines) >= _WRITTEN_TOGETHER:
            self._write()

    def _write(self) -> None:
        lines, self._lines = self._lines, bytearray()
        self._log.write(self._handle, self._new.name, lines)

    def finish(self, batch: Batch) -> None:
        """Replace the verdicts; the old ones stay as verdicts.1.jsonl, verdicts.2.jsonl …"""
        self._write()
        try:
            os.fsync(self._handle)
            _backup(self._path / VERDICTS)
            os.replace(self._new, self._path / VERDICTS)
        except OSError as error:
            raise _unwritable(self._path / VERDICTS, error) from None
        self._log.write_manifest(batch)

    def __exit__(self, *error: object) -> None:
        os.close(self._handle)
        self._new.unlink(missing_ok=True)
        self._log.close()


class _Syncer:
    """Syncs the names of the files to disk once, and their content ten times a second, in a thread."""

    def __init__(self, path: Path, handles: tuple[int, ...], check: Callable[[], None], syncs_manifest: bool) -> None:
        """With `syncs_manifest`, the manifest is not on disk yet."""
        self.is_due = False
        self.error: EvalloomError | None = None
        self._shown_path = path
        self._path = path.absolute()
        self._check = check
        self._handles = handles
        self._syncs_manifest = syncs_manifest
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._sync_until_closed, name="evalloom-fsync", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._end.set()
        self._thread.join()
        self.flush()

    def _sync_until_closed(self) -> None:
        if self._syncs_manifest:
            try:
                # Moved or deleted by another program: `check` says so.
                with suppress(FileNotFoundError):
                    sync_path(self._path / MANIFEST)
            except OSError as error:
                self.error = _unwritable(self._shown_path / MANIFEST, error)
        # The folder of the batch, that of all batches and .evalloom may be new.
        sync_names(self._path, *list(self._path.parents)[:3])
        while not self._end.wait(_SYNC_EVERY_S):
            self.flush()

    def flush(self) -> None:
        """Sync what was written since the last time."""
        with self._lock:
            if not self.is_due:
                return
            self.is_due = False
            try:
                for handle in self._handles:
                    os.fsync(handle)
                self._check()
            except OSError as error:
                self.error = _unwritable(self._shown_path, error)
            except EvalloomError as error:
                self.error = error


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o666)


def _truncate(handle: int, written: int) -> None:
    """Remove a partly written line, so that the next one starts on a line of its own."""
    if written:
        with suppress(OSError):
            os.ftruncate(handle, os.fstat(handle).st_size - written)


def _backup(verdicts: Path) -> None:
    """Keep the old verdicts under a numbered name."""
    number = 1
    while (backup := verdicts.with_name(f"verdicts.{number}.jsonl")).exists():
        number += 1
    try:
        os.link(verdicts, backup)
    except OSError:  # not every file system has hard links
        import shutil

        shutil.copyfile(verdicts, backup)


def _lock(handle: int, path: Path) -> None:
    """Lock the batch until this process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows has no flock, and there two writers are not kept apart
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        message = f"{path.as_posix()}: another process is writing this batch. Wait for it, or stop it"
        raise EvalloomError("batch_in_use", message) from None


def _unlock(handle: int) -> None:
    with suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_UN)


def _plain(value: Any, above: tuple[int, ...] = ()) -> Any:
    """Convert a value to portable JSON: without lone surrogates, NaN and cycles. `above` has the ids of its parents."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, int):
        return value if value.bit_length() <= _MAX_INTEGER_BITS else hex(value)
    if len(above) >= _MAX_DEPTH or id(value) in above:
        return "[nested too deeply]"
    above = (*above, id(value))
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        return {_plain(str(name)): _plain(item, above) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, above) for item in value]
    return _foreign(value, above)


def _foreign(value: Any, above: tuple[int, ...]) -> Any:
    """Convert an object of another type: by msgspec if it can, else by its repr."""
    try:
        return _plain(msgspec.to_builtins(value), above)
    except Exception:  # users' code: reading the attributes of their objects may raise anything
        pass
    try:
        return _plain(repr(value))
    except Exception:  # users' code, as above
        return f"<{type(value).__name__}>"


def _unwritable(path: Path, error: OSError) -> EvalloomError:
    reason = (error.strerror or str(error)).lower()
    message = f"{path.as_posix()}: cannot be written: {reason}. What was written before can be read and resumed"
    return EvalloomError("cannot_write", message)
