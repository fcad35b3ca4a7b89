"""The metrics of RAGAS as checks, by the name that a user gives."""

from __future__ import annotations

from collections.abc import Callable

from evalloom.core.model import Case, Check, Record
from evalloom.data.cells import as_list
from evalloom.data.dialect import Scorer
from evalloom.interop.ragas import references

Checks = Callable[[Case, Record], tuple[Check, ...]]


def _compared(one: str, several: str) -> Checks:
    def checks(case: Case, options: Record) -> tuple[Check, ...]:
        answers = references(case.raw)
        if len(answers) > 1:
            return (Check(several, answers, name="reference", options=options),)
        return tuple(Check(one, answer, name="reference", options=options) for answer in answers)

    return checks


def _tool_call_accuracy(case: Case, options: Record) -> tuple[Check, ...]:
    calls = as_list(case.raw.get("reference_tool_calls")) or []
    exact = {"ordered": options.get("strict_order", True), "exact": True}
    return (Check("tool_calls", calls, "steps", name="reference_tool_calls", options=exact),) if calls else ()


def _judged(variant: str, has_reference: bool = True) -> Checks:
    def checks(case: Case, options: Record) -> tuple[Check, ...]:
        answers = references(case.raw)
        if has_reference and not answers:
            return ()
        expected = None if not has_reference else answers[0] if len(answers) == 1 else answers
        return (Check("judge", expected, name=variant, options={"variant": variant}),)

    return checks


_SIMILARITY = "ragas_string_similarity"
SCORERS = (
    Scorer("exact_match", "the output equals the reference", _compared("equals", "one_of")),
    Scorer("string_presence", "the reference is in the output", _compared("contains", "contains_any")),
    Scorer(
        "non_llm_string_similarity",
        "the similarity by edit distance reaches a threshold (0.5)",
        _compared(_SIMILARITY, _SIMILARITY),
        {"threshold": float},
    ),
    Scorer("tool_call_accuracy", "exactly the expected calls were made", _tool_call_accuracy, {"strict_order": bool}),
    Scorer("factual_correctness", "a judge finds no conflict with the reference", _judged("factuality")),
    Scorer("answer_correctness", "a judge finds no conflict with the reference", _judged("reference")),
    Scorer("answer_relevancy", "a judge finds that the output answers", _judged("answer-relevance", False)),
    Scorer("faithfulness", "a judge finds support in the sources", _judged("context-faithfulness", False)),
    Scorer("context_recall", "a judge finds the reference in the sources", _judged("context-recall")),
    Scorer("context_relevance", "a judge finds that the sources help", _judged("context-relevance", False)),
)
