"""`evalloom pipeline`, and `evalloom run` with a pipeline as its target."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalloom.core.sandbox import why_unavailable
from evalloom.pipeline import TestsetLoader

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/pipeline"
FORMAT = Path(__file__).resolve().parents[1] / "fixtures/format_examples_v2.jsonl"
needs_sandbox = pytest.mark.skipif(bool(why_unavailable()), reason=f"no sandbox here: {why_unavailable()}")
Call = Callable[..., Any]


@pytest.fixture
def call(in_process: Call, tmp_path: Path) -> Call:
    """In a folder with the examples."""
    shutil.copytree(EXAMPLES / "reviews", tmp_path / "reviews")
    return in_process


def run(call: Call, pipeline: str, *more: str) -> Any:
    target = f"pipeline:reviews/pipelines/{pipeline}.yaml"
    return call("run", *more, "--config", "reviews/evalloom.yaml", "--target", target)


def rows(batch: str = "") -> list[Any]:
    """The runs of the newest batch."""
    newest = sorted(Path(".evalloom/batches").iterdir())[-1]
    return [json.loads(line) for line in (newest / "runs.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.req("PIPE-6", "PIPE-7", "PIPE-8", "PIPE-9")
@pytest.mark.parametrize(
    ("pipeline", "passed", "failed"),
    [("multi_step_sentiment", 1, 1), ("customer_reviews", 5, 1), ("customer_feedback", 1, 0)],
)
def test_the_examples_of_the_format_run_offline(call: Call, pipeline: str, passed: int, failed: int) -> None:
    done = run(call, pipeline, "--json")
    assert (done.summary["passed"], done.summary["failed"], done.summary["error"]) == (passed, failed, 0)
    assert done.code == (1 if failed else 0) and done.err == ""


@pytest.mark.req("PIPE-11")
def test_a_case_that_fails_in_the_middle_names_the_first_step(call: Call) -> None:
    shown = run(call, "multi_step_sentiment").out
    assert "first failing step: 'analyze_sentiment'" in shown
    assert "structural steps.analyze_sentiment: sentiment: expected 'negative', got 'positive'" in shown
    assert "contains summary (follows from step 'analyze_sentiment'): expected 'disappointed'" in shown
    trace = call("batches", "show", "latest", "--case", "irony_taken_at_its_word").out
    assert "analyze_sentiment (prompt): ok, " in trace and "took the JSON out of a fenced block" in trace


@pytest.mark.req("PIPE-17")
def test_variants_run_side_by_side_and_are_compared(call: Call) -> None:
    done = run(call, "customer_reviews", "--variants", "baseline,with_rating", "--json")
    rates = {name: one["pass_rate"] for name, one in done.summary["profiles"].items()}
    assert rates == {"offline@baseline": pytest.approx(5 / 6), "offline@with_rating": 1.0}
    compared = call("compare", "latest")
    assert (
        compared.code == 0
        and "offline@with_rating against offline@baseline: no difference shown, +16.7" in compared.out
    )
    again = call("run", "--config", "reviews/evalloom.yaml", "--variants", "baseline,with_rating", "--resume", "--json")
    assert again.summary["total"] == 12 and len(rows()) == 12


@pytest.mark.req("PIPE-17")
def test_a_variant_that_is_not_there_is_refused(call: Call) -> None:
    done = run(call, "customer_reviews", "--variants", "with_ratings")
    assert done.code == 2 and "Did you mean 'with_rating'?" in done.err


@pytest.mark.req("PIPE-17")
def test_a_saved_baseline_shows_a_regression(call: Call) -> None:
    run(call, "customer_reviews")
    assert call("baseline", "save", "good").code == 0
    answers = Path("reviews/answers.yaml")
    answers.write_text(answers.read_text("utf-8").replace("Excellent|", ""), encoding="utf-8")
    run(call, "customer_reviews")
    done = call("compare", "latest", "--baseline", "good", "--by", "tag", "--strict")
    assert done.code == 1 and done.out.startswith("REGRESSION") and "batch_customer_reviews" in done.out
    assert call("compare", "latest", "--baseline", "good", "--allowed-drop", "0.9").code == 0


@pytest.mark.req("PIPE-3", "PIPE-10", "PIPE-11", "PIPE-13")
def test_outputs_are_compared_as_the_case_says(call: Call) -> None:
    Path("own.py").write_text("def judge(x): return 'pos'\ndef write(x): return f'it is {x}'\n")
    steps = (
        "{id: a, code_ref: 'own:judge', output_key: label}, {id: b, code_ref: 'own:write', input_mapping: {x: label}}"
    )
    Path("p.yaml").write_text(f"id: p\nsteps: [{steps}]\noutputs: [label, {{key: text, source: b}}]\n")
    strict, label = {"strict_mode": True}, {"expected_outputs": {"label": "pos"}}
    cases = [
        {"id": "further", "inputs": {"x": 1}, **label, "evaluation_config": strict},
        {"id": "ignored", "x": 1, **label, "evaluation_config": {**strict, "ignore_fields": ["text"]}},
        {"id": "plain", "x": 1, "expected_output": "it is pos", "evaluation_config": strict},
        {"id": "limits", "x": 1, **label, "performance_baseline": {"max_tokens": 10, "max_cost": 0}},
    ]
    Path("cases_basic_v1.jsonl").write_text("\n".join(map(json.dumps, cases)))
    done = call("run", "cases_basic_v1.jsonl", "--target", "pipeline:p.yaml", "--json")
    assert (done.summary["passed"], done.summary["failed"]) == (3, 1)
    shown = call("batches", "show", "latest", "--case", "further").out
    assert "only_fields failed: text: expected nothing, got 'it is pos'" in shown


@pytest.mark.req("PIPE-12")
def test_code_is_off_and_said_on_stderr_and_the_rest_runs(call: Call) -> None:
    sets = [f"reviews/testsets/customer_feedback_{name}_v2.jsonl" for name in ("code", "full")]
    done = run(call, "customer_feedback", *sets)
    assert done.code == 1 and "[code_not_allowed]" in done.out
    assert "step 'aggregate_insights': its code was not run. Pass --allow-code" in done.err
    assert [row.get("error", "") == "" for row in sorted(rows(), key=lambda row: row["case_id"])] == [False, True]


@needs_sandbox
@pytest.mark.req("PIPE-12")
def test_code_runs_when_it_is_allowed(call: Call) -> None:
    done = run(call, "customer_feedback", "reviews/testsets/customer_feedback_code_v2.jsonl", "--allow-code", "--json")
    assert (done.code, done.summary["passed"]) == (0, 1)


CODED = """\
id: coded
inputs: [q]
steps:
  - {id: ask, prompt: "say {q}", output_key: a}
  - {id: work, code_ref: "own:f", input_mapping: {a: a}}
