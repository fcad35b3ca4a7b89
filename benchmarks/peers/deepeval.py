"""DeepEval on the cases: OpenAI's client gets the answers, since DeepEval only scores; then a metric of one line."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from deepeval import evaluate
from deepeval.evaluate import AsyncConfig, CacheConfig, DisplayConfig
from deepeval.metrics import BaseMetric
from deepeval.test_case import LLMTestCase
from openai import AsyncOpenAI


class Contains(BaseMetric):  # type: ignore[misc]
    """Whether the expected text stands in the answer; DeepEval has no such metric that needs no model."""

    def __init__(self) -> None:
        self.threshold = 1.0
        self.async_mode = True
        self.include_reason = False

    def measure(self, case: LLMTestCase, *_: Any, **__: Any) -> float:
        self.success = case.expected_output in case.actual_output
        self.score = float(self.success)
        return self.score

    async def a_measure(self, case: LLMTestCase, *_: Any, **__: Any) -> float:
        return self.measure(case)

    def is_successful(self) -> bool:
        return self.success

    @property
    def __name__(self) -> str:
        return "Contains"


async def answer(cases: Path, url: str, concurrency: int) -> list[LLMTestCase]:
    rows = [json.loads(line) for line in cases.read_text().splitlines()]
    client, waiting, done = AsyncOpenAI(base_url=url, api_key="none"), iter(rows), []

    async def work() -> None:
        for row in waiting:
            prompt = f"Answer question number {row['question']} with one token."
            said = await client.chat.completions.create(model="mock", messages=[{"role": "user", "content": prompt}])
            text = said.choices[0].message.content
            done.append(LLMTestCase(input=prompt, actual_output=text, expected_output=row["expected"], name=row["id"]))

    await asyncio.gather(*(work() for _ in range(concurrency)))
    return done


def main(cases: Path, url: str, concurrency: int, passes: Path) -> None:
    results = evaluate(
        test_cases=asyncio.run(answer(cases, url, concurrency)),
        metrics=[Contains()],
        async_config=AsyncConfig(max_concurrent=concurrency),
        display_config=DisplayConfig(show_indicator=False, print_results=False, inspect_after_run=False),
        cache_config=CacheConfig(write_cache=False),
    )
    passes.write_text(str(sum(bool(result.success) for result in results.test_results)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
