"""The pytest plugin in a real pytest: one item per case, one batch for all."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalloom.core.sandbox import why_unavailable

pytest_plugins = ["pytester"]

SETTINGS = """\
llms:
  calm: {protocol: scripted, file: answers.yaml}
  other: {protocol: echo}
target: {template: "Say hello to {{name}}"}
datasets: [hello_basic_v1.jsonl]
"""
ANSWERS = """\
rules:
  - {match: Ann, answer: Hello Ann}
  - {match: Bob, answer: Hi}
"""
CASES = """\
{"id": "ann", "name": "Ann", "expected_output": "contains:Hello"}
{"id": "bob", "name": "Bob", "expected_output": "contains:Hello"}
{"id": "cy", "name": "Cy", "expected_output": "contains:Hello"}
{"id": "free", "name": "Ann"}
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    for name, text in (("evalloom.yaml", SETTINGS), ("answers.yaml", ANSWERS), ("hello_basic_v1.jsonl", CASES)):
        (pytester.path / name).write_text(text, encoding="utf-8")
    return pytester


def batches(suite: pytest.Pytester) -> list[Path]:
    return list((suite.path / ".evalloom" / "batches").iterdir())


def test_each_case_is_an_item(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess("--evalloom", "-rs")
    result.assert_outcomes(passed=1, failed=2, skipped=1)
    result.stdout.fnmatch_lines(["*contains: expected 'Hello' in 'Hi'", "*no rule matches 'Say hello to Cy'*"])
    result.stdout.fnmatch_lines(["*unscored: it has no checks*"])
    assert len(batches(suite)) == 1


def test_without_the_flag_nothing_is_collected(suite: pytest.Pytester) -> None:
    assert suite.runpytest_subprocess().ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_what_is_deselected_is_not_run(suite: pytest.Pytester) -> None:
    suite.runpytest_subprocess("--evalloom", "-k", "ann").assert_outcomes(passed=1, deselected=3)
    assert len((batches(suite)[0] / "runs.jsonl").read_text(encoding="utf-8").splitlines()) == 1


def test_profiles_are_in_the_names(suite: pytest.Pytester) -> None:
    options = ("--evalloom", "--evalloom-profile", "calm", "--evalloom-profile", "other", "-v")
    result = suite.runpytest_subprocess(*options)
    result.stdout.fnmatch_lines(["*ann?calm? PASSED*", "*ann?other? FAILED*"])


def test_faulty_data_is_told_when_collecting(suite: pytest.Pytester) -> None:
    (suite.path / "hello_basic_v1.jsonl").write_text('{"id": "a", "name": "x"}\n' * 2, encoding="utf-8")
    result = suite.runpytest_subprocess("--evalloom")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*duplicate_id*"])


def test_a_batch_that_cannot_be_run_is_tried_once(suite: pytest.Pytester) -> None:
    (suite.path / ".evalloom").write_text("in the way", encoding="utf-8")
    result = suite.runpytest_subprocess("--evalloom")
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(["*cannot_write*"])


@pytest.mark.req("WORK-1")
def test_an_unscored_case_is_a_failed_item_unless_it_is_accepted(suite: pytest.Pytester) -> None:
    settings = SETTINGS + "checks: [{judge: is it polite}]\nrun: {filter: 'name == \"Ann\"'}\n"
    (suite.path / "evalloom.yaml").write_text(settings, encoding="utf-8")
    result = suite.runpytest_subprocess("--evalloom")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["unscored: no judge*allow_unscored: true*[[]unscored[]]"])
    (suite.path / "evalloom.yaml").write_text(settings.replace("{filter", "{allow_unscored: true, filter"))
    suite.runpytest_subprocess("--evalloom").assert_outcomes(skipped=2)


@pytest.mark.req("WORK-1")
def test_items_fail_if_nothing_is_expected_of_any_case_unless_it_is_meant(suite: pytest.Pytester) -> None:
    (suite.path / "hello_basic_v1.jsonl").write_text('{"id": "free", "name": "Ann"}\n', encoding="utf-8")
    result = suite.runpytest_subprocess("--evalloom")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["nothing is expected of any case*[[]nothing_expected[]]"])
    (suite.path / "evalloom.yaml").write_text(SETTINGS + "run: {no_checks: true}\n", encoding="utf-8")
    suite.runpytest_subprocess("--evalloom").assert_outcomes(skipped=1)


