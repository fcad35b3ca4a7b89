"""One target for the files of five tools: asks each question as its own tool would."""

from __future__ import annotations

import re
from typing import Any

from evalloom.model import Context, Output, Request

PASSAGES = (
    "Refunds are paid within 3 working days.",
    "Returns are checked on arrival.",
    "Remote days are agreed with the manager.",
    "Every connection goes through the company's VPN.",
    "未休完的年假可以结转到次年 3 月 31 日，逾期作废。",
    "退货运费由客户承担。",
)
TERM = re.compile(r"[a-z]{4,}|[\u4e00-\u9fff]")


async def ask(context: Context, **inputs: Any) -> Output:
    """The answer of the profile's llm, with its tool calls and the passages retrieved for it."""
    sources = look_up(inputs["user_input"]) if "user_input" in inputs else []
    response = await context.llm(Request(messages(inputs, sources)))
    steps = {"tool_calls": response.tool_calls} if response.tool_calls else {}
    return Output(response.text.strip(), steps, sources=sources)


def messages(inputs: dict[str, Any], sources: list[str]) -> list[dict[str, Any]]:
    """OpenAI evals bring whole messages, promptfoo fills a prompt, Inspect may list choices, RAGAS has passages."""
    if "messages" in inputs:
        return inputs["messages"]
    if "name" in inputs:
        text = f"Greet {inputs['name']} in {inputs['language']}, in one short sentence."
    elif "choices" in inputs:
        choices = [f"{'ABCDEFGH'[at]}) {choice}" for at, choice in enumerate(inputs["choices"])]
        text = "\n".join([inputs["input"], *choices, "Answer with the letter only."])
    else:
        text = "\n".join([*sources, inputs.get("input") or inputs["user_input"]])
    return [{"role": "user", "content": text}]


def look_up(question: str) -> list[str]:
    """The two passages that share most words with the question."""
    wanted = terms(question)
    return sorted(PASSAGES, key=lambda passage: -len(wanted & terms(passage)))[:2]


def terms(text: str) -> set[str]:
    return {term[:5] for term in TERM.findall(text.lower())}
