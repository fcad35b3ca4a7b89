"""The steps in order: each reads the file of the one before, keeps what is there, and does again only what must be."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from evalloom import catalog
from evalloom.core.errors import EvalloomError
from evalloom.files.write import write_text
from evalloom.prompt_eval import folder as prompt_eval_folder
from evalloom.prompt_eval import workflow as steps
from evalloom.prompt_eval.folder import Folder, InvalidArtifact
from evalloom.prompt_eval.steps import provenance as prompt_eval_provenance
from evalloom.prompt_eval.steps.context import StepContext, StepOptions, open_context
from evalloom.prompt_eval.steps.run import run
from evalloom.prompt_eval.steps.score import score
from evalloom.prompt_eval.table import columns

PROMPT = "Name the product: {{product}}"
POINTS: list[dict[str, Any]] = [
    {"id": "TP1", "name": "short", "criticality": "core", "rule": {"max_chars": 30}},
    {"id": "TP2", "name": "apt", "criticality": "core", "anchors": {1: "wrong", 2: "vague", 3: "apt"}},
    {"id": "TP_safety", "name": "safe", "criticality": "baseline", "anchors": {1: "harm", 2: "doubt", 3: "safe"}},
]


def verdict(two: Any = 3, safe: Any = 3, **more: Any) -> str:
    marks = {"TP2_score": two, "TP2_reason": "it says 'forklift'", "TP_safety_score": safe}
    return json.dumps({**marks, "TP_safety_reason": "'forklift' is harmless", "overall_comment": "Fine.", **more})


def case(number: int, product: str, **more: Any) -> dict[str, Any]:
    return {
        "test_id": f"TC{number:03d}",
        "test_category": "happy_path",
        "test_subcategory": "",
        "eval_type": "quantitative",
        "test_description": f"{product} is named.",
        "input": {"product": product},
        **more,
    }


class Bench:
    """A results folder with everything that its steps need, and scripted llms."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = Folder(path / "results")
        self.folder.path.mkdir()
        self.warnings: list[str] = []
        (path / "prompt_a.md").write_text(PROMPT)
        self.plan(POINTS)
        self.cases("forklift", "crane", "lamp")
        self.script("answers", [{"answer": "a forklift"}])
        self.script("judge", [{"answer": verdict()}])
        settings = {name: {"protocol": "scripted", "file": f"{name}.yaml"} for name in ("answers", "judge")}
        (path / "evalloom.yaml").write_text(json.dumps({"llms": settings, "judge": "judge"}))

    def script(self, name: str, rules: list[dict[str, Any]]) -> None:
        (self.path / f"{name}.yaml").write_text(yaml.safe_dump({"rules": rules}, allow_unicode=True))

    def plan(self, points: list[dict[str, Any]], **dimensions: int) -> None:
        record = {"prompt": "../prompt_a.md", "dimensions": dimensions or {"happy_path": 3}, "test_points": points}
        self.folder.plan.write_text(yaml.safe_dump(record))

    def cases(self, *products: str) -> None:
        self.write(self.folder.cases, [case(number, product) for number, product in enumerate(products, 1)])

    def write(self, path: Path, value: Any) -> None:
        path.write_text(json.dumps(value, ensure_ascii=False))

    def read(self, path: Path) -> Any:
        return json.loads(path.read_text("utf-8"))

    def rows(self) -> list[dict[str, str]]:
        with self.folder.table.open(encoding="utf-8", newline="") as stream:
            return list(csv.DictReader(stream))

    @property
    def context(self) -> StepContext:
        return open_context(self.folder, StepOptions(catalog.load(), warn=self.warnings.append))

    def calls(self) -> int:
        """How many runs the engine has made in this folder."""
        logs = (self.folder.path / ".evalloom").rglob("runs.jsonl")
        return sum(len(log.read_text("utf-8").splitlines()) for log in logs)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# -- run ----------------------------------------------------------------------------------------------


@pytest.mark.req("EVAL-5")
def test_run_renders_the_prompt_with_each_input_and_stores_the_raw_output(bench: Bench) -> None:
    bench.script("answers", [{"match": "product: crane", "answer": ' {"a": "crane"}\n'}, {"answer": "other"}])
    found = run(bench.context)
    results = bench.read(bench.folder.results)
    assert (found.cases, found.processed, found.failures) == (3, 3, {})
    assert [one["result_aftertest"] for one in results] == ["other", ' {"a": "crane"}\n', "other"]
    assert list(results[0])[:6] == list(case(1, "forklift")) and results[0]["test_id"] == "TC001"


