"""The starter suite for context recipes: a recipe, its rows, and the same as a prompt."""

from __future__ import annotations

import json

from evalloom.engine.init import Starter, jsonl

STARTER = Starter(
    "rows.jsonl",
    "prompt:prompt.yaml",
    {
        "rows.jsonl": jsonl(
            [
                {"question": "什么是上下文工程？", "_expected": {"mustContain": ["上下文"]}, "_tags": ["zh"]},
                {"question": "What is a context window?", "_expected": {"mustContain": ["tokens"]}, "_tags": ["en"]},
                {
                    "variables": {"question": "Answer yes or no: is the sky green?", "user_name": "Alice"},
                    "_expected": {"equals": "No"},
                    "_tags": ["en", "explicit"],
                },
            ]
        ),
        "project.json": json.dumps(
            {
                "id": "starter",
                "name": "Starter recipe",
                "state": {
                    "nodes": [
                        {
                            "id": "n1",
                            "data": {
                                "label": "System",
                                "type": "system_prompt",
                                "content": "Answer {{user_name}} briefly.",
                                "variables": ["user_name"],
                            },
                        },
                        {
                            "id": "n2",
                            "data": {
                                "label": "User",
                                "type": "user_input",
                                "content": "{{question}}",
                                "variables": ["question"],
                            },
                        },
                    ],
                    "edges": [{"id": "e1", "source": "n1", "target": "n2"}],
                    "variables": [{"id": "v1", "name": "user_name", "type": "static", "value": "the user"}],
                },
                "updatedAt": "2026-01-01T00:00:00Z",
            },
            ensure_ascii=False,
            indent=2,
        )
        + "\n",
        "prompt.yaml": """\
# What project.json assembles, as a prompt.
system: Answer {{user_name}} briefly.
user: "{{question}}"
defaults: {user_name: the user}
""",
        "answers.yaml": """\
# The first rule whose text is in the prompt gives the answer.
rules:
  - match: 什么是上下文工程
    answer: 为模型挑选和组织上下文。
  - match: What is a context window?
    answer: The number of tokens that a model can see at once.
  - match: is the sky green?
    answer: "No"
""",
    },
)
