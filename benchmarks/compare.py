"""Measure `evalloom compare` over two big batches against a bare DuckDB query, and `batches list` over 100 batches.

.venv/bin/python benchmarks/compare.py [--runs 200000] [--rounds 5] [--changed 0.02]

The bare query joins the runs of both batches by case and profile, counts the four outcomes, and reads the columns that
a comparison needs. Both are whole processes that take turns; the copies of the batches exist. Ends with 1 when a bar
is not met. Both the elapsed and the processor time are compared, because the machine may be busy.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import orjson
from environments import cache_bytecode

EVALLOOM = Path(sys.executable).with_name("evalloom")
_MOST = 2.0
"""How many times the bare query a comparison may take."""
_MOST_LIST = 8.0
"""How many times `python -c pass` the list of 100 batches may take."""
_BARE = """
import duckdb, glob, sys
[before], [now] = (glob.glob(f'{path}/copy/runs-*.parquet') for path in sys.argv[1:])
connection = duckdb.connect()
connection.execute('SET enable_progress_bar = false')
print(connection.execute(f'''
    SELECT count(*) FILTER (b.passed AND n.passed), count(*) FILTER (b.passed AND NOT n.passed),
        count(*) FILTER (NOT b.passed AND n.passed), count(*) FILTER (NOT b.passed AND NOT n.passed),
        sum(b.score), sum(n.score), sum(b.latency_s), sum(n.latency_s), sum(b.tokens), sum(n.tokens), sum(b.cost),
        sum(n.cost), count(*) FILTER (b.status = n.status), count(*) FILTER (b.tags = n.tags)
    FROM read_parquet({before!r}) b JOIN read_parquet({now!r}) n USING (profile, case_id, number, repeat)
''').fetchone())
"""


class Cost(NamedTuple):
    """What a process took."""

    elapsed: float
    processor: float
    memory: float
    """The peak in MB."""


def main() -> int:
    cache_bytecode()
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=200_000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--changed", type=float, default=0.02, help="the share of the cases whose result differs")
    arguments = options.parse_args()
    name = f"compare_{arguments.runs}_{arguments.changed}"
    home = Path(tempfile.gettempdir()) / "evalloom-benchmarks" / name
    batches = home / ".evalloom" / "batches"
    if not home.exists():
        make(batches / "before", arguments.runs, 0)
        make(batches / "now", arguments.runs, arguments.changed)
    compare = [str(EVALLOOM), "compare", "now", "--against", "before", "--json"]
    bare = [sys.executable, "-c", _BARE, str(batches / "before"), str(batches / "now")]
    for batch in (batches / "before", batches / "now"):
        shutil.rmtree(batch / "copy", ignore_errors=True)
    show("the first comparison", cost(compare, home))
    # Where the comparison has built none: the bare query reads them, too.
    cost([str(EVALLOOM), "sql", "select count(*) from runs"], home)
    show("the second comparison", cost(compare, home))
    ratios = compare_costs("evalloom compare", compare, "bare query", bare, home, arguments.rounds)
    for number in range(100):
        if not (home / "many" / ".evalloom" / "batches" / f"b{number:03}").exists():
            make(home / "many" / ".evalloom" / "batches" / f"b{number:03}", 20, 0)
    listing, nothing = [str(EVALLOOM), "batches", "list"], [sys.executable, "-c", "pass"]
    lists = compare_costs("batches list, 100", listing, "python -c pass", nothing, home / "many", arguments.rounds)
    met = [bar("evalloom compare", ratios, _MOST), bar("evalloom batches list, 100 batches", lists, _MOST_LIST)]
    return 0 if all(met) else 1


def compare_costs(
    title: str, command: list[str], bare_title: str, bare: list[str], folder: Path, rounds: int
) -> tuple[float, float]:
    """Run two commands in turn; return the median ratios of their elapsed and processor times."""
    ratios = []
    for _ in range(rounds):
        bare_cost, own = cost(bare, folder), cost(command, folder)
        show(bare_title, bare_cost)
        show(title, own)
        ratios.append((own.elapsed / bare_cost.elapsed, own.processor / bare_cost.processor))
    elapsed, processor = zip(*ratios, strict=True)
    return median(elapsed), median(processor)


def bar(title: str, ratios: tuple[float, float], most: float) -> bool:
    """Print the ratios of a command; both must be within its bar."""
    verdict = "met" if max(ratios) <= most else "NOT MET"
    print(f"{title}: {ratios[0]:.2f} x elapsed, {ratios[1]:.2f} x processor time, at most {most:g}: {verdict}")
    return max(ratios) <= most


def show(title: str, cost: Cost) -> None:
    print(f"  {title:24} {cost.elapsed:7.2f} s, processor {cost.processor:7.2f} s, {cost.memory:6.0f} MB", flush=True)


def cost(command: list[str], folder: Path) -> Cost:
    """Run a command as a process of its own; 1 is a regression, and more means that it did not do its work."""
    start = time.perf_counter()
    with open(os.devnull, "wb") as nothing:
        process = subprocess.Popen(command, cwd=folder, stdout=nothing, stderr=nothing)
        _, status, usage = os.wait4(process.pid, 0)
    elapsed = time.perf_counter() - start
    process.returncode = code = os.waitstatus_to_exitcode(status)
    if code not in (0, 1):
        sys.exit(f"{' '.join(command)}: exit code {code}")
    return Cost(elapsed, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def make(batch: Path, runs: int, changed: float) -> None:
    """Write a batch of one profile in which four of five cases pass, but for a share that turned round."""
    chance = random.Random(2 if changed else 1)
    batch.mkdir(parents=True)
    manifest = {
        "id": batch.name,
        "created_at": f"2026-01-0{5 + bool(changed)}T08:00:00+00:00",
        "format": 2,
        "datasets": [{"path": "cases.jsonl", "dialect": "pipeline", "digest": "d"}],
        "profiles": [{"name": "careful", "run": "careful"}],
        "finished_at": "2026-01-07T09:00:00+00:00",
    }
    (batch / "batch.json").write_bytes(orjson.dumps(manifest))
    with (batch / "runs.jsonl").open("wb") as runs_file, (batch / "verdicts.jsonl").open("wb") as verdicts_file:
        for number in range(1, runs + 1):
            key = f"{chance.getrandbits(96):024x}"
            is_passed = (number % 5 > 0) is not (chance.random() < changed)
            runs_file.write(orjson.dumps(run(key, number, chance)) + b"\n")
            verdicts_file.write(orjson.dumps(verdicts(key, is_passed)) + b"\n")


def run(key: str, number: int, chance: random.Random) -> dict[str, Any]:
    question = f"How many days does the delivery of order {number} take, and who pays for it?"
    answer = f"It takes {chance.randrange(9)} days, and the sender of order {number} pays."
    usage = {"input_tokens": 60, "output_tokens": chance.randrange(10, 40), "cost": 0.0003, "calls": 1}
    return {
        "key": key,
        "case_id": f"case-{number}",
        "profile": "careful",
        "number": number,
        "output": {"value": answer},
        "started_at": "2026-01-05T08:00:00.276+00:00",
        "duration_s": round(chance.random(), 6),
        "usage": usage,
        "tags": [("geo", "price", "time")[number % 3]],
        "dialect": "pipeline",
        "origin": {"file": "cases.jsonl", "line": number, "column": 1},
        "raw": {"id": f"case-{number}", "question": question, "tags": ["geo"], "expected_output": "the sender"},
    }


def verdicts(key: str, is_passed: bool) -> dict[str, Any]:
    status, score = ("passed", 1.0) if is_passed else ("failed", 0.0)
    verdict = {"name": "contains", "kind": "contains", "where": "output", "status": status, "score": score}
    reason = "" if is_passed else "expected 'the sender' in the text"
    return {"key": key, "status": status, "score": score, "verdicts": [{**verdict, "reason": reason, "weight": 1.0}]}


if __name__ == "__main__":
    sys.exit(main())
