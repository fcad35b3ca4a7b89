"""Calls of JavaScript checks, against a bare loop over the same engine in this process.

    python benchmarks/javascript.py [CALLS]

The bare loop compiles the code once and keeps one context: it has no isolation and no limits. Exits with 1 if 10,000
checks take more than 2 seconds.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import quickjs

from evalloom.core.javascript import Code, SlowJavaScript, call, call_quickly, close

ROUNDS = 5
OUTPUT = "The capital of France is Paris. " * 8
CONTEXT = {"vars": {"question": "What is the capital of France?" * 4}, "prompt": "Answer: " + "x" * 400}


def bare(source: str, calls: int) -> float:
    context = quickjs.Context()
    context.eval(
        f"function check(text) {{ const {{output, context}} = JSON.parse(text); return JSON.stringify({source}) }}"
    )
    check = context.get("check")
    start = time.perf_counter()
    for _ in range(calls):
        json.loads(check(json.dumps({"output": OUTPUT, "context": CONTEXT})))
    return time.perf_counter() - start


def ours(code: Code, calls: int) -> float:
    names: dict[str, Any] = {"output": OUTPUT, "context": CONTEXT}
    call(code, names)
    start = time.perf_counter()
    for _ in range(calls):
        try:
            call_quickly(code, names)
        except SlowJavaScript:
            # Only on a machine that does something else.
            call(code, names)
    return time.perf_counter() - start


def main(calls: int) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "most.json").write_text('{"most": 1000}')
        file = Code(
            "module.exports = (output) => output.length < require('./most.json').most", f"{folder}/check.js", "", folder
        )
        ways: list[tuple[str, Callable[[], float]]] = [
            ("bare loop", lambda: bare("output.length < 1000", calls)),
            ("an expression", lambda: ours(Code("output.length < 1000"), calls)),
            ("assigns to a global name", lambda: ours(Code("found = output.length; return found < 1000"), calls)),
            ("an async function", lambda: ours(Code("async (output) => output.length < 1000"), calls)),
            ("a file that requires JSON", lambda: ours(file, calls)),
        ]
        times: dict[str, list[float]] = {name: [] for name, _ in ways}
        for _ in range(ROUNDS):
            for name, way in ways:
                times[name].append(way())
    close()
    reference = statistics.median(times["bare loop"])
    print(f"{'':28} {'s / 10,000':>10} {'best':>7} {'ratio':>7}")
    for name, rounds in times.items():
        seconds = statistics.median(rounds)
        print(
            f"{name:28} {seconds * 10_000 / calls:10.2f} {min(rounds) * 10_000 / calls:7.2f} {seconds / reference:7.1f}"
        )
    if min(times["an expression"]) * 10_000 / calls > 2:
        sys.exit("10,000 checks took more than 2 s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
