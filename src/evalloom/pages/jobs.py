"""Commands that pages start. Each is a process of its own, so that it cannot disturb the server and can be stopped.

A job that runs cases writes a batch as on the command line. The batch is what lasts: it shows up in every list, and it
can be cancelled and resumed, whoever started it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from shlex import join
from typing import Any

from msgspec import Struct

from evalloom.batchlog.folders import is_batch
from evalloom.batchlog.read import RUNS
from evalloom.pages.errors import RequestError
from evalloom.pages.library import Library

_SHOWN_OUTPUT = 64_000
"""Bytes at the end of the output of a job that a page shows."""
_MOST_RUNNING = 4
_MOST_KEPT = 200
_STOP_S = 3.0
"""Seconds until jobs that do not stop by themselves are killed; what they counted is on disk."""
_POLL_S = 0.05


class JobState(Struct, frozen=True):
    """A job as a page shows it."""

    id: str
    command: str
    """The command line that would do the same."""
    state: str
    """`running`, `done` or `failed`."""
    started_at: str
    exit_code: int | None = None
    batch: str = ""
    """The batch that it writes, as soon as there is one."""
    output: str = ""


class _Job:
    def __init__(self, id: str, command: Sequence[str], process: subprocess.Popen[bytes], output: Path) -> None:
        self.id = id
        self.command = command
        self.process = process
        self.output = output
        self.started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self.batch = ""
        self.has_ended = False
        """Whether the process has ended and its batch was looked for after that."""


class Jobs:
    """The jobs of this server. All methods are thread-safe."""

    def __init__(self, home: Path, library: Library) -> None:
        self._home = home
        self._library = library
        self._lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}
        self._outputs = tempfile.TemporaryDirectory(prefix="evalloom-jobs-")
        self._is_stopping = False

    def start(self, words: Sequence[str], hidden: Iterable[str] = (), tool: str = "") -> JobState:
        """Start `evalloom <words>` in the folder of the project; its environment has none of the `hidden` values.

        `tool` is the name of another command of ours, such as `batchhoptest`.
        """
        secrets = set(filter(None, hidden))
        environment = {name: value for name, value in os.environ.items() if value not in secrets}
        environment |= {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
        id = token_hex(6)
        output = Path(self._outputs.name) / id
        with self._lock:
            if self._is_stopping:
                raise RequestError("service_stopping", "the server is stopping, so nothing is started")
            if sum(job.process.poll() is None for job in self._jobs.values()) >= _MOST_RUNNING:
                message = f"{_MOST_RUNNING} jobs are running already. Wait for one, or cancel one"
                raise RequestError("too_many_jobs", message)
            with output.open("wb") as stream:
                process = subprocess.Popen(
                    [sys.executable, "-m", f"evalloom.tools.{tool}" if tool else "evalloom", *words],
                    cwd=self._home,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C in the terminal of the server is for the server, which then stops its jobs.
                    start_new_session=True,
                )
            job = self._jobs[id] = _Job(id, [tool or "evalloom", *words], process, output)
            for old in [old for old in self._jobs.values() if old.process.poll() is not None][:-_MOST_KEPT]:
                del self._jobs[old.id]
                old.output.unlink(missing_ok=True)
        return self._state(job)

    def state(self, id: str) -> JobState:
        """Return a job by its id."""
        return self._state(self._job(id), with_output=True)

    def states(self) -> list[JobState]:
        """Return all jobs, newest first."""
        with self._lock:
            jobs = list(self._jobs.values())
        return [self._state(job) for job in reversed(jobs)]

    def wait_for_batch(self, id: str, seconds: float) -> JobState:
        """Wait until a job writes a batch or has ended, but not longer than some seconds."""
        job, end = self._job(id), time.monotonic() + seconds
        while job.process.poll() is None and not self._find_batch(job) and time.monotonic() < end:
            time.sleep(_POLL_S)
        return self._state(job, with_output=True)

    def wait(self, id: str, seconds: float) -> JobState:
        """Wait until a job has ended, but not longer than some seconds."""
        job = self._job(id)
        with suppress(subprocess.TimeoutExpired):
            job.process.wait(seconds)
        return self._state(job, with_output=True)

    def cancel(self, id: str) -> None:
        """Ask a job to stop, as Ctrl-C would. A batch keeps its finished runs, and can be resumed."""
        job = self._job(id)
        self._find_batch(job)
        with suppress(ProcessLookupError):
            job.process.send_signal(signal.SIGINT)

    def cancel_batch(self, batch: str) -> None:
        """Ask the process that writes a batch to stop, whoever started it."""
        path = self._library.path(batch)
        for job in list(self._jobs.values()):
            if job.process.poll() is None and self._find_batch(job) == path.name:
                self.cancel(job.id)
                return
        writers = _writers(path / RUNS)
        if not writers:
            message = f"no process of yours writes the batch {batch!r} on this machine, so it cannot be cancelled here"
            raise RequestError("not_running", message)
        # The oldest: others inherited the open file from it.
        with suppress(ProcessLookupError):
            os.kill(min(writers), signal.SIGINT)

    def stop(self) -> None:
        """Stop all jobs, and wait until they have written what they finished."""
        with self._lock:
            self._is_stopping = True
            running = [job for job in self._jobs.values() if job.process.poll() is None]
        for job in running:
            with suppress(ProcessLookupError):
                job.process.send_signal(signal.SIGINT)
        end = time.monotonic() + _STOP_S
        for job in running:
            try:
                job.process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                job.process.kill()
                job.process.wait()

    def close(self) -> None:
        self.stop()
        self._outputs.cleanup()

    def _job(self, id: str) -> _Job:
        with self._lock:
            job = self._jobs.get(id)
        if job is None:
            raise RequestError("job_not_found", f"there is no job {id[:80]!r} since this server started")
        return job

    def _state(self, job: _Job, with_output: bool = False) -> JobState:
        code = job.process.poll()
        # Exit code 1 means that cases failed, which is a result.
        state = "running" if code is None else "done" if code in (0, 1) else "failed"
        output = _tail(job.output) if with_output else ""
        return JobState(job.id, join(job.command), state, job.started_at, code, self._find_batch(job), output)

    def _find_batch(self, job: _Job) -> str:
        """Return the batch that a job writes: the one whose runs its process has open."""
        if job.batch or job.has_ended:
            return job.batch
        # Asked before the files are looked at: what a process that has ended by then wrote is complete.
        has_ended = job.process.poll() is not None
        folder = self._library.folder.resolve()
        for file in _open_files(job.process.pid):
            # The runs are opened before the manifest is written, and until then there is no batch to show.
            if file.name == RUNS and file.parent.parent == folder and is_batch(file.parent):
                job.batch = file.parent.name
        if has_ended:
            job.batch = job.batch or self._written_by(job)
            job.has_ended = True
        return job.batch

    def _written_by(self, job: _Job) -> str:
        """Return the batch of a job that ended before anybody looked: the one that names its command."""
        taken = {other.batch for other in list(self._jobs.values())}
        for summary in self._library.summaries():
            if summary.created_at < job.started_at:
                break
            if summary.id not in taken and self._library.manifest(summary.id).command == job.command:
                return summary.id
        return ""


def _open_files(process: int) -> list[Path]:
    """Return the files that a process of this user has open."""
    files: list[Path] = []
    with suppress(OSError), os.scandir(f"/proc/{process}/fd") as entries:
        for entry in entries:
            with suppress(OSError):
                files.append(Path(os.readlink(entry.path)))
    return files


def _writers(file: Path) -> list[int]:
    """Return the processes of this user, other than this one, that have a file open."""
    resolved = file.resolve()
    try:
        names: Any = os.listdir("/proc")
    except OSError:
        return []
    ids = [int(name) for name in names if name.isdecimal()]
    return [id for id in ids if id != os.getpid() and resolved in _open_files(id)]


def _tail(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _SHOWN_OUTPUT))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return text if size <= _SHOWN_OUTPUT else "…" + text.partition("\n")[2]
