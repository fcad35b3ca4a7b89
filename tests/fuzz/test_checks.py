"""Checks: whatever is written, and whatever a target gives, there is a status and a reason, and no crash."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import strategies as st
from tests.fuzz.conftest import CATALOG, DATASETS, JSON, KEYS, TEXTS, fuzz, mutations

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Case, Check, Origin, Output, Record, Request, Response, Run
from evalloom.data.dialect import Dialect
from evalloom.engine.check_rules import check_rules
from evalloom.engine.score import score
from evalloom.matchers import Services
from evalloom.matchers.parse import OPTIONS

KINDS = [matcher.kind for matcher in CATALOG.matchers.all]
RULES = check_rules(CATALOG.matchers)
EXPECTED = [
    *(
        "x",
        "regex:^a",
        "contains:b",
        "semantic:c",
        "$.a[0]",
        1,
        0.5,
        True,
        None,
        ["a", "b"],
        {"a": "contains:x", "b": [1]},
    ),
    *({"type": "object", "properties": {"a": {"type": "string"}}}, {"path": "$.a", "value": 1}, {"min": 1, "max": 3}),
    *([{"name": "f", "arguments": {"a": 1}}], {"function": "f"}, "zh", "一百二十三", ["docs/a.md#x"]),
]
VALUES = JSON | st.sampled_from(
    [
        *("x", "a b\nc", '{"a": 1, "b": [1, 2]}', "```json\n[1]\n```", "一百二十三", "1,234.5", "sorry, no", ""),
        *([{"name": "f", "arguments": '{"a": 1}'}], {"a": "x", "b": [1], "sources": ["docs/a.md"]}, {"output": 1}),
    ]
)


async def judge(request: Request) -> Response:
    return Response('{"reason": "so", "score": 1, "pass": true}')


async def embed(texts: list[str]) -> list[list[float]]:
    return [[float(len(text)), 1.0] for text in texts]


SERVICES = Services(judge, "odd", embed, matchers=CATALOG.matchers)


def check_scores(case: Case, value: Any) -> None:
    output = Output(value, steps={"a": value}, aggregation=value, sources=value if isinstance(value, list) else [])
    scored = asyncio.run(score(case, Run("k", "c", output=output), SERVICES))
    # A set of checks has a verdict of its own.
    assert scored.status in ("passed", "failed", "unscored") and len(scored.verdicts) >= len(case.checks)
    for verdict in scored.verdicts:
        assert verdict.status in ("passed", "failed", "unscored")
        assert verdict.status == "passed" or verdict.reason
        assert verdict.score is None or 0 <= verdict.score <= 1
    json.dumps([verdict.score for verdict in scored.verdicts], allow_nan=False)


@fuzz(
    share=4,
    kind=st.sampled_from(KINDS),
    expected=st.sampled_from(EXPECTED) | JSON,
    value=VALUES,
    where=st.sampled_from(["output", "output.a", "steps.a", "aggregation", "sources", "output.b[0]"]),
    options=st.dictionaries(st.sampled_from(OPTIONS), st.sampled_from(EXPECTED) | JSON, max_size=2),
)
def test_every_kind_of_check_gives_a_verdict(kind: str, expected: Any, value: Any, where: str, options: Record) -> None:
    check = Check(kind, expected, where, options=options)
    RULES.why_unscored(check), RULES.needs(check)
    check_scores(Case("c", {"q": "x"}, (check,)), value)


WRITTEN: list[Record] = [
    {"contains": "x", "where": "output.a", "negate": True},
    {"kind": "regex", "expected": "^a+$", "name": "n", "weight": 2},
    {"numeric": 5, "tolerance": 0.1, "relative": True},
    {"json_path": "$.a[*]", "check": {"equals": 1}, "match": "all"},
    {"type": "not_contains", "value": ["a"], "options": {"case_sensitive": True}},
    {"length": {"min": 1, "max": 10}, "unit": "words"},
    {"json_schema": {"type": "object"}},
    {"judge": "is it polite?", "scale": [1, 5], "threshold": 0.5},
    {"latency": 5},
    {"tool_calls": [{"name": "f"}], "ordered": True},
]


@fuzz(
    written=mutations(st.sampled_from(WRITTEN), [*KINDS, *OPTIONS, "kind", "type", "where", "expected"], most=4),
    value=VALUES,
)
def test_a_written_check_is_parsed_or_refused(written: Any, value: Any) -> None:
    try:
        check = CATALOG.matchers.parse(written)
    except EvalloomError as error:
        assert error.code in ("bad_check", "unknown_check") and error.exit_code == 2
        return
    RULES.why_unscored(check), RULES.needs(check)
    check_scores(Case("c", {}, (check,)), value)


CHECKED = [
    (dialect, record)
    for seed in DATASETS
    for record in seed.records[:3]
    if isinstance(record, dict)
    for dialect in [CATALOG.formats.recognise(record)[0]]
    if any(dialect.to_case(one, Origin("f")).checks for one in dialect.multiplied(record))
]


@fuzz(pair=st.sampled_from(CHECKED), value=VALUES, data=st.data())
def test_the_checks_of_a_changed_record_give_verdicts(pair: tuple[Dialect, Record], value: Any, data: Any) -> None:
    record = data.draw(mutations(st.just(pair[1]), KEYS, most=4))
    if isinstance(record, dict):
        for one in pair[0].multiplied(record):
            check_scores(CATALOG.formats.case(pair[0], one, Origin("f")), value)


@fuzz(lists=st.lists(mutations(st.sampled_from(WRITTEN), ["kind", "where"]) | JSON, max_size=3), name=TEXTS)
def test_a_list_of_checks_in_a_record_is_read_whole(lists: list[Any], name: str) -> None:
    read = RULES.read_list(lists)
    assert len(read.checks) + len(read.wrong) == len(lists)
