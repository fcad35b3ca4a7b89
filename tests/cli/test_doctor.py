"""`evalloom doctor`: is everything there that a run needs?"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


@pytest.fixture
def doctor(in_process: Call) -> Call:
    """`evalloom doctor` in an empty folder."""
    return partial(in_process, "doctor")


@pytest.fixture
def url() -> Iterator[str]:
    """A server on loopback that knows nothing."""
    server = http.server.HTTPServer(("127.0.0.1", 0), Silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class Silent(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def states(done: Any) -> dict[str, tuple[str, str]]:
    return {one["subject"]: (one["state"], one["told"]) for one in json.loads(done.out)}


def test_empty_folder_is_fine_and_says_how_to_begin(doctor: Call) -> None:
    done = doctor()
    assert done.code == 0 and "evalloom " in done.out and "no evalloom.yaml here" in done.out
    assert "warning  profiles" in done.out and "--profile echo" in done.out


def test_keys_are_present_or_not_and_never_shown(doctor: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("evalloom.yaml").write_text("llms: {a: {model: m}, b: {model: m, key_env: B_KEY}, c: {protocol: echo}}\n")
    monkeypatch.setenv("HOP_KEY_A", "sk-recognisable-5f2a91c07e")
    found = states(done := doctor("--offline", "--json"))
    assert done.code == 3 and found["key of a"] == ("ok", "present") and found["key of c"] == ("ok", "none needed")
    assert found["key of b"][0] == "error" and "Set B_KEY" in found["key of b"][1]
    assert "recognisable" not in done.out + done.err


def test_endpoints_are_reached_for_unless_offline(doctor: Call, url: str) -> None:
    Path("evalloom.yaml").write_text(
        f"llms: {{up: {{model: m, base_url: '{url}'}}, down: {{model: m, base_url: 'http://127.0.0.1:9'}}}}\n"
    )
    found = states(done := doctor("--json"))
    assert done.code == 3 and found["endpoint of up"] == ("ok", f"{url} answers (HTTP 404 without a key)")
    assert found["endpoint of down"][0] == "error" and "cannot connect" in found["endpoint of down"][1]
    assert "endpoint of down" not in states(doctor("--json", "--offline"))


def test_endpoint_from_the_environment_is_reached_for(doctor: Call, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    Path("evalloom.yaml").write_text("llms: {mine: {model: m}}\n")
    assert states(doctor("--json"))["endpoint of mine"][0] == "ok"


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
