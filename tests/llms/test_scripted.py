"""The scripted llm answers by its rules, the same in every run, and tells every fault of a script at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.errors import CallError, EvalloomError
from evalloom.core.model import Request, Response, Usage
from evalloom.llms.retry import Retry
from evalloom.llms.scripted import Scripted

SCRIPT = """\
rules:
  - match: 天气
    answer: 今天晴。
  - match: {regex: 'capital of (?P<country>\\w+)', role: user}
    template: "{{country}}: {{ 1 }}ville"
  - match: {equals: ping}
    answer: {pong: true}
default: I do not know.
"""


def ask(text: str, system: str = "", repeat: int = 0) -> Request:
    before = [{"role": "system", "content": system}] if system else []
    return Request([*before, {"role": "user", "content": text}], repeat=repeat)


def answer(llm: Any, *requests: Request) -> list[str]:
    async def run() -> list[str]:
        return [(await llm(request)).text for request in requests]

    return asyncio.run(run())


def only(rule: dict[str, Any], text: str = "hello") -> Response:
    return asyncio.run(Scripted([rule], "s")(ask(text)))


def test_the_first_rule_that_matches_answers(tmp_path: Path) -> None:
    file = tmp_path / "script.yaml"
    file.write_text(SCRIPT, encoding="utf-8")
    asked = [ask("北京天气如何?"), ask("the capital of France?"), ask(" ping\n"), ask("pinging")]
    assert answer(Scripted(file), *asked) == ["今天晴。", "France: Franceville", '{"pong":true}', "I do not know."]


def test_json_is_read_like_yaml(tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    file.write_bytes(orjson.dumps({"rules": [{"match": "a", "answer": "b"}]}, option=orjson.OPT_INDENT_2))
    assert answer(Scripted(str(file)), ask("a")) == ["b"]


@pytest.mark.parametrize(
    ("match", "is_met"),
    [
        ("brief", True),
        ({"contains": ["brief", "hello"]}, True),
        ({"contains": ["brief", "missing"]}, False),
        ({"contains": "brief", "role": "user"}, False),
        ({"contains": "brief", "role": "system"}, True),
        ({"equals": "hello", "role": "last"}, True),
        ({"equals": "hello"}, False),
        ({"regex": "^hel+o$", "role": "user"}, True),
        ({"contains": "hello", "regex": "bye"}, False),
        ({"contains": "hello", "role": "tool"}, False),
    ],
)
def test_all_of_a_match_must_hold(match: Any, is_met: bool) -> None:
    llm = Scripted({"rules": [{"match": match, "answer": "met"}], "default": "not"})
    assert answer(llm, ask("hello", system="be brief")) == ["met" if is_met else "not"]


def test_no_rule_is_an_error_that_shows_the_prompt(tmp_path: Path) -> None:
    file = tmp_path / "script.yaml"
    file.write_text("rules: [{match: a, answer: b}]")
    with pytest.raises(CallError, match=r"script\.yaml: no rule matches 'hello'\. Add a rule for it.*\[no_rule\]"):
        answer(Scripted(file), ask("hello"))


def test_answers_come_in_turn_for_the_same_request_and_the_last_stays() -> None:
    llm = Scripted([{"answers": ["one", 2, {"n": 3}]}])
    assert answer(llm, ask("a"), ask("b"), ask("a"), ask("a"), ask("a")) == ["one", "one", "2", '{"n":3}', '{"n":3}']


@given(st.permutations([(text, repeat) for text in "ab" for repeat in range(4)]))
def test_repetitions_have_the_same_answers_in_any_order(order: list[tuple[str, int]]) -> None:
    found = answer(Scripted([{"answers": ["0", "1", "2"]}]), *(ask(text, repeat=repeat) for text, repeat in order))
    assert found == [str(min(repeat, 2)) for _, repeat in order]


def test_a_template_of_an_object_stays_json() -> None:
    rule = {"match": {"regex": "grade: (.*)"}, "template": {"said": "{{1}}", "of": ["{{user}}"], "score": 3}}
    said = 'a "quoted" word'
    assert orjson.loads(only(rule, f"grade: {said}").text) == {"said": said, "of": [f"grade: {said}"], "score": 3}


def test_an_optional_group_that_is_absent_is_empty() -> None:
    assert only({"match": {"regex": "hello( world)?"}, "template": "<{{0}}{{1}}>"}).text == "<hello>"


def test_tool_calls_have_the_shape_of_openai() -> None:
    response = only({"tool_calls": [{"name": "search", "arguments": {"q": 1}}]})
    function = {"name": "search", "arguments": '{"q":1}'}
    assert response.tool_calls == [{"id": "call_0", "type": "function", "function": function}]
    assert (response.text, response.stop) == ("", "tool_calls")


def test_tokens_are_estimated_or_given() -> None:
    assert only({"answer": "你好"}, "abcd").usage == Usage(1, 2, calls=1)
    assert only({"answer": "x", "usage": {"input_tokens": 7}}).usage == Usage(7, 0, calls=1)


@pytest.mark.parametrize(
    ("fault", "code", "is_transient", "retry_after"),
    [
        ({"status": 429, "retry_after": 1}, "http_429", True, 1.0),
        ({"status": 503}, "http_503", True, None),
        ({"status": 400, "message": "too long"}, "http_400", False, None),
        ("timeout", "timeout", True, None),
        ("drop", "connection_broke", True, None),
        ("garbage", "bad_answer", False, None),
    ],
)
def test_a_fault_is_raised_as_over_http(fault: Any, code: str, is_transient: bool, retry_after: float | None) -> None:
    with pytest.raises(CallError) as raised:
        only({"fault": fault})
    assert (raised.value.code, raised.value.is_transient, raised.value.retry_after) == (code, is_transient, retry_after)


def test_retries_get_over_a_fault_that_passes() -> None:
    rule = {"fault": {"status": 429, "retry_after": 0}, "times": 2, "answers": ["at last", "again"]}
    llm = Retry(Scripted([rule]), retries=2)
    response = asyncio.run(llm(ask("a")))
    assert (response.text, response.usage.retries) == ("at last", 2)
    assert answer(llm, ask("a")) == ["again"]


def test_delays_pass_side_by_side() -> None:
    llm = Scripted([{"answer": "late", "delay_s": 0.05}])

    async def run() -> float:
        loop = asyncio.get_running_loop()
        start = loop.time()
        await asyncio.gather(*(llm(ask(str(number))) for number in range(50)))
        return loop.time() - start

    assert 0.04 < asyncio.run(run()) < 2.0


def test_every_fault_of_a_script_is_told_at_its_place(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        "rules:\n"
        "  - {match: 3, anser: x}\n"
        "  - match: {regex: '(', role: boss}\n"
        "    template: '{{2}}'\n"
        "  - {answer: a, answers: [b]}\n"
        "  - {fault: {status: 200}, answer: a}\n"
        "  - {answer: a, times: 1}\n"
    )
    with pytest.raises(EvalloomError) as raised:
        Scripted(file)
    lines = str(raised.value).removesuffix(" [bad_script]").splitlines()
    told = [line.removeprefix(f"{file.as_posix()}:") for line in lines]
    assert raised.value.exit_code == 2
    assert "2:23: rules[0].anser: unknown field. Did you mean 'answer'?" in told
    assert {line.split(": ")[1] for line in told} >= {
        "rules[0].match",
        "rules[1].match.regex",
        "rules[1].match.role",
        "rules[1].template",
        "rules[2].answers",
        "rules[3].fault",
        "rules[3].fault.status",
        "rules[4].times",
    }


@pytest.mark.parametrize(
    "text", ["", "rules: 3", "just words", "rules: [", "a: 1\n---\nb: 2", "[1, 2]", "rules: [null]"]
)
def test_a_file_that_is_no_script_says_so(text: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(EvalloomError, match=r"bad\.yaml.*\[bad_script\]"):
        Scripted(file)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(EvalloomError, match=r"none\.yaml: there is no such file.*\[bad_script\]"):
        Scripted(tmp_path / "none.yaml")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["user", "drop"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["match", "answer", "answers", "template", "fault", "status", "tool_calls", "name", "usage"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["rules", "default"]), VALUES))
def test_any_script_answers_or_is_refused(script: dict[str, Any]) -> None:
    try:
        asyncio.run(Scripted(script)(ask("hello")))
    except EvalloomError as refused:
        assert refused.code == "bad_script"
    except CallError as failed:
        assert failed.code in ("no_rule", "connection_broke", "http_429") or failed.code.startswith("http_")


def test_the_script_of_the_documentation_answers_as_it_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "llms.md").read_text(encoding="utf-8")
    script = page.partition("```yaml\nrules:")[2].partition("```")[0]
    file = tmp_path / "script.yaml"
    file.write_text("rules:" + script, encoding="utf-8")
    llm = Scripted(file)
    asked = [ask("the weather?"), ask("capital of Peru"), ask("dice"), ask("dice"), ask("?")]
    assert answer(llm, *asked) == ["It is sunny.", "I have never been to Peru.", "4", "2", "I do not know."]
    assert asyncio.run(llm(ask("look it up"))).tool_calls[0]["function"]["name"] == "search"
