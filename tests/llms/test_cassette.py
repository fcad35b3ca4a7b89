"""What was recorded is played back, and what was not says how it differs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from evalloom.core.errors import CallError, EvalloomError
from evalloom.core.model import Request, Response
from evalloom.llms.cassette import Player, Recorder
from evalloom.llms.scripted import Scripted

SCRIPT = {"rules": [{"match": "fails", "fault": {"status": 400, "message": "no"}}, {"answers": ["one", "two"]}]}


def ask(text: str, **more: Any) -> Request:
    return Request([{"role": "user", "content": text}], **more)


def answers(llm: Any, *requests: Request) -> list[str]:
    async def run() -> list[str]:
        return [(await llm(request)).text for request in requests]

    return asyncio.run(run())


def record(path: Path, *requests: Request, name: str = "kimi") -> list[str]:
    recorder = Recorder(Scripted(SCRIPT), path, name)
    found = answers(recorder, *requests)
    asyncio.run(recorder.close())
    return found


def test_what_was_recorded_is_played_in_the_same_order(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "cassette.jsonl"
    asked = [ask("a"), ask("b"), ask("a"), ask("你好", params={"temperature": 0})]
    assert record(path, *asked) == ["one", "one", "two", "one"]
    player = Player(path, "kimi")
    assert answers(player, asked[3], asked[0], asked[1], asked[2], asked[0]) == ["one", "one", "one", "two", "two"]


def test_the_whole_response_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "cassette.jsonl"
    script = Scripted([{"answer": "x", "tool_calls": [{"name": "f"}], "usage": {"input_tokens": 3}}], "m")
    recorder = Recorder(script, path)

    async def both() -> tuple[Response, Response]:
        return await recorder(ask("a")), await Player(path)(ask("a"))

    recorded, played = asyncio.run(both())
    assert recorded == played and played.usage.input_tokens == 3


def test_a_line_has_its_version_and_no_more_than_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "cassette.jsonl"
    record(path, ask("a", repeat=1))
    line = json.loads(path.read_text())
    assert (line["version"], line["llm"], line["response"]["text"]) == (1, "kimi", "two")
    assert line["request"] == {"messages": [{"role": "user", "content": "a"}], "repeat": 1}


def test_a_failure_is_recorded_and_fails_again(tmp_path: Path) -> None:
    path = tmp_path / "cassette.jsonl"
    with pytest.raises(CallError):
        record(path, ask("fails"))
    with pytest.raises(CallError, match=r"HTTP 400: no \[http_400\]"):
        answers(Player(path), ask("fails"))


def test_secrets_are_redacted(tmp_path: Path) -> None:
    path = tmp_path / "cassette.jsonl"
    recorder = Recorder(Scripted({"default": "sk-123 is yours"}), path, "m", lambda text: text.replace("sk-123", "***"))
    assert answers(recorder, ask("my key is sk-123")) == ["sk-123 is yours"]
    assert "sk-123" not in path.read_text() and path.read_text().count("***") == 2


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            ask("the cat sat on the rug"),
            r"the prompt at character 20, recorded '\w* ?on the mat', now '\w* ?on the rug'",
        ),
        (ask("the cat sat on the mat", params={"temperature": 1}), "temperature, recorded None, now 1"),
        (ask("the cat sat on the mat", repeat=2), "repeat, recorded 0, now 2"),
        (ask("the cat sat on the mat", answer="json"), "answer, recorded '', now 'json'"),
        (Request([{"role": "system", "content": "the cat sat on the mat"}]), "messages, recorded"),
    ],
)
def test_what_was_not_recorded_says_how_it_differs(asked: Request, told: str, tmp_path: Path) -> None:
    path = tmp_path / "cassette.jsonl"
    record(path, ask("something else"), ask("the cat sat on the mat"))
    with pytest.raises(CallError, match=rf"cassette\.jsonl: .*{told}.*\[not_recorded\]"):
        answers(Player(path, "kimi"), asked)


def test_another_llm_is_not_played(tmp_path: Path) -> None:
    path = tmp_path / "cassette.jsonl"
    record(path, ask("a"), name="kimi")
    record(path, ask("b"), name="qwen")
    with pytest.raises(CallError, match=r"of llm 'gpt', only of 'kimi', 'qwen'"):
        answers(Player(path, "gpt"), ask("a"))
    assert answers(Player(path), ask("a"), ask("b")) == ["one", "one"]


def test_a_torn_last_line_is_skipped_and_recording_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "cassette.jsonl"
    record(path, ask("a"), ask("b"))
    path.write_bytes(path.read_bytes()[:-20])
    assert answers(Player(path), ask("a")) == ["one"]
    record(path, ask("c"))
    assert answers(Player(path), ask("a"), ask("c")) == ["one", "one"]
    assert len(path.read_text().splitlines()) == 2


def test_a_broken_line_in_the_middle_and_a_newer_version_are_told_together(tmp_path: Path) -> None:
    path = tmp_path / "cassette.jsonl"
    record(path, ask("a"))
    good = path.read_text()
    path.write_text("{broken\n" + good.replace('"version":1', '"version":2') + good)
    with pytest.raises(EvalloomError) as raised:
        Player(path)
    assert "cassette.jsonl:1: " in str(raised.value) and "cassette.jsonl:2: expected version 1" in str(raised.value)
    assert (raised.value.code, raised.value.exit_code) == ("bad_cassette", 2)


def test_files_that_cannot_be_used_say_so(tmp_path: Path) -> None:
    with pytest.raises(EvalloomError, match=r"none\.jsonl.*\[bad_cassette\]"):
        Player(tmp_path / "none.jsonl")
    with pytest.raises(EvalloomError, match=r"\[cannot_write\]"):
        Recorder(Scripted(SCRIPT), tmp_path)


def test_two_recorders_at_once_keep_every_line_whole(tmp_path: Path) -> None:
    path = tmp_path / "cassette.jsonl"
    llms = [Recorder(Scripted([{"answer": "x" * 10_000, "delay_s": 0.001}]), path, name) for name in ("a", "b")]

    async def run() -> None:
        await asyncio.gather(*(llm(ask(str(number))) for number in range(100) for llm in llms))

    asyncio.run(run())
    assert len([json.loads(line) for line in path.read_text().splitlines()]) == 200


def test_what_is_no_json_is_recorded_as_well_as_can_be(tmp_path: Path) -> None:
    path = tmp_path / "cassette.jsonl"
    record(path, ask("half a pair \ud800"), Request([{"role": "user", "content": "a", "more": object()}]), ask("b"))
    assert answers(Player(path), ask("b")) == ["one"]
