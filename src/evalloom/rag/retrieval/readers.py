"""Reads a document of a supported format into text with headings and pages."""

from __future__ import annotations

import io
import logging
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from time import monotonic
from typing import Any

from evalloom.core.lazy import lazy_pattern
from evalloom.rag.retrieval.chunks import LONGEST_TITLE, Heading, ParsedDocument
from evalloom.rag.retrieval.decoding import UnreadableDocument, decode

LARGEST = 50 * 1024 * 1024
LARGEST_UNPACKED = 200 * 1024 * 1024
LONGEST_S = 20.0
"""Time limit for documents that a library reads; large ones get more."""
_EXTRA_S_PER_MB = 5.0


def read(suffix: str, content: bytes) -> ParsedDocument:
    """Parse the bytes of a file. Raises UnreadableDocument."""
    if len(content) > LARGEST:
        raise UnreadableDocument(f"is larger than {LARGEST >> 20} MB. Split it")
    if content.startswith(b"version https://git-lfs.github.com/spec/"):
        raise UnreadableDocument("is a Git LFS pointer, not the document. Run 'git lfs pull'")
    try:
        return READERS[suffix](content)
    except UnreadableDocument:
        raise
    except MemoryError:
        raise UnreadableDocument("takes more memory than is available. Split it", may_change=True) from None
    except Exception as error:
        # Libraries raise anything for a broken file, from KeyError to RecursionError.
        raise UnreadableDocument(
            f"cannot be read as {suffix[1:]}: {type(error).__name__}: {str(error)[:200]}"
        ) from None


def _markdown(content: bytes) -> ParsedDocument:
    text = decode(content)
    return ParsedDocument(text, list(_markdown_headings(text)), has_lines=True)


_LINE = lazy_pattern(r"[^\n]*\n|[^\n]+")
_FENCE = lazy_pattern(r" {0,3}(```+|~~~+)")
_ATX_HEADING = lazy_pattern(r" {0,3}(#{1,6})[ \t]+(.*)")
_SETEXT_UNDERLINE = lazy_pattern(r"(=+|-+)[ \t]*\r?$")


def _markdown_headings(text: str) -> Iterator[Heading]:
    fence, at, previous, line_before_previous = "", 0, (0, ""), ""
    for line in _LINE.findall(text):
        bare = line.rstrip("\n")
        mark = _FENCE.match(bare)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        elif not fence:
            if match := _ATX_HEADING.match(bare):
                # Drop closing marks as in `Leave ##`, but keep `C#`. A regex would backtrack on long runs of blanks.
                title = match[2].rstrip()
                unmarked = title.rstrip("#")
                title = unmarked.rstrip() if not unmarked or unmarked[-1] in " \t" else title
                yield Heading(at, len(match[1]), title, at + len(line))
            # Only one line between a blank line and the underline; otherwise it ends front matter, or is a rule.
            elif (match := _SETEXT_UNDERLINE.match(bare)) and previous[1].strip() and not line_before_previous.strip():
                yield Heading(previous[0], 1 if match[1][0] == "=" else 2, previous[1].strip(), at + len(line))
        line_before_previous, previous = previous[1], (at, bare)
        at += len(line)


_RST_RULE = lazy_pattern(r"([!-/:-@\[-`{-~])\1{2,}[ \t]*\r?$")


def _rst(content: bytes) -> ParsedDocument:
    """Parse reStructuredText: each underline character is a level, in order of first appearance."""
    text = decode(content)
    headings: list[Heading] = []
    levels: dict[str, int] = {}
    at, previous = 0, (0, "")
    for line in _LINE.findall(text):
        rule = _RST_RULE.match(line.rstrip("\n"))
        title = previous[1].strip()
        if rule and title and not _RST_RULE.match(previous[1]) and len(rule[0].strip()) >= len(title):
            level = levels.setdefault(rule[1], len(levels) + 1)
            headings.append(Heading(previous[0], level, title, at + len(line)))
        previous = (at, line.rstrip("\n"))
        at += len(line)
    return ParsedDocument(text, headings, has_lines=True)


