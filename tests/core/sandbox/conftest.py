"""Every test of the sandbox ends with nothing left: no process, no folder."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evalloom.core.sandbox import why_unavailable

Running = Callable[..., set[int]]


def _running(parent: int | None = None) -> set[int]:
    """The processes that run, all of them or those that one of them started."""
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            state, its_parent = (place / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z" and parent in (None, int(its_parent)):
            found.add(int(place.name))
    return found


@pytest.fixture
def running() -> Running:
    return _running


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which scratch folders are made; empty again afterwards."""
    if why_unavailable():
        pytest.skip(why_unavailable())
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    before = _running(os.getpid())
    yield place
    assert [left.name for left in place.iterdir()] == []
    # One whose start was cancelled ends by itself, as soon as it finds no request.
    end = time.monotonic() + 5
    while not _running(os.getpid()) <= before and time.monotonic() < end:
        time.sleep(0.01)
    assert _running(os.getpid()) <= before
