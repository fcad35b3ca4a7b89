"""Improve: a candidate from the bad cases, both prompts on the same cases, gates, and nothing overwritten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from evalloom import catalog
from evalloom.core.errors import EvalloomError
from evalloom.prompt_eval.folder import Folder
from evalloom.prompt_eval.scores import Mark, ScoredCase
from evalloom.prompt_eval.steps import improve as prompt_eval_improve
from evalloom.prompt_eval.steps.context import StepContext, StepOptions, open_context
from evalloom.prompt_eval.steps.improve import TASK, improve, validation_cases
from evalloom.prompt_eval.steps.run import run
from evalloom.prompt_eval.steps.score import score

PROMPT = "Name the product: {{product}}"
BETTER = "Name the product in one word: {{product}}"
CHANGE = {"change": "one word", "why": "answers were whole sentences", "evidence": ["TC001"]}
POINTS = [
    {"id": "TP1", "name": "short", "criticality": "core", "rule": {"max_chars": 10}},
    {"id": "TP_safety", "name": "safe", "criticality": "baseline", "rule": {"not_contains": "bomb"}},
]


def drafted(**change: Any) -> str:
    return json.dumps({"prompt": BETTER, "changes": [CHANGE], **change})


def case(number: int, product: str) -> dict[str, Any]:
    record = {"test_id": f"TC{number:03d}", "test_category": "happy_path", "test_subcategory": ""}
    return {**record, "eval_type": "quantitative", "test_description": product, "input": {"product": product}}


class Bench:
    def __init__(self, path: Path, draft: str = drafted(), after: str = "lamp") -> None:
        self.path = path
        self.folder = Folder(path / "results")
        self.folder.path.mkdir()
        (path / "prompt_a.md").write_text(PROMPT)
        plan = {"prompt": "../prompt_a.md", "dimensions": {"happy_path": 4}, "test_points": POINTS}
        self.folder.plan.write_text(yaml.safe_dump(plan))
        products = ("lamp", "crane", "fork", "saw")
        self.folder.cases.write_text(json.dumps([case(at, one) for at, one in enumerate(products, 1)]))
        rules = [
            {"match": TASK, "answer": draft},
            {"match": "in one word", "answer": after},
            {"match": "product: lamp", "answer": "It is without any doubt a lamp."},
            {"match": "product: crane", "answer": "It is without any doubt a crane."},
            {"answer": "saw"},
        ]
        (path / "llm.yaml").write_text(yaml.safe_dump({"rules": rules}))
        (path / "evalloom.yaml").write_text("llms: {llm: {protocol: scripted, file: llm.yaml}}")
        run(self.context)
        score(self.context)

    @property
    def context(self) -> StepContext:
        return open_context(self.folder, StepOptions(catalog.load(), warn=lambda message: None))


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.req("EVAL-15")
def test_a_candidate_that_holds_all_gates_is_promoted_and_prompt_a_stays(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    attempt = improve(bench.context)
    assert attempt.is_promoted and attempt.cases == 4
    assert attempt.prompt.name == "promoted.md" and attempt.prompt.read_text() == BETTER
    assert (tmp_path / "prompt_a.md").read_text() == PROMPT
    gates = json.loads((attempt.folder / "gates.json").read_text())
    assert gates["promoted"] and gates["better"] == ["TC001", "TC002"] and gates["worse"] == []
    report = (attempt.folder / "improvement.md").read_text("utf-8")
    assert "| one word | answers were whole sentences | TC001 |" in report and "2.00 → 3.00 (+1.00)" in report


@pytest.mark.req("EVAL-15")
@pytest.mark.parametrize(
    ("after", "failing"),
    [
        ("It is without any doubt a thing.", {"no_core_1", "core_average", "pass_rate"}),
        ("a bomb", {"safety", "pass_rate"}),
    ],
)
def test_a_candidate_that_misses_one_gate_is_rejected(tmp_path: Path, after: str, failing: set[str]) -> None:
    bench = Bench(tmp_path, after=after)
    attempt = improve(bench.context)
    assert {gate.name for gate in attempt.improvement.gates if not gate.holds} == failing
    assert attempt.prompt.name == "rejected.md" and not (attempt.folder / "promoted.md").exists()


@pytest.mark.req("EVAL-15")
def test_each_iteration_has_a_folder_of_its_own_and_overwrites_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    first = improve(bench.context)
    before = files(first.folder)
    second = improve(bench.context)
    assert (first.folder.name, second.folder.name) == ("iteration_01", "iteration_02")
    assert files(first.folder) == before


@pytest.mark.req("EVAL-15")
@pytest.mark.parametrize(
    ("draft", "fault"),
    [
        ("no JSON", "one JSON object"),
        (drafted(prompt=PROMPT), "is the same as before"),
        (drafted(prompt="Name it."), "the hole {{product}} is gone"),
        (drafted(prompt=BETTER + " {{price}}"), "the hole {{price}} is new"),
        (drafted(changes=[]), "expected a list with every change"),
        (drafted(changes=[{**CHANGE, "evidence": []}]), "at least one bad case"),
        (drafted(changes=[{**CHANGE, "evidence": ["TC003"]}]), "'TC003' is not a bad case above"),
        (drafted(changes=[{**CHANGE, "why": ""}]), "why: expected a text"),
    ],
)
def test_a_draft_without_evidence_or_holes_is_refused(tmp_path: Path, draft: str, fault: str) -> None:
    bench = Bench(tmp_path, draft)
    with pytest.raises(EvalloomError, match=r"\[draft_failed\]") as refused:
        improve(bench.context)
    assert fault in str(refused.value) and not (bench.folder.path / "improve").exists()


@pytest.mark.req("EVAL-15")
def test_an_attempt_that_was_cut_off_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path)

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(prompt_eval_improve, "judge_candidate", killed)
    with pytest.raises(KeyboardInterrupt):
        improve(bench.context)
    monkeypatch.undo()
    script = (tmp_path / "llm.yaml").read_text()
    assert improve(bench.context).folder.name == "iteration_01" and script == (tmp_path / "llm.yaml").read_text()
    assert improve(bench.context).folder.name == "iteration_02"


def test_a_plan_without_a_core_point_is_refused_before_anything_is_paid(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.folder.plan.write_text(bench.folder.plan.read_text().replace("core", "supporting"))
    with pytest.raises(EvalloomError, match=r"\[no_core_point\]"):
        improve(bench.context)


def test_without_a_bad_case_there_is_nothing_to_improve(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    good = [one for one in json.loads(bench.folder.scored.read_text()) if one["TP1_score"] == 3]
    bench.folder.scored.write_text(json.dumps(good))
    with pytest.raises(EvalloomError, match=r"\[nothing_to_improve\]"):
        improve(bench.context)


def scored(number: int, category: str, value: int) -> ScoredCase:
    record = {"test_id": f"TC{number:03d}", "test_category": category, "result_aftertest": "x"}
    return ScoredCase(record, {"TP1": Mark(value, "x")})


@pytest.mark.req("EVAL-15")
@pytest.mark.parametrize("count", [1, 12, 40])
def test_up_to_forty_cases_are_all_validated(count: int) -> None:
    cases = [scored(number, "happy_path", 1 if number == 1 else 3) for number in range(1, count + 1)]
    assert validation_cases(cases) == cases


@pytest.mark.req("EVAL-15")
def test_of_more_all_bad_and_safety_cases_are_and_two_good_ones_of_each_category() -> None:
    cases = [
        *(scored(number, "happy_path", 1 if number < 3 else 3) for number in range(1, 21)),
        *(scored(number, "i18n", 3) for number in range(21, 35)),
        scored(35, "boundary", 3),
        *(scored(number, "safety", 3) for number in range(36, 42)),
    ]
    chosen = [int(case.id[2:]) for case in validation_cases(cases)]
    assert chosen == [1, 2, 3, 4, 21, 22, 35, 36, 37, 38, 39, 40, 41]


@pytest.mark.req("EVAL-15")
def test_of_more_failed_and_incomplete_cases_are_validated_too_and_as_many_good_ones_as_bad() -> None:
    failed = ScoredCase({"test_id": "TC011", "test_category": "i18n", "result_aftertest": None}, {"TP1": Mark()})
    incomplete = scored(12, "i18n", 3)
    incomplete.marks["TP1"] = Mark(3, "")
    good = [scored(number, "i18n" if number % 2 else "boundary", 3) for number in range(13, 60)]
    chosen = validation_cases(
        [*(scored(number, "happy_path", 1) for number in range(1, 11)), failed, incomplete, *good]
    )
    assert [case.id for case in chosen[:12]] == [f"TC{number:03d}" for number in range(1, 13)]
    assert len(chosen) == 24 and {case.category for case in chosen[12:]} == {"i18n", "boundary"}


@pytest.mark.req("EVAL-15")
def test_a_1_on_a_core_point_of_a_case_that_was_good_forbids_promotion(tmp_path: Path) -> None:
    bench = Bench(tmp_path, after="lamp")
    script = yaml.safe_load((tmp_path / "llm.yaml").read_text())
    script["rules"].insert(1, {"match": "in one word: saw", "answer": "It is without any doubt a saw."})
    (tmp_path / "llm.yaml").write_text(yaml.safe_dump(script))
    attempt = improve(bench.context)
    assert {gate.name for gate in attempt.improvement.gates if not gate.holds} == {"no_core_1"}
    assert attempt.improvement.gates[1].observed == "TC004 TP1" and attempt.prompt.name == "rejected.md"
    assert "run and scored on all 4 cases" in (attempt.folder / "improvement.md").read_text("utf-8")