variants: {coded: {overrides: {work: {code: "def run(a): return a"}}}}
"""


@needs_sandbox
@pytest.mark.req("PIPE-12")
def test_only_the_settings_of_the_user_can_allow_code(in_process: Call) -> None:
    Path("theirs").mkdir()
    Path("theirs/p.yaml").write_text(CODED)
    Path("theirs/own.py").write_text("def f(a): return a")
    Path("theirs/evalloom.yaml").write_text("run: {allow_code: true}\n")
    case = {
        "id": "a",
        "inputs": {"q": "x"},
        "expected_output": "say x",
        "run": {"allow_code": True},
        "allow_code": True,
    }
    Path("theirs/c.jsonl").write_text(json.dumps(case))
    run = ("run", "theirs/c.jsonl", "--target", "pipeline:theirs/p.yaml", "--profile", "echo", "--variants", "coded")
    refused = in_process(*run)
    assert refused.code == 2 and "[code_not_allowed]" in refused.err and not Path(".evalloom/batches").exists()
    for flag in ("--allow-code ", "--evalloom-allow-code", "allow_code=True", "'run: {allow_code: true}'"):
        assert flag in refused.err
    Path("evalloom.yaml").write_text("run: {allow_code: true}\n")
    assert in_process(*run, "--json").summary["passed"] == 1


@pytest.mark.req("PIPE-12")
def test_without_a_sandbox_code_is_refused(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalloom.core.sandbox.why_unavailable", lambda: "this is no Linux")
    done = run(call, "customer_feedback", "--allow-code")
    said = "--allow-code, run.allow_code: code cannot be isolated here: this is no Linux [no_sandbox]"
    assert done.code == 3 and said in done.err


@pytest.mark.req("PIPE-4", "PIPE-8")
def test_a_testset_is_held_against_its_pipeline_before_the_run(call: Call) -> None:
    case = {"id": "a", "inputs": {"txt": "x"}, "step_inputs": {"preproces": {}, "generate_summary": {"max_lenght": 5}}}
    Path("bad_case_v1.jsonl").write_text(json.dumps(case), encoding="utf-8")
    done = run(call, "multi_step_sentiment", "bad_case_v1.jsonl")
    assert done.code == 2 and not Path(".evalloom").exists()
    for said in ("[missing_input]", "[unknown_step]", "[unused_step_input]", "Did you mean 'max_length'?"):
        assert said in done.err


@pytest.mark.req("PIPE-8")
def test_what_goes_into_steps_is_part_of_a_run(call: Call) -> None:
    run(call, "customer_reviews")
    testset = Path("reviews/testsets/customer_reviews_batch_v2.jsonl")
    text = testset.read_text("utf-8")
    testset.write_text(text.replace('"Excellent product!"', '"Excellent thing!"'), encoding="utf-8")
    done = run(call, "customer_reviews", "--resume-from", "latest", "--json")
    asked = [row for row in rows() if "Excellent thing!" in json.dumps(row["trace"])]
    assert done.summary["total"] == 6 and [row["case_id"] for row in asked] == ["batch_customer_reviews"]


@pytest.mark.req("PIPE-6")
def test_graph_and_check_of_a_pipeline(call: Call) -> None:
    file = "reviews/pipelines/customer_feedback.yaml"
    graph = call("pipeline", "graph", file).out
    assert "1. (concurrent)\n   load_data [code · steps:load] → dataset" in graph
    drawn = call("pipeline", "graph", file, "--mermaid").out.splitlines()
    assert drawn[0] == "flowchart TD" and "  s1 -->|items| s2" in drawn
    checked = call("pipeline", "check", file)
    assert checked.code == 0 and checked.out == f"{file}: 8 steps, 0 errors, 0 warnings\n"


@pytest.mark.req("PIPE-6")
def test_a_bad_pipeline_is_told_by_every_command(call: Call) -> None:
    file = Path("reviews/pipelines/customer_feedback.yaml")
    file.write_text(file.read_text("utf-8").replace("{dataset: dataset,", "{dataset: datset,"), encoding="utf-8")
    said = "step 'generate_report': input_mapping.dataset: no input or step provides 'datset'. Did you mean 'dataset'?"
    assert said in run(call, "customer_feedback").err
    for command in (["pipeline", "check"], ["pipeline", "graph"], ["validate", "reviews/testsets", "--pipeline"]):
        done = call(*command, str(file))
        assert done.code == 2 and said in done.out + done.err, command


@pytest.mark.req("PIPE-6")
def test_a_pipeline_among_test_files_is_checked_too(call: Call) -> None:
    done = call("validate", "reviews")
    assert done.code == 0 and "reviews/pipelines/customer_feedback.yaml: a pipeline, 0 errors, 0 warnings" in done.out
    file = Path("reviews/pipelines/customer_feedback.yaml")
    file.write_text(file.read_text("utf-8").replace("{dataset: dataset,", "{dataset: datset,"), encoding="utf-8")
    done = call("validate", str(file))
    assert done.code == 2 and f"{file}:63:20: step 'generate_report': input_mapping.dataset" in done.out


@pytest.mark.req("PIPE-1", "PIPE-3", "PIPE-6")
def test_the_cases_of_the_format_load_and_validate_as_they_stand(call: Call) -> None:
    done = call("validate", str(FORMAT), "--json")
    found = json.loads(done.out)
    assert (done.code, found["counts"]["cases"], found["counts"]["errors"], found["counts"]["warnings"]) == (0, 4, 0, 0)
    cases = TestsetLoader.load_testset(FORMAT)
    assert [case.id for case in cases] == [
        "simple_1", "multi_step_sentiment_analysis", "batch_customer_reviews", "complex_pipeline_full_features"
    ]  # fmt: skip
    assert cases[0].to_dict()["expected_outputs"] == {"output": "processed"} and len(cases[3].step_inputs) == 6


BROKEN = """\
steps:
  - {id: slow, code_ref: "own:slow"}
  - {id: side, code_ref: "own:side", required: false}
  - {id: after, code_ref: "own:use", input_mapping: {x: side}}
