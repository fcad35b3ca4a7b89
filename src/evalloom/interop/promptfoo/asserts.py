"""The asserts of promptfoo: their types, their form in table cells, and their findings."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Check, Path, Record, Remark, error, show_path, warning
from evalloom.core.patterns import pattern_error
from evalloom.core.text import describe, did_you_mean, quote
from evalloom.data.cells import is_blank
from evalloom.files.rows import Row

SET = "assert-set"
_KINDS = {
    "equals": "equals",
    "contains": "contains",
    "icontains": "icontains",
    "contains-all": "contains_all",
    "contains-any": "contains_any",
    "icontains-all": "icontains_all",
    "icontains-any": "icontains_any",
    "starts-with": "starts_with",
    "ends-with": "ends_with",
    "regex": "regex",
    "is-json": "is_json",
    "contains-json": "contains_json",
    "levenshtein": "levenshtein",
    "similar": "similarity",
    "latency": "latency",
    "cost": "cost",
    "python": "python",
    "javascript": "javascript",
    "rouge-n": "rouge",
    "rouge-l": "rouge",
    "bleu": "bleu",
    "llm-rubric": "judge",
}
# Scored by the judge, which gets the type as its variant.
_JUDGED = (
    "agent-rubric",
    "answer-relevance",
    "context-faithfulness",
    "context-recall",
    "context-relevance",
    "conversation-relevance",
    "factuality",
    "g-eval",
    "model-graded-closedqa",
    "model-graded-factuality",
    "pi",
    "search-rubric",
    "trajectory:goal-success",
)
_SIMILAR = ("similar:cosine", "similar:dot", "similar:euclidean")
# Recognised, so that they are not reported as misspelled. The matchers tell which of them can be scored.
_OTHER = (
    "classifier",
    "contains-html",
    "contains-sql",
    "contains-xml",
    "finish-reason",
    "gleu",
    "guardrails",
    "human",
    "is-html",
    "is-refusal",
    "is-sql",
    "is-valid-function-call",
    "is-valid-openai-function-call",
    "is-valid-openai-tools-call",
    "is-xml",
    "max-score",
    "meteor",
    "moderation",
    "perplexity",
    "perplexity-score",
    "ruby",
    "rouge-s",
    "select-best",
    "skill-used",
    "tool-call-f1",
    "trace-error-spans",
    "trace-span-count",
    "trace-span-duration",
    "trajectory:step-count",
    "trajectory:tool-args-match",
    "trajectory:tool-sequence",
    "trajectory:tool-used",
    "video-rubric",
    "webhook",
    "word-count",
)
_RED_TEAM = "promptfoo:redteam:"
_TYPES = (*_KINDS, *_JUDGED, *_SIMILAR, *_OTHER)
_LISTED = ("contains-all", "contains-any", "icontains-all", "icontains-any")
_TEXTUAL = ("contains", "icontains", "starts-with", "ends-with", "levenshtein", "regex")
_CODE = ("python", "javascript", "ruby")
_NEEDS_VALUE = (
    *("equals", "similar", "bleu", "rouge-n", "rouge-l", "llm-rubric", "factuality", "g-eval", "webhook"),
    *("model-graded-closedqa", "model-graded-factuality", "select-best"),
    *(*_LISTED, *_TEXTUAL, *_CODE, *_SIMILAR),
)
_NEEDS_THRESHOLD = ("latency", "cost", "perplexity")
_STANDS_ALONE = (
    *("is-json", "contains-json", "is-sql", "contains-sql", "is-html", "contains-html", "is-xml", "contains-xml"),
    *("is-refusal", "guardrails", "is-valid-openai-tools-call", "is-valid-openai-function-call"),
)
# Thresholds that promptfoo takes where an assert names none.
_DEFAULT_THRESHOLDS = {
    "similar": 0.75,
    "levenshtein": 5,
    "rouge-n": 0.75,
    "rouge-l": 0.75,
    "bleu": 0.5,
    "gleu": 0.5,
    "meteor": 0.5,
}
_TABLE_SIMILARITY = 0.8
"""Default threshold of `similar` in a table, higher than in a config."""
_LEGACY = {"javascript:": "javascript", "fn:": "javascript", "eval:": "javascript", "grade:": "llm-rubric"}
_CELL = lazy_pattern(
    rf"(not-)?({'|'.join(sorted(_TYPES, key=len, reverse=True))})(?:\((\d+(?:\.\d+)?)\))?(?::(.*))?", re.DOTALL
)
_CODE_FILE = lazy_pattern(r"file://(.+\.(py|[cm]?[jt]s)(?::\w+)?)")
_VARIABLE = lazy_pattern(r"\{\{\s*([\w.-]+)\s*\}\}")
_ASSERT_TRANSFORMS = ("transform", "contextTransform")
_TEST_TRANSFORMS = ("transform", "transformVars", "postprocess")
# Syntax of JavaScript that Python's `re` refuses: such a pattern is valid in promptfoo, so it is only a warning.
_JAVASCRIPT_ONLY = lazy_pattern(r"\\[pP]\{|\\u\{|\[\^?\]|\\c[A-Za-z]")


def from_cell(text: str) -> Record:
    """Parse the assert in a cell: `type(threshold): value`; any other text is the expected answer."""
    text = text.strip()
    for prefix, type_ in _LEGACY.items():
        if text.startswith(prefix):
            return {"type": type_, "value": text.removeprefix(prefix).strip()}
    if file := _CODE_FILE.fullmatch(text):
        return {"type": "python" if file[2] == "py" else "javascript", "value": text}
    match = _CELL.fullmatch(text)
    negation, type_, threshold, value = match.groups() if match else ("", "", None, None)
    # A bare word such as `cost` is an answer, unless its type needs neither a threshold nor a value.
    if value is None and threshold is None and type_ not in _STANDS_ALONE:
        return {"type": "equals", "value": text}
    assertion: Record = {"type": (negation or "") + type_}
    if value is not None:
        assertion["value"] = _parts(value) if type_ in _LISTED else value.strip()
    if threshold is not None:
        assertion["threshold"] = float(threshold)
    elif type_ == "similar":
        assertion["threshold"] = _TABLE_SIMILARITY
    return assertion


def _parts(value: str) -> list[str]:
    """Split comma-separated texts; a text with a comma is in double quotes."""
    import csv  # deferred: few asserts are written as CSV

    try:
        rows = list(csv.reader([value.replace("\r", " ").replace("\n", " ")], skipinitialspace=True))
    except csv.Error:
        return [part.strip() for part in value.split(",")]
    return [part.strip() for part in rows[0]] if rows else []


def cell_findings(text: str, column: str) -> Iterator[Remark]:
    """Warn about a misspelled assert in a cell, whose whole text would be the expected answer."""
    word, colon, _ = text.strip().partition(":")
    word = word.partition("(")[0]
    if not colon or from_cell(text)["type"] != "equals" or word.removeprefix("not-") in ("equals", "file"):
        return
    if hint := did_you_mean(word.removeprefix("not-"), _TYPES, 0.8):
        message = f"{column}: expected an assert type, got {quote(word)}; the whole text is taken for the answer"
        yield warning("unknown_assert_type", (column,), message + hint)


def base_type(written: Record) -> tuple[str, bool]:
    """The type without `not-`, and whether it had that prefix."""
    type_ = written.get("type")
    type_ = type_ if isinstance(type_, str) else ""
    return (type_[4:], True) if type_.startswith("not-") and type_ not in _TYPES else (type_, False)


def findings(written: Any, at: Path, variables: Record | None) -> Iterator[Remark]:
    """The findings of one assert, or of the asserts in a set.

    `variables` is None for an assert that many tests share, each with variables of its own.
    """
    field = show_path(at)
    if is_file(written):
        yield warning(
            "file_not_read", at, f"{field}: expected an assert, got the file {quote(written)}, which is not read"
        )
    elif not isinstance(written, dict):
        yield error("bad_assert", at, f"{field}: expected an object with 'type', got {describe(written)}")
    elif "$ref" in written:
        message = f"{field}.$ref: expected a place in this document, got {quote(written['$ref'])}"
        yield error("unresolved_ref", (*at, "$ref"), message)
    elif not isinstance(written.get("type"), str):
        problem = f"expected a type of assert, got {describe(written['type'])}" if "type" in written else "missing"
        yield error(
            "bad_assert", (*at, "type"), f"{field}.type: {problem}; known are equals, contains, regex and others"
        )
    elif written["type"] == SET:
        yield from _set_findings(written, at, variables)
    else:
        yield from _single_findings(written, at, variables)


def _set_findings(written: Record, at: Path, variables: Record | None) -> Iterator[Remark]:
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
        if isinstance(member, dict) and member.get("type") == SET:
            yield error("bad_assert", path, f"{show_path(path)}: expected a single assert, got a set inside a set")
        else:
            yield from findings(member, path, variables)


def _single_findings(written: Record, at: Path, variables: Record | None) -> Iterator[Remark]:
    type_, _ = base_type(written)
    field = show_path(at)
    yield from _number_findings(written, at)
    yield from transform_findings(written, at, _ASSERT_TRANSFORMS)
    if type_ not in _TYPES and not type_.startswith(_RED_TEAM):
        hint = did_you_mean(type_, _TYPES) or ". Write one of these, or 'checks:' in evalloom.yaml: docs/checks.md"
        message = f"{field}.type: expected a known type, got {quote(type_)}, so it will not be scored{hint}"
        yield warning("unknown_assert_type", (*at, "type"), message)
    if type_ in _NEEDS_VALUE and "value" not in written:
        yield error("missing_value", at, f"{field}.value: missing; {type_!r} needs it")
    elif type_ in _NEEDS_THRESHOLD and "threshold" not in written:
        yield error("missing_threshold", at, f"{field}.threshold: missing; {type_!r} needs it")
    elif "value" in written:
        yield from _value_findings(written, type_, at, variables)


def transform_findings(written: Record, at: Path, names: Iterable[str] = _TEST_TRANSFORMS) -> Iterator[Remark]:
    """A warning for each transform in an assert or in the options of a test, because transforms are not run."""
    for name in _transforms(written, names):
        path = (*at, name)
        message = f"{show_path(path)}: is not run here, so what it changes stays unscored. Do it in the target"
        yield warning("transform_not_run", path, message)


def why_unsupported(options: Record) -> str:
    """Why a test with these options cannot be scored as in promptfoo; empty when it can."""
    return next((f"options.{name} is not run here" for name in _transforms(options, _TEST_TRANSFORMS)), "")


def _transforms(written: Record, names: Iterable[str]) -> list[str]:
    return [name for name in names if written.get(name)]


def _number_findings(written: Record, at: Path) -> Iterator[Remark]:
    for name in ("threshold", "weight"):
        if name in written and number(written[name]) is None:
            message = f"{show_path((*at, name))}: expected a number, got {describe(written[name])}"
            yield error(f"bad_{name}", (*at, name), message)


def _value_findings(written: Record, type_: str, at: Path, variables: Record | None) -> Iterator[Remark]:
    value = written["value"]
    path = (*at, "value")
    field = show_path(path)
    if is_file(value):
        message = f"{field}: {quote(value)} names a file, which is not read, so the assert stays unscored"
        yield warning("file_not_read", path, message)
    elif type_ not in _CODE and (left := _template_in(value, variables)):
        only = "only the plain names of the test's variables are"
        message = f"{field}: {quote(left)} is not filled in, so the assert stays unscored; {only}"
        yield warning("template_not_filled", path, message)
    elif type_ in _TEXTUAL and (isinstance(value, list | dict) or value is None):
        yield error("bad_value", path, f"{field}: expected a string, got {describe(value)}")
    elif type_ in _LISTED and not (isinstance(value, str) or (isinstance(value, list) and value)):
        yield error("bad_value", path, f"{field}: expected a list of strings, got {describe(value)}")
    elif type_ in (*_TEXTUAL, *_LISTED) and is_blank(value):
        yield warning("empty_expected", path, f"{field}: is empty, so {type_!r} holds for any answer")
    elif type_ == "regex":
        yield from _regex_findings(_text(render(value, variables or {})), path)
    elif type_ == "is-json" and not is_blank(value) and not isinstance(_schema(value), dict | bool):
        yield warning("bad_schema", path, f"{field}: expected a JSON Schema, got {describe(value)}")


def _regex_findings(pattern: str, path: Path) -> Iterator[Remark]:
    reason = "" if "{{" in pattern else pattern_error(python_regex(pattern))
    field = show_path(path)
    if reason and _JAVASCRIPT_ONLY.search(pattern):
        message = f"{field}: expected a regular expression that Python knows too, got {quote(pattern)}: {reason}"
        yield warning("bad_regex", path, message)
    elif reason:
        yield error("bad_regex", path, f"{field}: expected a regular expression, got {quote(pattern)}: {reason}")


def python_regex(pattern: str) -> str:
    """Convert a JavaScript pattern to Python; in practice only named groups differ."""
    pattern = re.sub(r"\(\?<(?![=!])", "(?P<", pattern)
    return re.sub(r"\\k<(\w+)>", r"(?P=\1)", pattern)


def number(value: Any) -> float | int | None:
    """A finite number, also when written as text in a cell."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if isinstance(value, float) and not math.isfinite(value) else value


