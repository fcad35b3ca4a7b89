"""Who may ask the service, and what every answer carries."""

import http.client
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

TOKEN = "a-token-of-many-signs"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@pytest.mark.req("REPLAY-15")
@pytest.mark.parametrize("path", ["/healthz", "/openapi.json", "/api/projects", "/api/runs/none", "/nowhere"])
def test_every_answer_carries_the_headers(service: Any, path: str) -> None:
    headers = service.get(path).headers
    assert {name: headers[name] for name in HEADERS} == HEADERS
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "Access-Control-Allow-Origin" not in headers and "Server" not in headers


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8420", "[::1]", "[::1]:8420"])
def test_names_of_this_machine_are_answered(service: Any, host: str) -> None:
    assert service.get("/api/projects", Host=host).status == 200


@pytest.mark.req("REPLAY-15")
@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "127.0.0.1.evil.example", "localhost.", "localhost@evil.example", "", "0.0.0.0", "[::2]"),
        *("[::1]evil.example", "[::1].evil.example:80", "localhost:80@evil.example", "localhost:x", "localhost:1:2"),
    ],
)
def test_another_host_is_refused(service: Any, host: str) -> None:
    assert service.get("/api/projects", Host=host).error == (421, "unknown_host")


@pytest.mark.req("REPLAY-15")
@pytest.mark.parametrize(
    ("first", "second", "trailer"),
    [
        (b"Host: evil.example\r\n", b"Host: localhost\r\n", b""),
        (b"Host: evil.example\r\n", b"", b"Host: localhost\r\n"),
        (b"", b"", b"Host: localhost\r\n"),
    ],
)
def test_a_host_that_is_given_twice_is_refused(service: Any, first: bytes, second: bytes, trailer: bytes) -> None:
    head = b"POST /api/execute HTTP/1.1\r\n" + first + second + b"Transfer-Encoding: chunked\r\n\r\n"
    sent = head + b"0\r\n" + trailer + b"\r\n"
    with socket.create_connection((service.host, service.port), timeout=10) as connection:
        connection.sendall(sent)
        assert connection.recv(100).startswith(b"HTTP/1.1 421 ")


def test_a_request_without_a_host_is_refused(service: Any) -> None:
    connection = http.client.HTTPConnection(service.host, service.port, timeout=10)
    connection.putrequest("GET", "/healthz", skip_host=True)
    connection.endheaders()
    assert connection.getresponse().status == 421
    connection.close()


@pytest.mark.req("REPLAY-15")
@pytest.mark.parametrize(
    "headers",
    [
        *({"Origin": origin} for origin in ("null", "http://evil.example", "http://localhost:1", "file://", "")),
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_a_page_of_another_site_is_refused(service: Any, headers: dict[str, str]) -> None:
    refused = service.post("/api/projects", {"name": "x", "state": {"nodes": []}}, **headers)
    assert refused.error == (403, "foreign_origin")
    assert service.get("/api/projects", **headers).error == (403, "foreign_origin")


def test_a_page_of_our_own_is_answered(service: Any) -> None:
    own = f"127.0.0.1:{service.port}"
    for scheme in ("http", "https"):
        headers = {"Origin": f"{scheme}://{own}", "Sec-Fetch-Site": "same-origin", "Host": own}
        assert service.get("/api/projects", **headers).status == 200
    assert service.get("/api/projects", **{"Sec-Fetch-Site": "none"}).status == 200


@pytest.mark.req("REPLAY-15")
def test_a_token_is_needed_for_all_but_the_health(start: Callable[..., Any]) -> None:
    service = start("--token-env", "T", env={"T": TOKEN})
    assert service.get("/healthz").status == 200
    for wrong in ("", "Bearer", "Bearer x", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN, "Bearer \xff"):
        refused = service.get("/api/projects", Authorization=wrong)
        assert refused.error == (401, "unauthorized") and refused.headers["WWW-Authenticate"] == "Bearer"
        assert TOKEN.encode() not in refused.body
    assert service.get("/nowhere").status == service.get("/openapi.json").status == 401
    authorized = {"Authorization": f"bearer {TOKEN}"}
    assert service.get("/api/projects", **authorized).status == 200
    assert service.get("/openapi.json", **authorized).value["components"]["securitySchemes"]
    assert service.get("/api/projects", **authorized, Host="evil.example").error == (421, "unknown_host")


def test_behind_another_host_the_token_is_the_guard(start: Callable[..., Any]) -> None:
    service = start("--host", "0.0.0.0", "--token-env", "T", env={"T": TOKEN})
    own = {"Host": "loom.example", "Origin": "https://loom.example"}
    assert service.get("/api/projects", **own).error == (401, "unauthorized")
    authorized = {"Authorization": f"Bearer {TOKEN}", **own}
    assert service.get("/api/projects", **authorized).status == 200
    assert service.get("/api/projects", **{**authorized, "Origin": "https://evil.example"}).status == 403


def test_a_name_of_a_proxy_can_be_allowed(start: Callable[..., Any]) -> None:
    service = start("--allow-host", "Loom.example", "--token-env", "T", env={"T": TOKEN})
    authorized = {"Authorization": f"Bearer {TOKEN}"}
    assert service.get("/api/projects", **authorized, Host="loom.example").status == 200
    assert service.get("/api/projects", **authorized, Host="evil.example").status == 421


@pytest.mark.req("REPLAY-15")
def test_keys_and_the_token_are_kept_nowhere(start: Callable[..., Any], tmp_path: Path) -> None:
    key = "key-of-an-llm-0123456789"
    service = start("--token-env", "T", env={"T": TOKEN, "HOP_KEY_X": key})
    authorized = {"Authorization": f"Bearer {TOKEN}"}
    rows = [{"q": f"{TOKEN} and {key}"}]
    made = service.post("/api/datasets", {"name": f"of {TOKEN}", "rows": rows}, **authorized)
    state = {"nodes": [{"id": "a", "data": {"content": f"{key} {{{{q}}}}"}}]}
    project = service.post("/api/projects", {"name": key, "state": state}, **authorized).value["id"]
    ran = service.post(f"/api/datasets/{made.value['id']}/replay", {"projectId": project}, **authorized)
    record = service.get(f"/api/runs/{ran.value[0]['runId']}", **authorized)
    executed = service.post("/api/execute", {"state": state, "row": rows[0]}, **authorized)
    told = made.body + ran.body + record.body + executed.body + service.get("/api/datasets", **authorized).body
    service.stop()
    told += b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"[hidden]" in told and TOKEN.encode() not in told and key.encode() not in told


def test_a_bug_is_told_on_stderr_and_not_to_the_client(start: Callable[..., Any], tmp_path: Path) -> None:
    service = start("--token-env", "T", env={"T": TOKEN})
    (database,) = tmp_path.rglob("*.sqlite")
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("DROP TABLE projects")
        connection.commit()
    failed = service.get("/api/projects", Authorization=f"Bearer {TOKEN}")
    assert failed.error == (500, "internal_error") and b"table" not in failed.body
    assert failed.headers["X-Frame-Options"] == "DENY"
    said = service.stop()
    assert "no such table: projects" in said and TOKEN not in said