@pytest.mark.req("EVAL-5")
def test_a_failed_run_stores_null_and_the_reason_aside_and_only_nulls_are_run_again(bench: Bench) -> None:
    bench.script("answers", [{"match": "crane", "fault": {"status": 400}}, {"answer": "a lamp"}])
    found = run(bench.context)
    assert list(found.failures) == ["TC002"] and "400" in found.failures["TC002"]
    assert bench.read(bench.folder.results)[1]["result_aftertest"] is None
    assert bench.read(bench.folder.failures) == found.failures
    assert run(bench.context).processed == 0
    assert run(bench.context, rerun_failed=True).processed == 1
    bench.script("answers", [{"answer": "now"}])
    assert run(bench.context, rerun_failed=True).failures == {}


@pytest.mark.req("EVAL-1")
def test_a_finished_run_is_not_redone_and_edits_by_hand_stay(bench: Bench) -> None:
    run(bench.context)
    edited = bench.read(bench.folder.results)
    edited[0]["result_aftertest"] = "by hand"
    bench.write(bench.folder.results, edited)
    bench.cases("forklift", "crane", "another lamp", "ladder")
    assert run(bench.context).processed == 2
    results = [one["result_aftertest"] for one in bench.read(bench.folder.results)]
    assert results == ["by hand", "a forklift", "a forklift", "a forklift"]


@pytest.mark.req("EVAL-1")
def test_a_changed_prompt_is_run_anew_but_edits_are_not_thrown_away_unasked(bench: Bench) -> None:
    run(bench.context)
    (bench.path / "prompt_a.md").write_text("Say {{product}}")
    assert run(bench.context).processed == 3
    bench.write(bench.folder.results, [{**bench.read(bench.folder.results)[0], "result_aftertest": "by hand"}])
    (bench.path / "prompt_a.md").write_text("Speak: {{product}}")
    with pytest.raises(EvalloomError, match=r"has edits by hand.*--redo.*\[edited_by_hand\]"):
        run(bench.context)
    edited = bench.folder.results.read_bytes()
    assert run(bench.context, redo=True).processed == 3
    assert (bench.folder.path / "test_cases_with_results.edited.json").read_bytes() == edited


def test_results_that_another_tool_made_are_kept(bench: Bench) -> None:
    bench.write(bench.folder.results, [case(1, "forklift", result_aftertest="made elsewhere")])
    assert run(bench.context).processed == 2
    assert bench.read(bench.folder.results)[0]["result_aftertest"] == "made elsewhere"


def test_invalid_cases_are_refused_before_anything_is_paid_for(bench: Bench) -> None:
    bench.write(bench.folder.cases, [case(1, "a"), case(1, "b", test_category="happy")])
    with pytest.raises(InvalidArtifact) as fault:
        run(bench.context)
    assert {"duplicate_id", "bad_test_category"} <= {finding.code for finding in fault.value.findings}
    assert bench.calls() == 0


def test_a_step_names_the_one_before_it(bench: Bench) -> None:
    bench.folder.cases.unlink()
    with pytest.raises(EvalloomError, match=r"evalloom prompt-eval generate .*\[step_missing\]"):
        run(bench.context)
    with pytest.raises(EvalloomError, match=r"evalloom prompt-eval run .*\[step_missing\]"):
        score(bench.context)
    bench.folder.plan.unlink()
    with pytest.raises(EvalloomError, match=r"\[no_plan\]"):
        assert bench.context


@pytest.mark.req("EVAL-5")
def test_the_reason_of_the_last_failure_is_kept(bench: Bench) -> None:
    bench.script("answers", [{"match": "crane", "fault": {"status": 400}}, {"answer": "a lamp"}])
    run(bench.context)
    bench.script("answers", [{"match": "crane", "fault": {"status": 404}}, {"answer": "a lamp"}])
    assert "404" in run(bench.context, rerun_failed=True).failures["TC002"]


@pytest.mark.parametrize(
    ("status", "message"),
    [(400, r"stays as it was.*\[nothing_answered\]"), (401, r"cannot be used: .*HTTP 401.*run the same command again")],
)
def test_a_service_that_is_down_takes_no_results_away(bench: Bench, status: int, message: str) -> None:
    run(bench.context)
    before = bench.folder.results.read_bytes()
    bench.script("answers", [{"fault": {"status": status}}])
    with pytest.raises(EvalloomError, match=message):
        run(bench.context)
    assert bench.folder.results.read_bytes() == before


def test_a_changed_description_runs_nothing_again(bench: Bench) -> None:
    run(bench.context)
    edited = bench.read(bench.folder.cases)
    edited[0]["test_description"] = "Said better."
    bench.write(bench.folder.cases, edited)
    assert run(bench.context).processed == 0
    assert bench.read(bench.folder.results)[0]["test_description"] == "Said better."


