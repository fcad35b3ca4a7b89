"""Opens a path or stdin, compressed or not, in any encoding, and yields chunks of UTF-8."""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

from msgspec import Struct

from evalloom.core.lazy import lazy_pattern
from evalloom.core.text import quote
from evalloom.files.rows import NO_TEXT, Refused, refused

CHUNK = 128 * 1024
_RANGE_CHUNK = 64 * 1024
"""Larger texts would get new pages from the system each time, which takes a fifth of the time of validation."""
_SAMPLE = CHUNK
_LARGEST_SHOWN_FILE = 64 * 1024 * 1024
_LONGEST_SHOWN_LINE = 20_000
_PACKED_SUFFIXES = (".gz", ".zst")
_FOREIGN = (
    (b"PK\x03\x04", "a zip archive or an Excel workbook. Save the sheet as CSV"),
    (b"PAR1", "a Parquet file. Export it as JSONL"),
    (b"SQLite format 3", "a SQLite database. Export the table as CSV or JSONL"),
    (b"%PDF", "a PDF document"),
    (b"\x89PNG", "a picture"),
)
_CJK = lazy_pattern("[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")


class Source(Struct, frozen=True):
    """One file to read. `name` is what messages call it; `path` is empty for stdin."""

    name: str
    path: Path | None = None
    encoding: str = ""
    content: bytes | None = None
    """The bytes of a source that is in memory instead of a file."""

    @property
    def suffix(self) -> str:
        """Return the extension of the layout: `.jsonl` for `cases.jsonl.gz`."""
        name = Path(self.name)
        return Path(name.stem).suffix.lower() if name.suffix.lower() in _PACKED_SUFFIXES else name.suffix.lower()


def source_of(path: str | Path, encoding: str = "") -> Source:
    """Return the source that a user names on the command line; `-` is stdin."""
    if str(path) == "-":
        return Source("<stdin>", None, encoding)
    return Source(Path(path).as_posix(), Path(path), encoding)


def read_chunks(source: Source) -> Iterator[bytes]:
    """Yield the text of a source as UTF-8 without BOM. Raises Refused where reading fails."""
    with _open(source) as stream:
        unpack = _unpacker(stream.peek(4))
        with cast(io.BufferedIOBase, unpack(stream)) if unpack else stream as unpacked:
            yield from _as_utf8(_pieces(unpacked), source)


def read_range(path: Path, start: int, stop: int) -> Iterator[bytes]:
    """Yield the lines of a plain file that begin in [start, stop), to their ends."""
    with path.open("rb") as stream:
        at = start
        if start:
            stream.seek(start - 1)
            at = start - 1 + _to_line_end(stream, stop - start)
        while at < stop:
            piece = stream.read(min(_RANGE_CHUNK, stop - at))
            if not piece:
                return
            at += len(piece)
            yield piece
            while at >= stop and piece and not piece.endswith(b"\n"):
                piece = stream.readline(CHUNK)
                yield piece


def _to_line_end(stream: IO[bytes], limit: int) -> int:
    """Move past the next line break or the limit; return the number of bytes."""
    moved = 0
    while moved <= limit and (piece := stream.readline(CHUNK)):
        moved += len(piece)
        if piece.endswith(b"\n"):
            break
    return moved


def read_lines(file: str, numbers: Collection[int]) -> dict[int, str]:
    """Return the text of some lines, to show it beside findings; none for stdin and for large files."""
    source = source_of(file)
    if source.path is None or not source.path.is_file() or source.path.stat().st_size > _LARGEST_SHOWN_FILE:
        return {}
    lines: dict[int, str] = {}

    def add(number: int, line: bytes) -> None:
        if number in numbers:
            lines[number] = line.decode("utf-8", "replace").rstrip("\r")

    number, line, size = 1, b"", 0
    with suppress(Refused):
        for chunk in read_chunks(source):
            first, *others = chunk.split(b"\n")
            line += first[: _LONGEST_SHOWN_LINE - len(line)]
            for following in others:
                add(number, line)
                number, line = number + 1, following[:_LONGEST_SHOWN_LINE]
            size += len(chunk)
            # A small compressed file may unpack to a very large one.
            if number > max(numbers, default=0) or size > _LARGEST_SHOWN_FILE:
                break
    add(number, line)
    return lines


def is_plain(source: Source) -> bool:
    """Whether the file is uncompressed UTF-8, so that it can be read in ranges."""
    if source.path is None or source.encoding or not source.path.is_file():
        return False
    with source.path.open("rb") as stream:
        head = stream.read(_SAMPLE)
    return not _unpacker(head) and not head.startswith(codecs.BOM_UTF8) and _guess_encoding(head) == "utf-8"


def _open(source: Source) -> io.BufferedReader:
    try:
        if source.content is not None:
            return io.BufferedReader(cast(io.RawIOBase, io.BytesIO(source.content)), CHUNK)
        if source.path is None:
            # sys.stdin is None if the process has no standard input.
            if sys.stdin is None:
                raise refused("file_unreadable", "cannot be opened: there is no standard input")
            stream: IO[bytes] = sys.stdin.buffer
        elif source.path.is_dir():
            raise refused("is_directory", "expected a file, got a folder. Name a file in it")
        else:
            stream = source.path.open("rb")
        buffered: io.BufferedReader = io.BufferedReader(cast(io.RawIOBase, stream), CHUNK)
        buffered.peek(1)
        return buffered
    except FileNotFoundError:
        raise refused("cases_missing", "there is no such file. Check the path and the working folder") from None
    except (OSError, ValueError) as error:
        raise refused("file_unreadable", f"cannot be opened: {_reason(error)}") from None


