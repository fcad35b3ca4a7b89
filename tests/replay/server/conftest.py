"""The service in a process of its own, asked over HTTP as any client would."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from email.message import Message
from pathlib import Path
from typing import Any, NamedTuple

import pytest

STATE = {
    "nodes": [
        {"id": "n1", "data": {"label": "System", "type": "system_prompt", "content": "Hello {{name}}"}},
        {"id": "n2", "data": {"label": "User", "type": "user_input", "content": "Ask: {{q}}"}},
    ],
    "edges": [{"source": "n1", "target": "n2"}],
    "variables": [{"id": "v1", "name": "name", "type": "static", "value": "Alice"}],
}
DIGEST = "Iap+GZAYbfg+d6LXKtwTRC+NFywBzO2QkAmaqm+JskQ="
"""REPLAY-8: of what STATE makes of `{"q": "hi"}`."""


class Reply(NamedTuple):
    """What came back."""

    status: int
    headers: Message
    body: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str]:
        """The status and the code of a refusal, which says something too."""
        assert self.value["message"]
        return self.status, self.value["error"]


class Service:
    """A running `evalloom serve`."""

    def __init__(self, folder: Path, *flags: str, env: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "evalloom", "serve", "--port", "0", "--data-dir", "data", *flags]
        variables = {**os.environ, **(env or {})}
        self.process = subprocess.Popen(command, cwd=folder, env=variables, stderr=subprocess.PIPE, encoding="utf-8")
        assert self.process.stderr
        self.first_line = self.process.stderr.readline()
        found = re.search(r"http://(.+):(\d+) ", self.first_line)
        assert found, self.first_line
        self.host, self.port = found[1].strip("[]"), int(found[2])

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
        """One request; a body that is no bytes is sent as JSON."""
        sent = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent = {"Content-Type": "application/json", **sent}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            connection.request(method, path, body, sent)
            got = connection.getresponse()
            return Reply(got.status, got.headers, got.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        return self.ask("POST", path, body, headers)

    def project(self, state: Any = STATE) -> str:
        """The id of a new project."""
        made = self.post("/api/projects", {"name": "p", "state": state})
        assert made.status == 201, made
        return str(made.value["id"])

    def dataset(self, rows: list[Any]) -> str:
        """The id of a new dataset."""
        made = self.post("/api/datasets", {"name": "d", "rows": rows})
        assert made.status == 201, made
        return str(made.value["id"])

    def replay(self, project: str, dataset: str, **more: Any) -> Reply:
        return self.post(f"/api/datasets/{dataset}/replay", {"projectId": project, **more})

    def stop(self, with_signal: int = 15) -> str:
        """Ends it; what it said on stderr after its first line."""
        self.process.send_signal(with_signal)
        _, said = self.process.communicate(timeout=30)
        return said

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """`start("--token-env", "T", env=…)` gives a service over the test's own folder."""
    with ExitStack() as stack:

        def started(*flags: str, env: Mapping[str, str] | None = None) -> Service:
            service = Service(tmp_path, *flags, env=env)
            stack.callback(service.close)
            return service

        yield started


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all tests of a worker that leave the things of others alone."""
    running = Service(tmp_path_factory.mktemp("service"))
    yield running
    said = running.stop()
    assert "Traceback" not in said, said


@pytest.fixture
def state() -> dict[str, Any]:
    """A recipe that a test may change."""
    copy: dict[str, Any] = json.loads(json.dumps(STATE))
    return copy


@pytest.fixture
def digest() -> str:
    return DIGEST


@pytest.fixture(scope="session")
def shared(service: Service) -> tuple[str, str]:
    """A project and a dataset that nobody changes."""
    return service.project(), service.dataset([{"q": "hi"}])
