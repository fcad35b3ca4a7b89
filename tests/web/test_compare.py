"""The pages of a comparison in a browser: the conclusion, the cases that flipped, and two runs side by side."""

from __future__ import annotations

import json
import os
import shutil
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
    '''Version 2 loses ten cases, gains one, ends one in an error, and says other things in some.'''
    number, version = inputs["number"], os.environ["BOT"]
    if version == "2" and number == 20:
        raise RuntimeError("provider answered 503 <script>alert(3)</script>")
    good = number != 0 if version == "1" else number >= 10 or number == 0
    text = "Paris" if good else "Lyon"
    if number % 2:
        return {"city": text, "note": inputs["question"]}
    return f"Dear customer,\\n\\nthe capital is {text}.\\n{inputs['question']}" + ("!" if version == "2" else "")
"""
NASTY = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "abc\u202edef",
    "w" * 200_000,
    "مرحبا",
    "a/b?c#d&e=f",
    "{{ 7 * 7 }}",
]


def run(folder: Path, *words: str, **env: str) -> None:
    command = [sys.executable, "-m", "evalloom", *words]
    subprocess.run(command, cwd=folder, env={**os.environ, **env}, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite of 40 cases run with two versions, a baseline, a batch of another dataset and two profiles."""
    folder = tmp_path_factory.mktemp("compare")
    (folder / "bot.py").write_text(BOT, "utf-8")
    (folder / "evalloom.yaml").write_text("datasets: [cases.jsonl]\ntarget: python:bot:answer\n")
    texts = [NASTY[number] if number < len(NASTY) else f"Question {number}" for number in range(40)]
    records = [
        {
            "id": text[:3000] if number < len(NASTY) else f"q{number}",
            "tags": ["zh" if number % 3 else "<b>en</b>"],
            "question": text,
            "number": number,
            "expected_output": "contains:Paris",
        }
        for number, text in enumerate(texts)
    ]
    (folder / "cases.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    (folder / "other.jsonl").write_text('{"id": "x", "question": "x", "number": 1, "expected_output": "contains:P"}\n')
    run(folder, "run", BOT="1")
    run(folder, "run", BOT="2")
    run(folder, "run", "other.jsonl", BOT="1")
    run(folder, "baseline", "save", "good", ids(folder)[0])
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[PageServer]:
    with serving(folder) as server:
        yield server


def ids(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / ".evalloom" / "batches").iterdir())


def address(folder: Path, **more: str) -> str:
    a, b, *_ = ids(folder)
    return f"/compare?a={a}&b={b}" + "".join(f"&{name}={quote(value, safe='')}" for name, value in more.items())


@pytest.mark.req("WORK-20", "WORK-23", "WORK-24")
@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, "worse, −22.5 points"),
        ({"locale": "zh-CN"}, "更差，−22.5 个百分点"),
        ({"viewport": {"width": 390, "height": 844}}, "11 of 40 cases"),
        ({"color_scheme": "dark", "java_script_enabled": False}, "worse, −22.5 points"),
    ],
    ids=["english", "chinese", "phone", "dark-plain"],
)
def test_the_conclusion_comes_first_and_a_flip_is_one_click_away(
    server: PageServer, visitor: Callable[..., Any], folder: Path, options: dict[str, Any], shown: str
) -> None:
    somebody = visitor(**options)
    page = somebody.page
    page.goto(server.url + address(folder))
    assert shown in page.inner_text("main")
    if options.get("java_script_enabled", True):
        assert somebody.accessibility() == []
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    somebody.picture(f"compare-{'-'.join(options) or 'english'}")
    page.locator(".flips [data-open]").first.click()
    assert "/compare/run" in page.url and page.locator("ins").count() + page.locator(".whole-output").count() > 0
    if options.get("java_script_enabled", True):
        assert somebody.accessibility() == []


@pytest.mark.req("WORK-23")
def test_the_keyboard_opens_a_flip_and_walks_to_the_next(
    server: PageServer, visitor: Callable[..., Any], folder: Path
) -> None:
    page = visitor().page
    page.goto(server.url + address(folder, show="lost"))
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare/run?**")
    first = page.inner_text("h1")
    page.keyboard.press("n")
    page.wait_for_function("first => document.querySelector('h1').innerText !== first", arg=first)
    assert "2 of" in page.inner_text(".pair-walk")


@pytest.mark.req("WORK-21")
def test_the_twin_concludes_as_the_command_line_does(server: PageServer, folder: Path) -> None:
    from evalloom import catalog
    from evalloom.console.compare_text import conclusion_line
    from evalloom.engine.compare import ComparisonRequest, compare

    a, b, *_ = ids(folder)
    twin = server.json(address(folder))
    compared = compare(ComparisonRequest(b, a, home=folder), lambda message: None, catalog.load())
    expected, _ = conclusion_line(compared.comparisons[0], compared)
    assert twin["conclusions"][0]["sentence"].replace("−", "-").lower() == expected.lower()
    figures = compared.comparisons[0].figures
    assert (twin["counts"]["lost"], twin["counts"]["gained"]) == (figures.lost, figures.gained)
    # Every case is in one list.
    assert sum(twin["counts"].values()) == twin["total"] == 40
    # A tag is one more comparison, for the command line too.
    by_tag = server.json(address(folder, by="tag"))["profiles"][0]["tags"]
    assert {group["name"] for group in by_tag} == {"zh", "<b>en</b>"}


