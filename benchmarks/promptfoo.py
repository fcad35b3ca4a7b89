"""`evalloom run` of a promptfoo config, against the same cases in evalloom's own format, and with JavaScript asserts.

    python benchmarks/promptfoo.py [--cases N] [--rounds N] [--server PROGRAM]

Every call is a whole command against a mock server that answers at once. Calls alternate, and the figures are medians
over the rounds. Exits with 1 if a config takes more than 1.2 times as long as our own format, or if JavaScript asserts
take more than 2 seconds more per 10,000.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from contest import serving
from environments import cache_bytecode

PROMPT = "Answer {{question}} please"


def write(folder: Path, cases: int) -> None:
    """Write the same cases in three forms: our own, a config with a file of tests, and the same with JavaScript."""
    config: dict[str, Any] = {"prompts": [PROMPT], "providers": [{"id": "openai:chat:mock", "config": {"seed": 1}}]}
    own = (folder / "own.jsonl").open("w")
    plain = (folder / "plain.jsonl").open("w")
    code = (folder / "code.jsonl").open("w")
    with own, plain, code:
        for number in range(cases):
            question = f"question {number}"
            record = {"id": f"c{number}", "version": "1.0", "inputs": {"question": question}}
            own.write(json.dumps({**record, "expected_outputs": {"output": "contains:ANS"}}) + "\n")
            test = {"vars": {"question": question}}
            plain.write(json.dumps({**test, "assert": [{"type": "contains", "value": "ANS"}]}) + "\n")
            check = {"type": "javascript", "value": "output.includes('ANS') && output.length < 500"}
            code.write(json.dumps({**test, "assert": [check]}) + "\n")
    (folder / "prompt.md").write_text(PROMPT)
    for name in ("plain", "code"):
        (folder / f"{name}.yaml").write_text(json.dumps({**config, "tests": f"file://{name}.jsonl"}))


def seconds(folder: Path, url: str, *words: str) -> float:
    """Run a command in a fresh folder of batches, and return its elapsed time."""
    environment = {**os.environ, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none", "OPENAI_MODEL": "mock"}
    command = [sys.executable, "-m", "evalloom", "run", *words, "--no-cache", "--json", "-j", "64"]
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    elapsed = time.perf_counter() - start
    summary = json.loads(done.stdout)
    if summary["passed"] != summary["total"]:
        raise SystemExit(f"{words}: expected that every case passes, got {done.stdout[:500]}{done.stderr[:500]}")
    return elapsed


def main() -> int:
    cache_bytecode()
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--server", type=Path)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(serving(options.server))
        write(folder, options.cases)
        calls = {
            "own": ("own.jsonl", "--target", "prompt:prompt.md"),
            "config": ("plain.yaml",),
            "javascript": ("code.yaml",),
        }
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(options.rounds):
            for name, words in calls.items():
                times[name].append(seconds(folder, url, *words))
    ratio = statistics.median(mine / own for mine, own in zip(times["config"], times["own"], strict=True))
    more = statistics.median(code - mine for code, mine in zip(times["javascript"], times["config"], strict=True))
    more *= 10_000 / options.cases
    print(f"own format                          {statistics.median(times['own']):.2f} s")
    print(f"promptfoo config, one contains      {ratio:.2f} x   (at most 1.2)")
    print(f"JavaScript instead, per 10,000      {more:+.2f} s  (at most 2)")
    return int(ratio > 1.2 or more > 2)


if __name__ == "__main__":
    sys.exit(main())
