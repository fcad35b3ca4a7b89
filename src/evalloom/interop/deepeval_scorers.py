"""The metrics of DeepEval as checks, by the name that a user gives."""

from __future__ import annotations

from collections.abc import Callable

from evalloom.core.model import Case, Check, Record
from evalloom.data.cells import as_list, is_blank
from evalloom.data.dialect import Scorer
from evalloom.interop.deepeval import with_snake_case

Checks = Callable[[Case, Record], tuple[Check, ...]]


def _expected(case: Case) -> tuple[str, object]:
    """Return the name and the value of what is expected; an empty name if nothing is."""
    fields = with_snake_case(case.raw)
    names = ("expected_output", "expected_outcome")
    return next(((name, fields[name]) for name in names if not is_blank(fields.get(name))), ("", None))


def _exact_match(case: Case, options: Record) -> tuple[Check, ...]:
    name, expected = _expected(case)
    return (Check("deepeval_exact_match", expected, name=name),) if name else ()


def _pattern_match(case: Case, options: Record) -> tuple[Check, ...]:
    more = {name: value for name, value in options.items() if name != "pattern"}
    return (Check("deepeval_pattern_match", options["pattern"], name="pattern", options=more),)


def _tool_correctness(case: Case, options: Record) -> tuple[Check, ...]:
    tools = as_list(with_snake_case(case.raw).get("expected_tools")) or []
    # By default, the metric compares the names of tools and not their arguments.
    names = [tool.get("name") if isinstance(tool, dict) else tool for tool in tools]
    check = Check("tool_calls", names, "steps", name="expected_tools", options={"threshold": 0.5, **options})
    return (check,) if names else ()


def _g_eval(case: Case, options: Record) -> tuple[Check, ...]:
    threshold = options.get("threshold", 0.5)
    name, expected = _expected(case)
    reference = {"reference": expected} if name else {}
    judged = {"variant": "g-eval", "scale": [0, 1], "threshold": threshold, **reference}
    return (Check("judge", options["criteria"], name="g_eval", options=judged),)


def _judged(variant: str, has_reference: bool = False) -> Checks:
    def checks(case: Case, options: Record) -> tuple[Check, ...]:
        name, expected = _expected(case)
        if has_reference and not name:
            return ()
        options = {"variant": variant, "scale": [0, 1], "threshold": options.get("threshold", 0.5)}
        return (Check("judge", expected if has_reference else None, name=variant, options=options),)

    return checks


_THRESHOLD = {"threshold": float}
SCORERS = (
    Scorer("exact_match", "the output equals the expected one, but for blanks around both", _exact_match),
    Scorer(
        "pattern_match",
        "a regular expression matches the whole output",
        _pattern_match,
        {"pattern": str, "ignore_case": bool},
        required=("pattern",),
    ),
    Scorer(
        "tool_correctness", "the share of expected tools that were called reaches 0.5", _tool_correctness, _THRESHOLD
    ),
    Scorer(
        "g_eval",
        "a judge gives a score for your criteria",
        _g_eval,
        {"criteria": str, "threshold": float},
        ("criteria",),
    ),
    Scorer("answer_relevancy", "a judge scores that the output answers", _judged("answer-relevance"), _THRESHOLD),
    Scorer("faithfulness", "a judge scores that the sources support it", _judged("context-faithfulness"), _THRESHOLD),
    Scorer("contextual_recall", "a judge scores the sources", _judged("context-recall", True), _THRESHOLD),
    Scorer("contextual_relevancy", "a judge scores the sources", _judged("context-relevance"), _THRESHOLD),
)
