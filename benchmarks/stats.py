"""Measure `evalloom stats` over a batch of a million runs against bare DuckDB queries over the same Parquet columns.

.venv/bin/python benchmarks/stats.py [--runs 1000000] [--rounds 5] [--profiles 2] [--repeats 2]

The bare queries compute the same figures for the same groups: how runs ended, the share of each case and the mean of
the shares, the failing cases, and the failures by reason with their number of cases; or the distribution of the
latency. The script first checks that both sides give the same numbers. Both are whole processes that take turns; the
copy of the batch exists. Ends with 1 when a bar is not met. Both the elapsed and the processor time are compared,
because the machine may be busy.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from math import isclose
from pathlib import Path
from typing import Any

import orjson
from compare import EVALLOOM, bar, compare_costs
from environments import cache_bytecode

_MOST = 2.0
"""How many times the bare queries `evalloom stats` may take."""
_PROFILES = ("careful", "hasty")
_MEASURED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("", "pass", ("profile", "tag")),
    ("--by tag", "pass", ("tag",)),
    ("--by profile,category", "pass", ("profile", "category")),
    ("--metric latency", "latency", ("profile", "tag")),
)
"""The options of each command, with the metric and the groups that they mean."""
_BARE = """
import duckdb, glob, json, sys
path, metric, is_once, *dimensions = sys.argv[1:]
[file] = glob.glob(f'{path}/copy/runs-*.parquet')
connection = duckdb.connect()
connection.execute('SET enable_progress_bar = false')
connection.execute(f'CREATE VIEW runs AS SELECT * FROM read_parquet({file!r})')
def read(query): return connection.execute(query).fetchall()
figures = {}
for dimension in ['', *dimensions]:
    name = {'': "''", 'tag': 'unnest(tags)'}.get(dimension, dimension)
    groups = figures[dimension] = {}
    if metric == 'latency':
        for group, *numbers in read(f'''
            SELECT name, count(*), count(latency_s), avg(latency_s), min(latency_s), quantile_cont(latency_s, 0.5),
                quantile_cont(latency_s, 0.95), max(latency_s)
            FROM (SELECT {name} AS name, latency_s FROM runs) GROUP BY name'''):
            groups[group] = dict(zip(['total', 'count', 'mean', 'min', 'p50', 'p95', 'max'], numbers))
        continue
    for group, status, number in read(
        f'SELECT name, status, count(*) FROM (SELECT {name} AS name, status FROM runs) GROUP BY name, status'):
        groups.setdefault(group, {})[status] = number
    if is_once == 'True':  # each run is a case
        for group in groups.values():
            group['failing'] = group['failed'] + group['error']
            group['cases'] = group['passed'] + group['failing']
            group['pass_rate'] = group['passed'] / group['cases']
        continue
    for group, *numbers in read(f'''
        SELECT name, count(*), avg(share), var_samp(share)
        FROM (SELECT name, avg(passed::INT) AS share
            FROM (SELECT {name} AS name, number, passed FROM runs WHERE passed IS NOT NULL) GROUP BY name, number)
        GROUP BY name'''):
        groups[group]['cases'], groups[group]['pass_rate'], _ = numbers
    for group, number in read(f'''
        SELECT name, count(*)
        FROM (SELECT DISTINCT {name} AS name, number, profile FROM runs WHERE NOT passed) GROUP BY name'''):
        groups[group]['failing'] = number
if metric == 'pass':
    figures['causes'] = read('''
        SELECT step, "check", regexp_replace(coalesce(reason, error), $$'[^']*'|[0-9]+$$, '…', 'g') AS cause,
            count(*) AS failures, count(DISTINCT case_id), min(coalesce(reason, error))
        FROM runs WHERE NOT passed GROUP BY step, "check", cause ORDER BY failures DESC''')