class _TextWriter:
    """Collects text and headings, and enforces the limits of time and size."""

    def __init__(self, content: bytes) -> None:
        self._parts: list[str] = []
        self._size = 0
        self._time_limit_s = LONGEST_S + _EXTRA_S_PER_MB * len(content) / (1 << 20)
        self._deadline = monotonic() + self._time_limit_s
        self.headings: list[Heading] = []

    @property
    def size(self) -> int:
        return self._size

    @property
    def text(self) -> str:
        return "".join(self._parts)

    @property
    def last(self) -> str:
        return self._parts[-1] if self._parts else ""

    def check_time(self, *_: object) -> None:
        if monotonic() > self._deadline:
            # The machine may have been busy, so a later refresh tries the document again.
            message = f"takes more than {self._time_limit_s:.0f} s to read. Split it, or save it as text"
            raise UnreadableDocument(message, may_change=True)

    def write(self, text: str) -> None:
        self.check_time()
        self._parts.append(text)
        self._size += len(text)
        if self._size > LARGEST_UNPACKED:
            raise UnreadableDocument(f"has more than {LARGEST_UNPACKED >> 20} MB of text. Split it")

    def end_line(self) -> None:
        if self._parts and not self._parts[-1].endswith("\n"):
            self.write("\n")

    def end_heading(self, start: int, level: int, part: int) -> None:
        """Turn the text since a part into a heading."""
        title = self._title_since(part).strip()
        self.end_line()
        if title:
            self.headings.append(Heading(start, level, title, self._size))

    def _title_since(self, part: int) -> str:
        """The text since a part, cut soon after the longest title, because headings may be nested."""
        text = ""
        for at in range(part, len(self._parts)):
            text += self._parts[at]
            if len(text) > 2 * LONGEST_TITLE:
                break
        return text

    def part_count(self) -> int:
        return len(self._parts)

    def document(self, pages: Sequence[int] = (), empty_message: str = "has no text") -> ParsedDocument:
        text = self.text
        if not text.strip():
            raise UnreadableDocument(empty_message)
        return ParsedDocument(text, self.headings, pages)


_INVISIBLE = frozenset(("script", "style", "template", "noscript", "svg", "math", "iframe", "object"))
_INLINE_TAGS = """
a abbr b bdi bdo big cite code del dfn em font i img ins kbd label mark q s samp small span strike strong sub sup
time tt u var wbr ruby rb rt rp
"""
_INLINE = frozenset(_INLINE_TAGS.split())


def _html(content: bytes) -> ParsedDocument:
    from selectolax.lexbor import LexborHTMLParser  # deferred: only HTML needs it

    text = decode(content, is_html=True)
    if _nesting_work(text) > _MAX_NESTING_WORK:
        raise UnreadableDocument("has too many nested tags. Close them, or save it as text")
    root: Any = LexborHTMLParser(text).root
    writer = _TextWriter(content)
    # A stack instead of recursion, because pages nest arbitrarily deep.
    stack: list[tuple[Any, Callable[[], None] | None]] = [(root, None)] if root is not None else []
    while stack:
        node, leave = stack.pop()
        if leave is not None:
            leave()
        elif node.tag == "-text":
            _write_inline(writer, node.text_content or "")
        elif node.tag not in _INVISIBLE:
            stack += _enter_tag(writer, node)
    return writer.document()