def checks(written: Any, variables: Record, index: int = 0, unsupported: str = "") -> Iterator[Check]:
    """The checks of one assert; a set yields those of its members, with the threshold and weight of the set.

    `index` identifies the set within the test; `unsupported` is the reason why the test cannot be scored here.
    """
    if is_file(written):
        yield Check("assert_file", written, options={"unsupported": f"the file {quote(written)} is not read here"})
    if not isinstance(written, dict) or not isinstance(written.get("type"), str):
        return
    common: Record = {"unsupported": unsupported} if unsupported else {}
    if written["type"] != SET:
        yield _check(written, variables, common)
        return
    members = written.get("assert")
    numbers = {f"set_{name}": written[name] for name in ("threshold", "weight", "metric") if name in written}
    shared = {**common, "set_id": index, **numbers}
    for member in members if isinstance(members, list) else []:
        if isinstance(member, dict) and isinstance(member.get("type"), str) and member["type"] != SET:
            yield _check(member, variables, shared)


def _check(written: Record, variables: Record, shared: Record) -> Check:
    type_, is_negated = base_type(written)
    options: Record = {name: value for name, value in written.items() if name not in ("type", "value", "metric")}
    options.update(shared)
    if why := _unsupported(written, type_, variables):
        options["unsupported"] = why
    for name in ("threshold", "weight"):
        if name in options:
            options[name] = number(options[name])
    if type_ in _DEFAULT_THRESHOLDS:
        options.setdefault("threshold", _DEFAULT_THRESHOLDS[type_])
    if is_negated:
        options["negate"] = True
    if type_ in _JUDGED:
        options["variant"] = type_
    elif type_ in _SIMILAR:
        options["variant"] = type_.removeprefix("similar:")
    elif type_ == "rouge-l":
        options["variant"] = "l"
    expected = _expected(written.get("value"), type_, variables)
    metric = written.get("metric")
    return Check(_kind(type_, expected), expected, name=metric if isinstance(metric, str) else "", options=options)


