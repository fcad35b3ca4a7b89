"""A Dask cluster on loopback, started as users start one, and batches on it that are disturbed while they run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

EVALLOOM = [sys.executable, "-m", "evalloom"]
DASK = [sys.executable, "-m", "dask"]
SECONDS = 120

CODE = """\
import os, signal, time
from pathlib import Path

def quick(q):
    return "wrong" if q == "7" else q

def slow(q):
    time.sleep(0.03)
    if q == "13":
        raise ValueError("unlucky")
    return "wrong" if q == "7" else q

def poison(q):
    time.sleep(0.01)
    if q == "21":
        os.kill(os.getpid(), signal.SIGKILL)
    return q

def kills_the_worker(q):
    if q == "21":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(10)
    return q

def leaves(q):
    if q == "21":
        os._exit(3)
    return q

def uneven(q):
    if "slow" in os.environ.get("SPEED", ""):
        time.sleep(0.5)
    return q

def where(q):
    return os.environ.get("WORKER_NAME", "")

def writes(q):
    Path(os.environ["DISK"], q).write_text("x" * 20_000)
    return q

def reads(q):
    return Path("texts/greeting.txt").read_text() + q
"""


def make_project(folder: Path, cases: int = 60, target: str = "python:code.py:slow", more: str = "") -> Path:
    """Write a project with cases, code and settings."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "code.py").write_text(CODE)
    lines = [{"id": f"c{n}", "inputs": {"q": str(n)}, "expected_output": str(n)} for n in range(cases)]
    (folder / "cases.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "evalloom.yaml").write_text(f"target: {json.dumps(target)}\ndatasets: [cases.jsonl]\n{more}")
    return folder


class Cluster:
    """A scheduler and its workers, each a process."""

    def __init__(self, folder: Path, *words: str, **environment: str) -> None:
        """Further words and variables are those of the scheduler."""
        self._folder = folder
        self._file = folder / "scheduler.json"
        self.workers: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(self._file),
            *words, before=(), log=None, **environment,
        )  # fmt: skip
        self.address: str = wait_for(self._address)

    def add_worker(
        self, restarts: bool = False, before: Sequence[str] = (), **environment: str
    ) -> subprocess.Popen[bytes]:
        """Start a worker, and wait until it is registered; `before` is a command that starts it."""
        number = len(self.workers)
        log = self._folder / f"worker-{number}.log"
        scratch = self._folder / f"scratch-{number}"
        worker = self._start(
            "worker", self.address, "--nthreads", "1", "--no-dashboard", "--local-directory", str(scratch),
            "--nanny" if restarts else "--no-nanny", before=before, log=log, **environment,
        )  # fmt: skip
        self.workers.append(worker)
        wait_for(lambda: log.exists() and b"Registered to" in log.read_bytes())
        return worker

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            # A nanny ends its worker when it is asked to end.
            process.terminate()
        for process in (*self.workers, self.scheduler):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _address(self) -> str:
        try:
            return str(json.loads(self._file.read_text())["address"])
        except (OSError, ValueError):
            return ""

    def _start(
        self, *words: str, before: Sequence[str] = (), log: Path | None = None, **environment: str
    ) -> subprocess.Popen[bytes]:
        clean = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        with (log or self._folder / "scheduler.log").open("ab") as stream:
            return subprocess.Popen(
                [*before, *DASK, *words], stdout=stream, stderr=stream, cwd=self._folder, env={**clean, **environment}
            )


class Batch:
    """A run of evalloom in a folder, in the background."""

    def __init__(self, folder: Path, *words: str, command: str = "run", **environment: str) -> None:
        self._folder = folder
        self._before = {path.name for path in folder.glob(".evalloom/batches/*")}
        self.process = subprocess.Popen(
            [*EVALLOOM, command, *words],
            cwd=folder,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def path(self) -> Path:
        """Return the folder of the batch that it made; the newest one if it made none."""
        paths = sorted(self._folder.glob(".evalloom/batches/*"))
        new = [path for path in paths if path.name not in self._before]
        return (new or paths)[-1]

    def wait_for_runs(self, number: int) -> None:
        """Wait until so many runs are in the log."""

        def has_runs() -> bool:
            assert self.process.poll() is None, self.process.communicate()
            new = {path for path in self._folder.glob(".evalloom/batches/*") if path.name not in self._before}
            return any(len(read_lines(path / "runs.jsonl")) >= number for path in new)

        wait_for(has_runs)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str, str]:
        """Wait for the end; return the exit code, stdout and stderr."""
        try:
            out, err = self.process.communicate(timeout=SECONDS)
        finally:
            self.process.kill()
        assert "Traceback" not in err, err
        return self.process.returncode, out, err


def wait_for(condition: Callable[[], Any]) -> Any:
    """Wait until a condition holds, and return its value."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError("timed out")


def read_lines(path: Path) -> list[Any]:
    data = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def content(path: Path) -> list[dict[str, Any]]:
    """Return the runs and the verdicts of a batch by key, without times; every key must be there once."""
    files = []
    for name in ("runs.jsonl", "verdicts.jsonl"):
        lines = read_lines(path / name)
        by_key = {line["key"]: line for line in lines}
        assert len(by_key) == len(lines), f"{name} has a key twice"
        for line in lines:
            for volatile in ("started_at", "duration_s"):
                line.pop(volatile, None)
        files.append(by_key)
    return files


def local(folder: Path, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """Run the same batch on this machine alone; return its exit code and its content."""
    batch = Batch(folder, *words)
    code, _, _ = batch.end()
    return code, content(batch.path())


def children(pid: int) -> list[int]:
    """Return all processes that descend from one."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for word in task.read_text().split():
            found += [int(word), *children(int(word))]
    return found
