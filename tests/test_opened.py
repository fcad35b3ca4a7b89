"""`evalloom.open`: batches as relations and DataFrames."""

from __future__ import annotations

from pathlib import Path

import pytest

import evalloom
from evalloom.engine import frames

pytestmark = pytest.mark.req("WORK-13")


@pytest.fixture(autouse=True)
def batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project with one batch of two runs."""
    monkeypatch.chdir(tmp_path)
    cases = [{"id": "a", "q": "x", "expected_output": "x"}, {"id": "b", "q": "y", "expected_output": "z"}]
    evalloom.evaluate(cases, lambda q: q, warn=lambda message: None)


def test_views_are_relations() -> None:
    with evalloom.open() as batches:
        assert batches.runs.columns[:3] == ["batch", "key", "case_id"]
        assert batches.sql("select case_id, passed from runs order by 1").fetchall() == [("a", True), ("b", False)]
        assert batches.verdicts.filter("status = 'failed'").project("case_id").fetchall() == [("b",)]
        shown = repr(batches).splitlines()
        assert shown[0] == "<evalloom.open('.evalloom/batches')" and shown[3].split() == ["runs", "2", "rows"]
        assert "llm_calls" in dir(batches)
        with pytest.raises(AttributeError, match="Did you mean 'runs'"):
            _ = batches.run


def test_the_latest_batch_or_several() -> None:
    [path] = Path(".evalloom/batches").iterdir()
    names: list[str | Path | list[str | Path]] = ["latest", path, str(path), path.name, [path, "latest"], "."]
    for name in names:
        with evalloom.open(name) as batches:
            assert batches.df("select count(*) as n from runs")["n"].tolist() == [2]
    with pytest.raises(evalloom.EvalloomError, match="no_batch"):
        evalloom.open("nothing")


def test_dataframes_if_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    with evalloom.open() as batches:
        frame = batches.df()
        assert frame.shape[0] == 2 and sorted(frame["case_id"]) == ["a", "b"]
        assert batches.pl().shape == frame.shape
        monkeypatch.setattr(frames, "find_spec", lambda name: None)
        with pytest.raises(evalloom.EvalloomError, match=r"pip install 'evalloom\[pandas\]'"):
            batches.df()
        with pytest.raises(evalloom.EvalloomError, match=r"pip install 'evalloom\[polars\]'"):
            batches.pl()


def test_open_does_not_replace_that_of_python() -> None:
    names: dict[str, object] = {}
    exec("from evalloom import *", names)
    assert "open" not in names and "evaluate" in names
