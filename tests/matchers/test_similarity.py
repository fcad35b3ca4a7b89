"""Likeness of meaning."""

import asyncio
from typing import Any

import pytest

from evalloom.core.errors import CallError
from evalloom.core.model import Case, Check, Output, Request, Response
from evalloom.matchers import CheckResult, MatchContext, Services, by_kind
from evalloom.matchers.similarity import likeness

VECTORS = {"cat": [1.0, 0.0], "kitten": [0.8, 0.6], "car": [0.0, 1.0]}


async def embed(texts: list[str]) -> list[list[float]]:
    return [VECTORS[text] for text in texts]


def ask(check: Check, value: Any, services: Services) -> CheckResult:
    async def run() -> CheckResult:
        matcher = by_kind(check.kind)
        assert matcher is not None and matcher.ask is not None
        return await matcher.ask(check, MatchContext(value, Output(value), Case("c", {})), services)

    return asyncio.run(run())


def test_likeness() -> None:
    assert likeness([3, 4], [3, 4]) == pytest.approx(1)
    assert likeness([1, 2], [3, 4], "dot") == 11
    assert likeness([0, 0], [3, 4], "euclidean") == pytest.approx(1 / 6)
    assert likeness([0, 0], [1, 1]) == 0


def test_similarity() -> None:
    services = Services(embed=embed)
    found = ask(Check("similarity", "cat", options={"threshold": 0.8}), "kitten", services)
    assert found.passed and found.score == pytest.approx(0.8)
    assert ask(Check("similarity", ["car", "cat"]), "cat", services).passed
    assert ask(Check("similarity", "car", options={"variant": "euclidean"}), "cat", services).passed is False
    assert ask(Check("similarity", "car", options={"variant": "manhattan"}), "cat", services).passed is None


def test_without_embeddings() -> None:
    async def fail(texts: list[str]) -> list[list[float]]:
        raise CallError("refused", "no such model")

    async def ragged(texts: list[str]) -> list[list[float]]:
        return [[1.0] * (number + 1) for number, _ in enumerate(texts)]

    assert "embeddings:" in ask(Check("similarity", "x"), "x", Services()).reason
    assert "[refused]" in ask(Check("similarity", "x"), "x", Services(embed=fail)).reason
    assert ask(Check("similarity", "x"), "x", Services(embed=ragged)).passed is None


def test_semantic_asks_the_judge_where_there_are_no_embeddings() -> None:
    async def judge(request: Request) -> Response:
        assert "means the same" in request.messages[1]["content"]
        return Response('{"reason": "alike", "pass": true}')

    assert ask(Check("semantic", "cat"), "kitten", Services(judge=judge)).passed
    assert ask(Check("semantic", "cat"), "kitten", Services(embed=embed)).passed
    assert ask(Check("semantic", "cat", options={"threshold": 0.9}), "kitten", Services(embed=embed)).passed is False
    assert ask(Check("semantic", "cat"), "kitten", Services()).passed is None
