"""The HTTP client against real sockets on loopback: servers that answer well, badly, too much, too late or not at all."""

from __future__ import annotations

import asyncio
import gc
import gzip
import warnings
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from time import monotonic
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.errors import CallError
from evalloom.core.http import Client, Reply, find_proxy, is_loopback, join_path, retry, sleeping, status_error
from evalloom.core.http.connection import Connection

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter
PROXY_NAMES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")


class Server:
    """Plays back answers, one per request, and keeps what it was sent. An empty answer closes the connection."""

    def __init__(self, answers: list[bytes], is_closing: bool = False) -> None:
        self.answers = answers
        self.requests: list[bytes] = []
        self.connections = 0
        self.is_closing = is_closing
        self._writers: list[Writer] = []

    async def __call__(self, reader: Reader, writer: Writer) -> None:
        self.connections += 1
        self._writers.append(writer)
        while self.answers and (request := await _request(reader)):
            self.requests.append(request)
            answer = self.answers.pop(0)
            writer.write(answer)
            if not answer or self.is_closing:
                break
        writer.close()

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


async def _request(reader: Reader) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    length = [line[15:] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return head + await reader.readexactly(int(length[0]) if length else 0)


def served(
    answers: list[bytes], use: Callable[[Client, str], Awaitable[Any]], is_closing: bool = False, **options: Any
) -> tuple[Any, Server]:
    """What a client got from a server that plays back answers, and the server."""

    async def run() -> tuple[Any, Server]:
        server = Server(answers, is_closing)
        listening = await asyncio.start_server(server, "127.0.0.1", 0)
        client = Client(**options)
        try:
            return await use(client, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"), server
        finally:
            await client.close()
            server.close()
            listening.close()

    return asyncio.run(run())


def got(answer: bytes, is_closing: bool = False, **options: Any) -> Reply:
    async def use(client: Client, url: str) -> Reply:
        return await client.send("POST", url + "/x", b"{}")

    reply: Reply = served([answer], use, is_closing, **options)[0]
    return reply


def fault_of(answer: bytes, is_closing: bool = False, **options: Any) -> CallError:
    with pytest.raises(CallError) as caught:
        got(answer, is_closing, **options)
    return caught.value


def ok(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def packed(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)


def test_a_request_is_sent_and_its_answer_comes_back() -> None:
    async def use(client: Client, url: str) -> Reply:
        return await client.send("POST", url + "/a?b=1", b"body", {"X-One": "1"})

    reply, server = served([ok(b"hello", b"X-Two: 2")], use)
    assert (reply.status, reply.headers["x-two"], reply.body) == (200, "2", b"hello")
    assert server.requests[0].startswith(b"POST /a?b=1 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"X-One: 1\r\n" in server.requests[0] and server.requests[0].endswith(b"Content-Length: 4\r\n\r\nbody")


def test_connections_are_used_again() -> None:
    async def use(client: Client, url: str) -> list[bytes]:
        return [(await client.send("GET", url)).body for _ in range(3)]

    bodies, server = served([ok(b"1"), ok(b"2", b"Connection: close"), ok(b"3")], use, is_closing=False)
    assert (bodies, server.connections) == ([b"1", b"2", b"3"], 2)


def test_a_request_is_never_sent_twice_in_silence() -> None:
    async def use(client: Client, url: str) -> list[bytes]:
        first = await client.send("GET", url)
        with pytest.raises(CallError) as caught:
            await client.send("GET", url)
        assert (caught.value.code, caught.value.is_transient) == ("connection_broke", True)
        return [first.body, (await client.send("GET", url)).body]

    bodies, server = served([ok(b"1"), b"", ok(b"2")], use)
    assert (bodies, server.connections) == ([b"1", b"2"], 2)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + ok(b"hello"),
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + ok(b"hello"),
        ok(b"hello", b"X-Empty:"),
        ok(packed(b"hello"), b"Content-Encoding: GZIP"),
    ],
)
def test_every_way_to_send_a_body_is_read(answer: bytes) -> None:
    assert got(answer).body == b"hello"


def test_a_body_may_end_with_the_connection() -> None:
    assert got(b"HTTP/1.1 200 OK\r\n\r\nhello", is_closing=True).body == b"hello"
    assert got(b"HTTP/1.1 204 No Content\r\n\r\n").body == b""


def test_what_comes_after_an_answer_is_not_taken_for_the_next_one() -> None:
    async def use(client: Client, url: str) -> list[bytes]:
        return [(await client.send("GET", url)).body for _ in range(2)]

    smuggled = ok(b"first") + ok(b"evil")[:-2]
    bodies, server = served([smuggled, ok(b"second")], use)
    assert (bodies, server.connections) == ([b"first", b"second"], 2)


def test_a_body_after_204_is_not_taken_for_the_next_answer() -> None:
    async def use(client: Client, url: str) -> list[bytes]:
        return [(await client.send("GET", url)).body for _ in range(2)]

    empty = b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n"
    bodies, server = served([empty, ok(b"second")], use)
    assert (bodies, server.connections) == ([b"", b"second"], 2)


def test_trailers_change_no_header() -> None:
    chunks = b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n"
    reply = got(b"HTTP/1.1 200 OK\r\nX: 1\r\n" + chunks + b"X: 2\r\nContent-Encoding: gzip\r\n\r\n")
    assert (reply.headers["x"], reply.body, "content-encoding" in reply.headers) == ("1", b"hi", False)


def test_a_header_that_comes_twice_is_joined() -> None:
    assert got(ok(b"", b"X-A: 1", b"x-a: 2")).headers["x-a"] == "1, 2"
    assert fault_of(ok(packed(b"x"), b"Content-Encoding: gzip", b"Content-Encoding: gzip")).code == "bad_answer"


def test_a_body_coded_in_transfer_is_refused_and_a_plain_one_read() -> None:
    fault = fault_of(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")
    assert fault.message.startswith("expected Transfer-Encoding chunked or none, got 'gzip, chunked' (http://")
    assert got(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nhi", is_closing=True).body == b"hi"


def test_more_after_the_end_of_a_compressed_body_is_not_dropped_in_silence() -> None:
    fault = fault_of(ok(packed(b"a") + packed(b"b"), b"Content-Encoding: gzip"))
    assert fault.message.startswith("expected a body compressed with gzip, got more after its end (http://")
    assert got(ok(b"", b"Content-Encoding: gzip")).body == b""


def test_a_refusal_keeps_its_status_when_its_body_cannot_be_read() -> None:
    reply = got(ok(b"x", b"Content-Encoding: br", b"Retry-After: 3", status=b"503 Busy"))
    assert (reply.status, reply.headers["retry-after"], reply.body) == (503, "3", b"")


class Nowhere(asyncio.Transport):
    """Takes what is sent; the test decides in which pieces the answer comes."""

    def write(self, data: object) -> None:
        pass


def test_a_large_answer_leaves_the_limit_of_the_next_head_alone() -> None:
    async def run() -> list[int]:
        connection = Connection(asyncio.get_running_loop(), 10**6)
        connection.connection_made(Nowhere())
        sizes = []
        for pieces in (
            [ok(b"x" * 260_000)],
            [b"HTTP/1.1 200 OK\r\nX: " + b"y" * 4000, b"\r\nContent-Length: 0\r\n\r\n"],
        ):
            asking = asyncio.create_task(connection.ask(b"", 60))
            await asyncio.sleep(0)
            for piece in pieces:
                connection.data_received(piece)
            sizes.append(len((await asking).body))
        return sizes

    assert asyncio.run(run()) == [260_000, 0]


def test_no_answer_in_time() -> None:
    async def use(client: Client, url: str) -> Reply:
        return await client.send("GET", url)

    with pytest.raises(CallError, match=r"no answer within 0.05 s \(http://127.0.0.1:\d+\)") as caught:
        served([b"HTTP/1.1 200 OK\r\n", b""], use, timeout_s=0.05)
    assert (caught.value.code, caught.value.is_transient) == ("timeout", True)


def test_a_request_on_a_used_connection_has_its_own_time() -> None:
    async def use(client: Client, url: str) -> list[float]:
        await client.send("GET", url)
        await asyncio.sleep(0.2)
        start = monotonic()
        with pytest.raises(CallError, match=r"no answer within 0.3 s"):
            await client.send("GET", url)
        return [monotonic() - start]

    first = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    (seconds,), server = served([first, b"HTTP/1.1 200 OK\r\n", b""], use, timeout_s=0.3)
    assert server.connections == 1 and 0.29 <= seconds < 5


def test_a_port_without_a_server(unused_port: int) -> None:
    async def send() -> None:
        await Client().send("GET", f"http://127.0.0.1:{unused_port}/x")

    with pytest.raises(CallError, match=rf"cannot connect to 127.0.0.1:{unused_port}.*Is the server running") as caught:
        asyncio.run(send())
    assert (caught.value.code, caught.value.is_transient) == ("cannot_connect", True)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
    ],
)
def test_a_connection_that_breaks_in_the_middle_can_be_tried_again(answer: bytes) -> None:
    fault = fault_of(answer, is_closing=True)
    assert (fault.code, fault.is_transient) == ("connection_broke", True)
    assert "in the middle" in fault.message


@pytest.mark.parametrize(
    "answer",
    [
        b"\x16\x03\x01 no HTTP\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nabc",
        ok(b"not packed", b"Content-Encoding: gzip"),
        ok(packed(b"hello")[:-6], b"Content-Encoding: gzip"),
        ok(b"x", b"Content-Encoding: br"),
    ],
)
def test_garbage_is_a_bad_answer(answer: bytes) -> None:
    fault = fault_of(answer)
    assert (fault.code, fault.is_transient) == ("bad_answer", False)


@pytest.mark.parametrize(
    "answer",
    [
        ok(b"x" * 2000),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + b"x" * 2000,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2000,
        ok(packed(b"x" * 2000), b"Content-Encoding: gzip"),
    ],
)
def test_an_answer_that_is_too_long_is_refused_however_it_comes(answer: bytes) -> None:
    fault = fault_of(answer, max_bytes=1000)
    assert (fault.code, fault.is_transient) == ("answer_too_large", False)


CHUNK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 600_000,
        b"HTTP/1.1 200 OK\r\nX: " + b"X-A: b\r\n" * 60_000,
        CHUNK + b"0\r\nX: " + b"x" * 900_000,
        CHUNK + b"0\r\n" + b"X-A: b\r\n" * 100_000,
        CHUNK + b"1;" + b"x" * 900_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 40_000,
    ],
    ids=["header", "headers", "trailer", "trailers", "extension", "early answers"],
)
def test_headers_without_end_are_refused(answer: bytes) -> None:
    fault = fault_of(answer)
    assert fault.code == "bad_answer"
    assert fault.message.startswith("expected headers of at most 262144 bytes, got more (http://127.0.0.1:")


