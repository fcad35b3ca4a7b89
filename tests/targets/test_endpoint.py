"""HTTP endpoints: the request that is sent, the part of the answer that counts, and what is said when it fails."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from evalloom.core.errors import CallError, EvalloomError
from evalloom.core.model import Output, Record
from evalloom.targets import TargetOptions, build

Call = Callable[..., Output]
FaultOf = Callable[..., CallError]


class Handler(BaseHTTPRequestHandler):
    """Answers by path: /echo with the request itself, /status/N with that status, /say/X with X."""

    protocol_version = "HTTP/1.1"
    failures: dict[str, int]

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        _, kind, *rest = self.path.partition("?")[0].split("/")
        if kind == "slow":
            time.sleep(0.5)
        if kind == "flaky" and not self.failures.setdefault(self.path, 0):
            self.failures[self.path] = 1
            return self.reply(503, b"busy")
        if kind == "status":
            return self.reply(int(rest[0]), b"<h1>it   went\n wrong</h1>")
        if kind == "say":
            return self.reply(200, bytes.fromhex(rest[0]))
        seen = {"method": self.command, "path": self.path, "headers": dict(self.headers), "body": body}
        self.reply(200, json.dumps(seen).encode())

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Location", "http://elsewhere.invalid/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keeps quiet."""

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = answer


@pytest.fixture
def url() -> Iterator[str]:
    handler = type("Fresh", (Handler,), {"failures": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_inputs_are_the_body_and_the_answer_is_the_output(url: str, call: Call, trace: list[Record]) -> None:
    target = build(f"{url}/echo")
    seen = call(target, {"q": "为什么", "n": None}).value
    assert seen["method"] == "POST" and seen["headers"]["Content-Type"] == "application/json"
    assert json.loads(seen["body"]) == {"q": "为什么", "n": None}
    (entry,) = trace
    assert (entry["type"], entry["status"], entry["request"]) == ("http", 200, '{"q":"为什么","n":null}')
    assert entry["duration_s"] > 0 and '"method": "POST"' in entry["response"]


def test_names_of_the_spec(url: str) -> None:
    specs = (f"{url}/echo", f"http:{url}/echo", {"http": f"{url}/echo"})
    assert {(build(spec).name, build(spec).kind) for spec in specs} == {(f"http:{url}/echo", "http")}
    assert len({build(spec).digest for spec in specs}) == 1


@pytest.mark.parametrize(
    "body", [{"text": "Say {{q}}", "rows": "{{rows}}"}, '{"text": "Say {{q}}", "rows": "{{rows}}"}']
)
def test_a_body_of_json_cannot_be_broken_by_an_input(body: Any, url: str, call: Call) -> None:
    target = build({"http": f"{url}/echo", "body": body, "response": "body"})
    inputs = {"q": '"}, {{rows}}', "rows": [1, {"a": None}]}
    assert json.loads(call(target, inputs).value) == {"text": 'Say "}, {{rows}}', "rows": [1, {"a": None}]}
    assert target.variables == {"q", "rows"}


def test_a_body_of_text(url: str, call: Call) -> None:
    seen = call(build({"http": f"{url}/echo", "method": "put", "body": "Q: {{q}}"}), {"q": "x"}).value
    assert (seen["method"], seen["body"]) == ("PUT", "Q: x")
    assert seen["headers"]["Content-Type"].startswith("text/plain")


def test_what_goes_into_a_url_is_escaped(url: str, call: Call) -> None:
    target = build(
        {"http": f"{url}/echo/{{{{name}}}}?a={{{{q}}}}", "method": "GET", "query": {"b": "{{q}}", "c": 1, "d": None}}
    )
    seen = call(target, {"name": "../x y/?#", "q": "1&z=2+3 %41é"}).value
    assert seen["path"] == "/echo/..%2Fx%20y%2F%3F%23?a=1%26z%3D2%2B3%20%2541%C3%A9&b=1%26z%3D2%2B3+%2541%C3%A9&c=1"
    assert seen["body"] == "" and "Content-Type" not in seen["headers"]


def test_headers_take_secrets_from_the_environment(url: str, call: Call, trace: list[Record]) -> None:
    spec = {
        "http": f"{url}/echo",
        "headers": {"Authorization": "Bearer ${MY_KEY}", "X-N": 3, "X-Tenant": "${TENANT}"},
        "response": "headers.Authorization",
    }
    target = build(spec, options=TargetOptions(environ={"MY_KEY": "s3cret-key", "TENANT": "1"}))
    assert call(target, {}).value == "Bearer s3cret-key"
    assert target.secrets == ("s3cret-key",)  # to take every 1 out of the log would leave nothing of it
    del trace[0]["response"]  # the server's own words; who writes the log takes the secrets out of them
    assert "s3cret-key" not in json.dumps(trace) + target.name
    assert target.digest == build(spec, options=TargetOptions(environ={"MY_KEY": "another", "TENANT": "2"})).digest


def test_a_key_written_out_is_a_secret_too() -> None:
    headers = {"authorization": "Bearer key-0001", "X-Api-Key": "key-0002", "Accept": "a/b", "Cookie": "a=b"}
    assert build({"http": "http://x.invalid", "headers": headers}).secrets == ("key-0001", "key-0002")


def test_a_password_in_the_url_is_a_secret(url: str, call: Call, trace: list[Record]) -> None:
    spec = {"http": url.replace("//", "//bob:S3cret%21Word@") + "/echo", "response": "headers.Authorization"}
    target = build(spec)
    said = call(target, {}).value.removeprefix("Basic ")
    assert target.secrets == ("S3cret%21Word", "S3cret!Word", said)
    assert "S3cret" not in target.name + trace[0]["url"]
    assert build({"http": "http://x:y@x.invalid"}).secrets == ()


def test_a_call_that_ran_out_of_time_tells_of_its_last_attempt(url: str, fault_of: FaultOf, unused_port: int) -> None:
    refused = fault_of(build({"http": f"http://127.0.0.1:{unused_port}", "timeout_s": 0.4}), {})
    assert refused.message.startswith(
        f"no answer within 0.4 s; the last attempt: cannot connect to 127.0.0.1:{unused_port}"
    )
    assert refused.code == "timeout" and "[" not in refused.message
    busy = fault_of(build({"http": f"{url}/status/503", "timeout_s": 0.4}), {})
    assert busy.message == "no answer within 0.4 s; the last attempt: HTTP 503"


@pytest.mark.parametrize(
    ("said", "path", "value"),
    [
        ('{"choices": [{"message": {"content": "hi"}}]}', "choices[0].message.content", "hi"),
        ('{"a": {"b": 1}}', "$.a", {"b": 1}),
        ('[{"a": null}]', "[0].a", None),
        ("plain words", "", "plain words"),
        ('{"a": 1}', "", {"a": 1}),
        ("{broken", "", "{broken"),
        ("", "", ""),
    ],
)
def test_the_part_that_counts(said: str, path: str, value: Any, url: str, call: Call) -> None:
    target = build({"http": f"{url}/say/{said.encode().hex()}", "response": path})
    assert call(target, {}).value == value


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("<html>", "expected JSON with a.b, got '<html>' [bad_answer]"),
        (
            '{"a": {"c": 1}, "d": 2}',
            "response: there is nothing at a.b in the answer; the answer has a, d [bad_answer]",
        ),
    ],
)
def test_an_answer_without_that_part(said: str, message: str, url: str, fault_of: FaultOf) -> None:
    target = build({"http": f"{url}/say/{said.encode().hex()}", "response": "a.b"})
    assert str(fault_of(target, {})) == message