print(json.dumps(figures))
"""


def main() -> int:
    cache_bytecode()
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--profiles", type=int, default=2, choices=(1, 2))
    options.add_argument("--repeats", type=int, default=2)
    arguments = options.parse_args()
    name = f"stats_{arguments.runs}_{arguments.profiles}_{arguments.repeats}"
    home = Path(tempfile.gettempdir()) / "evalloom-benchmarks" / name
    batch = home / ".evalloom" / "batches" / "b"
    if not home.exists():
        make(batch, arguments.runs, _PROFILES[: arguments.profiles], arguments.repeats)
    is_once = arguments.profiles == arguments.repeats == 1
    met = []
    for flags, metric, dimensions in _MEASURED:
        command = [str(EVALLOOM), "stats", "b", *flags.split()]
        bare = [sys.executable, "-c", _BARE, str(batch), metric, str(is_once), *dimensions]
        check_same(output([*command, "--json"], home), output(bare, home))
        ratios = compare_costs("evalloom stats", command, "bare queries", bare, home, arguments.rounds)
        met.append(bar(f"evalloom stats {flags}".rstrip(), ratios, _MOST))
    return 0 if all(met) else 1


def output(command: list[str], folder: Path) -> Any:
    return orjson.loads(subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout)


def check_same(own: Any, bare: Any) -> None:
    """Stop if the bare queries do not give the figures that `evalloom stats` gives."""
    causes = [(cause["count"], len(cause["cases"])) for cause in own["causes"]]
    if "causes" in bare and causes != [(cause[3], cause[4]) for cause in bare.pop("causes")]:
        sys.exit("the causes of failures differ")
    for dimension, groups in bare.items():
        own_groups = own["by"][dimension] if dimension else {"": own["total"]}
        if groups.keys() != own_groups.keys():
            sys.exit(f"the groups of {dimension} differ")
        for group, figures in groups.items():
            for name, figure in figures.items():
                if not isclose(own_groups[group][name], figure, rel_tol=1e-9):
                    sys.exit(f"{dimension} {group}: {name} is {own_groups[group][name]}, bare {figure}")


def make(batch: Path, runs: int, profiles: tuple[str, ...], repeats: int) -> None:
    """Write a batch in which most runs pass, some fail, and a few cannot be scored."""
    chance = random.Random(1)
    batch.mkdir(parents=True)
    manifest = {
        "id": batch.name,
        "created_at": "2026-01-05T08:00:00+00:00",
        "format": 2,
        "datasets": [{"path": "cases.jsonl", "dialect": "pipeline", "digest": "d"}],
        "profiles": [{"name": name, "run": name} for name in profiles],
        "finished_at": "2026-01-05T09:00:00+00:00",
    }
    (batch / "batch.json").write_bytes(orjson.dumps(manifest))
    with (batch / "runs.jsonl").open("wb") as runs_file, (batch / "verdicts.jsonl").open("wb") as verdicts_file:
        for number in range(1, runs // (len(profiles) * repeats) + 1):
            for profile in profiles:
                for repeat in range(repeats):
                    key = f"{chance.getrandbits(96):024x}"
                    days = chance.randrange(9)
                    [status] = chance.choices(("passed", "failed", "error", "unscored"), (78, 18, 1, 3))
                    error = "HTTP 503 after 2 retries [http_error]" if status == "error" else ""
                    runs_file.write(orjson.dumps(run(key, number, profile, repeat, days, error, chance)) + b"\n")
                    if not error:
                        verdicts_file.write(orjson.dumps(verdicts(key, days, status)) + b"\n")


def run(
    key: str, number: int, profile: str, repeat: int, days: int, error: str, chance: random.Random
) -> dict[str, Any]:
    question = f"How many days does the delivery of order {number} take, and who pays for it?"
    tags = [("geo", "price", "time")[number % 3], *(["long"] if number % 10 == 0 else [])]
    record = {"id": f"case-{number}", "question": question, "tags": tags, "expected_output": "the sender"}
    return {
        "key": key,
        "case_id": f"case-{number}",
        "profile": profile,
        "repeat": repeat,
        "number": number,
        "output": {"value": f"It takes {days} days, and the sender of order {number} pays."},
        "error": error,
        "started_at": "2026-01-05T08:00:00.276+00:00",
        "duration_s": round(chance.random(), 6),
        "usage": {"input_tokens": 60, "output_tokens": chance.randrange(10, 40), "cost": 0.0003, "calls": 1},
        "tags": tags,
        "dialect": "pipeline",
        "origin": {"file": "cases.jsonl", "line": number, "column": 1},
        "raw": {**record, "metadata": {"category": f"category {number % 5}"}},
    }


def verdicts(key: str, days: int, status: str) -> dict[str, Any]:
    # The text that a reason quotes is another one in almost every run.
    failed = f"expected 'the sender' in the text, got 'It takes {days} days, and {key[:8]} pays.'"
    reason = {"failed": failed, "unscored": "no judge"}.get(status, "")
    score = {"passed": 1.0, "failed": 0.0}.get(status)
    verdict = {"name": "contains", "kind": "contains", "where": "output", "status": status, "score": score}
    return {"key": key, "status": status, "score": score, "verdicts": [{**verdict, "reason": reason, "weight": 1.0}]}


if __name__ == "__main__":
    sys.exit(main())
