"""Measure queries over a batch of a million runs.

Building the Parquet copy is compared with a loop that only decodes the log with orjson, a grouped query through the
views with a bare DuckDB query over the same Parquet columns, and 100 small batches are opened at once.

.venv/bin/python benchmarks/query.py [--runs 1000000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import orjson

_MOST = 2
"""How many times the bare query a query through the views may take."""
_TIMED = """
import sys, time
{setup}
start, processor_start = time.perf_counter(), time.process_time()
{work}
print(time.perf_counter() - start, time.process_time() - processor_start)
"""
_OPEN = (
    "from evalloom import catalog; from evalloom.analysis.views import open_views; loaded = catalog.load();"
    "loaded.formats"
)
_DECODE = (
    "import orjson",
    "for name in ('runs', 'verdicts'):\n"
    "    with open(f'{sys.argv[1]}/{name}.jsonl', 'rb') as stream:\n"
    "        for line in stream: orjson.loads(line)",
)
_BUILD = (_OPEN, "open_views(sys.argv[1], loaded).close()")
_QUERY = """SELECT profile, tags, count(*), count(*) FILTER (passed), avg(passed::INT), avg(score), sum(cost),
    sum(tokens), quantile_cont(latency_s, 0.95) FROM {table} GROUP BY ALL ORDER BY ALL"""
_VIEWS = (f"{_OPEN}; views = open_views(sys.argv[1], loaded)", f'views.rows("""{_QUERY.format(table="runs")}""")')
_BARE = (
    "import duckdb, glob; connection = duckdb.connect(); [file] = glob.glob(f'{sys.argv[1]}/copy/runs-*.parquet');"
    "connection.execute('SET enable_progress_bar = false')",
    f'connection.execute(f"""{_QUERY.format(table="read_parquet({file!r})")}""").fetchall()',
)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=3)
    arguments = options.parse_args()
    folder = Path(tempfile.gettempdir()) / "evalloom-benchmarks" / f"query_{arguments.runs}"
    if not folder.exists():
        make(folder / "batches" / "b", arguments.runs)
        for number in range(100):
            make(folder / "many" / f"b{number:03}", 100)
    batch, many = folder / "batches" / "b", folder / "many"
    builds, processor, ratios = [], [], []
    for number in range(arguments.rounds):
        shutil.rmtree(batch / "copy", ignore_errors=True)
        decode, build = timed(_DECODE, batch), timed(_BUILD, batch)
        again = timed(_BUILD, batch)
        bare, views = timed(_BARE, batch), timed(_VIEWS, batch)
        builds.append(build.wall / decode.wall)
        processor.append(build.processor / decode.processor)
        ratios.append(views.wall / bare.wall)
        built = f"decoding {decode.wall:.1f} s, building {build.wall:.1f} s, opening again {again.wall:.3f} s"
        queried = f"bare query {bare.wall:.3f} s, through the views {views.wall:.3f} s"
        print(f"round {number + 1}: {built}, {queried}")
    for copy in many.glob("*/copy"):
        shutil.rmtree(copy)
    first, then = timed(_BUILD, many), timed(_BUILD, many)
    size = sum(path.stat().st_size for path in batch.glob("*.jsonl"))
    copied = sum(path.stat().st_size for path in batch.glob("copy/*"))
    print(f"building the copy: {median(builds):.1f} x a loop that only decodes; {copied / size:.0%} of the log's size")
    print(f"  in processor time: {median(processor):.1f} x; on a busy machine this figure is the steadier one")
    print(f"a grouped query through the views: {median(ratios):.2f} x a bare query over the copy (at most {_MOST})")
    print(f"opening 100 batches of 100 runs: {first.wall:.2f} s with their copies to build, {then.wall:.3f} s without")
    return 0 if median(ratios) <= _MOST else 1


class Seconds(NamedTuple):
    """The duration of some work, and the processor time that it took on all cores."""

    wall: float
    processor: float


def timed(work: tuple[str, str], folder: Path) -> Seconds:
    """Run some work in a new process; its time does not include the start of Python."""
    code = _TIMED.format(setup=work[0], work=work[1])
    process = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    return Seconds(*map(float, process.stdout.split()))


def make(batch: Path, runs: int) -> None:
    """Write a batch of two profiles, each with two repeats."""
    chance = random.Random(1)
    batch.mkdir(parents=True)
    manifest = {
        "id": batch.name,
        "created_at": "2026-01-05T08:00:00+00:00",
        "format": 2,
        "datasets": [{"path": "cases.jsonl", "dialect": "pipeline", "digest": "d"}],
        "profiles": [{"name": name, "run": name} for name in ("careful", "hasty")],
        "finished_at": "2026-01-05T09:00:00+00:00",
    }
    (batch / "batch.json").write_bytes(orjson.dumps(manifest))
    with (batch / "runs.jsonl").open("wb") as runs_file, (batch / "verdicts.jsonl").open("wb") as verdicts_file:
        for number in range(1, runs // 4 + 1):
            for profile in ("careful", "hasty"):
                for repeat in range(2):
                    key = f"{chance.getrandbits(96):024x}"
                    runs_file.write(orjson.dumps(run(key, number, profile, repeat, chance)) + b"\n")
                    verdicts_file.write(orjson.dumps(verdicts(key, chance)) + b"\n")


def run(key: str, number: int, profile: str, repeat: int, chance: random.Random) -> dict[str, Any]:
    question = f"How many days does the delivery of order {number} take, and who pays for it?"
    answer = f"It takes {chance.randrange(9)} days, and the sender of order {number} pays."
    usage = {"input_tokens": 60, "output_tokens": 20, "cost": 0.0003, "calls": 1}
    return {
        "key": key,
        "case_id": f"case-{number}",
        "profile": profile,
        "repeat": repeat,
        "number": number,
        "output": {"value": answer},
        "started_at": "2026-01-05T08:00:00.276+00:00",
        "duration_s": round(chance.random(), 6),
        "usage": usage,
        "trace": [
            {
                "type": "llm",
                "llm": profile,
                "request": {"messages": [{"role": "user", "content": f"Answer in one sentence. {question}"}]},
                "duration_s": 0.4,
                "response": {"text": answer, "usage": usage, "stop": "stop"},
            }
        ],
        "tags": [("geo", "price", "time")[number % 3]],
        "dialect": "pipeline",
        "origin": {"file": "cases.jsonl", "line": number, "column": 1},
        "raw": {"id": f"case-{number}", "question": question, "tags": ["geo"], "expected_output": answer},
    }


def verdicts(key: str, chance: random.Random) -> dict[str, Any]:
    status = "passed" if chance.random() < 0.8 else "failed"
    score = float(status == "passed")
    verdict = {"name": "contains", "kind": "contains", "where": "output", "status": status, "score": score}
    return {"key": key, "status": status, "score": score, "verdicts": [{**verdict, "reason": "", "weight": 1.0}]}


if __name__ == "__main__":
    sys.exit(main())
