"""Measure evalloom and other tools on the same cases: time, memory, disk, start and size of the installation.

.venv/bin/python benchmarks/tools.py [--cases 10000] [--concurrency 64] [--latency-ms 0] [--server PATH] [NAME …]

Each tool runs once after a bare loop, and the start is the median of three runs of five cases. The disk is what a run
leaves in its folder beside its input; the installation is what a package manager adds for the tool, without Python or
Node.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import contestant
import environments
from contest import Measured, Task, bare_loop, fresh, measure, refuse, serving
from peers import PEERS, Peer

_MB = 1_000_000
_FEW = 5
_NOT_OF_THE_TOOL = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence", "node")


@dataclass(frozen=True)
class Row:
    """The figures of one tool."""

    name: str
    version: str
    ratio: float
    measured: Measured
    disk_mb: float
    start_s: float
    install_mb: float

    def __str__(self) -> str:
        times = f"{self.measured.seconds:8.2f} s {self.ratio:7.2f} x {self.start_s:6.2f} s"
        sizes = f"{self.measured.peak_mb:6.0f} MB {self.disk_mb:6.1f} MB {self.install_mb:5.0f} MB"
        return f"{self.name:<15} {self.version:<9} {times} {sizes}"


class Evalloom:
    """evalloom as one of the tools; it is measured in the environment of this script."""

    name = "evalloom"

    def install(self) -> str:
        root = Path(__file__).resolve().parent.parent
        return environments.version(environments.python("evalloom", str(root)), "evalloom")

    def prepare(self, task: Task) -> list[str]:
        return contestant.prepare(task)

    def variables(self, task: Task) -> dict[str, str]:
        return {}

    def passes(self, task: Task) -> int:
        contestant.check(task)
        return task.passes


def row(tool: Peer, version: str, cases: int, concurrency: int, url: str) -> Row:
    """Run a tool after the bare loop."""
    with fresh(cases, concurrency, url) as task:
        bare = bare_loop(task)
    measured, disk = run(tool, cases, concurrency, url)
    start = median(run(tool, _FEW, concurrency, url)[0].seconds for _ in range(3))
    size = sum(sizes(environments.HOME / tool.name))
    return Row(tool.name, version, measured.seconds / bare.seconds, measured, disk / _MB, start, size / _MB)


def run(tool: Peer, cases: int, concurrency: int, url: str) -> tuple[Measured, int]:
    """Run a tool in a fresh folder; return what it took, and the bytes that it left there."""
    with fresh(cases, concurrency, url) as task:
        command = tool.prepare(task)
        before = sum(file.stat().st_size for file in task.folder.rglob("*") if file.is_file())
        measured = measure(command, task.folder, tool.variables(task))
        after = sum(file.stat().st_size for file in task.folder.rglob("*") if file.is_file())
        if (passes := tool.passes(task)) != task.passes:
            refuse(task, tool.name, f"{passes} passes", task.passes)
        return measured, after - before


def sizes(environment: Path) -> Iterator[int]:
    """Yield the sizes of the files that belong to a tool and its dependencies."""
    packages = [*environment.glob("lib/python*/site-packages"), *environment.glob("node_modules")]
    for package in (part for folder in packages for part in folder.iterdir()):
        if package.name.split("-")[0] not in _NOT_OF_THE_TOOL:
            yield from (file.lstat().st_size for file in [package, *package.rglob("*")] if file.is_file())


def main() -> None:
    environments.cache_bytecode()
    tools: list[Peer] = [Evalloom(), *PEERS]
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("names", nargs="*", metavar="NAME", choices=[[], *(tool.name for tool in tools)])
    options.add_argument("--cases", type=int, default=10_000)
    options.add_argument("--concurrency", type=int, default=64)
    options.add_argument("--latency-ms", type=int, default=0)
    options.add_argument("--server", type=Path, help="a compiled server with the flags of server.py, instead of it")
    arguments = options.parse_args()
    chosen = [tool for tool in tools if not arguments.names or tool.name in arguments.names]
    versions = {tool.name: tool.install() for tool in chosen}
    print(f"{arguments.cases:,} cases, answers after {arguments.latency_ms} ms")
    print(f"{'':<25} {'time':>10} {'x bare':>9} {'start':>8} {'memory':>9} {'disk':>9} {'install':>8}")
    with serving(arguments.server, latency_ms=arguments.latency_ms) as url:
        for tool in chosen:
            print(row(tool, versions[tool.name], arguments.cases, arguments.concurrency, url), flush=True)


if __name__ == "__main__":
    main()