def test_name_and_password_of_a_url_are_sent() -> None:
    async def use(client: Client, url: str) -> None:
        named = url.replace("//", "//user:p%40w@")
        await client.send("GET", named)
        await client.send("GET", named, None, {"authorization": "Bearer key"})

    _, server = served([ok(b""), ok(b"")], use)
    assert b"Authorization: Basic dXNlcjpwQHc=\r\n" in server.requests[0] and b"p%40w" not in server.requests[0]
    assert b"Basic" not in server.requests[1]


def test_redirects_are_not_followed() -> None:
    reply = got(ok(b"", b"Location: http://127.0.0.1:9/", status=b"302 Found"))
    assert (reply.status, reply.headers["location"]) == (302, "http://127.0.0.1:9/")


def test_a_secret_in_a_body_is_hidden() -> None:
    secret = "sk-0123456789abcdef"
    refused = ok(f"your key {secret} is wrong: {secret}".encode(), status=b"401 Unauthorized")
    assert got(refused, secret=secret).body == b"your key [hidden] is wrong: [hidden]"
    # An answer stays as it is: what is scored must be what is said. The log hides keys by itself.
    assert got(ok(secret.encode()), secret=secret).body == secret.encode()


@pytest.mark.parametrize("url", ["", "x", "ftp://h/x", "http://", "http:///x", "http://[::1/x", "http://h:x/"])
def test_what_is_no_url_is_said(url: str) -> None:
    with pytest.raises(CallError, match="expected a URL like http://host:port/path") as caught:
        asyncio.run(Client().send("GET", url))
    assert (caught.value.code, caught.value.is_transient) == ("bad_url", False)


