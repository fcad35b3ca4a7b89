"""Prompts: every way to write one, and what the llm is asked."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalloom.core.errors import CallError, EvalloomError
from evalloom.core.model import Output, Record, Request, Response
from evalloom.targets import build

Call = Callable[..., Output]


def asked(call: Call, target: Any, inputs: Record, params: Record | None = None) -> Request:
    """The request that a prompt makes of the inputs."""
    requests: list[Request] = []

    async def note(request: Request) -> Response:
        requests.append(request)
        return Response("ok")

    assert call(target, inputs, note, params) == Output("ok")
    return requests[0]


def test_a_text_file_is_the_user_message(tmp_path: Path, call: Call) -> None:
    (tmp_path / "hello.md").write_text("\ufeffSay hello to {{name}}.\n", encoding="utf-8")
    target = build("prompt:hello.md", tmp_path)
    assert asked(call, target, {"name": "Bob"}) == Request([{"role": "user", "content": "Say hello to Bob."}], repeat=2)
    assert (target.name, target.kind, target.variables) == ("prompt:hello.md", "prompt", frozenset({"name"}))
    assert target.watch == (tmp_path / "hello.md",)


def test_a_text_file_is_cut_at_its_roles(tmp_path: Path, call: Call) -> None:
    (tmp_path / "p.txt").write_text("\n[system]\nBe {{tone}}.\n\n[user]\nHi [user] x\n[assistant]\nHo\n[user]\n{{q}}\n")
    request = asked(call, build("prompt:p.txt", tmp_path), {"tone": "kind", "q": "[system]"})
    assert [(one["role"], one["content"]) for one in request.messages] == [
        ("system", "Be kind."),
        ("user", "Hi [user] x"),
        ("assistant", "Ho"),
        ("user", "[system]"),
    ]


def test_a_role_further_down_is_text(tmp_path: Path, call: Call) -> None:
    (tmp_path / "p.txt").write_text("Explain this line:\n[system]\n")
    request = asked(call, build("prompt:p.txt", tmp_path), {})
    assert request.messages == [{"role": "user", "content": "Explain this line:\n[system]"}]


@pytest.mark.parametrize(
    ("name", "text"), [("p.yaml", '- "{{history}}"\n'), ("p.json", '["{{history}}"]'), ("q.yml", "[ '{{ history }}' ]")]
)
def test_a_list_may_be_nothing_but_the_messages_of_the_case(tmp_path: Path, call: Call, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert asked(call, build(f"prompt:{name}", tmp_path), {"history": history}).messages == history


def test_names_in_single_braces_are_optional() -> None:
    parts = [{"type": "text", "text": '{nmae} {{needed}} {needed} {"a": 1}'}]
    messages = [{"role": "system", "content": "{tone} {given}"}, {"role": "user", "content": parts}]
    target = build({"prompt": {"messages": messages, "defaults": {"given": "x"}}})
    assert sorted(target.optional) == ["nmae", "tone"] and target.variables == frozenset({"needed"})
    assert build({"prompt": "{{q}}"}).optional == frozenset()


FIELDS = {
    "p.yaml": "system: Be {{tone}}.\nuser: '{{q}}'\nparams: {temperature: 0, top_p: 1}\njson: true\n",
    "p.json": '{"messages": [{"role": "system", "content": "Be {{tone}}."}, {"role": "user", "content": "{{q}}"}],'
    ' "params": {"temperature": 0, "top_p": 1}, "json": true}',
    "lab.yml": "name: v1\ndescription: x\nsystem_prompt: Be {tone}.\nuser_template: '{q}'\ndefaults: {q: none}\n"
    "params: {temperature: 0, top_p: 1}\njson: true\n",
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_file_of_fields(name: str, tmp_path: Path, call: Call) -> None:
    (tmp_path / name).write_text(FIELDS[name])
    request = asked(call, build({"prompt": name}, tmp_path), {"tone": "kind", "q": "why?"}, {"temperature": 1})
    assert request == Request(
        [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "why?"}],
        {"temperature": 1, "top_p": 1},
        "json",
        repeat=2,
    )


def test_a_list_of_messages_and_a_schema(tmp_path: Path, call: Call) -> None:
    (tmp_path / "p.yaml").write_text("- {role: user, content: 'Hi {{name}}'}\n")
    target = build({"prompt": "p.yaml", "schema": {"type": "object"}, "tools": [{"name": "t"}]}, tmp_path)
    request = asked(call, target, {"name": "Bob"})
    assert request.messages == [{"role": "user", "content": "Hi Bob"}]
    assert (request.answer, request.tools) == ({"type": "object"}, [{"name": "t"}])


def test_what_stands_beside_the_file_counts_more(tmp_path: Path, call: Call) -> None:
    (tmp_path / "p.yaml").write_text("system_prompt: old\nuser: u\nparams: {top_p: 1}\n")
    target = build({"prompt": "p.yaml", "system": "new", "params": {"temperature": 0}}, tmp_path)
    request = asked(call, target, {})
    assert [one["content"] for one in request.messages] == ["new", "u"]
    assert request.params == {"temperature": 0}


def test_defaults_fill_what_a_case_lacks(call: Call) -> None:
    target = build({"template": "{{a}} {{b}}", "defaults": {"b": "two"}})
    assert target.variables == {"a"}
    assert asked(call, target, {"a": "one"}).messages[0]["content"] == "one two"


def test_inline_prompts(call: Call) -> None:
    for spec in (
        {"template": "Hi {{name}}", "system": "S"},
        {"prompt": "Hi {{name}}", "system": "S"},
        {"prompt": {"user": "Hi {{name}}", "system": "S"}},
        {"prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi {{name}}"}]},
    ):
        messages = asked(call, build(spec), {"name": "Bob"}).messages
        assert [one["content"] for one in messages] == ["S", "Hi Bob"]


def test_the_messages_of_a_case_take_their_place(call: Call, fault_of: Callable[..., CallError]) -> None:
    target = build({"prompt": {"system": "S", "messages": "{{messages}}", "user": "And {{q}}?"}})
    talk = [{"role": "user", "content": "{{q}}"}, {"role": "assistant", "content": "b"}]
    messages = asked(call, target, {"messages": talk, "q": "c"}).messages
    assert [one["content"] for one in messages] == ["S", "{{q}}", "b", "And c?"]
    assert fault_of(target, {"messages": "text", "q": "c"}).code == "unusable_input"


def test_parts_of_content_are_filled(call: Call) -> None:
    parts = [{"type": "text", "text": "{{q}}"}, {"type": "image_url", "image_url": {"url": "{{picture}}"}}]
    target = build({"prompt": [{"role": "user", "content": parts}]})
    content = asked(call, target, {"q": "what?", "picture": "data:x"}).messages[0]["content"]
    assert content == [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": "data:x"}}]


def test_tool_calls_are_a_step(call: Call) -> None:
    async def calls_a_tool(request: Request) -> Response:
        return Response("", tool_calls=[{"name": "search"}])

    output = call(build({"template": "x"}), {}, calls_a_tool)
    assert output == Output("", {"tool_calls": [{"name": "search"}]})


def test_a_json_answer_stays_text(call: Call) -> None:
    output = call(build({"template": "x", "json": True}), {})
    assert json.loads(output.value)["messages"] == [{"role": "user", "content": "x"}]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("p.yaml", "sytem: x\nuser: y\n", "Did you mean 'system'?"),
        ("p.yaml", "user: [1]\n", "user: expected a string, got a list"),
        ("p.yaml", "user: a\nuser_template: b\n", "say the same thing"),
        ("p.yaml", "messages: [{role: usr, content: x}]\n", "Did you mean 'user'?"),
        ("p.yaml", "messages: [{role: user}]\n", "messages[0].content: expected a string"),
        ("p.yaml", "messages: [hello]\n", "messages[0]: expected an object"),
        ("p.yaml", "user: x\nparams: 3\n", "params: expected an object, got an integer"),
        ("p.yaml", "user: x\njson: 3\n", "json: expected true or false"),
        ("p.yaml", "user: x\nschema: 3\n", "schema: expected a JSON Schema"),
        ("p.json", '{"user": ', "p.json:1"),
        ("p.json", "[1, 2]", "expected an object with system and user"),
        ("p.md", "\n\n", "the prompt is empty"),
    ],
)
def test_a_bad_prompt_is_refused(name: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(EvalloomError) as caught:
        build(f"prompt:{name}", tmp_path)
    assert caught.value.code == "bad_prompt" and caught.value.exit_code == 2
    assert said in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "hello.md").write_text("x")
    with pytest.raises(EvalloomError, match=r"Did you mean 'hello.md'\? \[prompt_missing\]"):
        build("prompt:helo.md", tmp_path)


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.md").write_bytes("你好".encode("gbk"))
    with pytest.raises(EvalloomError, match="Save the file as UTF-8"):
        build("prompt:p.md", tmp_path)
