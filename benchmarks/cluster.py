"""Measure `--executor dask` with workers on this machine against one process: CPU-bound code, and an llm at 50 ms.

.venv/bin/python benchmarks/cluster.py [--cases 4000] [--concurrency 64] [--workers 2] [--rounds 3] [--server PATH]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from contest import cases, serving, write_lines
from environments import cache_bytecode

_EVALLOOM = [sys.executable, "-m", "evalloom"]
_DASK = [sys.executable, "-m", "dask"]
_CODE = """\
from time import process_time, thread_time

def burn(question):
    end = thread_time() + 0.005
    while thread_time() < end:
        pass
    return question

def nothing(question):
    return question
"""
_LATENCY_MS = 50


@contextmanager
def cluster(workers: int) -> Iterator[str]:
    """The address of a scheduler with workers, one thread each, started as on any machine."""
    with tempfile.TemporaryDirectory(prefix="evalloom-cluster-") as folder:
        file = Path(folder) / "scheduler.json"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
        listen = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
        processes = [subprocess.Popen([*_DASK, "scheduler", *listen], **quiet)]  # type: ignore[call-overload]
        try:
            while not (file.exists() and file.read_text().endswith("}")):
                time.sleep(0.1)
            address: str = json.loads(file.read_text())["address"]
            join = [*_DASK, "worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
            processes += [subprocess.Popen(join, **quiet) for _ in range(workers)]  # type: ignore[call-overload]
            time.sleep(5)
            yield address
        finally:
            for process in processes:
                process.kill()
                process.wait()


class Project:
    """A folder with cases and a target, and how long the runs of its batches take."""

    def __init__(self, folder: Path, count: int, target: str, settings: str = "") -> None:
        self._folder = folder
        write_lines(folder / "cases.jsonl", cases(count))
        (folder / "code.py").write_text(_CODE)
        (folder / "prompt.md").write_text("Answer question number {{question}} with one token.")
        (folder / "evalloom.yaml").write_text(f"target: {target}\ndatasets: [cases.jsonl]\n{settings}")
        self._count = count

    def seconds(self, *words: str) -> float:
        """Run the batch; return the time from its first run to its last, so that no start-up counts."""
        command = [*_EVALLOOM, "run", "--no-cache", "--map", "expected_output=expected", *words, "--json"]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, encoding="utf-8")
        if done.returncode not in (0, 1):
            raise SystemExit(done.stderr)
        summary = json.loads(done.stdout)
        if summary["total"] != self._count or summary["error"]:
            raise SystemExit(f"expected {self._count} runs without an error: {done.stdout}")
        return between_runs(Path(self._folder, ".evalloom", "batches", summary["batch"], "runs.jsonl"))


def between_runs(path: Path) -> float:
    """The time between the start of the first run and the end of the last, in seconds."""
    from datetime import datetime

    starts, ends = [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        start = datetime.fromisoformat(run["started_at"]).timestamp()
        starts.append(start)
        ends.append(start + run["duration_s"])
    return max(ends) - min(starts)


def compare(name: str, project: Project, address: str, concurrency: int, rounds: int) -> tuple[float, float]:
    """The median time on one machine divided by that on the cluster, and the difference in seconds, in turns."""
    ratios, differences = [], []
    for number in range(rounds):
        here = project.seconds("-j", str(concurrency))
        there = project.seconds("-j", str(concurrency), "--executor", "dask", "--scheduler", address)
        ratios.append(here / there)
        differences.append(there - here)
        print(f"{name}, round {number + 1}: one process {here:.2f} s, cluster {there:.2f} s", flush=True)
    return median(ratios), median(differences)


def main() -> None:
    cache_bytecode()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=4000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server", type=Path)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, {options.workers} workers, {options.cases:,} cases", flush=True)
    count, lines = options.cases, []
    with cluster(options.workers) as address, tempfile.TemporaryDirectory(prefix="evalloom-benchmark-") as place:

        def project(name: str, *more: str) -> Project:
            folder = Path(place, name)
            folder.mkdir()
            return Project(folder, count, *more)

        burn = project("burn", "python:code.py:burn")
        ratio, _ = compare("5 ms of CPU", burn, address, 16, options.rounds)
        lines.append(f"5 ms of CPU: {ratio:.2f} x the speed of one process; at least 1.7 x: {met(ratio >= 1.7)}")
        with serving(options.server, latency_ms=_LATENCY_MS) as url:
            llm = project("llm", "prompt:prompt.md", f"llms: {{far: {{base_url: '{url}', model: m}}}}\n")
            ratio, _ = compare("llm at 50 ms", llm, address, options.concurrency, options.rounds)
        lines.append(f"llm at 50 ms: {1 / ratio:.2f} x the time of one process; at most 1.2 x: {met(ratio >= 1 / 1.2)}")
        nothing = project("nothing", "python:code.py:nothing")
        _, difference = compare("nothing", nothing, address, 16, options.rounds)
        lines.append(f"a function that does nothing: {difference / count * 1000:.2f} ms more per case")
    print("\n".join(lines))


def met(is_met: bool) -> str:
    return "met" if is_met else "NOT MET"


if __name__ == "__main__":
    main()
