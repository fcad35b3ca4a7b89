"""The types of the API, which mypy checks in scripts/check: a wrong one here is an error there."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type, get_type_hints

import pytest

import evalloom
from evalloom.api.options import RunFlags
from evalloom.settings import RunSettings

pytestmark = pytest.mark.req("WORK-15")


def script() -> None:
    """A script of a user."""
    results = evalloom.evaluate("cases.jsonl", str.upper, repeat=3, pass_if="2/3", tags=["a"], output=Path("x.html"))
    assert_type(results, evalloom.Results)
    assert_type(results.failures, list[evalloom.FailedRun])
    assert_type(results.save("x.csv"), Path)
    assert_type(evalloom.score(results, [{"contains": "x"}], judge="llm"), evalloom.Results)
    compared = evalloom.compare(results, "good", by=["tag", "bucket"], allowed_drop={"oral": 0.1})
    assert_type(compared, evalloom.BatchComparison)
    assert_type(compared.conclusion, str)
    assert_type(evalloom.stats(["a", results], by="tag", metric="score"), evalloom.BatchStats)
    assert_type(evalloom.report(results, "a.html", "b.csv", against=results), list[Path])
    assert_type(evalloom.baseline("good", results), Path)
    evalloom.evaluate("cases.jsonl", str.upper, repeat="3")  # type: ignore[arg-type]
    evalloom.evaluate("cases.jsonl", str.upper, repeats=3)  # type: ignore[call-arg]
    evalloom.stats("latest", metric="passes")  # type: ignore[arg-type]
    evalloom.compare("latest", by="tags")  # type: ignore[arg-type]


def test_options_are_all_typed() -> None:
    positional = {"profiles"}
    names = set(get_type_hints(RunFlags))
    assert names - {"profile", "timeout", "no_cache"} == {*RunSettings.__struct_fields__} - positional
    assert callable(script)
