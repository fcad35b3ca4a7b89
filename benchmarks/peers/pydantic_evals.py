"""pydantic-evals on the cases: a dataset, a task that asks through OpenAI's client, the evaluator `Contains`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import Contains


def main(cases: Path, url: str, concurrency: int, passes: Path) -> None:
    client = AsyncOpenAI(base_url=url, api_key="none")

    async def ask(question: str) -> str:
        prompt = f"Answer question number {question} with one token."
        said = await client.chat.completions.create(model="mock", messages=[{"role": "user", "content": prompt}])
        return said.choices[0].message.content or ""

    dataset = Dataset(
        name="benchmark",
        cases=[
            Case(name=row["id"], inputs=row["question"], evaluators=(Contains(value=row["expected"]),))
            for row in map(json.loads, cases.read_text().splitlines())
        ],
    )
    report = dataset.evaluate_sync(ask, max_concurrency=concurrency, progress=False)
    lines = [json.dumps({"id": case.name, "output": case.output, "passed": passed(case)}) for case in report.cases]
    # It keeps results in memory only, so the script writes them.
    (passes.parent / "results.jsonl").write_text("\n".join(lines))
    passes.write_text(str(sum(passed(case) for case in report.cases)))


def passed(case: Any) -> bool:
    return all(assertion.value for assertion in case.assertions.values())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
