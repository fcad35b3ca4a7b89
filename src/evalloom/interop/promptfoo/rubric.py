"""An `llm-rubric` with a `rubricPrompt`: the prompt of the user asks the judge, and promptfoo's rules read the answer.

The prompt is a template with `{{output}}`, `{{rubric}}` and the variables of the test: a text, or a chat as JSON.
"""

from __future__ import annotations

import json
from typing import Any

from evalloom.core.errors import CallError
from evalloom.core.model import Check, Record, Request
from evalloom.core.text import shorten
from evalloom.interop.promptfoo.assert_values import text_of
from evalloom.interop.promptfoo.templates import TemplateError, render, render_texts
from evalloom.llms.answer_json import NO_JSON, find_json, loads
from evalloom.matchers.base import CheckResult, MatchContext, Services, number_of, show, unscored
from evalloom.matchers.base import text_of as output_text

_YES = ("true", "yes", "pass", "y")
_REASON = 1_000


def messages_of(prompt: str, variables: Record) -> list[Record]:
    """Return the messages of a filled-in prompt: those of a chat in JSON, whose texts are filled in one by one."""
    chat = loads(prompt) if prompt.lstrip().startswith("[") else NO_JSON
    if isinstance(chat, list) and chat and all(isinstance(item, dict) and "role" in item for item in chat):
        return [{name: render_texts(value, variables) for name, value in item.items()} for item in chat]
    return [{"role": "user", "content": render(prompt, variables)}]


async def ask(check: Check, context: MatchContext, services: Services) -> CheckResult:
    """Return the result of the judge; unscored if it gives none."""
    if services.judge is None:
        return unscored("no judge: name an llm with --judge LLM")
    prompt = check.options.get("rubric_prompt")
    if not isinstance(prompt, str):
        return unscored(f"rubric_prompt: expected a text, got {show(prompt)}")
    rubric = check.expected if isinstance(check.expected, str) else json.dumps(check.expected, ensure_ascii=False)
    given = {**context.case.inputs, "output": output_text(context.value), "rubric": text_of(rubric)}
    who = f"judge {services.judge_name!r}" if services.judge_name else "judge"
    try:
        response = await services.judge(Request(messages_of(prompt, given)))
    except TemplateError as error:
        return unscored(f"rubricPrompt: {error}")
    except CallError as error:
        return unscored(f"{who}: {error}")
    answer = next((found.value for found in find_json(response.text) if isinstance(found.value, dict)), None)
    if answer is None:
        reason = f"{who}: expected a JSON object with pass, score and reason, got {show(response.text)}"
        return CheckResult(None, reason=reason, usage=response.usage)
    return _result(answer, number_of(check.options.get("threshold")), response.usage)


def _result(answer: Record, threshold: float | None, usage: Any) -> CheckResult:
    """Read an answer by promptfoo's rules: without `pass` it passes, and a threshold must be reached too."""
    written = answer.get("pass")
    passed = written if isinstance(written, bool) else written is None or str(written).lower() in _YES
    score = number_of(answer.get("score"))
    if score is None:
        try:
            score = float(str(answer.get("score")))
        except ValueError:
            score = float(passed)
    if threshold is not None:
        passed = passed and score >= threshold
    reason = str(answer.get("reason") or (f"score {score:g}" if threshold is None else f"{score:g} of {threshold:g}"))
    share = min(1.0, max(0.0, score))
    return CheckResult(passed, score, shorten(reason, _REASON), share=None if share == score else share, usage=usage)
