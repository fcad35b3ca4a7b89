"""Measure the start-up time of commands against `python -c pass`.

.venv/bin/python benchmarks/startup.py [--pairs 15]

Ends with 1 when a bar is not met. Run it when nothing else runs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from environments import cache_bytecode

ROOT = Path(__file__).resolve().parent.parent
EVALLOOM = Path(sys.executable).with_name("evalloom")
BATCHES = 10
COMMANDS = {
    "evalloom run, five cases": (["run"], 15.0),
    "evalloom validate, five cases": (["validate", "cases.jsonl"], 8.0),
    "evalloom batches list, ten batches": (["batches", "list"], 8.0),
    "evalloom --help": (["--help"], 4.0),
}


def main() -> int:
    cache_bytecode()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=15)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "first")
        shutil.copytree(ROOT / "examples" / "first", folder, ignore=shutil.ignore_patterns(".evalloom"))
        for _ in range(BATCHES):
            seconds([str(EVALLOOM), "run"], folder)
        met = [measure(title, arguments, bar, pairs, folder) for title, (arguments, bar) in COMMANDS.items()]
    return 0 if all(met) else 1


def measure(title: str, arguments: list[str], bar: float, pairs: int, folder: Path) -> bool:
    """Print the median ratio of one command, and say whether it is within its bar."""
    seconds([str(EVALLOOM), *arguments], folder)
    ratios, times = [], []
    for _ in range(pairs):
        bare = seconds([sys.executable, "-c", "pass"], folder)
        times.append(seconds([str(EVALLOOM), *arguments], folder))
        ratios.append(times[-1] / bare)
    ratio = median(ratios)
    verdict = "met" if ratio <= bar else "NOT MET"
    print(f"{title:36} {ratio:5.1f} x   {median(times) * 1000:4.0f} ms   at most {bar:g}: {verdict}", flush=True)
    return ratio <= bar


def seconds(command: list[str], folder: Path) -> float:
    start = time.perf_counter()
    env = {**os.environ, "NO_COLOR": "1"}
    # A failed case is exit code 1; anything above means that the command did not do its work.
    code = subprocess.run(command, cwd=folder, env=env, capture_output=True).returncode
    if code > 1:
        sys.exit(f"{' '.join(command)}: exit code {code}")
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
