"""A server that speaks like OpenAI and like Anthropic, well or badly, for tests: `python server.py --port-file F`.

How it behaves is chosen per request: by the model, or by `[[mode]]` in the prompt.

    any other name   the answer: what stands behind `say: ` in the prompt, a call of the tool behind `call: `, or ANS-<digest>
    mirror           the request itself as JSON text: path, headers, body
    status-N         that status, 429 with Retry-After
    flaky-N          500 to the first N requests with this prompt; limited-N: 429 to them
    slow-N           the answer after N milliseconds; hang: never
    drop, cut        the connection closed before the answer, or in the middle of it
    not-http, garbage, html, wrong-json, no-json-object, empty, error-200    a bad answer
    no-usage         the answer without its usage
    prompt-cache     the answer, with all but two tokens of the prompt from the provider's cache
    huge             an answer of 30 MB
    echo-key         401 with the key in its text
    no-model         404 that names the model, as OpenAI words it
    lone             the answer with half of a surrogate pair in it

`GET /stats` counts requests, GET /log counts them by prompt. `/v1` before a path is optional.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
from collections import Counter
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

import orjson

MODE = re.compile(r"\[\[([\w-]+)\]\]")
SAY = re.compile(r"say: (.*)", re.DOTALL)
CALL = re.compile(r"call: (\w+) (\{.*\})", re.DOTALL)
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
HTML = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
BAD_BODIES = {
    "garbage": b"\x00\xff\xfe garbage \x80",
    "html": HTML,
    "wrong-json": b'{"foo": 1}',
    "no-json-object": b'["a", "list"]',
    "empty": b"",
    "error-200": b'{"error": {"type": "server_error", "message": "something broke inside"}}',
}


class State:
    """What the server was told to do and what it has seen."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.prompts: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.in_flight = 0
        self.max_in_flight = 0

    def stats(self) -> dict[str, int]:
        requests = self.prompts.total()
        return {
            "requests": requests,
            "distinct": len(self.prompts),
            "resent": requests - len(self.prompts),
            "answered": self.answered.total(),
            "answered_again": self.answered.total() - len(self.answered),
            "max_in_flight": self.max_in_flight,
        }

    def fault(self, prompt: str, attempt: int) -> str:
        """The mode that chance gives this attempt: the same in every run with the same seed."""
        options = self.options
        if not (options.p429 or options.p500 or options.pdrop):
            return ""
        drawn = blake2b(f"{options.seed}:{attempt}:{prompt}".encode(), digest_size=8).digest()
        chance = int.from_bytes(drawn, "big") / 2**64
        for mode, rate in (("status-429", options.p429), ("status-500", options.p500), ("drop", options.pdrop)):
            if chance < rate:
                return mode
            chance -= rate
        return ""


