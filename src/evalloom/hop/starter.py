"""The starter suite for HOP batch tests: a hoplet and its cases."""

from __future__ import annotations

from evalloom.engine.init import Starter, jsonl

STARTER = Starter(
    "TestCases/cases.jsonl",
    "hoplet:.",
    {
        "TestCases/cases.jsonl": jsonl(
            [
                {"id": 1, "tag": "zh", "difficulty": "easy", "text": "今天心情很好", "expected_is_positive": True},
                {"id": 2, "tag": "zh", "difficulty": "hard", "text": "真是“好”极了", "expected_is_positive": False},
                {"id": 3, "tag": "en", "difficulty": "easy", "text": "I love it", "expected_is_positive": True},
                {"id": 4, "tag": "en", "difficulty": "hard", "text": "Not bad", "expected_is_positive": True},
            ]
        ),
        "Hoplet/metainfo.md": """\
# Is a text positive? · 文本是否正面

## Input contract

| field | type | required | meaning |
|---|---|---|---|
| `text` | string | yes | The text to judge |

## Output contract

| field | type | required | meaning |
|---|---|---|---|
| `is_positive` | bool | yes | Whether the text is positive |
""",
        "Hoplet/Hop.py": """\
\"\"\"A hoplet: it calls the llm through its session, which verifies each answer and retries.\"\"\"

from evalloom.hop import HopSession


async def sentiment_hop(session: HopSession, input_data: dict):
    status, is_positive = await session.hop_judge("Is this text positive?", input_data["text"])
    # Only OK has an answer for the contract; on FAIL the value is the reason.
    return status, {"is_positive": is_positive} if status == "OK" else is_positive
""",
        "answers.yaml": """\
# The first rule whose text is in the prompt answers; otherwise `default` does.
rules:
  # A request to verify an answer lists four outcomes; LACK_OF_INFO is one of them.
  - match: LACK_OF_INFO
    answer: {status: OK, reason: The answer fits the text.}
  - match: 真是“好”极了
    answer: {answer: false, reason: It is meant ironically.}

default: {answer: true, reason: It sounds positive.}
""",
    },
)
