"""Cuts the text of a document into chunks: under its headings, at ends of paragraphs and sentences, with positions."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct


class Heading(NamedTuple):
    """A heading: where its line begins, how deep it is (1 is the highest), and its words."""

    start: int
    level: int
    title: str
    end: int
    """Where what stands below it begins."""


class Document(Struct, frozen=True):
    """The text of a document and what is known of its inside. `pages` are the places where they begin."""

    text: str
    headings: Sequence[Heading] = ()
    pages: Sequence[int] = ()
    has_lines: bool = False
    """Whether its lines are those of the file, so that a line number helps."""


class Chunk(NamedTuple):
    """A piece of a document: `text` is what stands from `start` to `end`."""

    text: str
    start: int
    end: int
    line: int = 0
    page: int = 0
    heading: str = ""


_ENDS = (
    # The best place for a cut first: behind a paragraph, a sentence or line, a word.
    re.compile(r"\n[ \t\r]*\n\s*"),
    re.compile(r"[。！？；](?:[”’」』）】》]*)|[.!?][)\"'”’]*\s+|\n"),
    re.compile(r"[\s，、,;]+"),
)
LONGEST_TITLE = 200
"""Every chunk below a heading repeats it."""
_JOINERS = "\u200d\ufe0e\ufe0f"


def chunks(document: Document, size: int, overlap: int) -> Iterator[Chunk]:
    """Pieces of up to `size` characters. Each but the first of a section repeats up to `overlap` of the one before."""
    text, line, counted_to = document.text, 1, 0
    for start, stop, heading in _sections(document):
        for a, b in _pieces(text, start, stop, size, overlap):
            if document.has_lines:
                # An overlap goes back.
                line += text.count("\n", counted_to, a) if a >= counted_to else -text.count("\n", a, counted_to)
                counted_to = a
            page = bisect_right(document.pages, a)
            yield Chunk(text[a:b], a, b, line if document.has_lines else 0, page, heading)


def _sections(document: Document) -> Iterator[tuple[int, int, str]]:
    """Where a section begins and ends, and the path of headings above it.

    A heading with nothing below it but the next heading is no section by itself: it would be found and tell nothing.
    """
    text = document.text
    headings = {heading.start: heading for heading in document.headings}
    path: dict[int, str] = {}
    start = body = before = 0
    is_blank = True
    for place in sorted({0, *headings, *document.pages, len(text)}):
        # Only what is new is looked at: a section may begin with thousands of headings.
        is_blank = is_blank and not text[before:place].strip()
        has_body = bool(text[max(body, before) : place].strip())
        if place > start and (is_blank or has_body or place == len(text)):
            yield start, place, " > ".join(path.values())
            start = body = place
            is_blank = True
        if place in headings:
            body = _enter(headings[place], path)
        before = place


def _enter(heading: Heading, path: dict[int, str]) -> int:
    """Puts a heading into the path, which no deeper ones survive; where its section's text begins."""
    for level in [level for level in path if level >= heading.level]:
        del path[level]
    path[heading.level] = heading.title[:LONGEST_TITLE]
    return heading.end


def _pieces(text: str, start: int, stop: int, size: int, overlap: int) -> Iterator[tuple[int, int]]:
    at = start
    while stop - at > size:
        cut = _cut(text, at, at + size)
        yield at, cut
        at = _back(text, cut, max(at + 1, cut - overlap)) if overlap else cut
    if stop > at:
        yield at, stop


def _cut(text: str, start: int, limit: int) -> int:
    """The best place to end a chunk, in the second half of what may be in it."""
    middle = start + (limit - start) // 2
    for end in _ENDS:
        if matches := list(end.finditer(text, middle, limit)):
            return matches[-1].end()
    cut = limit
    while cut > middle + 1 and _is_inside(text, cut):
        cut -= 1
    return cut


def _back(text: str, cut: int, earliest: int) -> int:
    """Where the next chunk begins: at the first sentence or word of the overlap."""
    for end in _ENDS[1:]:
        # From a little before, where the mark stands after which the overlap begins.
        for match in end.finditer(text, max(earliest - 2, 0), cut):
            if earliest <= match.end() < cut:
                return match.end()
    while earliest < cut and _is_inside(text, earliest):
        earliest += 1
    return earliest


def _is_inside(text: str, place: int) -> bool:
    """Whether a place is inside of what a reader takes for one character."""
    after, before = text[place], text[place - 1]
    is_joined = after in _JOINERS or before == "\u200d"
    return is_joined or unicodedata.combining(after) > 0 or (before == "\r" and after == "\n")
