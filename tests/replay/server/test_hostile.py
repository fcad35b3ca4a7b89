"""What no well-meaning client sends: each gets the stated code, and the service goes on."""

import asyncio
import http.client
import socket
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.requests import Request

from evalloom.pages import http as server_http
from evalloom.pages.errors import RequestError

JSON = {"Content-Type": "application/json"}
POSTS = ("/api/projects", "/api/datasets", "/api/datasets/d/replay", "/api/execute")


@pytest.mark.req("REPLAY-12")
@pytest.mark.parametrize(
    "body",
    [
        *(b"", b" ", b"{", b'{"a":}', b"{}x", b"NaN", b"[1e999]", b"'x'", b"\xff\xfe{\x00}\x00", b'{"a":"\xff"}'),
        *(b'{"a":"\\ud800"}', b"[" * 1_000_000, b'{"a":' * 100_000, b"1" * 5_000, b"\x00", b'{"a" 1}', b"{}{}"),
    ],
)
def test_a_broken_body_is_refused(service: Any, body: bytes) -> None:
    for path in POSTS:
        assert service.post(path, body, **JSON).error == (400, "validation_failed")


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data", "x", "a/b;"])
def test_another_media_type_is_refused(service: Any, kind: str) -> None:
    refused = service.post("/api/datasets", b'{"name":"x","rows":[]}', **{"Content-Type": kind})
    assert refused.error == (415, "unsupported_media_type")
    packed = service.post("/api/execute", b"{}", **JSON, **{"Content-Encoding": "gzip"})
    assert packed.error == (415, "unsupported_media_type")


def test_what_curl_says_of_a_body_is_json_and_what_a_form_says_is_not(service: Any) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert service.post("/api/datasets", b'{"name":"x","rows":[]}', **form).status == 201
    signs = {
        **{"Origin": f"http://127.0.0.1:{service.port}", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": "document"},
        **{
            "Cookie": "a=b",
            "Referer": "http://evil.example/",
            "Accept-Language": "en",
            "Upgrade-Insecure-Requests": "1",
        },
        **{"User-Agent": "Mozilla/4.0 (compatible; MSIE 8.0)", "Sec-Ch-Ua": '"Chromium"'},
    }
    for sign in ({name: value} for name, value in signs.items()):
        refused = service.post("/api/datasets", b'{"name":"x","rows":[]}', **form, **sign)
        assert refused.error == (415, "unsupported_media_type")


def test_a_body_without_a_media_type_is_json(service: Any) -> None:
    assert service.post("/api/datasets", b'{"name":"x","rows":[]}').status == 201
    assert service.post("/api/datasets", b"{}", **{"Content-Type": "Application/JSON; charset=utf-8"}).status == 400


@pytest.mark.req("REPLAY-15")
def test_a_body_that_says_it_is_too_long_is_not_read(service: Any) -> None:
    connection = http.client.HTTPConnection(service.host, service.port, timeout=10)
    connection.putrequest("POST", "/api/datasets")
    for name, value in (("Content-Length", "64000001"), *JSON.items()):
        connection.putheader(name, value)
    connection.endheaders()
    reply = connection.getresponse()
    assert reply.status == 413 and b"body_too_large" in reply.read()
    connection.close()


@pytest.mark.req("REPLAY-15")
def test_a_body_of_unknown_length_is_counted_as_it_comes(service: Any) -> None:
    connection = http.client.HTTPConnection(service.host, service.port, timeout=30)
    pieces = (b" " * 1_000_000 for _ in range(65))
    connection.request("POST", "/api/datasets", pieces, JSON, encode_chunked=True)
    reply = connection.getresponse()
    assert reply.status == 413 and b"body_too_large" in reply.read()
    connection.close()


def test_a_body_that_stops_coming_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_http, "BODY_WAIT_S", 0.05)
    parts = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> Any:
        return parts.pop() if parts else await asyncio.sleep(60)

    with pytest.raises(RequestError, match=r"expected its next part within 0\.05 s, got none after 1 bytes") as caught:
        asyncio.run(server_http.read_body(Request({"type": "http", "headers": []}, receive)))
    assert server_http.status_of(caught.value.code) == 408


@pytest.mark.req("REPLAY-15")
@pytest.mark.parametrize(
    "id",
    ["..", "%2e%2e", "..%2f..%2fetc", "%00", "a" * 65, "a%0ab", "a%20", "é".encode().hex(), "%F0%9F%98%80", "a.b", "~"],
)
def test_what_is_no_id_is_not_found(service: Any, shared: tuple[str, str], id: str) -> None:
    for method, path in (("GET", "/api/projects/"), ("DELETE", "/api/datasets/"), ("GET", "/api/runs/")):
        assert service.ask(method, path + id).status == 404
    body = {"name": "x", "state": {"nodes": []}}
    assert service.ask("PUT", f"/api/projects/{id}", body).status == 404
    assert service.get(f"/api/runs/{id}/compare/{id}").status == 404
    assert service.get(f"/api/datasets/{shared[1]}/compare?a={id}").error == (404, "replay_not_found")


def test_unknown_paths_and_methods(service: Any) -> None:
    for path in ("/api/", "/api/projects/", "//api/projects", "/API/projects", "/api/runs", "/docs"):
        assert service.get(path).error == (404, "not_found")
    for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        refused = service.ask(method, "/api/projects")
        assert refused.error == (405, "method_not_allowed")
        assert set(refused.headers["Allow"].split(", ")) == {"GET", "HEAD", "POST"}
    asked = service.ask("HEAD", "/healthz")
    assert (asked.status, asked.body) == (200, b"") and int(asked.headers["Content-Length"]) > 0


def test_what_is_no_http_leaves_the_service_alone(service: Any) -> None:
    for sent in (b"\x00" * 100, b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        with socket.create_connection((service.host, service.port), timeout=10) as connection:
            connection.sendall(sent)
            reply = connection.recv(4096)
            assert reply.startswith(b"HTTP/1.1 400 ") and b"\r\nx-content-type-options: nosniff\r\n" in reply
            assert reply.endswith(b'{"error":"not_http","message":"expected a request in HTTP/1.1"}')
    assert service.get("/healthz").status == 200


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ("name", "state", "nodes", "edges", "variables", "rows", "projectId", "row", "limit", "offset")
)
BODIES = st.dictionaries(FIELDS, ANY_JSON | st.dictionaries(FIELDS, ANY_JSON, max_size=4), max_size=5)


@pytest.mark.req("REPLAY-12", "REPLAY-14")
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=ANY_JSON | BODIES, path=st.sampled_from(POSTS))
def test_no_json_makes_it_fail(service: Any, body: Any, path: str) -> None:
    got = service.post(path, body)
    assert got.status in (200, 201) or got.error[0] in (400, 404)