@pytest.mark.req("WORK-21")
def test_lists_are_filtered_by_tag_and_text_and_the_case_shows_both_runs(server: PageServer, folder: Path) -> None:
    lost = server.json(address(folder, show="lost"))
    tagged = server.json(address(folder, show="lost", tag="zh"))
    assert 0 < tagged["counts"]["lost"] < lost["counts"]["lost"]
    assert server.json(address(folder, q="provider answered"))["counts"]["lost"] == 1
    output = server.json(address(folder, show="output"))["cases"]
    assert output and all(case["status"] == case["before_status"] == "passed" for case in output)
    for case in lost["cases"]:
        run_address = address(folder, show="lost", case=case["case_id"]).replace("/compare?", "/compare/run?")
        pair = server.json(run_address)
        assert pair["before"]["status"] == "passed" and pair["now"]["status"] in ("failed", "error")
        assert "<script>alert" not in server.get(run_address)


@pytest.mark.req("WORK-20")
def test_two_ticked_batches_a_baseline_and_latest_lead_to_the_comparison(server: PageServer, folder: Path) -> None:
    a, b, other = ids(folder)
    ticked = server.json(f"/compare?b={b}&b={a}")
    assert ticked == {"location": f"/compare?a={a}&b={b}"}
    against_baseline = server.json(f"/compare?a=good&b={b[:-1]}")
    assert against_baseline["a"]["is_baseline"] and against_baseline["counts"] == server.json(address(folder))["counts"]
    choices = server.json("/compare")
    assert choices["baselines"] == ["good"] and [len(suite["batches"]) for suite in choices["suites"]] == [1, 2]
    assert server.json(f"/compare?b={b}")["a"] == a and other in server.get("/compare")


@pytest.mark.req("WORK-20")
def test_what_cannot_be_compared_says_why(server: PageServer, folder: Path, visitor: Callable[..., Any]) -> None:
    a, _, other = ids(folder)
    page = visitor().page
    page.goto(f"{server.url}/compare?a={a}&b={other}")
    assert "no case of" in page.inner_text("section.alarm") and page.locator("select[name=a]").count() == 1
    assert "one profile" in server.json(f"/compare?a={a}&b={a}")["problem"]
    for name in ("nothing-like-this", "../batches", "/etc", "%2e%2e%2f", "a%00b", "bot.py"):
        with pytest.raises(HTTPError) as refused:
            server.get(f"/compare?a={name}&b={a}")
        assert refused.value.code == 404
    with pytest.raises(HTTPError) as refused:
        server.get(address(folder, case="no such case").replace("/compare?", "/compare/run?"))
    assert refused.value.code == 404
    with pytest.raises(HTTPError) as refused:
        server.get(address(folder, show="nothing"))
    assert refused.value.code == 400


@pytest.mark.req("WORK-20")
def test_torn_empty_and_repeated_batches_are_compared_as_far_as_they_go(
    serve_pages: Callable[..., Any], folder: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    shutil.copytree(folder, home, ignore=shutil.ignore_patterns("copy", "session.key"))
    a, b, other = ids(home)
    batches = home / ".evalloom" / "batches"
    torn = batches / b / "runs.jsonl"
    torn.write_bytes(torn.read_bytes()[: torn.stat().st_size // 2])
    (batches / other / "runs.jsonl").write_bytes(b"")
    (batches / other / "verdicts.jsonl").write_bytes(b"")
    run(home, "run", "--repeat", "3", "--no-cache", BOT="2")
    server = serve_pages(home)
    half = server.json(f"/compare?a={a}&b={b}")
    assert half["counts"]["incomparable"] > 0 and half["conclusions"]
    assert "problem" in server.json(f"/compare?a={a}&b={other}")
    repeated = server.json(f"/compare?a={a}&b=latest&show=lost")
    assert repeated["cases"][0]["repeats"] == [0, 3]
    pair = server.json(f"/compare/run?a={a}&b=latest&show=lost&case=q9&rb=2")
    assert pair["now"]["repeat"] == 1 and len(pair["repeats"]) == 3


@pytest.mark.req("WORK-20")
def test_profiles_of_one_batch_are_compared(serve_pages: Callable[..., Any], tmp_path: Path) -> None:
    home = tmp_path / "suite"
    shutil.copytree(Path(__file__).parents[2] / "examples" / "first", home)
    run(home, "run", "--profile", "offline", "--profile", "echo")
    server, (batch,) = serve_pages(home), ids(home)
    compared = server.json(f"/compare?a={batch}:offline&b={batch}:echo")
    assert compared["counts"]["lost"] == 4 and compared["conclusions"][0]["base_profile"] == "offline"
    assert server.json(f"/compare?a={batch}:echo&b={batch}:offline")["counts"]["gained"] == 4
    assert server.json(f"/compare?a={batch}&b={batch}")["counts"] == compared["counts"]
