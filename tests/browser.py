"""Pages as people use them: a server process over a folder, and a real browser."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
SCREENSHOTS = os.environ.get("EVALLOOM_SCREENSHOTS", "")
"""A folder for pictures of the pages that tests open; empty keeps none."""


class PageServer:
    """A running `evalloom view` in a folder, or `evalloom serve`."""

    def __init__(self, folder: Path, *words: str, env: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        words = words or ("view", "--no-browser")
        command = [sys.executable, "-m", "evalloom", *words, *([] if "--port" in words else ["--port", "0"])]
        variables = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        self.process = subprocess.Popen(
            command, cwd=folder, env=variables, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, encoding="utf-8"
        )
        first = self._line()
        found = re.search(r"http://[\w.]+:\d+", first)
        assert found, first
        self.url = found[0]
        self.sign_in = self._line().removeprefix("Open ").strip() if words[0] == "view" else ""
        """The address that opens a session; it works once."""
        if words[0] == "view":
            self._line()

    def _line(self) -> str:
        assert self.process.stderr
        return self.process.stderr.readline()

    def get(self, path: str, **headers: str) -> str:
        """Read a page as a program would, without a session."""
        request = urllib.request.Request(self.url + path, headers=headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            text: str = response.read().decode()
        return text

    def json(self, path: str) -> Any:
        """Read the JSON twin of a page."""
        return json.loads(self.get(f"/api{path}" if path != "/" else "/api"))

    def stop(self, with_signal: int = 15) -> str:
        """End it, and return what it printed."""
        self.process.send_signal(with_signal)
        _, printed = self.process.communicate(timeout=30)
        return printed

    def close(self) -> None:
        if self.process.poll() is None:
            printed = self.stop()
            assert "Traceback" not in printed, printed


@contextmanager
def serving(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> Iterator[PageServer]:
    """Serve a folder for the time of a block."""
    server = PageServer(folder, *words, env=env)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def launched(executable: str) -> Iterator[Any]:
    """A Chromium for the time of a block."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        loop = asyncio.get_running_loop()
        yield browser
        asyncio._set_running_loop(loop)
        browser.close()


_loop: asyncio.AbstractEventLoop | None = None


@contextmanager
def own_loop(uses_browser: bool) -> Iterator[None]:
    """Let playwright's loop count as running only in tests that use it, since all others start loops of their own."""
    global _loop
    if uses_browser:
        asyncio._set_running_loop(_loop)
    yield
    if uses_browser:
        _loop = asyncio._get_running_loop()
        asyncio._set_running_loop(None)


class Visitor:
    """Somebody at a browser; every error of a page and every request to another host is collected."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, "locale": "en-US", **options})
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", self._note)
        self.page.on("dialog", self._dismiss)
        self.hosts: set[str] = set()
        self.page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))

    def _note(self, line: Any) -> None:
        if line.type == "error":
            self.problems.append(line.text)

    def _dismiss(self, dialog: Any) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def picture(self, name: str) -> None:
        """Keep a picture of the page, if pictures are asked for."""
        if SCREENSHOTS:
            Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=f"{SCREENSHOTS}/{name}.png", full_page=True)

    def accessibility(self) -> list[str]:
        """Return the serious findings of axe on the page."""
        from axe_core_python.sync_playwright import Axe  # type: ignore[import-untyped]

        # axe is a script of the test, not of the page, whose policy forbids it.
        found = Axe().run(self.page)["violations"]
        return [
            f"{finding['id']}: {node['html'][:200]}"
            for finding in found
            if finding["impact"] in ("serious", "critical")
            for node in finding["nodes"]
        ]

    def close(self) -> None:
        self.context.close()


def require_chromium() -> str:
    """Return the path of Chromium, or skip the test where the machine lacks it."""
    import shutil

    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not installed")
    return path
