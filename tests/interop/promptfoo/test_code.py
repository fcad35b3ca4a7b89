"""Code of promptfoo's tests: Python asserts, files of expected values, transforms."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from evalloom import catalog
from evalloom.core.model import Case, Origin, Output, Request, Response, Run, Scored
from evalloom.engine.score import grade_now, score
from evalloom.engine.scoring_function import named_scores
from evalloom.interop.promptfoo.derived import definitions, with_derived
from evalloom.interop.promptfoo.dialect import DIALECT
from evalloom.matchers import Services

pytestmark = pytest.mark.req("WORK-31")
MATCHERS = catalog.load().matchers


def scored(record: dict[str, Any], output: Any, allow_code: bool = True) -> Scored:
    case = DIALECT.to_case({"vars": {"city": "Paris"}, **record}, Origin("tests.jsonl"))
    services = Services(allow_code=allow_code, matchers=MATCHERS)
    return asyncio.run(score(case, Run("k", "c", output=Output(output)), services))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("evalloom.core.process_state._ours", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("code", "threshold", "status", "value"),
    [
        ("len(output) > 2", None, "passed", 1.0),
        ("'{{ city }}' in output", None, "passed", 1.0),
        ("len(output) / 10", None, "passed", 0.9),
        ("0", None, "failed", 0.0),
        ("0.4", 0.5, "failed", 0.4),
        ("'true'", None, "passed", 1.0),
        ("{'pass': False, 'score': 0.2, 'reason': 'no'}", None, "failed", 0.2),
        ("{'pass_': True, 'score': 0.2, 'reason': 'no'}", 0.5, "failed", 0.2),
        ("context['vars']['city'] == 'Paris'", None, "passed", 1.0),
        ("x = output.split()\nreturn len(x) == 2", None, "passed", 1.0),
        ("if 'P' in output:\n  return True\nreturn False", None, "passed", 1.0),
        ("None", None, "failed", 0.0),
        ("1 / 0", None, "failed", 0.0),
    ],
)
def test_python_code_returns_a_verdict(code: str, threshold: Any, status: str, value: float) -> None:
    more = {} if threshold is None else {"threshold": threshold}
    result = scored({"assert": [{"type": "python", "value": code, **more}]}, "Paris now")
    assert (result.verdicts[0].status, result.verdicts[0].score) == (status, value), result.verdicts[0].reason


def test_python_code_needs_to_be_allowed() -> None:
    result = scored({"assert": [{"type": "python", "value": "True"}]}, "a", allow_code=False)
    assert result.status == "unscored" and "--allow-code" in result.verdicts[0].reason


def test_a_file_of_python_has_a_function_with_a_context(folder: Path) -> None:
    (folder / "limits.py").write_text("LIMIT = 3\n")
    (folder / "check.py").write_text(
        "from limits import LIMIT\n"
        "def get_assert(output, context):\n    return len(output) > LIMIT\n"
        "def named(output, context):\n    return context['config']['least'] <= len(output)\n"
    )
    record = {
        "assert": [
            {"type": "python", "value": "file://check.py"},
            {"type": "python", "value": "file://check.py:named", "config": {"least": 9}},
        ]
    }
    assert [verdict.status for verdict in scored(record, "Paris").verdicts] == ["passed", "failed"]


def test_expected_values_are_read_from_files(folder: Path) -> None:
    (folder / "schema.json").write_text('{"type": "object", "required": ["a"]}')
    (folder / "words.yaml").write_text("[one, two]")
    (folder / "text.txt").write_text("{{ city }}\n")
    record = {
        "assert": [
            {"type": "is-json", "value": "file://schema.json"},
            {"type": "contains-any", "value": "file://words.yaml"},
            {"type": "contains-all", "value": ["a", "file://text.txt"]},
        ]
    }
    # promptfoo fills in no template of a file.
    assert [check.expected for check in DIALECT.to_case(record, Origin("t.jsonl")).checks] == [
        {"type": "object", "required": ["a"]},
        ["one", "two"],
        ["a", "{{ city }}"],
    ]


def test_a_file_of_asserts_is_read(folder: Path) -> None:
    (folder / "asserts.yaml").write_text("- {type: contains, value: '{{ city }}'}\n- {type: is-json}\n")
    case = DIALECT.to_case({"vars": {"city": "Rome"}, "assert": ["file://asserts.yaml"]}, Origin("t.jsonl"))
    assert [(check.kind, check.expected) for check in case.checks] == [("contains", "Rome"), ("is_json", None)]


def test_a_missing_file_leaves_the_check_unscored(folder: Path) -> None:
    result = scored({"assert": [{"type": "python", "value": "file://gone.py"}]}, "a")
    assert result.status == "unscored" and "there is no file 'file://gone.py'" in result.verdicts[0].reason


def test_transforms_apply_in_order_first_those_of_the_test() -> None:
    record = {
        "options": {"transform": "output.trim()"},
        "assert": [
            {"type": "equals", "value": "b"},
            {"type": "equals", "value": "Paris b", "transform": "`${context.vars.city} ${output}`"},
            {"type": "contains", "value": '"x":1', "transform": "({x: 1})"},
        ],
    }
    assert [verdict.status for verdict in scored(record, "  b ").verdicts] == ["passed"] * 3


@pytest.mark.parametrize("code", ["JSON.parse(output)", "undefined", "no_such_name", "output.("])
def test_a_transform_that_fails_fails_the_check(code: str) -> None:
    for type_ in ("equals", "not-equals"):
        result = scored({"assert": [{"type": type_, "value": "b", "transform": code}]}, "a b")
        assert result.status == "failed" and code[:8] in result.verdicts[0].reason


def test_a_transform_of_python_needs_to_be_allowed(folder: Path) -> None:
    (folder / "lower.py").write_text("def get_transform(output, context):\n    return output.lower()\n")
    record = {"assert": [{"type": "equals", "value": "a", "transform": "file://lower.py"}]}
    assert scored(record, "A").status == "passed"
    assert scored(record, "A", allow_code=False).status == "unscored"


def test_a_context_transform_gives_the_sources() -> None:
    written = {"type": "context-faithfulness", "contextTransform": "output.docs"}
    (check,) = DIALECT.to_case({"assert": [written]}, Origin("")).checks
    assert check.options["sources_transform"] == [{"language": "javascript", "source": "output.docs"}]


@pytest.mark.parametrize("name", ["score.js", "score.py"])
def test_a_scoring_function_decides_the_status(folder: Path, name: str) -> None:
    (folder / "score.py").write_text(
        "def func(scores, context):\n"
        "    return {'pass': scores['a'] > 0, 'score': scores['a'] / 2, 'reason': str(len(context['componentResults']))}\n"
    )
    (folder / "score.js").write_text(
        "module.exports = (scores, {componentResults: all}) =>"
        " ({pass: scores.a > 0, score: scores.a / 2, reason: `${all.length}`});"
    )
    named = [{"type": "contains", "value": value, "metric": value} for value in ("a", "b")]
    record = {"assert": named, "assertScoringFunction": f"file://{name}"}
    result = scored(record, "a")
    assert (result.status, result.score, result.verdicts[-1].reason) == ("passed", 0.5, "2")
    assert scored(record, "b").status == "failed"
    assert scored({**record, "assertScoringFunction": "file://gone.js"}, "a").status == "unscored"


def test_a_scoring_function_that_fails_fails_the_case(folder: Path) -> None:
    (folder / "score.js").write_text("module.exports = () => 1")
    record = {"assert": [{"type": "contains", "value": "a"}], "assertScoringFunction": "file://score.js"}
    result = scored(record, "a")
    assert result.status == "failed" and "expected an object with pass" in result.verdicts[-1].reason


def test_a_check_without_transforms_is_scored_at_once() -> None:
    case = DIALECT.to_case({"vars": {}, "assert": [{"type": "contains", "value": "a"}]}, Origin(""))
    assert isinstance(grade_now(case, Run("k", "c", output=Output("a")), Services()), Scored)
    assert Case("c", {}).checks == ()


@pytest.mark.parametrize(
    ("answer", "threshold", "status", "value"),
    [
        ('{"pass": true, "score": 0.8, "reason": "so"}', None, "passed", 0.8),
        ('{"pass": true, "score": 0.8, "reason": "so"}', 0.9, "failed", 0.8),
        ('{"pass": "no", "reason": "so"}', None, "failed", 0.0),
        ('{"score": 0.3}', None, "passed", 0.3),
        ('It is fine: {"pass": "yes"}', None, "passed", 1.0),
        ("no object", None, "unscored", None),
    ],
)
def test_a_rubric_prompt_asks_the_judge(answer: str, threshold: Any, status: str, value: Any) -> None:
    asked: list[Any] = []

    async def judge(request: Request) -> Response:
        asked.append(request.messages)
        return Response(answer)

    chat = '[{"role": "system", "content": "Grade {{rubric}}"}, {"role": "user", "content": "{{output}} in {{city}}"}]'
    written = {"type": "llm-rubric", "value": "kind", **({} if threshold is None else {"threshold": threshold})}
    record = {"vars": {"city": "Rome"}, "options": {"rubricPrompt": chat}, "assert": [written]}
    case = DIALECT.to_case(record, Origin("t.jsonl"))
    services = Services(judge, matchers=MATCHERS)
    result = asyncio.run(score(case, Run("k", "c", output=Output('a "b"')), services))
    assert (result.verdicts[0].status, result.verdicts[0].score) == (status, value)
    assert [message["content"] for message in asked[0]] == ["Grade kind", 'a "b" in Rome']


@pytest.mark.parametrize(
    ("type_", "code"),
    [
        ("javascript", "({pass: true, score: 1, reason: '', namedScores: {own: 9, a: 0.5, b: 3, c: 'no'}})"),
        ("python", "{'pass': True, 'score': 1, 'reason': '', 'namedScores': {'own': 9, 'a': 0.5, 'b': 3, 'c': 'no'}}"),
    ],
)
def test_named_scores_of_code_count_beside_those_of_metrics(type_: str, code: str) -> None:
    written = [
        {"type": type_, "value": code, "metric": "own", "weight": 3},
        {"type": "contains", "value": "x", "metric": "a"},
    ]
    result = scored({"assert": written}, "y")
    assert result.verdicts[0].named_scores == {"own": 9, "a": 0.5, "b": 3}
    # As in promptfoo: by weight, and not under the name of the assert itself.
    assert named_scores(result.verdicts, {"own", "a"}) == {"own": 1, "a": 0.375, "b": 3}


def test_derived_metrics_are_computed_from_named_scores(folder: Path) -> None:
    metrics = [
        {"name": "mean", "value": "(a + b) / __count"},
        {"name": "f", "value": "sqrt(mean) + a^2"},
        {"name": "bad", "value": "nothing / 2"},
        {"name": "code", "value": 5},
    ]
    (folder / "config.yaml").write_text(json.dumps({"derivedMetrics": metrics}))
    found = definitions([{"path": "config.yaml"}, {"path": "gone.yaml"}, {"path": "tests.csv"}])
    assert [name for name, _ in found] == ["mean", "f", "bad"]
    derived = with_derived({"a": 3.0, "b": 5.0, "not a name": 1.0}, 2, found)
    assert derived == {"a": 3.0, "b": 5.0, "not a name": 1.0, "mean": 4, "f": 11, "bad": 0}
