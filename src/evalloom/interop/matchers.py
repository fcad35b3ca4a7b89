"""The kinds of checks that decide as scorers of other tools. Their modules are imported when the first is scored."""

from __future__ import annotations

from collections.abc import Callable

from evalloom.core.model import Check
from evalloom.matchers.base import CheckResult, MatchContext, Matcher

Grade = Callable[[Check, MatchContext], CheckResult]


def _evals(name: str) -> Grade:
    def grade(check: Check, context: MatchContext) -> CheckResult:
        from evalloom.interop import evals_grading

        result: CheckResult = getattr(evals_grading, name)(check, context)
        return result

    return grade


def _inspect(name: str) -> Grade:
    def grade(check: Check, context: MatchContext) -> CheckResult:
        from evalloom.interop import inspect_grading

        result: CheckResult = getattr(inspect_grading, name)(check, context)
        return result

    return grade


def _text(name: str) -> Grade:
    def grade(check: Check, context: MatchContext) -> CheckResult:
        from evalloom.interop import text_grading

        result: CheckResult = getattr(text_grading, name)(check, context)
        return result

    return grade


MATCHERS = (
    Matcher("evals_match", "Match of OpenAI evals", _evals("match")),
    Matcher("evals_includes", "Includes of OpenAI evals", _evals("includes")),
    Matcher("evals_fuzzy_match", "FuzzyMatch of OpenAI evals", _evals("fuzzy_match")),
    Matcher("evals_json_match", "JsonMatch of OpenAI evals", _evals("json_match")),
    Matcher("evals_json_validator", "JsonValidator of OpenAI evals", _evals("json_validator")),
    Matcher("evals_class", "a class of OpenAI evals that is not scored here", _evals("other_class")),
    Matcher("inspect_match", "match of Inspect", _inspect("match")),
    Matcher("inspect_includes", "includes of Inspect", _inspect("includes")),
    Matcher("inspect_exact", "exact of Inspect", _inspect("exact")),
    Matcher("inspect_f1", "f1 of Inspect", _inspect("f1")),
    Matcher("inspect_pattern", "pattern of Inspect", _inspect("pattern")),
    Matcher("inspect_answer", "answer of Inspect", _inspect("answer")),
    Matcher("inspect_choice", "choice of Inspect", _inspect("choice")),
    Matcher("deepeval_exact_match", "ExactMatchMetric of DeepEval", _text("deepeval_exact_match")),
    Matcher("deepeval_pattern_match", "PatternMatchMetric of DeepEval", _text("deepeval_pattern_match")),
    Matcher("ragas_string_similarity", "NonLLMStringSimilarity of RAGAS", _text("ragas_string_similarity")),
    Matcher("pydantic_contains", "Contains of pydantic-evals, as strings", _text("pydantic_contains")),
)