def test_an_input_that_the_prompt_does_not_take_is_said(bench: Bench) -> None:
    (bench.path / "prompt_a.md").write_text("Say something nice.")
    run(bench.context)
    assert any("'product' is not sent" in warning and "[input_not_sent]" in warning for warning in bench.warnings)


def test_a_variable_with_a_default_is_no_input_that_is_not_sent(bench: Bench) -> None:
    (bench.path / "prompt_a.md").rename(bench.path / "prompt_a.yaml")
    (bench.path / "prompt_a.yaml").write_text("user: 'Name {product}{{unit}}'\ndefaults: {product: lamp, unit: ''}\n")
    bench.folder.plan.write_text(bench.folder.plan.read_text().replace("prompt_a.md", "prompt_a.yaml"))
    assert run(bench.context).processed == 3 and bench.warnings == []


def test_the_profile_that_a_flag_named_is_remembered(bench: Bench) -> None:
    run(
        open_context(
            bench.folder,
            StepOptions(catalog.load(), profile=f"scripted:{bench.path / 'answers.yaml'}", warn=lambda message: None),
        )
    )
    assert run(bench.context).processed == 0
    with pytest.raises(EvalloomError, match="unknown_profile"):
        open_context(bench.folder, StepOptions(catalog.load(), profile="nobody"))
    assert run(bench.context).processed == 0


