"""Picks anchor texts for `must_include`: what is specific to a passage, verbatim."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from evalloom.core.lazy import lazy_pattern
from evalloom.rag.retrieval.words import words

_SENTENCE = lazy_pattern(r"[^。！？!?\n]+[。！？!?]?")
_NUMBER = lazy_pattern(r"(?<![\w.])\d[\d.,:/]*\d|(?<![\w.])\d")
_DATE = lazy_pattern(r"(?:\d{4} ?年 ?)?\d{1,2} ?月 ?\d{1,2} ?日")
_HAN_RUN = lazy_pattern(r"[\u4e00-\u9fff]+")
_COUNTED_IN = (
    "seconds? minutes? hours? days? weeks? months? years? nights? times? people persons? characters? digits? letters? "
    "pages? copies points? percent km kg cm mm KB MB GB TB EUR USD CNY RMB euros? dollars? yuan"
)
_LATIN_UNIT = lazy_pattern(
    rf" ?(?:%|(?:working |business |calendar |consecutive )?(?:{'|'.join(_COUNTED_IN.split())}))(?![A-Za-z])"
)
_SET_OFF = lazy_pattern(r"\*\*(.+?)\*\*|`([^`]+)`|“([^”]+)”|「([^」]+)」|\"([^\"]+)\"")
_MEASURE_WORDS = "个名家份件项条台张"
"""Units that need the noun after them, unlike 天 and 元."""
_HAN_UNITS = "天日月年元位次人岁点倍周季度页小时分钟秒公里米斤克吨升折期届级楼层号%"
_SHORTEST, _LONGEST = 2, 40


def anchors(query: str, text: str, most: int = 2) -> list[str]:
    """Up to `most` texts from the sentences nearest to the query: quantities first, then terms."""
    wanted = set(words(query))
    sentences = [sentence for sentence in _SENTENCE.findall(text) if not sentence.lstrip().startswith("#")]
    nearest = sorted(sentences, key=lambda sentence: -len(wanted & set(words(sentence))))
    for kind in (_quantities, _terms, _longest_words):
        for sentence in nearest[:2]:
            # A long word is worth little beside a number or a term, and another sentence little beside the nearest.
            if usable := _usable(kind(sentence), query):
                return usable[:most]
    return []


def _usable(candidates: Iterable[str], query: str) -> list[str]:
    """Candidates of a usable length that are not in the query and do not overlap."""
    chosen: list[str] = []
    for anchor in candidates:
        is_new = not any(anchor in other or other in anchor for other in chosen)
        if is_new and _SHORTEST <= len(anchor) <= _LONGEST and anchor.casefold() not in query.casefold():
            chosen.append(anchor)
    return chosen


def _quantities(sentence: str) -> Iterator[str]:
    """Numbers with their units: `10 个工作日`, `14 days`, `3.5 %`."""
    for date in _DATE.finditer(sentence):
        yield date[0]
    plain = _DATE.sub("。", sentence)
    for number in _NUMBER.finditer(plain):
        rest = plain[number.end() :]
        blank = rest[: len(rest) - len(rest.lstrip(" "))][:1]
        unit = _HAN_RUN.match(rest, len(blank))
        if unit and unit[0][0] in _HAN_UNITS + _MEASURE_WORDS:
            yield number[0] + blank + _counted(unit[0])
        elif unit := _LATIN_UNIT.match(rest):
            yield number[0] + unit[0]
        elif len(number[0]) > 1:
            yield number[0]


def _counted(run: str) -> str:
    """The first word of a Chinese text, with the next one when the first is only a measure word."""
    from rjieba import cut  # deferred, as in words

    first, *others = cut(run)
    return str(first + others[0] if first in _MEASURE_WORDS and others else first)


def _terms(sentence: str) -> Iterator[str]:
    """Texts in bold, in code, or in quotes."""
    for match in _SET_OFF.finditer(sentence):
        yield next(part for part in match.groups() if part is not None)


def _longest_words(sentence: str) -> Iterator[str]:
    """The longest words, as written in the sentence."""
    lowered = sentence.casefold()
    for word in sorted(set(words(sentence)), key=lambda word: (-len(word), word)):
        # Folding may change the length of a word, which then does not occur in the sentence.
        place = lowered.find(word) if len(lowered) == len(sentence) else sentence.find(word)
        if place >= 0:
            yield sentence[place : place + len(word)]
