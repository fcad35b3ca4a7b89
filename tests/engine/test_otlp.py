"""`evalloom export --otlp`: the spans of a batch, sent to a collector."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest


class Collector(ThreadingHTTPServer):
    """Receives OTLP/JSON; `answers` are the statuses and bodies of the next requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.answers: list[tuple[int, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def runs(self) -> int:
        return sum(len(body["resourceSpans"]) for _, _, body in self.requests)


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, answer = self.server.answers.pop(0) if self.server.answers else (200, b"{}")
        if status == 200:
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.server.requests.append((self.path, headers, body))
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def evalloom(in_process: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    (tmp_path / "p.md").write_text("{{q}}")
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps({"id": f"c{n}", "q": "word"}) + "\n" for n in range(3)))
    in_process("run", "cases.jsonl", "--target", "prompt:p.md", "--profile", "echo", "--no-checks")
    return in_process


def test_all_runs_are_sent_with_the_headers_of_the_environment(
    evalloom: Callable[..., Any], collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=eval%20team, authorization=Basic abc=")
    done = evalloom("export", "latest", "--otlp", collector.url)
    assert done.code == 0 and "3 runs sent" in done.err and not done.out
    path, headers, body = collector.requests[0]
    assert path == "/v1/traces" and headers["content-type"] == "application/json"
    assert headers["x-team"] == "eval team" and headers["authorization"] == "Basic abc="
    assert collector.runs == 3 and "word" not in json.dumps(body)


def test_a_collector_that_is_busy_is_asked_again(evalloom: Callable[..., Any], collector: Collector) -> None:
    collector.answers = [(503, b"busy")]
    assert evalloom("export", "latest", "--otlp", f"{collector.url}/own/path").code == 0
    assert collector.runs == 3 and collector.requests[0][0] == "/own/path"


def test_refused_and_rejected_spans_are_an_error(evalloom: Callable[..., Any], collector: Collector) -> None:
    collector.answers = [(401, b"no such key")]
    refused = evalloom("export", "latest", "--otlp", collector.url)
    assert refused.code == 3 and "HTTP 401: no such key" in refused.err and "[otlp_failed]" in refused.err
    partial = {"partialSuccess": {"rejectedSpans": "2", "errorMessage": "too old"}}
    collector.answers = [(200, json.dumps(partial).encode())]
    rejected = evalloom("export", "latest", "--otlp", collector.url)
    assert rejected.code == 3 and "rejected 2 spans: too old" in rejected.err and "[otlp_rejected]" in rejected.err
    assert "[bad_option]" in evalloom("export", "latest", "--otlp", "localhost:4318").err


def test_large_runs_go_in_several_requests(
    in_process: Callable[..., Any], collector: Collector, tmp_path: Path
) -> None:
    (tmp_path / "p.md").write_text("{{q}}")
    cases = [{"id": f"c{number}", "q": "x" * 200_000} for number in range(6)]
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    in_process("run", "cases.jsonl", "--target", "prompt:p.md", "--profile", "echo", "--no-checks")
    assert in_process("export", "latest", "--otlp", collector.url, "--with-content").code == 0
    assert collector.runs == 6 and len(collector.requests) > 1
