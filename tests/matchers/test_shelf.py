"""What every matcher does, whatever it is given."""

import asyncio
import inspect
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evalloom
from evalloom import catalog, matchers
from evalloom.core.model import Case, Check, Output, Request, Response, Run
from evalloom.engine.score import grade_now, score
from evalloom.matchers import Matcher, Services
from evalloom.matchers.base import CheckResult

ROOT = Path(__file__).resolve().parents[2]
MATCHERS = catalog.load().matchers.all
by_kind, why_unknown = catalog.load().matchers.by_kind, catalog.load().matchers.why_unknown
TEXTS = st.text(max_size=12) | st.sampled_from(
    ["(", "[1, 2]", '{"a": 1}', "regex:(", "semantic:x", "contains:", "一百二十三", "$.a[*]", "zh", "output", "\ud800"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OPTIONS = st.dictionaries(
    st.sampled_from(
        [
            *(
                "threshold",
                "weight",
                "negate",
                "tolerance",
                "relative",
                "ignore_fields",
                "strict",
                "min",
                "max",
                "unit",
            ),
            *("scale", "variant", "reference", "normalise", "case_sensitive", "check", "match", "pick", "top_k", "n"),
            *("set_threshold", "set_weight", "ordered", "exact", "all", "punctuation", "function", "timeout_s"),
        ]
    ),
    JSON,
    max_size=3,
)


async def odd_judge(request: Request) -> Response:
    return Response('{"reason": "so", "score": 1, "pass": true}')


async def odd_embedder(texts: list[str]) -> list[list[float]]:
    return [[float(len(text)), 1.0] for text in texts]


@pytest.mark.parametrize("matcher", MATCHERS, ids=lambda matcher: matcher.kind)
@settings(max_examples=settings().max_examples // 3 + 1)
@given(expected=JSON, value=JSON, options=OPTIONS, where=st.sampled_from(["output", "output.a[0]", "sources", "steps"]))
def test_no_matcher_raises(matcher: Matcher, expected: Any, value: Any, options: Any, where: str) -> None:
    case = Case("c", {"q": "x"}, (Check(matcher.kind, expected, where, options=options),))
    output = Output(value, sources=value if isinstance(value, list) else [])
    services = Services(odd_judge, "odd", odd_embedder, matchers=catalog.load().matchers)
    scored = asyncio.run(score(case, Run("k", "c", output=output), services))
    assert scored.status in ("passed", "failed", "unscored")
    assert scored.verdicts[0].status == "passed" or scored.verdicts[0].reason


@pytest.mark.slow
@pytest.mark.parametrize("matcher", MATCHERS, ids=lambda matcher: matcher.kind)
def test_a_value_deeper_than_the_stack(matcher: Matcher) -> None:
    value: Any = "x"
    for _ in range(100_000):
        value = [value]
    case = Case("c", {}, (Check(matcher.kind, value), Check(matcher.kind, "x"), Check(matcher.kind, {"type": "array"})))
    services = Services(matchers=catalog.load().matchers)
    scored = asyncio.run(score(case, Run("k", "c", output=Output(value)), services))
    assert len(scored.verdicts) == 3


def test_matchers_are_told_apart_and_say_what_they_do() -> None:
    kinds = [matcher.kind for matcher in MATCHERS]
    assert len(set(kinds)) == len(kinds)
    for matcher in MATCHERS:
        assert by_kind(matcher.kind) is matcher
        assert matcher.summary and (matcher.grade or matcher.ask)
        assert matcher.waits is (matcher.grade is None)


def test_each_kind_is_loaded_from_the_module_that_has_it() -> None:
    # The kinds are listed apart from the modules, which are imported late: the two lists must not drift apart.
    modules = {path.stem for path in Path(inspect.getfile(matchers)).parent.glob("*.py")}
    loaded = [import_module(f"evalloom.matchers.{name}") for name in modules - {"__init__"}]
    own = [matcher for module in loaded for matcher in getattr(module, "MATCHERS", ())]
    assert own and all(matchers.by_kind(matcher.kind) is matcher for matcher in own)


def test_a_run_imports_only_the_parts_that_it_uses(tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT / "examples" / "first", tmp_path / "first")
    command = [sys.executable, "-X", "importtime", "-m", "evalloom", "run"]
    imported = {
        line.rpartition("|")[2].strip()
        for line in subprocess.run(command, cwd=folder, stderr=subprocess.PIPE, text=True).stderr.splitlines()
    }
    assert {"evalloom.targets.prompt", "evalloom.llms.scripted", "evalloom.matchers.text"} <= imported
    parts = {name for name in imported if re.match(r"evalloom\.(targets|llms|matchers|core\.http)\.", name)}
    unused = "targets.python targets.endpoint targets.command llms.openai llms.anthropic llms.cassette llms.answer_json"
    unused += " matchers.structural matchers.judge matchers.limits matchers.nested matchers.normalise core.http.client"
    assert not parts & {f"evalloom.{name}" for name in unused.split()}


def test_every_kind_is_documented() -> None:
    page = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
    table = page.partition("## Kinds")[2].split("\n\n")[1]
    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == sorted(matcher.kind for matcher in MATCHERS)


def test_what_dialects_ask_for_is_scored_or_explained() -> None:
    source = Path(inspect.getfile(evalloom)).parent
    asked = {kind for file in source.rglob("*.py") for kind in re.findall(r'Check\("(\w+)"', file.read_text("utf-8"))}
    assert asked and all(by_kind(kind) or kind == "assert_file" for kind in asked)
    for kind in ("ruby", "assert_file", "moderation", "webhook", "has_matching_span", "meteor"):
        scored = grade_now(Case("c", {}, (Check(kind),)), Run("k", "c"), Services())
        assert scored is not None and scored.status == "unscored"
        assert repr(kind) in scored.verdicts[0].reason


def test_an_unknown_kind_proposes_a_known_one() -> None:
    assert why_unknown("contans").endswith("Did you mean 'contains'?")
    assert "known are equals" in why_unknown("zzzzzz")
    assert CheckResult(None).passed is None
