"""Measure time and memory of `evalloom validate` against a bare decoding loop.

.venv/bin/python benchmarks/validate.py [--megabytes 500] [--dialect rag] [--rounds 3]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import cases

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
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--megabytes", type=int, default=500)
    options.add_argument("--dialect", choices=list(cases.MAKERS), default="rag")
    options.add_argument("--rounds", type=int, default=3)
    arguments = options.parse_args()
    folder = Path(tempfile.gettempdir()) / "evalloom-benchmarks"
    folder.mkdir(exist_ok=True)
    size = arguments.megabytes * 1_000_000
    large = cases.make(folder / f"{arguments.dialect}_{arguments.megabytes}.jsonl", arguments.dialect, size)
    small = cases.make(folder / f"{arguments.dialect}_{arguments.megabytes // 10}.jsonl", arguments.dialect, size // 10)
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
