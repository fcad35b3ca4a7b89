"""Checks in JavaScript: what the code gets, and how what it returns is scored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from evalloom.core.errors import EvalloomError
from evalloom.core.model import Case, Check, Origin, Output
from evalloom.matchers import CheckResult, MatchContext, Matchers, Services
from evalloom.matchers.negation import negate

pytestmark = pytest.mark.req("WORK-31")
MATCHERS = Matchers()


def grade(
    code: str, output: Any = "hello", folder: str = "", services: Services | None = None, **options: Any
) -> CheckResult:
    check = Check("javascript", code, options=options)
    case = Case("a", {"topic": "tea"}, raw={"description": "first"}, origin=Origin(f"{folder}/cases.yaml"))
    trace = [{"type": "llm", "llm": "echo", "request": {"messages": [{"role": "user", "content": "Say tea"}]}}]
    context = MatchContext(output, Output(output), case, 0.25, trace=trace)
    matcher = MATCHERS.by_kind("javascript")
    assert matcher and matcher.grade and matcher.ask
    result = matcher.grade(check, context)
    result = asyncio.run(matcher.ask(check, context, services or Services())) if result is None else result  # type: ignore[arg-type]
    return negate(check, output, result)


@pytest.mark.parametrize(
    ("code", "options", "passed", "score"),
    [
        ("output.length > 3", {}, True, None),
        ("output.length > 30", {}, False, None),
        ("0.4", {}, True, 0.4),
        ("0", {}, False, 0),
        ("-1", {}, False, -1),
        ("0.4", {"threshold": 0.5}, False, 0.4),
        ("0.5", {"threshold": 0.5}, True, 0.5),
        ("0", {"threshold": 0}, True, 0),
        ("12", {}, True, 12),
        ("({ pass: true, score: 0.2, reason: 'r' })", {"threshold": 0.5}, True, 0.2),
        ("({ pass: false, score: 1, reason: 'r' })", {}, False, 1),
        ("output.length > 3", {"negate": True}, False, None),
        ("0.4", {"negate": True}, False, 0.4),
        ("({ pass: false, score: 0.3, reason: 'r' })", {"negate": True}, True, 0.3),
    ],
)
def test_results_are_scored_as_in_promptfoo(
    code: str, options: dict[str, Any], passed: bool, score: float | None
) -> None:
    result = grade(code, **options)
    assert (result.passed, result.score) == (passed, score)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("'yes'", "got 'yes'"),
        ("[1]", "got [1]"),
        ("const a = 1", "does it lack a return?"),
        ("({ pass: true, reason: 'r' })", "expected an object with score as a number"),
        ("({ pass: 1, score: 1, reason: 'r' })", "expected an object with pass as true or false"),
        ("({ pass: true, score: 1 })", "expected an object with reason as a text"),
        ("nope.x", "nope is not defined (line 1)"),
        ("output.length / 0", "expected a result that is JSON"),
        ("let a;\nfor (;;);", "took longer than 1 s"),
    ],
)
def test_code_that_fails_fails_the_check_also_where_it_is_negated(code: str, reason: str) -> None:
    assert grade(code).passed is False
    assert reason in grade(code).reason
    assert grade(code, negate=True).passed is False


def test_the_context_has_what_promptfoo_gives() -> None:
    facts = "context.prompt === 'Say tea' && context.vars.topic === 'tea' && context.test.description === 'first'"
    assert grade(
        f"{facts} && context.providerResponse.latencyMs === 250 && context.config.most === 3", config={"most": 3}
    ).passed
    assert grade("(text, given) => given.provider.id === 'echo' && given.logProbs === null").passed
    assert grade("output.a === 1", {"a": 1}).passed


def test_a_file_is_found_beside_the_data_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "most.json").write_text("9")
    (tmp_path / "check.js").write_text("exports.short = (o) => o.length < require('./most.json')")
    assert grade("file://check.js:short", folder=str(tmp_path)).passed
    (tmp_path / "sub").mkdir()
    outside = grade("file://../check.js:short", folder=str(tmp_path / "sub"))
    assert outside.passed is None
    assert "outside of" in outside.reason
    missing = grade("file://none.js", folder=str(tmp_path))
    assert missing.passed is None
    assert "cannot be read" in missing.reason


def test_a_file_of_the_settings_is_relative_to_their_folder(tmp_path: Path) -> None:
    (tmp_path / "check.js").write_text("module.exports = (o) => o === 'hello'")
    check = Check("javascript", "file://check.js")
    services = Services(functions=MATCHERS.functions_of([check], tmp_path))
    assert grade("file://check.js", folder="/elsewhere", services=services).passed
    with pytest.raises(EvalloomError, match=r"none\.js"):
        MATCHERS.functions_of([Check("javascript", "file://none.js")], tmp_path)


def test_code_with_its_file_is_called_by_the_name_of_its_function() -> None:
    code = "module.exports = { yes: () => true, no: () => { throw new Error('never') } }"
    assert grade(code, file="checks.js", function="yes").passed
    assert grade(code, file="checks.js", function="no").reason == "checks.js:no: never (checks.js:1)"


def test_without_the_engine_checks_are_unscored(monkeypatch: pytest.MonkeyPatch) -> None:
    from evalloom.core.javascript import run

    monkeypatch.setattr(run, "why_unavailable", lambda: f"not installed: {run.INSTALL}")
    result = grade("true")
    assert result.passed is None
    assert "pip install 'evalloom[javascript]'" in result.reason


def test_a_settings_check_may_have_a_config() -> None:
    check = MATCHERS.parse({"not-javascript": "output.length < context.config.most", "config": {"most": 3}})
    assert (check.kind, check.options["negate"], check.options["config"]) == ("javascript", True, {"most": 3})
