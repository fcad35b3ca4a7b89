"""What is wrong with an assert of promptfoo, or will not work here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Path, Record, Remark, error, show_path, warning
from evalloom.core.patterns import pattern_error
from evalloom.core.text import describe, did_you_mean, quote
from evalloom.data.cells import is_blank
from evalloom.interop.promptfoo import assert_types as types
from evalloom.interop.promptfoo.assert_transforms import TEST_TRANSFORMS, transforms_of
from evalloom.interop.promptfoo.assert_values import python_regex, render, schema_of, text_of, value_of, why_unfilled
from evalloom.interop.promptfoo.files import FileProblem, is_file, read

# Syntax of JavaScript that Python's `re` refuses: such a pattern is valid in promptfoo, so it is only a warning.
_JAVASCRIPT_ONLY = lazy_pattern(r"\\[pP]\{|\\u\{|\[\^?\]|\\c[A-Za-z]")
_GRADED = frozenset({*types.JUDGED, *types.SIMILAR, "llm-rubric", "similar"})
_TEXTS = frozenset({*types.TEXTUAL, *types.LISTED})


def findings(written: Any, at: Path, variables: Record | None, base: str | None = None) -> Iterator[Remark]:
    """The findings of one assert, or of the asserts in a set.

    `variables` is None for an assert that many tests share, each with variables of its own; `base` is the folder of its
    files, None if it is unknown.
    """
    if (plain := types.plain_of(written)) is not None and _is_clean(*plain):
        return
    if is_file(written):
        if base is not None:
            yield from _file_findings(written, at, base)
    elif not isinstance(written, dict):
        yield error("bad_assert", at, f"{show_path(at)}: expected an object with 'type', got {describe(written)}")
    elif "$ref" in written:
        message = f"{show_path(at)}.$ref: expected a place in this document, got {quote(written['$ref'])}"
        yield error("unresolved_ref", (*at, "$ref"), message)
    elif not isinstance(written.get("type"), str):
        problem = f"expected a type of assert, got {describe(written['type'])}" if "type" in written else "missing"
        yield error(
            "bad_assert",
            (*at, "type"),
            f"{show_path(at)}.type: {problem}; known are equals, contains, regex and others",
        )
    elif written["type"] == types.SET:
        yield from _set_findings(written, at, variables, base)
    else:
        yield from _single_findings(written, at, variables, base)


@lru_cache(1024)
def _is_clean(type_: str, value: str) -> bool:
    """Whether an assert without any options has no finding; many tests have the same."""
    return not any(True for _ in _single_findings({"type": type_, "value": value}, (), {}, None))


def _file_findings(reference: str, at: Path, base: str) -> Iterator[Remark]:
    try:
        content = read(reference, base).value
    except FileProblem as problem:
        yield error(problem.code, at, f"{show_path(at)}: {problem.message}")
        return
    for written in content if isinstance(content, list) else [content]:
        for remark in findings(written, at, None, base):
            yield warning(remark.code, at, f"{remark.message}, in {quote(reference)}")


def _set_findings(written: Record, at: Path, variables: Record | None, base: str | None) -> Iterator[Remark]:
    field = show_path(at)
    yield from _number_findings(written, at)
    members = written.get("assert")
    if not isinstance(members, list):
        yield error(
            "bad_assert", (*at, "assert"), f"{field}.assert: expected a list of asserts, got {describe(members)}"
        )
        return
    for number, member in enumerate(members):
        path = (*at, "assert", number)
        if isinstance(member, dict) and member.get("type") == types.SET:
            yield error("bad_assert", path, f"{show_path(path)}: expected a single assert, got a set inside a set")
        else:
            yield from findings(member, path, variables, base)


def _single_findings(written: Record, at: Path, variables: Record | None, base: str | None) -> Iterator[Remark]:
    type_, _ = types.base_type(written)
    yield from _number_findings(written, at)
    if base is not None:
        yield from transform_findings(written, at, ("transform", "contextTransform"), base)
    if type_ in _GRADED:
        yield from grader_findings(written, at, type_)
    if type_ not in types.TYPES and not type_.startswith(types.RED_TEAM):
        hint = did_you_mean(type_, types.TYPES) or ". Write one of these, or 'checks:' in evalloom.yaml: docs/checks.md"
        message = f"{show_path(at)}.type: expected a known type, got {quote(type_)}, so it will not be scored{hint}"
        yield warning("unknown_assert_type", (*at, "type"), message)
    if type_ in types.NEEDS_VALUE and "value" not in written:
        yield error("missing_value", at, f"{show_path(at)}.value: missing; {type_!r} needs it")
    elif type_ in types.NEEDS_THRESHOLD and "threshold" not in written:
        yield error("missing_threshold", at, f"{show_path(at)}.threshold: missing; {type_!r} needs it")
    elif "value" in written:
        yield from _value_findings(written, type_, at, variables, base)


def grader_findings(written: Record, at: Path, type_: str = "") -> Iterator[Remark]:
    """A warning for each choice of a grader in an assert that is graded by an llm, or in the options of a test."""
    if type_ and type_ not in _GRADED:
        return
    if written.get("provider"):
        path = (*at, "provider")
        message = f"{show_path(path)}: is not used here; the judge of the run grades it. Name the judge with --judge"
        yield warning("grader_not_used", path, message)
    if written.get("rubricPrompt") and type_ not in ("", "llm-rubric"):
        path = (*at, "rubricPrompt")
        message = f"{show_path(path)}: is used only by 'llm-rubric'; the judge has a prompt of its own for {type_!r}"
        yield warning("grader_not_used", path, message)


def transform_findings(
    written: Record, at: Path, names: Iterable[str] = TEST_TRANSFORMS, base: str | None = None
) -> Iterator[Remark]:
    """Errors of the transforms in an assert or in the options of a test."""
    if base is None:
        return
    for name in names:
        _, problem = transforms_of(written, (name,), base)
        if problem:
            path = (*at, name)
            yield error("bad_transform", path, f"{show_path(path)}: {problem}")


def _number_findings(written: Record, at: Path) -> Iterator[Remark]:
    for name in ("threshold", "weight"):
        if name in written and types.number(written[name]) is None:
            message = f"{show_path((*at, name))}: expected a number, got {describe(written[name])}"
            yield error(f"bad_{name}", (*at, name), message)


def _value_findings(
    written: Record, type_: str, at: Path, variables: Record | None, base: str | None
) -> Iterator[Remark]:
    value = written["value"]
    is_text = isinstance(value, str) and bool(value.strip())
    if is_text and "{" not in value and not is_file(value) and type_ not in ("regex", "is-json"):
        # Most values are a text without templates, which suits every other type.
        return
    path = (*at, "value")
    field = show_path(path)
    if is_file(value) or (isinstance(value, list) and any(map(is_file, value))):
        problem = value_of(value, type_, {}, base) if base is not None else None
        if problem and problem.code == "file_not_read":
            yield warning("file_not_read", path, f"{field}: {problem.problem}, so the assert stays unscored")
        elif problem and problem.code:
            yield error(problem.code, path, f"{field}: {problem.problem}")
    elif type_ not in types.CODE and (why := why_unfilled(value, variables)):
        yield warning("template_not_filled", path, f"{field}: {why}, so the assert stays unscored")
    elif type_ in types.TEXTUAL and (isinstance(value, list | dict) or value is None):
        yield error("bad_value", path, f"{field}: expected a string, got {describe(value)}")
    elif type_ in types.LISTED and not (isinstance(value, str) or (isinstance(value, list) and value)):
        yield error("bad_value", path, f"{field}: expected a list of strings, got {describe(value)}")
    elif type_ in _TEXTS and is_blank(value):
        yield warning("empty_expected", path, f"{field}: is empty, so {type_!r} holds for any answer")
    elif type_ == "regex":
        yield from _regex_findings(text_of(render(value, variables or {})), path)
    elif type_ == "is-json" and not is_blank(value) and not isinstance(schema_of(value), dict | bool):
        yield warning("bad_schema", path, f"{field}: expected a JSON Schema, got {describe(value)}")


def _regex_findings(pattern: str, path: Path) -> Iterator[Remark]:
    reason = "" if "{{" in pattern else pattern_error(python_regex(pattern))
    field = show_path(path)
    if reason and _JAVASCRIPT_ONLY.search(pattern):
        message = f"{field}: expected a regular expression that Python knows too, got {quote(pattern)}: {reason}"
        yield warning("bad_regex", path, message)
    elif reason:
        yield error("bad_regex", path, f"{field}: expected a regular expression, got {quote(pattern)}: {reason}")
