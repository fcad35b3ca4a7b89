"""How the tests of commands run them: as people do, in a process of their own."""

import json
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from evalloom.cli import app


@pytest.fixture
def evalloom(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`evalloom("validate", "a.jsonl")` runs it in the test's folder and expects no traceback, whatever happens."""

    def call(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "evalloom", *arguments]
        done = subprocess.run(command, cwd=tmp_path, input=stdin, capture_output=True, encoding="utf-8")
        assert "Traceback" not in done.stderr and "internal_error" not in done.stderr, done.stderr
        return done

    return call


class Done(NamedTuple):
    """What a command gave that was called in this process."""

    code: int
    out: str
    err: str

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


@pytest.fixture
def in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """evalloom in this process, which saves the start of another, in the test's folder and without keys."""
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "ANTHROPIC_", "HOP_KEY_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Done:
        code = app.run(list(arguments))
        return Done(code, *capsys.readouterr())

    return call


@pytest.fixture
def on_terminal(tmp_path: Path) -> Callable[..., str]:
    """Runs evalloom under a pseudo-terminal of 80 columns and gives what it shows, colours and all."""

    def call(*arguments: str) -> str:
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 80))
        plain = {
            name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")
        }
        command = [sys.executable, "-m", "evalloom", *arguments]
        with subprocess.Popen(
            command, cwd=tmp_path, stdin=theirs, stdout=theirs, env={**plain, "TERM": "xterm-256color"}
        ):
            os.close(theirs)
            shown = b"".join(iter(lambda: _read(ours), b""))
        os.close(ours)
        return shown.decode().replace("\r\n", "\n")

    return call


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the other side has gone
        return b""
