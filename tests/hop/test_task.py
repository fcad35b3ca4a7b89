"""Where a task keeps its things, and a session to try a hoplet by hand."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Record
from evalloom.hop import HopSession, open_session
from evalloom.hop.task import find_data, find_settings, find_task

SCRIPT = """
rules:
  - {match: LACK_OF_INFO, answer: {status: OK, reason: fine}}
default: "42"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one task in it; the working folder is the project."""
    (tmp_path / "tasks/one/TestCases").mkdir(parents=True)
    (tmp_path / "tasks/one/TestCases/cases.jsonl").write_text('{"id": 1, "tag": "t", "q": "x"}\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_settings_are_looked_for_from_the_task_upwards(project: Path) -> None:
    task = Path("tasks/one")
    assert find_settings(task) == ""
    for place in ("evalloom.yaml", "settings.yaml", "tasks/evalloom.yaml", "tasks/one/evalloom.yaml"):
        (project / place).write_text("profiles: {}")
        assert Path(find_settings(task)).resolve() == project / place
    assert Path(find_settings(None)).resolve() == project / "settings.yaml"


def test_settings_are_found_from_any_folder_and_not_beyond_the_repository(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "settings.yaml").write_text("profiles: {}")
    monkeypatch.chdir(project / "tasks/one")
    assert Path(find_settings(Path())).resolve() == project / "settings.yaml"
    (project / "tasks/.git").mkdir()
    assert find_settings(Path()) == ""


def test_data_is_looked_for_here_and_then_in_the_task(project: Path) -> None:
    task = Path("tasks/one")
    assert find_data(task, "") == find_data(task, "cases.jsonl") == task / "TestCases/cases.jsonl"
    (project / "cases.jsonl").write_text("")
    assert find_data(task, "cases.jsonl") == Path("cases.jsonl")
    with pytest.raises(EvalloomError, match="name the cases"):
        find_data(None, "")


def test_results_and_the_observers_log_are_no_cases(project: Path) -> None:
    folder = project / "tasks/one/TestCases"
    (folder / "observer.jsonl").write_text('{"type": "run_start"}\n')
    (folder / "view.jsonl").write_text('{"input": {"q": "x"}, "result": "1"}\n')
    (folder / "flat.jsonl").write_text('{"_type": "meta", "profile": "p"}\n')
    (folder / "empty.jsonl").touch()
    (folder / "folder.jsonl").mkdir()
    assert find_task("tasks/one").data == Path("tasks/one/TestCases/cases.jsonl")


def test_results_go_where_they_are_asked_to(project: Path) -> None:
    (project / "out").mkdir()
    assert find_task("tasks/one", out="out").results("b-1") == Path("out/cases_results_b-1.jsonl")
    assert find_task("tasks/one", out="mine.jsonl").results("b-1") == Path("mine.jsonl")


def test_the_results_of_results_do_not_pile_up_in_the_name(project: Path) -> None:
    first = find_task("tasks/one").results("20261116-022822-4790621f1")
    assert first.name == "cases_results_20261116-022822-4790621f1.jsonl"
    first.write_text('{"id": 1, "tag": "t", "q": "x"}')
    assert find_task("tasks/one", data=first.name).results("b").name == "cases_results_b.jsonl"


@pytest.mark.req("HOP-5", "HOP-9")
def test_a_session_by_hand_has_the_llms_of_its_profile(project: Path) -> None:
    (project / "script.yaml").write_text(SCRIPT)
    (project / "evalloom.yaml").write_text(
        "llms: {a: {protocol: scripted, file: script.yaml}}\nprofiles: {first: {run: a}}"
    )

    async def ask() -> tuple[object, list[Record]]:
        async with open_session() as session:
            assert isinstance(session, HopSession)
            return await session.hop_get("How many?", return_format=int), session.tracer.steps

    answer, steps = asyncio.run(ask())
    assert answer == ("OK", 42) and [step["op"] for step in steps] == ["hop_get"]
    with pytest.raises(EvalloomError, match="Did you mean 'first'"):
        asyncio.run(open_session("frist").__aenter__())
