"""Fuzzes the HTTP client and the llms on it: a server on loopback sends valid, cut, changed and forged answers.

EVALLOOM_FUZZ_EXAMPLES=2000 tries so many random examples of each test; a failure prints the seed, which
EVALLOOM_FUZZ_SEED repeats. Without it the examples are few and always the same.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import h11
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, example, given, seed, settings
from hypothesis import strategies as st

from evalloom.core.errors import CallError
from evalloom.core.http import Client, Reply, retry, sleeping, status_error
from evalloom.core.model import Request, Response
from evalloom.llms.anthropic import Anthropic
from evalloom.llms.openai import Embedding, OpenAi, OpenAiEmbeddings

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("EVALLOOM_FUZZ_EXAMPLES", "0"))
SEED = int(os.environ.get("EVALLOOM_FUZZ_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
Test = TypeVar("Test", bound=Callable[..., None])
Result = TypeVar("Result")


def fuzz(examples: int) -> Callable[[Test], Test]:
    """So many examples, always the same ones; or as many random ones as the environment asks for."""
    chosen = settings(
        max_examples=EXAMPLES or examples,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    return lambda test: seed(SEED)(chosen(test)) if EXAMPLES else chosen(test)


@pytest.fixture(autouse=True)
def shown_seed() -> None:
    """What a failure prints."""
    print(f"EVALLOOM_FUZZ_EXAMPLES={EXAMPLES} EVALLOOM_FUZZ_SEED={SEED}")


LOOPS: list[Callable[..., Any]] = [asyncio.run]
with suppress(ImportError):  # there is none for Windows
    import uvloop

    LOOPS.append(uvloop.run)

# -- the server: sends prepared pieces for each request --------------------------------------------


class Script(NamedTuple):
    """What the server sends for one request, and whether it then closes the connection."""

    pieces: list[bytes]
    closes: bool = False


class Server:
    """Sends one script per request, in the order of the requests, and keeps what it was sent."""

    def __init__(self, scripts: list[Script]) -> None:
        self.scripts = scripts
        self.requests: list[bytes] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while self.scripts:
                head = await reader.readuntil(b"\r\n\r\n")
                lengths = [line[15:] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
                self.requests.append(head + await reader.readexactly(int(lengths[0]) if lengths else 0))
                # By its path, because a request that the client has given up may never be read.
                script = self.scripts.pop(-1 if b" /second " in head else 0)
                for piece in script.pieces:
                    writer.write(piece)
                    for _ in range(3):  # so that the client reads this piece by itself
                        await asyncio.sleep(0)
                if script.closes:
                    break
        writer.close()

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


def serve(
    scripts: list[Script],
    use: Callable[[Client, str], Awaitable[Result]],
    run: Callable[..., Any] = asyncio.run,
    **options: Any,
) -> Result:
    """What a client makes of a server with these scripts; at most ten seconds, whatever it sends."""

    async def talk() -> Result:
        server = Server(scripts)
        listening = await asyncio.start_server(server, "127.0.0.1", 0)
        client = Client(**{"timeout_s": 2.0, **options})
        problems: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
        try:
            url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
            return await asyncio.wait_for(use(client, url), 10)
        finally:
            await client.close()
            server.close()
            listening.close()
            await asyncio.sleep(0)
            assert not problems, problems

    result: Result = run(talk())
    return result


async def attempt(client: Client, url: str, method: str = "GET") -> Reply | CallError:
    """The reply, or an error that says where it comes from."""
    try:
        reply = await client.send(method, url, b"{}" if method == "POST" else None)
    except CallError as error:
        assert error.code in {"bad_answer", "connection_broke", "answer_too_large", "timeout"}, error
        assert url in error.message, error
        error.message.encode()
        return error
    assert 200 <= reply.status <= 999
    return reply


# -- valid answers -----------------------------------------------------------------------------------

TOKENS = st.text("abcdefghijklmnopqrstuvwxyz-0123456789_!#$&'*+.^`|~", min_size=1, max_size=12).map(lambda t: "x-" + t)
VALUES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=30).map(str.strip)
HEADERS = st.dictionaries(TOKENS, VALUES, max_size=5)
BODIES = st.binary(max_size=300) | st.builds(lambda b, n: b * n, st.binary(min_size=1, max_size=40), st.just(300))
CUTS = st.lists(st.integers(0, 2000), max_size=12)


class Answer(NamedTuple):
    """An answer as bytes, and what it means."""

    wire: bytes
    status: int
    headers: dict[str, str]
    body: bytes
    closes: bool


def cut(wire: bytes, places: list[int]) -> list[bytes]:
    """The same bytes in pieces."""
    ends = sorted({place % (len(wire) + 1) for place in places})
    pieces = [wire[start:end] for start, end in zip([0, *ends], [*ends, len(wire)], strict=True)]
    return [piece for piece in pieces if piece]


def chunked(body: bytes, places: list[int], extension: bytes, trailers: bytes) -> bytes:
    chunks = b"".join(b"%x%s\r\n%s\r\n" % (len(part), extension, part) for part in cut(body, places))
    return b"%s0%s\r\n%s\r\n" % (chunks, extension, trailers)


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    body, headers = draw(BODIES), draw(HEADERS)
    status = draw(st.sampled_from([200, 200, 201, 204, 301, 302, 304, 400, 401, 429, 500, 503, 599]))
    framing = draw(st.sampled_from(["length", "chunked", "close"]))
    encoding = draw(st.sampled_from(["", "", "identity", "gzip", "x-gzip", "deflate"]))
    if status in (204, 304):
        body, framing, encoding = b"", "none", ""
    packed = gzip.compress(body) if "gzip" in encoding else zlib.compress(body) if encoding == "deflate" else body
    lines = [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"Content-Encoding: {encoding}"] if encoding else []
    closes = framing == "close" or draw(st.booleans())
    lines += ["Connection: close"] if closes and framing != "close" and draw(st.booleans()) else []
    if framing == "length":
        lines.append(f"{draw(st.sampled_from(['Content-Length', 'content-LENGTH']))}: {len(packed)}")
    elif framing == "chunked":
        lines.append("Transfer-Encoding: chunked")
        trailer = draw(st.sampled_from([b"", b"X-Sum: 1\r\n", b"Content-Encoding: gzip\r\nRetry-After: 9\r\n"]))
        extension = draw(st.sampled_from([b"", b";a=b", b';a="b;c"']))
        packed = chunked(packed, draw(CUTS), extension, trailer)
    reason = draw(st.sampled_from([" OK", " ", " Not So Well", ""]))
    head = "\r\n".join([f"HTTP/1.1 {status}{reason}", *lines]) + "\r\n\r\n"
    early = draw(st.lists(st.sampled_from(["100 Continue", "102 Processing", "103 Early Hints\r\nLink: </x>"])))[:3]
    before = "".join(f"HTTP/1.1 {line}\r\n\r\n" for line in early)
    return Answer(before.encode() + head.encode("latin-1") + packed, status, headers, body, closes)


def read_with_h11(answer: Answer) -> tuple[int, bytes]:
    """Another implementation's reading, of status and (still compressed) body."""
    peer = h11.Connection(h11.CLIENT, max_incomplete_event_size=10**7)
    peer.send(h11.Request(method="GET", target="/", headers=[("Host", "h")]))
    peer.send(h11.EndOfMessage())
    peer.receive_data(answer.wire)
    if answer.closes:
        peer.receive_data(b"")
    status, parts = 0, []
    while not isinstance(event := peer.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            parts.append(bytes(event.data))
        else:
            assert isinstance(event, h11.InformationalResponse), event
    return status, b"".join(parts)


@pytest.mark.parametrize("run", LOOPS)
def test_a_valid_answer_is_the_same_however_it_is_cut(run: Callable[..., Any]) -> None:
    @fuzz(60)
    @given(answers(), CUTS)
    def check(answer: Answer, places: list[int]) -> None:
        async def use(client: Client, url: str) -> Reply | CallError:
            return await attempt(client, url + "/a", "POST")

        reply = serve([Script(cut(answer.wire, places), answer.closes)], use, run)
        assert isinstance(reply, Reply), reply
        assert (reply.status, reply.body) == (answer.status, answer.body)
        assert {name: reply.headers.get(name) for name in answer.headers} == answer.headers
        assert "retry-after" not in reply.headers  # a trailer is not a header
        status, packed = read_with_h11(answer)
        encoding = reply.headers.get("content-encoding", "identity")
        assert status == reply.status
        assert (packed if encoding == "identity" else zlib.decompress(packed, 47)) == reply.body

    check()


# -- broken answers ----------------------------------------------------------------------------------

NASTY = [
    *(b"\r\n", b"\n", b"\r", b"\0", b":", b" ", b"\t", b"\xff", b"\r\n\r\n", b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\n\r\n"),
    *(b"HTTP/0.9 200\r\n", b"HTTP/2.0 200 OK\r\n", b"HTTP/1.1 099 X\r\n\r\n", b"HTTP/1.1 1000 X\r\n\r\n", b"ICY 200 OK\r\n"),
    *(b"Content-Length: -1\r\n", b"Content-Length: 0\r\n", b"Content-Length: 18446744073709551616\r\n"),
    *(b"Content-Length: 5\r\nContent-Length: 5\r\n", b"Content-Length: 5, 5\r\n", b"Content-Length: 0x5\r\n"),
    *(b"Content-Length: " + b"9" * 5000 + b"\r\n", b"Content-Length: +5\r\n", b"Content-Length: \xb2\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding: gzip, chunked\r\n"),
    *(b"Transfer-Encoding: xchunked\r\n", b"Transfer-Encoding: chunked, chunked\r\n", b"Transfer-Encoding: \r\n"),
    *(b"0\r\n\r\n", b"-1\r\n", b"ffffffffffffffff\r\n", b"fffffffffffffffff\r\n", b"5 \r\nhello\r\n", b"0x5\r\n", b"g\r\n"),
    *(b"Content-Encoding: gzip\r\n", b"Content-Encoding: br\r\n", b"Content-Encoding: gzip, gzip\r\n"),
    *(b"Connection: upgrade\r\nUpgrade: websocket\r\n", b"Connection: close\r\n", b"Connection: keep-alive\r\n"),
    *(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", b" folded\r\n", b": none\r\n"),
    *(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", b"HTTP/1.1 304 Not Modified\r\n\r\nhello"),
    *(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", b"HTTP/1.1 100 Continue\r\n\r\n", b"X: " + b"y" * 5000 + b"\r\n"),
]  # fmt: skip


@st.composite
def broken(draw: st.DrawFn) -> tuple[bytes, bool]:
    """A valid answer in which pieces are removed, doubled, replaced or added, and whether it ends with a close."""
    answer = draw(answers())
    wire = answer.wire
    for _ in range(draw(st.integers(1, 4))):
        lines = [at + 2 for at in range(len(wire)) if wire[at : at + 2] == b"\r\n"]
        start = draw(st.sampled_from([0, *lines]) | st.integers(0, len(wire)))
        stop = min(len(wire), start + draw(st.integers(0, 20)))
        kind = draw(st.sampled_from(["insert", "insert", "insert", "delete", "double", "replace", "cut"]))
        piece = draw(st.sampled_from(NASTY) | st.binary(max_size=8))
        if kind == "insert":
            wire = wire[:start] + piece + wire[start:]
        elif kind == "delete":
            wire = wire[:start] + wire[stop:]
        elif kind == "double":
            wire = wire[:stop] + wire[start:]
        elif kind == "replace":
            wire = wire[:start] + piece + wire[stop:]
        else:
            wire = wire[:start]
    return wire, draw(st.booleans())


@pytest.mark.parametrize("run", LOOPS)
def test_a_broken_answer_is_a_reply_or_our_error_and_never_the_next_answer(run: Callable[..., Any]) -> None:
    @fuzz(80)
    @given(broken())
    @example((b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nevil", False))
    @example((b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" * 2, False))
    def check(case: tuple[bytes, bool]) -> None:
        wire, closes = case

        async def use(client: Client, url: str) -> list[Reply | CallError]:
            return [await attempt(client, url + "/first"), await attempt(client, url + "/second")]

        mine = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond"
        scripts = [Script([wire] if wire else [], closes), Script([mine])]
        _, second = serve(scripts, use, run, timeout_s=0.05)
        # What belongs to the first request never answers the second one: its connection is given up instead. If the
        # server has closed it in the meantime, or the machine is slow, that is an error that a retry heals.
        if isinstance(second, Reply):
            assert (second.status, second.body) == (200, b"second")
        else:
            assert second.code == "timeout" or (closes and second.code == "connection_broke"), second

    check()


@fuzz(60)
@given(st.lists(st.tuples(st.sampled_from([b"", b"\r\n", *NASTY]), st.booleans()), min_size=2, max_size=8))
def test_every_request_gets_its_own_answer(extras: list[tuple[bytes, bool]]) -> None:
    """Each answer repeats the path of its request and may have extra bytes behind it."""

    async def use(client: Client, url: str) -> None:
        await asyncio.gather(*(one(client, url, str(number)) for number in range(3)))

    async def one(client: Client, url: str, worker: str) -> None:
        for number in range(len(extras)):
            reply = await attempt(client, f"{url}/{worker}-{number}")
            assert not isinstance(reply, Reply) or reply.body == f"/{worker}-{number}".encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split(b" ")[1]
                extra, closes = extras[int(path.rpartition(b"-")[2])]
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s%s" % (len(path), path, extra))
                if closes:
                    break
        writer.close()

    async def talk() -> None:
        listening = await asyncio.start_server(answer, "127.0.0.1", 0)
        client = Client(timeout_s=5)
        try:
            await use(client, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        finally:
            await client.close()
            listening.close()

    asyncio.run(talk())


@fuzz(40)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4), st.binary(max_size=6), CUTS, st.booleans())
def test_compressed_bodies_are_whole_or_refused(
    members: list[bytes], after: bytes, places: list[int], is_cut: bool
) -> None:
    packed = b"".join(map(gzip.compress, members)) + after
    packed = packed[: places[0] % len(packed)] if is_cut and places else packed
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)

    async def use(client: Client, url: str) -> Reply | CallError:
        return await attempt(client, url)

    reply = serve([Script(cut(head + packed, places))], use)
    if isinstance(reply, Reply) and packed:
        assert reply.body == gzip.decompress(packed)
    elif packed:
        assert isinstance(reply, CallError) and reply.code == "bad_answer"
        assert len(members) > 1 or after or is_cut  # several members are valid, but no server sends them


def without_end(name: str) -> Iterator[bytes]:
    """The start of an answer, and then the same piece for as long as somebody reads."""
    chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"
    starts = {
        "status": (b"HTTP/1.1 200 ", b"O" * 4096),
        "header": (b"HTTP/1.1 200 OK\r\nX: ", b"y" * 4096),
        "headers": (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n" * 512),
        "trailer": (chunks + b"0\r\nX: ", b"y" * 4096),
        "trailers": (chunks + b"0\r\n", b"X-A: b\r\n" * 512),
        "extension": (chunks + b"1;", b"y" * 4096),
        "early": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 160),
        "early headers": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 100),
        "breaks": (b"", b"\r\n" * 2048),
        "chunks": (chunks, b"800\r\n" + b"y" * 2048 + b"\r\n"),
        "bomb": (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(bytes(4_000_000)), b""),
    }
    start, piece = starts[name]
    yield start + piece
    for _ in range(2000 if piece else 0):
        yield piece


@pytest.mark.parametrize("run", LOOPS)
@pytest.mark.parametrize(
    "name",
    [
        *("status", "header", "headers", "trailer", "trailers", "extension", "early", "early headers", "breaks"),
        *("chunks", "bomb"),
    ],
)
def test_nothing_without_an_end_is_read_to_it(name: str, run: Callable[..., Any]) -> None:
    async def use(client: Client, url: str) -> Reply | CallError:
        return await attempt(client, url)

    pieces = list(without_end(name))
    error = serve([Script(pieces, closes=True)], use, run, timeout_s=60, max_bytes=1_000_000)
    assert isinstance(error, CallError) and error.code in ("bad_answer", "answer_too_large"), error


# -- Retry-After ---------------------------------------------------------------------------------------

NUMBERS = st.sampled_from(
    [
        "0",
        "-1",
        "1e3",
        "1e400",
        "-1e400",
        "nan",
        "inf",
        "-inf",
        "1_0",
        "0x10",
        "+5",
        "5.5.5",
        "99999999999999999999",
        "5s",
    ]
)
DATES = st.builds(
    "{}, {} {} {} {}:{}:{} {}".format,
    st.sampled_from(["Mon", "Xyz", ""]),
    st.integers(-1, 99),
    st.sampled_from(["Jan", "Feb", "Dec", "Foo", "13"]),
    st.sampled_from([0, 1, 49, 69, 99, 1969, 2015, 2036, 9999, 10000, -1, 10**20]),
    *([st.integers(-1, 99)] * 3),
    st.sampled_from(["GMT", "UTC", "-0000", "+2400", "-9999", "+99999999999", "EST", "XYZ", ""]),
)
PARTS = st.lists(st.sampled_from(["Mon,", "21", "Oct", "2015", "07:28:00", "7.28", ":", ",", "-", "+0100", "GMT", ""]))


@fuzz(100)
@given(NUMBERS | DATES | PARTS.map(" ".join) | VALUES)
def test_any_retry_after_gives_a_bounded_wait(text: str) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def call() -> str:
        raise status_error(Reply(429, {"retry-after": text}, b""), "slow down", "http://h/x")

    async def run() -> None:
        sleeping.set(sleep)
        await retry(call, 2)

    with pytest.raises(CallError, match=r"HTTP 429: slow down \(http://h/x\)"):
        asyncio.run(run())
    assert all(0 <= seconds <= 301 for seconds in slept)


# -- llms: JSON of odd shapes --------------------------------------------------------------------------

OPENAI = {
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {
                "role": "assistant",
                "content": "hello",
                "refusal": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 1}},
}
PIECE = {
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "delta": {
                "content": "hello",
                "tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}],
            },
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4},
}
ANTHROPIC = {
    "model": "m",
    "stop_reason": "tool_use",
    "content": [
        {"type": "text", "text": "hello"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "u", "name": "give_answer", "input": {"answer": [1]}},
    ],
    "usage": {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 1},
}
VECTORS = {
    "data": [{"index": 0, "embedding": [0.5, 1]}, {"index": 1, "embedding": [2, 0.25]}],
    "usage": {"prompt_tokens": 2},
}
DEEP = ["[" * depth + "]" * depth for depth in (200, 300, 900, 960, 980, 990, 1000, 1020, 1100, 100_000)]
ODD = [
    *("null", "true", "0", "-1", "1.5", "1e400", "-1e999", "NaN", "Infinity", "9" * 400, "9" * 5000, '""', "[]", "{}"),
    *('"\\ud800"', '"\\udc00x"', '"\\ud83d"', '{"\\ud800": 1}', '["\\ud800"]', '"\\u0000"', '"\\u001b[2J"', "[null]"),
    *('{"error": "no"}', '{"error": {"message": "\\ud800"}}', '{"a": 1, "a": 2}', '"é"', "[[0.5]]", '["0.5"]', *DEEP),
]


@st.composite
def odd_json(draw: st.DrawFn, sample: Any) -> bytes:
    """The sample as JSON with some of its values replaced, removed or given twice."""
    marks: dict[str, str] = {}

    def change(value: Any) -> Any:
        if draw(st.integers(0, 9)) == 0:
            mark = f"mark-{len(marks)}-"
            marks[mark] = draw(st.sampled_from(ODD))
            return mark
        if isinstance(value, dict):
            items = {name: change(inner) for name, inner in value.items() if draw(st.integers(0, 19))}
            return items | ({"error": change("no")} if draw(st.integers(0, 19)) == 0 else {})
        if isinstance(value, list):
            return [change(inner) for inner in value for _ in range(draw(st.sampled_from([1, 1, 1, 1, 0, 2])))]
        return value

    text = json.dumps(change(sample))
    for mark, odd in marks.items():
        text = text.replace(json.dumps(mark), odd)
    if draw(st.integers(0, 9)) == 0:
        text = draw(st.sampled_from([text[: len(text) // 2], text + text, "\ufeff" + text, f"<html>{text}", ""]))
    return text.encode()


TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
SCHEMA = {"type": "array"}


def ask_llm(body: bytes, status: int, make: Callable[[Client, str], Any], texts: list[str]) -> Response | CallError:
    """What an llm makes of an answer with this body: one or the other, that can be written to a log."""

    async def use(client: Client, url: str) -> Response | CallError:
        request = Request([{"role": "user", "content": text} for text in texts], tools=TOOLS, answer=SCHEMA)
        try:
            response: Response = await make(client, url)(request)
        except CallError as error:
            assert url in error.message, error
            error.message.encode()
            return error
        assert isinstance(response.text, str) and isinstance(response.model, str) and isinstance(response.stop, str)
        assert all(isinstance(call, dict) for call in response.tool_calls)
        assert 0 <= response.usage.input_tokens < 2**55 and 0 <= response.usage.output_tokens < 2**55
        msgspec.json.encode(response)
        return response

    head = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
    return serve([Script([head + body])], use)


@pytest.mark.parametrize("depth", [200, 250, 300, 700, *range(900, 1030, 16), 1100, 100_000])
def test_deep_values_are_a_response_or_our_error(depth: int) -> None:
    """Not by hypothesis, which raises the limit of recursion that people have."""
    deep = "[" * depth + "]" * depth
    bare = {"choices": [{"message": {"content": "x", "tool_calls": [{"a": "DEEP"}]}, "finish_reason": "stop"}]}
    piece = {"choices": [{"delta": {"content": "\ud800"}, "finish_reason": "stop"}], "usage": {"a": "DEEP"}}
    content = [{"type": "tool_use", "name": name, "input": {"answer": "DEEP"}} for name in ("f", "give_answer")]
    samples: list[tuple[Any, Callable[[Client, str], Any]]] = [
        (bare, lambda client, url: OpenAi(client, url, "m")),
        ({**bare, "model": "\ud800"}, lambda client, url: OpenAi(client, url, "m")),
        (piece, lambda client, url: OpenAi(client, url, "m", stream=True)),
        ({"content": content}, lambda client, url: Anthropic(client, url, "m")),
        ({"content": content, "model": "\ud800"}, lambda client, url: Anthropic(client, url, "m")),
        ({"data": [{"embedding": "DEEP"}]}, lambda client, url: OpenAiEmbeddings(client, url, "m")),
        ({"error": "DEEP"}, lambda client, url: OpenAi(client, url, "m")),
        ({"error": "DEEP"}, lambda client, url: OpenAi(client, url, "m", stream=True)),
        ({"choices": {"a": "DEEP"}}, lambda client, url: OpenAi(client, url, "m", stream=True)),
    ]
    for sample, make in samples:
        body = json.dumps(sample).replace('"DEEP"', deep).encode()
        ask_llm(body, 200, make, ["hi"])
        ask_llm(b"data: " + body, 200, make, ["hi"])


STATUSES = st.sampled_from([200, 200, 200, 200, 200, 400, 429, 503])


@fuzz(100)
@given(odd_json(OPENAI), STATUSES)
def test_any_chat_completion_is_a_response_or_our_error(body: bytes, status: int) -> None:
    result = ask_llm(body, status, lambda client, url: OpenAi(client, url, "m"), ["hi"])
    assert status == 200 or isinstance(result, CallError)


@fuzz(100)
@given(st.lists(odd_json(PIECE), max_size=4), st.sampled_from([b"\n\n", b"\r\n\r\n", b"\n", b"\r"]), st.booleans())
def test_any_stream_is_a_response_or_our_error(events: list[bytes], mark: bytes, is_done: bool) -> None:
    body = b"".join(b"data: " + event + mark for event in events) + (b"data: [DONE]\n\n" if is_done else b"")
    ask_llm(body, 200, lambda client, url: OpenAi(client, url, "m", stream=True), ["hi"])


@fuzz(100)
@given(odd_json(ANTHROPIC), STATUSES)
def test_any_message_is_a_response_or_our_error(body: bytes, status: int) -> None:
    result = ask_llm(body, status, lambda client, url: Anthropic(client, url, "m"), ["hi"])
    assert status == 200 or isinstance(result, CallError)


@fuzz(100)
@given(odd_json(VECTORS), STATUSES)
def test_any_embeddings_are_vectors_or_our_error(body: bytes, status: int) -> None:
    result = ask_llm(body, status, lambda client, url: OpenAiEmbeddings(client, url, "m"), ["a", "b"])
    assert status == 200 or isinstance(result, CallError)
    if isinstance(result, Response):

        async def kept(request: Request) -> Response:
            return result

        vectors = asyncio.run(Embedding(kept)(["a", "b"]))
        assert len(vectors) == 2
        assert all(isinstance(number, int | float) for vector in vectors for number in vector)