@pytest.mark.parametrize(
    ("path", "headers"), [("/a b", {}), ("/查", {}), ("/", {"X": "a\r\nY: b"}), ("/", {"X": "查"})]
)
def test_nothing_can_be_smuggled_into_the_head_of_a_request(path: str, headers: dict[str, str]) -> None:
    with pytest.raises(CallError) as caught:
        asyncio.run(Client().send("GET", "http://127.0.0.1:9" + path, None, headers))
    assert (caught.value.code, caught.value.is_transient) == ("bad_request", False)


@given(st.binary(max_size=200), st.booleans())
def test_whatever_a_server_sends_there_is_a_reply_or_a_call_error(answer: bytes, is_http: bool) -> None:
    answer = b"HTTP/1.1 200 OK\r\n" + answer if is_http else answer or b"x"
    try:
        assert isinstance(got(answer, is_closing=True, timeout_s=5), Reply)
    except CallError as fault:
        assert fault.code in ("bad_answer", "connection_broke", "answer_too_large")


def test_the_connection_of_a_cancelled_request_is_not_reused() -> None:
    async def use(client: Client, url: str) -> bytes:
        task = asyncio.create_task(client.send("GET", url))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return (await client.send("GET", url)).body

    body, server = served([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", ok(b"mine")], use)
    assert (body, server.connections) == (b"mine", 2)


def test_nothing_stays_open_when_the_loop_ends() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        got(ok(b"hello"))
        fault_of(b"garbage\r\n\r\n")
        gc.collect()
    assert [str(one.message) for one in seen if issubclass(one.category, ResourceWarning)] == []


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in PROXY_NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


def test_the_proxy_of_the_environment_is_used_but_for_loopback(no_proxies: pytest.MonkeyPatch) -> None:
    no_proxies.setenv("http_proxy", "proxy.example:3128")
    no_proxies.setenv("https_proxy", "http://user:pw@proxy.example:3129")
    no_proxies.setenv("no_proxy", "direct.example")
    assert find_proxy("http://api.example/v1") == "http://proxy.example:3128"
    assert find_proxy("https://api.example/v1") == "http://user:pw@proxy.example:3129"
    for url in ("http://direct.example/", "http://127.0.0.1:8000/", "http://localhost/", "http://[::1]/"):
        assert find_proxy(url) is None


def test_a_request_through_a_proxy_names_the_whole_url(no_proxies: pytest.MonkeyPatch) -> None:
    async def use(client: Client, url: str) -> Reply:
        no_proxies.setenv("http_proxy", url.replace("//", "//user:p%40w@"))
        return await client.send("POST", "http://api.example/v1?a=b", b"{}")

    reply, server = served([ok(b"through")], use)
    assert reply.body == b"through"
    assert server.requests[0].startswith(b"POST http://api.example/v1?a=b HTTP/1.1\r\n")
    assert b"\r\nHost: api.example\r\n" in server.requests[0]
    assert b"Proxy-Authorization: Basic dXNlcjpwQHc=\r\n" in server.requests[0]


def test_a_proxy_that_refuses_is_named(no_proxies: pytest.MonkeyPatch) -> None:
    async def use(client: Client, url: str) -> Reply:
        no_proxies.setenv("https_proxy", url)
        return await client.send("GET", "https://api.example/v1")

    with pytest.raises(CallError, match=r"the proxy refuses a connection to api.example:443: HTTP 403") as caught:
        served([ok(b"no", status=b"403 Forbidden")], use)
    assert caught.value.code == "cannot_connect"


@pytest.mark.parametrize("url", ["http://localhost:1/x", "http://a.localhost", "http://127.9.9.9", "https://[::1]:9/"])
def test_loopback_is_known(url: str) -> None:
    assert is_loopback(url)
    assert not is_loopback("http://localhost.example/") and not is_loopback("http://[broken")


def refused(status: int, retry_after: str | None = None) -> CallError:
    return status_error(Reply(status, {} if retry_after is None else {"retry-after": retry_after}, b""), "no")


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://h/v1", "http://h/v1/models"),
        ("http://h/v1/", "http://h/v1/models"),
        (
            "https://a/openai/deployments/g?api-version=2024-10-21",
            "https://a/openai/deployments/g/models?api-version=2024-10-21",
        ),
        ("http://h/?a=b/c", "http://h/models?a=b/c"),
    ],
)
def test_the_query_of_a_base_url_stays_behind_the_path(base: str, url: str) -> None:
    assert join_path(base, "/models") == url


