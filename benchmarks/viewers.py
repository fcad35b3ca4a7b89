"""Measure pages in a browser against Datasette, and what live viewers cost the batch that they watch.

The same 10,000 runs are a batch of evalloom and a table of Datasette. Chromium opens both in turns, with an empty
cache, and says when there is content. Then a batch runs in turns with nobody and with fifty viewers of its progress.

.venv/bin/python benchmarks/viewers.py [--rounds 7]
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import environments
from playwright.sync_api import sync_playwright

_CASES = 10_000
_VIEWERS = 50
_NOISE = 1.05
"""How much longer a watched batch may take; two halves of the same measurements differ by about as much."""
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_TARGET = "def answer(q):\n    return q\n"


def main() -> int:
    """Print the measurements; return 1 if a page is slower than Datasette or viewers slow a batch."""
    environments.cache_bytecode()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder)
        run(folder)
        is_quick = compare_with_datasette(folder, rounds)
        is_free = watch(folder, rounds)
    return 0 if is_quick and is_free else 1


def make(folder: Path) -> None:
    """Write a suite of which every tenth case fails."""
    (folder / "model.py").write_text(_TARGET)
    cases = [
        {"id": f"c{n}", "q": f"Question {n}: 多少？", "expected_output": f"Question {n + (n % 10 == 0)}: 多少？"}
        for n in range(_CASES)
    ]
    (folder / "cases.jsonl").write_text("".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases))
    (folder / "evalloom.yaml").write_text("datasets: [cases.jsonl]\ntarget: python:model:answer\n")


def run(folder: Path) -> float:
    """Run the suite, and return the time."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "evalloom", "run"], cwd=folder, capture_output=True)
    return time.perf_counter() - start


def compare_with_datasette(folder: Path, rounds: int) -> bool:
    """Open the table of runs and that of Datasette in turns; of ours, always a page that was not shown before."""
    python = environments.python("datasette", "datasette==0.65.5")
    database = folder / "runs.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE runs (id TEXT, q TEXT, output TEXT, passed INT, latency_ms REAL)")
        rows = [
            (f"c{n}", f"Question {n}: 多少？", f"Question {n}: 多少？", int(n % 10 != 0), n / 7) for n in range(_CASES)
        ]
        connection.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", rows)
    other = [
        str(python),
        "-m",
        "datasette",
        "serve",
        str(database),
        "--port",
        "8497",
        "--setting",
        "num_sql_threads",
        "2",
    ]
    paints: dict[str, list[float]] = {"evalloom": [], "Datasette": []}
    with serving(folder, sys.executable, "-m", "evalloom", "serve", "--port", "8496"), serving(folder, *other):
        pages = {
            "evalloom": "http://127.0.0.1:8496/b/latest?status=failed&sort=-latency",
            "Datasette": "http://127.0.0.1:8497/runs/runs?passed=0&_sort_desc=latency_ms",
        }
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=_FLAGS)
            for number in range(rounds + 1):
                for name, url in pages.items():
                    # Ours keeps the rows of a page that was shown; each is another one here.
                    paints[name].append(first_paint(browser, f"{url}&page={number + 1}" if name == "evalloom" else url))
            browser.close()
    # The first time, both read their data.
    ours, theirs = (median(times[1:]) for times in paints.values())
    print(
        f"content of 50 failed runs of {_CASES:,}, sorted: {ours:.0f} ms, Datasette {theirs:.0f} ms; "
        f"{ours / theirs:.2f} ×"
    )
    return ours < theirs


def first_paint(browser: Any, url: str) -> float:
    """Return when a browser with an empty cache shows content, in milliseconds."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(url)
    # Not wait_for_function: it needs eval, which our pages forbid.
    while (paint := page.evaluate(_PAINT)) is None:
        page.wait_for_timeout(5)
    context.close()
    return float(paint)


def watch(folder: Path, rounds: int) -> bool:
    """Run the suite in turns with no viewer and with many; each viewer reads a stream of progress."""
    alone, watched = [], []
    with serving(folder, sys.executable, "-m", "evalloom", "serve", "--port", "8496"):
        for _ in range(rounds):
            alone.append(run(folder))
            stop = threading.Event()
            viewers = [threading.Thread(target=view, args=(stop,)) for _ in range(_VIEWERS)]
            for viewer in viewers:
                viewer.start()
            watched.append(run(folder))
            stop.set()
            for viewer in viewers:
                viewer.join()
    ratio = median(with_them / without for with_them, without in zip(watched, alone, strict=True))
    spread = max(alone) / min(alone)
    print(
        f"a batch of {_CASES:,} runs: {median(alone):.2f} s alone, {median(watched):.2f} s with {_VIEWERS} viewers; "
        f"{ratio:.2f} × (alone it varies by {spread:.2f} ×)"
    )
    return ratio <= max(_NOISE, spread)


def view(stop: threading.Event) -> None:
    """Read live progress until the end."""
    connection = http.client.HTTPConnection("127.0.0.1", 8496, timeout=30)
    connection.request("GET", "/api/live")
    response = connection.getresponse()
    while not stop.is_set():
        response.readline()
    connection.close()


@contextmanager
def serving(folder: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Serve a folder for the time of a block."""
    port = int(re.findall(r"--port (\d+)", " ".join(command))[0])
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                http.client.HTTPConnection("127.0.0.1", port, timeout=1).connect()
                break
            except OSError:
                time.sleep(0.1)
        yield process
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    raise SystemExit(main())
