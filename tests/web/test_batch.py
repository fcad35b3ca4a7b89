"""The pages of a batch and of a run in a browser: figures, filters, the table, and everything about one run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browser import PageServer, serving

EXAMPLES = Path(__file__).parents[2] / "examples"
HOSTILE = "<script>alert(1)</script>\"><img src=x onerror=alert(1)>'‮ end"


def evalloom(folder: Path, *words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "evalloom", *words], cwd=folder, capture_output=True, encoding="utf-8")
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def rows(server: PageServer, path: str) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = server.json(path)["list"]["lines"]
    return lines


@pytest.fixture(scope="module")
def hop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    """48 runs of two profiles: 7 failed, 2 met an error; two gates hold. There is an earlier batch of one profile."""
    folder = tmp_path_factory.mktemp("hop") / "suite"
    shutil.copytree(EXAMPLES / "hop", folder)
    evalloom(folder, "run", "--profile", "careful")
    evalloom(folder, "run")
    with serving(folder) as server:
        yield server


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    """Cases whose every text tries to break the page, one with a long word and one with more than a megabyte."""
    folder = tmp_path_factory.mktemp("hostile")
    poem = "\n".join(f"line {number} of a long answer" for number in range(200))
    cases = [
        {"id": HOSTILE, "tags": [HOSTILE], "description": HOSTILE, "question": HOSTILE, "expected_output": HOSTILE},
        {"id": "عربي", "question": "w" * 200_000, "expected_output": "nothing"},
        {"id": "huge", "question": "m" * 1_200_000, "expected_output": "contains:absent"},
        {"id": "poem", "question": poem, "expected_output": poem.replace("line 150", "verse 150")},
        {"id": "json", "question": '{"a": [1, 2], "b": "x"}', "checks": [{"equals": {"a": [1, 3], "b": "x"}}]},
    ]
    (folder / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases), "utf-8")
    (folder / "prompt.md").write_text("{{question}}", "utf-8")
    evalloom(folder, "run", "cases.jsonl", "--target", "prompt:prompt.md", "--profile", "echo", "--repeat", "2")
    with serving(folder) as server:
        yield server


@pytest.mark.req("WORK-20")
def test_a_batch_that_stopped_before_its_end_is_no_success(
    tmp_path: Path, serve_pages: Callable[..., Any], visitor: Callable[..., Any]
) -> None:
    cases = [{"id": f"c{number}", "q": "x", "expected_output": "x"} for number in range(500)]
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases), "utf-8")
    (tmp_path / "slow.py").write_text(
        "import asyncio\n\n\nasync def answer(q):\n    await asyncio.sleep(0.05)\n    return q\n", "utf-8"
    )
    flags = ["--concurrency", "2", "--max-time", "1"]
    evalloom(tmp_path, "run", "cases.jsonl", "--target", "python:slow:answer", *flags)
    server, somebody = serve_pages(tmp_path), visitor()
    page = server.json("/b/latest")
    assert page["outcome"] == "stopped" and page["batch"]["summary"]["passed"] > 0
    for path in ("/", "/b/latest"):
        somebody.page.goto(server.url + path)
        headline = somebody.page.inner_text(".headline")
        assert "■" in headline and "✓" not in headline and "Nothing failed" not in somebody.page.inner_text("main")


@pytest.mark.req("WORK-20", "WORK-23")
@pytest.mark.parametrize(
    ("locale", "words"),
    [
        (
            "en-US",
            ["failed", "39 of 48 passed", "81.2 %", "66.3–90.5 %", "over 24 cases", "holds", "Why 9 runs failed"],
        ),
        ("zh-CN", ["48 个中通过 39 个", "81.2%", "共 24 个用例", "9 次运行失败的原因"]),
    ],
)
def test_a_batch_says_how_it_ended_and_why(
    hop: PageServer, visitor: Callable[..., Any], locale: str, words: list[str]
) -> None:
    somebody = visitor(locale=locale, color_scheme="dark" if locale == "zh-CN" else "light")
    somebody.page.goto(f"{hop.url}/b/latest")
    text = somebody.page.inner_text("main")
    assert [word for word in words if word not in text] == []
    somebody.picture(f"batch-{locale}")
    assert somebody.accessibility() == []
    # Without a session there is nothing to press but the search.
    assert somebody.page.locator("form[method=post]").count() == 0


@pytest.mark.req("WORK-21", "WORK-5")
def test_filters_change_the_rows_and_never_the_rate(hop: PageServer, visitor: Callable[..., Any]) -> None:
    somebody = visitor()
    page = somebody.page
    page.goto(f"{hop.url}/b/latest")
    headline = page.inner_text("h1")
    page.click(".causes a >> nth=0")
    assert page.locator("[data-row]").count() == 6 and "6 of 48 runs where the cause is" in page.inner_text(".state")
    page.click(".facet a:has-text('hasty')")
    page.click("th a:has-text('Latency')")
    assert "sort=-latency" in page.url and page.inner_text("h1") == headline
    words = page.inner_text(".state")
    assert "5 of 48 runs" in words and "the profile is hasty" in words and "sorted by latency, greatest first" in words
    page.click(".chip >> nth=1")
    page.fill("[data-search]", "NOWHERE")
    page.press("[data-search]", "Enter")
    assert "No run matches." in page.inner_text("main")
    page.click(".empty a")
    assert page.locator("[data-row]").count() == 48


@pytest.mark.req("WORK-21")
def test_the_twin_has_the_runs_of_every_filter(hop: PageServer) -> None:
    counts = {
        "": 48, "?status=failed,error": 9, "?status=error": 2, "?tag=clean": 18, "?profile=careful": 24,
        "?difficulty=hard": 16, "?check=equals+hallucination_type": 7, "?q=LACK+no+such": 0, "?where=latency+%3E+100": 0,
        "?where=status+%3D+failed+and+tag+%3D+number": 3, "?status=failed&tag=number": 3,
    }  # fmt: skip
    found = {query: hop.json(f"/b/latest{query}")["list"]["runs"] for query in counts}
    assert found == counts
    latencies = [line["latency"] for line in rows(hop, "/b/latest?sort=-latency") if line["latency"] is not None]
    assert len(latencies) == 46 and latencies == sorted(latencies, reverse=True)
    text = hop.get("/b/latest/runs.csv?status=failed")
    assert text.startswith("﻿case_id,profile") and text.count("\n") == 8


@pytest.mark.req("WORK-21")
@pytest.mark.parametrize(
    ("query", "status"),
    [("?status=bad", 400), ("?sort=x", 400), ("?where=nope+%3D+1", 400), ("?page=0", 400), ("?cols=x", 400)],
)
def test_an_address_that_is_wrong_says_so(hop: PageServer, query: str, status: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        hop.json(f"/b/latest{query}")
    message = json.loads(caught.value.read())["message"]
    assert caught.value.code == status and ("expected" in message or "no column" in message)


@pytest.mark.parametrize("path", ["/b/nothing", "/b/latest/r/nothing", "/b/..%2F..", "/b/latest/r/nothing/output"])
def test_what_is_not_there_is_not_found(hop: PageServer, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        hop.get(path)
    assert caught.value.code == 404


@pytest.mark.req("WORK-20", "WORK-23")
def test_keys_walk_through_the_failures(hop: PageServer, visitor: Callable[..., Any]) -> None:
    somebody = visitor()
    page = somebody.page
    page.goto(f"{hop.url}/b/latest")
    page.keyboard.press("f")
    page.wait_for_url("**status=failed*")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/r/**")
    assert "1 of 9" in page.inner_text(".walk")
    first = page.inner_text("h1")
    page.keyboard.press("n")
    page.wait_for_function("document.querySelector('.walk').innerText.includes('2 of 9')")
    assert page.inner_text("h1") != first or "hasty" in page.inner_text("h1")
    assert somebody.accessibility() == []
    somebody.picture("run")
    page.keyboard.press("p")
    page.wait_for_function("document.querySelector('.walk').innerText.includes('1 of 9')")


@pytest.mark.req("WORK-20")
def test_a_run_has_everything_on_one_screen(hop: PageServer, visitor: Callable[..., Any]) -> None:
    [line, *_] = rows(hop, "/b/latest?status=failed&profile=careful")
    twin = hop.json(f"/b/latest/r/{line['run']}?status=failed")
    assert twin["facts"]["case"] == "13" and twin["place"]["total"] == 7
    assert [check["status"] for check in twin["checks"]] == ["failed", "failed"]
    assert [len(there["runs"]) for there in twin["earlier"]] == [1, 1] and len(twin["same_case"]) == 2
    somebody = visitor(java_script_enabled=False, viewport={"width": 390, "height": 844})
    somebody.page.goto(f"{hop.url}/b/latest/r/{line['run']}?status=failed")
    text = somebody.page.inner_text("main")
    for words in (
        "hallucination_cases.jsonl:13",
        "expected true, got false",
        "Expected",
        "Actual",
        "Steps",
        "Model calls",
    ):
        assert words in text
    assert somebody.page.evaluate("document.documentElement.scrollWidth") <= 390
    somebody.picture("run-phone")


@pytest.mark.req("WORK-24")
@pytest.mark.parametrize("width", [1440, 390])
def test_no_text_of_a_user_runs_or_breaks_the_page(
    hostile: PageServer, visitor: Callable[..., Any], width: int
) -> None:
    somebody = visitor(viewport={"width": width, "height": 900})
    lines = rows(hostile, "/b/latest")
    assert len(lines) == 5
    paths = ["/b/latest", *(f"/b/latest/r/{line['run']}" for line in lines)]
    for path in paths:
        somebody.page.goto(hostile.url + path)
        assert somebody.page.evaluate("document.documentElement.scrollWidth") <= width
        assert somebody.page.locator("main img, main script").count() == 0
        assert len(somebody.page.content()) < 400_000
    somebody.page.goto(
        f"{hostile.url}/b/latest?{'&'.join(['tag=%3Cscript%3E', 'q=%22%3E%3Cimg', 'profile=%E2%80%AE'])}"
    )
    assert "0 of 10 runs" in somebody.page.inner_text(".state")
    assert somebody.accessibility() == []


@pytest.mark.req("WORK-21")
def test_a_long_output_is_cut_around_the_first_difference(hostile: PageServer, visitor: Callable[..., Any]) -> None:
    runs = {line["case"]: line["run"] for line in rows(hostile, "/b/latest")}
    somebody = visitor()
    somebody.page.goto(f"{hostile.url}/b/latest/r/{runs['poem']}")
    shown = somebody.page.inner_text(".sides > div:last-child")
    assert "line 150" in shown and "characters before" in shown and "line 2 of" not in shown
    assert "verse 150" in somebody.page.inner_text("section:has(#diff)")
    somebody.picture("run-diff")
    somebody.page.click(".sides > div:last-child a:has-text('show all')")
    assert "line 199 of" in somebody.page.inner_text(".sides > div:last-child")
    assert len(hostile.get(f"/b/latest/r/{runs['huge']}")) < 100_000
    assert len(hostile.get(f"/b/latest/r/{runs['huge']}/output")) >= 1_200_000
    assert "$.a[1]" in hostile.get(f"/b/latest/r/{runs['json']}") or "a[1]" in hostile.get(
        f"/b/latest/r/{runs['json']}"
    )


@pytest.mark.req("WORK-8")
def test_a_repeated_case_is_one_line_with_its_share(hostile: PageServer, visitor: Callable[..., Any]) -> None:
    somebody = visitor()
    somebody.page.goto(f"{hostile.url}/b/latest?status=failed&sort=number")
    assert "0 of 2" in somebody.page.inner_text("[data-row] >> nth=1")
    somebody.page.click("text=One line for each run")
    lines = rows(hostile, "/b/latest?rows=runs")
    assert len(lines) == 10 and all(not line["repeats"] for line in lines)


@pytest.mark.req("WORK-22")
def test_a_running_batch_can_be_watched_and_cancelled_and_an_interrupted_one_resumed(
    serve_pages: Callable[..., Any], visitor: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "cases.jsonl").write_text(
        "".join(json.dumps({"id": f"c{n}", "q": "x", "expected_output": "contains:x"}) + "\n" for n in range(40))
    )
    (tmp_path / "evalloom.yaml").write_text("target: command:sh slow.sh\ndatasets: [cases.jsonl]\n")
    (tmp_path / "slow.sh").write_text("sleep 0.5; echo x\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "evalloom", "run", "-j", "1"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        server, somebody = serve_pages(tmp_path), visitor()
        page = somebody.page
        page.goto(server.sign_in)
        page.wait_for_selector("[data-progress]", timeout=20_000)
        page.goto(f"{server.url}/b/latest")
        page.wait_for_selector("[data-new]:not([hidden])", timeout=20_000)
        assert "new, show" in page.inner_text("[data-new]")
        page.wait_for_function(
            "document.querySelector('[data-live-count]').textContent.split(' ')[2] ==="
            " document.querySelector('.live-row b').textContent.split('/')[0]"
        )
        page.click("button:has-text('Cancel')")
        process.wait(20)
        page.wait_for_selector("text=interrupted", timeout=20_000)
        assert page.locator("a:has-text('Resume')").count() == 1 and somebody.accessibility() == []
        assert (
            "of 40 runs can be read" in page.inner_text(".notice")
            and server.json("/b/latest")["losses"]["expected"] == 40
        )
    finally:
        process.kill()


@pytest.mark.req("WORK-20")
def test_a_dataset_is_a_link_where_its_file_is_shown(hop: PageServer, tmp_path: Path) -> None:
    assert hop.json("/b/latest")["files"] == ["TestCases/hallucination_cases.jsonl"]
    elsewhere = tmp_path / "cases.jsonl"
    elsewhere.write_text(json.dumps({"id": "a", "question": "b", "expected_output": "b"}) + "\n")
    folder = tmp_path / "suite"
    folder.mkdir()
    shutil.copy(elsewhere, folder)
    (folder / "prompt.md").write_text("{{question}}", "utf-8")
    for data in (elsewhere, folder / "cases.jsonl"):
        evalloom(folder, "run", str(data), "--target", "prompt:prompt.md", "--profile", "echo")
    with serving(folder) as server:
        listed = [row["batch"]["id"] for row in server.json("/")["batches"]]
        assert [server.json(f"/b/{id}")["files"] for id in listed] == [["cases.jsonl"], [""]]
        assert "/data/cases.jsonl" in server.get(f"/b/{listed[0]}")
        assert "/data//" not in server.get(f"/b/{listed[1]}")


@pytest.mark.req("WORK-20")
def test_a_batch_that_lost_runs_says_so(
    serve_pages: Callable[..., Any], visitor: Callable[..., Any], tmp_path: Path
) -> None:
    shutil.copytree(EXAMPLES / "first", tmp_path / "suite")
    evalloom(tmp_path / "suite", "run")
    [log] = (tmp_path / "suite").glob(".evalloom/batches/*/runs.jsonl")
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:3]))
    server, page = serve_pages(tmp_path / "suite"), visitor().page
    page.goto(f"{server.url}/b/latest")
    assert page.inner_text(".notice").startswith("3 of 5 runs can be read")
    evalloom(tmp_path / "suite", "run")
    for path in ("/history", f"/compare?a={log.parent.name}&b=latest"):
        page.goto(f"{server.url}{path}")
        assert page.locator(".losses").count() == 1
        assert page.inner_text(".losses").startswith(f"{log.parent.name}\n\n3 of 5 runs can be read")
        assert "runs_missing" not in page.inner_text("main") and ".evalloom" not in page.inner_text("main")


@pytest.mark.req("WORK-20")
def test_the_results_of_a_hop_task_say_what_the_log_of_their_batch_lost(
    serve_pages: Callable[..., Any], visitor: Callable[..., Any], tmp_path: Path
) -> None:
    shutil.copytree(EXAMPLES / "hop", tmp_path / "desk")
    tool = [sys.executable, "-m", "evalloom.tools.batchhoptest", "--task", "desk"]
    subprocess.run(tool, cwd=tmp_path, capture_output=True)
    [log] = tmp_path.glob(".evalloom/batches/*/runs.jsonl")
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-2]))
    server, page = serve_pages(tmp_path), visitor().page
    page.goto(f"{server.url}/hop/desk/history")
    assert "46 of 48 runs can be read" in page.inner_text(".losses")


@pytest.mark.req("WORK-20")
@pytest.mark.parametrize("what", ["cut", "deleted"])
def test_pages_of_systems_say_what_a_log_lost(
    serve_pages: Callable[..., Any], visitor: Callable[..., Any], tmp_path: Path, what: str
) -> None:
    runs = {"pipeline": ("run",), "rag": ("rag", "retrieve", "eval_cases.jsonl"), "prompt-eval": ("run",)}
    for system, words in runs.items():
        folder = tmp_path / system
        shutil.copytree(EXAMPLES / system, folder)
        evalloom(folder, *words)
        [log] = folder.glob(".evalloom/batches/*/runs.jsonl")
        lines = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join(lines[:-2]) if what == "deleted" else b"".join(lines)[:-30])
        server, page = serve_pages(folder), visitor(locale="zh-CN").page
        paths = {"pipeline": f"/pipeline/b/{log.parent.name}", "rag": f"/rag/b/{log.parent.name}"}
        if system in paths:
            page.goto(f"{server.url}{paths[system]}")
            text = page.inner_text(".losses")
            left = f"{len(lines) - 2} 次" if what == "deleted" else f"{len(lines) - 1} of {len(lines)} runs can be read"
            assert left in text and str(len(lines)) in text
        if system != "pipeline":
            page.goto(f"{server.url}/{system}")
            assert page.inner_text("main").count("日志不完整") == 1
