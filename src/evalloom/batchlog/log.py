"""The one writer of a batch: every run is on its way to the disk before it counts."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterable
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any, Self

import msgspec

from evalloom.batchlog.read import MANIFEST, RUNS, VERDICTS, Damage, manifest, mend_tail
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Batch, Run, Scored
from evalloom.files.write import atomic_writer

_SYNC_EVERY_S = 0.1
_DEEPEST = 200
_LONGEST_INTEGER = 1024
"""In bits; readers that hold every number as a double know no larger one."""


class Log:
    """A batch open for writing. A second process on the same batch is refused."""

    def __init__(self, path: Path, batch: Batch, secrets: Iterable[str] = ()) -> None:
        """Opens a batch that is there, or makes it. `damage` says what a crash left behind, and is mended."""
        self.path = path
        self.batch = batch
        self._encoder = msgspec.json.Encoder()
        # Deferred: those who only read a batch need no settings.
        from evalloom.settings.keys import HIDDEN, forms

        self._hidden = HIDDEN.encode()
        self._secrets = [form.encode("utf-8", "replace") for secret in secrets if secret for form in forms(secret)]
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._runs = _open(path / RUNS)
            self._verdicts = _open(path / VERDICTS)
        except OSError as fault:
            raise _unwritable(path, fault) from None
        try:
            _lock(self._runs, path)
            self.damage: list[Damage] = [*mend_tail(path / RUNS), *mend_tail(path / VERDICTS)]
            self.write_manifest(batch)
            _sync_names(path)
        except BaseException:
            self._close_files()
            raise
        self._sync = _Syncer((self._runs, self._verdicts))

    @classmethod
    def resume(cls, path: Path, secrets: Iterable[str] = ()) -> Self:
        """Opens a batch to go on with it."""
        return cls(path, manifest(path), secrets)

    def append_run(self, run: Run) -> None:
        """Writes a run; when this returns, the run survives the end of this process."""
        self.append(self._runs, RUNS, run)

    def append_scored(self, scored: Scored) -> None:
        """Writes the verdicts of a run."""
        self.append(self._verdicts, VERDICTS, scored)

    def write_manifest(self, batch: Batch) -> None:
        """Writes batch.json anew, whole or not at all."""
        self.batch = batch
        text = msgspec.json.format(self._encode(batch), indent=2)
        with atomic_writer(self.path / MANIFEST) as stream:
            stream.write(text + b"\n")

    def close(self) -> None:
        """Waits until the disk has everything."""
        self._sync.close()
        self._close_files()
        if self._sync.fault is not None:
            raise _unwritable(self.path, self._sync.fault)

    def _close_files(self) -> None:
        for handle in (self._runs, self._verdicts):
            os.close(handle)

    def append(self, handle: int, name: str, line: Run | Scored) -> None:
        """Writes one line to one of the files, in one go."""
        if self._sync.fault is not None:
            raise _unwritable(self.path / name, self._sync.fault)
        data, written = self._encode(line) + b"\n", 0
        try:
            while written < len(data):
                # A short write means a full disk or a signal; the next one says which.
                written += os.write(handle, data[written:])
        except OSError as fault:
            _take_back(handle, written)
            raise _unwritable(self.path / name, fault) from None
        self._sync.is_due = True

    def _encode(self, value: Batch | Run | Scored) -> bytes:
        try:
            line = self._encoder.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError):
            line = json.dumps(_plain(value), ensure_ascii=False).encode()
        for secret in self._secrets:
            if secret in line:
                line = line.replace(secret, self._hidden)
        return line


class Rescoring:
    """New verdicts for a batch; they take the place of the old ones only when all are there."""

    def __init__(self, path: Path, secrets: Iterable[str] = ()) -> None:
        self._path = path
        self._secrets = secrets

    def __enter__(self) -> Self:
        self._log = Log.resume(self._path, self._secrets)
        self._new = self._path / "verdicts.new.jsonl"
        try:
            self._new.unlink(missing_ok=True)
            self._handle = _open(self._new)
        except OSError as fault:
            self._log.close()
            raise _unwritable(self._new, fault) from None
        return self

    def append_scored(self, scored: Scored) -> None:
        """Writes the verdicts of a run."""
        self._log.append(self._handle, self._new.name, scored)

    def finish(self, batch: Batch) -> None:
        """Puts the new verdicts in their place; the old ones stay as verdicts.1.jsonl, verdicts.2.jsonl …"""
        try:
            os.fsync(self._handle)
            _keep(self._path / VERDICTS)
            os.replace(self._new, self._path / VERDICTS)
        except OSError as fault:
            raise _unwritable(self._path / VERDICTS, fault) from None
        self._log.write_manifest(batch)

    def __exit__(self, *fault: object) -> None:
        os.close(self._handle)
        self._new.unlink(missing_ok=True)
        self._log.close()


class _Syncer:
    """Asks the disk for everything written so far, ten times a second, beside the work."""

    def __init__(self, handles: tuple[int, ...]) -> None:
        self.is_due = False
        self.fault: OSError | None = None
        self._handles = handles
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, name="evalloom-fsync", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._end.set()
        self._thread.join()
        self._sync()

    def _work(self) -> None:
        while not self._end.wait(_SYNC_EVERY_S):
            self._sync()

    def _sync(self) -> None:
        if not self.is_due:
            return
        self.is_due = False
        try:
            for handle in self._handles:
                os.fsync(handle)
        except OSError as fault:
            self.fault = fault


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o666)


def _sync_names(path: Path) -> None:
    """Asks the disk to keep the names of new files too, where folders can be asked."""
    for folder in (path, path.parent):
        with suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def _take_back(handle: int, written: int) -> None:
    """Cuts off a line that could be written only in part, lest the next one be glued to it."""
    if written:
        with suppress(OSError):
            os.ftruncate(handle, os.fstat(handle).st_size - written)


def _keep(verdicts: Path) -> None:
    """Gives old verdicts a second name, under which they stay."""
    number = 1
    while (kept := verdicts.with_name(f"verdicts.{number}.jsonl")).exists():
        number += 1
    try:
        os.link(verdicts, kept)
    except OSError:  # not every file system has hard links
        shutil.copyfile(verdicts, kept)


def _lock(handle: int, path: Path) -> None:
    """The lock ends with this process, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows has no flock, and there two writers are not kept apart
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        message = f"{path.as_posix()}: another process is writing this batch. Wait for it, or stop it"
        raise EvalloomError("batch_in_use", message) from None


def is_in_use(path: Path) -> bool:
    """Whether a process is writing this batch."""
    try:
        import fcntl

        with (path / RUNS).open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (ImportError, FileNotFoundError):
        return False
    except OSError:
        return True
    return False


def _plain(value: Any, above: tuple[int, ...] = ()) -> Any:
    """A value that any JSON reader takes: no lone surrogate, no NaN, nothing endless; `above` is what it stands in."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, int):
        return value if value.bit_length() <= _LONGEST_INTEGER else hex(value)
    if len(above) >= _DEEPEST or id(value) in above:
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
    """An object of a user's: as JSON where msgspec knows how, else as Python shows it."""
    try:
        return _plain(msgspec.to_builtins(value), above)
    except Exception:  # users' code: their objects may do anything when they are looked at
        pass
    try:
        return _plain(repr(value))
    except Exception:  # users' code, as above
        return f"<{type(value).__name__}>"


def _unwritable(path: Path, fault: OSError) -> EvalloomError:
    reason = (fault.strerror or str(fault)).lower()
    message = f"{path.as_posix()}: cannot be written: {reason}. What was written before can be read and resumed"
    return EvalloomError("cannot_write", message)
