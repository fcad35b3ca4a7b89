"""The commands that pages start."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalloom.engine.system import Catalog
from evalloom.pages.jobs import Jobs
from evalloom.pages.library import Library

_SLOW_START = """
import time
from pathlib import Path
folder = Path(".evalloom/batches/b1")
folder.mkdir(parents=True)
runs = (folder / "runs.jsonl").open("w")
while not Path("go").exists():
    time.sleep(0.01)
(folder / "batch.json").write_text("{}")
time.sleep(60)
"""


def test_a_batch_is_named_when_it_can_be_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(_SLOW_START)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    jobs = Jobs(tmp_path, Library(tmp_path, Catalog()))
    job = jobs.start(["run"]).id
    assert jobs.wait_for_batch(job, 1).batch == ""
    (tmp_path / "go").touch()
    assert jobs.wait_for_batch(job, 30).batch == "b1"
    jobs.cancel(job)
