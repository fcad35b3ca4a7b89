"""Overlap metrics between texts: edit distance, BLEU, GLEU, ROUGE and F1, in Chinese as in English."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from evalloom.core.model import Check
from evalloom.matchers.base import (
    CheckResult,
    MatchContext,
    Matcher,
    bad_option,
    composed,
    graded,
    prepared,
    show,
    text_of,
    threshold_of,
)

# Scripts without blanks between words are taken character by character, as is usual for BLEU in Chinese.
_SINGLE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003134f"
# A mark continues a word, as the vowels of Hindi do, and begins none: an emoji has marks too.
_LETTERS = rf"[[\p{{L}}\p{{N}}_]--[{_SINGLE}]][[\w\p{{N}}]--[{_SINGLE}]]*"
_WORD = rf"(?V1)[{_SINGLE}]|{_LETTERS}(?:['’.\-]{_LETTERS})*"
_ORDERS = 4
_Measure = Callable[[Sequence[str], Sequence[Sequence[str]]], float]


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case; each Chinese or Japanese character is one, punctuation none."""
    # Imported late, for a fast start. `re` takes a vowel sign for the end of a word.
    import regex

    words: list[str] = regex.findall(_WORD, composed(text).casefold())
    return words


def bleu(candidate: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Sentence BLEU of up to four words, as sacrebleu computes it.

    Orders that the candidate is too short for are left out (its effective order). The first order without a match
    counts half a match, the next a quarter, and so on (its smoothing `exp`).
    """
    if not candidate or not any(references):
        return 0.0
    closest = min(map(len, references), key=lambda length: (abs(length - len(candidate)), length))
    orders = min(_ORDERS, len(candidate))
    logs = 0.0
    missed = 0
    for size in range(1, orders + 1):
        grams = _grams(candidate, size)
        most: Counter[tuple[str, ...]] = Counter()
        for words in references:
            most |= _grams(words, size)
        hits: float = (grams & most).total()
        if not hits:
            # Without a single word in common, no longer run can match either.
            if size == 1:
                return 0.0
            missed += 1
            hits = 0.5**missed
        logs += math.log(hits / grams.total())
    brevity = min(0.0, 1 - closest / len(candidate))
    return math.exp(brevity + logs / orders)


def gleu(candidate: Sequence[str], reference: Sequence[str]) -> float:
    """Return the smaller of precision and recall over all n-grams of one to four words."""
    ours: Counter[tuple[str, ...]] = Counter()
    theirs: Counter[tuple[str, ...]] = Counter()
    for size in range(1, _ORDERS + 1):
        ours += _grams(candidate, size)
        theirs += _grams(reference, size)
    most = max(ours.total(), theirs.total())
    return (ours & theirs).total() / most if most else 0.0


def rouge_n(candidate: Sequence[str], reference: Sequence[str], size: int = 1) -> float:
    """F1 over runs of `size` words."""
    ours, theirs = _grams(candidate, size), _grams(reference, size)
    return _f1((ours & theirs).total(), ours.total(), theirs.total())


def rouge_l(candidate: Sequence[str], reference: Sequence[str]) -> float:
    """F1 over the longest common subsequence of words."""
    from rapidfuzz.distance import LCSseq

    return _f1(LCSseq.similarity(candidate, reference), len(candidate), len(reference))


def _f1(hits: int, ours: int, theirs: int) -> float:
    return 2 * hits / (ours + theirs) if hits else 0.0


def _grams(words: Sequence[str], size: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[start:] for start in range(size)), strict=False))


def _words(text: str) -> list[str]:
    """Return the words of a text, or its characters if it has none, such as an emoji."""
    return words_of(text) or list("".join(composed(text).split()))


def _compare_words(check: Check, context: MatchContext, name: str, default: float, measure: _Measure) -> CheckResult:
    """Compare the score against the expected texts with the threshold."""
    texts = check.expected if isinstance(check.expected, list | tuple) else [check.expected]
    threshold = threshold_of(check, default)
    if not texts or any(not isinstance(text, str | int | float) or isinstance(text, bool) for text in texts):
        return bad_option("expected", "a text or a list of texts", check.expected)
    if threshold is None:
        return bad_option("threshold", "a number", check.options.get("threshold"))
    references = [_words(prepared(check, text_of(text))) for text in texts]
    words = _words(prepared(check, text_of(context.value)))
    return graded(measure(words, references), threshold, name)


def _best(measure: Callable[[Sequence[str], Sequence[str]], float]) -> _Measure:
    """Turn a metric against one text into one against the nearest of several."""
    return lambda words, references: max(measure(words, reference) for reference in references)


def _rouge(check: Check, context: MatchContext) -> CheckResult:
    variant = check.options.get("variant", check.options.get("n", 1))
    variant = str(variant).lower().removeprefix("rouge").strip("-_")
    if variant == "l":
        return _compare_words(check, context, "ROUGE-L", 0.75, _best(rouge_l))
    if variant not in ("1", "2", "3", "4"):
        return bad_option("variant", "1, 2, 3, 4 or l", variant)
    return _compare_words(check, context, f"ROUGE-{variant}", 0.75, _best(partial(rouge_n, size=int(variant))))


def _levenshtein(check: Check, context: MatchContext) -> CheckResult:
    from rapidfuzz.distance import Levenshtein

    most = threshold_of(check, 5)
    if most is None:
        return bad_option("threshold", "a number of edits", check.options.get("threshold"))
    if check.expected is None or isinstance(check.expected, dict | list):
        return bad_option("expected", "a text", check.expected)
    expected, value = (prepared(check, composed(text_of(text))) for text in (check.expected, context.value))
    distance = Levenshtein.distance(value, expected)
    score = 1 - distance / max(len(value), len(expected), 1)
    if distance <= most:
        return CheckResult(True, score, f"{distance} edits from {show(expected)}")
    return CheckResult(False, score, f"expected at most {most:g} edits from {show(expected)}, got {distance}")


MATCHERS = (
    Matcher("levenshtein", "at most 5 edits from the text, or another number", _levenshtein),
    Matcher("bleu", "BLEU of at least 0.5", partial(_compare_words, name="BLEU", default=0.5, measure=bleu)),
    Matcher("gleu", "GLEU of at least 0.5", partial(_compare_words, name="GLEU", default=0.5, measure=_best(gleu))),
    Matcher("rouge", "ROUGE-1, -2 or -L of at least 0.75", _rouge),
    Matcher(
        "f1", "F1 over words of at least 0.5", partial(_compare_words, name="F1", default=0.5, measure=_best(rouge_n))
    ),
)
