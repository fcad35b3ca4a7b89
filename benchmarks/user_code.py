"""What calling users' code costs: a function that does nothing, in two versions of evalloom, in turns.

.venv/bin/python benchmarks/user_code.py OLD_SOURCE [NEW_SOURCE]

A source is the folder that holds `evalloom/`. Each version runs in a process of its own, and they take turns, so that
a busy machine slows both down. The figure of a version is the median of its rounds, in µs per call.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

ROUNDS, CALLS = 60, 2_000
WAYS = [(kind, concurrency) for kind in ("async", "sync") for concurrency in (1, 16)]

WORKER = f"""
import asyncio, sys, time, uvloop
from evalloom.core.model import Case, Context, Profile
from evalloom.targets import build_callable

async def nothing(q):
    return "x"

def nothing_sync(q):
    return "x"

async def work(kind, concurrency):
    target = build_callable(nothing if kind == "async" else nothing_sync)
    context = Context(Case("1", {{}}), Profile("p"), None, None, [])
    async def some(number):
        for _ in range(number):
            await target.call({{"q": "x"}}, context)
    start = time.perf_counter()
    await asyncio.gather(*(some({CALLS} // concurrency) for _ in range(concurrency)))
    return (time.perf_counter() - start) / {CALLS} * 1e6

for line in sys.stdin:
    kind, concurrency = line.split()
    print(uvloop.run(work(kind, int(concurrency))), flush=True)
"""


def start(source: str) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    environ = {**os.environ, "PYTHONPATH": source}
    return subprocess.Popen([sys.executable, "-c", WORKER], env=environ, text=True, **pipes)  # type: ignore[call-overload, no-any-return]


def main(sources: list[str]) -> None:
    workers = [start(source) for source in sources]
    print("function  concurrency  " + "  ".join(f"{name:>8}" for name in ("old µs", "new µs", "more µs")))
    for kind, concurrency in WAYS:
        rounds: list[list[float]] = [[] for _ in workers]
        for _ in range(ROUNDS):
            for worker, times in zip(workers, rounds, strict=True):
                assert worker.stdin and worker.stdout
                print(kind, concurrency, file=worker.stdin, flush=True)
                times.append(float(worker.stdout.readline()))
        medians = [statistics.median(times) for times in rounds]
        figures = [*medians, medians[-1] - medians[0]]
        print(f"{kind:8}  {concurrency:11}  " + "  ".join(f"{figure:8.1f}" for figure in figures))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main([sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else str(Path(__file__).parent.parent / "src")])
