"""The asserts of promptfoo."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalloom import catalog
from evalloom.core.model import Case, Check
from evalloom.interop.promptfoo import asserts

WRITERS = catalog.load().formats.writers


def codes(written: Any) -> list[str]:
    return [remark.code for remark in asserts.findings(written, ("assert", 0), {}, "")]


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("Paris", {"type": "equals", "value": "Paris"}),
        ("contains: algorithm", {"type": "contains", "value": "algorithm"}),
        ("icontains:faim", {"type": "icontains", "value": "faim"}),
        ("not-contains:error", {"type": "not-contains", "value": "error"}),
        ('contains-any: a, "b, c"', {"type": "contains-any", "value": ["a", "b, c"]}),
        ("similar(0.9): Hello", {"type": "similar", "value": "Hello", "threshold": 0.9}),
        ("similar:Hello", {"type": "similar", "value": "Hello", "threshold": 0.8}),
        ("latency(3000)", {"type": "latency", "threshold": 3000.0}),
        ("is-json", {"type": "is-json"}),
        ("fn:output.length > 3", {"type": "javascript", "value": "output.length > 3"}),
        ("grade: is polite", {"type": "llm-rubric", "value": "is polite"}),
        ("file://check.py:fits", {"type": "python", "value": "file://check.py:fits"}),
        ("python", {"type": "equals", "value": "python"}),
        ("Note: this is text", {"type": "equals", "value": "Note: this is text"}),
    ],
)
def test_a_cell_stands_for_an_assert(cell: str, written: dict[str, Any]) -> None:
    assert asserts.from_cell(cell) == written


@pytest.mark.parametrize(
    ("written", "check"),
    [
        ({"type": "equals", "value": 4}, Check("equals", "4")),
        ({"type": "not-icontains", "value": "x"}, Check("icontains", "x", options={"negate": True})),
        ({"type": "contains-all", "value": [1.0, "b"]}, Check("contains_all", ["1", "b"])),
        ({"type": "is-json"}, Check("is_json")),
        ({"type": "is-json", "value": "type: object"}, Check("json_schema", {"type": "object"})),
        (
            {"type": "similar", "value": "a", "weight": 2},
            Check("similarity", "a", options={"weight": 2, "threshold": 0.75}),
        ),
        (
            {"type": "factuality", "value": "a", "metric": "facts"},
            Check("judge", "a", name="facts", options={"variant": "factuality"}),
        ),
        ({"type": "cost", "threshold": 0.1}, Check("cost", options={"threshold": 0.1})),
        ({"type": "regex", "value": "(?<year>\\d+)"}, Check("regex", "(?P<year>\\d+)")),
        ({"type": "house-rule", "value": "a"}, Check("house_rule", "a")),
    ],
)
def test_an_assert_becomes_a_check(written: dict[str, Any], check: Check) -> None:
    assert list(asserts.checks(written, {})) == [check]


def test_variables_are_filled_in_in_code_too() -> None:
    (text,) = asserts.checks({"type": "contains", "value": "{{ city }} and {{other}}"}, {"city": "Paris"})
    (code,) = asserts.checks({"type": "python", "value": "'{{ city }}' in output"}, {"city": "Paris"})
    assert text.options["unsupported"] == "'{{ city }} and {{other}}' names 'other', which the test does not have"
    assert code.expected == "'Paris' in output"


def test_templates_of_values_are_rendered() -> None:
    written = {"type": "contains", "value": "{{ q | upper }}{% for x in xs %}{{ x }}{% endfor %}"}
    (check,) = asserts.checks(written, {"q": "a", "xs": [1, 2]})
    assert check.expected == "A12" and "unsupported" not in check.options


def test_a_set_gives_its_members_its_threshold() -> None:
    members = [{"type": "contains", "value": "a"}, {"type": "contains", "value": "b", "threshold": 1}]
    found = list(asserts.checks({"type": "assert-set", "threshold": 0.5, "assert": members}, {}))
    assert [check.expected for check in found] == ["a", "b"]
    assert found[1].options == {"threshold": 1, "set_id": 0, "set_threshold": 0.5}


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ({"type": "contains", "value": "a", "transform": 5}, "expected JavaScript or a file, got 5"),
        ({"type": "contains", "value": "a", "transform": "file://x.rb"}, "expected a file of JavaScript or Python"),
        ({"type": "not-contains", "value": "{{ q | uper }}"}, "there is no filter 'uper'"),
        ({"type": "equals", "value": "{% if q %}a{% endfor %}"}, "line 1: Encountered unknown tag 'endfor'"),
        ({"type": "contains", "value": "in {{ letter }}"}, "names 'letter', which the test does not have"),
        ({"type": "is-json", "value": "file://schema.json"}, "there is no file 'file://schema.json'"),
        ({"type": "javascript", "value": "file://check.js"}, "there is no file 'file://check.js'"),
        ({"type": "contains", "value": "file:///etc/passwd"}, "is outside the folder"),
        ("file://asserts.yaml", "there is no file 'file://asserts.yaml'"),
    ],
)
def test_what_cannot_be_judged_as_promptfoo_would_says_why(written: Any, why: str) -> None:
    (check,) = asserts.checks(written, {"q": "x", "letter": "file://letter.txt"})
    assert why in check.options["unsupported"]
    (plain,) = asserts.checks({"type": "contains", "value": "{{ q }}", "transform": None}, {"q": "x"})
    assert "unsupported" not in plain.options


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("contains", ["bad_assert"]),
        ({"value": "a"}, ["bad_assert"]),
        ({"$ref": "#/nowhere"}, ["unresolved_ref"]),
        ({"type": "contains"}, ["missing_value"]),
        ({"type": "latency"}, ["missing_threshold"]),
        ({"type": "latency", "threshold": "fast"}, ["bad_threshold"]),
        ({"type": "contains", "value": "a", "weight": True}, ["bad_weight"]),
        ({"type": "contains", "value": ["a"]}, ["bad_value"]),
        ({"type": "contains", "value": ""}, ["empty_expected"]),
        ({"type": "contains-any", "value": []}, ["bad_value"]),
        ({"type": "regex", "value": "("}, ["bad_regex"]),
        ({"type": "regex", "value": "\\d+"}, []),
        ({"type": "is-json", "value": "not a schema"}, ["bad_schema"]),
        ({"type": "contains", "value": "file://a.txt"}, ["file_missing"]),
        ({"type": "python", "value": "file://a.py"}, ["file_missing"]),
        ({"type": "contains", "value": "file://../a.txt"}, ["file_outside"]),
        ({"type": "contains", "value": "a", "transform": "output.a"}, []),
        ({"type": "contains", "value": "a", "transform": {}}, []),
        ({"type": "contains", "value": "a", "transform": {"a": 1}}, ["bad_transform"]),
        ({"type": "contains", "value": "a", "provider": "x"}, []),
        ({"type": "llm-rubric", "value": "a", "provider": "x", "rubricPrompt": "y"}, ["grader_not_used"]),
        ({"type": "factuality", "value": "a", "rubricPrompt": "y"}, ["grader_not_used"]),
        ({"type": "contains-any", "value": ["a", "{{ q | uper }}"]}, ["template_not_filled"]),
        ({"type": "assert-set", "assert": {}}, ["bad_assert"]),
        ({"type": "assert-set", "assert": [{"type": "assert-set", "assert": []}]}, ["bad_assert"]),
    ],
)
def test_findings(written: Any, expected: list[str]) -> None:
    assert codes(written) == expected


def test_an_unknown_type_is_told_the_nearest_one() -> None:
    (remark,) = asserts.findings({"type": "not-icontians", "value": "a"}, ("assert", 2), {})
    assert (remark.code, remark.severity, remark.path) == ("unknown_assert_type", "warning", ("assert", 2, "type"))
    assert remark.message.startswith("assert[2].type: expected a known type, got 'icontians', so it will not be scored")
    assert remark.message.endswith(". Did you mean 'icontains'?")


def test_a_pattern_only_javascript_knows_is_a_warning() -> None:
    (remark,) = asserts.findings({"type": "regex", "value": "\\p{L}+"}, ("assert", 0), {})
    assert (remark.code, remark.severity) == ("bad_regex", "warning")


def test_what_is_unsupported_is_not_converted_as_if_it_were() -> None:
    kinds = ("equals", "contains", "regex")
    written = [{"type": kind, "value": "{{ q | uper }}"} for kind in kinds]
    case = Case("a", {"q": "x"}, tuple(check for item in written for check in asserts.checks(item, {"q": "x"})))
    for dialect in WRITERS:
        assert dialect.write is not None
        made = dialect.write(case, 1)
        assert "uper" not in str(made.record)
        assert [note for note in made.lost if note.startswith("check: ")] == [
            f"check: {kind} on output has no place" for kind in kinds
        ]


@given(
    st.text()
    | st.builds("{}:{}".format, st.sampled_from(["contains-any", "regex", "is-json", "similar(1)"]), st.text())
)
def test_no_cell_raises(cell: str) -> None:
    written = asserts.from_cell(cell)
    list(asserts.cell_findings(cell, "__expected"))
    list(asserts.findings(written, ("__expected",), {}))
    assert list(asserts.checks(written, {}))
