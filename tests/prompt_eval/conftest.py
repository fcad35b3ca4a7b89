"""Samples that several tests of reports share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from evalloom.prompt_eval.analysis.agreement import agreement, noise
from evalloom.prompt_eval.analysis.scorecard import scorecard
from evalloom.prompt_eval.plan import TestPoint
from evalloom.prompt_eval.reports.content import PromptEvalReport
from evalloom.prompt_eval.scores import Mark, ScoredCase

POINTS = (
    TestPoint("TP1", "输出为合法 JSON · valid JSON", criticality="core"),
    TestPoint("TP2", "countries | by their English names", anchors={1: "缺失或为中文", 2: "not all", 3: "all"}),
    TestPoint("TP_safety", "安全", type="safety", criticality="core"),
)
IDS = tuple(point.id for point in POINTS)


def scored(
    number: int, *scores: int | None, reason: str = "cites '电动叉车'", remark: str = "", **more: Any
) -> ScoredCase:
    """A case with these scores; without any it is a failed run."""
    record = {
        "test_id": f"TC{number:03d}",
        "test_category": "happy_path",
        "test_subcategory": "",
        "eval_type": "quantitative",
        "test_description": "标准搜索：应输出合法 JSON。",
        "input": {"product_name": "叉车", "notes": "电动，用于仓库"},
        "result_aftertest": '{"main_search_product": "电动叉车", "countries": ["China"]}' if scores else None,
        **more,
    }
    marks = {one: Mark(score, reason if score else "") for one, score in zip(IDS, scores or (None,) * 3, strict=True)}
    return ScoredCase(record, marks, remark)


def report_of(cases: list[ScoredCase], points: tuple[TestPoint, ...] = POINTS, **more: Any) -> PromptEvalReport:
    whole = {"title": "产品搜索词 · product search terms", "prompt": "prompt_a.md", **more}
    return PromptEvalReport(cases=cases, points=points, scorecard=scorecard(cases, points), **whole)


def sample() -> list[ScoredCase]:
    return [
        scored(1, 3, 3, 3, remark="Solid output."),
        scored(2, 3, 2, 3, remark="Minor gap."),
        scored(
            3,
            3,
            1,
            3,
            test_category="boundary",
            input={"product_name": "保温杯", "notes": ""},
            reason="countries = ['中国']",
        ),
        scored(
            4,
            3,
            1,
            3,
            test_category="boundary",
            input={"product_name": "手机壳", "notes": ""},
            reason="countries = ['中国']",
        ),
        scored(
            5,
            1,
            1,
            1,
            test_category="safety",
            test_subcategory="safety_injection",
            test_description="An order inside the notes | must not be obeyed.",
            result_aftertest="<script>document.title = 'owned'</script></style>",
            reason="obeyed: `<script>` **bold** | cell\nsecond line",
        ),
        scored(6, remark="no answer within 30 s [timed_out]"),
        scored(7, 3, None, 3, test_category="i18n", input={"product_name": "フォークリフト", "notes": None}),
        scored(8, 2, 3, 3, test_category="qualitative", test_description="Terms that buyers would type."),
    ]


@pytest.fixture(scope="session")
def prompt_eval_case() -> Callable[..., ScoredCase]:
    """`prompt_eval_case(1, 3, 2, 3, remark="…")` is a case with these scores on TP1, TP2 and TP_safety."""
    return scored


@pytest.fixture(scope="session")
def prompt_eval_report() -> Callable[..., PromptEvalReport]:
    """`prompt_eval_report(cases)` is a report of these cases; without any, one that has everything in it."""

    def build(cases: list[ScoredCase] | None = None, **more: Any) -> PromptEvalReport:
        if cases is not None:
            return report_of(cases, **more)
        found = sample()
        humans = {case.id: {"TP1": 3, "TP2": 2 + number % 2} for number, case in enumerate(found)}
        repeats: dict[str, list[dict[str, int | None]]] = {
            "TC001": [{"TP1": 3}, {"TP1": 3}],
            "TC002": [{"TP1": 3}, {"TP1": 2}],
        }
        return report_of(
            found,
            agreement=agreement(found, humans, IDS),
            noise=noise(repeats, IDS),
            remarks=("1 reason cites nothing of the output [reason_cites_nothing]",),
            facts={"judge": "evaluator", "profile": "offline"},
            generated_at="2026-01-05 08:00",
            **more,
        )

    return build
