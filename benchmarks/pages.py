"""Measure pages over a batch of a million runs, and what a browser loads for one.

A page of 50 runs, filtered and sorted, is compared with a bare DuckDB query for the same rows and the same columns of
the same Parquet files, in turns. The list of 1,000
batches is timed, and the weight of a table and of a run is what a browser transfers when it has nothing in its cache.

.venv/bin/python benchmarks/pages.py [--runs 1000000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import orjson
from environments import cache_bytecode
from query import run as run_record

_MOST = 3
"""How many times the bare query a page may take."""
_LIST_MS, _TABLE_KB, _RUN_KB = 100, 100, 60
_BATCH = "20260105-080000-pages0000"
_COLUMNS = """key, case_id, number, profile, repeat, status, "check", reason, step, score, latency_s, cost, tokens,
    model, runs.tags, output, input, expected"""
_PLAIN = f"""
    SELECT {_COLUMNS}, (SELECT count(*) FROM {{runs}} WHERE {{where}})
    FROM (SELECT * FROM {{runs}} WHERE {{where}} ORDER BY {{order}} LIMIT 50 OFFSET {{offset}}) AS runs
    JOIN {{cases}} AS cases USING (number, case_id) ORDER BY {{order}}"""
_GROUPED = f"""
    SELECT {_COLUMNS}, (SELECT count(*) FROM (SELECT 1 FROM {{runs}} WHERE {{where}} GROUP BY number, case_id, profile))
    FROM (SELECT arg_min(key, repeat) AS key, max(latency_s) AS slowest, number, case_id FROM {{runs}} WHERE {{where}}
        GROUP BY number, case_id, profile ORDER BY {{order}} LIMIT 50 OFFSET {{offset}})
    JOIN {{runs}} AS runs USING (key, number, case_id)
    JOIN {{cases}} AS cases USING (number, case_id) ORDER BY {{order}}"""
_CASES = {
    "failed cases, one line for their repeats": (
        "status=failed&tag=geo&sort=-latency",
        "status = 'failed' AND list_contains(tags, 'geo')",
        "slowest DESC NULLS LAST, number",
    ),
    "failed runs, slowest first": (
        "rows=runs&status=failed&tag=geo&sort=-latency",
        "status = 'failed' AND list_contains(tags, 'geo')",
        "latency_s DESC NULLS LAST, number",
    ),
    "one profile, page 200": (
        "rows=runs&profile=hasty&sort=-latency&page=200",
        "profile = 'hasty'",
        "latency_s DESC NULLS LAST, number",
    ),
    "search": (
        "rows=runs&q=order+77&sort=number",
        """contains(lower(case_id), 'order 77') OR contains(lower(reason), 'order 77')
            OR contains(lower(output::VARCHAR), 'order 77') OR (number, case_id) IN (
            SELECT (number, case_id) FROM {cases} WHERE contains(lower(description), 'order 77')
            OR contains(lower(input::VARCHAR), 'order 77')
            OR contains(lower(expected::VARCHAR), 'order 77'))""",
        "number, profile, repeat",
    ),
}
"""The queries of the page, and the bare conditions and orders that give the same rows."""


def main() -> int:
    cache_bytecode()
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=5)
    arguments = options.parse_args()
    folder = Path(tempfile.gettempdir()) / "evalloom-benchmarks" / f"pages_{arguments.runs}"
    if not folder.exists():
        make(folder / ".evalloom" / "batches" / _BATCH, arguments.runs)
        with serving(folder) as url:
            start = time.perf_counter()
            fetch(f"{url}/b/{_BATCH}")
            print(f"the first page, with the copy to build: {time.perf_counter() - start:.1f} s")
    is_good = True
    with serving(folder) as url:
        start = time.perf_counter()
        fetch(f"{url}/b/{_BATCH}")
        print(f"the first page after a restart of the server: {time.perf_counter() - start:.2f} s")
        for name, case in _CASES.items():
            is_good &= compare(name, case, url, folder, arguments.rounds)
        is_good &= weigh("table", f"{url}/b/{_BATCH}", _TABLE_KB)
        is_good &= weigh("run", f"{url}/b/{_BATCH}/r/{some_run(url)}", _RUN_KB)
    return 0 if list_batches(folder.parent / "pages_list", arguments.rounds) and is_good else 1


def compare(name: str, case: tuple[str, str, str], url: str, folder: Path, rounds: int) -> bool:
    """Time a page and a bare query in turns."""
    query, where, order = case
    connection = duckdb.connect()
    [runs], [cases] = (
        list((folder / ".evalloom").glob(f"batches/*/copy/{table}-*.parquet")) for table in ("runs", "cases")
    )
    offset = 50 * (int(query.partition("page=")[2] or 1) - 1)
    names = {"runs": f"read_parquet('{runs}')", "cases": f"read_parquet('{cases}')"}
    bare = (_PLAIN if "rows=runs" in query else _GROUPED).format(
        where=where.format(**names), order=order, offset=offset, **names
    )
    pages, bares = [], []
    for number in range(rounds + 1):
        start = time.perf_counter()
        rows = connection.execute(bare).fetchall()
        middle = time.perf_counter()
        # A filter that was not asked before, so that its count is not known yet.
        page = fetch(f"{url}/b/{_BATCH}?{query}&where=number+>+-{number + 1}")
        end = time.perf_counter()
        assert len(rows) == 50 and all(row[0].encode() in page for row in rows), "the page has other rows"
        if number:  # the first one reads the files
            bares.append(middle - start)
            pages.append(end - middle)
    ratio = median(page / bare for page, bare in zip(pages, bares, strict=True))
    print(f"{name}: bare query {median(bares):.3f} s, page {median(pages):.3f} s: {ratio:.2f} x (at most {_MOST})")
    return ratio <= _MOST


def weigh(name: str, url: str, most: int) -> bool:
    """Add up what a browser transfers for a page."""
    page, size = fetch_compressed(url)
    for path in re.findall(r'(?:src|href)="(/static/[^"]+)"', page.decode()):
        size += fetch_compressed(url.split("/b/")[0] + path)[1]
    print(f"weight of a {name} page: {size / 1000:.1f} kB with everything (at most {most})")
    return size <= most * 1000


def list_batches(folder: Path, rounds: int) -> bool:
    """Time the list of 1,000 batches."""
    if not folder.exists():
        for number in range(1_000):
            make(folder / ".evalloom" / "batches" / f"20260105-{number:06}-list00000", 4)
    with serving(folder) as url:
        fetch(url)
        times = []
        for _ in range(max(rounds, 5)):
            start = time.perf_counter()
            fetch(url)
            times.append(time.perf_counter() - start)
    print(f"the list of 1,000 batches: {1000 * median(times):.0f} ms (at most {_LIST_MS})")
    return median(times) <= _LIST_MS / 1000


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a folder for the time of a block."""
    command = [sys.executable, "-m", "evalloom", "view", "--no-browser", "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    found = re.search(r"http://[\w.]+:\d+", process.stderr.readline())
    assert found
    try:
        yield found[0]
    finally:
        process.terminate()
        process.communicate()


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url.replace(" ", "+").replace(">", "%3E"), timeout=1_000) as response:
        body: bytes = response.read()
    return body