def _unpacker(head: bytes) -> Callable[[IO[bytes]], IO[bytes]] | None:
    if head.startswith(b"\x1f\x8b"):
        import gzip

        return lambda stream: cast(IO[bytes], gzip.GzipFile(fileobj=stream))
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return _open_zstd
    return None


def _open_zstd(stream: IO[bytes]) -> IO[bytes]:
    from evalloom.files.zstd import ZstdFile  # imported here: few files are compressed

    return cast(IO[bytes], ZstdFile(stream))


def _pieces(stream: io.BufferedIOBase) -> Iterator[bytes]:
    """Yield chunks of equal size; if the stream breaks off, yield the part before the error first."""
    piece = b""
    try:
        while more := stream.read1(CHUNK - len(piece)):
            piece += more
            if len(piece) == CHUNK:
                yield piece
                piece = b""
    except Exception as error:
        # The zstd module has its own error class, under two names in two Python versions.
        import zlib  # deferred: only a damaged file needs it

        if not isinstance(error, (EOFError, OSError, zlib.error)) and type(error).__name__ != "ZstdError":
            raise
        yield piece
        raise refused("file_truncated", f"breaks off: {_reason(error)}. The part before that was read") from None
    yield piece


def _as_utf8(pieces: Iterator[bytes], source: Source) -> Iterator[bytes]:
    head = next(pieces, b"")
    guess = _guess_encoding(head)
    encoding = _named_encoding(source.encoding) if source.encoding else guess
    if encoding in ("utf-16", "utf-32") and encoding != guess:
        # Python's decoders for utf-16 and utf-32 need a byte order mark.
        if not guess.startswith(encoding):
            raise refused("wrong_encoding", f"is not {encoding}: there is no byte order mark. Pass another --encoding")
        encoding = guess
    _refuse_foreign(head, encoding, is_named=bool(source.encoding))
    if encoding == "utf-8":
        yield head.removeprefix(codecs.BOM_UTF8)
        yield from pieces
        return
    decoder = codecs.getincrementaldecoder(encoding)(_MARK)
    yield decoder.decode(head).removeprefix("\ufeff").encode("utf-8", _MARK)
    for piece in pieces:
        yield decoder.decode(piece).encode("utf-8", _MARK)
    yield decoder.decode(b"", final=True).encode("utf-8", _MARK)


_MARK = "evalloom.mark"


def _mark(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace undecodable bytes by a mark, so that only the record around them is refused."""
    if isinstance(error, UnicodeDecodeError):
        return "\udcff", error.end
    if isinstance(error, UnicodeEncodeError):
        return NO_TEXT, error.end
    raise error


codecs.register_error(_MARK, _mark)


def _named_encoding(name: str) -> str:
    try:
        codec = codecs.lookup(name).name
        is_text = isinstance(codecs.getincrementaldecoder(codec)(_MARK).decode(b""), str)
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError):
        # Python also lists codecs such as base64, and each of them raises another error here.
        is_text = False
    if not is_text:
        message = f"--encoding: expected utf-8, utf-16, gbk, gb18030 or another text encoding, got {quote(name)}"
        raise refused("unknown_encoding", message)
    return "utf-8" if codec == "utf-8-sig" else codec


def _guess_encoding(head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = head[:_SAMPLE]
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    # The other half has a few zeros too: one for each character U+xx00, such as the frequent U+4E00.
    if odd > max(len(sample) // 32, 8 * even, 1):
        return "utf-16-le"
    if even > max(len(sample) // 32, 8 * odd, 1):
        return "utf-16-be"
    return "utf-8"


def _refuse_foreign(head: bytes, encoding: str, is_named: bool) -> None:
    """Raise Refused with the kind of a file that is not a dataset."""
    if head.startswith(b"version https://git-lfs.github.com/spec/"):
        raise refused("git_lfs_pointer", "is a Git LFS pointer, not the data. Run 'git lfs pull'")
    for magic, kind in _FOREIGN:
        if head.startswith(magic):
            raise refused("binary_file", f"expected text, got {kind}")
    if encoding != "utf-8":
        return
    sample = head[:_SAMPLE]
    if b"\x00" in sample:
        raise refused("binary_file", "expected text, got binary data (NUL bytes)")
    if not is_named and _looks_like_gb18030(sample):
        raise refused("not_utf8", "is not UTF-8; it looks like Chinese text in GB18030 / GBK. Add --encoding gb18030")


def _looks_like_gb18030(sample: bytes) -> bool:
    as_utf8 = sample.decode("utf-8", "replace")
    bad = as_utf8.count("\ufffd")
    # A few broken bytes in UTF-8 do not make it another encoding.
    if bad <= 1 or bad <= sum(char > "\x7f" for char in as_utf8) - bad:
        return False
    try:
        text = codecs.getincrementaldecoder("gb18030")().decode(sample)
    except UnicodeDecodeError:
        return False
    foreign = sum(char > "\x7f" for char in text)
    return len(_CJK.findall(text)) * 10 >= foreign * 9 and foreign > 3


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()


__all__ = ["CHUNK", "Refused", "Source", "is_plain", "read_chunks", "source_of"]