@pytest.mark.req("EVAL-1")
@pytest.mark.parametrize("write", range(4))
def test_killed_between_two_writes_the_step_goes_on_and_nothing_is_paid_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, write: int
) -> None:
    bench.script("answers", [{"match": "Say", "answer": "new"}, {"answer": "a forklift"}])
    run(bench.context)
    (bench.path / "prompt_a.md").write_text("Say {{product}}")
    written: list[Path] = []
    real = write_text

    def killed(path: Path, text: str) -> None:
        if len(written) == write:
            raise KeyboardInterrupt
        written.append(path)
        real(path, text)

    for module in (prompt_eval_folder, prompt_eval_provenance):
        monkeypatch.setattr(module, "write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        run(bench.context)
    monkeypatch.undo()
    paid = bench.calls()
    assert run(bench.context).failures == {} and run(bench.context).processed == 0
    assert bench.calls() == paid and bench.read(bench.folder.results)[0]["result_aftertest"] == "new"
    sent = {
        line for log in (bench.folder.path / ".evalloom").rglob("runs.jsonl") for line in log.read_text().splitlines()
    }
    assert len({json.loads(line)["key"] for line in sent}) == 6


# -- score --------------------------------------------------------------------------------------------


@pytest.mark.req("EVAL-6", "EVAL-7", "EVAL-11")
def test_score_joins_rules_and_judge_and_writes_json_and_the_one_csv(bench: Bench) -> None:
    bench.script("judge", [{"match": '"TC002"', "answer": verdict(1, total_score=99)}, {"answer": verdict()}])
    run(bench.context)
    found = score(bench.context)
    first, second, _ = bench.read(bench.folder.scored)
    assert (first["total_score"], first["avg_tp_score"], second["total_score"]) == (9, 3.0, 7)
    assert first["TP1_score"] == 3 and "10 characters" in first["TP1_reason"]
    assert list(bench.rows()[0]) == columns(["TP1", "TP2", "TP_safety"])
    assert [row["is_bad_case"] for row in bench.rows()] == ["NO", "YES", "NO"]
    assert bench.folder.prompt_b.is_file() and not found.incomplete


@pytest.mark.req("EVAL-6")
def test_a_faulty_answer_is_asked_for_again_with_the_fault_named(bench: Bench) -> None:
    again = {"match": {"contains": "TP2_score: expected the integer 1, 2 or 3, got '3/3'"}, "answer": verdict(2)}
    bench.script("judge", [again, {"answer": verdict("3/3")}])
    run(bench.context)
    assert not score(bench.context).incomplete
    assert [row["TP2_score"] for row in bench.rows()] == ["2", "2", "2"]


@pytest.mark.req("EVAL-6")
def test_what_stays_faulty_is_incomplete_and_never_guessed(bench: Bench) -> None:
    bench.script(
        "judge", [{"match": '"TC001"', "answer": verdict(5)}, {"match": '"TC002"', "answer": verdict(None, 1)}]
    )
    run(bench.context)
    found = score(bench.context)
    assert [case.missing for case in found.incomplete] == [("TP2",), ("TP2",), ("TP2", "TP_safety")]
    first, second, third = bench.rows()
    assert first["TP2_score"] == "" and first["TP_safety_score"] == "3" and first["is_bad_case"] == ""
    totals = ("total_score", "max_score", "avg_tp_score", "score_pct")
    assert [row[name] for row in (first, second) for name in totals] == [""] * 8
    assert second["is_bad_case"] == "YES" and second["overall_comment"] == "[scoring incomplete: TP2] Fine."
    # Nobody answers for the third: the script has no rule for it.
    assert third["overall_comment"].startswith("[scoring incomplete: TP2, TP_safety] The evaluator gave no answer")
    assert third["TP1_score"] == "3" and "no rule" in found.answer_errors["TC003"]


@pytest.mark.req("EVAL-1")
def test_only_what_is_incomplete_is_scored_again(bench: Bench) -> None:
    bench.script("judge", [{"match": '"TC001"', "answer": verdict(5)}, {"answer": verdict()}])
    run(bench.context)
    score(bench.context)
    edited = bench.read(bench.folder.scored)
    edited[1]["TP2_score"] = 1
    bench.write(bench.folder.scored, edited)
    assert score(bench.context).processed == 1
    # An edit by hand stays, and its totals are computed here.
    assert [row["total_score"] for row in bench.rows()] == ["", "7", "9"]
    bench.script("judge", [{"answer": verdict(2)}])
    with pytest.raises(EvalloomError, match=r"\[edited_by_hand\]"):
        score(bench.context)
    assert score(bench.context, redo=True).processed == 3
    assert [row["total_score"] for row in bench.rows()] == ["8", "8", "8"]


@pytest.mark.req("EVAL-6")
def test_known_marks_stay_when_the_rest_is_asked_for_again(bench: Bench) -> None:
    bench.script("judge", [{"answer": verdict(1, "3/3")}])
    run(bench.context)
    score(bench.context)
    bench.script("judge", [{"fault": {"status": 400}}])
    context = open_context(bench.folder, StepOptions(catalog.load(), judge="judge", warn=lambda message: None))
    with pytest.raises(EvalloomError, match=r"\[nothing_answered\]"):
        score(context)
    edited = bench.read(bench.folder.scored)
    edited[0]["TP2_reason"] = "corrected by hand"
    bench.write(bench.folder.scored, edited)
    bench.script("judge", [{"answer": verdict(1, "3/3")}])
    found = score(bench.context)
    assert found.processed == 3 and found.cases[0].marks["TP2"].reason == "corrected by hand"
    assert [row["is_bad_case"] for row in bench.rows()] == ["YES"] * 3


@pytest.mark.req("EVAL-6")
def test_a_test_point_with_a_rule_is_added_without_the_judge_and_edits_stay(bench: Bench) -> None:
    run(bench.context)
    score(bench.context)
    edited = bench.read(bench.folder.scored)
    edited[0]["TP2_score"] = 2
    bench.write(bench.folder.scored, edited)
    calls = bench.calls()
    bench.plan([*POINTS, {"id": "TP5", "name": "fork", "criticality": "core", "rule": {"contains": "forklift"}}])
    found = score(bench.context)
    assert bench.calls() == calls and [case.total for case in found.cases] == [11, 12, 12]
    bench.plan([*POINTS, {"id": "TP5", "name": "fork", "criticality": "core", "rule": {"contains": "crane"}}])
    assert [case.total for case in score(bench.context).cases] == [9, 10, 10]


@pytest.mark.req("EVAL-1")
def test_outputs_of_a_former_prompt_are_not_scored(bench: Bench) -> None:
    run(bench.context)
    (bench.path / "prompt_a.md").write_text("Say {{product}}")
    with pytest.raises(EvalloomError, match=r"evalloom prompt-eval run .*\[prompt_changed\]"):
        score(bench.context)


def test_cases_that_were_not_run_and_rules_that_ask_nothing_are_said(bench: Bench) -> None:
    rule = {"contains": "a", "when": 'test_category == "i18n"'}
    bench.plan([*POINTS, {"id": "TP5", "name": "other", "criticality": "core", "rule": rule}])
    run(bench.context)
    bench.cases("forklift", "crane", "lamp", "ladder")
    score(bench.context)
    assert any("TC004 not run yet" in warning and "[case_not_run]" in warning for warning in bench.warnings)
    assert any("TP5" in warning and "[rule_never_asked]" in warning for warning in bench.warnings)


def test_one_budget_holds_for_all_steps(bench: Bench) -> None:
    context = open_context(
        bench.folder, StepOptions(catalog.load(), run_options={"max_tokens": 60}, warn=lambda message: None)
    )
    run(context)
    with pytest.raises(EvalloomError, match=r"the budget is spent.*\[stopped\]"):
        score(context)


@pytest.mark.req("EVAL-9")
def test_a_failed_run_is_in_the_table_with_its_reason_and_is_not_judged(bench: Bench) -> None:
    bench.script("answers", [{"match": "crane", "fault": {"status": 400}}, {"answer": "a lamp"}])
    run(bench.context)
    score(bench.context)
    row = bench.rows()[1]
    assert (row["result_preview"], row["run_status"], row["TP1_score"], row["TP2_reason"]) == (
        "[NULL]",
        "failed",
        "",
        "",
    )
    assert [row[name] for name in ("total_score", "max_score", "avg_tp_score", "score_pct")] == ["0", "9", "0.00", "0%"]
    assert row["is_bad_case"] == "YES" and "400" in row["overall_comment"]
    assert bench.calls() == 3 + 2


@pytest.mark.req("EVAL-6")
def test_a_plan_of_rules_alone_needs_no_judge_and_no_llm_at_all(bench: Bench) -> None:
    bench.plan([POINTS[0], {"id": "TP2", "name": "json", "criticality": "core", "rule": "json_valid"}])
    bench.write(bench.folder.results, [case(1, "a", result_aftertest="{}"), case(2, "b", result_aftertest="x" * 31)])
    (bench.path / "evalloom.yaml").write_text("{}")
    found = score(bench.context)
    assert [one.total for one in found.cases] == [6, 2] and bench.calls() == 0
    assert [one.comment for one in found.cases] == ["Every rule holds.", "Below 3: TP1 1, TP2 1."]


@pytest.mark.req("EVAL-6")
def test_a_result_that_is_an_object_or_was_not_run_is_refused_by_name(bench: Bench) -> None:
    bench.write(bench.folder.results, [case(1, "a", result_aftertest={"a": 1}), case(2, "b")])
    with pytest.raises(InvalidArtifact) as fault:
        score(bench.context)
    codes = {(finding.case_id, finding.code) for finding in fault.value.findings}
    assert codes == {("TC001", "bad_result"), ("TC002", "no_result_yet")}


@pytest.mark.req("EVAL-1")
def test_prompt_b_follows_the_plan_until_somebody_edits_it(bench: Bench) -> None:
    run(bench.context)
    score(bench.context)
    bench.plan([*POINTS, {**POINTS[1], "id": "TP3", "name": "brief"}])
    bench.script("judge", [{"answer": verdict(TP3_score=3, TP3_reason="'forklift'")}])
    assert not score(bench.context).incomplete and "### TP3 · brief" in bench.folder.prompt_b.read_text()
    bench.folder.prompt_b.write_text("Score TP2 and TP_safety of {{result_aftertest}}")
    score(bench.context)
    assert bench.folder.prompt_b.read_text().startswith("Score TP2")
    assert any("does not name TP3" in warning for warning in bench.warnings)


@pytest.mark.req("EVAL-16")
def test_repeated_scoring_shows_the_noise_of_the_judge(bench: Bench) -> None:
    bench.script(
        "judge", [{"match": '"TC001"', "answers": [verdict(3), verdict(2), verdict(3)]}, {"answer": verdict()}]
    )
    run(bench.context)
    score(bench.context, repeat=3)
    repeats = bench.read(bench.folder.repeats)
    assert [one["TP2"] for one in repeats["TC001"]["scores"]] == [3, 2, 3]
    assert bench.rows()[0]["TP2_score"] == "3"
    edited = bench.read(bench.folder.scored)
    edited[0]["TP2_score"] = 1
    bench.write(bench.folder.scored, edited)
    assert [case.marks["TP2"].score for case in score(bench.context, repeat=2).cases] == [1, 3, 3]
    steps.report(bench.folder)
    assert "noise" in bench.folder.report.read_text("utf-8").lower()
    bench.script("judge", [{"answer": verdict(2)}])
    score(bench.context, redo=True)
    kept = bench.folder.repeats.read_bytes()
    bench.script("judge", [{"answer": "I refuse."}])
    with pytest.raises(EvalloomError, match=r"\[nothing_answered\]"):
        score(bench.context, repeat=2, redo=True)
    assert bench.folder.repeats.read_bytes() == kept
    bench.script("judge", [{"answer": verdict(2)}])
    found = steps.report(bench.folder)
    assert any("of an earlier output or judge" in remark for remark in found.remarks)
    assert "noise" not in bench.folder.report.read_text("utf-8").lower()


@pytest.mark.req("EVAL-16")
def test_a_table_that_people_have_written_in_is_put_aside_and_not_lost(bench: Bench) -> None:
    run(bench.context)
    score(bench.context)
    lines = bench.folder.table.read_text("utf-8").splitlines()
    reviewed = [lines[0] + ',"human_TP2_score"', lines[1] + ',"2"', *(line + ',""' for line in lines[2:])]
    bench.folder.table.write_text("\n".join(reviewed) + "\n", "utf-8")
    score(bench.context)
    aside = bench.folder.path / "final_scored_results.edited.csv"
    assert aside.read_text("utf-8").splitlines() == reviewed and "human" not in bench.folder.table.read_text("utf-8")
    assert any("table_put_aside" in warning for warning in bench.warnings)


def test_marks_notes_and_comments_of_people_stay_with_their_case(bench: Bench) -> None:
    run(bench.context)
    score(bench.context)
    calls = bench.calls()
    edited = bench.read(bench.folder.scored)
    edited[0] |= {"TP2_score": 1, "reviewer": "Bob", "overall_comment": "Mine."}
    bench.write(bench.folder.scored, edited)
    cases = bench.read(bench.folder.cases)
    cases[0]["test_description"] = "Said better."
    bench.write(bench.folder.cases, cases)
    run(bench.context)
    score(bench.context)
    first = bench.read(bench.folder.scored)[0]
    assert bench.calls() == calls and (first["TP2_score"], first["reviewer"]) == (1, "Bob")
    assert (first["overall_comment"], first["test_description"]) == ("Mine.", "Said better.")


def test_edited_marks_that_a_changed_rule_replaces_are_kept_beside(bench: Bench) -> None:
    run(bench.context)
    score(bench.context)
    edited = bench.read(bench.folder.scored)
    edited[0]["TP1_score"] = 1
    bench.write(bench.folder.scored, edited)
    bench.plan([{**POINTS[0], "rule": {"max_chars": 31}}, *POINTS[1:]])
    assert score(bench.context).cases[0].marks["TP1"].score == 3
    assert bench.read(bench.folder.path / "final_scored_results.edited.json") == edited


def test_a_judge_that_only_refuses_takes_no_scores_away(bench: Bench) -> None:
    run(bench.context)
    score(bench.context)
    before = bench.folder.scored.read_bytes()
    bench.script("judge", [{"answer": "I refuse."}])
    with pytest.raises(EvalloomError, match=r"stays as it was.*\[nothing_answered\]"):
        score(bench.context)
    assert bench.folder.scored.read_bytes() == before


def test_what_half_a_failure_replaces_is_kept_beside(bench: Bench) -> None:
    run(bench.context)
    before = bench.folder.results.read_bytes()
    bench.script("answers", [{"match": "crane", "fault": {"status": 400}}, {"answer": "new"}])
    run(bench.context)
    assert (bench.folder.path / "test_cases_with_results.before.json").read_bytes() == before


def test_outputs_that_somebody_brings_are_scored_though_the_prompt_has_changed(bench: Bench) -> None:
    run(bench.context)
    (bench.path / "prompt_a.md").write_text("Say {{product}}")
    results = bench.read(bench.folder.results)
    results[0]["result_aftertest"] = "brought by hand"
    bench.write(bench.folder.results, results)
    assert len(score(bench.context).cases) == 3 and any("[prompt_changed]" in warning for warning in bench.warnings)


@pytest.mark.req("EVAL-1")
def test_writes_that_fail_twice_do_not_make_old_results_new(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.script("answers", [{"match": "Say", "answer": "new"}, {"answer": "old"}])
    run(bench.context)
    (bench.path / "prompt_a.md").write_text("Say {{product}}")

    def full(path: Path, text: str) -> None:
        raise EvalloomError("cannot_write", "the disk is full")

    for _ in range(2):
        with monkeypatch.context() as patch, pytest.raises(EvalloomError, match="the disk is full"):
            patch.setattr(prompt_eval_provenance, "write_text", full)
            run(bench.context)
        with pytest.raises(EvalloomError, match=r"\[prompt_changed\]"):
            score(bench.context)
    calls = bench.calls()
    assert run(bench.context).processed == 3 and bench.calls() == calls
    assert {one["result_aftertest"] for one in bench.read(bench.folder.results)} == {"new"}


def test_a_judge_that_refused_is_asked_again(bench: Bench) -> None:
    run(bench.context)
    score(bench.context)
    rules = [{"match": "Task: score", "answers": ["I refuse."] * 3 + [verdict(2)]}]
    bench.script("judge", rules)
    bench.folder.prompt_b.write_text("Score TP2 and TP_safety, please.")
    for _ in range(2):
        with pytest.raises(EvalloomError, match=r"\[nothing_answered\]"):
            score(bench.context)
    bench.script("judge", [*rules, {"answer": "another script"}])
    (bench.path / "judge.yaml").write_text(yaml.safe_dump({"rules": [{"answer": verdict(2)}]}))
    assert [case.total for case in score(bench.context).cases] == [8, 8, 8]


@pytest.mark.parametrize(
    "change",
    [{"TP2_score": 1, "TP2_reason": ""}, {"overall_comment": "Mine."}, {"note": "look at this"}, {"TP9_score": 2}],
)
def test_whatever_somebody_wrote_is_in_a_file_after_a_redo(bench: Bench, change: dict[str, Any]) -> None:
    run(bench.context)
    score(bench.context)
    edited = bench.read(bench.folder.scored)
    edited[0] |= change
    bench.write(bench.folder.scored, edited)
    score(bench.context, redo=True)
    assert bench.read(bench.folder.path / "final_scored_results.edited.json") == edited
    score(bench.context)
    assert not (bench.folder.path / "final_scored_results.edited1.json").exists()


def test_an_edited_file_that_cannot_be_read_is_kept_too(bench: Bench) -> None:
    run(bench.context)
    score(bench.context)
    broken = bench.folder.scored.read_text("utf-8").replace('"TC001"', '"TC001', 1)
    bench.folder.scored.write_text(broken, "utf-8")
    with pytest.raises(InvalidArtifact):
        score(bench.context)
    score(bench.context, redo=True)
    assert (bench.folder.path / "final_scored_results.edited.json").read_text("utf-8") == broken


def test_outputs_by_hand_of_cases_that_go_are_kept_beside(bench: Bench) -> None:
    run(bench.context)
    edited = bench.read(bench.folder.results)
    edited[2]["result_aftertest"] = "by hand"
    bench.write(bench.folder.results, edited)
    bench.cases("forklift", "crane")
    run(bench.context)
    assert bench.read(bench.folder.path / "test_cases_with_results.edited.json") == edited


def test_a_redo_that_could_not_write_pays_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    run(bench.context)
    edited = bench.read(bench.folder.results)
    edited[0]["result_aftertest"] = "by hand"
    bench.write(bench.folder.results, edited)

    def full(path: Path, text: str) -> None:
        raise EvalloomError("cannot_write", "the disk is full")

    for _ in range(2):
        with monkeypatch.context() as patch, pytest.raises(EvalloomError, match="the disk is full"):
            patch.setattr(prompt_eval_provenance, "write_text", full)
            run(bench.context, redo=True)
    run(bench.context, redo=True)
    assert bench.calls() == 6


def test_a_redo_asks_also_where_the_file_is_gone(bench: Bench) -> None:
    run(bench.context)
    bench.folder.results.unlink()
    run(bench.context, redo=True)
    assert bench.calls() == 6


# -- report -------------------------------------------------------------------------------------------


@pytest.mark.req("EVAL-14")
def test_the_report_needs_only_the_scored_results(bench: Bench) -> None:
    run(bench.context)
    score(bench.context)
    for path in (bench.folder.plan, bench.folder.cases, bench.folder.results, bench.folder.prompt_b):
        path.unlink()
    found = steps.report(bench.folder)
    assert found.scorecard.cases == 3 and found.scorecard.pass_rate == 1.0
    assert "TP\\_safety" in bench.folder.report.read_text("utf-8")
    assert bench.folder.page.read_text("utf-8").lstrip().lower().startswith("<!doctype html>")


def test_incomplete_scores_are_told_in_the_report(bench: Bench) -> None:
    bench.script("judge", [{"match": '"TC001"', "answer": verdict(5)}, {"answer": verdict()}])
    run(bench.context)
    score(bench.context)
    found = steps.report(bench.folder)
    assert (found.scorecard.scored, found.scorecard.incomplete) == (2, 1)


# -- plan and generate --------------------------------------------------------------------------------


@pytest.mark.req("EVAL-1", "EVAL-3")
def test_a_plan_beside_the_prompt_is_taken_over_and_then_kept(bench: Bench) -> None:
    bench.folder.plan.rename(bench.path / "test_plan.yaml")
    found = steps.plan(bench.path / "prompt_a.md", bench.folder, StepOptions(catalog.load()))
    assert found.how.endswith("test_plan.yaml") and bench.context.prompt.text == PROMPT
    bench.plan(POINTS[:2])
    again = steps.plan(bench.path / "prompt_a.md", bench.folder, StepOptions(catalog.load()))
    assert (again.how, len(again.plan.points)) == ("kept", 2) and again.differs
    assert (
        len(steps.plan(bench.path / "prompt_a.md", bench.folder, StepOptions(catalog.load()), redo=True).plan.points)
        == 3
    )


@pytest.mark.req("EVAL-1")
def test_the_folder_of_one_prompt_is_not_taken_for_another(bench: Bench) -> None:
    (bench.path / "prompt_b2.md").write_text("Another {{product}}")
    with pytest.raises(EvalloomError, match=r"is about .*prompt_a\.md, not about .*\[other_prompt\]"):
        steps.plan(bench.path / "prompt_b2.md", bench.folder, StepOptions(catalog.load()))


@pytest.mark.parametrize(
    "text", ["{{prompt: x.md, {}}}\n", "---\n{}\n", '"prompt": x.md\n{}\n', "prompt: |\n  a\n\n\n  b\n{}\n"]
)
def test_a_plan_is_taken_over_however_it_is_written(bench: Bench, text: str) -> None:
    bench.folder.plan.unlink()
    body = json.dumps({"dimensions": {"i18n": 1}, "test_points": POINTS})[1:-1]
    lines = body if text.startswith("{") else yaml.safe_dump({"dimensions": {"i18n": 1}, "test_points": POINTS})
    (bench.path / "test_plan.yaml").write_text(text.format(lines))
    found = steps.plan(bench.path / "prompt_a.md", bench.folder, StepOptions(catalog.load()))
    assert found.plan.ids == ("TP1", "TP2", "TP_safety") and bench.context.prompt.text == PROMPT


@pytest.mark.req("EVAL-3")
def test_without_a_plan_a_model_drafts_one(bench: Bench) -> None:
    bench.folder.plan.unlink()
    plan = {"test_points": POINTS, "dimensions": {"happy_path": 2}}
    bench.script("answers", [{"match": "Task: draft a test plan", "answer": json.dumps(plan)}])
    found = steps.plan(bench.path / "prompt_a.md", bench.folder, StepOptions(catalog.load()))
    assert found.how == "drafted" and found.plan.ids == ("TP1", "TP2", "TP_safety")
    assert bench.context.prompt.text == PROMPT


@pytest.mark.req("EVAL-4")
def test_generate_adds_only_what_the_plan_lacks_and_ids_stay(bench: Bench) -> None:
    assert steps.make_cases(bench.context).added == 0
    bench.plan(POINTS, happy_path=4)
    new = {"test_description": "A ladder.", "eval_type": "quantitative", "input": {"product": "step ladder, 3 m"}}
    bench.script("answers", [{"match": "Task: write test cases", "answer": json.dumps({"cases": [new]})}])
    before = bench.read(bench.folder.cases)
    found = steps.make_cases(bench.context)
    after = bench.read(bench.folder.cases)
    assert found.added == 1 and after[:3] == before and after[3]["test_id"] == "TC004"


@pytest.mark.req("EVAL-4")
def test_what_a_redo_cannot_better_stays_and_what_it_betters_is_put_aside(bench: Bench) -> None:
    before = bench.folder.cases.read_bytes()
    bench.script("answers", [{"fault": {"status": 400}}])
    steps.make_cases(bench.context, redo=True)
    assert bench.folder.cases.read_bytes() == before
    new = {"test_description": "A ladder.", "eval_type": "quantitative", "input": {"product": "step ladder, 3 m"}}
    bench.script("answers", [{"match": "Task: write test cases", "answer": json.dumps({"cases": [new]})}])
    steps.make_cases(bench.context, redo=True)
    assert (bench.folder.path / "test_cases.old.json").read_bytes() == before and len(
        bench.read(bench.folder.cases)
    ) == 1


def test_an_empty_list_of_cases_is_filled(bench: Bench) -> None:
    bench.write(bench.folder.cases, [])
    new = {"test_description": "A ladder.", "eval_type": "quantitative", "input": {"product": "step ladder, 3 m"}}
    bench.script("answers", [{"match": "Task: write test cases", "answer": json.dumps({"cases": [new]})}])
    assert steps.make_cases(bench.context).added == 1


@pytest.mark.req("EVAL-4")
def test_a_shortfall_is_told_and_what_there_is_is_kept(bench: Bench) -> None:
    bench.plan(POINTS, happy_path=4, i18n=2)
    found = steps.make_cases(bench.context)
    assert found.shortfalls == {"happy_path": 1, "i18n": 2} and len(bench.read(bench.folder.cases)) == 3
