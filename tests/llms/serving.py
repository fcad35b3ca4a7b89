"""Starts the test server in a process of its own and stops it again."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("server.py")


class Server:
    """A running server: where it is, and what it has seen."""

    def __init__(self, url: str) -> None:
        self.url = url

    def stats(self) -> dict[str, int]:
        """How many requests there were: requests, distinct, resent, answered, answered_again, max_in_flight."""
        found: dict[str, int] = self._get("/stats")
        return found

    def log(self) -> dict[str, int]:
        """How often each prompt was sent."""
        found: dict[str, int] = self._get("/log")
        return found

    def _get(self, path: str) -> Any:
        # Past any proxy of the environment: this is loopback.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.url + path, timeout=10) as reply:
            return json.load(reply)


@contextmanager
def serving(**options: float) -> Iterator[Server]:
    """A server for the length of a block: `with serving(p429=0.1, retry_after=1) as server: … server.url`."""
    with tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder) / "port"
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        process = subprocess.Popen([sys.executable, str(SCRIPT), f"--port-file={port_file}", *flags])
        try:
            yield Server(f"http://127.0.0.1:{_port(process, port_file)}")
        finally:
            process.kill()
            process.wait()


def _port(process: subprocess.Popen[bytes], port_file: Path) -> str:
    end = time.monotonic() + 30
    while not port_file.exists():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the test server did not start: exit code {process.returncode}")
        time.sleep(0.01)
    return port_file.read_text(encoding="utf-8")
