"""The OpenAPI document, and that the service does what it says."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalloom.replay.server.endpoints import ENDPOINTS
from evalloom.replay.server.openapi import document

HERE = Path(__file__).parent
TOKEN = "a-token-of-many-signs"


@pytest.mark.req("REPLAY-15")
def test_every_endpoint_is_in_the_document(service: Any) -> None:
    paths = service.get("/openapi.json").value["paths"]
    told = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert told == {(one.method, one.path) for one in ENDPOINTS} | {("GET", "/openapi.json")}


@pytest.mark.parametrize("needs_token", [False, True])
def test_every_reference_and_every_link_leads_somewhere(needs_token: bool) -> None:
    found = document(ENDPOINTS, ["echo"], needs_token)
    references = set(re.findall(r"'#/components/schemas/(\w+)'", str(found)))
    assert references and references <= set(found["components"]["schemas"])
    operations = [one for methods in found["paths"].values() for one in methods.values()]
    names = {one["operationId"] for one in operations}
    answers = [answer for one in operations for answer in one["responses"].values()]
    links = {link["operationId"] for answer in answers for link in answer.get("links", {}).values()}
    assert len(names) == len(operations) and {"getProject", "replay", "getRun"} <= links <= names
    assert all(("401" in one["responses"]) == (needs_token and one["operationId"] != "health") for one in operations)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.req("REPLAY-12", "REPLAY-13", "REPLAY-14", "REPLAY-15")
@pytest.mark.parametrize(("seed", "token"), [(1, ""), (2, TOKEN), (3, ""), (4, TOKEN), (5, "")])
def test_schemathesis_finds_nothing(start: Callable[..., Any], tmp_path: Path, seed: int, token: str) -> None:
    """It asks for everything that the document tells of, in good and in bad faith, and follows its links."""
    service = start(*(["--token-env", "T"] if token else []), env={"T": token})
    command = [str(Path(sys.executable).with_name("schemathesis")), "run", "--checks=all", "--no-color"]
    command += [f"--seed={seed}", "--max-examples=5", f"http://127.0.0.1:{service.port}/openapi.json"]
    command += [f"--header=Authorization: Bearer {token}"] if token else []
    hooks = {"SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **hooks}, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Tested: {len(ENDPOINTS)}\n" in done.stdout
    assert service.stop() == ""
