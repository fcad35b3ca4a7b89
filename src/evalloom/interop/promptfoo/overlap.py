"""promptfoo's own counts of words: BLEU, GLEU, ROUGE-N, Levenshtein and word-count as it computes them.

The kinds of the engine with the same names count words in any language; these split a text at blanks, as promptfoo
does, so that a threshold that was chosen there means the same here.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Check
from evalloom.matchers.base import (
    PASSED,
    CheckResult,
    MatchContext,
    bad_option,
    failed,
    graded,
    number_of,
    show,
    text_of,
    threshold_of,
    unscored,
)

_ORDERS = 4
_TINY = 1e-7
"""Stands for a precision of zero in BLEU."""
# The blanks of JavaScript.
BLANKS = "\t\n\v\f\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_BLANK = lazy_pattern(f"[{BLANKS}]+")
_ENDS = lazy_pattern(f"^[{BLANKS}]+|[{BLANKS}]+$")
_Score = Callable[[str, Sequence[str]], float]


def words_of(text: str) -> list[str]:
    """Split a text at blanks; an empty text is one empty word, as in JavaScript."""
    return _BLANK.split(_ENDS.sub("", text))


def _grams(words: Sequence[str], size: int) -> Counter[str]:
    return Counter(" ".join(words[at : at + size]) for at in range(len(words) - size + 1))


def bleu(candidate: str, references: Sequence[str]) -> float:
    """BLEU of one to four words, of the orders that the candidate is long enough for."""
    words = words_of(candidate.lower())
    if words == [""]:
        return 0.0
    others = [words_of(reference.lower()) for reference in references]
    closest = min(map(len, others), key=lambda length: (abs(length - len(words)), length))
    logs = []
    for size in range(1, min(_ORDERS, len(words)) + 1):
        grams = _grams(words, size)
        hits = max((grams & _grams(other, size)).total() for other in others)
        logs.append(math.log(hits / grams.total() if hits else _TINY))
    brevity = 1.0 if len(words) > closest else math.exp(1 - closest / len(words))
    return brevity * math.exp(sum(logs) / len(logs))


def gleu(candidate: str, references: Sequence[str]) -> float:
    """Return the smaller of precision and recall over all runs of one to four words, full stops left out."""
    return max(_gleu(_bare_words(candidate), _bare_words(reference)) for reference in references)


def _bare_words(text: str) -> list[str]:
    return [word.rstrip(".") for word in words_of(text.lower())]


def _gleu(words: list[str], others: list[str]) -> float:
    if words == others:
        return 1.0
    ours: Counter[str] = Counter()
    theirs: Counter[str] = Counter()
    hits = 0
    for size in range(1, _ORDERS + 1):
        mine, other = _grams(words, size), _grams(others, size)
        hits += (mine & other).total()
        ours += mine
        theirs += other
    most = max(ours.total(), theirs.total())
    return hits / most if most else 0.0


def rouge_1(candidate: str, references: Sequence[str]) -> float:
    """F1 over the tokens of the Penn Treebank."""
    ours, theirs = Counter(tokens_of(candidate.lower())), Counter(tokens_of(references[0].lower()))
    hits = (ours & theirs).total()
    return 2 * hits / (ours.total() + theirs.total()) if hits else 0.0


# The rules of the Penn Treebank tokenizer, in its order.
_RULES = (
    (lazy_pattern(r"\.{3}"), r" ... "),
    (lazy_pattern(r"([:,])(?!\d)"), r" \1 "),
    (lazy_pattern(r"([;@#$%&])"), r" \1 "),
    (lazy_pattern(rf"([^.])(?<!\b[A-Za-z]\.[A-Za-z])\.([\])}}>'{BLANKS}]*)$"), r"\1 .\2 "),
    (lazy_pattern(r"([?!])"), r" \1 "),
    (lazy_pattern(r"([\]\[(){}<>])"), r" \1 "),
    (lazy_pattern(r"--"), r" -- "),
)
_ENDINGS = (
    (lazy_pattern(r"([^'])' "), r"\1 ' "),
    (lazy_pattern(r"'([sSmMdD]) "), r" '\1 "),
    (lazy_pattern(r"('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) "), r" \1 "),
)
_JOINED = lazy_pattern(
    r"\b(?:(can)(not)|(d)('ye)|(gim)(me)|(gon)(na)|(got)(ta)|(lem)(me)|(more)('n)|(wan)(na))\b|(?<= )(?:('t)(is|was)) ",
    re.IGNORECASE,
)


def tokens_of(text: str) -> list[str]:
    """Return the tokens of a text by the rules of the Penn Treebank."""
    text = _ENDS.sub("", _BLANK.sub(" ", text.replace("\x85", " ")))
    if not text:
        return []
    text = "".join(_quotes(text))
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    text = f" {text} "
    for pattern, replacement in _ENDINGS:
        text = pattern.sub(replacement, text)
    text = _JOINED.sub(lambda match: " {} {} ".format(*(part for part in match.groups() if part)), text)
    return text.split()


def _quotes(text: str) -> Iterator[str]:
    """Write quotation marks as the Treebank does, `` before and '' after; a mark after a blank or a bracket opens."""
    at = 0
    for mark in re.finditer("``|''|\"", text):
        before = text[mark.start() - 1 : mark.start()]
        opens = mark[0] == "``" or (mark.end() < len(text) and (not before or before in " ([{<"))
        yield text[at : mark.start()] + (" `` " if opens else " '' ")
        at = mark.end()
    yield text[at:]


def _compare(check: Check, context: MatchContext, name: str, default: float, measure: _Score) -> CheckResult:
    texts = check.expected if isinstance(check.expected, list) else [check.expected]
    threshold = threshold_of(check, default)
    if not texts or not all(isinstance(text, str) for text in texts):
        return bad_option("expected", "a text or a list of texts", check.expected)
    if threshold is None:
        return bad_option("threshold", "a number", check.options.get("threshold"))
    output = text_of(context.value)
    if not output and name == "GLEU":
        # An error in promptfoo, which neither passes nor fails; so neither does its negation.
        return unscored("GLEU is not defined for an empty output")
    return graded(measure(output, texts), threshold, name)


def _levenshtein(check: Check, context: MatchContext) -> CheckResult:
    from rapidfuzz.distance import Levenshtein

    most = threshold_of(check, 5)
    if most is None:
        return bad_option("threshold", "a number of edits", check.options.get("threshold"))
    if check.expected is None or isinstance(check.expected, dict | list):
        return bad_option("expected", "a text", check.expected)
    distance = Levenshtein.distance(_units(text_of(context.value)), _units(text_of(check.expected)))
    if distance <= most:
        return CheckResult(True, 1.0, f"{distance} edits from {show(check.expected)}")
    return failed(f"expected at most {most:g} edits from {show(check.expected)}, got {distance}")


def _units(text: str) -> str | list[int]:
    """Return the UTF-16 units of a text, of which an emoji has two: what JavaScript calls a character."""
    if not text or max(text) < "\U00010000":
        return text
    return memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H").tolist()


def _word_count(check: Check, context: MatchContext) -> CheckResult:
    count = len([word for word in words_of(text_of(context.value)) if word])
    least, most = _bounds(check.expected)
    if least is None and most is None:
        return bad_option("expected", "a number of words, or min and max", check.expected)
    if least is not None and most is not None and least > most:
        return bad_option("expected", "a min that is at most max", check.expected)
    if (least is None or count >= least) and (most is None or count <= most):
        return PASSED
    wanted = f"{least:g}" if least == most and least is not None else " ".join(_shown(least, most))
    return failed(f"expected {wanted} words, got {count}")


def _bounds(expected: Any) -> tuple[float | None, float | None]:
    if isinstance(expected, dict):
        bounds = {name: number_of(expected[name]) for name in ("min", "max") if expected.get(name) is not None}
        return (None, None) if None in bounds.values() else (bounds.get("min"), bounds.get("max"))
    if isinstance(expected, str):
        try:
            expected = float(expected or 0)
        except ValueError:
            return None, None
    exact = number_of(expected)
    return exact, exact


def _shown(least: float | None, most: float | None) -> Iterator[str]:
    if least is not None:
        yield f"at least {least:g}"
    if most is not None:
        yield f"at most {most:g}"


GRADERS: dict[str, Callable[[Check, MatchContext], CheckResult]] = {
    "bleu": partial(_compare, name="BLEU", default=0.5, measure=bleu),
    "gleu": partial(_compare, name="GLEU", default=0.5, measure=gleu),
    "rouge-n": partial(_compare, name="ROUGE-1", default=0.75, measure=rouge_1),
    "levenshtein": _levenshtein,
    "word-count": _word_count,
}
