"""Results, comparisons and figures in a shell, in a notebook and as DataFrames."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from selectolax.lexbor import LexborHTMLParser

import evalloom
from evalloom.analysis.tally import STATUSES
from evalloom.analysis.views import VIEWS
from evalloom.engine import frames
from evalloom.ui.notebook import cell, paragraph, table

pytestmark = pytest.mark.req("WORK-15")

HOSTILE = "</style><script>alert(1)</script><img src=x onerror=alert(1)>\u202e"
RECORDS: list[dict[str, Any]] = [
    {"id": "good", "tags": ["zh"], "q": "a", "expected_output": "a"},
    {"id": f"bad {HOSTILE}", "tags": [HOSTILE], "q": HOSTILE, "expected_output": "b"},
]


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def results() -> evalloom.Results:
    return evalloom.evaluate(RECORDS, lambda q: q)


@pytest.fixture
def compared(results: evalloom.Results) -> evalloom.BatchComparison:
    return evalloom.compare(evalloom.evaluate(RECORDS, lambda q: "b"), results, any_config=True)


def test_results_say_how_it_went(results: evalloom.Results) -> None:
    first, counts, failure = repr(results).splitlines()
    assert first == f"<Results of {results.path.name}: 2 runs, pass rate 50.0% (95 % CI 9.5%–90.5%)"
    assert counts == "  1 passed, 1 failed"
    assert failure.startswith("  failed bad </style>") and "expected 'b', got '</style>" in failure
    assert "\u202e" not in failure


def test_failures_have_what_is_needed_to_look_into_them(results: evalloom.Results) -> None:
    [failure] = results.failures
    assert (failure.case_id, failure.status, failure.output) == (RECORDS[1]["id"], "failed", HOSTILE)
    assert failure.check == "structural" and "expected 'b'" in failure.reason
    assert failure.inputs == {"q": HOSTILE} and failure.scored.verdicts[0].status == "failed"
    broken = evalloom.evaluate(RECORDS, lambda q: 1 / 0)
    assert [(failure.status, failure.output, failure.check) for failure in broken.failures] == [("error", None, "")] * 2
    assert "ZeroDivisionError" in repr(broken)


def test_html_has_the_figures_and_escapes_everything(
    results: evalloom.Results, compared: evalloom.BatchComparison
) -> None:
    shown = {
        "pass rate 50.0%": results._repr_html_(),
        "NO REGRESSION": compared._repr_html_(),
        "2 batches": evalloom.stats([results, compared.batch], by="tag,batch")._repr_html_(),
    }
    for text, html in shown.items():
        tree = LexborHTMLParser(html)
        assert tree.body and text in tree.body.text() and HOSTILE[:-1] in tree.body.text()
        assert not tree.css("script, img, link") and len(tree.css("style")) == 1 and "\u202e" not in html


def test_figures_are_drawn_with_their_intervals(results: evalloom.Results) -> None:
    tree = LexborHTMLParser(evalloom.stats(results, by="tag")._repr_html_())
    assert len(tree.css("svg .rate")) == len(tree.css("svg .between")) == 2
    assert not LexborHTMLParser(evalloom.stats(results, metric="tokens")._repr_html_()).css("svg")
    assert len(LexborHTMLParser(evalloom.stats(results, "tag", "score")._repr_html_()).css("svg .rate")) == 2


def test_a_stylesheet_of_a_cell_is_about_the_cell_only() -> None:
    tree = LexborHTMLParser(cell(paragraph("a"), table(["n", "", "x"], [["1", "", "b"]])))
    [style] = tree.css("style")
    rules = [rule.rpartition("}")[2].strip() for rule in style.text().split("{")[:-1]]
    assert "--card" in style.text() and all(".evalloom" in rule or rule.startswith("@media") for rule in rules)
    assert [head.text() for head in tree.css("th")] == ["n", "x"]


def test_text_is_what_the_command_prints(compared: evalloom.BatchComparison) -> None:
    assert repr(compared).startswith(compared.conclusion) and "Next: " not in repr(compared)
    stats = evalloom.stats("latest", by="tag")
    assert repr(stats).splitlines()[0] == f"batch  {compared.batch}" and "pass rate" in repr(stats)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_data_frames(results: evalloom.Results, compared: evalloom.BatchComparison, kind: str) -> None:
    def rows(frame: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = frame.to_dict("records") if kind == "pandas" else frame.to_dicts()
        return found

    runs = getattr(results, f"to_{kind}")()
    assert list(runs.columns) == list(VIEWS["runs"])
    assert [(row["case_id"], row["passed"]) for row in rows(runs)] == [("good", True), (RECORDS[1]["id"], False)]
    changes = rows(getattr(compared, f"to_{kind}")())
    assert {(row["change"], row["before"], row["now"]) for row in changes} == {
        ("lost", "passed", "failed"),
        ("gained", "failed", "passed"),
    }
    same = getattr(evalloom.compare(results, results), f"to_{kind}")()
    assert same.shape == (0, len(changes[0]))
    groups = rows(getattr(evalloom.stats(results, by="tag"), f"to_{kind}")())
    assert [(row["by"], row["group"], row["pass_rate"]) for row in groups] == [
        ("total", "", 0.5),
        ("tag", "zh", 1.0),
        ("tag", HOSTILE, 0.0),
    ]


def test_without_the_library_the_message_says_what_to_install(
    results: evalloom.Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "find_spec", lambda name: None)
    for name in ("pandas", "polars"):
        with pytest.raises(evalloom.EvalloomError, match=rf"pip install 'evalloom\[{name}\]' \[extra_missing\]"):
            getattr(results, f"to_{name}")()


@pytest.mark.slow
def test_a_process_that_used_polars_ends_silently(results: evalloom.Results) -> None:
    code = "import evalloom\nwith evalloom.open('latest') as batches: print(batches.pl().shape)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"(2, {len(VIEWS['runs'])})\n", "")


@pytest.mark.parametrize("suffix", [".html", ".csv", ".json", ".jsonl", ".xml"])
def test_results_are_saved_in_any_format(results: evalloom.Results, suffix: str) -> None:
    path = results.save(f"out{suffix}")
    assert path.stat().st_size and results.save(path) == path
    with pytest.raises(evalloom.EvalloomError, match="unknown_format"):
        results.save("out.unknown")


@pytest.mark.slow
@pytest.mark.parametrize("system", ["hop", "pipeline", "prompt-eval", "rag", "replay", "elsewhere"])
def test_batches_of_every_system_are_shown(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = Path(__file__).resolve().parents[2] / "examples"
    shutil.copytree(examples / system, tmp_path / system)
    monkeypatch.chdir(tmp_path / system)
    results = evalloom.evaluate(warn=lambda message: None)
    counts = results.to_pandas()["status"].value_counts()
    assert {status: int(count) for status, count in counts.items()} == {
        status: count for status in STATUSES if (count := getattr(results.summary, status))
    }
    assert len(results.failures) == results.summary.failed + results.summary.error
    compared = evalloom.compare(results, results)
    for shown in (results, compared, evalloom.stats(results, by="tag,bucket,check")):
        assert LexborHTMLParser(shown._repr_html_()).css("table, p") and repr(shown)
