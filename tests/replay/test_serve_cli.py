"""`evalloom serve`: when it starts, when it does not, and how it ends. What it serves is tested in tests/server."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TOKEN = "a-token-of-many-signs"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_listens_and_ends_well(tmp_path: Path, how: signal.Signals) -> None:
    command = [sys.executable, "-m", "evalloom", "serve", "--port", "0", "--data-dir", "here"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=-1, stderr=-1, encoding="utf-8")
    assert process.stderr
    said = process.stderr.readline()
    assert said.startswith("evalloom serves http://127.0.0.1:") and said.endswith("(data in here)\n")
    process.send_signal(how)
    assert process.communicate(timeout=20) == ("", "") and process.returncode == 0
    assert (tmp_path / "here").is_dir()


def test_a_port_that_is_taken_is_one_line(evalloom: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = evalloom("serve", "--port", str(port))
    assert done.returncode == 3
    assert done.stderr.startswith(f"evalloom: 127.0.0.1:{port}: cannot listen: ")
    assert done.stderr.endswith("[cannot_listen]\n") and done.stderr.count("\n") == 1


@pytest.mark.req("REPLAY-15")
@pytest.mark.parametrize("flags", [("--host", "0.0.0.0"), ("--host", "::"), ("--allow-host", "loom.example")])
def test_what_others_can_reach_needs_a_token(in_process: Callable[..., Any], flags: tuple[str, ...]) -> None:
    done = in_process("serve", "--port", "0", *flags)
    assert done.code == 2 and "--token-env" in done.err and "[token_needed]" in done.err


@pytest.mark.parametrize("token", [None, "", "short", "with a space in between", "nicht-ganz-ascii-ä"])
def test_a_token_that_is_none_is_refused(
    in_process: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    if token is not None:
        monkeypatch.setitem(os.environ, "LOOM", token)
    done = in_process("serve", "--port", "0", "--token-env", "LOOM")
    assert done.code == 2 and "LOOM" in done.err and "[bad_token]" in done.err
    assert not token or token not in done.err


def test_settings_that_are_wrong_stop_it(in_process: Callable[..., Any]) -> None:
    Path("bad.yaml").write_text("llms: 1\n", encoding="utf-8")
    done = in_process("serve", "--port", "0", "--config", "bad.yaml")
    assert done.code == 2 and "[bad_settings]" in done.err