def test_statuses_are_errors(url: str, fault_of: FaultOf, trace: list[Record]) -> None:
    shown = f"HTTP 404: <h1>it went wrong</h1> ({url}/status/404) [http_404]"
    assert str(fault_of(build(f"{url}/status/404"), {})) == shown
    moved = fault_of(build(f"{url}/status/302"), {})
    assert moved.code == "http_302" and "redirects are not followed; it points to 'http://elsewhere" in moved.message
    assert [entry["status"] for entry in trace] == [404, 302]


def test_what_can_heal_is_tried_again(url: str, call: Call, trace: list[Record]) -> None:
    assert call(build({"http": f"{url}/flaky", "response": "method"}), {}).value == "POST"
    assert [entry["status"] for entry in trace] == [503, 200]


def test_a_slow_server_is_given_up_once(url: str, fault_of: FaultOf, trace: list[Record]) -> None:
    fault = fault_of(build({"http": f"{url}/slow", "timeout_s": 0.1}), {})
    assert str(fault) == "no answer within 0.1 s [timeout]" and not fault.is_transient
    assert len(trace) == 1


@pytest.mark.parametrize(
    ("spec", "code", "said"),
    [
        ({"http": "ftp://x"}, "bad_target_settings", "expected a URL like http://host:port/path, got 'ftp://x'"),
        ({"http": "http://[x"}, "bad_target_settings", "expected a URL like"),
        ({"http": "http://x", "method": "POKE"}, "bad_target_settings", "method: expected GET, POST"),
        ({"http": "http://x", "headers": {"A": "${NOT_SET}"}}, "variable_missing", "headers.A: NOT_SET is not set"),
        ({"http": "http://x", "headers": {"A": "{{q}}"}}, "bad_target_settings", "the same for every case"),
        ({"http": "http://x", "headers": {"A": "x\r\nB: y"}}, "bad_target_settings", "a header on one line"),
        ({"http": "http://x", "headers": {"A b": "x"}}, "bad_target_settings", "a header on one line"),
        ({"http": "http://x", "metod": "GET"}, "bad_target_settings", "Did you mean 'method'?"),
        (
            {"http": "http://x", "timeout_s": -1},
            "bad_target_settings",
            "timeout_s: expected a number of seconds above 0, got -1",
        ),
    ],
)
def test_a_bad_spec_is_refused(spec: Record, code: str, said: str) -> None:
    with pytest.raises(EvalloomError) as caught:
        build(spec, options=TargetOptions(environ={}))
    assert caught.value.code == code and said in str(caught.value)
