"""The types of promptfoo's asserts: what each needs, and the kind of check that scores it."""

from __future__ import annotations

import math
import re
from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Check, Record

SET = "assert-set"
KINDS = {
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
    "is-html": "is_html",
    "contains-html": "contains_html",
    "is-xml": "is_xml",
    "contains-xml": "contains_xml",
    "is-sql": "is_sql",
    "contains-sql": "contains_sql",
    "is-refusal": "refusal",
    "levenshtein": "promptfoo_levenshtein",
    "similar": "similarity",
    "latency": "latency",
    "cost": "cost",
    "python": "promptfoo_python",
    "javascript": "javascript",
    "rouge-n": "promptfoo_rouge_n",
    "rouge-l": "rouge",
    "bleu": "promptfoo_bleu",
    "gleu": "promptfoo_gleu",
    "word-count": "promptfoo_word_count",
    "finish-reason": "finish_reason",
    "guardrails": "guardrails",
    "is-valid-openai-tools-call": "valid_tools_call",
    "is-valid-function-call": "valid_function_call",
    "is-valid-openai-function-call": "valid_function_call",
    "tool-call-f1": "tool_call_f1",
    "llm-rubric": "judge",
}
# Scored by the judge, which gets the type as its variant.
JUDGED = (
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
    "trajectory:goal-success",
)
SIMILAR = ("similar:cosine", "similar:dot", "similar:euclidean")
# Recognised, so that they are not reported as misspelled. The matchers tell why they are not scored.
NOT_SCORED = (
    "classifier",
    "human",
    "max-score",
    "meteor",
    "moderation",
    "perplexity",
    "perplexity-score",
    "ruby",
    "rouge-s",
    "search-rubric",
    "select-best",
    "skill-used",
    "trace-error-spans",
    "trace-span-count",
    "trace-span-duration",
    "trajectory:step-count",
    "trajectory:tool-args-match",
    "trajectory:tool-sequence",
    "trajectory:tool-used",
    "video-rubric",
    "webhook",
)
RED_TEAM = "promptfoo:redteam:"
TYPES = (*KINDS, *JUDGED, *SIMILAR, *NOT_SCORED)
LISTED = ("contains-all", "contains-any", "icontains-all", "icontains-any")
TEXTUAL = ("contains", "icontains", "starts-with", "ends-with", "levenshtein", "regex")
CODE = ("python", "javascript", "ruby")
NEEDS_VALUE = (
    *("equals", "similar", "bleu", "gleu", "rouge-n", "rouge-l", "llm-rubric", "factuality", "g-eval", "webhook"),
    *("model-graded-closedqa", "model-graded-factuality", "select-best", "word-count", "finish-reason", "tool-call-f1"),
    *(*LISTED, *TEXTUAL, *CODE, *SIMILAR),
)
NEEDS_THRESHOLD = ("latency", "cost", "perplexity")
STANDS_ALONE = (
    *("is-json", "contains-json", "is-sql", "contains-sql", "is-html", "contains-html", "is-xml", "contains-xml"),
    *("is-refusal", "guardrails", "is-valid-openai-tools-call", "is-valid-openai-function-call"),
)
# Thresholds that promptfoo takes where an assert names none.
DEFAULT_THRESHOLDS = {
    "similar": 0.75,
    "levenshtein": 5,
    "rouge-n": 0.75,
    "rouge-l": 0.75,
    "bleu": 0.5,
    "gleu": 0.5,
    "meteor": 0.5,
    "tool-call-f1": 1,
}
_TYPE_OF_KIND = {**{kind: type_ for type_, kind in reversed(KINDS.items())}, "json_schema": "is-json"}
# Kinds of the engine that a check of another format has.
_TYPE_OF_KIND |= {"bleu": "bleu", "gleu": "gleu", "levenshtein": "levenshtein", "word_count": "word-count"}
_TYPE_OF_KIND |= {"python": "python", "promptfoo_rubric": "llm-rubric"}


def base_type(written: Record) -> tuple[str, bool]:
    """The type without `not-`, and whether it had that prefix."""
    type_ = written.get("type")
    type_ = type_ if isinstance(type_, str) else ""
    return (type_[4:], True) if type_.startswith("not-") and type_ not in TYPES else (type_, False)


_FUNCTION = lazy_pattern(r"[^\W\d]\w*(?:\.\w+)*:[^\W\d]\w*(?:\.\w+)*")
"""A Python function as module:function."""


def kind_of(type_: str, expected: Any) -> str:
    """The kind of check that scores an assert of a type."""
    if type_ == "is-json" and isinstance(expected, dict):
        return "json_schema"
    if type_ in JUDGED:
        return "judge"
    if type_ in SIMILAR:
        return "similarity"
    if type_ == "python" and isinstance(expected, str) and _FUNCTION.fullmatch(expected):
        # Not promptfoo's: a function beside the file, as checks of evalloom.yaml name one.
        return "python"
    return KINDS.get(type_) or re.sub(r"\W+", "_", type_)


def type_of(check: Check) -> str:
    """The type of assert that a check is; its own kind where promptfoo has no such type."""
    variant = check.options.get("variant")
    if check.kind == "judge" and variant in JUDGED:
        type_ = str(variant)
    elif check.kind == "similarity" and f"similar:{variant}" in SIMILAR:
        type_ = f"similar:{variant}"
    elif check.kind == "rouge":
        type_ = "rouge-l" if variant == "l" else "rouge-n"
    else:
        type_ = _TYPE_OF_KIND.get(check.kind, check.kind)
    return f"not-{type_}" if check.options.get("negate") else type_


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


def plain_of(written: Any) -> tuple[str, str] | None:
    """Return the type and the text of an assert that means the same in every test; None for any other."""
    if not isinstance(written, dict) or len(written) != 2:
        return None
    type_, value = written.get("type"), written.get("value")
    if not isinstance(type_, str) or not isinstance(value, str) or "{" in value or value.startswith("file://"):
        return None
    return (type_, value) if type_ == "equals" or type_ in TEXTUAL else None
