"""promptfoo tests: records, tables and config files."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom.core.model import Case, Check, Origin, Path, Record, Remark
from evalloom.data.dialect import Included, Rules, Surroundings
from evalloom.interop.promptfoo.dialect import DIALECT

ORIGIN = Origin("promptfooconfig.yaml")
NAMES = [
    *(
        "vars",
        "assert",
        "threshold",
        "options",
        "metadata",
        "description",
        "defaultTest",
        "tests",
        "scenarios",
        "config",
    ),
    *("type", "value", "weight", "$ref", "path", "prompts", "__expected", "__expected2", "__metadata:tags[]"),
    *("__config:__expected2:threshold", "__threshold", "__metric", "__prefix", "city", "disableVarExpansion"),
]
WORDS = [
    "contains",
    "regex",
    "assert-set",
    "not-equals",
    "is-json",
    "(",
    "file://a.csv",
    "file://a*.py",
    "#/tests/0",
    "{{city}}",
    "{{ city | upper }}",
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


def codes(record: Record) -> list[str]:
    return [remark.code for remark in DIALECT.findings(record, Rules())]


def expanded(document: Record) -> list[tuple[Path, Record] | Included | Remark]:
    return list(DIALECT.expanded(document, Surroundings()) or ())


def records(document: Record) -> list[tuple[Path, Record]]:
    return [item for item in expanded(document) if not isinstance(item, Remark | Included)]


def others(document: Record) -> list[Remark | Included]:
    """All but the records."""
    return [item for item in expanded(document) if isinstance(item, Remark | Included)]


def cases(document: Record) -> list[Case]:
    return [DIALECT.to_case(record, ORIGIN) for _, record in records(document)]


def test_a_test_with_vars_and_asserts() -> None:
    record = {
        "description": "capital",
        "vars": {"country": "France"},
        "assert": [{"type": "icontains", "value": "paris"}],
        "threshold": 0.5,
        "metadata": {"tags": ["geo"]},
    }
    case = DIALECT.to_case(record, ORIGIN)
    assert (case.inputs, case.checks, case.tags) == ({"country": "France"}, (Check("icontains", "paris"),), ("geo",))
    assert case.meta == {"description": "capital", "threshold": 0.5, "metadata": {"tags": ["geo"]}}
    assert (case.raw, codes(record)) == (record, [])


def test_a_row_of_a_table() -> None:
    row = {
        "topic": "quantum",
        "__expected1": "contains: quantum",
        "__expected2": "llm-rubric:Describes {{topic}}?",
        "__metadata:category": "science",
        "__metadata:tags[]": "physics,advanced\\,theory",
        "__config:__expected:threshold": "0.9",
        "__config:__expected2:threshold": "0.8",
        "__description": "first",
        "__threshold": "0.6",
        "__prefix": "Say: ",
    }
    case = DIALECT.to_case(row, Origin("tests.csv", 2))
    assert case.inputs == {"topic": "quantum"}
    assert case.checks[0] == Check("contains", "quantum", options={"threshold": 0.9})
    assert case.checks[1] == Check("judge", "Describes quantum?", options={"threshold": 0.8})
    assert case.tags == ("physics", "advanced,theory")
    assert case.meta["description"] == "first" and case.meta["threshold"] == 0.6
    assert case.meta["options"] == {"prefix": "Say: "}
    assert codes(row) == []


def test_findings_about_a_cell_stand_at_the_cell() -> None:
    (remark,) = DIALECT.findings({"city": "Rome", "__expected": "regex:("}, Rules())
    assert (remark.code, remark.path) == ("bad_regex", ("__expected",))
    assert remark.message.startswith("__expected: expected a regular expression, got '('")


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"vars": ["a"], "assert": [{"type": "is-json"}]}, ["bad_vars"]),
        ({"vars": {"a": 1}, "assert": {"type": "is-json"}}, ["bad_assert", "no_checks"]),
        ({"vars": {"a": 1}}, ["no_checks"]),
        ({"vars": {"a": "file://a.txt"}, "assert": [{"type": "is-json"}]}, ["file_not_read"]),
        ({"a": "file://a.txt", "__expected": "y"}, ["file_not_read"]),
        ({"vars": {"a": 1}, "assert": [{"type": "is-json"}], "options": {"transform": "x"}}, []),
        ({"a": "x", "__expected": "{{ a | uper }}"}, ["template_not_filled"]),
        ({"vars": {"a": ["x", "y"]}, "assert": [{"type": "is-json"}]}, ["list_of_variables"]),
        ({"vars": {}, "assert": [{"type": "is-json"}], "threshold": "high"}, ["bad_threshold"]),
        ({"a": "x", "__expected": "contians: y"}, ["unknown_assert_type"]),
        ({"a": "x", "__expected": ""}, ["no_checks"]),
        ({"a": "x", "__expected": "y", "__config:__expected2:threshold": "1"}, ["unknown_column"]),
        ({"a": "x", "__expected": "y", "__config:__expected:threshold": "high"}, ["bad_threshold"]),
        ({"a": "x", "__expected": "y", "__expceted2": "z"}, ["unknown_column"]),
    ],
)
def test_findings(record: Record, expected: list[str]) -> None:
    assert codes(record) == expected


@pytest.mark.parametrize(
    ("record", "is_ours"),
    [
        ({"vars": {"a": 1}, "assert": []}, True),
        ({"vars": {"a": 1}}, True),
        ({"id": "1", "vars": {"a": 1}}, False),
        ({"description": "x", "assert": [{"type": "is-json"}]}, True),
        ({"city": "Rome", "__expected": ""}, True),
        ({"query": "q", "__outputs.response": "r"}, False),
        ({"_expected": {"contains": "a"}, "variables": {}}, False),
        ({"prompts": ["{{a}}"], "providers": ["x"], "tests": []}, True),
        ({"prompt": "a", "label": "b"}, False),
    ],
)
def test_only_its_own_marks_are_recognised(record: Record, is_ours: bool) -> None:
    assert bool(DIALECT.sniff(record)) == is_ours


def test_default_test_applies_to_every_test_and_stands_beside_it() -> None:
    default = {"vars": {"tone": "kind"}, "assert": [{"type": "latency", "threshold": 9}], "options": {"timeout": 1}}
    off = {"vars": {"tone": "rude"}, "options": {"disableDefaultAsserts": True}}
    document = {"prompts": ["x"], "defaultTest": default, "tests": [{"assert": [{"type": "is-json"}]}, off]}
    first, second = cases(document)
    assert first.inputs == {"tone": "kind"} and second.inputs == {"tone": "rude"}
    assert [check.kind for check in first.checks] == ["is_json", "latency"]
    assert second.checks == () and codes(second.raw) == ["no_checks"]
    assert [path for path, _ in records(document)] == [("tests", 0), ("tests", 1)]


def test_a_fault_of_default_test_is_said_once() -> None:
    document = {"defaultTest": {"assert": [{"type": "contains"}]}, "tests": [{"vars": {"a": 1}}, {"vars": {"a": 2}}]}
    (remark,) = others(document)
    assert isinstance(remark, Remark)
    assert (remark.code, remark.path) == ("missing_value", ("defaultTest", "assert", 0))
    assert remark.message == "defaultTest.assert[0].value: missing; 'contains' needs it"
    assert [codes(record) for _, record in records(document)] == [[], []]


@pytest.mark.parametrize("place", ["defaultTest", "test", "scenario"])
def test_a_transform_applies_to_every_check_of_its_tests(place: str) -> None:
    test: Record = {"vars": {"q": "x"}, "assert": [{"type": "is-json", "transform": "output.a"}]}
    options = {"options": {"transform": "output.trim()"}}
    places: dict[str, Record] = {
        "defaultTest": {"defaultTest": options, "tests": [test]},
        "test": {"prompts": ["x"], "tests": [test | options]},
        "scenario": {"scenarios": [{"config": [options], "tests": [test]}]},
    }
    ((_, record),) = records(places[place])
    assert not [*others(places[place]), *DIALECT.findings(record, Rules())]
    steps = DIALECT.to_case(record, ORIGIN).checks[0].options["transform"]
    assert [step["source"] for step in steps] == ["output.trim()", "output.a"]


def test_templates_of_default_test_are_told_once_and_lacking_variables_where_they_lack() -> None:
    asserted = [{"type": "contains", "value": value} for value in ("{{ q | uper }}", "{{name}}")]
    tests = [{"vars": {"q": "x", "name": "Bea"}}, {"vars": {"q": "x"}}]
    document = {"defaultTest": {"assert": asserted}, "tests": tests}
    assert [item.code for item in others(document) if isinstance(item, Remark)] == ["template_not_filled"]
    assert [codes(record) for _, record in records(document)] == [[], ["template_not_filled"]]
    assert ["unsupported" in check.options for check in cases(document)[0].checks] == [True, False]


def test_variables_are_filled_into_variables_once() -> None:
    given = {"name": "Bea", "hello": "Hi {{ name }}", "letter": "{{hello}}!", "self": "{{self}}", "n": 1}
    case = DIALECT.to_case({"vars": given, "assert": [{"type": "equals", "value": "{{hello}}"}]}, ORIGIN)
    assert case.inputs == {**given, "hello": "Hi Bea", "letter": "Hi {{ name }}!"}
    assert case.checks == (Check("equals", "Hi Bea"),) and case.raw["vars"] == given


def test_equal_sets_beside_each_other_stay_two() -> None:
    one = {"type": "assert-set", "threshold": 0.5, "assert": [{"type": "contains", "value": "a"}] * 2}
    case = DIALECT.to_case({"vars": {"q": "x"}, "assert": [one, one]}, ORIGIN)
    assert [check.options["set_id"] for check in case.checks] == [0, 0, 1, 1]


def test_scenarios_cross_their_configurations_with_their_tests() -> None:
    scenario = {
        "description": "greetings",
        "config": [
            {"vars": {"language": "French", "hello": "Bonjour"}},
            {"vars": {"language": "German", "hello": "Hallo"}},
        ],
        "tests": [{"vars": {"text": "Hello"}, "assert": [{"type": "equals", "value": "{{hello}}"}]}],
    }
    french, german = cases({"prompts": ["x"], "scenarios": [scenario]})
    assert french.inputs["language"] == "French" and french.checks == (Check("equals", "Bonjour"),)
    assert german.inputs["language"] == "German" and german.checks == (Check("equals", "Hallo"),)
    assert german.meta == {"scenario": "greetings", "metadata": {"conversationId": "__scenario_1__"}}


def test_lists_among_the_variables_are_combined() -> None:
    test = {"vars": {"a": ["1", "2"], "b": ["x", "y"], "c": [1, 2]}, "assert": [{"type": "is-json"}]}
    assert [case.inputs["a"] + case.inputs["b"] for case in cases({"tests": [test]})] == ["1x", "1y", "2x", "2y"]
    assert cases({"tests": [test]})[0].inputs["c"] == [1, 2]
    assert len(cases({"tests": [{**test, "options": {"disableVarExpansion": True}}]})) == 1


def test_too_many_combinations_are_one_case_and_a_warning() -> None:
    document = {"tests": [{"vars": {name: ["x"] * 100 for name in "abcdef"}}]}
    assert len(cases(document)) == 1
    assert [item.code for item in others(document) if isinstance(item, Remark)] == ["too_many_combinations"]


def test_references_to_templates_are_resolved() -> None:
    document = {
        "assertionTemplates": {"noise": {"type": "icontains", "value": "arrr"}},
        "tests": [
            {"assert": [{"$ref": "#/assertionTemplates/noise", "weight": 2}, {"$ref": "#/assertionTemplates/none"}]}
        ],
    }
    ((_, record),) = records(document)
    assert DIALECT.to_case(record, ORIGIN).checks == (Check("icontains", "arrr", options={"weight": 2}),)
    assert codes(record) == ["unresolved_ref"]


@pytest.mark.parametrize("name", ["file://tests.csv", "tests.jsonl", "file://more/tests.yaml", "file://tests.json.gz"])
def test_files_that_can_be_read_are_included(name: str) -> None:
    file = name.removeprefix("file://")
    for document, path in (
        ({"prompts": ["x"], "tests": name}, ("tests",)),
        ({"tests": [{"vars": {}}, name]}, ("tests", 1)),
    ):
        (included,) = others(document)
        assert isinstance(included, Included) and (included.file, included.path) == (file, path)


@pytest.mark.parametrize(
    ("name", "code", "severity"),
    [
        ("file://tests/*", "file_missing", "error"),
        ("file://make.py:tests", "code_not_run", "warning"),
        ("tests.rb", "code_not_run", "warning"),
        ("tests.js", "file_missing", "error"),
        ("https://host/tests.csv", "file_not_read", "warning"),
        ("huggingface://datasets/a?b=c", "file_not_read", "warning"),
        ("tests.xlsx", "file_not_read", "warning"),
    ],
)
def test_what_cannot_be_read_is_named(name: str, code: str, severity: str) -> None:
    (remark,) = others({"prompts": ["x"], "tests": [name]})
    assert isinstance(remark, Remark)
    assert (remark.code, remark.severity, remark.path) == (code, severity, ("tests", 0))
    assert name.removeprefix("file://") in remark.message


def test_a_config_without_tests_runs_each_prompt_once() -> None:
    document = {"prompts": ["x"], "providers": ["y"]}
    (remark,) = others(document)
    assert isinstance(remark, Remark) and (remark.code, remark.severity) == ("no_tests", "info")
    assert records(document) == [((), {})]


def test_red_team_sections_are_named_and_have_no_case() -> None:
    document = {"targets": ["x"], "prompts": ["x"], "redteam": {"plugins": ["pii"]}}
    found = {item.code for item in others(document) if isinstance(item, Remark)}
    assert found == {"section_not_used", "no_tests"} and records(document) == []


def test_other_documents_are_left_alone() -> None:
    assert DIALECT.expanded({"tests": [{"input": "a", "target": "b"}]}, Surroundings()) is None
    assert DIALECT.expanded({"vars": {"a": 1}, "assert": []}, Surroundings()) is None


@given(st.dictionaries(st.sampled_from(NAMES), JSON))
def test_no_record_raises(record: dict[str, Any]) -> None:
    for _, found in [((), record), *records(record)]:
        list(DIALECT.findings(found, Rules()))
        assert DIALECT.to_case(found, ORIGIN).raw == found
