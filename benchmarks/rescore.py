"""Measure `evalloom score`, which scores a stored batch again, against reading and writing the same JSON.

.venv/bin/python benchmarks/rescore.py [--runs 100000] [--rounds 7]

Each run has three checks. The bare loop decodes every line of the runs and of their verdicts with orjson, encodes it
and writes it. Both are whole processes, in turn, also in processor time, which the load of a machine changes less.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from environments import cache_bytecode

_MOST = 2.0
_BARE = """
import sys, orjson
for name in sys.argv[2:]:
    with open(f"{sys.argv[1]}/{name}", "rb") as lines, open(f"{sys.argv[1]}/{name}.bare", "wb") as copy:
        for line in lines:
            copy.write(orjson.dumps(orjson.loads(line)) + b"\\n")
"""
_EVALLOOM = Path(sys.executable).parent / "evalloom"


def main() -> int:
    cache_bytecode()
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=7)
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        batch = make(folder, arguments.runs)
        bare = [sys.executable, "-c", _BARE, str(batch), "runs.jsonl", "verdicts.jsonl"]
        score = [str(_EVALLOOM), "score", "latest", "--json"]
        seconds, processor = [], []
        for number in range(arguments.rounds):
            bare_s, bare_cpu = timed(bare, folder)
            score_s, score_cpu = timed(score, folder)
            seconds.append(score_s / bare_s)
            processor.append(score_cpu / bare_cpu)
            print(
                f"round {number + 1}: bare {bare_s:.2f} s ({bare_cpu:.2f} s of processor time), "
                f"score {score_s:.2f} s ({score_cpu:.2f} s)",
                flush=True,
            )
    print(f"score: {median(seconds):.2f} x the time of the bare loop, {median(processor):.2f} x its processor time")
    print(f"  (at most {_MOST:g}; {arguments.runs:,} runs, medians of {arguments.rounds} rounds)")
    return int(median(seconds) > _MOST)


def make(folder: Path, runs: int) -> Path:
    """Run some cases with an llm that repeats its prompt; one check in four fails."""
    with (folder / "cases.jsonl").open("w", encoding="utf-8") as stream:
        for number in range(runs):
            checks = [
                {"kind": "contains", "expected": f"parcel {number}"},
                {"kind": "regex", "expected": r"\d+ (days|weeks)"},
                {"kind": "not_contains", "expected": "cannot" if number % 4 else "days"},
            ]
            text = f"How many days does parcel {number} take to {number % 97} places? 第{number % 31}件包裹"
            stream.write(json.dumps({"id": f"case-{number}", "text": text, "checks": checks}) + "\n")
    (folder / "prompt.md").write_text("Answer: {{text}} Answer in 3 days or 2 weeks.")
    command = ["run", "cases.jsonl", "--target", "prompt:prompt.md", "--profile", "echo", "--no-cache", "--json"]
    ran = subprocess.run([str(_EVALLOOM), *command], cwd=folder, capture_output=True, text=True)
    if ran.returncode not in (0, 1):
        raise SystemExit(ran.stderr)
    return max((folder / ".evalloom" / "batches").iterdir())


def timed(command: list[str], folder: Path) -> tuple[float, float]:
    """Seconds on the clock, and of processor time of the process and its children."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode not in (0, 1):
        raise SystemExit(ended.stderr)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
