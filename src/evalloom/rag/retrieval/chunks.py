"""Splits a document into chunks at headings, paragraphs and sentences, and keeps their positions."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from evalloom.core.lazy import lazy_pattern


class Heading(NamedTuple):
    """A heading: the start of its line, its level (1 is the highest), and its title."""

    start: int
    level: int
    title: str
    end: int
    """Start of the text below it."""


class ParsedDocument(Struct, frozen=True):
    """The text of a document, its headings, and the offsets of its pages."""

    text: str
    headings: Sequence[Heading] = ()
    pages: Sequence[int] = ()
    has_lines: bool = False
    """Whether its lines are those of the file, so that line numbers are useful."""


class Chunk(NamedTuple):
    """A piece of a document: `text` is its text from `start` to `end`."""

    text: str
    start: int
    end: int
    line: int = 0
    page: int = 0
    heading: str = ""


_ENDS = (
    # Best split points first: after a paragraph, a sentence or line, a word.
    lazy_pattern(r"\n[ \t\r]*\n\s*"),
    lazy_pattern(r"[。！？；](?:[”’」』）】》]*)|[.!?][)\"'”’]*\s+|\n"),
    lazy_pattern(r"[\s，、,;]+"),
)
LONGEST_TITLE = 200
"""Every chunk below a heading repeats it."""
_JOINERS = "\u200d\ufe0e\ufe0f"


def chunks(document: ParsedDocument, size: int, overlap: int) -> Iterator[Chunk]:
    """Split into chunks of up to `size` characters, each repeating up to `overlap` of the one before in its section."""
    text, line, counted_to = document.text, 1, 0
    for start, stop, heading in _sections(document):
        for a, b in _pieces(text, start, stop, size, overlap):
            if document.has_lines:
                # With an overlap, a chunk starts before the last position.
                line += text.count("\n", counted_to, a) if a >= counted_to else -text.count("\n", a, counted_to)
                counted_to = a
            page = bisect_right(document.pages, a)
            yield Chunk(text[a:b], a, b, line if document.has_lines else 0, page, heading)


def _sections(document: ParsedDocument) -> Iterator[tuple[int, int, str]]:
    """Start and end of each section, and the path of headings above it.

    A heading with no text below it is not a section by itself: its passage would match and say nothing.
    """
    text = document.text
    headings = {heading.start: heading for heading in document.headings}
    path: dict[int, str] = {}
    start = body = before = 0
    is_blank = True
    for place in sorted({0, *headings, *document.pages, len(text)}):
        # Only new text is checked, because a section may begin with thousands of headings.
        is_blank = is_blank and not text[before:place].strip()
        has_body = bool(text[max(body, before) : place].strip())
        if place > start and (is_blank or has_body or place == len(text)):
            yield start, place, " > ".join(path.values())
            start = body = place
            is_blank = True
        if heading := headings.get(place):
            path = {level: title for level, title in path.items() if level < heading.level}
            path[heading.level] = heading.title[:LONGEST_TITLE]
            body = heading.end
        before = place


def _pieces(text: str, start: int, stop: int, size: int, overlap: int) -> Iterator[tuple[int, int]]:
    at = start
    while stop - at > size:
        cut = _split_point(text, at, at + size)
        yield at, cut
        at = _overlap_start(text, cut, max(at + 1, cut - overlap)) if overlap else cut
    if stop > at:
        yield at, stop


def _split_point(text: str, start: int, limit: int) -> int:
    """The best place to end a chunk, in its second half."""
    middle = start + (limit - start) // 2
    for end in _ENDS:
        if matches := list(end.finditer(text, middle, limit)):
            return matches[-1].end()
    cut = limit
    while cut > middle + 1 and _is_inside(text, cut):
        cut -= 1
    return cut


def _overlap_start(text: str, cut: int, earliest: int) -> int:
    """The start of the next chunk: the first sentence or word of the overlap."""
    for end in _ENDS[1:]:
        # Start a little earlier, to see the punctuation before the overlap.
        for match in end.finditer(text, max(earliest - 2, 0), cut):
            if earliest <= match.end() < cut:
                return match.end()
    while earliest < cut and _is_inside(text, earliest):
        earliest += 1
    return earliest


def _is_inside(text: str, place: int) -> bool:
    """Whether a place is inside a grapheme, which readers see as one character."""
    after, before = text[place], text[place - 1]
    is_joined = after in _JOINERS or before == "\u200d"
    return is_joined or unicodedata.combining(after) > 0 or (before == "\r" and after == "\n")