_TYPE_OF_KIND = {**{kind: type_ for type_, kind in reversed(_KINDS.items())}, "json_schema": "is-json"}


def type_of(check: Check) -> str:
    """The type of assert that a check is; its own kind where promptfoo has no such type."""
    variant = check.options.get("variant")
    if check.kind == "judge" and variant in _JUDGED:
        type_ = str(variant)
    elif check.kind == "similarity" and f"similar:{variant}" in _SIMILAR:
        type_ = f"similar:{variant}"
    elif check.kind == "rouge":
        type_ = "rouge-l" if variant == "l" else "rouge-n"
    else:
        type_ = _TYPE_OF_KIND.get(check.kind, check.kind)
    return f"not-{type_}" if check.options.get("negate") else type_


def _unsupported(written: Record, type_: str, variables: Record) -> str:
    """Why an assert cannot be scored as in promptfoo; empty when it can."""
    value = written.get("value")
    if changed := _transforms(written, _ASSERT_TRANSFORMS):
        return f"{changed[0]} is not run here"
    if is_file(value):
        return f"the file {quote(value)} is not read here"
    if type_ not in _CODE and (left := _template_in(value, variables)):
        return f"the template {quote(left)} is not filled in here"
    return ""


def is_file(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("file://")


def _template_in(value: Any, variables: Record | None) -> str:
    """The first text of a value that is still a template after its variables are filled in; empty when none is.

    When `variables` is None, every plain name counts as filled in.
    """
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and ("{{" in text or "{%" in text):
            filled = _VARIABLE.sub("", text) if variables is None else render(text, variables)
            if "{{" in filled or "{%" in filled:
                return text
    return ""


def _kind(type_: str, expected: Any) -> str:
    if type_ == "is-json" and isinstance(expected, dict):
        return "json_schema"
    if type_ in _JUDGED:
        return "judge"
    if type_ in _SIMILAR:
        return "similarity"
    return _KINDS.get(type_) or re.sub(r"\W+", "_", type_)


def _expected(value: Any, type_: str, variables: Record) -> Any:
    if type_ in _CODE:
        return value
    value = render(value, variables)
    if type_ in ("is-json", "contains-json"):
        return None if is_blank(value) else _schema(value)
    if type_ in _LISTED:
        return [_text(item) for item in (value if isinstance(value, list) else _parts(_text(value)))]
    if type_ == "regex":
        return python_regex(_text(value))
    if type_ in _TEXTUAL or (type_ == "equals" and not isinstance(value, list | dict)):
        return _text(value)
    return value


def render(value: Any, variables: Record) -> Any:
    """Fill in the plain `{{variables}}` of a text; other expressions stay unchanged."""
    if isinstance(value, list):
        return [render(item, variables) for item in value]
    if not isinstance(value, str) or "{{" not in value:
        return value

    def filled(match: re.Match[str]) -> str:
        variable = variables.get(match[1])
        # The content of a file is not known here.
        return (
            match[0] if variable is None or isinstance(variable, list | dict) or is_file(variable) else _text(variable)
        )

    return _VARIABLE.sub(filled, value)


def render_variables(variables: Record) -> Record:
    """Fill in plain names of other variables in the text variables, once."""
    if not any(isinstance(value, str) and "{{" in value for value in variables.values()):
        return variables
    return {
        name: render(value, {**variables, name: None}) if isinstance(value, str) else value
        for name, value in variables.items()
    }


def _text(value: Any) -> str:
    """A scalar as promptfoo prints it, because it compares texts."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _schema(value: Any) -> Any:
    """Parse a JSON Schema in JSON or YAML text; return any other text unchanged."""
    if not isinstance(value, str) or "{{" in value:
        return value
    # Deferred: yaml takes longer to import than all dialects together.
    from evalloom.files.yaml_rows import YamlReader

    rows = list(YamlReader([value.encode("utf-8", "replace")]))
    if len(rows) == 1 and isinstance(rows[0], Row) and isinstance(rows[0].value, dict):
        return rows[0].value
    return value
