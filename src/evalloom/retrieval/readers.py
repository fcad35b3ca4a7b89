"""Reads a document of any known kind into text with its headings and pages."""

from __future__ import annotations

import io
import logging
import re
import zipfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

from evalloom.files.source import Refused, Source, read_chunks
from evalloom.retrieval.chunks import Document, Heading

LARGEST = 50 * 1024 * 1024
LARGEST_UNPACKED = 200 * 1024 * 1024


class Unreadable(Exception):
    """A document that cannot be read, and why. `may_change`: not the file is at fault, so try again next time."""

    def __init__(self, reason: str, may_change: bool = False) -> None:
        super().__init__(reason)
        self.may_change = may_change


def read(name: str, suffix: str, content: bytes) -> Document:
    """The document in the bytes of a file. Raises Unreadable."""
    if len(content) > LARGEST:
        raise Unreadable(f"is larger than {LARGEST >> 20} MB. Split it")
    try:
        return READERS[suffix](name, content)
    except Unreadable:
        raise
    except Refused as fault:
        raise Unreadable(fault.problem.message) from None
    except Exception as fault:
        # A user's file in the hands of a library: a broken one raises anything, from KeyError to RecursionError.
        raise Unreadable(f"cannot be read as {suffix[1:]}: {type(fault).__name__}: {str(fault)[:200]}") from None


def _plain(name: str, content: bytes) -> Document:
    return Document(_decoded(name, content), has_lines=True)


def _markdown(name: str, content: bytes) -> Document:
    text = _decoded(name, content)
    return Document(text, list(_markdown_headings(text)), has_lines=True)


def _decoded(name: str, content: bytes) -> str:
    for encoding in ("", "gb18030"):
        try:
            return _joined(read_chunks(Source(name, encoding=encoding, content=content))).decode("utf-8", "replace")
        except Refused as fault:
            if fault.problem.code != "not_utf8" or encoding:
                raise
    raise AssertionError("the last encoding either reads or raises")


def _joined(pieces: Iterator[bytes]) -> bytes:
    """All of them; a packed file that unfolds to more than fits is refused on the way."""
    found = bytearray()
    for piece in pieces:
        found += piece
        if len(found) > LARGEST_UNPACKED:
            raise Unreadable(f"unpacks to more than {LARGEST_UNPACKED >> 20} MB. Split it")
    return bytes(found)


_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_SHARP = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*\r?$")
_UNDERLINE = re.compile(r"(=+|-+)[ \t]*\r?$")


def _markdown_headings(text: str) -> Iterator[Heading]:
    fence, at, before, before_that = "", 0, (0, ""), ""
    for line in _LINE.findall(text):
        bare = line.rstrip("\n")
        mark = _FENCE.match(bare)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        elif not fence:
            if found := _SHARP.match(bare):
                yield Heading(at, len(found[1]), found[2], at + len(line))
            # Only a single line between a blank one and the underline: not the end of front matter, nor a rule.
            elif (found := _UNDERLINE.match(bare)) and before[1].strip() and not before_that.strip():
                yield Heading(before[0], 1 if found[1][0] == "=" else 2, before[1].strip(), at + len(line))
        before_that, before = before[1], (at, bare)
        at += len(line)


_RST_RULE = re.compile(r"([!-/:-@\[-`{-~])\1{2,}[ \t]*\r?$")


def _restructured(name: str, content: bytes) -> Document:
    """reStructuredText: a title has a line of marks below it, and which mark means which level shows in their order."""
    text = _decoded(name, content)
    headings: list[Heading] = []
    levels: dict[str, int] = {}
    at, before = 0, (0, "")
    for line in _LINE.findall(text):
        found = _RST_RULE.match(line.rstrip("\n"))
        title = before[1].strip()
        if found and title and not _RST_RULE.match(before[1]) and len(found[0].strip()) >= len(title):
            level = levels.setdefault(found[1], len(levels) + 1)
            headings.append(Heading(before[0], level, title, at + len(line)))
        before = (at, line.rstrip("\n"))
        at += len(line)
    return Document(text, headings, has_lines=True)


