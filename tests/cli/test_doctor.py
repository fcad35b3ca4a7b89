"""`evalloom doctor`: is everything there that a run needs?"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


@pytest.fixture
def doctor(in_process: Call) -> Call:
    """`evalloom doctor` in an empty folder."""
    return partial(in_process, "doctor")


def states(done: Any) -> dict[str, tuple[str, str]]:
    return {one["subject"]: (one["state"], one["told"]) for one in json.loads(done.out)}


def test_empty_folder_is_fine_and_says_how_to_begin(doctor: Call) -> None:
    done = doctor()
    assert done.code == 0 and "evalloom " in done.out and "no evalloom.yaml here" in done.out
    assert "warning  profiles" in done.out and "--profile echo" in done.out


def test_a_target_without_an_llm_needs_no_profile(doctor: Call) -> None:
    Path("ask.py").write_text("def ask(q):\n    return q\n")
    Path("evalloom.yaml").write_text("target: python:ask.py:ask\n")
    assert states(doctor("--json"))["profiles"] == ("ok", "none, and the target needs none")
    Path("prompt.md").write_text("{{q}}")
    Path("evalloom.yaml").write_text("target: prompt:prompt.md\n")
    assert states(doctor("--json"))["profiles"][0] == "warning"


def test_keys_are_present_or_not_and_never_shown(doctor: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("evalloom.yaml").write_text("llms: {a: {model: m}, b: {model: m, key_env: B_KEY}, c: {protocol: echo}}\n")
    monkeypatch.setenv("HOP_KEY_A", "sk-recognisable-5f2a91c07e")
    found = states(done := doctor("--offline", "--json"))
    assert done.code == 3 and found["key of a"] == ("ok", "present") and found["key of c"] == ("ok", "none needed")
    assert found["key of b"][0] == "error" and "Set B_KEY" in found["key of b"][1]
    assert "recognisable" not in done.out + done.err


@pytest.mark.req("WORK-32")
def test_providers_with_a_key_and_llms_that_only_a_profile_names(
    doctor: Call, llm_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("evalloom.yaml").write_text("profiles: {a: {run: 'deepseek:m'}, b: {run: 'groq:m'}}\njudge: echo\n")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-recognisable-5f2a91c07e")
    monkeypatch.setenv("DEEPSEEK_BASE_URL", f"{llm_server.url}/v1")
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    found = states(done := doctor("--json"))
    assert "deepseek (DEEPSEEK_API_KEY)" in found["providers"][1] and found["key of deepseek:m"] == ("ok", "present")
    assert found["endpoint of deepseek:m"][0] == "ok" and found["key of echo"] == ("ok", "none needed")
    assert "GROQ_API_KEY" in found["key of groq:m"][1] and "recognisable" not in done.out + done.err


TOLD = {
    "status-401": ("HTTP 401: the server says 401", "the key is not accepted"),
    "status-403": ("HTTP 403: the server says 403", "the key has no permission"),
    "no-model": ("HTTP 404: The model `no-model` does not exist", "correct model or base_url"),
    "status-500": ("HTTP 500: the server says 500", "the server failed"),
    "html": ("expected JSON, got '<html>", "does not answer as an llm does"),
}


@pytest.mark.parametrize("model", TOLD)
def test_endpoints_are_asked_and_their_errors_told_apart(doctor: Call, llm_server: Any, model: str) -> None:
    Path("evalloom.yaml").write_text(f"llms: {{far: {{model: {model}, base_url: '{llm_server.url}'}}}}\n")
    done = doctor("--json")
    found = {one["subject"]: one for one in json.loads(done.out)}["endpoint of far"]
    assert (done.code, found["state"]) == (3, "error")
    assert TOLD[model][0] in found["told"] and TOLD[model][1] in found["hint"] and llm_server.url in found["told"]


def test_an_endpoint_that_answers_and_one_that_is_not_there(
    doctor: Call, llm_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", llm_server.url)
    Path("evalloom.yaml").write_text("llms: {up: {model: m}, down: {model: m, base_url: 'http://127.0.0.1:9'}}\n")
    found = states(done := doctor("--json"))
    assert done.code == 3 and found["endpoint of up"] == ("ok", f"{llm_server.url} answers as m")
    assert found["endpoint of down"][0] == "error" and "cannot connect" in found["endpoint of down"][1]
    assert "endpoint of down" not in states(doctor("--json", "--offline"))


def test_the_key_is_sent_and_not_shown(doctor: Call, llm_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOP_KEY_FAR", "sk-recognisable-5f2a91c07e")
    Path("evalloom.yaml").write_text(f"llms: {{far: {{model: echo-key, base_url: '{llm_server.url}'}}}}\n")
    done = doctor()
    assert done.code == 3 and "[hidden]" in done.out and "recognisable" not in done.out


def test_an_embedding_model_is_asked_for_an_embedding(doctor: Call, llm_server: Any) -> None:
    llms = f"vec: {{model: m, base_url: '{llm_server.url}'}}, far: {{model: m, base_url: '{llm_server.url}'}}"
    Path("evalloom.yaml").write_text(f"llms: {{{llms}}}\nprofiles: {{main: {{run: far}}}}\nembeddings: vec\n")
    assert doctor().code == 0
    assert "['ok']" in llm_server.log()


def test_bad_settings_and_targets_are_told(doctor: Call) -> None:
    Path("evalloom.yaml").write_text("target: prompt:none.md\n")
    done = doctor()
    assert done.code == 3 and "error    target" in done.out and "none.md" in done.out
    Path("evalloom.yaml").write_text("lms: {}\nprofile: 1\n")
    done = doctor()
    assert done.code == 3 and "Did you mean 'llms'?" in done.out and "evalloom.yaml:2:1" in done.out
    assert doctor("--config", "none.yaml").code == 3


def test_folder_that_cannot_be_written_is_told(doctor: Call) -> None:
    Path(".evalloom").write_text("a file where a folder should be")
    found = states(done := doctor("--json"))
    assert done.code == 3 and found["batches"][0] == "error"
