"""The HTTP client over TLS, straight and through a proxy: against a real certificate of an authority of our own."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from evalloom.core.errors import CallError
from evalloom.core.http import Client, Reply, client

Certificate = tuple[Path, Path]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate for localhost that signs itself, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    made, key = folder / "cert.pem", folder / "key.pem"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(made)]
    subprocess.run([*command, *names], check=True, capture_output=True)
    return made, key


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers every request on a connection with the first line of it."""
    while head := await reader.readuntil(b"\r\n\r\n"):
        line = head.split(b"\r\n")[0]
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(line), line))


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, asked: list[bytes]) -> None:
    """A proxy: lets a CONNECT through to the port, whatever name was asked for."""
    asked.append(await reader.readuntil(b"\r\n\r\n"))
    there, to_there = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    await asyncio.gather(pump(reader, to_there), pump(there, writer))


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await answer(reader, writer)
    except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
        writer.close()


def secure(certificate: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


async def served(certificate: Certificate, use: Callable[[int], Awaitable[list[Reply]]]) -> list[Reply]:
    async with await asyncio.start_server(speak, "127.0.0.1", 0, ssl=secure(certificate)) as server:
        return await use(server.sockets[0].getsockname()[1])


async def ask_twice(url: str) -> list[Reply]:
    sender = Client(timeout_s=10)
    try:
        return [await sender.send("GET", url), await sender.send("GET", url)]
    finally:
        await sender.close()


def test_an_authority_of_the_environment_is_trusted(certificate: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    replies = asyncio.run(served(certificate, lambda port: ask_twice(f"https://localhost:{port}/a")))
    assert [reply.body for reply in replies] == [b"GET /a HTTP/1.1"] * 2


def test_a_stranger_is_not_trusted(certificate: Certificate) -> None:
    with pytest.raises(CallError, match="no secure connection to localhost") as caught:
        asyncio.run(served(certificate, lambda port: ask_twice(f"https://localhost:{port}/a")))
    assert caught.value.code == "cannot_connect" and not caught.value.is_transient


def test_through_a_proxy(certificate: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    asked: list[bytes] = []

    async def use(port: int) -> list[Reply]:
        async with await asyncio.start_server(
            lambda reader, writer: forward(reader, writer, port, asked), "127.0.0.1", 0
        ) as proxy:
            address = f"http://me:secret@127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
            monkeypatch.setattr(client, "find_proxy", lambda url: address)
            return await ask_twice("https://localhost:4433/b")

    replies = asyncio.run(served(certificate, use))
    assert [reply.body for reply in replies] == [b"GET /b HTTP/1.1"] * 2
    assert len(asked) == 1 and asked[0].startswith(b"CONNECT localhost:4433 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic bWU6c2VjcmV0\r\n" in asked[0]


@pytest.mark.parametrize("added", [b"evil", b"\x15\x03\x03", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"])
@pytest.mark.parametrize("length", [b"", b"Content-Length: 0\r\n"])
def test_a_proxy_can_add_nothing_to_what_the_server_says(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch, added: bytes, length: bytes
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))

    async def add(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        await reader.readuntil(b"\r\n\r\n")
        there, to_there = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n" + added)
        await asyncio.gather(pump(reader, to_there), pump(there, writer), return_exceptions=True)

    async def use(port: int) -> list[Reply]:
        async with await asyncio.start_server(
            lambda reader, writer: add(reader, writer, port), "127.0.0.1", 0
        ) as proxy:
            address = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
            monkeypatch.setattr(client, "find_proxy", lambda url: address)
            return await ask_twice("https://localhost:4433/b")

    with pytest.raises(CallError, match=r"expected a tunnel to localhost:4433, got an answer of the proxy") as caught:
        asyncio.run(served(certificate, use))
    assert caught.value.code == "cannot_connect"


def test_a_proxy_that_says_close_is_still_a_tunnel(certificate: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))

    async def open_tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        await reader.readuntil(b"\r\n\r\n")
        there, to_there = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        await asyncio.gather(pump(reader, to_there), pump(there, writer))

    async def use(port: int) -> list[Reply]:
        async with await asyncio.start_server(
            lambda reader, writer: open_tunnel(reader, writer, port), "127.0.0.1", 0
        ) as proxy:
            address = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
            monkeypatch.setattr(client, "find_proxy", lambda url: address)
            return await ask_twice("https://localhost:4433/b")

    replies = asyncio.run(served(certificate, use))
    assert [reply.body for reply in replies] == [b"GET /b HTTP/1.1"] * 2


LOOPS = [asyncio.run]
with suppress(ImportError):  # there is none for Windows
    import uvloop

    LOOPS.append(uvloop.run)


@pytest.mark.parametrize("run", LOOPS)
def test_a_proxy_given_as_https_is_spoken_to_over_tls(
    run: Callable[..., list[Reply]], certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    asked: list[bytes] = []

    async def use(port: int) -> list[Reply]:
        async with await asyncio.start_server(
            lambda reader, writer: forward(reader, writer, port, asked), "127.0.0.1", 0, ssl=secure(certificate)
        ) as proxy:
            address = f"https://me:secret@localhost:{proxy.sockets[0].getsockname()[1]}"
            monkeypatch.setattr(client, "find_proxy", lambda url: address)
            return await ask_twice("https://localhost:4433/b")

    replies = run(served(certificate, use))
    assert [reply.body for reply in replies] == [b"GET /b HTTP/1.1"] * 2
    assert len(asked) == 1 and asked[0].startswith(b"CONNECT localhost:4433 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic bWU6c2VjcmV0\r\n" in asked[0]


def test_a_plain_url_through_a_proxy_over_tls(certificate: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))

    async def use(port: int) -> list[Reply]:
        monkeypatch.setattr(client, "find_proxy", lambda url: f"https://localhost:{port}")
        return await ask_twice("http://api.example/c")

    replies = asyncio.run(served(certificate, use))
    assert [reply.body for reply in replies] == [b"GET http://api.example/c HTTP/1.1"] * 2


@pytest.mark.parametrize(
    ("proxy", "expected"),
    [
        ("https://localhost:{port}", "no secure connection to the proxy localhost:"),
        ("http://localhost:{port}", "no secure connection to localhost:4433 through the proxy localhost:"),
    ],
)
def test_who_is_not_trusted_is_said(
    proxy: str, expected: str, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(port: int) -> list[Reply]:
        async with await asyncio.start_server(
            lambda reader, writer: forward(reader, writer, port, []), "127.0.0.1", 0
        ) as plain:
            at = port if proxy.startswith("https") else plain.sockets[0].getsockname()[1]
            monkeypatch.setattr(client, "find_proxy", lambda url: proxy.format(port=at))
            return await ask_twice("https://localhost:4433/d")

    with pytest.raises(CallError, match=expected):
        asyncio.run(served(certificate, use))


@pytest.mark.parametrize("proxy", ["socks5://localhost:1", "https://", "http://localhost:x"])
def test_a_proxy_that_cannot_be_spoken_to_is_said(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "find_proxy", lambda url: proxy)
    with pytest.raises(CallError, match="expected a proxy like http://host:port or https://host:port"):
        asyncio.run(ask_twice("https://localhost:4433/e"))
