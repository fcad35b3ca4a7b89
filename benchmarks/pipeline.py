"""Measure what a pipeline adds to its functions, per step and per batch item.

.venv/bin/python benchmarks/pipeline.py [--cases 300] [--items 10000] [--rounds 5]

A bare loop awaits the same functions one after another and keeps their results. Memory is that of a process of its own
that runs one case with that many items.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from evalloom.core.model import Context, Origin, Output, Profile, Request, Response
from evalloom.pipeline.dialect import to_case
from evalloom.pipeline.system import SYSTEM
from evalloom.targets import BuiltTarget, build
from evalloom.targets.base import TargetOptions

_CODE = """
async def first(x): return {"value": x}
async def step(value): return {"value": value + 1}
async def each(n): return {"n": n, "double": 2 * n}
"""
_CHAIN = "  - {{id: s{n}, code_ref: 'code:step', input_mapping: {{value: s{before}.value}}}}\n"
_BATCH = """id: p
steps:
  - {id: each, code_ref: "code:each", batch_mode: true, batch_size: 1000, max_workers: 4}
  - {id: total, type: batch_aggregator, strategy: stats, fields: [double]}
"""
_MEMORY = """
import sys
sys.path.insert(0, sys.argv[1])
from pipeline import run_batch, target_of
from pathlib import Path
run_batch(target_of(Path(sys.argv[2]), "batch.yaml"), int(sys.argv[3]))
# Not ru_maxrss, which a process inherits from its parent.
print(next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


async def _nobody(request: Request) -> Response:
    raise AssertionError("nothing here asks an llm")


def target_of(folder: Path, file: str) -> BuiltTarget:
    return build({"pipeline": file}, folder, TargetOptions(kinds=SYSTEM.parts().targets))


def context_of(record: dict[str, Any]) -> Context:
    case = to_case({"id": "c", **record}, Origin("benchmark"))
    return Context(case, Profile("p"), _nobody, _nobody, [])


async def _through(target: BuiltTarget, record: dict[str, Any]) -> Output:
    context = context_of(record)
    return await target.call(context.case.inputs, context)


def run_batch(target: BuiltTarget, items: int) -> Output:
    """One case with so many items."""
    return asyncio.run(_through(target, {"batch_items": [{"n": n} for n in range(items)]}))


def seconds(work: Callable[[], Awaitable[Any]], rounds: int) -> float:
    """The median of several rounds, in one loop and after a first one that is not counted."""

    async def all_rounds() -> float:
        await work()
        times = []
        for _ in range(rounds):
            start = perf_counter()
            await work()
            times.append(perf_counter() - start)
        return median(times)

    return asyncio.run(all_rounds())


def per_step(folder: Path, steps: int, cases: int, rounds: int) -> tuple[float, float]:
    """Seconds for one step of a chain: ours, and those of a bare loop."""
    written = "id: p\nsteps:\n  - {id: s0, code_ref: 'code:first', input_mapping: {x: x}}\n"
    written += "".join(_CHAIN.format(n=n, before=n - 1) for n in range(1, steps))
    (folder / f"chain{steps}.yaml").write_text(written)
    target = target_of(folder, f"chain{steps}.yaml")
    code: dict[str, Any] = {}
    exec(_CODE, code)

    async def ours() -> None:
        for number in range(cases):
            output = await _through(target, {"inputs": {"x": number}})
            assert output.steps[f"s{steps - 1}"] == {"value": number + steps - 1}

    async def bare() -> None:
        for number in range(cases):
            results = [await code["first"](x=number)]
            for _ in range(1, steps):
                results.append(await code["step"](value=results[-1]["value"]))

    return seconds(ours, rounds) / cases / steps, seconds(bare, rounds) / cases / steps


def per_item(folder: Path, items: int, rounds: int) -> tuple[float, float]:
    """Seconds for one item of a batch with its share of the aggregate: ours, and those of a bare loop."""
    target = target_of(folder, "batch.yaml")
    code: dict[str, Any] = {}
    exec(_CODE, code)
    record = {"batch_items": [{"n": n} for n in range(items)]}

    async def ours() -> None:
        output = await _through(target, record)
        assert output.aggregation["fields"]["double"]["sum"] == items * (items - 1)

    async def bare() -> None:
        results = [await code["each"](**item) for item in record["batch_items"]]
        assert sum(result["double"] for result in results) == items * (items - 1)

    return seconds(ours, rounds) / items, seconds(bare, rounds) / items


def megabytes(folder: Path, items: int) -> float:
    """The most memory of a process that runs one case with so many items."""
    command = [sys.executable, "-c", _MEMORY, str(Path(__file__).parent), str(folder), str(items)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cases", type=int, default=300)
    options.add_argument("--items", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=5)
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "code.py").write_text(_CODE)
        (folder / "batch.yaml").write_text(_BATCH)
        print(f"{'':28}{'evalloom':>12}{'bare loop':>12}{'added':>12}")
        for steps, cases in ((1, arguments.cases), (10, arguments.cases), (200, max(1, arguments.cases // 20))):
            _print_row(f"a step, of {steps} in a chain", *per_step(folder, steps, cases, arguments.rounds))
        for items in (arguments.items // 10, arguments.items, 5 * arguments.items):
            _print_row(f"an item, of {items:,}", *per_item(folder, items, arguments.rounds))
        most = {items: megabytes(folder, items) for items in (10, arguments.items, 10 * arguments.items)}
        sizes = ", ".join(f"{size:.0f} MB with {items:,} items" for items, size in most.items())
        print(f"\nmemory: {sizes}")
    return 0


def _print_row(what: str, ours: float, bare: float) -> None:
    print(f"{what:28}{ours * 1e6:9.1f} µs{bare * 1e6:9.1f} µs{(ours - bare) * 1e6:9.1f} µs")


if __name__ == "__main__":
    sys.exit(main())