_TAG = lazy_pattern(r"<(/?)([a-z][a-z0-9-]*)((?:\s(?:[^<>\"']|\"[^\"]*\"|'[^']*')*)?)")
_WITHOUT_TAGS = lazy_pattern(
    r"<!--.*?(?:-->|$)|(?<=<script)[^>]*>.*?(?=</script|$)|(?<=<style)[^>]*>.*?(?=</style|$)", re.DOTALL
)
"""Comments, scripts and styles, which contain no tags."""
_IMPLICITLY_CLOSED_TAGS = """
a area base br col embed hr img input link meta source track wbr p li dt dd td th tr tbody thead tfoot option
"""
_IMPLICITLY_CLOSED = frozenset(_IMPLICITLY_CLOSED_TAGS.split())
_REOPENED = frozenset(("b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"))
_REOPENING_COST = 100
_MAX_NESTING_WORK = 2_000_000_000
"""About ten seconds of parsing."""


def _nesting_work(text: str) -> int:
    """Estimate the parser's work for nested tags in advance, because parsing cannot be interrupted.

    For each new tag the parser scans all open ones, and it reopens unclosed ones such as `b` in each block.
    """
    open_tags: list[tuple[str, bool]] = []
    counts: Counter[str] = Counter()
    work = reopened = 0
    for closing, tag, attributes in _TAG.findall(_WITHOUT_TAGS.sub("", text.lower())):
        if tag in _IMPLICITLY_CLOSED:
            pass
        elif not closing:
            # The parser reopens at most three identical tags without attributes.
            open_tags.append((tag, tag in _REOPENED and bool(attributes.strip())))
            counts[tag] += 1
            reopened += open_tags[-1][1]
        elif counts[tag]:
            last = ""
            while last != tag:
                last, was_reopened = open_tags.pop()
                counts[last] -= 1
                reopened -= was_reopened
        work += len(open_tags) + _REOPENING_COST * reopened
    return work


def _write_inline(writer: _TextWriter, text: str) -> None:
    plain = re.sub(r"\s+", " ", text)
    if plain.strip() or (plain and writer.size and not writer.last.endswith(("\n", " "))):
        writer.write(plain.lstrip() if not writer.size or writer.last.endswith("\n") else plain)


def _enter_tag(writer: _TextWriter, node: Any) -> list[tuple[Any, Callable[[], None] | None]]:
    """The stack entries for the inside of a tag and for its end, last first."""
    tag = node.tag
    if tag not in _INLINE:
        writer.end_line()
    start, part = writer.size, writer.part_count()

    def leave() -> None:
        if re.fullmatch("h[1-6]", tag):
            writer.end_heading(start, int(tag[1]), part)
        elif tag in ("p", "ul", "ol", "table", "pre", "blockquote") and writer.size > start:
            writer.end_line()
            writer.write("\n")
        elif tag in ("td", "th") and writer.size > start:
            writer.write("\t")
        elif tag not in _INLINE:
            writer.end_line()

    children, child = [], node.child
    while child is not None:
        children.append(child)
        child = child.next
    return [(None, leave), *((child, None) for child in reversed(children))]


def _pdf(content: bytes) -> ParsedDocument:
    _require_module("pypdf", "a .pdf document")
    from pypdf import PdfReader  # deferred: an extra

    # pypdf logs every oddity of a file to stderr.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    writer = _TextWriter(content)
    reader = PdfReader(io.BytesIO(content))
    if reader.is_encrypted and not reader.decrypt(""):
        raise UnreadableDocument("is locked with a password. Save it without one")
    pages = []
    for page in reader.pages:
        pages.append(writer.size)
        # A page of a few kilobytes may take an hour, so the time is checked inside a page too.
        text = page.extract_text(visitor_operand_before=writer.check_time)
        # Some fonts yield lone surrogates, which the store rejects.
        writer.write(text.encode("utf-8", "replace").decode())
        writer.end_line()
    no_text = "has pages but no text: they are probably pictures. Run text recognition (OCR) on it"
    return writer.document(pages, no_text if pages else "has no pages")