def fetch_compressed(url: str) -> tuple[bytes, int]:
    """Return a file, and its size as it is transferred, with its headers."""
    import gzip

    request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=100) as response:
        body: bytes = response.read()
        size = len(body) + len(str(response.headers))
        return gzip.decompress(body) if response.headers["content-encoding"] == "gzip" else body, size


def some_run(url: str) -> str:
    lines: list[Any] = orjson.loads(fetch(f"{url}/api/b/{_BATCH}?status=failed"))["list"]["lines"]
    return str(lines[0]["run"])


def make(batch: Path, runs: int) -> None:
    """Write a batch of two profiles, each with two repeats, in which a fifth of the runs fail."""
    chance = random.Random(1)
    batch.mkdir(parents=True)
    manifest = {
        "id": batch.name,
        "created_at": "2026-01-05T08:00:00+00:00",
        "format": 2,
        "datasets": [{"path": "cases.jsonl", "dialect": "pipeline", "digest": "d"}],
        "target": "prompt:prompt.md",
        "profiles": [{"name": name, "run": name} for name in ("careful", "hasty")],
        "finished_at": "2026-01-05T09:00:00+00:00",
        "summary": {"total": runs, "passed": runs, "pass_rate": 1.0, "pass_rate_low": 0.9, "pass_rate_high": 1.0},
    }
    (batch / "batch.json").write_bytes(orjson.dumps(manifest))
    with (batch / "runs.jsonl").open("wb") as runs_file, (batch / "verdicts.jsonl").open("wb") as verdicts_file:
        for number in range(1, runs // 4 + 1):
            for profile in ("careful", "hasty"):
                for repeat in range(2):
                    key = f"{chance.getrandbits(96):024x}"
                    record = run_record(key, number, profile, repeat, chance)
                    runs_file.write(orjson.dumps(record) + b"\n")
                    verdicts_file.write(orjson.dumps(_verdicts(key, record, chance)) + b"\n")


def _verdicts(key: str, record: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    status = "passed" if chance.random() < 0.8 else "failed"
    wanted = chance.choice(["days", "the sender", "tomorrow"])
    reason = f"expected '{wanted}' in {record['output']['value']!r}" if status == "failed" else ""
    score = float(status == "passed")
    verdict = {"name": "contains", "kind": "contains", "where": "output", "status": status, "score": score}
    return {"key": key, "status": status, "score": score, "verdicts": [{**verdict, "reason": reason, "weight": 1.0}]}


if __name__ == "__main__":
    sys.exit(main())
