"""The bare loop that everything is measured against: request, compare, write a line per answer.

python bare_loop.py CASES BASE_URL CONCURRENCY RESULTS
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any, TextIO

import aiohttp


async def run(cases: str, url: str, concurrency: int, results: str) -> None:
    with open(cases, encoding="utf-8") as lines:
        waiting = iter([json.loads(line) for line in lines])
    connector = aiohttp.TCPConnector(limit=concurrency)
    # One write per answer, as in any runner that must not lose paid answers.
    with open(results, "w", encoding="utf-8", buffering=1) as out:
        async with aiohttp.ClientSession(connector=connector) as session:
            workers = [work(session, f"{url}/chat/completions", waiting, out) for _ in range(concurrency)]
            await asyncio.gather(*workers)


async def work(session: aiohttp.ClientSession, url: str, waiting: Iterator[dict[str, str]], out: TextIO) -> None:
    for case in waiting:
        prompt = f"Answer question number {case['question']} with one token."
        payload: dict[str, Any] = {"model": "mock", "messages": [{"role": "user", "content": prompt}]}
        async with session.post(url, json=payload) as response:
            said = (await response.json())["choices"][0]["message"]["content"]
        row = {"id": case["id"], "prompt": prompt, "output": said, "passed": case["expected"] in said}
        out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
