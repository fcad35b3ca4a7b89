"""`kill -9` in the middle of running and of scoring a prompt: the same command goes on, and pays for nothing twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faults.conftest import Suite
    from tests.llms.serving import Server

pytestmark = pytest.mark.slow

CASES, CONCURRENCY = 300, 8
PLAN = """\
prompt: prompt.md
dimensions: {happy_path: 300}
test_points: [{id: TP1, name: apt, criticality: core, anchors: {1: wrong, 2: vague, 3: apt}}]
"""
PROMPT_B = """\
TP1: {{test_case}} {{result_aftertest}}
say: {"TP1_score": 3, "TP1_reason": "it says 'output'", "overall_comment": "Good."}
"""


def case(number: int) -> dict[str, object]:
    return {
        "test_id": f"TC{number:03d}",
        "test_category": "happy_path",
        "test_subcategory": "",
        "eval_type": "quantitative",
        "test_description": f"Case {number}.",
        "input": {"q": f"output {number}"},
    }


@pytest.mark.req("EVAL-1", "EVAL-5")
def test_both_steps_go_on_where_they_were_killed(suite: Suite, serve: Callable[..., Server]) -> None:
    server = serve(latency_ms=20, p429=0.05)
    suite.settings(server.url)
    suite.cases(["the settings name them, and nobody reads them"])
    suite.write("test_plan.yaml", PLAN)
    suite.write("prompt.md", "Case {{q}} say: {{q}}")
    suite.write("prompt_b.md", PROMPT_B)
    suite.write("test_cases.json", json.dumps([case(number) for number in range(1, CASES + 1)]))
    for kills, (step, answered) in enumerate([("run", 0), ("score", CASES)], 1):
        process = suite.start("prompt-eval", step, ".", "-j", str(CONCURRENCY))
        while len(suite.batches()) < (2 if answered else 1):
            assert process.poll() is None
        suite.wait_for_runs(100, process)
        process.kill()
        process.communicate()
        done = suite.run("prompt-eval", step, ".", "-j", str(CONCURRENCY), "--json")
        assert done.returncode == 0, done.stderr
        stats = server.stats()
        # What was in flight when it was killed is answered once more, and nothing else.
        assert stats["answered"] <= answered + CASES + kills * CONCURRENCY and stats["distinct"] == answered + CASES
    scored = json.loads((suite.folder / "final_scored_results.json").read_text("utf-8"))
    assert [one["result_aftertest"] for one in scored] == [f"output {number}" for number in range(1, CASES + 1)]
    assert {one["total_score"] for one in scored} == {3}