_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_DOCX_SKIPPED = frozenset((f"{_W}del", f"{_W}moveFrom", f"{_W}pPr", f"{_W}rPr", f"{_W}sectPr"))
_DOCX_CHARACTERS = {
    f"{_W}tab": "\t",
    f"{_W}br": "\n",
    f"{_W}cr": "\n",
    f"{_W}noBreakHyphen": "-",
    f"{_W}softHyphen": "",
}
_DOCX_ENDS = {f"{_W}p": "\n", f"{_W}tc": "\t", f"{_W}tr": "\n"}


def _docx(content: bytes) -> ParsedDocument:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > LARGEST_UNPACKED:
            raise UnreadableDocument(f"unpacks to more than {LARGEST_UNPACKED >> 20} MB. Split it")
    _require_module("docx", "a .docx document")
    import docx  # deferred: an extra
    from docx.oxml import parse_xml

    document = docx.Document(io.BytesIO(content))
    levels = {style.style_id: _docx_level(style.name) for style in document.styles}
    writer = _TextWriter(content)
    _write_blocks(writer, document.element.body, levels)
    for kind in ("footnotes", "endnotes"):
        for relation in document.part.rels.values():
            if relation.reltype.endswith(f"/{kind}") and not relation.is_external:
                writer.write("\n")
                _write_blocks(writer, parse_xml(relation.target_part.blob), levels)
    return writer.document()


def _write_blocks(writer: _TextWriter, parent: Any, levels: dict[str, int]) -> None:
    """Write paragraphs and tables, including those in content controls, insertions and notes."""
    for block in parent:
        start, part = writer.size, writer.part_count()
        if block.tag == f"{_W}p":
            writer.write("".join(_docx_text(block)))
            level = levels.get(block.style or "", 0)
            if level:
                writer.end_heading(start, level, part)
        elif block.tag == f"{_W}tbl":
            for row in _outermost(block, f"{_W}tr"):
                cells = ("".join(_docx_text(cell)).strip() for cell in _outermost(row, f"{_W}tc"))
                writer.write("\t".join(cells) + "\n")
            writer.write("\n")
        elif block.tag not in _DOCX_SKIPPED:
            _write_blocks(writer, block, levels)


def _outermost(parent: Any, tag: str) -> Iterator[Any]:
    """The outermost descendants with a tag: a table may be nested in a cell."""
    for child in parent:
        if child.tag == tag:
            yield child
        elif child.tag not in _DOCX_SKIPPED:
            yield from _outermost(child, tag)


def _docx_text(element: Any) -> Iterator[str]:
    """The text of an element, without deletions and the fallback of drawings."""
    for child in element:
        if child.tag == f"{_W}t":
            yield child.text or ""
        elif child.tag in _DOCX_CHARACTERS:
            yield _DOCX_CHARACTERS[child.tag]
        elif child.tag not in _DOCX_SKIPPED and not str(child.tag).endswith("}Fallback"):
            yield from _docx_text(child)
    yield _DOCX_ENDS.get(element.tag, "")


def _docx_level(style: str | None) -> int:
    """The heading level of a style; 0 for other styles."""
    if style == "Title":
        return 1
    heading = re.fullmatch(r"heading ([1-9])", style or "", re.IGNORECASE)
    return int(heading[1]) if heading else 0


def _require_module(module: str, what: str) -> None:
    if find_spec(module) is None:
        message = f"{what} needs {module}, which is not installed. Type: pip install 'evalloom[documents]'"
        raise UnreadableDocument(message, may_change=True)


READERS: dict[str, Callable[[bytes], ParsedDocument]] = {
    ".md": _markdown,
    ".markdown": _markdown,
    ".txt": lambda content: ParsedDocument(decode(content), has_lines=True),
    ".rst": _rst,
    ".html": _html,
    ".htm": _html,
    ".pdf": _pdf,
    ".docx": _docx,
}
"""Readers by file extension."""

Unreadable = UnreadableDocument
"""The name that version 0.1 exports."""

__all__ = ["LARGEST", "LONGEST_S", "READERS", "Unreadable", "UnreadableDocument", "read"]
