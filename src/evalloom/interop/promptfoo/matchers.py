"""The kinds of checks that only promptfoo's files have. Their modules are imported when the first one is scored."""

from __future__ import annotations

from collections.abc import Callable

from evalloom.core.model import Check, Need
from evalloom.matchers.base import CheckResult, MatchContext, Matcher, Services


def _overlap(kind: str) -> Callable[[Check, MatchContext], CheckResult]:
    def grade(check: Check, context: MatchContext) -> CheckResult:
        from evalloom.interop.promptfoo import overlap

        return overlap.GRADERS[kind](check, context)

    return grade


async def _python(check: Check, context: MatchContext, services: Services) -> CheckResult:
    from evalloom.interop.promptfoo.python_code import ask

    return await ask(check, context, services)


async def _rubric(check: Check, context: MatchContext, services: Services) -> CheckResult:
    from evalloom.interop.promptfoo.rubric import ask

    return await ask(check, context, services)


def _needs_judge(check: Check) -> Need:
    return "judge"


def _needs_code(check: Check) -> Need:
    return "code"


MATCHERS = (
    Matcher("promptfoo_bleu", "BLEU as promptfoo computes it", _overlap("bleu")),
    Matcher("promptfoo_gleu", "GLEU as promptfoo computes it", _overlap("gleu")),
    Matcher("promptfoo_rouge_n", "ROUGE-N as promptfoo computes it", _overlap("rouge-n")),
    Matcher("promptfoo_levenshtein", "the edit distance as promptfoo counts it", _overlap("levenshtein")),
    Matcher("promptfoo_word_count", "the number of words as promptfoo counts them", _overlap("word-count")),
    Matcher("promptfoo_python", "Python code of a promptfoo test says so", ask=_python, needs=_needs_code),
    Matcher("promptfoo_rubric", "an llm judges with the prompt of the test", ask=_rubric, needs=_needs_judge),
)
