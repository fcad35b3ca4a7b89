"""Who may change something: sessions by code and by token, and what other sites cannot do."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

TOKEN = "a-token-of-many-signs"
pytestmark = pytest.mark.req("WORK-24")


class Asked:
    """A response, read."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.text = response.read().decode()

    @property
    def cookie(self) -> str:
        return self.headers.get("Set-Cookie", "").partition(";")[0]


def ask(server: Any, method: str, path: str, body: str = "", **headers: str) -> Asked:
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(address.netloc, timeout=30)
    sent = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
    try:
        connection.request(method, path, body or None, {**sent, **{k.replace("_", "-"): v for k, v in headers.items()}})
        return Asked(connection.getresponse())
    finally:
        connection.close()


def signed_in(server: Any) -> str:
    """The cookie of a session, from the address that `view` prints."""
    address = urlsplit(server.sign_in)
    answer = ask(server, "GET", f"{address.path}?{address.query}")
    assert answer.status == 303 and answer.cookie
    assert "HttpOnly" in answer.headers["Set-Cookie"] and "SameSite=strict" in answer.headers["Set-Cookie"]
    return answer.cookie


def test_reading_is_free_and_a_write_needs_a_session(serve_pages: Callable[..., Any], tmp_path: Path) -> None:
    server = serve_pages(tmp_path)
    assert ask(server, "GET", "/").status == 200
    refused = ask(server, "POST", "/jobs/x/cancel", Origin=server.url)
    assert refused.status == 403 and "session_needed" in refused.text
    cookie = signed_in(server)
    accepted = ask(server, "POST", "/jobs/x/cancel", Origin=server.url, Cookie=cookie)
    assert accepted.status == 404 and "job_not_found" in accepted.text


def test_the_code_works_once_and_a_new_one_is_printed(serve_pages: Callable[..., Any], tmp_path: Path) -> None:
    server = serve_pages(tmp_path)
    signed_in(server)
    address = urlsplit(server.sign_in)
    again = ask(server, "GET", f"{address.path}?{address.query}")
    assert again.status == 403 and not again.cookie
    printed = server.process.stderr.readline()
    assert printed.startswith("Sign in: http://127.0.0.1:") and address.query.partition("&")[0] not in printed
    code = printed.strip().partition("code=")[2]
    assert ask(server, "POST", "/login", f"secret={code}x&next=/jobs", Origin=server.url).status == 403
    entered = ask(server, "POST", "/login", f"secret={code}&next=/jobs", Origin=server.url)
    assert entered.status == 303 and entered.headers["Location"] == "/jobs" and entered.cookie


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {},
    ],
)
def test_another_site_cannot_write_with_the_cookie(
    serve_pages: Callable[..., Any], tmp_path: Path, headers: dict[str, str]
) -> None:
    server = serve_pages(tmp_path)
    cookie = signed_in(server)
    answer = ask(server, "POST", "/jobs/x/cancel", Cookie=cookie, **headers)
    assert answer.status == 403 and "job_not_found" not in answer.text


@pytest.mark.parametrize(
    "cookie", ["evalloom_{port}=", "evalloom_{port}=9999999999.00", "evalloom_1={value}", "x", "evalloom_{port}=\xff.é"]
)
def test_a_forged_cookie_opens_nothing(serve_pages: Callable[..., Any], tmp_path: Path, cookie: str) -> None:
    server = serve_pages(tmp_path)
    value = signed_in(server).partition("=")[2]
    forged = cookie.format(port=urlsplit(server.url).port, value=value)
    assert ask(server, "POST", "/jobs/x/cancel", Origin=server.url, Cookie=forged).status == 403


def test_a_session_outlives_the_server(serve_pages: Callable[..., Any], tmp_path: Path, unused_port: int) -> None:
    port = ("--port", str(unused_port))
    first = serve_pages(tmp_path, "view", "--no-browser", *port)
    cookie = signed_in(first)
    first.stop()
    key = tmp_path / ".evalloom" / "session.key"
    assert key.stat().st_mode & 0o077 == 0
    second = serve_pages(tmp_path, "serve", *port)
    assert ask(second, "POST", "/jobs/x/cancel", Origin=second.url, Cookie=cookie).status == 404


def test_with_a_token_nothing_is_shown_before_the_login(serve_pages: Callable[..., Any], tmp_path: Path) -> None:
    server = serve_pages(tmp_path, "serve", "--token-env", "T", env={"T": TOKEN})
    page = ask(server, "GET", "/b/x?q=1", Accept="text/html")
    assert page.status == 303 and page.headers["Location"] == "/login?next=%2Fb%2Fx%3Fq%3D1"
    assert ask(server, "GET", "/api").status == 401
    assert ask(server, "GET", "/login", Accept="text/html").status == 200
    assert ask(server, "POST", "/login", f"secret={TOKEN}x", Origin=server.url).status == 403
    answer = ask(server, "POST", "/login", f"secret={TOKEN}&next=//evil.example", Origin=server.url)
    assert answer.status == 303 and answer.headers["Location"] == "/" and TOKEN not in answer.headers["Set-Cookie"]
    assert ask(server, "GET", "/", Cookie=answer.cookie, Accept="text/html").status == 200
    assert json.loads(ask(server, "GET", "/api", Authorization=f"Bearer {TOKEN}").text)["total"] == 0


@pytest.mark.parametrize("next_path", ["//evil.example", "/\\evil.example", "https://evil.example", "/login?x", ""])
def test_the_login_leads_to_this_server_only(serve_pages: Callable[..., Any], tmp_path: Path, next_path: str) -> None:
    server = serve_pages(tmp_path)
    code = urlsplit(server.sign_in).query.partition("&")[0]
    answer = ask(server, "GET", f"/login?{code}&next={next_path}")
    assert answer.status == 303 and answer.headers["Location"] == "/"


def test_pages_forbid_what_they_do_not_need(serve_pages: Callable[..., Any], tmp_path: Path) -> None:
    page = ask(serve_pages(tmp_path), "GET", "/", Accept="text/html")
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "*" not in policy
    assert page.headers["X-Frame-Options"] == "DENY" and page.headers["Referrer-Policy"] == "same-origin"
    assert "<script>" not in page.text and "style=" not in page.text and "onclick" not in page.text