class _Writer:
    """Text that grows by pieces, with the headings among them."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0
        self.headings: list[Heading] = []

    @property
    def size(self) -> int:
        return self._size

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def write(self, text: str) -> None:
        self._parts.append(text)
        self._size += len(text)

    def end_line(self) -> None:
        if self._parts and not self._parts[-1].endswith("\n"):
            self.write("\n")

    def end_heading(self, start: int, level: int, title: str) -> None:
        self.end_line()
        if title:
            self.headings.append(Heading(start, level, title, self._size))

    def since(self, part: int) -> str:
        return "".join(self._parts[part:])

    def count(self) -> int:
        return len(self._parts)


_UNSEEN = frozenset(("script", "style", "template", "noscript", "svg", "math", "iframe", "object"))
_INLINE_TAGS = """
a abbr b bdi bdo big cite code del dfn em font i img ins kbd label mark q s samp small span strike strong sub sup
time tt u var wbr ruby rb rt rp
"""
_INLINE = frozenset(_INLINE_TAGS.split())


def _html(name: str, content: bytes) -> Document:
    _need("selectolax", "an .html document", "documents")
    from selectolax.lexbor import LexborHTMLParser  # deferred: an extra

    root: Any = LexborHTMLParser(_decoded(name, content)).root
    found = _Writer()
    # A stack, because pages nest as deep as they like.
    stack: list[tuple[Any, Callable[[], None] | None]] = [(root, None)] if root is not None else []
    while stack:
        node, leave = stack.pop()
        if leave is not None:
            leave()
        elif node.tag == "-text":
            _write_inline(found, node.text_content or "")
        elif node.tag not in _UNSEEN:
            stack += _enter_tag(found, node)
    return Document(found.text, found.headings)


def _write_inline(found: _Writer, text: str) -> None:
    plain = re.sub(r"\s+", " ", text)
    if plain.strip() or (plain and found.size and not found.since(-1).endswith(("\n", " "))):
        found.write(plain.lstrip() if not found.size or found.since(-1).endswith("\n") else plain)


def _enter_tag(found: _Writer, node: Any) -> list[tuple[Any, Callable[[], None] | None]]:
    """What to do inside of a tag and behind it, the last first."""
    tag = node.tag
    if tag not in _INLINE:
        found.end_line()
    start, part = found.size, found.count()

    def leave() -> None:
        if re.fullmatch("h[1-6]", tag):
            found.end_heading(start, int(tag[1]), found.since(part).strip())
        elif tag in ("p", "ul", "ol", "table", "pre", "blockquote") and found.size > start:
            found.end_line()
            found.write("\n")
        elif tag in ("td", "th") and found.size > start:
            found.write("\t")
        elif tag not in _INLINE:
            found.end_line()

    children, child = [], node.child
    while child is not None:
        children.append(child)
        child = child.next
    return [(None, leave), *((one, None) for one in reversed(children))]


def _pdf(name: str, content: bytes) -> Document:
    _need("pypdf", "a .pdf document", "documents")
    from pypdf import PdfReader  # deferred: an extra

    # It tells of every oddity of a file on stderr, which is ours.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    reader = PdfReader(io.BytesIO(content))
    if reader.is_encrypted and not reader.decrypt(""):
        raise Unreadable("is locked with a password. Save it without one")
    found = _Writer()
    pages = []
    for page in reader.pages:
        pages.append(found.size)
        # Half characters come out of some fonts, and no store takes them.
        found.write(page.extract_text().encode("utf-8", "replace").decode())
        found.end_line()
        if found.size > LARGEST_UNPACKED:
            raise Unreadable(f"has more than {LARGEST_UNPACKED >> 20} MB of text. Split it")
    if pages and not found.text.strip():
        raise Unreadable("has pages but no text: they are probably pictures. Run text recognition (OCR) on it")
    return Document(found.text, pages=pages)


def _docx(name: str, content: bytes) -> Document:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > LARGEST_UNPACKED:
            raise Unreadable(f"unpacks to more than {LARGEST_UNPACKED >> 20} MB. Split it")
    _need("docx", "a .docx document", "documents")
    import docx  # deferred: an extra

    found = _Writer()
    for block in docx.Document(io.BytesIO(content)).iter_inner_content():
        start = found.size
        if hasattr(block, "rows"):
            for row in block.rows:
                found.write("\t".join(cell.text.strip() for cell in row.cells) + "\n")
            found.write("\n")
            continue
        found.write(block.text + "\n")
        level = _docx_level(block.style.name if block.style is not None else "")
        if level and block.text.strip():
            found.end_heading(start, level, block.text.strip())
    return Document(found.text, found.headings)


def _docx_level(style: str | None) -> int:
    """How deep a heading is by its style; 0 for what is none."""
    if style == "Title":
        return 1
    found = re.fullmatch(r"heading ([1-9])", style or "", re.IGNORECASE)
    return int(found[1]) if found else 0


def _need(module: str, what: str, extra: str) -> None:
    if find_spec(module) is None:
        message = f"{what} needs {module}, which is not installed. Type: pip install 'evalloom[{extra}]'"
        raise Unreadable(message, may_change=True)


READERS: dict[str, Callable[[str, bytes], Document]] = {
    ".md": _markdown,
    ".markdown": _markdown,
    ".txt": _plain,
    ".rst": _restructured,
    ".html": _html,
    ".htm": _html,
    ".pdf": _pdf,
    ".docx": _docx,
}
"""Who reads a file, by how its name ends."""
