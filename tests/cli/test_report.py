"""`evalloom report`, and the same page from `run`, `score` and `compare`: what is typed, what is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.req("WORK-14")
Call = Callable[..., Any]


@pytest.fixture
def call(in_process: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    """In a folder with a prompt; the echo answers with the question. The locale is English."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    Path("prompt.md").write_text("{{q}}", encoding="utf-8")
    return in_process


def ran(call: Call, answers: str, *more: str) -> str:
    """A batch in which case 0, 1, … is answered by these letters; `y` is right."""
    rows = [{"id": f"c{number}", "q": letter, "expected_output": "y"} for number, letter in enumerate(answers)]
    Path("cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = call("run", "cases.jsonl", "--target", "prompt:prompt.md", "--profile", "echo", "--json", *more)
    return str(json.loads(done.out)["batch"])


def page(file: str) -> str:
    return Path(file).read_text("utf-8")


def test_run_score_and_report_write_the_same_page(call: Call) -> None:
    ran(call, "yyn", "-o", "run.html")
    call("score", "latest", "-o", "score.html")
    done = call("report", "latest", "-o", "report.html")
    assert (done.code, done.out, done.err) == (0, "wrote report.html\n", "")
    for file in ("run.html", "score.html", "report.html"):
        assert "<h1>2 of 3 runs passed.</h1>" in page(file) and "1 failure, 1 cause" in page(file)
    assert '"question"' in page("report.html") or '["q",{"v":"n"}]' in page("report.html")


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".csv", ".xml", ".html", ".md"])
def test_every_format_of_a_run_can_be_written_later(call: Call, suffix: str) -> None:
    ran(call, "yn", "-o", f"run{suffix}")
    assert call("report", "latest", "-o", f"report{suffix}").code == 0
    assert Path(f"report{suffix}").read_bytes() == Path(f"run{suffix}").read_bytes()


def test_a_report_against_a_batch_and_a_baseline(call: Call) -> None:
    first = ran(call, "yyn")
    call("baseline", "save", "good")
    ran(call, "yny")
    assert call("report", "latest", "--against", first, "-o", "batch.html", "-o", "batch.json").code == 0
    assert call("report", "latest", "--against", "good", "-o", "baseline.html").code == 0
    assert f"What changed against {first}" in page("batch.html") and '"before":[{' in page("batch.html")
    assert "What changed against good" in page("baseline.html") and "stores no outputs" in page("baseline.html")
    compared = json.loads(page("batch.json"))["comparison"]
    assert compared["comparisons"][0]["counts"]["lost"] == compared["comparisons"][0]["counts"]["gained"] == 1


def test_compare_writes_the_page_and_keeps_its_exit_code(call: Call) -> None:
    first = ran(call, "yyy")
    ran(call, "yyn")
    done = call("compare", "latest", "--against", first, "--strict", "-o", "compared.html")
    assert done.code == 1 and done.out.startswith("REGRESSION")
    assert "Regression." in page("compared.html") and "1 lost of 3 cases" in page("compared.html")


def test_a_format_without_a_place_for_a_comparison_is_refused(call: Call) -> None:
    first = ran(call, "yy")
    for command in ("report", "compare"):
        done = call(command, "latest", "--against", first, "-o", "x.csv")
        assert done.code == 2 and "[unknown_format]" in done.err and ".html, .md or .json" in done.err
    assert not Path("x.csv").exists()


def test_what_is_not_a_report_is_kept(call: Call) -> None:
    first = ran(call, "yy")
    Path("notes.html").write_text("<p>mine</p>")
    for arguments in (("report", "latest"), ("compare", "latest", "--against", first)):
        assert "[would_overwrite]" in call(*arguments, "-o", "notes.html").err and page("notes.html") == "<p>mine</p>"
    assert call("report", "latest", "-o", "notes.html", "--force").code == 0


def test_a_file_to_write_is_needed(call: Call) -> None:
    ran(call, "y")
    done = call("report", "latest")
    assert done.code == 2 and "such as -o report.html" in done.err


@pytest.mark.parametrize(
    ("locale", "flags", "title"),
    [
        ("", (), "1 of 2 runs"),
        ("zh_CN.UTF-8", (), "2 次运行"),
        ("zh_CN", ("--lang", "en"), "1 of 2 runs"),
        ("C", ("--lang", "zh"), "2 次运行"),
    ],
)
def test_the_language_is_that_of_the_flag_or_the_locale(
    call: Call, monkeypatch: pytest.MonkeyPatch, locale: str, flags: tuple[str, ...], title: str
) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    ran(call, "yn", "-o", "run.html", *flags)
    call("report", "latest", "-o", "report.html", *flags)
    assert f"<h1>{title}" in page("run.html") and f"<h1>{title}" in page("report.html")


def test_an_unfinished_and_damaged_batch_says_so(call: Call) -> None:
    folder = Path(".evalloom/batches") / ran(call, "yny")
    facts = json.loads((folder / "batch.json").read_text())
    (folder / "batch.json").write_text(json.dumps({**facts, "finished_at": ""}))
    lines = (folder / "runs.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "runs.jsonl").write_bytes(b"".join([lines[0], b'{"key":"x",' + b"\n", *lines[1:], b'{"key":"half']))
    done = call("report", "latest", "-o", "report.html")
    assert done.code == 0 and "[log_mended]" in done.err
    assert "The batch stopped early" in page("report.html") and "2 lines of the log cannot be read" in page(
        "report.html"
    )
    assert "<h1>2 of 3 runs passed.</h1>" in page("report.html")


def test_a_batch_without_any_run(call: Call) -> None:
    folder = Path(".evalloom/batches") / ran(call, "y")
    for name in ("runs.jsonl", "verdicts.jsonl"):
        (folder / name).write_bytes(b"")
    assert call("report", "latest", "-o", "report.html").code == 0
    assert "<h1>This batch has no runs.</h1>" in page("report.html")


def test_gates_of_the_settings_are_on_the_page(call: Call) -> None:
    ran(call, "yn")
    Path("evalloom.yaml").write_text("gates: ['pass_rate >= 90%']\n")
    call("report", "latest", "-o", "report.html")
    assert "The gate does not hold." in page("report.html") and "it is 0.5" in page("report.html")


@pytest.mark.req("WORK-16")
def test_what_until_sure_decided_is_in_the_report_with_its_interval(call: Call) -> None:
    rows = [{"id": f"c{number}", "q": "n", "expected_output": "y"} for number in range(200)]
    Path("cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    flags = ("--until-sure", "--fail-under", "0.9", "-j", "1", "--json")
    done = call("run", "cases.jsonl", "--target", "prompt:prompt.md", "--profile", "echo", *flags, "-o", "run.md")
    assert call("report", "latest", "-o", "report.md", "-o", "report.html").code == 0
    high = 100 * json.loads(done.out)["pass_rate_high"]
    for file in ("run.md", "report.md", "report.html"):
        assert "of 200 cases in random order: the pass rate is below 90 % (always-valid 95 % CI 0.0–" in page(file)
        assert f"0.0–{high:.1f} %" in page(file)


def test_what_differs_is_in_the_language_of_the_report(call: Call) -> None:
    ran(call, "yy")
    call("baseline", "save", "good")
    ran(call, "yn")
    call("report", "latest", "--against", "good", "-o", "zh.html", "-o", "zh.md", "--lang", "zh")
    for file in ("zh.html", "zh.md"):
        assert "数据集已更改：cases.jsonl" in page(file) and "the dataset changed" not in page(file)
