"""The result of a hoplet as a card: its score, its summary, its questions, tables of its lists, and other fields."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Record
from evalloom.hop.results.rows import meets

QUESTIONS = ("clarification_questions", "clarification_needed", "missing_info")
SUMMARIES = ("answer", "summary", "verification_summary", "presentation", "problem_summary")
"""The fields that people use for questions and for a summary; the first that has a value is shown."""
MOST_SHOWN = 20_000
"""Characters of a text that a card shows; the raw JSON can be downloaded."""
NOTHING_EXPECTED: Mapping[str, Any] = MappingProxyType({})
_MOST_ROWS = 200
_SCORE = lazy_pattern(r"score|rating|评分|得分|分数")
_GOOD, _FAIR = 0.75, 0.5


class Score(Struct, frozen=True):
    """A score on its scale."""

    name: str
    value: float
    most: float
    level: str
    """`good`, `fair` or `bad`."""
    expected: float | None = None

    @property
    def share(self) -> float:
        return min(1.0, max(0.0, self.value / self.most))


class ItemTable(Struct, frozen=True):
    """A list of objects as a table."""

    name: str
    total: int
    columns: list[str]
    rows: list[list[str]]


class ShownField(Struct, frozen=True):
    """A field of a result, against its expected value if there is one."""

    name: str
    value: str
    size: int
    """Characters of the whole value; `value` has at most the first `MOST_SHOWN`."""
    expected: str | None = None
    is_equal: bool | None = None


class Card(Struct, frozen=True):
    """A result, ready to be shown."""

    score: Score | None
    summary: str
    questions: list[str]
    tables: list[ItemTable]
    fields: list[ShownField]
    raw: str
    size: int
    """Characters of the whole JSON."""


def card_of(value: Any, expected: Record | None = None) -> Card:
    """Return the card of a result. Every field is shown once, and the raw JSON has them all."""
    raw = msgspec.json.format(msgspec.json.encode(value)).decode()
    expected = expected or {}
    if not isinstance(value, dict):
        shown = [field_of("", value, expected, value)] if value is not None else []
        return Card(None, "", [], [], shown, raw[:MOST_SHOWN], len(raw))
    score_name = next((name for name, item in value.items() if _SCORE.search(name.lower()) and _is_number(item)), "")
    question_name = next((name for name in QUESTIONS if value.get(name)), "")
    summary_name = next((name for name in SUMMARIES if isinstance(value.get(name), str) and value[name]), "")
    tables = [_table(name, item) for name, item in value.items() if _is_table(name, item)]
    used = {question_name, *([summary_name] if summary_name not in expected else []), *(table.name for table in tables)}
    score = _score(score_name, value[score_name], expected.get(score_name)) if score_name else None
    if score is not None and (score.expected is not None or score_name not in expected):
        used.add(score_name)
    names = [name for name in (*value, *(name for name in expected if name not in value)) if name not in used]
    fields = [field_of(name, value.get(name), expected, value) for name in names]
    return Card(
        score,
        value[summary_name][:MOST_SHOWN] if summary_name in used and summary_name else "",
        _questions(value[question_name]) if question_name else [],
        tables,
        fields,
        raw[:MOST_SHOWN],
        len(raw),
    )


def field_of(name: str, value: Any, expected: Mapping[str, Any] = NOTHING_EXPECTED, result: Any = None) -> ShownField:
    """Return a value as a text of limited length, against what is expected of it in the whole result."""
    text = text_of(value)
    if name not in expected:
        return ShownField(name, text[:MOST_SHOWN], len(text))
    wanted = text_of(expected[name])[:MOST_SHOWN]
    return ShownField(name, text[:MOST_SHOWN], len(text), wanted, meets(name, expected[name], result))


def text_of(value: Any) -> str:
    """Return a text as it is, and all else as JSON; nothing for None."""
    return "" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _score(name: str, value: float, expected: Any) -> Score:
    """Place a score on the scale that fits it: 1, 5, 10 or 100. On five points, 4 is good and 3 is fair (HOP-17)."""
    most = next(
        (most for most in (1.0, 5.0, 10.0, 100.0) if value <= most and (most > 1 or isinstance(value, float))), 0
    )
    most = most or float(value)
    share = value / most if most else 0.0
    level = "good" if share >= _GOOD else "fair" if share >= _FAIR else "bad"
    return Score(name, value, most, level, float(expected) if _is_number(expected) else None)


def _questions(value: Any) -> list[str]:
    items = value if isinstance(value, list) else [value]
    return [text_of(item)[:2_000] for item in items[:50]]


def _is_table(name: str, value: Any) -> bool:
    if not isinstance(value, list):
        return False
    return all(isinstance(item, dict) for item in value) if value else name == "errors"


def _table(name: str, items: list[Record]) -> ItemTable:
    columns = [*dict.fromkeys(key for item in items[:_MOST_ROWS] for key in item)][:12]
    rows = [[text_of(item[key])[:2_000] if key in item else "" for key in columns] for item in items[:_MOST_ROWS]]
    return ItemTable(name, len(items), columns, rows)
