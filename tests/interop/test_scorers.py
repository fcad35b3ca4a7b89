"""Dialects with a scorer of their tool. The verdicts in the fixtures are those of the tools themselves."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalloom import catalog
from evalloom.core.errors import EvalloomError
from evalloom.core.model import Case, Origin, Output, Remark
from evalloom.data.dialect import Rules
from evalloom.matchers.base import CheckResult, MatchContext
from evalloom.matchers.judge import Task, task_of

pytestmark = pytest.mark.req("WORK-33")

Evalloom = Callable[..., subprocess.CompletedProcess[str]]
FIXTURES = Path(__file__).parent.parent / "fixtures" / "scorers"
CATALOG = catalog.load()
FORMATS = CATALOG.formats
FIELDS = {"inspect": "target", "openai-evals": "ideal", "deepeval": "expected_output", "ragas": "reference"}
QUESTION = {"ragas": "user_input"}


def rows(dialect: str) -> list[Any]:
    """Each line of a fixture as a parameter: a scorer, an output, what is expected, and the verdict of the tool."""
    lines = (FIXTURES / f"{dialect.replace('-', '_')}.jsonl").read_text(encoding="utf-8").splitlines()
    return [pytest.param(dialect, json.loads(line), id=f"{dialect}-{number}") for number, line in enumerate(lines, 1)]


def case_of(dialect: str, record: dict[str, Any]) -> Case:
    return FORMATS.by_name(dialect).to_case(record, Origin("samples.jsonl"))


def grade(case: Case, output: Any) -> CheckResult:
    (check,) = case.checks
    matcher = CATALOG.matchers.by_kind(check.kind)
    assert matcher is not None and matcher.grade is not None
    result = matcher.grade(check, MatchContext(output, Output(output), case))
    assert result is not None
    return result


@pytest.mark.parametrize(("dialect", "row"), [row for name in ("inspect", "openai-evals") for row in rows(name)])
def test_verdicts_are_those_of_the_tool(dialect: str, row: dict[str, Any]) -> None:
    record = {name: value for name, value in row.items() if name not in ("scorer", "output", "passed")}
    case = case_of(f"{dialect}:{row['scorer']}", {QUESTION.get(dialect, "input"): "q", **record})
    result = grade(case, row["output"])
    assert result.passed is row["passed"], result.reason


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("inspect:includes", "inspect:includes"),
        ("Inspect:match( BEGIN=1 )", ""),
        ("inspect:match(begin, numeric=TRUE)", "inspect:match(location=begin, numeric=true)"),
        (r"""inspect:pattern("it's (\d+), no")""", r"inspect:pattern(pattern='it''s (\d+), no')"),
        (r"inspect:pattern('it''s (\d+)')", r"inspect:pattern(pattern='it''s (\d+)')"),
        ("inspect:f1(threshold=0.80)", "inspect:f1(threshold=0.8)"),
        ("openai_evals:fuzzy-match", "openai-evals:fuzzy_match"),
    ],
)
def test_a_name_has_one_form_that_is_read_again(written: str, name: str) -> None:
    if not name:
        with pytest.raises(EvalloomError):
            FORMATS.by_name(written)
        return
    dialect = FORMATS.by_name(written)
    assert dialect.name == name
    assert FORMATS.by_name(name).name == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("inspect:includ", "Did you mean 'includes'?"),
        ("inspect:match(locaton=begin)", "Did you mean 'location'?"),
        ("inspect:match(location=begn)", "Did you mean 'begin'?"),
        ("inspect:match(numeric=yes)", "numeric: expected true or false, got 'yes'"),
        ("inspect:match(begin, location=end)", "location: is there twice"),
        ("inspect:match(end, true, true, 4)", "expected an option of it"),
        ("inspect:f1(threshold=nan)", "threshold: expected a number, got 'nan'"),
        ("inspect:answer", "write answer(letter) or answer(word) or answer(line)"),
        ("inspect:pattern('')", "pattern: expected a text"),
        ("inspect:match(a'b)", "expected option=value"),
        ("inspect:", "expected a scorer of inspect (match, includes,"),
        ("rag:match", "the dialect rag has no scorers"),
    ],
)
def test_a_wrong_scorer_is_a_usage_error(name: str, message: str) -> None:
    with pytest.raises(EvalloomError) as error:
        FORMATS.by_name(name)
    assert (error.value.code, error.value.exit_code) == ("unknown_scorer", 2)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("dialect", "record"),
    [
        ("inspect:match", {"target": "."}),
        ("inspect:match(numeric=true)", {"target": ["7", "-"]}),
        ("inspect:includes", {"target": ["x", ""]}),
        ("inspect:exact", {"target": "the"}),
        ("inspect:f1", {"target": "!"}),
        ("inspect:choice", {"target": "C", "choices": ["one", "two"]}),
        ("inspect:choice", {"target": "A"}),
        ("inspect:pattern(pattern='(')", {"target": "A"}),
        ("openai-evals:match", {"ideal": ""}),
        ("openai-evals:includes", {"ideal": ["a", ""]}),
        ("openai-evals:json_match", {"ideal": "{a}"}),
        ("openai-evals:match", {"ideal": 4}),
    ],
)
def test_what_any_output_would_meet_is_unscored(dialect: str, record: dict[str, Any]) -> None:
    result = grade(case_of(dialect, {"input": "q", **record}), "{}")
    assert result.passed is None and result.reason


def test_a_choice_may_be_named_by_its_text() -> None:
    case = case_of("inspect:choice", {"input": "q", "target": "Paris", "choices": ["Rome", "Paris"]})
    assert grade(case, "ANSWER: B").passed is True
    assert grade(case, "ANSWER: A").reason == "expected B, got A"
    several = case_of("inspect:choice", {"input": "q", "target": "A,C", "choices": ["2", "3", "4"]})
    assert grade(several, "ANSWER: C and A").passed is True


def test_the_judge_gets_the_target_as_inspect_gives_it() -> None:
    (check,) = case_of("inspect:model_graded_fact", {"input": "q", "target": ["a", "b"]}).checks
    assert (check.kind, check.expected, check.options) == ("judge", "ab", {"variant": "factuality"})
    (check,) = case_of("inspect:model_graded_qa", {"input": "q", "target": "names a city"}).checks
    assert check.options == {"variant": "model-graded-closedqa"}


def test_a_scorer_without_an_expected_answer_is_no_case_without_checks() -> None:
    record = {"input": "Write JSON."}
    plain, scored = FORMATS.by_name("openai-evals"), FORMATS.by_name("openai-evals:json_validator")
    assert [remark.code for remark in plain.findings(record, Rules())] == ["no_checks"]
    assert [remark.code for remark in scored.findings(record, Rules())] == []
    assert [remark.code for remark in FORMATS.by_name("openai-evals:match").findings(record, Rules())] == ["no_checks"]


def test_validate_says_once_per_file_that_the_tool_may_decide_otherwise(evalloom: Evalloom, tmp_path: Path) -> None:
    (tmp_path / "samples.jsonl").write_text('{"input": "a", "target": "b"}\n{"input": "c", "target": "d"}\n')
    assert "match(location, ignore_case, numeric)" in " ".join(evalloom("inspect", "samples.jsonl").stdout.split())
    shown = evalloom("validate", "samples.jsonl")
    assert shown.stderr.count("[scorer_not_named]") + shown.stdout.count("[scorer_not_named]") == 1
    named = evalloom("validate", "samples.jsonl", "--dialect", "inspect:includes")
    assert "[scorer_not_named]" not in named.stdout + named.stderr


def test_a_run_and_its_scoring_use_the_scorer(evalloom: Evalloom, tmp_path: Path) -> None:
    (tmp_path / "samples.csv").write_text("input,target\nSay Paris please.,paris\nSay Rome.,Oslo\n")
    (tmp_path / "prompt.md").write_text("{{input}}")
    run = ["run", "samples.csv", "--target", "prompt:prompt.md", "--profile", "echo", "--dialect"]
    done = evalloom(*run, "inspect:includes", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["passed"] == 1
    scored = evalloom("score", "latest", "--json")
    assert json.loads(scored.stdout)["passed"] == 1
    wrong = evalloom(*run, "inspect:include")
    assert wrong.returncode == 2 and "Did you mean 'includes'? [unknown_scorer]" in wrong.stderr


def registry(folder: Path, text: str, samples: str = '{"input": "Say yes.", "ideal": "Say"}\n') -> Path:
    """Write a registry with one file of samples; return the YAML file."""
    for name in ("registry/evals", "registry/data/mine"):
        (folder / name).mkdir(parents=True)
    (folder / "registry/data/mine/samples.jsonl").write_text(samples)
    path = folder / "registry/evals/mine.yaml"
    path.write_text(text)
    return path


TWO = """\
mine:
  id: mine.dev.v0
  metrics: [accuracy]
