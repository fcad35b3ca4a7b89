"""The starter suite for RAG: a handbook, questions about it, and a system that answers them."""

from __future__ import annotations

from evalloom.engine.init import Starter, jsonl

STARTER = Starter(
    "eval_cases.jsonl",
    "python:handbook:answer",
    {
        "eval_cases.jsonl": jsonl(
            {
                "id": id,
                "query": query,
                "expected_sources": ["docs/handbook.md"],
                "must_include": [anchor],
                "bucket": bucket,
                **({"pair_id": pair} if pair else {}),
                "concept_id": concept,
            }
            for id, query, anchor, bucket, pair, concept in (
                ("leave-official", "带薪年假有几天？", "10 个工作日", "official", "P01", "leave"),
                ("leave-oral", "一年能歇几天啊？", "10 个工作日", "oral", "P01", "leave"),
                ("vpn-official", "What does remote access require?", "VPN", "official", "P02", "remote"),
                ("vpn-oral", "can't reach the wiki from home", "VPN", "oral", "P02", "remote"),
                ("who-ambiguous", "Who do I ask?", "service desk", "ambiguous", "", "help"),
            )
        ),
        "docs/handbook.md": """\
# Handbook · 员工手册

- 每年有 10 个工作日的带薪年假。
- Connections from outside go through the VPN.
- For everything else, ask the service desk.
""",
        "handbook.py": '''\
"""The system under test: replace it with your own. This one sends the whole handbook to the model."""

from pathlib import Path

from evalloom.model import Context, Output, Request

HANDBOOK = "docs/handbook.md"


async def answer(query: str, context: Context) -> Output:
    """The answer, and the files it was taken from."""
    text = (Path(__file__).parent / HANDBOOK).read_text(encoding="utf-8")
    prompt = f"Answer from this handbook only.\\n\\n{text}\\n{query}"
    response = await context.llm(Request([{"role": "user", "content": prompt}]))
    return Output(response.text, sources=[HANDBOOK])
''',
        "answers.yaml": """\
# The first rule that matches the prompt gives the answer.
rules:
  - match: {regex: '年假有几天|能歇几天'}
    answer: 每年有 10 个工作日的带薪年假。
  - match: {regex: 'remote access require|reach the wiki'}
    answer: Connect through the VPN.
  - match: Who do I ask?
    answer: Ask the service desk.
""",
    },
)
