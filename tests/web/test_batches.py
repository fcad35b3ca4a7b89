"""The start page in a browser: the newest result, its failures, and the list of all batches."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "first"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first example, run twice: four of five cases pass, then none."""
    folder = tmp_path_factory.mktemp("first") / "suite"
    shutil.copytree(EXAMPLE, folder)
    for flags in ([], ["--profile", "echo"]):
        subprocess.run([sys.executable, "-m", "evalloom", "run", *flags], cwd=folder, capture_output=True)
    return folder


@pytest.mark.req("WORK-20", "WORK-23")
@pytest.mark.parametrize(("locale", "shown"), [("en-US", "0 of 5 passed"), ("zh-CN", "5 个中通过 0 个")])
def test_the_newest_failure_is_one_click_away(
    serve_pages: Callable[..., Any], visitor: Callable[..., Any], folder: Path, locale: str, shown: str
) -> None:
    server, somebody = serve_pages(folder), visitor(locale=locale)
    somebody.page.goto(server.url)
    assert shown in somebody.page.inner_text("main")
    somebody.picture(f"batches-{locale}")
    assert somebody.accessibility() == []
    failure = somebody.page.locator(".failures a").first
    assert "/r/" in failure.get_attribute("href")


@pytest.mark.req("WORK-21")
def test_the_twin_has_the_same_figures(serve_pages: Callable[..., Any], folder: Path) -> None:
    twin = serve_pages(folder).json("/")
    assert twin["total"] == 2 and twin["latest"]["summary"]["passed"] == 0 and len(twin["failures"]) == 5


def test_a_batch_that_lost_runs_is_flagged(serve_pages: Callable[..., Any], folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "suite"
    shutil.copytree(folder, copy)
    log = max((copy / ".evalloom" / "batches").iterdir()) / "runs.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:3]))
    server = serve_pages(copy)
    losses = [row["losses"] for row in server.json("/")["batches"]]
    assert (losses[0]["runs"], losses[0]["expected"], losses[1]) == (3, 5, None)
    # In the headline of the newest batch, and in its row.
    assert server.get("/").count("3 of 5 runs can be read") == 2
