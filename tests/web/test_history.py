"""The history of a suite in a browser: rates over time, the record of each case, and one case."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

import pytest
from tests.browser import PageServer, serving

BOT = """
import os

def answer(inputs):
    '''Case 0 fails always, case 1 every second time, case 2 since the fifth batch.'''
    number, at = inputs["number"], int(os.environ["AT"])
    is_bad = number == 0 or (number == 1 and at % 2) or (number == 2 and at >= 5)
    return "Lyon" if is_bad else "Paris"
"""
CASES = ["always", "flaky", "<script>alert(1)</script>", "q3", "q4"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite that was run eight times, and another dataset that was run once."""
    folder = tmp_path_factory.mktemp("history")
    (folder / "bot.py").write_text(BOT)
    (folder / "evalloom.yaml").write_text("datasets: [cases.jsonl]\ntarget: python:bot:answer\n")
    line = '{{"id": "{}", "question": "x", "number": {}, "expected_output": "contains:Paris"}}\n'
    (folder / "cases.jsonl").write_text("".join(line.format(id, number) for number, id in enumerate(CASES)))
    (folder / "other.jsonl").write_text(line.format("alone", 5))
    (folder / "quarantine.yaml").write_text(
        "version: 1\ncases:\n  - {id: flaky, expires: 2999-12-31, reason: <b>nobody knows</b>}\n"
        "  - {id: q4, expires: 2020-01-01}\n"
    )
    for at in range(8):
        if at == 5:
            (folder / "bot.py").write_text(BOT + "# changed\n")
        _run(folder, at)
    _run(folder, 8, "other.jsonl")
    return folder


def _run(folder: Path, at: int, *words: str) -> None:
    env = {**os.environ, "AT": str(at), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-m", "evalloom", "run", *words], cwd=folder, env=env, capture_output=True)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[PageServer]:
    with serving(folder) as server:
        yield server


SUITE = "/history?suite=" + quote("cases.jsonl → python:bot:answer")


@pytest.mark.req("WORK-20", "WORK-23", "WORK-24")
@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, "Always fails"),
        ({"locale": "zh-CN"}, "一直失败"),
        ({"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}, "Always fails"),
        ({"java_script_enabled": False}, "Always fails"),
    ],
    ids=["english", "chinese", "phone-dark", "plain"],
)
def test_rates_and_records_lead_to_batches_and_runs(
    server: PageServer, visitor: Callable[..., Any], options: dict[str, Any], shown: str
) -> None:
    somebody = visitor(**options)
    page = somebody.page
    page.goto(f"{server.url}{SUITE}&show=flaky")
    assert shown in page.inner_text("main") and "flaky" in page.inner_text("table.record")
    # Eight points, each a link to its batch, and eight marks, each a link to its run.
    assert page.locator(".chart-box a").count() == 8 and page.locator(".cells a").count() == 8
    if options.get("java_script_enabled", True):
        assert somebody.accessibility() == []
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    somebody.picture(f"history-{'-'.join(options) or 'english'}")
    page.locator(".cells a").first.click()
    assert "/r/" in page.url


@pytest.mark.req("WORK-21")
def test_the_twin_has_the_record_of_the_command_line(server: PageServer, folder: Path) -> None:
    from evalloom import catalog
    from evalloom.analysis.history import read_history
    from evalloom.analysis.history_series import SeriesRequest

    twin = server.json(SUITE)
    request = SeriesRequest(dataset="cases.jsonl")
    history = read_history([folder], request, catalog.load(), lambda message: None)
    assert [batch["profiles"][0]["pass_rate"] for batch in twin["batches"]] == [
        batch.profiles[0].pass_rate for batch in history.batches
    ]
    assert {kind: number for kind, number in twin["counts"].items() if number} == {
        kind: len(history.of_kind(kind)) for kind in {case.kind for case in history.cases}
    }
    assert twin["counts"]["always_fails"] == 1 and twin["counts"]["never_fails"] == 2
    assert [entry["is_expired"] for entry in twin["quarantine"]] == [False, True]
    assert any(batch["changed"] for batch in twin["batches"])


@pytest.mark.req("WORK-21", "WORK-24")
def test_one_case_has_all_its_runs_and_a_hostile_id_is_only_text(
    server: PageServer, visitor: Callable[..., Any]
) -> None:
    page = visitor().page
    page.goto(f"{server.url}{SUITE}&case={quote(CASES[2])}")
    assert "5 of 8 runs passed" in page.inner_text(".headline")
    assert page.locator("tbody tr").count() == 8
    page.locator("[data-open]").first.click()
    assert "/r/" in page.url
    twin = server.json(f"{SUITE}&case=flaky")
    assert (twin["record"]["passed"], twin["record"]["counted"]) == (4, 8)
    assert all(one["run"] for one in twin["record"]["runs"])


@pytest.mark.req("WORK-20")
def test_the_newest_suite_comes_first_and_others_are_named(server: PageServer, folder: Path) -> None:
    twin = server.json("/history")
    assert twin["dataset"] == "other.jsonl" and [one["batches"] for one in twin["choices"]] == [1, 8]
    first = min(path.name for path in (folder / ".evalloom" / "batches").iterdir())
    assert server.json(f"/history?batch={first}")["dataset"] == "cases.jsonl"
    assert len(server.json(f"{SUITE}&limit=3")["batches"]) == 3
    for path in ("/history?suite=nothing", f"{SUITE}&case=nothing", "/history?batch=nothing"):
        with pytest.raises(HTTPError) as refused:
            server.get(path)
        assert refused.value.code == 404


@pytest.mark.req("WORK-20")
def test_a_folder_without_batches_says_what_to_do(serve_pages: Callable[..., Any], tmp_path: Path) -> None:
    server = serve_pages(tmp_path)
    assert "evalloom init" in server.get("/history") and "evalloom init" in server.get("/compare")