PIPELINE = """\
id: coded
inputs: [name]
steps: [{id: greet, code: "def run(name): return f'Hello {name}'", input_mapping: {name: name}}]
"""


@pytest.mark.skipif(bool(why_unavailable()), reason=f"no sandbox here: {why_unavailable()}")
@pytest.mark.req("PIPE-12")
def test_code_of_a_pipeline_runs_only_when_it_is_allowed(suite: pytest.Pytester) -> None:
    settings = "target: pipeline:p.yaml\ndatasets: [c.jsonl]\n"
    case = '{"id": "ann", "inputs": {"name": "Ann"}, "expected_output": "Hello Ann"}\n'
    for name, text in (("evalloom.yaml", settings), ("p.yaml", PIPELINE), ("c.jsonl", case)):
        (suite.path / name).write_text(text, encoding="utf-8")
    refused = suite.runpytest_subprocess("--evalloom")
    refused.assert_outcomes(errors=1)
    refused.stdout.fnmatch_lines(["*step 'greet': has code*--evalloom-allow-code*code_not_allowed*"])
    assert not (suite.path / ".evalloom").exists()
    suite.runpytest_subprocess("--evalloom", "--evalloom-allow-code").assert_outcomes(passed=1)
    (suite.path / "evalloom.yaml").write_text(settings + "run: {allow_code: true}\n", encoding="utf-8")
    suite.runpytest_subprocess("--evalloom").assert_outcomes(passed=1)


FLAKY = """
rules:
  - {match: Ann, answers: [Hello Ann, Hi, Hello Ann]}
  - {answer: Hello}
"""


@pytest.mark.req("WORK-8")
@pytest.mark.parametrize(("repeat", "failed"), [("3", 1), ("{n: 3, pass: 0.6}", 0), ("{n: 3, pass: 1}", 1)])
def test_the_repeats_of_a_case_are_one_item(suite: pytest.Pytester, repeat: str, failed: int) -> None:
    (suite.path / "answers.yaml").write_text(FLAKY, encoding="utf-8")
    (suite.path / "evalloom.yaml").write_text(SETTINGS + f"run: {{repeat: {repeat}}}\n", encoding="utf-8")
    result = suite.runpytest_subprocess("--evalloom", "-k", "ann or bob")
    result.assert_outcomes(passed=2 - failed, failed=failed, deselected=2)
    if failed:
        result.stdout.fnmatch_lines(["*ann*: 2 of 3 passed*"])


@pytest.mark.req("WORK-12")
def test_a_quarantined_case_is_expected_to_fail(suite: pytest.Pytester) -> None:
    (suite.path / "evalloom.yaml").write_text(f"{SETTINGS}run: {{quarantine: q.yaml}}\n", encoding="utf-8")
    entries = "".join(f"  - {{id: {id}, reason: slow server, expires: {day}}}\n" for id, day in QUARANTINED)
    (suite.path / "q.yaml").write_text(f"cases:\n{entries}", encoding="utf-8")
    result = suite.runpytest_subprocess("--evalloom", "-rx")
    result.assert_outcomes(passed=1, failed=1, skipped=1, xfailed=1, warnings=1)
    result.stdout.fnmatch_lines(["*bob*quarantined until 2999-01-01: slow server*"])
    result.stdout.fnmatch_lines(["*quarantine_expired*"])
    every = "".join(f"  - {{id: {id}, expires: 2999-01-01}}\n" for id in ("ann", "bob", "cy", "free"))
    (suite.path / "q.yaml").write_text(f"cases:\n{every}", encoding="utf-8")
    result = suite.runpytest_subprocess("--evalloom")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*all_quarantined*"])


QUARANTINED = (("bob", "2999-01-01"), ("cy", "2020-01-01"))


def test_a_digest_has_its_place_beside_it(suite: pytest.Pytester) -> None:
    suite.path.joinpath("tests.json").write_text(
        '[{"vars": {"q": "x"}, "assert": [{"type": "equals", "value": "y"}]}]', encoding="utf-8"
    )
    suite.path.joinpath("evalloom.yaml").write_text(
        SETTINGS.replace("hello_basic_v1.jsonl", "tests.json").replace("{{name}}", "{{q}}"), encoding="utf-8"
    )
    result = suite.runpytest_subprocess("--evalloom")
    result.stdout.re_match_lines([r"_+ [0-9a-f]{12} .*tests\.json:1 _+"])
