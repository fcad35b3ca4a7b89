"""A project with two HOP tasks: the example with a batch, and a hoplet that does what its input says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browser import serving

EXAMPLE = Path(__file__).parents[3] / "examples" / "hop"
NASTY = '<script>alert(1)</script>"><img src=x onerror=alert(1)>\u202e'
CREDIT = f'''
import asyncio
from pathlib import Path

NASTY = {NASTY!r}


async def credit_hop(session, input_data):
    """Does what its text says."""
    text = input_data["text"]
    replies = [round.feedback for round in session.rounds]
    print("printed", NASTY)
    session.tracer.trace_step("look", "read " + text[:20], "OK", 0.01)
    if "slow" in text:
        await asyncio.sleep(60)
    if "fail" in text:
        raise ValueError("no account " + NASTY)
    if "lack" in text and len(replies) < 2:
        return "LACK_OF_INFO", {{"clarification_questions": ["Which year? " + NASTY]}}
    if "unsure" in text and "confirm" not in replies:
        return "UNCERTAIN", {{"credit_score": 3, "summary": "perhaps", "errors": []}}
    error = {{"text": NASTY, "explanation": "because", "severity": "High"}}
    return "OK", {{"credit_score": 4, "summary": " / ".join([text, *replies]), "errors": [error], "word": "w" * 200_000}}
'''
METAINFO = """# Credit check

## Input

| field | type | required | meaning |
|---|---|---|---|
| text | string | yes | what to check |
| level | enum(low, high) | no | how strict |
| amount | int (1-5) | no | |
| is_new | bool | no | |
| details | object | no | |

## Output

| field | type | required |
|---|---|---|
| credit_score | int | no |
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("hop") / "project"
    shutil.copytree(EXAMPLE, home / "checks" / "hallucination")
    run_tool(home, "--task", "checks/hallucination")
    credit = home / "credit"
    (credit / "Hoplet").mkdir(parents=True)
    (credit / "TestCases").mkdir()
    (credit / "Hoplet" / "Hop.py").write_text(CREDIT, "utf-8")
    (credit / "Hoplet" / "metainfo.md").write_text(METAINFO, "utf-8")
    cases = [
        {"id": 1, "tag": NASTY, "text": "fine", "amount": 2, "expected_credit_score": 4},
        {"id": 2, "tag": "b", "text": "bad", "amount": 3, "expected_credit_score": 2},
    ]
    (credit / "TestCases" / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases), "utf-8")
    (home / "answers.yaml").write_text("default: yes\n", "utf-8")
    (home / "evalloom.yaml").write_text(
        "llms: {quiet: {protocol: scripted, file: answers.yaml, model: quiet-1}}\nprofiles: {quiet: {run: quiet}}\n",
        "utf-8",
    )
    run_tool(home, "--task", "credit")
    return home


def run_tool(home: Path, *words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "evalloom.tools.batchhoptest", *words], cwd=home, capture_output=True)
    assert done.returncode in (0, 1), done.stderr


@pytest.fixture(scope="module")
def server(project: Path) -> Iterator[Any]:
    with serving(project) as running:
        yield running


@pytest.fixture(scope="module")
def session(server: Any, chromium: Any) -> Any:
    """The cookies of a session: the address that opens one works once."""
    context = chromium.new_context()
    context.new_page().goto(server.sign_in)
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def signed_in(session: Any, visitor: Callable[..., Any]) -> Callable[..., Any]:
    """`signed_in(locale="zh-CN")` is somebody with a session."""
    return lambda **options: visitor(storage_state=session, **options)