class Connection(asyncio.Protocol):
    """One connection: requests come one after the other and are answered in their order."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.unread = b""
        self.is_busy = False
        self.is_open = True
        self.query = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self.done()

    def data_received(self, data: bytes) -> None:
        self.unread += data
        self.read()

    def read(self) -> None:
        while not self.is_busy and self.is_open and (end := self.unread.find(b"\r\n\r\n")) >= 0:
            head = self.unread[:end]
            length = LENGTH.search(head)
            stop = end + 4 + (int(length[1]) if length else 0)
            if len(self.unread) < stop:
                return
            body, self.unread = self.unread[end + 4 : stop], self.unread[stop:]
            self.answer(head, body)

    def answer(self, head: bytes, body: bytes) -> None:
        method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
        path, _, self.query = path.removeprefix("/v1").partition("?")
        if method == "GET":
            known = {"/stats": self.state.stats, "/log": lambda: self.state.prompts, "/models": _models}
            self.send(200, orjson.dumps(known[path]())) if path in known else self.send(404, b"{}")
            return
        asked = orjson.loads(body)
        prompt = prompt_of(asked)
        chosen = MODE.search(prompt)
        state = self.state
        state.prompts[prompt] += 1
        state.in_flight += 1
        state.max_in_flight = max(state.max_in_flight, state.in_flight)
        self.is_busy = True
        mode = chosen[1] if chosen else state.fault(prompt, state.prompts[prompt]) or str(asked.get("model", ""))
        delay = int(mode[5:]) if mode.startswith("slow-") else state.options.latency_ms
        if delay:
            loop = asyncio.get_running_loop()
            loop.call_later(delay / 1000, self.behave, mode, prompt, path, head, asked)
        else:
            self.behave(mode, prompt, path, head, asked)

    def behave(self, mode: str, prompt: str, path: str, head: bytes, asked: dict[str, Any]) -> None:
        if mode == "hang" or not self.is_open:
            return
        kind, _, number = mode.partition("-")
        if kind in ("flaky", "limited"):
            status = 500 if kind == "flaky" else 429
            mode = f"status-{status}" if self.state.prompts[prompt] <= int(number) else ""
        if mode.startswith("status-"):
            self.refuse(int(mode[7:]), f"the server says {mode[7:]}")
        elif mode == "no-model":
            self.refuse(404, f"The model `{asked.get('model')}` does not exist or you do not have access to it.")
        elif mode == "lone":
            self.send(200, rb'{"choices":[{"message":{"content":"half \ud83d of it"},"finish_reason":"stop"}]}')
        elif mode == "echo-key":
            self.refuse(401, f"Incorrect API key provided: {key_in(head)}. Check your key.")
        elif mode in ("drop", "cut", "not-http"):
            self.break_off(mode)
        elif mode in BAD_BODIES:
            self.send(200, BAD_BODIES[mode])
        else:
            self.state.answered[prompt] += 1
            said = said_to(mode, prompt, path, head, asked, self.query)
            answer = SPEAKERS[path](said, asked)
            if mode == "no-usage":
                del answer["usage"]
            if asked.get("stream"):
                self.send(200, streamed(said, asked, answer.get("usage")), "text/event-stream")
            else:
                self.send(200, orjson.dumps(answer))
        self.done()
        self.read()

    def refuse(self, status: int, message: str) -> None:
        error = {"type": "error", "error": {"type": "some_error", "message": message}}
        after = f"Retry-After: {self.state.options.retry_after:g}\r\n" if status == 429 else ""
        self.send(status, orjson.dumps(error), more=after)

    def break_off(self, mode: str) -> None:
        if mode == "cut":
            self.transport.write(
                b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{"cho'
            )
        elif mode == "not-http":
            self.transport.write(b"\x16\x03\x01 this is no HTTP \r\n\r\n")
        self.transport.close()

    def send(self, status: int, body: bytes, kind: str = "application/json", more: str = "") -> None:
        kind = "text/html" if body is HTML else kind
        head = f"HTTP/1.1 {status} OK\r\nContent-Type: {kind}\r\n{more}Content-Length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)

    def done(self) -> None:
        if self.is_busy:
            self.is_busy = False
            self.state.in_flight -= 1


def prompt_of(asked: dict[str, Any]) -> str:
    """The last message of a request, or the texts to embed."""
    if "input" in asked:
        return str(asked["input"])
    messages = asked.get("messages") or [{}]
    content = messages[-1].get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content)
    return str(content or "")


def answer_to(prompt: str) -> str:
    """What the server answers to a prompt that asks for nothing special."""
    return "ANS-" + blake2b(prompt.encode(), digest_size=8).hexdigest()


def key_in(head: bytes) -> str:
    found = re.search(rb"\r\n(?:x-api-key: |authorization: bearer )([^\r]*)", head, re.IGNORECASE)
    return found[1].decode() if found else "none"


def said_to(mode: str, prompt: str, path: str, head: bytes, asked: dict[str, Any], query: str) -> str:
    if mode == "huge":
        return "x" * 30_000_000
    if mode == "mirror":
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
        lower = {name.lower(): value for name, value in headers.items()}
        return orjson.dumps({"path": path, "query": query, "headers": lower, "body": asked}).decode()
    said = SAY.search(prompt)
    return said[1] if said else answer_to(prompt)


def chat(said: str, asked: dict[str, Any]) -> dict[str, Any]:
    prompt = prompt_of(asked)
    message: dict[str, Any] = {"role": "assistant", "content": said}
    call = CALL.search(prompt)
    if call:
        function = {"name": call[1], "arguments": call[2]}
        message |= {"content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": asked.get("model"),
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop"}],
        "usage": {
            "prompt_tokens": len(prompt) // 4,
            "completion_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": cached_tokens(prompt)},
        },
    }


def cached_tokens(prompt: str) -> int:
    return max(0, len(prompt) // 4 - 2) if "[[prompt-cache]]" in prompt else 0


def streamed(said: str, asked: dict[str, Any], usage: Any) -> bytes:
    """The answer in two pieces, as server-sent events, and then its usage."""
    half = len(said) // 2
    deltas: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": said[:half]}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {"content": said[half:]}, "finish_reason": "stop"}]},
        {"choices": [], "usage": usage},
    ]
    events = [orjson.dumps({"model": asked.get("model"), **delta}) for delta in deltas]
    return b"".join(b"data: " + event + b"\n\n" for event in [*events, b"[DONE]"])


def messages(said: str, asked: dict[str, Any]) -> dict[str, Any]:
    prompt = prompt_of(asked)
    call = CALL.search(prompt)
    forced = (asked.get("tool_choice") or {}).get("name")
    block: dict[str, Any] = {"type": "text", "text": said}
    if call or forced:
        name, given = (call[1], call[2]) if call else (forced, said)
        block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": orjson.loads(given)}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": asked.get("model"),
        "content": [block],
        "stop_reason": "tool_use" if call or forced else "end_turn",
        "usage": {
            "input_tokens": len(prompt) // 4 - cached_tokens(prompt),
            "output_tokens": 12,
            "cache_read_input_tokens": cached_tokens(prompt),
        },
    }


def embeddings(said: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Vectors that are near for texts with the same letters."""
    given = asked["input"]
    texts = given if isinstance(given, list) else [given]
    rows = [{"index": number, "embedding": vector(text)} for number, text in enumerate(texts)]
    tokens = sum(len(text) for text in texts)
    return {"data": rows, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def vector(text: str) -> list[float]:
    counts = [0.0] * 16
    for char in text:
        counts[ord(char) % 16] += 1
    size = sum(count * count for count in counts) ** 0.5 or 1.0
    return [count / size for count in counts]


def _models() -> dict[str, Any]:
    return {"object": "list", "data": [{"id": "test-model", "object": "model"}]}


SPEAKERS = {"/chat/completions": chat, "/messages": messages, "/embeddings": embeddings}


async def serve(options: argparse.Namespace) -> None:
    state = State(options)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(state), "127.0.0.1", options.port, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    unfinished = Path(f"{options.port_file}.tmp")
    unfinished.write_text(str(port), encoding="utf-8")
    unfinished.replace(options.port_file)
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description="A server that speaks like OpenAI and Anthropic, for tests.")
    parser.add_argument("--port-file", required=True, help="where the port is written once the server listens")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--p429", type=float, default=0.0, help="the share of attempts that get a 429")
    parser.add_argument("--p500", type=float, default=0.0)
    parser.add_argument("--pdrop", type=float, default=0.0)
    parser.add_argument("--retry-after", type=float, default=0.0)
    parser.add_argument("--latency-ms", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(options))
    else:
        uvloop.run(serve(options))


if __name__ == "__main__":
    main()
