"""One server process for all tests of llms that need one."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def _load(name: str) -> Any:
    """A module beside this file: with --import-mode=importlib the tests are no package."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def llm_server() -> Iterator[Any]:
    """A server that speaks like OpenAI and Anthropic: `llm_server.url`, `llm_server.stats()`."""
    with _load("serving").serving() as server:
        yield server
