"""`http://` and `https://`: allowed hosts only, no private addresses, no redirects, no end that never comes."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import Thread

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.replay.resolvers import MOST_BYTES, Reach, resolve
from evalloom.replay.resolvers.web import is_public

pytestmark = pytest.mark.req("REPLAY-5")


class Answers(BaseHTTPRequestHandler):
    """Answers by the path of the request, mostly badly."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/drip":
            self._drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000)
        elif path == "/slow-head":
            self._drip(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 100)
        elif path == "/continue":
            self._drip(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
        elif path in RAW:
            self.wfile.write(RAW[path])
        else:
            self._say(f"{self.command} {self.path} for {self.headers['Host']}".encode())

    def _say(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _drip(self, content: bytes) -> None:
        try:
            for at in range(0, len(content), 10):
                self.wfile.write(content[at : at + 10])
                time.sleep(0.02)
        except OSError:
            pass

    def log_message(self, *_: object) -> None:
        pass


RAW = {
    "/moved": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/?token=hush\r\n\r\n",
    "/missing": b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
    "/big": b"HTTP/1.1 200 OK\r\n\r\n" + "字".encode() * 300_000,
    "/chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
    "/cut": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
    "/cut-chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n30\r\nabc",
    "/gzip": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
    "/gbk": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=GBK\r\n\r\n" + "中文".encode("gbk"),
    "/odd": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=hex\r\n\r\n" + "中文".encode(),
    "/no-http": b"220 mail.example.com ESMTP\r\n",
    "/nothing": b"",
    "/headers": b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 1000,
    "/empty": b"HTTP/1.1 204 No Content\r\n\r\n",
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture
def reach(tmp_path: Path) -> Reach:
    return Reach(tmp_path, http=frozenset(["127.0.0.1", "localhost"]), private_addresses=True)


@pytest.mark.parametrize(
    ("path", "value", "seen"),
    [
        ("", "", "/"),
        ("/a/b", "", "/a/b"),
        ("/a?x=1#top", "", "/a?x=1"),
        ("/a", "q=a b&字", "/a?q=a%20b&%E5%AD%97"),
        ("/a?x=1", "y=%41", "/a?x=1&y=%41"),
        ("/a", "x\r\nHost: evil\r\n\r\nGET /b", "/a?x%0D%0AHost:%20evil%0D%0A%0D%0AGET%20/b"),
        ("/x y", "", "/x%20y"),
    ],
)
def test_the_value_is_the_query_of_the_url(path: str, value: str, seen: str, port: int, reach: Reach) -> None:
    assert resolve(f"http://localhost:{port}{path}", value, reach).value == f"GET {seen} for localhost:{port}"


@pytest.mark.parametrize(
    ("path", "value"),
    [("chunked", "abcde"), ("gbk", "中文"), ("odd", "中文"), ("empty", ""), ("big", "字" * (MOST_BYTES // 3))],
)
def test_an_answer_is_a_text(path: str, value: str, port: int, reach: Reach) -> None:
    found = resolve(f"http://127.0.0.1:{port}/{path}", "", reach)
    assert (found.value, found.error_code, found.truncated) == (value, "", path == "big")


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("moved", "redirects are not followed"),
        ("missing", "it answered 404 Not Found"),
        ("cut", "ended too early"),
        ("cut-chunks", "broke"),
        ("gzip", "'gzip'"),
        ("no-http", "not HTTP"),
        ("nothing", "not HTTP"),
        ("headers", "not HTTP"),
    ],
)
def test_an_answer_that_is_no_value_is_told(path: str, told: str, port: int, reach: Reach) -> None:
    found = resolve(f"http://127.0.0.1:{port}/{path}?token=hush", "token=hush", reach)
    assert (found.error_code, found.value) == ("query_failed", "")
    assert told in found.message and "hush" not in found.message


@pytest.mark.parametrize("path", ["drip", "slow-head", "continue"])
def test_a_drip_ends_at_the_deadline(path: str, port: int, reach: Reach) -> None:
    found = resolve(f"http://127.0.0.1:{port}/{path}", "", msgspec.structs.replace(reach, timeout_s=0.2))
    assert found.error_code == "timeout" and 200 <= found.duration_ms < 1500


def test_a_host_that_takes_no_connection_is_told(reach: Reach) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        found = resolve(f"http://127.0.0.1:{bound.getsockname()[1]}/", "", reach)
    assert found.error_code == "connect_failed" and "cannot be reached" in found.message


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "http://localhost.example.com",
        "http://127.0.0.2/",
        "http://localhost%00.com/",
        "https://[::1]/",
    ],
)
def test_only_listed_hosts_are_asked(url: str, reach: Reach) -> None:
    found = resolve(url, "", reach)
    assert found.error_code in ("not_allowed", "query_failed") and found.duration_ms < 100


def test_without_a_list_nothing_is_asked(port: int, tmp_path: Path) -> None:
    found = resolve(f"http://127.0.0.1:{port}/", "", Reach(tmp_path, private_addresses=True))
    assert (
        found.message == f"http://127.0.0.1:{port}: not allowed. Add 127.0.0.1 to 'resolvers: http:' in evalloom.yaml"
    )


def test_a_port_may_be_listed_with_the_host(port: int, reach: Reach) -> None:
    reach = msgspec.structs.replace(reach, http=frozenset([f"localhost:{port}"]))
    assert resolve(f"http://LOCALHOST.:{port}/", "", reach).error_code == ""
    assert resolve("http://localhost:1/", "", reach).error_code == "not_allowed"
    assert resolve("http://localhost/", "", reach).error_code == "not_allowed"


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "0177.0.0.1",
        "0x7f000001",
        "127.1",
        "0",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::]",
        "10.0.0.1",
        "169.254.169.254",
        "[fe80::1]",
        "224.0.0.1",
        "100.64.0.1",
    ],
)
def test_private_addresses_are_not_asked_in_whichever_form(host: str, port: int, tmp_path: Path) -> None:
    found = resolve(f"http://{host}:{port}/", "", Reach(tmp_path, http=frozenset([host])))
    assert found.error_code == "not_allowed" and "private_addresses: true" in found.message


