"""Batches as they run: started, watched, cancelled and resumed from the page, or run on the command line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.req("WORK-22")
SLOW = "import time\n\ndef answer(q):\n    time.sleep(0.05)\n    return q\n"


@pytest.fixture
def slow_suite(tmp_path: Path) -> Path:
    """A suite of 900 cases of 50 ms each, of which every tenth fails."""
    (tmp_path / "slow.py").write_text(SLOW)
    cases = [{"id": f"c{n}", "q": f"q{n}", "expected_output": f"q{n + (n % 10 == 0)}"} for n in range(900)]
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    (tmp_path / "evalloom.yaml").write_text(
        "datasets: [cases.jsonl]\ntarget: python:slow:answer\nrun: {concurrency: 2}\n"
    )
    return tmp_path


def run(folder: Path, *flags: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "evalloom", "run", *flags],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait_for(condition: Callable[[], Any], seconds: float = 30) -> Any:
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
    return value


def opens(page: Any, url: str) -> bool:
    """Whether a page shows an address now; one that loads itself again when a batch ends interrupts other navigation."""
    try:
        page.goto(url)
    except Exception as error:
        assert "interrupted by another navigation" in str(error)
        return False
    return True


def running(server: Any) -> Any:
    return server.json("/")["running"]


def test_a_batch_of_the_command_line_is_live_and_can_be_cancelled_and_resumed(
    serve_pages: Callable[..., Any], visitor: Callable[..., Any], slow_suite: Path
) -> None:
    server, somebody = serve_pages(slow_suite), visitor()
    page = somebody.page
    page.goto(server.sign_in)
    process = run(slow_suite)
    page.wait_for_selector("[data-progress] progress")
    progress = wait_for(lambda: running(server) and running(server)[0]["done"] > 5 and running(server)[0])
    assert progress["planned"] == 900 and progress["state"] == "running"
    shown = page.inner_text("[data-progress]")
    wait_for(lambda: page.inner_text("[data-progress]") != shown or page.wait_for_timeout(50))
    somebody.picture("live")
    assert somebody.accessibility() == []
    page.click("text=Cancel")
    assert process.wait(20) == 3
    [batch] = server.json("/")["batches"]
    done = batch["batch"]["summary"]["total"]
    assert batch["batch"]["state"] == "stopped" and 5 < done < 900
    wait_for(lambda: opens(page, f"{server.url}/b/{batch['batch']['id']}/resume"))
    assert "--resume-from" in page.inner_text("main")
    somebody.picture("resume")
    page.click("main form button")
    page.wait_for_url("**/b/*")
    again = wait_for(lambda: running(server) and running(server)[0])
    assert again["batch"] == batch["batch"]["id"] and again["done"] >= done


def test_progress_survives_a_restart_of_the_server(
    serve_pages: Callable[..., Any], visitor: Callable[..., Any], slow_suite: Path, unused_port: int
) -> None:
    process = run(slow_suite)
    port = ("--port", str(unused_port))
    first = serve_pages(slow_suite, "view", "--no-browser", *port)
    somebody = visitor()
    wait_for(lambda: running(first))
    somebody.page.goto(first.url)
    first.stop()
    assert process.poll() is None
    serve_pages(slow_suite, "serve", *port)
    before = somebody.page.inner_text("[data-progress] b")
    somebody.page.wait_for_function("old => document.querySelector('[data-progress] b').innerText != old", arg=before)
    # The browser logs each attempt to connect again.
    somebody.problems.clear()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 3


def test_what_a_page_started_stops_with_the_server_and_can_be_resumed(
    serve_pages: Callable[..., Any], visitor: Callable[..., Any], slow_suite: Path
) -> None:
    process = run(slow_suite)
    server, somebody = serve_pages(slow_suite), visitor()
    wait_for(lambda: running(server) and running(server)[0]["done"] > 3)
    process.send_signal(signal.SIGINT)
    process.wait(20)
    batch = server.json("/")["batches"][0]["batch"]["id"]
    somebody.page.goto(server.sign_in)
    somebody.page.goto(f"{server.url}/b/{batch}/resume")
    somebody.page.click("main form button")
    somebody.page.wait_for_url("**/b/*")
    somebody.close()
    done = wait_for(lambda: running(server) and running(server)[0])["done"]
    wait_for(lambda: running(server)[0]["done"] > done + 3)
    server.stop()
    manifest = json.loads((slow_suite / ".evalloom" / "batches" / batch / "batch.json").read_text())
    assert manifest["summary"]["total"] > done and not manifest["finished_at"]
    finished = subprocess.run(
        [sys.executable, "-m", "evalloom", "run", "--resume-from", batch, "--concurrency", "64"],
        cwd=slow_suite,
        capture_output=True,
    )
    assert finished.returncode == 1
    manifest = json.loads((slow_suite / ".evalloom" / "batches" / batch / "batch.json").read_text())
    assert manifest["summary"]["total"] == 900 and manifest["summary"]["passed"] == 810


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["evalloom", "run", "cases.jsonl", "--target", "command:touch pwned"], "not_allowed_here"),
        (["evalloom", "run", "cases.jsonl", "--target=python:os:system"], "not_allowed_here"),
        (["evalloom", "run", "--allow-code"], "not_allowed_here"),
        (["sh", "-c", "touch pwned"], "not_resumable"),
        (["evalloom", "sql", "select 1"], "not_resumable"),
    ],
)
@pytest.mark.req("WORK-24")
def test_the_command_of_a_batch_from_elsewhere_runs_no_code(
    serve_pages: Callable[..., Any], visitor: Callable[..., Any], slow_suite: Path, command: list[str], code: str
) -> None:
    subprocess.run([sys.executable, "-m", "evalloom", "run", "--limit", "1"], cwd=slow_suite, capture_output=True)
    [manifest] = (slow_suite / ".evalloom" / "batches").glob("*/batch.json")
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "command": command, "finished_at": ""}))
    server, somebody = serve_pages(slow_suite), visitor()
    somebody.page.goto(server.sign_in)
    path = f"{server.url}/b/{manifest.parent.name}/resume"
    answer = somebody.context.request.post(path, headers={"Origin": server.url})
    assert answer.status in (400, 403) and code in answer.text()
    assert not (slow_suite / "pwned").exists()


def test_serve_starts_nothing_unless_it_is_allowed(
    serve_pages: Callable[..., Any], visitor: Callable[..., Any], slow_suite: Path
) -> None:
    token = "a-token-of-many-signs"
    subprocess.run([sys.executable, "-m", "evalloom", "run", "--limit", "1"], cwd=slow_suite, capture_output=True)
    [batch] = (slow_suite / ".evalloom" / "batches").iterdir()
    server = serve_pages(slow_suite, "serve", "--token-env", "T", env={**os.environ, "T": token})
    answer = visitor().context.request.post(
        f"{server.url}/api/b/{batch.name}/resume", headers={"Authorization": f"Bearer {token}"}
    )
    assert answer.status == 403 and answer.json()["error"] == "not_allowed_here" and "--allow-run" in answer.text()
    shutil.rmtree(batch)
