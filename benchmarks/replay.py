"""Measure replays against string replacement, and the HTTP service against a stored response.

.venv/bin/python benchmarks/replay.py [--rows 100000] [--requests 2000] [--rounds 5]

The bare loops fill the same templates, by `str.replace` and by `re.sub`, and join them; they make no trace, no digest
and no record. The bare endpoint is Starlette under uvicorn with the same settings, and returns stored bytes of the same
size. Both get requests over eight persistent connections.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from time import perf_counter
from typing import Any

from evalloom.replay.recipe.parse import read_recipe

NODES = [
    ("System", "system_prompt", "You are the assistant of {{company}}. Be {{tone}}. Answer in {{language}}."),
    ("Memory", "memory", "Known about {{user_name}}: {{facts}}"),
    ("Retrieval", "retrieval", "Sources:\n{{sources}}"),
    ("Tools", "tools", "You may call {{tools}}."),
    ("History", "messages", "{{history}}"),
    ("User", "user_input", "{{user_name}} asks: {{question}}"),
]
STATIC = {"company": "Loom & Co", "tone": "kind", "tools": "search, order"}
CONNECTIONS = 8
_HOLE = re.compile(r"\{\{\s*(.*?)\s*\}\}")
_BARE = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
body = open(sys.argv[1], "rb").read()
async def stored(request: Request) -> Response:
    await request.json()
    return Response(body, media_type="application/json")
class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(f"serves http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]} now", file=sys.stderr, flush=True)
app = Starlette(routes=[Route("/replay", stored, methods=["POST"])])
quiet = {"ws": "none", "lifespan": "off", "access_log": False, "log_level": "critical"}
Server(uvicorn.Config(app, port=0, http="httptools", **quiet)).run()
"""


def state() -> dict[str, Any]:
    nodes = [
        {"id": f"n{at}", "data": {"label": label, "type": type, "content": content, "variables": []}}
        for at, (label, type, content) in enumerate(NODES)
    ]
    edges = [{"source": f"n{at}", "target": f"n{at + 1}"} for at in range(len(NODES) - 1)]
    variables = [{"id": name, "name": name, "type": "static", "value": value} for name, value in STATIC.items()]
    return {"nodes": nodes, "edges": edges, "variables": variables}


def row(number: int) -> dict[str, str]:
    return {
        "user_name": f"user{number}",
        "facts": "likes tea; lives in Lyon",
        "sources": f"1. handbook §{number}\n2. faq",
        "history": "hi\nhello",
        "question": f"what about {number}?",
        "language": "English",
    }


# -- contexts -----------------------------------------------------------------------------------------


def by_replace(rows: list[dict[str, str]]) -> str:
    text = ""
    for one in rows:
        parts = []
        for label, _, content in NODES:
            for name, value in {**STATIC, **one}.items():
                content = content.replace(f"{{{{{name}}}}}", value)
            parts.append(f"--- {label} ---\n{content}")
        text = "\n\n".join(parts).strip()
    return text


def by_pattern(rows: list[dict[str, str]]) -> str:
    text = ""
    for one in rows:
        values = {**STATIC, **one}

        def value(match: re.Match[str], values: dict[str, str] = values) -> str:
            return values.get(match[1], match[0])

        text = "\n\n".join(f"--- {label} ---\n{_HOLE.sub(value, content)}" for label, _, content in NODES).strip()
    return text


def by_recipe(rows: list[dict[str, str]]) -> str:
    recipe = read_recipe(state())
    text = ""
    for one in rows:
        text = recipe.assemble(one).text
    return text


def timed(work: Callable[[list[dict[str, str]]], str], rows: list[dict[str, str]]) -> float:
    start = perf_counter()
    text = work(rows)
    seconds = perf_counter() - start
    assert text == by_pattern(rows[-1:]), "all of them come to the same text"
    return seconds


