"""Why a file is read as its dialect, in Chinese."""

from __future__ import annotations

import pytest

from evalloom.pages.chinese import PHRASES
from evalloom.ui.language import language
from evalloom.web.dialect_reason import translate


@pytest.mark.req("WORK-23")
@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("it is a promptfoo document", "这是 promptfoo 文档"),
        ("it is an openai-evals document", "这是 openai-evals 文档"),
        ("it has 'input' and 'result' or 'error'", "含有 'input'，以及 'result' 或 'error'"),
        ("it has no records", "没有记录"),
        ("the mark of another package", "the mark of another package"),
    ],
)
def test_a_reason_is_translated(reason: str, expected: str) -> None:
    assert translate(reason, language("zh").extended(PHRASES)) == expected
    assert translate(reason, language("en")) == reason
