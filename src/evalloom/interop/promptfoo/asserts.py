"""The asserts of promptfoo: their form in table cells, and the checks that score them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Check, Record, Remark, warning
from evalloom.core.text import did_you_mean, quote
from evalloom.interop.promptfoo.assert_findings import findings, grader_findings, transform_findings
from evalloom.interop.promptfoo.assert_transforms import TEST_TRANSFORMS, transforms_of
from evalloom.interop.promptfoo.assert_types import (
    DEFAULT_THRESHOLDS,
    JUDGED,
    LISTED,
    SET,
    SIMILAR,
    STANDS_ALONE,
    TEXTUAL,
    TYPES,
    base_type,
    kind_of,
    number,
    plain_of,
    type_of,
)
from evalloom.interop.promptfoo.assert_values import (
    parts_of,
    prompt_of,
    python_regex,
    render,
    render_variables,
    value_of,
)
from evalloom.interop.promptfoo.files import FileProblem, is_file, read

__all__ = [
    "SET",
    "base_type",
    "cell_findings",
    "checks",
    "findings",
    "from_cell",
    "grader_findings",
    "is_file",
    "number",
    "python_regex",
    "render",
    "render_variables",
    "transform_findings",
    "type_of",
]

_TABLE_SIMILARITY = 0.8
"""Default threshold of `similar` in a table, higher than in a config."""
_LEGACY = {"javascript:": "javascript", "fn:": "javascript", "eval:": "javascript", "grade:": "llm-rubric"}
_CELL = lazy_pattern(
    rf"(?s)(not-)?({'|'.join(sorted(TYPES, key=len, reverse=True))})(?:\((\d+(?:\.\d+)?)\))?(?::(.*))?"
)
_CODE_FILE = lazy_pattern(r"file://(.+\.(py|[cm]?[jt]s)(?::\w+)?)")


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
    if value is None and threshold is None and type_ not in STANDS_ALONE:
        return {"type": "equals", "value": text}
    assertion: Record = {"type": (negation or "") + type_}
    if value is not None:
        assertion["value"] = parts_of(value) if type_ in LISTED else value.strip()
    if threshold is not None:
        assertion["threshold"] = float(threshold)
    elif type_ == "similar":
        assertion["threshold"] = _TABLE_SIMILARITY
    return assertion


def cell_findings(text: str, column: str) -> Iterator[Remark]:
    """Warn about a misspelled assert in a cell, whose whole text would be the expected answer."""
    word, colon, _ = text.strip().partition(":")
    word = word.partition("(")[0]
    if not colon or from_cell(text)["type"] != "equals" or word.removeprefix("not-") in ("equals", "file"):
        return
    if hint := did_you_mean(word.removeprefix("not-"), TYPES, 0.8):
        message = f"{column}: expected an assert type, got {quote(word)}; the whole text is taken for the answer"
        yield warning("unknown_assert_type", (column,), message + hint)


def shared_options(options: Record, base: str) -> Record:
    """The options that every check of a test has: the transforms of its output, or why they cannot be applied."""
    steps, problem = transforms_of(options, TEST_TRANSFORMS, base)
    if problem:
        return {"unsupported": f"options.transform: {problem}"}
    shared: Record = {"transform": steps} if steps else {}
    if options.get("rubricPrompt"):
        shared["rubric_prompt"] = options["rubricPrompt"]
    return shared


def checks(
    written: Any, variables: Record, index: int = 0, shared: Record | None = None, base: str = ""
) -> Iterator[Check]:
    """The checks of one assert; a set yields those of its members, with the threshold and weight of the set.

    `index` identifies the set within the test, `shared` are the options of all checks of the test, and `base` is the
    folder of its files.
    """
    shared = shared or {}
    if not shared and (plain := plain_of(written)) is not None:
        yield _plain_check(*plain)
        return
    if is_file(written):
        try:
            content = read(written, base).value
        except FileProblem as problem:
            yield Check("assert_file", written, options={"unsupported": problem.message})
            return
        for item in content if isinstance(content, list) else [content]:
            if not is_file(item):
                yield from checks(item, variables, index, shared, base)
    if not isinstance(written, dict) or not isinstance(written.get("type"), str):
        return
    if written["type"] != SET:
        yield _check(written, variables, shared, base)
        return
    members = written.get("assert")
    named = {name: written[name] for name in ("threshold", "weight", "metric") if name in written}
    if isinstance(named.get("metric"), str):
        named["metric"] = render(named["metric"], variables)
    inner = {**shared, "set_id": index, **{f"set_{name}": value for name, value in named.items()}}
    for member in members if isinstance(members, list) else []:
        if isinstance(member, dict) and isinstance(member.get("type"), str) and member["type"] != SET:
            yield _check(member, variables, inner, base)


@lru_cache(1024)
def _plain_check(type_: str, value: str) -> Check:
    """The check of an assert without any options, which many tests have."""
    return _check({"type": type_, "value": value}, {}, {}, "")


# These look at the text of an output, also where a transform made it a list or an object.
_OF_TEXT = ("equals", *TEXTUAL, *LISTED)
_NOT_OPTIONS = ("type", "value", "metric", "transform", "contextTransform", "provider", "rubricPrompt")


def _check(written: Record, variables: Record, shared: Record, base: str) -> Check:
    type_, is_negated = base_type(written)
    value = value_of(written.get("value"), type_, variables, base)
    options: Record = {name: value for name, value in written.items() if name not in _NOT_OPTIONS}
    if value.options or shared:
        options |= {**value.options, **shared}
    prompt = written.get("rubricPrompt") or options.pop("rubric_prompt", None)
    kind = kind_of(type_, value.expected)
    if prompt and type_ == "llm-rubric":
        kind = "promptfoo_rubric"
        options["rubric_prompt"], prompt_problem = prompt_of(prompt, base)
        if prompt_problem:
            options["unsupported"] = prompt_problem
    steps, problem = transforms_of(written, ("transform",), base)
    if steps:
        options["transform"] = [*shared.get("transform", ()), *steps]
    sources, context_problem = transforms_of(written, ("contextTransform",), base)
    if sources:
        options["sources_transform"] = sources
    if why := value.problem or problem or context_problem:
        options["unsupported"] = why
    for name in ("threshold", "weight"):
        if name in options:
            options[name] = number(options[name])
    if type_ in DEFAULT_THRESHOLDS:
        options.setdefault("threshold", DEFAULT_THRESHOLDS[type_])
    if is_negated:
        options["negate"] = True
    if type_ == "contains-json":
        # A number or a list alone is not JSON there.
        options["objects"] = True
    if "transform" in options and type_ in _OF_TEXT:
        options["transform"] = [*options["transform"], {"language": "text"}]
    if type_ in JUDGED:
        options["variant"] = type_
    elif type_ in SIMILAR:
        options["variant"] = type_.removeprefix("similar:")
    elif type_ == "rouge-l":
        options["variant"] = "l"
    metric = written.get("metric")
    name = render(metric, variables) if isinstance(metric, str) else ""
    return Check(kind, value.expected, name=name, options=options)
