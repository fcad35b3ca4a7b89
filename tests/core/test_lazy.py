"""Patterns that are compiled on first use."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import evalloom
from evalloom.core.lazy import lazy_pattern


def test_a_lazy_pattern_searches_like_a_compiled_one() -> None:
    pattern = lazy_pattern(r"(?P<word>[a-z]+) (\d+)", re.IGNORECASE)
    match = pattern.search("see Page 12")
    assert match is not None and match.groups() == ("Page", "12")
    assert pattern.sub("-", "Page 12, page 3") == "-, -"
    assert [found.group() for found in pattern.finditer("a 1 b 2")] == ["a 1", "b 2"]
    assert pattern.pattern == r"(?P<word>[a-z]+) (\d+)" and pattern.flags & re.IGNORECASE


def test_a_lazy_pattern_of_bytes() -> None:
    assert lazy_pattern(rb"\d+").findall(b"1 and 23") == [b"1", b"23"]


def test_a_lazy_pattern_is_compiled_by_its_first_use() -> None:
    pattern = lazy_pattern("(")
    try:
        pattern.search("x")
    except re.error:
        return
    raise AssertionError("an invalid pattern is found when it is used")


def test_every_lazy_pattern_of_the_package_is_valid() -> None:
    calls = [
        node
        for path in Path(evalloom.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "lazy_pattern"
    ]
    literals = [call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)]
    assert len(literals) > 100
    for literal in literals:
        assert isinstance(literal, str | bytes)
        re.compile(literal)
