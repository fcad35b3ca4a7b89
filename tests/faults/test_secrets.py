"""Keys appear nowhere: not on the screen, not in the record, not in reports, cassettes and tracebacks."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faults.conftest import Suite
    from tests.llms.serving import Server

pytestmark = pytest.mark.slow

KEY = "sk-recognisable-5f2a91c07e"
OUTPUTS = [part for suffix in ("json", "jsonl", "csv", "xml") for part in ("-o", f"out.{suffix}")]


def assert_hidden(suite: Suite, done: subprocess.CompletedProcess[str]) -> None:
    assert KEY not in done.stdout and KEY not in done.stderr
    files = [path for path in suite.folder.rglob("*") if path.is_file()]
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []


# At temperature 0 answers go through the cache as well.
@pytest.mark.parametrize(("variable", "temperature"), [("HOP_KEY_FAR", "0"), ("OPENAI_API_KEY", "1")])
def test_server_that_repeats_the_key(
    suite: Suite, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, variable: str, temperature: str
) -> None:
    monkeypatch.setenv(variable, KEY)
    suite.settings(serve().url, f"temperature: {temperature}")
    suite.cases(["[[echo-key]]", "[[mirror]]", "say: fine"])
    done = suite.run("--debug", "run", "--record", "cassette.jsonl", *OUTPUTS)
    outputs = {run["case_id"]: run for run in suite.lines()}
    assert done.returncode == 1 and "[http_401]" in outputs["c0"]["error"]
    assert "[hidden]" in outputs["c1"]["output"]["value"], "the server saw the key, and we took it out"
    assert_hidden(suite, done)
    assert_hidden(suite, suite.run("run"))
    assert_hidden(suite, suite.run("batches", "show", "latest", "--json"))
    assert_hidden(suite, suite.run("doctor"))


TARGET = """\
import os

def raises(q):
    raise ValueError("the key is " + os.environ["OPENAI_API_KEY"])

def answers(q):
    return {"key": os.environ["OPENAI_API_KEY"], "q": [q]}
"""


@pytest.mark.parametrize("function", ["raises", "answers"])
def test_function_that_tells_the_key(suite: Suite, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    suite.write("app.py", TARGET)
    suite.cases(["say: fine"])
    done = suite.run("--debug", "run", "cases.jsonl", "--target", f"python:app:{function}", *OUTPUTS)
    assert done.returncode == 1 and "[hidden]" in done.stdout
    assert_hidden(suite, done)
    assert_hidden(suite, suite.run("score", "latest", *OUTPUTS))


def test_module_that_fails_with_the_key(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    suite.write("app.py", 'import os\nraise ValueError("the key is " + os.environ["OPENAI_API_KEY"])\n')
    suite.write("evalloom.yaml", "target: python:app:answer\ndatasets: [cases.jsonl]\n")
    suite.cases(["say: fine"])
    done = suite.run("--debug", "run")
    assert done.returncode == 2 and "[target_missing]" in done.stderr and "[hidden]" in done.stderr
    assert_hidden(suite, done)
    assert_hidden(suite, suite.run("doctor", "--json"))


def test_endpoint_that_repeats_a_secret(
    suite: Suite, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_TOKEN", KEY)
    suite.cases(["[[mirror]]"])
    http = f"http: {serve().url}/chat/completions\n  headers: {{Authorization: 'Bearer ${{GATEWAY_TOKEN}}'}}\n"
    body = "  body: {messages: [{role: user, content: '{{q}}'}]}\n  response: choices[0].message.content\n"
    suite.write("evalloom.yaml", f"target:\n  {http}{body}datasets: [cases.jsonl]\n")
    done = suite.run("run", *OUTPUTS)
    assert "[hidden]" in suite.lines()[0]["output"]["value"], "the server saw the token, and we took it out"
    assert_hidden(suite, done)
