"""Checks that the reason for a score quotes the output (EVAL-10)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Remark, warning
from evalloom.core.text import quote
from evalloom.prompt_eval.scores import ScoredCase

_QUOTED = lazy_pattern(
    r"""(?<!\w)'([^']+)'(?!\w)|"([^"]+)"|`([^`]+)`|“([^”]+)”|‘([^’]+)’|「([^」]+)」|『([^』]+)』|《([^》]+)》"""
)
_PUNCTUATION = " .…,;:!?。，；：！？"
_SHORT_OUTPUT = 20
"""An output of at most this many characters may be quoted without quotation marks."""
_WORD = lazy_pattern(r"[^\W\d_]\w{3,}|\d{2,}")
_CJK = lazy_pattern(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{3,}")
_COMMON_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
    about after also answer before being both case cases contain contains content correct could does each empty
    every field fields format from given have input instead into invalid json missing more most must none only
    other output over present required response result same should some such test text than that their them then
    there these they this those user valid value values very well were what when where which while will with
    without wrong would
        """,
    )
)
"""Words that occur in both a reason and an output although the reason quotes nothing."""


def uncited_reasons(case: ScoredCase) -> Iterator[Remark]:
    """Yield a warning for each reason that quotes nothing of the output; an empty output has nothing to quote."""
    result = case.record.get("result_aftertest")
    if not isinstance(result, str) or not result.strip():
        return
    for point, mark in case.marks.items():
        if mark.reason and not cites(mark.reason, result):
            message = f"{point}_reason: quotes nothing of result_aftertest: {quote(mark.reason, 80)}"
            yield warning("reason_cites_nothing", (f"{point}_reason",), message)


def cites(reason: str, result: str) -> bool:
    """Whether a reason shares something specific with the output: a quotation, an uncommon word or a number."""
    output, reason = _normalize(result), _normalize(reason)
    bare_output = output.strip(_PUNCTUATION)
    if len(bare_output) <= _SHORT_OUTPUT and re.search(rf"(?<!\w){re.escape(bare_output)}(?!\w)", reason):
        return True
    quotes = [part.strip(_PUNCTUATION) for groups in _QUOTED.findall(reason) for part in groups]
    if any(part in output for part in quotes if len(part) > 1):
        return True
    return not _key_terms(output).isdisjoint(_key_terms(reason))


def _normalize(text: str) -> str:
    return " ".join(text.split()).casefold()


@lru_cache(maxsize=8)
def _key_terms(text: str) -> frozenset[str]:
    """Return the specific terms of a text: uncommon words, numbers, trigrams of CJK characters."""
    words = {word for word in _WORD.findall(text) if word not in _COMMON_WORDS}
    trigrams = {run[start : start + 3] for run in _CJK.findall(text) for start in range(len(run) - 2)}
    return frozenset(words | trigrams)
