"""The style of pages: what it costs a browser before it shows anything."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import evalloom

STYLES = sorted(Path(evalloom.__file__).parent.glob("**/pages/static/*.css"))


@pytest.mark.req("WORK-20")
@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.name)
def test_text_has_few_sizes_and_two_weights(style: Path) -> None:
    rules = style.read_text("utf-8")
    assert set(re.findall(r"font-size: ([\d.]+rem)", rules)) <= {".8125rem", ".9375rem", "1.125rem", "1.5rem", "2rem"}
    assert set(re.findall(r"font-weight: (\w+)", rules)) <= {"400", "600"}
