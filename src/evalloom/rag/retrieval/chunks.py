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


_SPLIT_PATTERNS = (
    # Best split points first: after a paragraph, a sentence or line, a word.
    lazy_pattern(r"\n[ \t\r]*\n\s*"),
    lazy_pattern(r"[。！？；](?:[”’」』）】》]*)|[.!?][)\"'”’]*\s+|\n"),
    lazy_pattern(r"[\s，、,;]+"),
)
LONGEST_TITLE = 200
"""Maximum length of a heading in the chunks below it, each of which repeats it."""
_JOINERS = "\u200d\ufe0e\ufe0f"


def chunks(document: ParsedDocument, size: int, overlap: int) -> Iterator[Chunk]:
    """Split into chunks of up to `size` characters, each repeating up to `overlap` of the one before in its section."""
    text, line, line_at = document.text, 1, 0
    for start, stop, heading in _sections(document):
        for chunk_start, chunk_end in _split_section(text, start, stop, size, overlap):
            if document.has_lines:
                # An overlapping chunk may start before the position whose line is known.
                if chunk_start >= line_at:
                    line += text.count("\n", line_at, chunk_start)
                else:
                    line -= text.count("\n", chunk_start, line_at)
                line_at = chunk_start
            page = bisect_right(document.pages, chunk_start)
            chunk_text = text[chunk_start:chunk_end]
            yield Chunk(chunk_text, chunk_start, chunk_end, line if document.has_lines else 0, page, heading)


def _sections(document: ParsedDocument) -> Iterator[tuple[int, int, str]]:
    """Start and end of each section, and the path of headings above it.

    A heading without text below it joins the next section: a chunk of it alone would match queries but answer none.
    """
    text = document.text
    headings = {heading.start: heading for heading in document.headings}
    path: dict[int, str] = {}
    start = body = checked_to = 0
    is_blank = True
    for position in sorted({0, *headings, *document.pages, len(text)}):
        # Only new text is checked, because a section may begin with thousands of headings.
        is_blank = is_blank and not text[checked_to:position].strip()
        has_body = bool(text[max(body, checked_to) : position].strip())
        if position > start and (is_blank or has_body or position == len(text)):
            yield start, position, " > ".join(path.values())
            start = body = position
            is_blank = True
        if heading := headings.get(position):
            path = {level: title for level, title in path.items() if level < heading.level}
            path[heading.level] = heading.title[:LONGEST_TITLE]
            body = heading.end
        checked_to = position


def _split_section(text: str, start: int, stop: int, size: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Start and end of each chunk of a section."""
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
    for pattern in _SPLIT_PATTERNS:
        if matches := list(pattern.finditer(text, middle, limit)):
            return matches[-1].end()
    cut = limit
    while cut > middle + 1 and _is_inside_grapheme(text, cut):
        cut -= 1
    return cut


def _overlap_start(text: str, cut: int, earliest: int) -> int:
    """The start of the next chunk: the first sentence or word of the overlap."""
    for pattern in _SPLIT_PATTERNS[1:]:
        # Start a little earlier, to see the punctuation before the overlap.
        for match in pattern.finditer(text, max(earliest - 2, 0), cut):
            if earliest <= match.end() < cut:
                return match.end()
    while earliest < cut and _is_inside_grapheme(text, earliest):
        earliest += 1
    return earliest


def _is_inside_grapheme(text: str, position: int) -> bool:
    """Whether a position splits a grapheme: several code points that form one visible character."""
    after, before = text[position], text[position - 1]
    is_joined = after in _JOINERS or before == "\u200d"
    return is_joined or unicodedata.combining(after) > 0 or (before == "\r" and after == "\n")
