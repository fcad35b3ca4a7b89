"""`evalloom history`, end to end: python targets that are flaky or get worse by design."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.req("WORK-12")

Call = Callable[..., Any]
TARGET = """\
from pathlib import Path

BROKEN = ()


def answer(n):
    turn = int(Path("turn").read_text())
    if n in (3, 4) and (turn + n) % 3 == 0:
        return "flaky"
    return "broken" if n in BROKEN or n == 9 else "ok"
"""


@pytest.fixture
def call(in_process: Call) -> Call:
    """In a folder with ten cases, of which two are flaky and one always fails."""
    write_cases()
    Path("target.py").write_text(TARGET, encoding="utf-8")
    return in_process


def write_cases(**more: str) -> None:
    cases = [{"id": f"case-{n}", "n": n, "expected_output": "ok"} for n in range(10)]
    Path("cases.jsonl").write_text("".join(json.dumps({**case, **more}) + "\n" for case in cases), encoding="utf-8")


def run(call: Call, turn: int, *more: str, dataset: str = "cases.jsonl") -> Any:
    Path("turn").write_text(str(turn))
    return call("run", dataset, "--target", "python:target:answer", "--json", *more)


def break_target() -> None:
    Path("target.py").write_text(TARGET.replace("BROKEN = ()", "BROKEN = (5, 6, 7, 8)"), encoding="utf-8")


def history(call: Call, *arguments: str) -> Any:
    done = call("history", *arguments, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def kinds(shown: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for case in shown["cases"]:
        found.setdefault(case["kind"], []).append(case["case_id"])
    return found


def test_a_flaky_system_and_one_that_gets_worse(call: Call) -> None:
    for turn in range(5):
        run(call, turn)
    before = kinds(history(call))
    assert before["flaky"] == ["case-3", "case-4"] and before["always_fails"] == ["case-9"]
    assert before.keys() == {"flaky", "always_fails", "never_fails"}
    break_target()
    for turn in (5, 6):
        run(call, turn)
    shown = history(call)
    after = kinds(shown)
    assert after["newly_failing"] == [f"case-{n}" for n in (5, 6, 7, 8)]
    assert after["flaky"] == ["case-3", "case-4"] and after["never_fails"] == [f"case-{n}" for n in (0, 1, 2)]
    [broken] = [case for case in shown["cases"] if case["case_id"] == "case-5"]
    assert broken["since"] == shown["batches"][5]["batch"] and broken["is_after_change"]
    assert [batch["changed"] for batch in shown["batches"] if batch["changed"]] == [
        [{"what": "target", "text": "the target changed: python:target:answer"}]
    ]
    text = call("history").out
    assert "newly failing     4  passed before and fail since" in text and "case-5  ✓✓✓✓✓|✗✗" in text
    assert "case-3  ✗✓✓✗✓|✓✗  fails" in text and "python:target:answer" in text


def test_rates_are_those_of_the_summaries(call: Call) -> None:
    summaries = [json.loads(run(call, turn, "--repeat", "2").out) for turn in range(3)]
    points = [batch["profiles"][0] for batch in history(call)["batches"]]
    for name, other in (("pass_rate", "pass_rate"), ("low", "pass_rate_low"), ("high", "pass_rate_high")):
        assert [point[name] for point in points] == [one[other] for one in summaries]
    ruled = json.loads(run(call, 3, "--pass-if", "1/2").out)
    assert history(call)["batches"][-1]["profiles"][0]["pass_rate"] == ruled["pass_rate"]


def test_neighbours_are_marked_by_the_rule_of_comparisons(call: Call) -> None:
    Path("cases.jsonl").write_text(
        "".join(json.dumps({"id": f"c{n}", "n": n % 2 * 5, "expected_output": "ok"}) + "\n" for n in range(40))
    )
    run(call, 0), run(call, 0)
    break_target()
    run(call, 0)
    changes = [batch["profiles"][0]["change"] for batch in history(call)["batches"]]
    assert changes[0] is None and [one["judgement"] for one in changes[1:]] == ["no difference shown", "worse"]
    assert changes[2]["high"] < 0 and "worse" in call("history").out


def test_one_case_over_time(call: Call) -> None:
    run(call, 0)
    break_target()
    run(call, 1)
    lines = [json.loads(line) for line in call("history", "--case", "case-5", "--json").out.splitlines()]
    assert [line["status"] for line in lines] == ["passed", "failed"]
    assert [[one["what"] for one in line["changed"]] for line in lines] == [[], ["target"]]
    text = call("history", "--case", "case-5").out
    assert "case-5: 1 of 2 runs passed" in text and "expected 'ok', got 'broken'" in text
    unknown = call("history", "--case", "csae-5")
    assert unknown.code == 2 and "Did you mean 'case-5'?" in unknown.err


def test_the_reason_stays_beside_its_run_in_a_narrow_terminal(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    break_target()
    run(call, 1), run(call, 1)
    text = call("history", "--case", "case-5").out
    assert "changed" not in text and "profile" not in text
    assert len([line for line in text.splitlines() if "failed" in line and "expected" in line]) == 2


def test_what_a_case_expects_may_change(call: Call) -> None:
    run(call, 1)
    write_cases(expected_output="other")
    run(call, 1)
    shown = history(call)
    assert [one["what"] for one in shown["batches"][1]["changed"]] == ["dataset"]
    # The target and the inputs are the same, but another answer is expected: that is not flaky.
    assert kinds(shown).keys() == {"unclear", "always_fails"}


def test_a_copied_run_is_no_further_evidence(call: Call) -> None:
    first = json.loads(run(call, 0).out)["batch"]
    for n in range(12):
        # Another case makes another batch, into which the runs of the others are copied.
        with Path("cases.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"id": f"more-{n}", "n": 0, "expected_output": "ok"}) + "\n")
        run(call, 0, "--resume-from", first)
    break_target()
    run(call, 0)
    shown = history(call)
    [turned] = [case for case in shown["cases"] if case["case_id"] == "case-5"]
    assert turned["kind"] == "unclear" and turned["chance"] == 0.5 and turned["counted"] == 14


def test_the_newest_batch_decides_which_dataset(call: Call) -> None:
    shutil.copy("cases.jsonl", "other.jsonl")
    run(call, 0), run(call, 1), run(call, 1, dataset="other.jsonl")
    shown = history(call)
    assert shown["dataset"] == "other.jsonl" and len(shown["batches"]) == 1
    assert [(one["dataset"], one["batches"]) for one in shown["others"]] == [("cases.jsonl", 2)]
    text = call("history").out
    assert "There is one batch only" in text and "--dataset" in text
    for arguments in (["cases.jsonl"], ["--dataset", "cases.jsonl"], [".", "--dataset", "cases.jsonl"]):
        assert len(history(call, *arguments)["batches"]) == 2
    wrong = call("history", "--target", "python:target:anser")
    assert wrong.code == 2 and "Did you mean 'python:target:answer'?" in wrong.err
    assert call("history", "--dataset", "case.jsonl").code == 2
    assert call("history", "--profile", "defualt").err.count("Did you mean 'default'?") == 1


def test_a_history_that_is_given_a_batch_ends_with_it(call: Call) -> None:
    ids = [json.loads(run(call, turn).out)["batch"] for turn in range(3)]
    assert [batch["batch"] for batch in history(call, ids[1])["batches"]] == ids[:2]
    shown = history(call, "--limit", "1")
    assert [batch["batch"] for batch in shown["batches"]] == ids[2:] and shown["left_out"] == 2
    assert "2 earlier batches: --limit shows more" in call("history", "--limit", "1").out


def test_damaged_empty_and_running_batches(call: Call) -> None:
    run(call, 0), run(call, 1)
    ids = sorted(path.name for path in Path(".evalloom/batches").iterdir())
    folder = Path(".evalloom/batches")
    (folder / ids[0] / "batch.json").write_text("{")
    done = call("history")
    assert done.code == 0 and ids[0] in done.err and ids[0][:19] not in done.out
    empty = json.loads(run(call, 2, "--max-time", "0").out)["batch"]
    text = call("history").out
    assert "stopped early" in text and history(call)["batches"][-1]["batch"] == empty
    import fcntl

    with (folder / ids[1] / "runs.jsonl").open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        shown = history(call, ids[1])
        assert [batch["status"] for batch in shown["batches"]] == ["running"] and shown["cases"] == []
    assert call("history", "nowhere").code == 2


def test_nothing_there(call: Call) -> None:
    done = call("history")
    assert done.code == 2 and "[no_batch]" in done.err
    assert call("history", "--days", "3").code == 2


def test_marks_have_an_ascii_fallback(
    call: Call, evalloom: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(call, 0), run(call, 1)
    monkeypatch.setenv("PYTHONIOENCODING", "ascii:replace")
    text = evalloom("history").stdout
    assert "case-3  x+" in text and "pass rate  *" in text


def test_cases_without_an_id_are_named_by_their_place(call: Call) -> None:
    Path("tests.yaml").write_text("- vars: {n: 3}\n  assert: [{type: equals, value: ok}]\n", encoding="utf-8")
    run(call, 0, dataset="tests.yaml"), run(call, 1, dataset="tests.yaml")
    [case] = history(call)["cases"]
    assert case["kind"] == "newly_flaky" and case["name"] == "tests.yaml:1"


def test_changes_of_models_and_parameters_are_named_for_each_profile(call: Call) -> None:
    Path("prompt.md").write_text("{{n}}", encoding="utf-8")
    llm = "llms:\n  one: {{protocol: echo, model: {}, temperature: {}}}\n  two: {{protocol: echo, model: x}}\n"
    flags = ["run", "cases.jsonl", "--target", "prompt:prompt.md", "--profile", "one", "--profile", "two"]
    for model, temperature in (("a", 0), ("b", 0), ("b", 1)):
        Path("evalloom.yaml").write_text(llm.format(model, temperature), encoding="utf-8")
        call(*flags)
    shown = history(call)
    assert [[one["what"] for one in batch["changed"]] for batch in shown["batches"]] == [[], ["model"], ["params"]]
    assert shown["batches"][1]["changed"][0]["text"] == "one: model: a → b"
    marks = {case["profile"]: [mark["is_changed"] for mark in case["record"]] for case in shown["cases"]}
    assert marks == {"one": [False, True, True], "two": [False, False, False]}
    assert {case["profile"] for case in history(call, "--profile", "two")["cases"]} == {"two"}
    text = call("history").out
    assert "one  pass rate" in text and "two  pass rate" in text and "case-0 · one  ✗|✗|✗" in text