"""
CODE = """\
import asyncio, os
async def slow():
    await asyncio.sleep(0.05)
    if os.environ.get("BREAK"): raise ValueError("the required one")
    return 1
def side(): raise ValueError("the optional one")
def use(x): return x
"""


@pytest.mark.req("PIPE-7", "PIPE-11")
def test_the_step_that_ended_a_case_is_named_and_no_other(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("p.yaml").write_text(BROKEN)
    Path("own.py").write_text(CODE)
    Path("one_case_v1.jsonl").write_text('{"id": "a", "inputs": {}, "expected_outputs": {"after": 1}}')
    arguments = ["run", "one_case_v1.jsonl", "--target", "pipeline:p.yaml"]
    shown = call(*arguments).out
    assert "first failing step: 'side': ValueError: the optional one" in shown
    monkeypatch.setenv("BREAK", "1")
    call(*arguments, "-o", "out.jsonl")
    row = json.loads(Path("out.jsonl").read_text())
    assert row["first_wrong_step"] == "slow" and "the required one" in row["error"]


def test_what_is_not_chosen_still_counts_when_a_batch_is_gone_on_with(call: Call) -> None:
    Path("own.py").write_text("def f(x): return 1 // x")
    rows = [{"id": "a", "tags": ["t1"], "inputs": {"x": 1}}, {"id": "b", "tags": ["t2"], "inputs": {"x": 0}}]
    Path("two_cases_v1.jsonl").write_text(
        "\n".join(json.dumps({**row, "expected_outputs": {"output": 1}}) for row in rows)
    )
    arguments = ["run", "two_cases_v1.jsonl", "--target", "python:own:f", "--json"]
    assert call(*arguments).summary["error"] == 1
    again = call(*arguments, "--resume", "--retry-errors", "--tags", "t1")
    assert (again.code, again.summary["total"], again.summary["error"]) == (1, 2, 1)
