"""Every verb of the command line from Python: alone, and inside a running event loop as in a notebook."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evalloom

pytestmark = pytest.mark.req("WORK-15")

RECORDS: list[dict[str, Any]] = [
    {"id": f"case{number}", "tags": ["odd" if number % 2 else "even"], "q": str(number), "expected_output": str(number)}
    for number in range(8)
]


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def echo(q: str) -> str:
    return q


def lazy(q: str) -> str:
    return q if int(q) % 2 else "no idea"


def every_verb() -> dict[str, Any]:
    """Call every verb once, and return what is to be checked."""
    good = evalloom.evaluate(RECORDS, echo)
    saved = evalloom.baseline("good", good)
    results = evalloom.evaluate(RECORDS, lazy, repeat=2)
    scored = evalloom.score(results, [{"length": {"max": 3}}])
    compared = evalloom.compare(results, "good", any_config=True, by="tag")
    stats = evalloom.stats([good, results], by="tag", where="repeat = 0")
    written = evalloom.report(results, "report.html", output="runs.csv")
    with evalloom.open("latest") as batches:
        opened = batches.sql("select count(*) from runs").fetchall()
    return {
        "baselines": [(saved.name, head.name, head.runs) for head in evalloom.baselines()],
        "rates": (good.pass_rate, results.pass_rate, scored.pass_rate),
        "failures": [failure.case_id for failure in results.failures],
        "compared": (compared.baseline, len(compared.changes), compared.comparisons[0].tags[0].name),
        "stats": {name: group.total for name, group in stats.by["tag"].items()},
        "written": [path.name for path in written if path.stat().st_size],
        "opened": opened,
    }


def in_a_loop(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    async def cell() -> dict[str, Any]:
        return call()

    return asyncio.run(cell())


@pytest.mark.parametrize("around", [lambda call: call(), in_a_loop], ids=["alone", "in a loop"])
def test_every_verb_works_and_prints_nothing(
    around: Callable[[Callable[[], dict[str, Any]]], dict[str, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    assert around(every_verb) == {
        "baselines": [("good.jsonl", "good", 8)],
        "rates": (1.0, 0.5, 0.5),
        "failures": [name for name in ("case0", "case2", "case4", "case6") for _ in range(2)],
        "compared": ("good", 4, "even"),
        "stats": {"even": 8, "odd": 8},
        "written": ["report.html", "runs.csv"],
        "opened": [(16,)],
    }
    assert tuple(capfd.readouterr()) == ("", "")


def test_what_is_expected_of_a_comparison() -> None:
    good, bad = evalloom.evaluate(RECORDS, echo), evalloom.evaluate(RECORDS, lazy)
    compared = evalloom.compare(bad, good, any_config=True, strict=True)
    assert compared.is_regression and compared.conclusion.startswith("REGRESSION (critical): default against ")
    assert {(change.case_id, change.before, change.now) for change in compared.changes} >= {
        ("case0", "passed", "failed")
    }
    allowed = evalloom.compare(str(bad.path), good.path, any_config=True, allowed_drop={"": 0.6})
    assert not allowed.is_regression and allowed.allowed_drop == 0.6


def test_scoring_again_takes_a_file_functions_and_a_pass_rule() -> None:
    results = evalloom.evaluate(RECORDS, echo, repeat=2)
    Path("checks.yaml").write_text("- length: {max: 0}\n", encoding="utf-8")
    assert evalloom.score(results, "checks.yaml").pass_rate == 0.0
    assert evalloom.score("latest", [{"python": lambda output: output == "3"}]).summary.passed == 2
    assert evalloom.score(results.path, pass_if="2/2", output="runs.json").passed
    assert evalloom.stats(results).total.total == 16 and Path("runs.json").exists()
    with pytest.raises(evalloom.EvalloomError, match="is for 3 repeats, and the batch has 2"):
        evalloom.score(results, pass_if="2/3")


def test_options_have_the_names_of_flags() -> None:
    results = evalloom.evaluate(RECORDS, echo, pass_if="1/2", limit=3, tags="even,none", no_cache=True, timeout=20)
    assert (results.summary.total, results.summary.pass_if) == (6, 0.5)
    with pytest.raises(evalloom.EvalloomError, match="timeout and timeout_s: expected one of them"):
        evalloom.evaluate(RECORDS, echo, timeout=1, timeout_s=2)
    with pytest.raises(evalloom.EvalloomError, match="profile and profiles: expected one of them"):
        evalloom.evaluate(RECORDS, echo, profiles="a", profile="b")
    with pytest.raises(evalloom.EvalloomError, match="is for 2 repeats, and repeat is 3"):
        evalloom.evaluate(RECORDS, echo, pass_if="1/2", repeat=3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: evalloom.evaluate(RECORDS, echo, repeats=2),  # type: ignore[call-arg]
            "evaluate: there is no option 'repeats'. Did you mean 'repeat'?",
        ),
        (lambda: evalloom.score("latest", judges="x"), "score: .* Did you mean 'judge'?"),  # type: ignore[call-arg]
        (lambda: evalloom.compare("latest", allow_drop=0), "compare: .* Did you mean 'allowed_drop'?"),  # type: ignore[call-arg]
        (lambda: evalloom.stats("latest", metrics="x"), "stats: .* Did you mean 'metric'?"),  # type: ignore[call-arg]
        (lambda: evalloom.stats("latest", metric="scores"), "no metric 'scores'. Did you mean 'score'?"),  # type: ignore[arg-type]
        (lambda: evalloom.stats("latest", by="tags"), "no group 'tags'. Did you mean 'tag'?"),
        (lambda: evalloom.report("latest", "x.html", language="zh"), "report: .* Did you mean 'lang'?"),  # type: ignore[call-arg]
        (lambda: evalloom.report("latest", "x.html", lang="fr"), "lang: expected 'en' or 'zh', got 'fr'"),
        (lambda: evalloom.stats("latest", by=3), "expected names, such as 'a,b' or .*, got 3"),  # type: ignore[arg-type]
        (lambda: evalloom.baseline("x", forced=True), "baseline: .* Did you mean 'force'?"),  # type: ignore[call-arg]
        (lambda: evalloom.open("latest", wrn=print), "open: .* Did you mean 'warn'?"),  # type: ignore[call-arg]
        (lambda: evalloom.stats("latest", zzz=1), "There is batch, by, metric, where, profile, warn"),  # type: ignore[call-arg]
    ],
)
def test_a_wrong_option_names_the_right_one(call: Callable[[], object], message: str) -> None:
    with pytest.raises(evalloom.EvalloomError, match=message.replace("?", r"\?")) as caught:
        call()
    assert caught.value.code == "bad_option"


def test_warnings_are_python_warnings_at_the_line_of_the_call() -> None:
    bare = [{"id": "a", "q": "x"}]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        evalloom.baseline("empty", evalloom.evaluate(bare, echo, no_checks=True))
    [warned] = [warning for warning in caught if issubclass(warning.category, evalloom.EvalloomWarning)]
    assert "nothing can be compared with it" in str(warned.message) and warned.filename == __file__
    messages: list[str] = []
    evalloom.baseline("again", "latest", warn=messages.append)
    assert len(messages) == 1


def test_a_suite_of_a_settings_file_needs_nothing_else() -> None:
    suite = Path(__file__).resolve().parents[2] / "examples/first/evalloom.yaml"
    assert evalloom.evaluate(config=suite).summary.total == 5


def test_files_of_others_are_not_replaced() -> None:
    results = evalloom.evaluate(RECORDS, echo)
    Path("mine.csv").write_text("a,b\n", encoding="utf-8")
    for write in (
        lambda: results.save("mine.csv"),
        lambda: evalloom.report(results, "mine.csv"),
        lambda: evalloom.evaluate(RECORDS, echo, output="mine.csv"),
        lambda: evalloom.score(results, output="mine.csv"),
    ):
        with pytest.raises(evalloom.EvalloomError, match="would_overwrite"):
            write()
    assert results.save("mine.csv", force=True) == Path("mine.csv")


def test_the_verbs_are_listed_and_documented() -> None:
    verbs = {"evaluate", "score", "compare", "baseline", "stats", "report", "open"}
    assert verbs <= {*dir(evalloom)} and {*evalloom.__all__} <= {*dir(evalloom)}
    for name in verbs:
        text = getattr(evalloom, name).__doc__
        assert (
            text and f"evalloom.{name}" not in text.splitlines()[0] and text.splitlines()[0].endswith((".", "files."))
        )