def test_a_refusal_shows_the_url_without_its_secrets() -> None:
    url = "https://me:pw@h:1/v1/x?api-version=2024-10-21&api_key=sk-1&Sig=abc#part"
    fault = status_error(Reply(404, {}, b""), "no such model", url)
    assert fault.message == "HTTP 404: no such model (https://h:1/v1/x?api-version=2024-10-21&api_key=…&Sig=…)"


def test_which_status_can_heal() -> None:
    known = (400, 401, 403, 404, 408, 422, 429, 500, 503, 529)
    assert [status for status in known if refused(status).is_transient] == [408, 429, 500, 503, 529]
    assert str(refused(404)) == "HTTP 404: no [http_404]"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7", 7.0), ("0.5", 0.5), ("-3", 0.0), ("nan", 0.0), ("soon", None), ("", None), ("Mon, 99 Foo 20 GMT", None)],
)
def test_retry_after_in_seconds_or_rubbish(text: str, seconds: float | None) -> None:
    assert refused(429, text).retry_after == seconds


def test_retry_after_as_a_date() -> None:
    moment = datetime.now(UTC) + timedelta(seconds=100)
    found = refused(429, format_datetime(moment, usegmt=True)).retry_after
    assert found is not None and 90 < found <= 100
    assert refused(503, "Wed, 21 Oct 2015 07:28:00 GMT").retry_after == 0.0


