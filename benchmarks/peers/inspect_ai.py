"""Inspect AI on the cases: one task, the solver `generate`, the scorer `includes`; it writes its log as always."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate


def main(cases: Path, url: str, concurrency: int, passes: Path) -> None:
    samples = [
        Sample(id=row["id"], input=f"Answer question number {row['question']} with one token.", target=row["expected"])
        for row in map(json.loads, cases.read_text().splitlines())
    ]
    model = get_model("openai-api/mock/mock", base_url=url, api_key="none")
    task = Task(dataset=MemoryDataset(samples), solver=generate(), scorer=includes(ignore_case=False))
    [log] = eval(
        task,
        model=model,
        max_connections=concurrency,
        max_samples=concurrency,
        display="none",
        log_dir=str(passes.parent / "logs"),
    )
    passes.write_text(str(round(log.results.scores[0].metrics["accuracy"].value * len(samples))))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
