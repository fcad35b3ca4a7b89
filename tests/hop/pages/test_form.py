"""The form of a contract and the card of a result, without a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalloom.hop import read_contract
from evalloom.hop.pages.card import card_of
from evalloom.hop.pages.form import fields_of, parse
from evalloom.ui.language import language

pytestmark = pytest.mark.req("HOP-21")
ENGLISH = language("en")
TABLE = """## Input

| field | type | required | meaning |
|---|---|---|---|
| text | string | yes | what to read |
| level | enum(low, high) | no | |
| amount | int (1-5) | no | |
| share | float [0, 1] | no | |
| is_new | bool | no | |
| tags | array | no | |
"""
YAML = """inputs:
  text: {type: string, description: what to read}
  level: {type: string, required: false, enum: [low, high]}
  amount: {type: int, required: false, minimum: 1, maximum: 5}
  share: {type: float, required: false, min: 0, max: 1}
  is_new: bool?
  tags: array?
"""


@pytest.mark.parametrize(("name", "text"), [("metainfo.md", TABLE), ("contract.yaml", YAML)])
def test_choices_limits_and_meanings_are_read_from_the_contract(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    inputs = read_contract(str(tmp_path / name)).inputs
    assert inputs["text"].description == "what to read" and inputs["level"].choices == ("low", "high")
    assert [(inputs[field].least, inputs[field].most) for field in ("amount", "share", "tags")] == [
        (1, 5),
        (0, 1),
        (None, None),
    ]
    assert [field.type for field in inputs.values()] == ["string", "string", "int", "float", "bool", "array"]


@pytest.mark.parametrize(
    ("entered", "inputs", "wrong"),
    [
        ({"text": "a\nb"}, {"text": "a\nb", "is_new": False}, []),
        ({"text": "a", "amount": "3", "share": "0.5", "is_new": "on", "tags": "[1]"}, None, []),
        ({}, None, ["text"]),
        ({"text": "a", "amount": "6"}, None, ["amount"]),
        ({"text": "a", "amount": "1.5", "level": "mid", "tags": "{}"}, None, ["level", "amount", "tags"]),
        ({"text": "a", "amount": "true", "share": "NaN", "tags": "[" * 100_000}, None, ["amount", "share", "tags"]),
    ],
)
def test_entered_texts_become_inputs_or_errors(tmp_path: Path, entered: Any, inputs: Any, wrong: list[str]) -> None:
    (tmp_path / "metainfo.md").write_text(TABLE, "utf-8")
    contract = read_contract(str(tmp_path / "metainfo.md"))
    parsed, errors = parse(contract, entered, ENGLISH)
    assert list(errors) == wrong and (inputs is None or parsed == inputs)
    fields = fields_of(contract, None, entered, errors)
    assert [field.value for field in fields] == [entered.get(field.name, "") for field in fields]


def test_without_a_contract_all_inputs_are_one_object() -> None:
    (field,) = fields_of(None, {"a": 1})
    assert parse(None, {field.name: field.value}, ENGLISH) == ({"a": 1}, {})
    assert parse(None, {field.name: "[1]"}, ENGLISH)[1]


def test_questions_and_summaries_are_the_first_field_that_has_one() -> None:
    card = card_of({"missing_info": ["when"], "clarification_needed": "", "summary": "s", "verification_summary": "v"})
    assert (card.questions, card.summary) == (["when"], "s")
    assert [field.name for field in card.fields] == ["clarification_needed", "verification_summary"]


@pytest.mark.parametrize(
    ("score", "most", "level"), [(4, 5, "good"), (3, 5, "fair"), (2, 5, "bad"), (0.9, 1, "good"), (60, 100, "fair")]
)
def test_a_score_has_its_scale_and_level(score: float, most: float, level: str) -> None:
    shown = card_of({"credit_score": score}, {"credit_score": 4}).score
    assert shown is not None and (shown.most, shown.level, shown.expected) == (most, level, 4)


@pytest.mark.parametrize("value", [None, 3, "text", [1], {}, {"score": True}, {"errors": []}, {"a": "x" * 100_000}])
def test_any_value_has_a_card(value: Any) -> None:
    card = card_of(value, {"a": 1, "b": 2})
    assert card.size >= len(card.raw) and all(len(field.value) <= 20_000 for field in card.fields)
