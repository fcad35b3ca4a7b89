"""Measure time, memory and retries of `evalloom run` against a bare loop.

.venv/bin/python benchmarks/run.py [--cases 10000] [--concurrency 64] [--rounds 3] [--server PATH]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import contestant
import environments
from contest import Measured, bare_loop, fresh, measure, serving, stats

_LATENCIES_MS = (0, 50)
_RATIO_BARS = {0: 1.5, 50: 1.15}
_FAULTS = {"p429": 0.1, "p500": 0.05, "pdrop": 0.01, "retry_after": 1, "seed": 1}
_FAULTY_CASES = 1000


@dataclass(frozen=True)
class Line:
    """One line of the table: a measured value, and its limit."""

    subject: str
    value: float
    unit: str
    bar: float | None = None

    @property
    def is_met(self) -> bool:
        return self.bar is None or self.value <= self.bar

    def __str__(self) -> str:
        said = "" if self.bar is None else f"at most {self.bar:g}: {'met' if self.is_met else 'NOT MET'}"
        return f"{self.subject:<62} {self.value:>9.2f} {self.unit:<3} {said}".rstrip()


class Benchmark:
    """The measurements, each in one run beside what it is compared with."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._cases: int = arguments.cases
        self._concurrency: int = arguments.concurrency
        self._rounds: int = arguments.rounds
        self._server: Path | None = arguments.server

    def speed(self, latency_ms: int) -> list[Line]:
        """Whole runs against the bare loop, in turns, so that a busy moment of the machine hits all of them."""
        ratios: dict[bool, list[float]] = {False: [], True: []}
        with serving(self._server, latency_ms=latency_ms) as url:
            for number in range(self._rounds):
                bare = self._bare(url)
                for is_cached, measured in ratios.items():
                    measured.append(self._evalloom(url, self._cases, is_cached).seconds / bare.seconds)
                latest = ", ".join(f"{measured[-1]:.2f}" for measured in ratios.values())
                print(f"{latency_ms} ms, round {number + 1}: {latest} (writing the cache) x the bare loop", flush=True)
        what = f"time of evalloom run, {self._cases:,} cases, {latency_ms} ms"
        return [
            Line(what, median(ratios[False]), "x", _RATIO_BARS[latency_ms]),
            Line(f"{what}, writing the cache", median(ratios[True]), "x"),
        ]

    def growth(self) -> list[Line]:
        """Ten times the cases: time against the smaller runs before it, and memory."""
        ratios, many = [], self._cases * 10
        with serving(self._server) as url:
            for number in range(self._rounds):
                small = self._evalloom(url, self._cases)
                large = self._evalloom(url, many)
                ratios.append(large.seconds / small.seconds)
                print(f"{many:,} cases, round {number + 1}: {ratios[-1]:.2f} x the time of {self._cases:,}", flush=True)
            peak_mb = self._peak_mb(url, many)
        return [
            Line(f"time of {many:,} cases against {self._cases:,}", median(ratios), "x", 10.5),
            Line(f"memory at {many:,} cases, all processes", peak_mb, "MB", 300),
        ]

    def failures(self) -> list[Line]:
        """A server that refuses, fails and hangs up: every case must end with an answer, and only once."""
        with serving(self._server, **_FAULTS) as url, fresh(_FAULTY_CASES, self._concurrency, url) as task:
            measured = measure(contestant.prepare(task), task.folder)
            lost, double = contestant.lost_and_double(task, stats(url)["ok"])
        what = f"{_FAULTY_CASES:,} cases, 10 % 429, 5 % 500, 1 % dropped"
        return [
            Line(f"{what}: time", measured.seconds, "s", 30),
            Line(f"{what}: lost", lost, "", 0),
            Line(f"{what}: double", double, "", 0),
        ]

    def _bare(self, url: str) -> Measured:
        with fresh(self._cases, self._concurrency, url) as task:
            return bare_loop(task)

    def _evalloom(self, url: str, count: int, is_cached: bool = False) -> Measured:
        with fresh(count, self._concurrency, url) as task:
            return contestant.run(task, is_cached)

    def _peak_mb(self, url: str, count: int) -> float:
        with fresh(count, self._concurrency, url) as task:
            return contestant.peak_mb(task)


def main() -> int:
    """Prints a table; 1 when a bar is not met."""
    environments.cache_bytecode()
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cases", type=int, default=10_000)
    options.add_argument("--concurrency", type=int, default=64)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--server", type=Path, help="a compiled server with the flags of server.py, instead of it")
    arguments = options.parse_args()
    benchmark = Benchmark(arguments)
    print(f"bare loop: aiohttp {environments.version(environments.python('bare_loop', 'aiohttp'), 'aiohttp')}")
    lines = [line for latency_ms in _LATENCIES_MS for line in benchmark.speed(latency_ms)]
    lines += benchmark.growth() + benchmark.failures()
    print("", *lines, sep="\n")
    return int(not all(line.is_met for line in lines))


if __name__ == "__main__":
    raise SystemExit(main())
