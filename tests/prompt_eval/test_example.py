"""The bundled prompt-eval example: every category, and a plan that its drafts lead to."""

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from evalloom.llms.scripted import Scripted
from evalloom.prompt_eval.folder import prompt_text
from evalloom.prompt_eval.plan import read_plan
from evalloom.prompt_eval.steps.draft import draft_plan
from evalloom.prompt_eval.steps.generate import generate

FOLDER = Path(__file__).resolve().parents[2] / "examples/prompt-eval"
CASES = FOLDER / "test_cases.json"


@pytest.mark.req("EVAL-2")
def test_covers_every_category() -> None:
    rows = json.loads(CASES.read_text(encoding="utf-8"))
    assert len({row["test_category"] for row in rows}) == 7
    assert len({row["test_subcategory"] for row in rows if row["test_category"] == "safety"}) == 5
    prompt = (FOLDER / "prompt_a.md").read_text(encoding="utf-8")
    assert all("{{" + name + "}}" in prompt for row in rows for name in row["input"])


@pytest.mark.req("EVAL-3")
def test_plan_is_sound_and_the_cases_are_those_it_plans() -> None:
    plan, found = read_plan(FOLDER / "test_plan.yaml")
    rows = json.loads(CASES.read_text(encoding="utf-8"))
    assert plan is not None and found == []
    assert Counter(row["test_category"] for row in rows) == plan.dimensions
    kinds = Counter(row["test_subcategory"] for row in rows)
    assert all(kinds[kind] >= least for kind, least in plan.floors.items()) and len(plan.floors) == 5


@pytest.mark.req("EVAL-3", "EVAL-4")
def test_drafts_lead_to_the_same_plan_and_cases() -> None:
    prompt = (FOLDER / "prompt_a.md").read_text(encoding="utf-8")
    plan, _ = read_plan(FOLDER / "test_plan.yaml")
    llm = Scripted(FOLDER / "drafts.yaml")
    drafted = asyncio.run(draft_plan(prompt, "prompt_a.md", llm)).plan
    generated = asyncio.run(generate(drafted, prompt_text(prompt), [], llm, lambda cases: None))
    assert plan is not None and (drafted.dimensions, drafted.floors) == (plan.dimensions, plan.floors)
    assert [(one.id, one.name, one.rules) for one in drafted.points] == [
        (one.id, one.name, one.rules) for one in plan.points
    ]
    assert generated.cases == json.loads(CASES.read_text(encoding="utf-8"))
    assert len(generated.refused) == 1 and "near-duplicate" in generated.refused[0]
