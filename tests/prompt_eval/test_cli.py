"""`evalloom prompt-eval` as people type it, on the example."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ARTIFACTS = {
    "test_plan.yaml",
    "test_cases.json",
    "test_cases_with_results.json",
    "prompt_b.md",
    "final_scored_results.json",
    "final_scored_results.csv",
    "final_report.md",
    "final_report.html",
}
EXAMPLE = Path(__file__).parents[2] / "examples" / "prompt-eval"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLE, tmp_path / "example")
    return tmp_path / "prompt-eval-results"


def change(path: Path, number: int, **fields: Any) -> None:
    records = json.loads(path.read_text("utf-8"))
    records[number].update(fields)
    path.write_text(json.dumps(records, ensure_ascii=False), "utf-8")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.req("EVAL-1")
def test_all_gives_every_artifact_offline(evalloom: Any, example: Path) -> None:
    done = evalloom("prompt-eval", "all", "example/prompt_a.md")
    assert done.returncode == 1, done.stderr  # one run of the example fails on purpose
    assert {path.name for path in example.iterdir()} >= ARTIFACTS
    assert "36 cases, 36 run now, 1 run failed" in done.stdout and "pass rate 72 %" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("Next: open prompt-eval-results/final_report.html")


@pytest.mark.req("EVAL-1")
def test_step_by_step_each_says_what_to_do_next_and_is_not_redone(
    in_process: Callable[..., Any], example: Path
) -> None:
    steps = (("plan", "example/prompt_a.md"), ("generate",), ("run",), ("score",), ("report",))
    nexts = ("generate", "run", "score", "report", "improve")
    for step, after in zip(steps, nexts, strict=True):
        done = in_process("prompt-eval", *step)
        assert f"evalloom prompt-eval {after} prompt-eval-results" in done.out.splitlines()[-1]
    assert "as it was" in in_process("prompt-eval", "plan", "example/prompt_a.md").out
    assert in_process("prompt-eval", "run", "--json").summary["asked"] == 0
    assert in_process("prompt-eval", "score", "--json").summary["asked"] == 0
    assert in_process("prompt-eval", "run", "--redo", "--json").summary["asked"] == 36


@pytest.mark.req("EVAL-6")
def test_incomplete_scoring_ends_with_exit_code_2_after_writing(in_process: Callable[..., Any], example: Path) -> None:
    in_process("prompt-eval", "all", "example/prompt_a.md")
    judge = example.parent / "example" / "evaluator.yaml"
    judge.write_text('rules: [{answer: "I would rather not."}]\n', "utf-8")
    (example / "final_scored_results.json").unlink()
    done = in_process("prompt-eval", "score", "--json")
    assert done.code == 2 and len(done.summary["incomplete"]) == 35
    first = rows(example / "final_scored_results.csv")[0]
    assert first["overall_comment"].startswith("[scoring incomplete: TP3, TP4, TP_qualitative_terms, TP_safety]")


@pytest.mark.parametrize(("rate", "code"), [("70%", 0), ("0.9", 1)])
def test_a_least_pass_rate_decides_the_exit_code(
    in_process: Callable[..., Any], example: Path, rate: str, code: int
) -> None:
    in_process("prompt-eval", "all", "example/prompt_a.md")
    assert in_process("prompt-eval", "score", "--fail-under", rate).code == code


@pytest.mark.req("WORK-5", "EVAL-14")
def test_every_surface_counts_the_same_cases(in_process: Callable[..., Any], example: Path) -> None:
    in_process("prompt-eval", "all", "example/prompt_a.md")
    bad = "14 bad cases (4 of them passed, 1 failed to run)"
    lines = " ".join(in_process("prompt-eval", "report").out.split())
    assert f"pass rate 72 % (26 of 36 cases, 95 % CI 56–84 %), {bad}" in lines
    assert "2.91 1 1 33 ≥ 2.5, 3 safety" in lines
    assert bad in " ".join(in_process("prompt-eval", "score").out.split())
    summary = in_process("prompt-eval", "report", "--json").summary
    counted = [summary[name] for name in ("passed", "rated", "bad", "bad_but_passed", "failed_runs")]
    assert counted == [26, 36, 14, 4, 1] and summary["safety_failures"] == ["TC026", "TC028", "TC030"]
    for name in ("final_report.md", "final_report.html"):
        assert f"26 of 36 cases passed (72 %), {bad}." in (example / name).read_text("utf-8")
    tabled = rows(example / "final_scored_results.csv")
    assert sum(row["is_bad_case"] == "YES" for row in tabled) == 14


@pytest.mark.req("EVAL-15")
def test_improve_promotes_the_candidate_of_the_example(in_process: Callable[..., Any], example: Path) -> None:
    in_process("prompt-eval", "all", "example/prompt_a.md")
    before = (example.parent / "example" / "prompt_a.md").read_bytes()
    done = in_process("prompt-eval", "improve")
    assert "tried on all 36 cases" in " ".join(done.out.split())
    assert done.code == 0 and "PROMOTED  prompt-eval-results/improve/iteration_01/promoted.md" in done.out
    assert (example.parent / "example" / "prompt_a.md").read_bytes() == before


@pytest.mark.req("EVAL-11", "EVAL-13")
def test_table_computes_again_and_names_what_is_wrong(in_process: Callable[..., Any], example: Path) -> None:
    in_process("prompt-eval", "all", "example/prompt_a.md")
    scored = example / "final_scored_results.json"
    assert in_process("prompt-eval", "table", str(scored), "-o", "a.csv", "--excel").code == 0
    assert Path("a.csv").read_bytes()[3:] == (example / "final_scored_results.csv").read_bytes()
    change(scored, 0, TP3_score="3/3")
    change(scored, 1, TP3_score=None, TP4_reason=" ")
    change(scored, 2, result_aftertest={"a": 1}, test_id="TC001")
    done = in_process("prompt-eval", "table", str(scored), "--plan", str(example / "test_plan.yaml"), "-o", "b.csv")
    assert done.code == 2
    for code in ("bad_score", "score_missing", "missing_reason", "bad_result", "duplicate_id"):
        assert f"[{code}]" in done.err
    assert [row["total_score"] for row in rows(Path("b.csv"))][:2] == ["", ""]


@pytest.mark.req("EVAL-16")
def test_a_review_is_imported_and_its_agreement_is_in_the_report(in_process: Callable[..., Any], example: Path) -> None:
    in_process("prompt-eval", "all", "example/prompt_a.md")
    found = rows(example / "final_scored_results.csv")
    with Path("review.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, [*found[0], "human_TP3_score", "human_comment"])
        writer.writeheader()
        for number, row in enumerate(found):
            human = row["TP3_score"] if number % 4 else "2"
            writer.writerow({**row, "human_TP3_score": human, "human_comment": "seen"})
    done = in_process("prompt-eval", "import-review", "review.csv")
    assert done.code == 0 and "35 scores" in done.out
    in_process("prompt-eval", "report")
    report = (example / "final_report.md").read_text("utf-8").lower()
    assert "weighted kappa" in report and "35" in report
    Path("bad.csv").write_text('"test_id","human_TP3_score"\n"TC001","3/3"\n"TC777","2"\n', "utf-8")
    done = in_process("prompt-eval", "import-review", "bad.csv")
    assert done.code == 2 and "3/3" in done.err and "TC777" in done.err


@pytest.mark.req("EVAL-1")
def test_check_says_what_is_wrong_with_every_artifact(in_process: Callable[..., Any], example: Path) -> None:
    in_process("prompt-eval", "all", "example/prompt_a.md")
    assert in_process("prompt-eval", "check").code == 0
    change(example / "test_cases.json", 0, test_category="happy")
    done = in_process("prompt-eval", "check")
    assert done.code == 2 and "[bad_test_category]" in done.out and "[case_changed]" in done.out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("all", "nowhere.md"), "prompt_missing"),
        (("run",), "no_plan"),
        (("check",), "no_artifact"),
        (("table", "nowhere.json"), "cases_missing"),
        (("import-review", "nowhere.csv"), "nothing_to_review"),
        (("report",), "step_missing"),
        (("run", "example"), "unknown_profile"),
    ],
)
def test_what_is_not_there_is_said(in_process: Callable[..., Any], example: Path, arguments: Any, code: str) -> None:
    more = ("--profile", "nobody") if code == "unknown_profile" else ()
    done = in_process("prompt-eval", *arguments, *more)
    assert done.code == 2 and f"[{code}]" in done.err


def test_a_plan_with_two_points_of_one_name_is_refused_with_its_line(
    in_process: Callable[..., Any], example: Path
) -> None:
    plan = example.parent / "example" / "test_plan.yaml"
    plan.write_text(plan.read_text("utf-8").replace("id: TP2", "id: TP1"), "utf-8")
    done = in_process("prompt-eval", "all", "example/prompt_a.md")
    assert done.code == 2 and "[duplicate_test_point]" in done.err and "example/test_plan.yaml:" in done.err
    assert not example.exists()
