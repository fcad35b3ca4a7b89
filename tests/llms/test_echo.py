"""The echo says what it is told, and texts of messages are found in every shape."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from evalloom.core.model import Request
from evalloom.llms.echo import Echo, last_text, prompt_text


def test_the_last_user_message_comes_back() -> None:
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "aha"},
        {"role": "user", "content": "second"},
    ]
    response = asyncio.run(Echo()(Request(messages)))
    assert (response.text, response.stop, response.usage.calls) == ("second", "stop", 1)
    assert response.usage.input_tokens > response.usage.output_tokens > 0


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([{"role": "system", "content": "only a system"}], "only a system"),
        ([], ""),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}, {"text": "b"}]}], "a\nb"),
        ([{"role": "user", "content": None}], ""),
    ],
)
def test_a_message_of_another_shape_is_echoed_too(messages: list[dict[str, Any]], text: str) -> None:
    assert asyncio.run(Echo()(Request(messages))).text == text


def test_a_prompt_is_all_messages_one_below_the_other() -> None:
    request = Request([{"role": "system", "content": "a"}, {"role": "user", "content": "b"}])
    assert prompt_text(request) == "a\nb"
    assert (last_text(request), last_text(request, "system"), last_text(request, "tool")) == ("b", "a", "")
