"""Load `evalloom serve` for ten minutes: replays, readers of pages, live progress, and clients that hardly read.

Prints percentiles of latency, errors, and memory at the beginning and in the end. Every request must be answered, and
memory must not grow by more than a fifth once every client has had its turn.

.venv/bin/python benchmarks/service.py [--seconds 600]
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from million import EVALLOOM, Suite
from replay import request, row, state
from validate import resident_kb
from viewers import serving

PORT = 8499
_REPLAYS, _READERS, _VIEWERS, _SLOW = 4, 4, 8, 8
_ROWS, _WINDOW = 2000, 50
_GROWTH = 1.2
_PAUSE_S = 0.02
"""A client thinks between two requests, so that the server is busy and not only the clients."""


class Load:
    """The clients of one server, and what they saw."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.times: dict[str, list[float]] = {"replay": [], "page": [], "live": []}
        self.errors: Counter[str] = Counter()

    def start(self, client: Callable[[Load, int], None], number: int) -> threading.Thread:
        def work() -> None:
            while not self.stop.is_set():
                try:
                    client(self, number)
                except Exception as error:  # every failure of a client is a failure of the server
                    if not self.stop.is_set():
                        self.errors[f"{client.__name__}: {type(error).__name__}: {error}"[:120]] += 1
                        time.sleep(0.1)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread

    def timed(self, kind: str, method: str, path: str, body: Any = None) -> bytes:
        start = time.perf_counter()
        answer = ask(method, path, body)
        self.times[kind].append(time.perf_counter() - start)
        return answer


def ask(method: str, path: str, body: Any = None) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
    try:
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
        if response.status not in (200, 201):
            raise ValueError(f"{path}: HTTP {response.status}")
        return answer
    finally:
        connection.close()


def replay(load: Load, number: int) -> None:
    """Replay windows of a dataset of its own, and read one run of each."""
    project = json.loads(ask("POST", "/api/projects", {"name": "load", "state": state()}))["id"]
    rows = [row(number * _ROWS + at) for at in range(_ROWS)]
    dataset = json.loads(ask("POST", "/api/datasets", {"name": "load", "rows": rows}))["id"]
    for offset in range(0, _ROWS, _WINDOW):
        if load.stop.is_set():
            return
        body = {"projectId": project, "offset": offset, "limit": _WINDOW}
        summaries = json.loads(load.timed("replay", "POST", f"/api/datasets/{dataset}/replay", body))
        if len(summaries) != _WINDOW:
            raise ValueError(f"{len(summaries)} of {_WINDOW} rows were replayed")
        load.timed("replay", "GET", f"/api/runs/{summaries[0]['runId']}")
        time.sleep(_PAUSE_S)


def read(load: Load, number: int) -> None:
    """Go through the pages of the batches."""
    for path in ("/", "/b/latest", "/b/latest?status=failed&sort=-latency", "/history", "/data", "/replay"):
        load.timed("page", "GET", path)
        time.sleep(_PAUSE_S)


def view(load: Load, number: int) -> None:
    """Follow the stream of live progress; the time is that to its first event."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    try:
        start = time.perf_counter()
        connection.request("GET", "/api/live")
        response = connection.getresponse()
        response.readline()
        load.times["live"].append(time.perf_counter() - start)
        end = time.monotonic() + 20
        while time.monotonic() < end and not load.stop.is_set():
            if not response.readline():
                return
    finally:
        connection.close()


def dawdle(load: Load, number: int) -> None:
    """Ask for a large page and read a byte a second, or send a request just as slowly."""
    with socket.create_connection(("127.0.0.1", PORT), timeout=60) as connection:
        whole = request("/api/projects", {"name": "x" * 100_000})
        if number % 2:
            connection.sendall(b"GET /b/latest HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        for at in range(20):
            if load.stop.is_set():
                return
            if number % 2:
                connection.recv(1)
            else:
                connection.sendall(whole[at : at + 1])
            time.sleep(1)


def percentiles(times: list[float]) -> str:
    ordered = sorted(times)
    shown = [
        f"p{share * 100:g} {ordered[int(share * (len(ordered) - 1))] * 1000:.1f} ms" for share in (0.5, 0.95, 0.99)
    ]
    return f"{len(ordered):,} requests, {', '.join(shown)}, longest {ordered[-1] * 1000:.0f} ms"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=600)
    seconds: float = options.parse_args().seconds
    suite = Suite(Path(tempfile.gettempdir()) / "evalloom-benchmarks" / "service", 2000)
    suite.write()
    suite.call("run", codes=(1,))
    load, memory = Load(), list[float]()
    with serving(suite.folder, *EVALLOOM, "serve", "--port", str(PORT)) as process:
        clients = {replay: _REPLAYS, read: _READERS, view: _VIEWERS, dawdle: _SLOW}
        threads = [load.start(client, number) for client, count in clients.items() for number in range(count)]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(min(5, seconds / 20))
            memory.append(resident_kb(process.pid) / 1024)
        load.stop.set()
        for thread in threads:
            thread.join(60)
    settled, last = max(memory[len(memory) // 5 : len(memory) // 3]), max(memory[-len(memory) // 5 :])
    for kind, times in load.times.items():
        print(f"{kind}: {percentiles(times)}")
    print(f"memory: {settled:.0f} MB after a third of {seconds:.0f} s, {last:.0f} MB in the end")
    print(f"errors: {dict(load.errors) or 'none'}")
    shutil.rmtree(suite.folder)
    return int(bool(load.errors) or last > settled * _GROWTH)


if __name__ == "__main__":
    sys.exit(main())