@pytest.mark.parametrize(
    "target",
    [
        "me:hush@localhost/",
        "hush@localhost/",
        "localhost\\@hush.com/",
        "localhost:99999/",
        "localhost:x/",
        "",
        "/path",
        "[::1",
        "ho st/",
        "a..b/",
        "localhost:0/",
        "\u2100.com/",
    ],
)
def test_what_is_no_url_or_has_a_password_is_refused(target: str, reach: Reach) -> None:
    found = resolve(f"http://{target}", "", reach)
    assert found.error_code in ("not_allowed", "query_failed")
    assert "me:hush" not in found.message


def test_a_name_that_nobody_knows_is_told(reach: Reach) -> None:
    reach = msgspec.structs.replace(reach, http=frozenset(["nobody.invalid"]), timeout_s=2.0)
    assert resolve("http://nobody.invalid/", "", reach).error_code in ("connect_failed", "timeout")


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "fec0::1",
        "fd00::1",
        "ff02::1",
        "240.0.0.1",
        "::127.0.0.1",
        "192.168.1.1",
        "2001:0:808:808::80ff:fffe",
    ],
)
def test_addresses_with_a_private_one_inside_are_not(address: str) -> None:
    assert not is_public(ip_address(address))


@given(st.ip_addresses(v=4))
def test_an_address_written_as_ipv6_is_public_where_it_is_itself(address: object) -> None:
    assert is_public(ip_address(f"::ffff:{address}")) == is_public(ip_address(str(address)))


@pytest.fixture
def secure_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server with a certificate for localhost, which we are told to trust."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    made, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(made)]
    subprocess.run([*command, *names], check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(made))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_https_checks_the_certificate_against_the_name_of_the_url(secure_port: int, reach: Reach) -> None:
    found = resolve(f"https://localhost:{secure_port}/a", "", reach)
    assert found.value == f"GET /a for localhost:{secure_port}"
    other = resolve(f"https://127.0.0.1:{secure_port}/a", "", reach)
    assert other.error_code == "connect_failed" and "certificate" in other.message


def test_https_to_a_port_without_tls_is_told(port: int, reach: Reach) -> None:
    assert resolve(f"https://localhost:{port}/", "", reach).error_code == "connect_failed"
