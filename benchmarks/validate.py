"""Measure time and memory of `evalloom validate` against a bare decoding loop.

.venv/bin/python benchmarks/validate.py [--megabytes 500] [--dialect rag] [--rounds 3]
.venv/bin/python benchmarks/validate.py --deep [--megabytes 74] [--dialect rag] [--rounds 3]

With --deep it measures `evalloom validate --deep`, also in processor time, which the load of a machine changes less.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import cases
from environments import cache_bytecode

_BARE = """
import sys, orjson
with open(sys.argv[1], "rb") as file:
    for line in file:
        orjson.loads(line)
"""
_JSONSCHEMA = """
import sys, json, itertools, jsonschema
from evalloom.catalog import load
validator = jsonschema.Draft202012Validator(load().formats.by_name(sys.argv[2]).schema())
with open(sys.argv[1], "rb") as file:
    for line in itertools.islice(file, int(sys.argv[3])):
        validator.is_valid(json.loads(line))
"""


def main() -> None:
    cache_bytecode()
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--megabytes", type=int, help="the size of the file: 500, or 74 (100,000 cases) with --deep")
    options.add_argument("--dialect", choices=list(cases.MAKERS), default="rag")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--deep", action="store_true")
    arguments = options.parse_args()
    arguments.megabytes = arguments.megabytes or (74 if arguments.deep else 500)
    folder = Path(tempfile.gettempdir()) / "evalloom-benchmarks"
    folder.mkdir(exist_ok=True)
    size = arguments.megabytes * 1_000_000
    large = cases.make(folder / f"{arguments.dialect}_{arguments.megabytes}.jsonl", arguments.dialect, size)
    small = cases.make(folder / f"{arguments.dialect}_{arguments.megabytes // 10}.jsonl", arguments.dialect, size // 10)
    if arguments.deep:
        compare_deep(large, small, arguments.rounds)
        return
    validate = [str(Path(sys.executable).parent / "evalloom"), "validate", str(large)]
    bare = [sys.executable, "-c", _BARE, str(large)]
    ratios = []
    for number in range(arguments.rounds):
        bare_s, (evalloom_s, _) = timed(bare), watched(validate)
        ratios.append(bare_s / evalloom_s)
        print(
            f"round {number + 1}: bare loop {bare_s:.2f} s, evalloom {evalloom_s:.2f} s, {ratios[-1]:.2f} x its speed"
        )
    print(f"speed against the bare loop: {median(ratios):.2f} x (median of {arguments.rounds})")
    _, large_mb = watched(validate)
    _, small_mb = watched([*validate[:-1], str(small)])
    sizes = f"{small_mb:.0f} MB at {size // 10_000_000} MB, {large_mb:.0f} MB at {size // 1_000_000} MB"
    print(f"memory of all processes: {sizes}")
    print(f"speed against jsonschema: {against_jsonschema(large, arguments.dialect, timed(validate)):.0f} x")
    start = [timed([str(Path(sys.executable).parent / "evalloom"), "--version"]) for _ in range(15)]
    plain = [timed([sys.executable, "-c", "pass"]) for _ in range(15)]
    print(f"evalloom --version: {median(start) / median(plain):.2f} x the time of python -c pass")


def compare_deep(large: Path, small: Path, rounds: int) -> None:
    """Compare time and memory of `validate --deep` with those of the bare loop over the same file."""
    deep = [str(Path(sys.executable).parent / "evalloom"), "validate", "--deep", str(large)]
    bare = [sys.executable, "-c", _BARE, str(large)]
    ratios, processor = [], []
    for number in range(rounds):
        bare_s, bare_cpu = timed_with_processor(bare)
        deep_s, deep_cpu = timed_with_processor(deep)
        ratios.append(deep_s / bare_s)
        processor.append(deep_cpu / bare_cpu)
        print(
            f"round {number + 1}: bare loop {bare_s:.2f} s ({bare_cpu:.2f} s of processor time), "
            f"--deep {deep_s:.2f} s ({deep_cpu:.2f} s), {ratios[-1]:.1f} x its time ({processor[-1]:.1f} x)"
        )
    print(f"time against the bare loop: {median(ratios):.1f} x, processor time: {median(processor):.1f} x")
    (_, large_mb), (_, small_mb) = watched(deep), watched([*deep[:-1], str(small)])
    with large.open("rb") as stream:
        cases_read = sum(1 for _ in stream)
    print(f"{cases_read:,} cases of {large.stat().st_size / 1e6:.0f} MB; ", end="")
    print(f"memory of all processes: {large_mb:.0f} MB, {small_mb:.0f} MB for a tenth of the file")


def timed_with_processor(command: list[str]) -> tuple[float, float]:
    """Seconds on the clock, and of processor time of the process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = timed(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def timed(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def watched(command: list[str]) -> tuple[float, float]:
    """Seconds, and the largest sum of resident memory of the process and all its children, in MB."""
    start, largest = time.perf_counter(), 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        largest = max(largest, sum(map(resident_kb, family(process.pid))))
        time.sleep(0.05)
    return time.perf_counter() - start, largest / 1024


def family(pid: int) -> list[int]:
    pids = [pid]
    for parent in pids:
        try:
            text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
        except OSError:
            continue
        pids += [int(child) for child in text.split()]
    return pids


def resident_kb(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")), 0)


def against_jsonschema(path: Path, dialect: str, evalloom_s: float) -> float:
    """How many times longer the jsonschema package takes for a line; it gets the first 20,000."""
    with path.open("rb") as stream:
        lines = sum(1 for _ in stream)
    sample = min(lines, 20_000)
    empty = timed([sys.executable, "-c", _JSONSCHEMA, str(path), dialect, "0"])
    seconds = timed([sys.executable, "-c", _JSONSCHEMA, str(path), dialect, str(sample)]) - empty
    return (seconds / sample) / (evalloom_s / lines)


if __name__ == "__main__":
    main()
