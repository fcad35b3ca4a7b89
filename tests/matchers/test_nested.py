"""Checks on parts of a JSON output."""

import asyncio
from typing import Any

import pytest

from evalloom.core.model import Case, Output, Request, Response, Run, Scored
from evalloom.engine.score import grade_now, score
from evalloom.matchers import Services, parse_check
from evalloom.matchers.nested import BadPath, find_all

ORDER = {"items": [{"price": 3, "name": "a"}, {"price": 5, "name": "b"}], "a.b": {"c": 1}}


def scored(written: Any, value: Any = ORDER, services: Services | None = None) -> Scored:
    case = Case("c", {}, (parse_check(written),))
    run = Run("k", "c", output=Output(value))
    return grade_now(case, run, services or Services()) or asyncio.run(score(case, run, services or Services()))


def test_paths() -> None:
    assert find_all("$.items[*].price", ORDER) == [("$.items[0].price", 3), ("$.items[1].price", 5)]
    assert find_all("items[-1].name", ORDER) == [("$.items[-1].name", "b")]
    assert find_all("$['a.b'].*", ORDER) == [("$.a.b.c", 1)]
    assert find_all("$.none", ORDER) == []
    with pytest.raises(BadPath):
        find_all("$..price", ORDER)


def test_a_place_that_is_there_or_not() -> None:
    assert scored({"json_path": "$.items"}).status == "passed"
    assert scored({"json_path": "$.items"}, 'Sure: {"items": []}').status == "passed"
    assert scored({"json_path": "$.other"}).status == "failed"
    assert scored({"not_json_path": "$.other"}).status == "passed"
    assert scored({"json_path": "$["}).status == "unscored"


def test_a_further_check_on_every_place() -> None:
    assert scored({"json_path": "$.items[*].price", "check": {"numeric": None, "min": 3}}).status == "passed"
    failed = scored({"json_path": "$.items[*].price", "check": {"numeric": 3}})
    assert failed.status == "failed" and failed.verdicts[0].mismatches[0].path == "$.items[1].price"
    assert scored({"json_path": "$.items[*].price", "check": {"numeric": 3}, "match": "any"}).status == "passed"
    assert scored({"json_path": "$.items[*].name", "check": {"not_equals": "z"}}).status == "passed"
    assert scored({"json_path": "$.items[*].name", "check": {"not_equals": "a"}}).status == "failed"


def test_a_further_check_may_ask() -> None:
    async def judge(request: Request) -> Response:
        return Response('{"reason": "fine", "pass": true}')

    written = {"json_path": "$.items[*].name", "check": {"judge": "a name"}}
    assert scored(written, services=Services(judge=judge)).status == "passed"
    assert scored(written).status == "unscored"
