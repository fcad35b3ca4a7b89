"""Batches whose llm or judge stops answering: they end, and are resumed without a gap."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evalloom.llms import outage

Call = Callable[..., Any]
SETTINGS = """
llms:
  one: {{base_url: "{url}/one", model: m, retries: 0}}
  two: {{base_url: "{url}/two", model: m, retries: 0}}
target: prompt:prompt.md
datasets: [cases.jsonl]
"""


class Server(http.server.ThreadingHTTPServer):
    """Answers as a model and as a judge, each under a path; a path of `failing` gets its status after some requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.failing: dict[str, tuple[int, int]] = {}
        self.requests: dict[str, int] = {"one": 0, "two": 0}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        name = self.path.split("/")[1]
        self.server.requests[name] += 1
        status, after = self.server.failing.get(name, (200, 0))
        said = json.dumps({"reason": "good", "pass": True, "score": 1.0})
        body = json.dumps({"choices": [{"message": {"content": said}, "finish_reason": "stop"}]}).encode()
        self.send_response(status if self.server.requests[name] > after else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(in_process: Call, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server, a suite of 40 cases for it, and an outage that is given up soon."""
    monkeypatch.setattr(outage, "PAUSES_S", (0.01, 0.02))
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Path("prompt.md").write_text("{{q}}")
    Path("evalloom.yaml").write_text(SETTINGS.format(url=f"http://127.0.0.1:{server.server_port}"))
    write_cases({"expected_output": "contains:good"})
    yield server
    server.shutdown()
    server.server_close()


def write_cases(more: dict[str, Any]) -> None:
    Path("cases.jsonl").write_text("".join(json.dumps({"id": f"c{n}", "q": str(n), **more}) + "\n" for n in range(40)))


def runs() -> list[dict[str, Any]]:
    """The lines of the newest batch, of which the last for a case counts."""
    file = sorted(Path(".evalloom/batches").glob("*/runs.jsonl"))[-1]
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.mark.req("WORK-42")
def test_an_outage_in_the_middle_ends_the_batch_which_is_resumed_whole(in_process: Call, server: Server) -> None:
    server.failing["one"] = (503, 10)
    done = in_process("run", "--profile", "one", "-j", "2", "--json")
    assert done.code == 3 and "calls in a row failed, the last with: HTTP 503" in done.err
    assert json.loads(done.out)["problem"]["code"] == "llm_unavailable"
    errors = [run for run in runs() if run.get("error")]
    assert 0 < len(errors) < outage.IN_A_ROW + 2 and len(runs()) < 40
    server.failing.clear()
    done = in_process("run", "--profile", "one", "--resume", "--json")
    assert (done.code, json.loads(done.out)["passed"], json.loads(done.out)["error"]) == (0, 40, 0)


def test_the_runs_of_other_profiles_go_on(in_process: Call, server: Server) -> None:
    server.failing["one"] = (401, 0)
    done = in_process("run", "--profile", "one,two", "-j", "4", "--json")
    found = json.loads(done.out)
    assert done.code == 3 and "llm 'one' cannot be used" in found["problem"]["message"]
    assert (found["passed"], found["error"], list(found["profiles"])) == (40, 0, ["two"])
    assert server.requests["one"] <= 4 and server.requests["two"] == 40


def test_cases_that_wait_for_a_run_of_such_a_profile_wait_for_the_next_batch(in_process: Call, server: Server) -> None:
    write_cases({"expected_output": "contains:good", "depends_on": ["c0"]})
    lines = Path("cases.jsonl").read_text().splitlines()
    first = {"id": "c0", "q": "0", "expected_output": "contains:good"}
    Path("cases.jsonl").write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    server.failing["one"] = (401, 0)
    assert in_process("run", "--profile", "one,two", "--json").code == 3
    server.failing.clear()
    found = json.loads(in_process("run", "--profile", "one,two", "--resume", "--json").out)
    assert (found["passed"], found["blocked"]) == (80, 0)


@pytest.mark.parametrize("failing", [(401, 0), (503, 10)])
def test_a_judge_that_does_not_answer_ends_the_batch(
    in_process: Call, server: Server, failing: tuple[int, int]
) -> None:
    Path("evalloom.yaml").write_text(Path("evalloom.yaml").read_text() + "checks: [{judge: is good}]\njudge: two\n")
    write_cases({})
    server.failing["two"] = failing
    done = in_process("run", "--profile", "one", "-j", "2", "--json")
    assert done.code == 3 and "llm 'two' " in done.err and "cannot be used" in done.err
    done = in_process("score", "latest")
    assert done.code == 3 and "[llm_unavailable]" in done.err and "The earlier verdicts stay" in done.err
    server.failing.clear()
    found = json.loads(in_process("run", "--profile", "one", "--resume", "--json").out)
    assert (found["passed"], found["unscored"], found["error"]) == (40, 0, 0)
