"""A small RAG system to test: finds the sections of docs/ that share most words with a query, and answers with them."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from math import log
from pathlib import Path
from typing import Any, NamedTuple

from evalloom.model import Output

FOLDER = Path(__file__).parent
ANSWER_SECTIONS = 5

# A section starts at a heading: Markdown, HTML, or numbered in Chinese.
SECTION = re.compile(r"^(?=#|\s*<h\d>|[一二三四五六七八九十]、)", re.MULTILINE)
MARKUP = re.compile(r"<head>.*?</head>|<[^>]+>", re.DOTALL)

# A term is a word in English, and a pair of neighbouring characters in Chinese, which has no spaces.
WORD = re.compile(r"[a-z0-9]{2,}")
HAN = re.compile(r"(?=([\u4e00-\u9fff]{2}))")
COMMON = {"the", "is", "of", "to", "my", "do", "it", "on", "in", "for", "what", "how", "and", "at", "or", "can", "with"}


class Section(NamedTuple):
    """A section of a page, with its terms and those of the page's title."""

    file: str
    text: str
    terms: set[str]
    title: set[str]


def answer(query: str) -> Output:
    """Return the sections that share most with the query, and their files."""
    found = retrieve(query, ANSWER_SECTIONS)
    if not found:
        return Output("没有找到相关内容。Nothing was found.", outcome="LACK_OF_INFO")
    files = dict.fromkeys(one["source"] for one in found)
    return Output("\n\n".join(one["text"] for one in found), sources=[*files])


def retrieve(query: str, k: int) -> list[dict[str, Any]]:
    """Return the `k` sections that share most with the query, best first."""
    wanted = terms(query)
    scored = [(score(wanted, section), section) for section in sections()]
    best = sorted((hit for hit in scored if hit[0]), key=lambda hit: -hit[0])
    return [{"source": section.file, "text": section.text, "score": points} for points, section in best[:k]]


def score(wanted: set[str], section: Section) -> float:
    """Score a section by the terms it shares with the query: rare terms count more, terms of the title half."""
    shared, in_title = wanted & section.terms, wanted & section.title
    return round(sum(rarity()[term] for term in shared) + sum(rarity()[term] for term in in_title) / 2, 3)


@cache
def sections() -> list[Section]:
    """Return every section of the handbook."""
    found = []
    for path in sorted(FOLDER.glob("docs/**/*.*")):
        parts = [MARKUP.sub("", part).strip() for part in SECTION.split(path.read_text(encoding="utf-8"))]
        title, *rest = filter(None, parts)
        file = path.relative_to(FOLDER).as_posix()
        found += [Section(file, text, terms(text), terms(title)) for text in rest]
    return found


@cache
def rarity() -> dict[str, float]:
    """Weigh each term: 0 if every section contains it."""
    counted = Counter(term for section in sections() for term in section.terms | section.title)
    return {term: log(len(sections()) / number) for term, number in counted.items()}


def terms(text: str) -> set[str]:
    words = {word.removesuffix("s") for word in WORD.findall(text.lower()) if word not in COMMON}
    return words | set(HAN.findall(text))
