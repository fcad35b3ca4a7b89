"""Documents that wrap a list of records."""

from typing import Any

import pytest

from evalloom.core.model import Remark
from evalloom.data.wrapper import expand_wrapper


def test_records_come_with_their_path() -> None:
    found = expand_wrapper(
        {"canary": "x", "examples": [{"input": "1 + 1", "target": "2"}, {"input": "2", "target": "2"}]}
    )
    assert found is not None
    assert list(found) == [
        (("examples", 0), {"input": "1 + 1", "target": "2"}),
        (("examples", 1), {"input": "2", "target": "2"}),
    ]


@pytest.mark.parametrize(
    "document",
    [
        {"name": "no list"},
        {"examples": []},
        {"examples": ["text", "text"]},
        {"examples": [{"input": "1"}], "cases": [{"input": "2"}]},
        {"question": "a case with", "items": [{"name": "things of its own"}]},
        {"id": 1, "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]},
        {"id": 1, "conversations": [{"role": "user", "content": "Hi"}]},
    ],
)
def test_what_wraps_no_records_is_left_alone(document: dict[str, Any]) -> None:
    assert expand_wrapper(document) is None


def test_what_is_no_object_is_named() -> None:
    remark = list(expand_wrapper({"data": [{"input": "1"}, "stray"]}) or ())[1]
    assert isinstance(remark, Remark)
    assert (remark.code, remark.path) == ("json_not_object", ("data", 1))
    assert remark.message == "data[1]: expected an object, got 'stray'"
