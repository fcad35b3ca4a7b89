"""Measure a suite of a million cases: run, stats, compare, report, its page; and a folder of 1,000 batches.

Every step is measured at a hundredth of the cases too, and its time per case is compared with that. The llm is a script
in the same process, so that no server is measured.

.venv/bin/python benchmarks/million.py [--cases 1000000] [--batches 1000]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contest import Measured, measure, write_lines
from environments import cache_bytecode
from viewers import serving

EVALLOOM = [sys.executable, "-m", "evalloom"]
_PER_CASE = 1.25
"""How many times the time per case at a hundredth of the cases is allowed."""
_RUN_MB, _LIST_MS = 200, 100
_SETTINGS = """\
llms: {model: {protocol: scripted, file: script.json}}
profiles: {model: {run: model}}
target: {prompt: prompt.md}
datasets: [cases.jsonl]
"""
_SCRIPT = {"rules": [{"match": {"regex": "Topic: (.*)"}, "template": "The topic is {{1}}."}]}


@dataclass(frozen=True)
class Suite:
    """Cases of a folder, and two batches of them once they have run."""

    folder: Path
    count: int

    def write(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / "evalloom.yaml").write_text(_SETTINGS)
        (self.folder / "prompt.md").write_text("Topic: {{topic}}\nWhat is the topic of: {{text}}")
        (self.folder / "script.json").write_text(json.dumps(_SCRIPT))
        write_lines(self.folder / "cases.jsonl", map(_case, range(self.count)))

    def call(self, *arguments: str, codes: Sequence[int] = (0,)) -> Measured:
        measured = measure([*EVALLOOM, *arguments], self.folder)
        if measured.code not in codes:
            raise SystemExit(f"{arguments}: exit code {measured.code}\n{(self.folder / 'stderr').read_text()[-2000:]}")
        return measured

    def steps(self) -> dict[str, Measured]:
        """Measure every step; the second reading of the batches finds their copies."""
        first = self.call("run", codes=(1,))
        self.call("run", "--no-cache", codes=(1,))
        steps = {"run": first, "stats, which makes the copy": self.call("stats", "latest")}
        newest, before = sorted((self.folder / ".evalloom/batches").iterdir(), reverse=True)
        steps["stats"] = self.call("stats", "latest", "--by", "tag")
        self.call("stats", before.name)
        steps["compare"] = self.call("compare", newest.name, "--against", before.name)
        steps["report"] = self.call("report", newest.name, "-o", "report.html", "--force")
        return steps

    def sizes(self) -> str:
        (batch, *_) = sorted((self.folder / ".evalloom/batches").iterdir(), reverse=True)
        files = [path for path in batch.rglob("*") if path.is_file()]
        shown = [f"{path.name} {path.stat().st_size / 1e6:,.1f} MB" for path in sorted(files)]
        return f"{', '.join(shown)}, report.html {(self.folder / 'report.html').stat().st_size / 1e6:,.1f} MB"


def _case(number: int) -> dict[str, object]:
    topic = ("refund", "delivery", "invoice", "login")[number % 4]
    expected = "wrong" if number % 50 == 0 else topic
    text = f"Message {number} of a customer about the {topic}, with some more words."
    return {
        "id": f"c{number:07d}",
        "topic": topic,
        "text": text,
        "checks": [{"kind": "contains", "expected": expected}],
        "tags": [topic],
    }


def pages(folder: Path, path: str, rounds: int = 7) -> float:
    """Return the median time of a page in seconds; the first request does not count."""
    times = []
    with serving(folder, *EVALLOOM, "serve", "--port", "8498"):
        for _ in range(rounds + 1):
            start = time.perf_counter()
            with urllib.request.urlopen(f"http://127.0.0.1:8498{path}") as response:
                response.read()
            times.append(time.perf_counter() - start)
    return sorted(times[1:])[rounds // 2]


def many_batches(folder: Path, source: Path, count: int) -> None:
    """Copy the batch of a small suite."""
    shutil.rmtree(folder, ignore_errors=True)
    (batch, *_) = (source / ".evalloom/batches").iterdir()
    facts = json.loads((batch / "batch.json").read_bytes())
    for number in range(count):
        id = f"20260101-{number // 3600:02d}{number // 60 % 60:02d}{number % 60:02d}-{number:09x}"
        copied = folder / ".evalloom/batches" / id
        shutil.copytree(batch, copied)
        (copied / "batch.json").write_text(json.dumps({**facts, "id": id}))


def main() -> int:
    cache_bytecode()
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cases", type=int, default=1_000_000)
    options.add_argument("--batches", type=int, default=1000)
    arguments = options.parse_args()
    root = Path(tempfile.gettempdir()) / "evalloom-benchmarks" / "million"
    small, large = Suite(root / "small", arguments.cases // 100), Suite(root / "large", arguments.cases)
    is_met = True
    measured = {}
    for suite in (small, large):
        suite.write()
        measured[suite.count] = suite.steps()
    for name, step in measured[large.count].items():
        each, before = step.seconds / large.count, measured[small.count][name].seconds / small.count
        allowed = name != "run" or each <= before * _PER_CASE
        is_met = is_met and allowed and (name != "run" or step.peak_mb <= _RUN_MB)
        print(
            f"{name}: {step.seconds:.1f} s, {step.peak_mb:.0f} MB; per case {each * 1e6:.0f} µs, "
            f"{each / before:.2f} × that of {small.count:,} cases"
        )
    print(f"sizes: {large.sizes()}")
    for name, path in {"the batch": "/b/latest", "its failed runs": "/b/latest?status=failed&sort=-latency"}.items():
        print(f"page of {name}: {pages(large.folder, path) * 1000:.0f} ms")
    tiny = Suite(root / "tiny", 10)
    tiny.write()
    tiny.call("run", codes=(1,))
    many_batches(root / "many", tiny.folder, arguments.batches)
    many = Suite(root / "many", 0)
    listed = pages(many.folder, "/") * 1000
    command_s = many.call("batches", "list").seconds
    print(f"{arguments.batches:,} batches: page {listed:.0f} ms, batches list {command_s:.2f} s")
    return int(not is_met or listed > _LIST_MS)


if __name__ == "__main__":
    raise SystemExit(main())
