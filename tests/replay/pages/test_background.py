"""Replays that go on after the page has been answered."""

from __future__ import annotations

import time

import pytest
from tests.replay.pages.conftest import Pages

from evalloom.replay.pages import background

pytestmark = pytest.mark.req("REPLAY-19", "WORK-22")


def test_a_long_replay_is_running_until_it_is_cancelled(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_WAIT_S", 0.2)
    text = '{"nodes": [{"id": "n", "data": {"label": "N", "content": "{{q}}"}}]}'
    project = pages.post("/replay", create="project", text=text).rpartition("/")[2]
    rows = [{"q": "x" * 2_000, "n": n} for n in range(40_000)]
    dataset = pages.service.create_dataset({"name": "many", "rows": rows}).id
    path = f"/replay/{project}/{dataset}"
    pages.post(path, do="replay")
    while not (view := pages.get(path)).replay:
        time.sleep(0.02)
    assert view.replay.state == "running" and view.started[0].is_running
    pages.post(path, do="cancel")
    end = time.monotonic() + 10
    while pages.get(path).started and time.monotonic() < end:
        time.sleep(0.02)
    stopped = pages.get(path)
    assert stopped.replay.state == "interrupted" and 0 < stopped.replay.row_count < 40_000


def test_no_more_than_a_few_run_at_once(pages: Pages, stored: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_MOST_RUNNING", 0)
    with pytest.raises(Exception, match="running already"):
        pages.post(f"/replay/{stored[0]}/{stored[1]}", do="replay")


def test_a_closed_server_starts_nothing(pages: Pages, stored: tuple[str, str]) -> None:
    pages.mounted.background.close()
    with pytest.raises(Exception, match="stopping"):
        pages.post(f"/replay/{stored[0]}/{stored[1]}", do="replay")
