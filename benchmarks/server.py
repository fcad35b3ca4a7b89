"""A fast mock of an OpenAI-compatible endpoint: it answers every chat with `ANS-` and a digest of the last message.

python benchmarks/server.py --port 0 --port-file P [--latency-ms 50] [--p429 0.1] [--p500 0.05] [--pdrop 0.01]
    [--retry-after 1] [--seed 1] [--max-seconds 600]
`GET /stats` returns the number of requests and answers.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from hashlib import blake2b
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

import orjson
import uvloop

_FULL = (1 << 64) - 1
_FAULT = b'{"error":{"message":"an error that the benchmark requested","type":"mock"}}'


def digest(text: bytes) -> int:
    """64-bit FNV-1a: a few lines in any language, so that a compiled server can give the same answers."""
    value = 0xCBF29CE484222325
    for byte in text:
        value = ((value ^ byte) * 0x100000001B3) & _FULL
    return value


def answer(question: str) -> str:
    """What the server says to a last message."""
    return f"ANS-{digest(question.encode()):016x}"


class MockService:
    """The state that all connections share: the error rates and the counts."""

    def __init__(self, wished: argparse.Namespace) -> None:
        self.latency_s = wished.latency_ms / 1000
        self._drop = wished.pdrop
        self._429 = self._drop + wished.p429
        self._500 = self._429 + wished.p500
        self._retry_after = wished.retry_after
        self._seed = wished.seed
        self._attempts: dict[int, int] = {}
        self._counts = dict.fromkeys(("total", "ok", "s429", "s500", "dropped", "bad"), 0)

    def reply(self, head: bytes, body: bytes) -> bytes | None:
        """The whole response, or None when the connection is to be dropped."""
        if head.startswith(b"GET /stats"):
            return response(200, orjson.dumps(self.stats()))
        if not head.startswith(b"POST ") or b"/chat/completions" not in head.partition(b"\r\n")[0]:
            self._counts["bad"] += 1
            return response(404, _FAULT)
        return self._chat(orjson.loads(body))

    def stats(self) -> dict[str, int]:
        unique = len(self._attempts)
        return {**self._counts, "unique": unique, "resent": self._counts["total"] - unique}

    def _chat(self, request: dict[str, Any]) -> bytes | None:
        text = text_of(request["messages"][-1]["content"])
        key = digest(text)
        attempt = self._attempts[key] = self._attempts.get(key, 0) + 1
        fault = self._error_for(key, attempt)
        self._counts["total"] += 1
        self._counts[fault] += 1
        match fault:
            case "dropped":
                return None
            case "s429":
                return response(429, _FAULT, b"Retry-After: %d\r\n" % self._retry_after)
            case "s500":
                return response(500, _FAULT)
        return response(200, completion(request, f"ANS-{key:016x}", len(text) // 4 + 1))

    def _error_for(self, key: int, attempt: int) -> str:
        """A pure function of seed, question and attempt, so that every program gets the same errors."""
        if not self._500:
            return "ok"
        # Not FNV: its values for attempts 1 and 2 correlate.
        mixed = blake2b(b"%d %d %d" % (self._seed, key, attempt), digest_size=8).digest()
        chance = int.from_bytes(mixed) / _FULL
        if chance < self._drop:
            return "dropped"
        return "s429" if chance < self._429 else "s500" if chance < self._500 else "ok"


def text_of(content: str | list[dict[str, Any]]) -> bytes:
    """The text of a message, which some clients send in parts."""
    parts = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    return parts.encode()


def completion(request: dict[str, Any], said: str, tokens: int) -> bytes:
    message = {"role": "assistant", "content": said, "refusal": None}
    return orjson.dumps(
        {
            "id": f"chatcmpl-{said[4:]}",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": request.get("model", "mock"),
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": tokens, "completion_tokens": 12, "total_tokens": tokens + 12},
        }
    )


def response(status: int, body: bytes, more: bytes = b"") -> bytes:
    first = b"HTTP/1.1 %d %s\r\n" % (status, HTTPStatus(status).phrase.encode())
    return b"%sContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s" % (first, len(body), more, body)


class Connection(asyncio.Protocol):
    """Keep-alive HTTP/1.1, as much of it as clients of chat completions speak."""

    def __init__(self, service: MockService, loop: asyncio.AbstractEventLoop) -> None:
        self._service = service
        self._loop = loop
        self._waiting = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        while (end := self._waiting.find(b"\r\n\r\n")) >= 0:
            head = self._waiting[:end]
            size = end + 4 + content_length(head)
            if len(self._waiting) < size:
                return
            body, self._waiting = self._waiting[end + 4 : size], self._waiting[size:]
            reply = self._service.reply(head, body)
            if self._service.latency_s and not head.startswith(b"GET "):
                self._loop.call_later(self._service.latency_s, self._send, reply)
            else:
                self._send(reply)

    def _send(self, reply: bytes | None) -> None:
        if reply is None:
            self._transport.abort()
        elif not self._transport.is_closing():
            self._transport.write(reply)


def content_length(head: bytes) -> int:
    low = head.lower()
    start = low.find(b"\r\ncontent-length:")
    return int(low[start + 17 :].partition(b"\r\n")[0]) if start >= 0 else 0


async def serve(wished: argparse.Namespace) -> None:
    """Serves until the time is over or the parent is gone."""
    loop, parent, service = asyncio.get_running_loop(), os.getppid(), MockService(wished)
    server = await loop.create_server(lambda: Connection(service, loop), "127.0.0.1", wished.port, backlog=4096)
    write_port(server.sockets[0].getsockname()[1], wished.port_file)
    until = loop.time() + wished.max_seconds
    while loop.time() < until and os.getppid() == parent:
        await asyncio.sleep(0.5)


def write_port(port: int, path: Path | None) -> None:
    if path is None:
        print(port, flush=True)
        return
    # Renamed into place, so that no reader sees half a number.
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_text(str(port))
    unfinished.rename(path)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--port-file", type=Path)
    options.add_argument("--max-seconds", type=float, default=3600)
    options.add_argument("--retry-after", type=int, default=1)
    options.add_argument("--seed", type=int, default=1)
    for name in ("--latency-ms", "--p429", "--p500", "--pdrop"):
        options.add_argument(name, type=float, default=0)
    uvloop.run(serve(options.parse_args(sys.argv[1:])))


if __name__ == "__main__":
    main()