def assembling(count: int, rounds: int) -> None:
    rows = [row(number) for number in range(count)]
    ways = (by_replace, by_pattern, by_recipe)
    measured = [[timed(way, rows) for way in ways] for _ in range(rounds)]
    replace, pattern, ours = (median(seconds) for seconds in zip(*measured, strict=True))
    ratio = median(round[2] / min(round[:2]) for round in measured)
    print(f"assembling {count:,} rows × {len(NODES)} nodes, median of {rounds} rounds")
    print(f"  bare loop, str.replace  {replace:.2f} s")
    print(f"  bare loop, re.sub       {pattern:.2f} s")
    print(f"  recipe                  {ours:.2f} s   {ratio:.2f} × the faster loop (bar 3)")


# -- over HTTP ----------------------------------------------------------------------------------------


@contextmanager
def serving(*command: str) -> Iterator[int]:
    """The port of a server that says on stderr where it listens."""
    with subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            match = re.search(r"http://127\.0\.0\.1:(\d+)", process.stderr.readline())
            assert match, "the server did not start"
            yield int(match[1])
        finally:
            process.terminate()


def request(path: str, body: Any) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    method = "GET" if body is None else "POST"
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
    return f"{head}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content


def read_answer(connection: socket.socket) -> bytes:
    """The body of one answer; whatever is not 2xx ends the measurement."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(1 << 16)
    head, _, body = received.partition(b"\r\n\r\n")
    assert head[9:10] == b"2", received
    length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])  # type: ignore[index]
    parts = [body]
    missing = length - len(body)
    while missing:
        parts.append(connection.recv(missing))
        missing -= len(parts[-1])
    return b"".join(parts)


def ask(port: int, path: str, body: Any) -> Any:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(request(path, body))
        return json.loads(read_answer(connection))


def rate(port: int, path: str, body: Any, count: int) -> float:
    """Answers a second."""
    sent = request(path, body)
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
    start = perf_counter()
    for connection in connections:
        connection.sendall(sent)
    for number in range(count):
        connection = connections[number % CONNECTIONS]
        read_answer(connection)
        connection.sendall(sent)
    seconds = perf_counter() - start
    for connection in connections:
        read_answer(connection)
        connection.close()
    return count / seconds


def over_http(count: int, rounds: int) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.NamedTemporaryFile() as stored,
        serving("-m", "evalloom", "serve", "--port", "0", "--data-dir", folder) as port,
    ):
        rows = [row(number) for number in range(200)]
        dataset = ask(port, "/api/datasets", {"name": "rows", "rows": rows})["id"]
        project = ask(port, "/api/projects", {"name": "recipe", "state": state()})["id"]
        path, body = f"/api/datasets/{dataset}/replay", {"projectId": project, "limit": 200}
        start = perf_counter()
        answer = ask(port, path, body)
        cold = perf_counter() - start
        run = f"/api/runs/{answer[100]['runId']}"
        few = rate(port, run, None, count)
        stored.write(json.dumps(answer, separators=(",", ":")).encode())
        stored.flush()
        with serving("-c", _BARE, stored.name) as bare_port:
            pairs = [(rate(bare_port, "/replay", body, count), rate(port, path, body, count)) for _ in range(rounds)]
            stored = (count + CONNECTIONS) * rounds * 200
            many = rate(port, run, None, count)
    bare, ours = (median(rates) for rates in zip(*pairs, strict=True))
    ratio = median(ours / bare for bare, ours in pairs)
    print(f"200-row replay over HTTP, {CONNECTIONS} connections, {count:,} requests, median of {rounds} rounds")
    print(f"  bare endpoint, stored body  {bare:,.0f} requests/s")
    print(f"  replay, durable records     {ours:,.0f} requests/s   {ratio:.2f} × (bar 0.2)")
    print(f"  first replay of a recipe    {cold * 1000:.0f} ms")
    speeds = f"{few:,.0f} requests/s with 200 stored runs, {many:,.0f} with {stored:,}"
    print(f"one run by id: {speeds}: {few / many:.2f} × the time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    assembling(options.rows, options.rounds)
    over_http(options.requests, options.rounds)


if __name__ == "__main__":
    main()
