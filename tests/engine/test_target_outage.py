"""A server under test that is not there ends the batch, which is resumed when it is."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"good")

    def log_message(self, format: str, *args: Any) -> None:
        """Keeps quiet."""


@pytest.fixture
def port(unused_port: int) -> int:
    records = [{"id": f"c{n}", "q": str(n), "expected_output": "good"} for n in range(30)]
    Path("cases.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return unused_port


@pytest.mark.req("WORK-42")
def test_a_server_that_is_down_ends_the_batch_which_is_resumed(in_process: Call, port: int) -> None:
    command = ("run", "cases.jsonl", "--target", f"http://127.0.0.1:{port}/ask")
    done = in_process(*command, "-j", "4")
    assert done.code == 3 and "[target_unavailable]" in done.err and f"cannot connect to 127.0.0.1:{port}" in done.err
    assert "STOPPED: nothing was run" in done.out and "Stopped: the target does not answer." in done.out
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        done = in_process(*command, "--resume", "--json")
    finally:
        server.shutdown()
        server.server_close()
    assert (done.code, json.loads(done.out)["passed"]) == (0, 30) and len(
        list(Path(".evalloom/batches").iterdir())
    ) == 1


def test_a_host_that_the_case_names_is_an_error_of_the_case(in_process: Call, port: int) -> None:
    records = [{"id": f"c{n}", "port": str(port), "expected_output": "good"} for n in range(2)]
    Path("cases.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    Path("evalloom.yaml").write_text('target: {http: "http://127.0.0.1:{{port}}/ask"}\n')
    done = in_process("run", "cases.jsonl", "--json")
    assert (done.code, json.loads(done.out)["error"]) == (1, 2)
