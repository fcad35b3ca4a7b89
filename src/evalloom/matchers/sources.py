"""Checks on retrieval: expected files and folders, their ranks, expected passages, and citations."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.core.model import Check
from evalloom.core.ranking import Passage, Ranked, is_hit, measure, rank, sources_in_order
from evalloom.core.text import pluralize
from evalloom.matchers.base import (
    CheckResult,
    MatchContext,
    Matcher,
    bad_option,
    graded,
    number_of,
    show,
    text_of,
    threshold_of,
    unscored,
)

_PATH_FIELDS = ("path", "source", "file", "id", "uri", "url", "name", "title", "doc_id", "document_id")
_TEXT_FIELDS = ("text", "content", "page_content", "passage", "chunk")
_CODE = lazy_pattern(r"```.*?```|`[^`\n]*`", re.DOTALL)
_BETWEEN = r"\s*(?:,? ?and|[-–—~,、;&]|和|与|及|至|to)\s*"
_CITED = lazy_pattern(rf"(?<!!)[\[【]\s*(\d{{1,3}}(?:{_BETWEEN}\d{{1,3}})*)\s*(?:†[^\]】]*)?[\]】]")
"""`[2]`, `[1, 3]`, `[2-4]`, `【1】`, `【1†source】`; not a picture."""
_NUMBERS = lazy_pattern(r"(\d+)(?:\s*(?:[-–—~]|至|to)\s*(\d+))?")


def _source_hit(check: Check, context: MatchContext) -> CheckResult:
    wanted = check.expected if isinstance(check.expected, list | tuple) else [check.expected]
    if not wanted or not all(isinstance(item, str | int) and not isinstance(item, bool) for item in wanted):
        return bad_option("expected", "a list of sources", check.expected)
    sources = [name for item in _items(context.value) for name in _names(item)]
    top = check.options.get("top_k", len(sources))
    if number_of(top) is None or top < 0:
        return bad_option("top_k", "a number of sources", top)
    sources = sources[: int(top)]
    lacking = [item for item in wanted if not any(is_hit(str(item), source) for source in sources)]
    reason = f"found {len(wanted) - len(lacking)} of {len(wanted)}"
    if lacking:
        reason += f"; missing {show(lacking, 120)} among the sources {show(sources, 120)}"
        if not sources:
            reason += ": the target returned none. A function returns them with Output(answer, sources=[…])"
    return _hit(check, 1 - len(lacking) / len(wanted), reason)


def _hit(check: Check, share: float, reason: str) -> CheckResult:
    """Any one source is a hit, unless `all: true` or a threshold on their share asks for more."""
    is_all = check.options.get("all") is True
    if not is_all and check.options.get("threshold") is None:
        return CheckResult(share > 0, reason=reason)
    least = 1.0 if is_all else threshold_of(check, 1.0)
    if least is None:
        return bad_option("threshold", "a share between 0 and 1", check.options["threshold"])
    return CheckResult(share >= least - 1e-9, share, reason)


def _items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def _names(item: Any) -> list[str]:
    """Return the names of a source: the text itself, or the fields of an object that name it, also inside metadata."""
    if isinstance(item, str | int) and not isinstance(item, bool):
        return [str(item)]
    if not isinstance(item, dict):
        return []
    names = [str(item[field]) for field in _PATH_FIELDS if isinstance(item.get(field), str | int)]
    return names or _names(item.get("metadata"))


def _ranking(check: Check, context: MatchContext) -> CheckResult:
    wanted = check.expected if isinstance(check.expected, list | tuple) else [check.expected]
    if not wanted or not all(isinstance(item, str) and item.strip() for item in wanted):
        return bad_option("expected", "a list of sources", check.expected)
    passages = [passage for item in _items(context.value) if (passage := _ranked_passage(item))]
    ranked_sources = sources_in_order(passages)
    ranked = rank(wanted, ranked_sources)
    name = check.options.get("measure", "mrr")
    try:
        score = measure(ranked, name if isinstance(name, str) else "")
    except ValueError:
        return bad_option("measure", "one such as hit@5, recall@5, precision@5, ndcg@5, mrr or map", name)
    if check.options.get("threshold") is not None:
        least = threshold_of(check, 1.0)
        return bad_option("threshold", "a share between 0 and 1", None) if least is None else graded(score, least, name)
    # The ranks only where it decides: beside it stand other measures of the same ranking.
    if check.options.get("weight") != 0:
        reason = _ranks_text(ranked, passages)
    else:
        count = pluralize(len(ranked_sources), "source")
        reason = "" if score else f"no expected source is among the {count} found"
    return CheckResult(score > 0, score, reason)


def _ranked_passage(item: Any) -> Passage | None:
    names = _names(item)
    score = number_of(item.get("score")) if isinstance(item, dict) else None
    return Passage(names[0], score=score) if names else None


def _ranks_text(ranked: Ranked, passages: list[Passage]) -> str:
    """Say at which rank each expected source was found, and what came instead."""
    there = [f"{show(name)} at {place}" for name, place in ranked.ranks if place]
    lacking = [name for name, place in ranked.ranks if not place]
    parts = [f"found {', '.join(there)}"] if there else []
    if lacking:
        instead = show(sources_in_order(passages), 120) if passages else "nothing was found"
        parts.append(f"missing {show(lacking, 120)}; the sources: {instead}")
    return "; ".join(parts)


def _citations(check: Check, context: MatchContext) -> CheckResult:
    """Every citation such as [2] must name one of the numbered sources, and there must be one."""
    sources = _items(context.output.sources)
    if not sources:
        return unscored("the run has no sources that could be cited")
    cited = list(dict.fromkeys(_cited_numbers(text_of(context.value))))
    if not cited:
        return CheckResult(False, 0.0, "cites no source; expected a number such as [1]")
    wrong = [number for number in cited if not 1 <= number <= len(sources)]
    shown = ", ".join(f"[{number}]" for number in cited)
    if wrong:
        there = f"there are the sources [1] to [{len(sources)}]" if len(sources) > 1 else "there is only the source [1]"
        reason = f"cites {', '.join(f'[{number}]' for number in wrong)}, and {there}"
        return CheckResult(False, 1 - len(wrong) / len(cited), reason)
    return CheckResult(True, 1.0, f"cites {shown}")


def _cited_numbers(text: str) -> Iterator[int]:
    """Return the numbers that a text cites, outside code; full-width brackets count too."""
    for bracket in _CITED.finditer(unicodedata.normalize("NFKC", _CODE.sub(" ", text))):
        for first, last in _NUMBERS.findall(bracket[1]):
            low, high = sorted((int(first), int(last or first)))
            yield from range(low, high + 1)


def _context_recall(check: Check, context: MatchContext) -> CheckResult:
    wanted = check.expected if isinstance(check.expected, list | tuple) else [check.expected]
    if not wanted or not all(isinstance(item, str) and item.strip() for item in wanted):
        return bad_option("expected", "a list of passages", check.expected)
    threshold = threshold_of(check, 1.0)
    if threshold is None:
        return bad_option("threshold", "a share between 0 and 1", check.options.get("threshold"))
    found = [_collapse_blanks(_passage(item)) for item in _items(context.value)]
    lacking = [text for text in wanted if not any(_collapse_blanks(text) in passage for passage in found)]
    grade = graded(1 - len(lacking) / len(wanted), threshold, "share of the passages found")
    return CheckResult(grade.passed, grade.score, f"{grade.reason}; missing {show(lacking, 120)}") if lacking else grade


def _passage(item: Any) -> str:
    if isinstance(item, dict):
        return next((item[field] for field in _TEXT_FIELDS if isinstance(item.get(field), str)), text_of(item))
    return text_of(item)


def _collapse_blanks(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


MATCHERS = (
    Matcher("source_hit", "an expected file or folder is among the sources", _source_hit),
    Matcher("ranking", "how well the sources are ranked: hit@k, recall@k, precision@k, ndcg@k, mrr or map", _ranking),
    Matcher("citations", "every [number] of the answer is one of its sources", _citations),
    Matcher("context_recall", "the expected passages stand in the sources", _context_recall),
)
