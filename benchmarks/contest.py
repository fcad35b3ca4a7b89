"""The cases, the server and the clock that every measured program shares."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import environments
from server import answer
from validate import family, resident_kb

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Task:
    """So many cases at once against a server, in a fresh folder."""

    folder: Path
    count: int
    concurrency: int
    url: str

    @property
    def cases(self) -> Path:
        return self.folder / "cases.jsonl"

    @property
    def passes(self) -> int:
        """How many must pass: every tenth expectation is wrong."""
        return self.count - len(wrong(self.count))


@dataclass(frozen=True)
class Measured:
    """What a run took."""

    seconds: float
    peak_mb: float
    code: int


def wrong(count: int) -> set[str]:
    """The ids of the cases that must fail."""
    return {f"q{number:06d}" for number in range(0, count, 10)}


def cases(count: int) -> Iterator[dict[str, str]]:
    """Cases with one variable and one text that the answer contains."""
    failing = wrong(count)
    for number in range(count):
        name = f"q{number:06d}"
        said = answer(f"Answer question number {name} with one token.")
        yield {"id": name, "question": name, "expected": "ANS-wrong" if name in failing else said}


def write_lines(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


@contextmanager
def fresh(count: int, concurrency: int, url: str) -> Iterator[Task]:
    """A task in a folder of its own, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="evalloom-benchmark-") as folder:
        yield Task(Path(folder), count, concurrency, url)


@contextmanager
def serving(program: Path | None, **flags: float) -> Iterator[str]:
    """The base URL of a server that runs meanwhile: ours, or a compiled one that takes the same flags."""
    with tempfile.TemporaryDirectory(prefix="evalloom-server-") as folder:
        port_file = Path(folder) / "port"
        start = [str(program.resolve())] if program else [sys.executable, str(HERE / "server.py")]
        command = [*start, "--port", "0", "--port-file", str(port_file), "--max-seconds", "7200"]
        command += [part for name, value in flags.items() for part in (f"--{name.replace('_', '-')}", f"{value:g}")]
        process = subprocess.Popen(command)
        try:
            yield f"http://127.0.0.1:{_port(process, port_file)}/v1"
        finally:
            process.terminate()
            process.wait()


def _port(process: subprocess.Popen[bytes], port_file: Path) -> int:
    until = time.monotonic() + 20
    while not port_file.exists():
        if process.poll() is not None or time.monotonic() > until:
            raise SystemExit("the server did not start")
        time.sleep(0.02)
    return int(port_file.read_text())


def stats(url: str) -> dict[str, int]:
    """What the server counted."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/stats") as response:
        counted: dict[str, int] = json.load(response)
    return counted


def measure(command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None) -> Measured:
    """Runs a command; what it prints goes to `stdout` and `stderr` in the folder."""
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        start = time.perf_counter()
        process = subprocess.Popen(
            list(map(str, command)), cwd=folder, stdout=out, stderr=err, env={**os.environ, **(environment or {})}
        )
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
    # This function has waited for the process, so Popen must not wait again.
    process.returncode = os.waitstatus_to_exitcode(status)
    kilobytes = used.ru_maxrss / 1024 if sys.platform == "darwin" else used.ru_maxrss
    return Measured(seconds, kilobytes / 1024, process.returncode)


def watch(command: Sequence[str], folder: Path) -> float:
    """The largest sum of resident memory of a command and its children, in MB. Sampling slows the command down."""
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process, largest = subprocess.Popen(list(command), cwd=folder, stdout=out, stderr=err), 0
        while process.poll() is None:
            largest = max(largest, sum(map(resident_kb, family(process.pid))))
            time.sleep(0.05)
    return largest / 1024


def refuse(task: Task, name: str, got: object, expected: object) -> None:
    """Ends the benchmark: a program that did other work than the rest cannot be compared with it."""
    tail = "\n".join((task.folder / part).read_text(errors="replace")[-1500:] for part in ("stdout", "stderr"))
    raise SystemExit(f"{name}: expected {expected}, got {got}. It said:\n{tail}")


def bare_loop(task: Task) -> Measured:
    """The loop that everything is measured against."""
    results = task.folder / "bare.jsonl"
    interpreter = environments.python("bare_loop", "aiohttp")
    write_lines(task.cases, cases(task.count))
    command = [interpreter, HERE / "bare_loop.py", task.cases, task.url, task.concurrency, results]
    measured = measure([str(part) for part in command], task.folder)
    failed = {row["id"] for row in rows(results) if not row["passed"]} if results.exists() else None
    if measured.code or failed != wrong(task.count):
        refuse(task, "bare loop", failed and len(failed), f"{len(wrong(task.count))} failures")
    return measured


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)
