"""Llms for the operators: scripted ones, with what they were asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from evalloom.core.model import Request, Response
from evalloom.llms.scripted import Scripted


class Heard:
    """A scripted llm from a file of rules, and every request that it got."""

    def __init__(self, script: Path) -> None:
        self._llm = Scripted(script)
        self.requests: list[Request] = []

    async def __call__(self, request: Request) -> Response:
        self.requests.append(request)
        return await self._llm(request)


@pytest.fixture
def llm(tmp_path: Path) -> Callable[..., Heard]:
    """`llm("42")` always says 42; rules come before that default: `llm("42", {"match": "again", "answer": "43"})`."""
    made: list[Path] = []

    def make(default: Any, *rules: Any) -> Heard:
        script = tmp_path / f"script-{len(made)}.yaml"
        script.write_text(yaml.safe_dump({"rules": list(rules), "default": default}), encoding="utf-8")
        made.append(script)
        return Heard(script)

    return make


class Untold:
    """It does not even say what it is."""

    def __repr__(self) -> str:
        raise RuntimeError("untold")


@pytest.fixture
def untold() -> Any:
    """An object whose repr raises."""
    return Untold()
