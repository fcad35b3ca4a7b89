"""Going on with a batch: nothing that is there is run again, and nothing that is not is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalloom import catalog
from evalloom.batchlog import Log, manifest, pairs
from evalloom.core.errors import EvalloomError
from evalloom.core.sandbox import why_unavailable
from evalloom.engine.evaluate import evaluate
from evalloom.engine.prepare import RunRequest, prepare
from evalloom.engine.results import Results
from evalloom.engine.resume import Resume, batch_to_resume

CASES = [f'{{"id": "{id}", "q": "say {id}", "expected_output": "SAY {id.upper()}"}}' for id in "abcdef"]
BOT = """
from pathlib import Path

def answer(q):
    with open("calls.txt", "a") as stream:
        stream.write(q[-1])
    if Path("down.txt").exists() and q[-1] in Path("down.txt").read_text():
        raise ValueError("down")
    return q.upper()
"""
SETTINGS = """
llms: {{one: {{protocol: echo}}}}
profiles:
  p: {{run: one, params: {{temperature: {temperature}}}}}
target: {{template: "{{{{q}}}}"}}
datasets: [cases.jsonl]
"""


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cases.jsonl").write_text("\n".join(CASES), encoding="utf-8")
    Path("bot.py").write_text(BOT, encoding="utf-8")


def run(resume: Resume = Resume(), warned: list[str] | None = None, **options: Any) -> Results:
    asked = RunRequest(("cases.jsonl",), target="python:bot.py:answer", options={"concurrency": 2, **options})
    return evaluate(prepare(asked, catalog.load()), resume=resume, warn=(warned if warned is not None else []).append)


def calls() -> str:
    """The cases that were sent since the last look."""
    file = Path("calls.txt")
    sent = "".join(sorted(file.read_text())) if file.exists() else ""
    file.write_text("")
    return sent


def cut(path: Path, name: str, lines: int, tail: bytes = b"") -> None:
    """Leaves so many lines of a file, as a crash would."""
    kept = (path / name).read_bytes().splitlines(keepends=True)[:lines]
    (path / name).write_bytes(b"".join(kept) + tail)


def test_a_broken_batch_is_gone_on_with_where_it_was(tmp_path: Path) -> None:
    first = run()
    assert calls() == "abcdef"
    cut(first.path, "runs.jsonl", 4, b'{"key": "torn')
    cut(first.path, "verdicts.jsonl", 4)
    warned: list[str] = []
    again = run(Resume(newest=True), warned)
    assert (again.path, len(calls())) == (first.path, 2)
    assert [run.case_id for run, _ in again] == list("abcdef")
    assert (again.summary.total, again.summary.passed) == (6, 6)
    assert len(warned) == 1 and "its 13 bytes are removed" in warned[0] and "[log_mended]" in warned[0]


def test_missing_verdicts_are_made_up_without_a_call() -> None:
    first = run()
    calls()
    cut(first.path, "verdicts.jsonl", 1, b'{"ke')
    again = run(Resume(newest=True))
    assert (calls(), again.summary.passed) == ("", 6)
    assert [scored and scored.status for _, scored in pairs(first.path)] == ["passed"] * 6


def test_a_damaged_run_is_run_again() -> None:
    first = run()
    calls()
    lines = (first.path / "runs.jsonl").read_bytes().splitlines(keepends=True)
    (first.path / "runs.jsonl").write_bytes(b"".join([lines[0], b"\xff" + lines[1][1:], *lines[2:]]))
    again = run(Resume(newest=True))
    assert (len(calls()), again.summary.total, again.summary.passed) == (1, 6, 6)


def test_a_finished_batch_has_nothing_left_to_do() -> None:
    first = run()
    calls()
    again = run(Resume(newest=True))
    assert (calls(), again.path, again.summary.passed) == ("", first.path, 6)
    assert manifest(first.path).finished_at


def test_errors_stay_unless_they_are_to_be_tried_again() -> None:
    Path("down.txt").write_text("bd")
    assert run().summary.error == 2
    Path("down.txt").unlink()
    calls()
    assert (run(Resume(newest=True)).summary.error, calls()) == (2, "")
    again = run(Resume(newest=True, retry_errors=True))
    assert (again.summary.error, again.summary.passed, again.summary.total, calls()) == (0, 6, 6, "bd")
    assert [(one.case_id, scored.status) for one, scored in again] == [(id, "passed") for id in "abcdef"]


def test_more_repeats_run_only_what_is_new() -> None:
    run()
    calls()
    assert (run(Resume(newest=True), repeat=2).summary.total, calls()) == (12, "abcdef")


# A comparison reads it: under a pass rule, three repeats and two are no equals.
def test_a_batch_says_how_many_repeats_it_has_when_fewer_are_asked_for() -> None:
    run(repeat=3)
    fewer = run(Resume(newest=True), repeat=2, pass_if=0.5)
    assert (fewer.summary.total, manifest(fewer.path).options["repeat"]) == (18, 3)
    assert manifest(run(Resume(newest=True), repeat=4).path).options["repeat"] == 4


def test_without_resume_there_is_a_new_batch() -> None:
    assert run().path != run().path
    assert calls() == "aabbccddeeff"


@pytest.mark.parametrize(
    ("file", "text", "differs"),
    [
        ("cases.jsonl", CASES[0], "the dataset differs"),
        ("bot.py", BOT + "\n# other", "the target differs"),
    ],
)
def test_what_keeps_a_batch_from_being_resumed_is_said(file: str, text: str, differs: str) -> None:
    first = run()
    Path(file).write_text(text, encoding="utf-8")
    with pytest.raises(
        EvalloomError, match=rf"{first.path.name}, {differs}.*--resume-from {first.path.name}"
    ) as caught:
        run(Resume(newest=True))
    assert (caught.value.code, caught.value.exit_code) == ("nothing_to_resume", 2)


def test_another_profile_keeps_a_batch_from_being_resumed() -> None:
    Path("evalloom.yaml").write_text(SETTINGS.format(temperature=0), encoding="utf-8")
    evaluate(prepare(RunRequest(), catalog.load()), warn=print)
    Path("evalloom.yaml").write_text(SETTINGS.format(temperature=1), encoding="utf-8")
    with pytest.raises(EvalloomError, match="a profile differs"):
        evaluate(prepare(RunRequest(), catalog.load()), resume=Resume(newest=True), warn=print)


def test_there_is_nothing_to_resume_yet() -> None:
    with pytest.raises(EvalloomError, match="there is no batch yet"):
        run(Resume(newest=True))


def test_what_still_holds_is_taken_over_and_scored_anew() -> None:
    first = run()
    calls()
    changed = [CASES[0], CASES[1].replace("SAY B", "SAY X"), CASES[2].replace("say c", "now c"), *CASES[3:]]
    Path("cases.jsonl").write_text("\n".join(changed[1:]), encoding="utf-8")
    again = run(Resume(source=first.path.name))
    assert again.path != first.path
    assert calls() == "c"  # its input has changed
    assert [(one.case_id, one.number, scored.status) for one, scored in again] == [
        ("b", 1, "failed"),  # what is expected of it has changed
        ("c", 2, "failed"),
        *((id, number, "passed") for number, id in enumerate("def", 3)),
    ]


def test_errors_of_another_batch_are_taken_over_or_tried_again() -> None:
    Path("down.txt").write_text("a")
    first = run()
    Path("down.txt").unlink()
    Path("cases.jsonl").write_text("\n".join(CASES[:2]), encoding="utf-8")
    calls()
    assert (run(Resume(source=first.path.name)).summary.error, calls()) == (1, "")
    assert (run(Resume(source=first.path.name, retry_errors=True)).summary.error, calls()) == (0, "a")


def test_another_target_takes_nothing_over() -> None:
    first = run()
    Path("bot.py").write_text(BOT.replace("upper", "lower") + "\n", encoding="utf-8")
    calls()
    assert (run(Resume(source=first.path.name)).summary.failed, calls()) == (6, "abcdef")


def test_a_batch_in_use_is_not_gone_on_with() -> None:
    first = run()
    log = Log.resume(first.path)
    with pytest.raises(EvalloomError, match="another process is writing this batch"):
        run(Resume(newest=True))
    log.close()


def test_looking_back_changes_nothing() -> None:
    first = run()
    before = {file.name: file.read_bytes() for file in first.path.iterdir()}
    plan = prepare(RunRequest(("cases.jsonl",), target="python:bot.py:answer"), catalog.load())
    path, done = batch_to_resume(plan, Resume(newest=True))
    assert (path, len(done)) == (first.path, 6)
    assert batch_to_resume(plan, Resume()) == (None, ())
    assert {file.name: file.read_bytes() for file in first.path.iterdir()} == before


def test_profiles_of_the_same_content_have_runs_of_their_own() -> None:
    settings = SETTINGS.format(temperature=0).replace("target:", "  q: {run: one, params: {temperature: 0}}\ntarget:")
    Path("evalloom.yaml").write_text(settings, encoding="utf-8")
    results = evaluate(prepare(RunRequest(options={"profiles": ["p", "q"]}), catalog.load()), warn=print)
    assert [run.profile for run, _ in results] == ["p"] * 6 + ["q"] * 6


def test_verdicts_of_another_way_of_scoring_are_made_again() -> None:
    first = run()
    assert first.pass_rate == 1
    Path("evalloom.yaml").write_text("checks: [{contains: nothing of this}]\n", encoding="utf-8")
    # Whoever is killed while he scores anew leaves some verdicts of each kind.
    cut(first.path, "verdicts.jsonl", 3)
    again = run(Resume(newest=True))
    assert (again.pass_rate, again.summary.total) == (0, 6)
    Path("evalloom.yaml").unlink()
    assert run(Resume(newest=True)).pass_rate == 1 and calls() == "abcdef"


def test_a_choice_and_then_the_whole_run_every_case_once() -> None:
    for number in (0, 1):
        row = f'{{"id": "a", "tags": ["t{number}"], "q": "say {number}", "expected_output": "SAY {number}"}}'
        Path(f"f{number}.jsonl").write_text(row, encoding="utf-8")

    def both(resume: Resume, **options: Any) -> Results:
        asked = RunRequest(("f0.jsonl", "f1.jsonl"), target="python:bot.py:answer", options=options)
        return evaluate(prepare(asked, catalog.load()), resume=resume, warn=print)

    assert [run.number for run, _ in both(Resume(), tags=["t1"])] == [2]
    again = both(Resume(newest=True))
    assert [(run.number, run.tags) for run, _ in again] == [(1, ("t0",)), (2, ("t1",))]
    assert (again.summary.total, again.summary.passed, calls()) == (2, 2, "01")


CODE = """
id: p
steps: [{id: work, type: batch_aggregator, output_key: output}]
"""
CODED = {
    "step_inputs": {"work": {"strategy": "custom", "code": "def f(items): return len(items)"}},
    "batch_items": [{}],
}


@pytest.mark.skipif(bool(why_unavailable()), reason=f"no sandbox here: {why_unavailable()}")
@pytest.mark.req("PIPE-12")
def test_code_that_was_not_allowed_is_run_when_it_is() -> None:
    Path("p.yaml").write_text(CODE, encoding="utf-8")
    cases = ({"id": id, **CODED, "expected_output": 1, "expected_aggregation": 1} for id in ("a", "b"))
    Path("coded.jsonl").write_text("\n".join(map(json.dumps, cases)), encoding="utf-8")

    def coded(resume: Resume, allow_code: bool) -> Results:
        asked = RunRequest(("coded.jsonl",), target="pipeline:p.yaml", allow_code=allow_code, options={"limit": 2})
        return evaluate(prepare(asked, catalog.load()), resume=resume, warn=lambda message: None)

    first = coded(Resume(), False)
    assert first.summary.error == 2 and coded(Resume(newest=True), False).summary.error == 2
    again = coded(Resume(newest=True), True)
    assert (again.path, again.summary.passed, again.summary.total) == (first.path, 2, 2)
