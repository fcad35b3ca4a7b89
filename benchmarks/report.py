"""Measure the HTML report of a batch against the same runs as JSON Lines.

.venv/bin/python benchmarks/report.py [--runs 10000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import msgspec

from evalloom import catalog
from evalloom.core.model import Batch, DatasetFacts, Mismatch, Origin, Output, Profile, Run, Scored, Usage, Verdict
from evalloom.engine.report import report_of, stored_results
from evalloom.reports import by_suffix
from evalloom.reports.run_report import RunReport

_MOST_TIME, _MOST_BYTES = 5, 20_000_000
_WORDS = (
    *("the", "invoice", "of", "a", "customer", "was", "opened", "in", "March", "between", "delivery", "and", "refund"),
    *("退款", "工作日", "发票", "电池", "仓库", "客户", "quality"),
)
_TAGS = ("json", "中文", "safety", "long", "email", "math")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=5)
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder / "batch", arguments.runs)
        loaded = catalog.load()
        report = report_of(stored_results(folder / "batch", loaded), loaded)
        # Once each before the clock starts, for the imports.
        for suffix in (".jsonl", ".html"):
            written(report, folder / f"first{suffix}")
        ratios, processor = [], []
        for number in range(arguments.rounds):
            lines, page = (written(report, folder / f"report{suffix}") for suffix in (".jsonl", ".html"))
            ratios.append(page[0] / lines[0])
            processor.append(page[1] / lines[1])
            print(f"round {number + 1}: JSON Lines {lines[0]:.2f} s, HTML {page[0]:.2f} s")
        size = (folder / "report.html").stat().st_size
    print(f"HTML: {median(ratios):.2f} x the time of JSON Lines (at most {_MOST_TIME})")
    print(f"  in processor time: {median(processor):.2f} x; on a busy machine this figure is the steadier one")
    print(f"{arguments.runs:,} runs: {size / 1e6:.1f} MB (at most {_MOST_BYTES / 1e6:.0f})")
    return int(median(processor) > _MOST_TIME or size > _MOST_BYTES)


def written(report: RunReport, path: Path) -> tuple[float, float]:
    """Write a report; return the seconds that passed, and those of the processor."""
    start, processor_start = time.perf_counter(), time.process_time()
    with path.open("wb") as stream:
        by_suffix(path, catalog.load().reporters).render(report, stream)
    return time.perf_counter() - start, time.process_time() - processor_start


def make(folder: Path, runs: int) -> None:
    """Write a batch under two profiles: one model call a run, one in six fails."""
    chance = random.Random(1)
    folder.mkdir()
    encoder = msgspec.json.Encoder()
    with (folder / "runs.jsonl").open("wb") as run_lines, (folder / "verdicts.jsonl").open("wb") as verdict_lines:
        for number in range(runs):
            run, scored = one(number, chance)
            run_lines.write(encoder.encode(run) + b"\n")
            verdict_lines.write(encoder.encode(scored) + b"\n")
    batch = Batch(
        "batch",
        "2026-01-05T08:00:00+00:00",
        target="prompt:prompt.md",
        datasets=[DatasetFacts("cases.jsonl", "pipeline", "x")],
        profiles=[Profile("careful", "m"), Profile("hasty", "m")],
        finished_at="2026-01-05T08:05:00+00:00",
    )
    (folder / "batch.json").write_bytes(encoder.encode(batch))


def one(number: int, chance: random.Random) -> tuple[Run, Scored]:
    question, answer = (" ".join(chance.choices(_WORDS, k=size)) for size in (40, 60))
    is_right = chance.random() < 5 / 6
    output = answer if is_right else f"{answer} and more"
    messages = [{"role": "system", "content": "Answer in one sentence."}, {"role": "user", "content": question}]
    usage = {"input_tokens": 90, "output_tokens": 70}
    call = {"type": "llm", "llm": "m", "duration_s": 0.3, "request": {"messages": messages}}
    run = Run(
        f"k{number}",
        f"case-{number // 2:05d}",
        ("careful", "hasty")[number % 2],
        number=number // 2 + 1,
        output=Output(output),
        started_at="2026-01-05T08:00:00+00:00",
        duration_s=round(chance.lognormvariate(-0.5, 0.6), 3),
        usage=Usage(90, 70, 0.0004, 1),
        trace=[{**call, "response": {"text": output, "usage": usage}}],
        tags=(_TAGS[number // 2 % len(_TAGS)],),
        dialect="pipeline",
        origin=Origin("cases.jsonl", number // 2 + 1),
        raw={"id": f"case-{number // 2:05d}", "question": question, "expected_output": answer},
    )
    status, score = ("passed", 1.0) if is_right else ("failed", 0.0)
    mismatches = [] if is_right else [Mismatch("", answer, output)]
    reason = "" if is_right else f"expected {answer[:40]!r}"
    return run, Scored(
        run.key, status, score, [Verdict("equals", "equals", "output", status, score, reason, mismatches)]
    )


if __name__ == "__main__":
    sys.exit(main())