@given(st.text())
def test_no_retry_after_breaks_anything(text: str) -> None:
    found = refused(429, text).retry_after
    assert found is None or found >= 0


def tried(faults: list[CallError], retries: int = 5) -> tuple[Any, list[float]]:
    """What comes of a call that fails so often, and how long was slept in between."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def call() -> str:
        if faults:
            raise faults.pop(0)
        return "answer"

    async def run() -> Any:
        sleeping.set(sleep)
        try:
            return await retry(call, retries)
        except CallError as fault:
            return fault

    return asyncio.run(run()), slept


def test_pauses_double_and_have_jitter() -> None:
    result, slept = tried([refused(500) for _ in range(5)])
    assert result == ("answer", 5)
    assert all(0.125 * 2**n <= pause <= 0.25 * 2**n for n, pause in enumerate(slept))


def test_retry_after_is_never_cut_short() -> None:
    result, slept = tried([refused(429, "20"), refused(429, "0")])
    assert result == ("answer", 2)
    assert 20 <= slept[0] <= 20.25 and 0 < slept[1] <= 0.25


def test_a_wait_of_hours_is_given_up_at_once() -> None:
    result, slept = tried([refused(429, "86400")])
    assert (result.code, slept) == ("http_429", [])
    assert result.message == "HTTP 429: no; it asks to wait 86400 s, which is more than 300 s"


def test_giving_up_says_after_how_many_attempts() -> None:
    result, slept = tried([refused(500) for _ in range(9)], retries=2)
    assert (result.message, len(slept)) == ("HTTP 500: no; gave up after 3 attempts", 2)
    result, slept = tried([refused(404)])
    assert (result.message, slept) == ("HTTP 404: no", [])


def test_a_first_wait_is_at_most_twice_what_the_server_asks() -> None:
    _, slept = tried([refused(429, "0.01")])
    assert 0.01 <= slept[0] <= 0.02
