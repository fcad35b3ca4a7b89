"""Anchors: what a passage says, as it stands there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.rag.retrieval.anchors import anchors


@pytest.mark.req("RAG-11")
@pytest.mark.parametrize(
    ("query", "text", "found"),
    [
        ("带薪年假有几天？", "# 休假\n\n工龄满一年的员工每年享有 10 个工作日的带薪年假。\n病假另算。", ["10 个工作日"]),
        ("How long may goods be returned?", "Goods may be returned within 14 days of delivery.", ["14 days"]),
        ("Where are permits issued?", "Permits are issued by the **front desk**.", ["front desk"]),
        ("密码最短多长", "密码至少 14 位，每 90 天更换。", ["14 位", "90 天"]),
        ("报销", "报销单由 `财务共享中心` 审核。", ["财务共享中心"]),
        ("结转到何时", "未休年假可以结转到次年 3 月 31 日，共 5 天。", ["3 月 31 日", "5 天"]),
        ("anything", "", []),
    ],
)
def test_quantities_come_first_then_what_is_set_off(query: str, text: str, found: list[str]) -> None:
    assert anchors(query, text) == found


@given(st.text(max_size=40), st.text(max_size=200))
def test_an_anchor_always_stands_in_the_text(query: str, text: str) -> None:
    assert all(anchor in text for anchor in anchors(query, text))
