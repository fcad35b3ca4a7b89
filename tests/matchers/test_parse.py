"""Checks as people write them."""

from typing import Any

import pytest

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Check
from evalloom.matchers import parse_check


@pytest.mark.parametrize(
    ("written", "check"),
    [
        ({"contains": "x"}, Check("contains", "x")),
        ({"kind": "contains", "expected": "x", "where": "output.a"}, Check("contains", "x", "output.a")),
        ({"type": "contains-all", "value": ["x"], "weight": 2}, Check("contains_all", ["x"], options={"weight": 2})),
        ({"not_contains": "x"}, Check("contains", "x", options={"negate": True})),
        ({"type": "not-regex", "value": "x"}, Check("regex", "x", options={"negate": True})),
        ({"not_contains": "x", "negate": True}, Check("contains", "x", options={"negate": False})),
        (
            {"judge": "polite?", "scale": [1, 3], "name": "TP1"},
            Check("judge", "polite?", name="TP1", options={"scale": [1, 3]}),
        ),
        ({"similar": "x", "threshold": 0.9}, Check("similarity", "x", options={"threshold": 0.9})),
        ({"is_json": None}, Check("is_json")),
        (
            {"json_path": "$.a", "check": {"numeric": 3}},
            Check("json_path", "$.a", options={"check": Check("numeric", 3)}),
        ),
    ],
)
def test_ways_to_write_a_check(written: Any, check: Check) -> None:
    assert parse_check(written) == check


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"contans": "x"}, "Did you mean 'contains'.*unknown_check"),
        ({"kind": "zzzzzz"}, "known are equals"),
        ({"contains": "x", "regex": "y"}, "expected one kind"),
        ({"contains": "x", "weight": -1}, "weight"),
        ({"contains": "x", "threshold": "high"}, "threshold"),
        ({"contains": "x", "negate": "yes"}, "negate"),
        ({"contains": "x", "where": 3}, "where"),
        ({"kind": 3}, "kind"),
        ({"name": "x"}, "expected a kind"),
        ("contains x", "expected an object.*bad_check"),
        ({"contains": "x", "wher": "output.a"}, "Did you mean 'where'.*bad_check"),
        ({"length": 3, "unti": "words"}, "Did you mean 'unit'.*bad_check"),
        ({"length": {"maxx": 3}}, "Did you mean 'max'.*bad_check"),
        ({"contains": "x", "zzzz": 1}, "known are weight"),
        ({"kind": "equals"}, "'expected'.*bad_check"),
        ({"json_path": "$.a", "check": {"numbr": 3}}, "unknown_check"),
    ],
)
def test_what_is_refused(written: Any, said: str) -> None:
    with pytest.raises(EvalloomError, match=said) as refused:
        parse_check(written)
    assert refused.value.exit_code == 2