mine.dev.v0:
  class: evals.elsuite.basic.match:Match
  args: {samples_jsonl: mine/samples.jsonl}
mine-fuzzy.dev.v0:
  class: evals.elsuite.basic.fuzzy_match:FuzzyMatch
  args: {samples_jsonl: mine/samples.jsonl}
"""


def test_a_registry_runs_each_sample_with_the_class_of_its_eval(evalloom: Evalloom, tmp_path: Path) -> None:
    registry(tmp_path, TWO, '{"id": 1, "input": "Say yes.", "ideal": "Say"}\n{"id": 2, "input": "a", "ideal": "A!"}\n')
    (tmp_path / "prompt.md").write_text("{{input}}")
    target = ["--target", "prompt:prompt.md", "--profile", "echo", "--json"]
    done = evalloom("run", "registry/evals/mine.yaml", *target)
    assert json.loads(done.stdout)["passed"] == 3, done.stderr
    fuzzy = evalloom("run", "registry/evals/mine.yaml", *target, "--tags", "mine-fuzzy.dev.v0")
    assert (fuzzy.returncode, json.loads(fuzzy.stdout)["passed"]) == (0, 2)
    shown = evalloom("inspect", "registry/evals/mine.yaml")
    assert "evals_match 2, evals_fuzzy_match 2" in " ".join(shown.stdout.split())


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ("{class: 'a.b:C', args: {samples_jsonl: mine/samples.jsonl}}", "check_not_scored"),
        ("{class: 'evals.elsuite.translate:Translate', args: {samples_jsonl: mine/samples.jsonl}}", "check_not_scored"),
        (
            "{class: 'evals.elsuite.modelgraded.classify:ModelBasedClassify',"
            " args: {samples_jsonl: mine/samples.jsonl, modelgraded_spec: humor}}",
            "check_not_scored",
        ),
        ("{class: 'a.b:C', args: {dataset: x}}", "eval_without_samples"),
        ("{class: 'a.b:C', args: [1]}", "bad_eval"),
        ("{class: 'a.b:C', args: {samples_jsonl: other.jsonl}}", "included_file_missing"),
        ("{class: 'a.b:C', args: {samples_jsonl: ../evals/mine.yaml}}", "included_file_outside"),
        ("{class: 'a.b:C', args: {samples_jsonl: ../../secret.jsonl}}", "included_file_outside"),
        (
            "{class: 'evals.elsuite.basic.match:Match',"
            " args: {samples_jsonl: mine/samples.jsonl, num_few_shot: 2, few_shot_jsonl: f.jsonl}}",
            "eval_few_shot",
        ),
    ],
)
def test_what_a_registry_cannot_have_here_is_told(evalloom: Evalloom, tmp_path: Path, entry: str, code: str) -> None:
    registry(tmp_path, f"mine.dev.v0: {entry}\n")
    (tmp_path / "secret.jsonl").write_text('{"input": "a", "ideal": "b"}\n')
    shown = evalloom("validate", "registry/evals/mine.yaml")
    assert f"[{code}]" in shown.stdout + shown.stderr


def test_only_a_registry_has_files_outside_of_its_folder(evalloom: Evalloom, tmp_path: Path) -> None:
    path = registry(tmp_path, TWO)
    elsewhere = tmp_path / "registry" / "other"
    elsewhere.mkdir()
    path.rename(elsewhere / "mine.yaml")
    shown = evalloom("validate", "registry/other/mine.yaml")
    assert "[included_file_missing]" in shown.stdout + shown.stderr
    (elsewhere / "mine").mkdir()
    (elsewhere / "mine" / "samples.jsonl").write_text('{"input": "a", "ideal": "b"}\n')
    assert evalloom("validate", "registry/other/mine.yaml").returncode == 0


def test_a_file_that_is_named_without_its_folder_reaches_no_neighbour(evalloom: Evalloom, tmp_path: Path) -> None:
    path = registry(tmp_path, TWO)
    alone = subprocess.run(
        [sys.executable, "-m", "evalloom", "validate", path.name],
        cwd=path.parent,
        capture_output=True,
        encoding="utf-8",
    )
    assert (
        "there is no file 'mine/samples.jsonl' beside this one [included_file_missing]" in alone.stdout + alone.stderr
    )
    assert evalloom("validate", str(path)).returncode == 0


def test_the_specs_of_a_judge_are_its_variants() -> None:
    class_ = "evals.elsuite.modelgraded.classify:ModelBasedClassify"

    def checks(arguments: dict[str, Any], **more: Any) -> Any:
        spec = {"name": "a.dev.v0", "class": class_, "args": arguments}
        return case_of("openai-evals", {"input": "q", "ideal": "x", "eval_spec": spec, **more}).checks[0]

    assert checks({"modelgraded_spec": "fact"}).options == {"variant": "factuality"}
    closed = checks({"modelgraded_spec": "closedqa", "modelgraded_spec_args": {"criteria": "is short"}})
    assert (closed.kind, closed.expected) == ("judge", "is short")
    assert checks({"modelgraded_spec": "closedqa"}, criteria="is long").expected == "is long"
    assert checks({"modelgraded_spec": "closedqa"}).kind == "evals_class"
    assert checks({"modelgraded_spec": "fact"}, completion="x").kind == "evals_class"
    assert checks({"modelgraded_spec": "fact", "multicomp_n": 4}).kind == "evals_class"


@pytest.mark.parametrize(
    ("dialect", "output", "expected", "passed"),
    [
        ("deepeval:exact_match", " Paris\n", "Paris", True),
        ("deepeval:exact_match", "paris", "Paris", False),
        ("deepeval:pattern_match('[A-Z]\\d+')", " A12 ", "", True),
        ("deepeval:pattern_match('[A-Z]\\d+')", "see A12", "", False),
        ("deepeval:pattern_match('a|ab')", "ab", "", True),
        ("deepeval:pattern_match('(?i)a b ')", "A B", "", True),
        ("deepeval:pattern_match('(?x) a # one')", "a", "", True),
        ("deepeval:pattern_match('paris', ignore_case=true)", "PARIS", "", True),
        ("deepeval:pattern_match('a)(b')", "ab", "", None),
        ("ragas:exact_match", "Paris", "Paris", True),
        ("ragas:exact_match", "Paris ", "Paris", False),
        ("ragas:string_presence", "It is Paris.", "Paris", True),
        ("ragas:string_presence", "It is paris.", "Paris", False),
        ("ragas:non_llm_string_similarity", "kitten", "sitting", True),
        ("ragas:non_llm_string_similarity(0.6)", "kitten", "sitting", False),
        ("ragas:non_llm_string_similarity", "", "Paris", False),
    ],
)
def test_metrics_without_a_model(dialect: str, output: str, expected: str, passed: bool | None) -> None:
    name = dialect.partition(":")[0]
    case = case_of(dialect, {QUESTION.get(name, "input"): "q", FIELDS[name]: expected})
    assert grade(case, output).passed is passed


def test_several_ground_truths_are_alternatives() -> None:
    record = {"question": "q", "contexts": [], "ground_truths": ["Paris", "Lutetia"]}
    assert grade(case_of("ragas:string_presence", record), "It was Lutetia.").passed is True
    assert grade(case_of("ragas:exact_match", record), "It was Lutetia.").passed is False


@pytest.mark.parametrize(
    ("dialect", "record", "options"),
    [
        ("deepeval:tool_correctness", {"expected_tools": [{"name": "a", "input_parameters": {"x": 1}}]}, 0.5),
        ("deepeval:tool_correctness(1)", {"expectedTools": ["a"]}, 1),
        ("ragas:tool_call_accuracy", {"reference_tool_calls": [{"name": "a", "args": {}}]}, None),
    ],
)
def test_expected_tools(dialect: str, record: dict[str, Any], options: float | None) -> None:
    question = QUESTION.get(dialect.partition(":")[0], "input")
    case = case_of(dialect, {question: "q", **record})
    assert (case.checks[0].kind, case.checks[0].where) == ("tool_calls", "steps")
    assert case.checks[0].options.get("threshold") == options
    assert grade(case, {"tool_calls": [{"name": "a", "args": {}}]}).passed is True
    assert grade(case, {"tool_calls": [{"name": "b"}]}).passed is False


@pytest.mark.parametrize(
    "name",
    [
        *("deepeval:g_eval('is polite')", "deepeval:answer_relevancy(0.7)", "deepeval:faithfulness"),
        *("deepeval:contextual_recall", "deepeval:contextual_relevancy", "ragas:factual_correctness"),
        *("ragas:answer_correctness", "ragas:answer_relevancy", "ragas:faithfulness", "ragas:context_recall"),
        *("ragas:context_relevance", "inspect:model_graded_qa", "openai-evals:fact", "openai-evals:closedqa(polite)"),
    ],
)
def test_metrics_of_a_model_are_judged(name: str) -> None:
    dialect = name.partition(":")[0]
    case = case_of(name, {QUESTION.get(dialect, "input"): "q", FIELDS[dialect]: "Paris"})
    (check,) = case.checks
    task = task_of(check, MatchContext("Paris", Output("Paris", sources=["Paris is a city."]), case))
    assert isinstance(task, Task), task
    assert task.criterion


@pytest.mark.parametrize(
    ("evaluator", "output", "passed"),
    [
        ({"Contains": {"value": 5, "as_strings": True}}, [15], True),
        ({"Contains": {"value": [1], "as_strings": True}}, "see [1]", True),
        ({"Contains": {"value": "TRUE", "as_strings": True, "case_sensitive": False}}, True, True),
        ({"Contains": {"value": "TRUE", "as_strings": True}}, True, False),
        ({"ToolCorrectness": {"expected_tools": ["a"]}}, {"tool_calls": ["a"]}, True),
        ({"ToolCorrectness": {"expected_tools": ["a"]}}, {"tool_calls": ["a", "b"]}, False),
        ({"ToolCorrectness": {"expected_tools": ["a"], "allow_extra": True}}, {"tool_calls": ["a", "b"]}, True),
    ],
)
def test_evaluators_of_pydantic_evals(evaluator: dict[str, Any], output: Any, passed: bool) -> None:
    case = case_of("pydantic-evals", {"inputs": "q", "evaluators": [evaluator]})
    assert grade(case, output).passed is passed


def test_judges_of_pydantic_evals() -> None:
    steps = {"criteria": "is short", "evaluation_steps": ["count", "judge"], "score_range": [1, 10]}
    only_score = {"rubric": "is short", "score": {}, "assertion": False}
    case = case_of("pydantic-evals", {"inputs": "q", "evaluators": [{"GEval": steps}, {"LLMJudge": only_score}]})
    g_eval, judge = case.checks
    assert (g_eval.expected, g_eval.options["scale"]) == ("is short\n1. count\n2. judge", [1, 10])
    assert judge.options["scale"] == [0, 1]


def test_what_has_no_verdict_in_pydantic_evals_is_no_check() -> None:
    dialect = FORMATS.by_name("pydantic-evals")
    record = {"inputs": "q", "evaluators": ["EqualsExpected", {"Contains": ""}]}
    assert [check.kind for check in case_of("pydantic-evals", record).checks] == ["contains"]
    assert [*dialect.check_paths(record)] == [("evaluators", 1)]
    document = {"cases": [{"inputs": "q", "expected_output": "a"}], "report_evaluators": [{"ROCAUCEvaluator": {}}]}
    remarks = [item for item in dialect.expand(document) or () if isinstance(item, Remark)]
    assert [(remark.code, remark.path) for remark in remarks] == [("unknown_evaluator", ("report_evaluators",))]
